"""Every file that a run keeps, and every report about it, whole: what people and other programs read of it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from curate.recipe import parse_recipe
from curate.run.audit import audit_run
from curate.run.diff import diff_runs
from curate.run.labels.adherence_fit import calibrate_run
from curate.run.labels.populations import draw_folder
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_table
from curate.run.report import write_report
from curate.run.verify import verify_run
from tests.live import live_server
from tests.publishing.conftest import make_run
from tests.report.reading import ReadPage
from tests.run import test_calibrate, test_certify, test_probe
from tests.run.test_pipeline import chat, recipe, write_rows
from tests.transcript import check, kept

FILES = Path(__file__).parent / "reports"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("finished"))


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["manifest.json", "export/trl/manifest.json"])
def test_the_manifest(finished: Path, name: str) -> None:
    path = finished / name
    if path.exists():
        check(kept(json.loads(path.read_text()), finished.parent), FILES / name.replace("/", "_"))


def test_all_files_of_a_run(finished: Path) -> None:
    names = sorted(
        str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()
    )
    text = re.sub(r"[0-9a-f]{16}", "FINGERPRINT", "\n".join(names))
    check(text + "\n", FILES / "files.txt")


@pytest.mark.parametrize(
    "name",
    [
        "quarantine.jsonl",
        "select/decisions.jsonl",
        "pairs/pairs.jsonl",
        "pairs/dropped_pairs.jsonl",
    ],
)
def test_the_rows_of_a_run(finished: Path, name: str) -> None:
    rows = lines(finished / name)
    check(
        kept([len(rows), *rows[:2], *rows[-2:]], finished.parent), FILES / f"{Path(name).stem}.json"
    )


def test_the_score_table(finished: Path) -> None:
    rows = list(read_table(finished))
    check(kept([rows[0], rows[-1]], finished.parent), FILES / "scores.json")


def test_an_audit(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    check(kept(audit_run(run).model_dump(mode="json"), tmp_path), FILES / "audit.json")


def test_the_difference_of_two_runs(tmp_path: Path) -> None:
    with live_server() as server:
        data = write_rows(tmp_path / "chats.jsonl", [chat(n, turns=1 + n % 3) for n in range(8)])
        run_recipe(recipe(server, data, name="first"), out=tmp_path / "first")
        more = write_rows(tmp_path / "more.jsonl", [chat(n, turns=1 + n % 3) for n in range(1, 9)])
        other: dict[str, Any] = {
            "judge": {"paraphrases": 2},
            "select": {"where": {"role": "adherence > 0.3"}},
        }
        run_recipe(recipe(server, more, name="second", **other), out=tmp_path / "second")
    found = diff_runs(tmp_path / "first", tmp_path / "second")
    check(kept(found.model_dump(mode="json"), tmp_path), FILES / "diff.json")


def test_a_draw_and_its_labels(tmp_path: Path) -> None:
    test_certify.write_chats(tmp_path)
    run_recipe(parse_recipe(test_certify.recipe(tmp_path)), out=tmp_path / "run")
    labels = test_certify.drawn(tmp_path / "run")
    out = tmp_path / "certificate.json"
    done = test_certify.call("certify", tmp_path / "run", labels, "--risk", 0.2, "--out", out)
    assert done.exit_code == 0, done.output
    draws = [json.loads(path.read_text()) for path in draw_folder(tmp_path / "run").glob("*.json")]
    check(kept(draws, tmp_path), FILES / "draw.json")
    check("\n".join(labels.read_text().splitlines()[:3]), FILES / "labels.csv")


def test_the_page(finished: Path, tmp_path: Path) -> None:
    page = ReadPage.of(write_report(finished, tmp_path / "report.html").files[0])
    first = {
        table: {name: page.column(name, table)[:2] for name in columns}
        for table, columns in page.columns.items()
        if isinstance(columns, dict)
    }
    for row in page.figures["cost"]["rows"] if "cost" in page.figures else []:
        row.pop("actual", None)
    content = [page.figures, first, page.dialogues[:1], page.dialogues[-1:]]
    check(kept(content, finished.parent), FILES / "page.json")


def test_a_run_made_again(finished: Path) -> None:
    found = verify_run(finished)
    check(kept(found.model_dump(mode="json"), finished.parent), FILES / "verify.json")


def test_a_fitted_calibration(tmp_path: Path) -> None:
    data = test_calibrate.write(tmp_path / "rows.jsonl", test_calibrate.ROWS)
    with live_server(answer=test_calibrate.serve) as server:
        recipe = {
            "name": "labelled",
            "source": {"path": str(data)},
            "models": {
                "judge": {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
            },
            "judge": False,
            "adherence": {"output_mode": "continuous"},
            "select": False,
            "export": False,
        }
        run_recipe(parse_recipe(recipe), out=tmp_path / "run")
    found = calibrate_run(tmp_path / "run").adherence
    assert found is not None
    check(kept(found.model_dump(mode="json"), tmp_path), FILES / "calibration.json")


def test_the_card_of_a_probed_judge() -> None:
    report = test_probe.card(test_probe.Judge()).report
    check(kept(report.model_dump(mode="json")), FILES / "probe.json")
