from __future__ import annotations

import ast
import json
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import curate
from curate import errors
from curate.errors import first_line, missing_extra, requirement

ERRORS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.CurateError)
}


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("no such file", "OSError: no such file"),
        ("\n  Pages follow:\n\n1. …", "OSError: Pages follow:"),
        ("", "OSError"),
        (" \n ", "OSError"),
    ],
)
def test_a_librarys_error_is_quoted_in_one_line(message: str, line: str) -> None:
    assert first_line(OSError(message)) == line


COMMIT = "0" * 40


@pytest.mark.parametrize(
    ("origin", "given"),
    [
        (None, "curate-dialogues[openai]"),
        ({"url": "file:///a%20b/curate", "dir_info": {"editable": True}}, "/a b/curate[openai]"),
        ({"url": "file:///clone", "dir_info": {}}, "/clone[openai]"),
        (
            {
                "url": "https://example.org/curate",
                "vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "main"},
            },
            f"curate-dialogues[openai] @ git+https://example.org/curate@{COMMIT}",
        ),
        (
            {"url": "https://example.org/curate.whl", "archive_info": {}},
            "curate-dialogues[openai] @ https://example.org/curate.whl",
        ),
    ],
)
def test_an_extra_is_installed_from_where_curate_came(
    origin: dict[str, object] | None, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed(Distribution):
        def read_text(self, filename: str) -> str | None:
            return None if origin is None else json.dumps(origin)

        def locate_file(self, path: object) -> Path:
            raise NotImplementedError

    monkeypatch.setattr(errors, "distribution", lambda name: Installed())
    assert requirement("openai") == given
    assert f"pip install '{given}'" in str(missing_extra("aiohttp", "openai"))


def test_the_newest_changes_are_those_of_this_version() -> None:
    root = Path(__file__).parents[1]
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    headings = [
        line
        for line in (root / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    ]
    assert headings[0].startswith(f"## {version}")


def test_every_error_says_what_would_be_right_or_what_to_do() -> None:
    made, bare = 0, []
    for path in Path(curate.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ERRORS:
                made += 1
                if not {"fix", "expected", None} & {keyword.arg for keyword in node.keywords}:
                    bare.append(f"{path}:{node.lineno} {ast.unparse(node.args[0])}")
    assert made > 300
    assert bare == []
