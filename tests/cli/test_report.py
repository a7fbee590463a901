"""`curate report`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curate.cli import app
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


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["report", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert "not a run folder" in str(done.exception)
