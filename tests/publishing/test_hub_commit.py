"""One commit or nothing, through the real client against a Hub of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.errors import CurateError, UsageError
from curate.publishing.hub_commit import push_files
from tests.hub_server import HubServer

REPO = "me/parcels"
CARD = (
    b"---\nlicense: mit\nconfigs: [{config_name: sft}]\nsize_categories: [n<1K]\n---\n# Parcels\n"
)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A card and two tables; the Hub looks at no more than their names."""
    made = {}
    for name, data in {
        "README.md": CARD,
        "sft/train-00000-of-00002.parquet": b"PAR1 one",
        "sft/train-00001-of-00002.parquet": b"PAR1 two",
    }.items():
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        made[name] = path
    return made


def push(hub: HubServer, files: dict[str, Path], **options: Any) -> Any:
    given = {"public": False, "message": "Push", "endpoint": hub.url} | options
    return push_files(
        options.pop("repo", REPO), files, **{k: v for k, v in given.items() if k != "repo"}
    )


def written(files: dict[str, Path]) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files.items()}


def commits(hub: HubServer) -> int:
    return sum("/commit/" in path for method, path in hub.requests if method == "POST")


def test_a_new_repository_is_private_and_gets_everything_in_one_commit(
    hub: HubServer, files: dict[str, Path]
) -> None:
    pushed = push(hub, files)
    assert hub.body("/api/repos/create")["visibility"] == "private"
    assert hub.repos[REPO].private
    assert (pushed.is_new_repo, pushed.is_private, pushed.is_unchanged) == (True, True, False)
    assert commits(hub) == 1
    history = hub.repos[REPO].history()
    assert [commit.title for commit in history] == ["Push", "initial commit"]
    assert pushed.url.endswith(history[0].oid)
    held = hub.files(REPO)
    assert {name: held[name] for name in files} == written(files)


def test_public_is_said_to_the_hub(hub: HubServer, files: dict[str, Path]) -> None:
    assert not push(hub, files, public=True).is_private
    assert hub.body("/api/repos/create")["visibility"] == "public"


def test_nothing_goes_to_a_public_repository_unless_that_is_meant(
    hub: HubServer, files: dict[str, Path]
) -> None:
    push(hub, files, public=True)
    files["README.md"].write_bytes(CARD + b"more")
    with pytest.raises(UsageError, match="--public"):
        push(hub, files)
    assert hub.files(REPO)["README.md"] == CARD
    push(hub, files, public=True)
    assert hub.files(REPO)["README.md"] == CARD + b"more"


def test_pushing_again_replaces_what_is_stale_in_the_same_commit_and_leaves_what_is_not_ours(
    hub: HubServer, files: dict[str, Path]
) -> None:
    push(hub, files)
    repo = hub.repos[REPO]
    theirs = {"LICENSE": b"theirs", "extra/own.parquet": b"PAR1 theirs", "sft/notes.md": b"theirs"}
    repo.commit("main", "theirs", hub.files(REPO) | theirs, [])
    stale = files.pop("sft/train-00001-of-00002.parquet")
    files["sft/train-00000-of-00001.parquet"] = stale
    del files["sft/train-00000-of-00002.parquet"]
    pushed = push(hub, files, message="Again")
    assert pushed.removed == tuple(f"sft/train-0000{n}-of-00002.parquet" for n in (0, 1))
    assert hub.files(REPO).keys() == {".gitattributes", *theirs, *files}
    assert [commit.title for commit in repo.history()][:2] == ["Again", "theirs"]
    assert commits(hub) == 2


def test_pushing_the_same_again_makes_no_commit(hub: HubServer, files: dict[str, Path]) -> None:
    push(hub, files)
    assert push(hub, files).is_unchanged
    assert commits(hub) == 1


def test_a_branch_is_made_for_it_and_main_stays(hub: HubServer, files: dict[str, Path]) -> None:
    push(hub, files, branch="second")
    assert hub.files(REPO).keys() == {".gitattributes"}
    assert hub.files(REPO, "second").keys() == {".gitattributes", *files}
    push(hub, files, branch="second")
    assert len(hub.repos[REPO].history("second")) == 2


