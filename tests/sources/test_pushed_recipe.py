"""The recipe of a set on the Hub, and what it does not say of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

from curate.errors import SourceError, UsageError
from curate.sources import SourceConfig
from curate.sources.pushed_recipe import check_files, check_servers, fetch_pushed, is_pushed


class NoSet(RepositoryNotFoundError):
    def __init__(self) -> None:
        Exception.__init__(self, "404 for the set\nmore")


class NoFile(EntryNotFoundError):
    def __init__(self) -> None:
        Exception.__init__(self, "404 for the file\nmore")


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("hf://owner/name", True),
        (Path("hf://owner/name"), True),
        ("recipe.yaml", False),
        ("my/hf:/x", False),
    ],
)
def test_a_name_on_the_hub(path: str | Path, is_one: bool) -> None:
    assert is_pushed(path) is is_one


@pytest.mark.parametrize(
    ("path", "repo", "revision"),
    [
        ("hf://owner/name", "owner/name", None),
        ("hf:/owner/name", "owner/name", None),  # as a Path has it
        ("hf://datasets/owner/na.me-2@v1/x", "owner/na.me-2", "v1/x"),
    ],
)
def test_its_file_is_fetched(
    monkeypatch: pytest.MonkeyPatch, path: str, repo: str, revision: str | None
) -> None:
    asked: list[Any] = []

    def download(*args: Any, **named: Any) -> str:
        asked.append((args, named))
        return "/cache/recipe.yaml"

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert fetch_pushed(path) == Path("/cache/recipe.yaml")
    assert asked == [((repo, "recipe.yaml"), {"repo_type": "dataset", "revision": revision})]


@pytest.mark.parametrize(
    ("raised", "error", "words"),
    [
        (NoSet(), UsageError,
         ["the Hub has no dataset owner/name", "got: NoSet: 404 for the set\n", "check the name, and set HF_TOKEN"]),
        (NoFile(), UsageError,
         ["owner/name has no recipe", "`curate push` wrote, which has a recipe.yaml", "`curate init` starts a recipe"]),
        (ValueError("no route\nmore"), SourceError,
         ["the recipe of owner/name cannot be fetched", "got: ValueError: no route\n", "check HF_ENDPOINT, the network"]),
    ],
)  # fmt: skip
def test_why_it_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[Exception], words: list[str]
) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise raised

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(error) as caught:
        fetch_pushed("hf://owner/name")
    for word in words:
        assert word in f"{caught.value}\n"


@pytest.mark.parametrize("path", ["hf://name", "hf://owner/name/more", "hf://owner/na me"])
def test_what_is_no_name_is_refused(path: str) -> None:
    with pytest.raises(UsageError) as caught:
        fetch_pushed(path)
    assert f"got: {path}" in str(caught.value)
    assert "expected: hf://owner/name or hf://owner/name@revision" in str(caught.value)


def test_servers_without_an_address_are_named_with_the_option_that_gives_it() -> None:
    server = {"engine": "openai", "model": "m"}
    models = {
        "judge": {"jury": [server, {**server, "base_url": "http://x"}]},
        "policy": {"engine": "llamacpp"},
        "reviser": {**server, "model": "n", "base_url": ""},
    }
    with pytest.raises(UsageError) as caught:
        check_servers({"models": models}, "hf://owner/name")
    text = str(caught.value)
    assert "hf://owner/name does not say where its models are" in text
    assert "got: models.judge.jury.0: m, models.reviser: n" in text
    assert "servers of yours, with these models or others" in text
    assert (
        "--set models.judge.jury.0.base_url=http://localhost:8000/v1 --set models.reviser.base_url="
        in text
    )
    check_servers({"models": {"judge": {**server, "base_url": "http://x"}}}, "x")
    check_servers({}, "x")


def test_files_that_are_not_here_are_named_with_the_option_that_gives_others(
    tmp_path: Path,
) -> None:
    here = tmp_path / "here.jsonl"
    here.write_text("{}\n")
    sources = [
        SourceConfig(path=str(here)),
        SourceConfig(path=str(tmp_path / "*.jsonl")),
        SourceConfig(path=[str(here), str(tmp_path / "gone.jsonl")]),
        SourceConfig(path=str(tmp_path / "no-*.jsonl")),
    ]
    with pytest.raises(UsageError) as caught:
        check_files(sources, "hf://owner/name")
    text = str(caught.value)
    assert "hf://owner/name was made of files that were not pushed" in text
    assert f"got: {here}, {tmp_path}/gone.jsonl, {tmp_path}/no-*.jsonl" in text
    assert "the same files, or others, on this machine" in text
    assert "--set source.2.path=FILE --set source.3.path=FILE" in text
    check_files(sources[:2], "x")
