"""`curate report`: what it prints, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curate.cli import app
from curate.cli.report import has_desktop
from curate.errors import UsageError
from tests.publishing.conftest import make_run

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("finished"))


def test_it_says_what_was_written(run: Path) -> None:
    done = RUNNER.invoke(app, ["report", str(run)])
    assert done.exit_code == 0
    assert (run / "report.html").is_file()
    assert "report.html" in done.stdout
    assert "58 dialogues" in done.stdout
    assert "left out" not in done.stdout


def test_json_counts_files_and_dialogues(run: Path, tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["report", str(run), "--out", str(tmp_path / "r.html"), "--json"])
    told = json.loads(done.stdout)
    assert told["files"] == [str(tmp_path / "r.html")]
    assert told["bytes"] == [(tmp_path / "r.html").stat().st_size]
    assert (told["dialogues"], told["left_out"]) == (58, 0)


DESK = {"DISPLAY": ":0"}


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        (DESK, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "linux", False),
        ({}, "darwin", True),
        ({}, "win32", True),
        ({"SSH_CONNECTION": "1 2 3 4"}, "darwin", False),
        (DESK | {"CI": "true"}, "linux", False),
        (DESK | {"CURATE_NO_BROWSER": "1"}, "linux", False),
    ],
)
def test_a_desktop_is_known(environment: dict[str, str], platform: str, expected: bool) -> None:
    assert has_desktop(environment, platform, is_terminal=True) is expected
    assert not has_desktop(environment, platform, is_terminal=False)


@pytest.mark.parametrize(
    ("arguments", "is_there"), [(["--open"], True), (["--open"], False), ([], True)]
)
def test_the_page_is_opened_where_that_is_asked_and_can_be(
    run: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], is_there: bool
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(sys.modules["curate.cli.report"], "has_desktop", lambda *_, **__: is_there)
    assert RUNNER.invoke(app, ["report", str(run), *arguments]).exit_code == 0
    page = (run / "report.html").resolve().as_uri()
    assert opened == ([page] if arguments and is_there else [])


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["report", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert "not a run folder" in str(done.exception)