FAILURES = {
    "validate": ("POST", "/api/validate-yaml", 400),
    "preupload": ("POST", "/preupload/", 403),
    "batch": ("POST", "/info/lfs/objects/batch", 403),
    "upload": ("PUT", "/lfs/", 403),
    "commit": ("POST", "/commit/", 500),
    "cut": ("POST", "/commit/", None),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_where_the_hub_fails_nothing_is_left_and_a_second_try_works(
    hub: HubServer, files: dict[str, Path], failure: tuple[str, str, int | None]
) -> None:
    hub.fail.append(failure)
    with pytest.raises(CurateError) as caught:
        push(hub, files)
    assert hub.fail == []
    assert caught.value.problem
    assert hub.repos == {}
    push(hub, files)
    assert {name: hub.files(REPO)[name] for name in files} == written(files)


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_where_the_hub_fails_an_old_repository_stays_as_it_was(
    hub: HubServer, files: dict[str, Path], failure: tuple[str, str, int | None]
) -> None:
    push(hub, files)
    before = dict(hub.files(REPO))
    files["README.md"].write_bytes(CARD + b"new")
    files["sft/train-00001-of-00002.parquet"].write_bytes(b"PAR1 new")
    hub.fail.append(failure)
    with pytest.raises(CurateError):
        push(hub, files)
    assert hub.files(REPO) == before
    push(hub, files)
    assert {name: hub.files(REPO)[name] for name in files} == written(files)


def test_a_branch_made_for_a_push_that_failed_is_gone(
    hub: HubServer, files: dict[str, Path]
) -> None:
    push(hub, files)
    hub.fail.append(FAILURES["commit"])
    files["README.md"].write_bytes(CARD + b"new")
    with pytest.raises(CurateError):
        push(hub, files, branch="second")
    assert hub.repos[REPO].branches.keys() == {"main"}


def test_a_lost_answer_does_not_hide_a_commit_that_landed(
    hub: HubServer, files: dict[str, Path]
) -> None:
    hub.lose.append(("POST", "/commit/"))
    pushed = push(hub, files)
    assert pushed.is_new_repo
    assert {name: hub.files(REPO)[name] for name in files} == written(files)
    assert push(hub, files).is_unchanged


def test_where_nobody_can_say_whether_it_landed_that_is_said(
    hub: HubServer, files: dict[str, Path]
) -> None:
    hub.lose.append(("POST", "/commit/"))
    hub.fail.append(("GET", "/commits/", 403))
    with pytest.raises(CurateError, match=r"not known whether[\s\S]*push again"):
        push(hub, files)
    assert push(hub, files).is_unchanged
    assert {name: hub.files(REPO)[name] for name in files} == written(files)


def test_what_could_not_be_taken_away_is_named(hub: HubServer, files: dict[str, Path]) -> None:
    hub.fail += [FAILURES["commit"], ("DELETE", "/api/repos/delete", 403)]
    with pytest.raises(CurateError, match="was created and is empty"):
        push(hub, files)
    assert hub.files(REPO).keys() == {".gitattributes"}
    push(hub, files)
    assert {name: hub.files(REPO)[name] for name in files} == written(files)


def test_a_commit_of_somebody_else_meanwhile_is_not_overwritten(
    hub: HubServer, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import HfApi

    push(hub, files)
    files["README.md"].write_bytes(CARD + b"new")
    real = HfApi.preupload_lfs_files

    def meanwhile(*arguments: Any, **options: Any) -> None:
        repo = hub.repos[REPO]
        repo.commit("main", "theirs", hub.files(REPO) | {"README.md": b"theirs"}, [])
        real(*arguments, **options)

    monkeypatch.setattr(HfApi, "preupload_lfs_files", meanwhile)
    with pytest.raises(CurateError, match="changed during the push"):
        push(hub, files)
    assert hub.files(REPO)["README.md"] == b"theirs"


def test_without_a_token_nothing_is_asked(
    hub: HubServer, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UsageError, match="HF_TOKEN"):
        push(hub, files)
    assert hub.requests == []


def test_a_token_the_hub_does_not_know(
    hub: HubServer, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(CurateError, match="does not accept the token") as caught:
        push(hub, files)
    assert "hf_other" not in str(caught.value)
    assert hub.repos == {}


def test_a_token_without_the_right_to_write(hub: HubServer, files: dict[str, Path]) -> None:
    with pytest.raises(CurateError, match="no write access to somebody/parcels"):
        push(hub, files, repo="somebody/parcels")
    hub.writable = ("me", "other")
    push(hub, files, repo="other/parcels", public=True)
    hub.writable = ("me",)
    files["README.md"].write_bytes(CARD + b"new")
    with pytest.raises(CurateError, match="no write access to other/parcels"):
        push(hub, files, repo="other/parcels", public=True)


def test_a_repository_that_is_there_and_cannot_be_seen(
    hub: HubServer, files: dict[str, Path]
) -> None:
    push(hub, files)
    hub.fail.append(("GET", "/api/datasets/", 404))
    before = dict(hub.files(REPO))
    with pytest.raises(CurateError, match="exists, and the token has no access to it"):
        push(hub, files)
    assert hub.files(REPO) == before


def test_a_hub_that_cannot_be_reached(files: dict[str, Path], hub: HubServer) -> None:
    with pytest.raises(CurateError, match="cannot be reached"):
        push(hub, files, endpoint="http://127.0.0.1:9")
