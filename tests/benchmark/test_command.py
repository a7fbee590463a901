"""`curate benchmark` as a user meets it, in a terminal of 80 columns."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from curate.cli import main
from tests.benchmark.rows import write_rows
from tests.processes import curate


def benchmark(*arguments: str | Path) -> CompletedProcess[str]:
    return curate("benchmark", *arguments, env={"HF_HUB_OFFLINE": "1"})


def test_tables_verdicts_and_files(tmp_path: Path) -> None:
    data, out = write_rows(tmp_path / "rows.json", 20), tmp_path / "out"
    done = benchmark(data, "--methods", "rouge,kl[beta=0.5]", "--conditions", "10,20", "--out", out)
    assert done.returncode == 0, done.stderr
    tables = done.stdout.rpartition("written to")[0]
    assert max(map(len, tables.splitlines())) <= 80
    for words in ("word_count", "position", "Does it beat the best baseline", "kl[beta=0.5]"):
        assert words in done.stdout
    assert {path.name for path in out.iterdir()} >= {
        "tables.md",
        "results.csv",
        "scores.json",
        "roc.png",
        "class_means.png",
    }


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.json", 8)
    done = benchmark(data, "--methods", "rouge")
    assert done.returncode == 0
    assert "nothing was written" in done.stdout
    assert list(tmp_path.iterdir()) == [data]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--methods", "cosin"], "no such method"),
        (["--conditions", "5,1000"], "from 2 to 8"),
        (["--methods", "llm_judge"], "--judge RECIPE"),
        (["--judge", "nowhere.yaml"], "no such recipe"),
        (["--saved", "nowhere.json"], "not a file of saved scores"),
        (["--label", "kind"], "the row has label"),
        (["--shape", "poem"], "shape"),
        (["--adherent", "good"], "only one class"),
    ],
)
def test_bad_usage_says_what_to_do(
    tmp_path: Path,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = write_rows(tmp_path / "rows.json", 8)
    monkeypatch.setattr(sys, "argv", ["curate", "benchmark", str(data), *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
