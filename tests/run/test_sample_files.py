"""The files of `curate sample`: written, answered, and read back by the commands that take labels."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from curate.errors import CurateError
from curate.records import Certificate, TrustKind
from curate.run.labels.populations import read_drawn
from curate.run.labels.sample import Sampled, draw_again, sample
from curate.run.review import review_run
from curate.run.review_answers import kept_answers
from curate.run.trust_reports import read_trust_report
from tests.publishing.conftest import make_run
from tests.report.reading import ReadPage
from tests.run import test_pair_checks
from tests.run.test_certify import BAD, SELECTED, call, drawn, held_certificate
from tests.run.test_certify import run as run  # a fixture
from tests.transcript import check, kept
from tests.trust.test_labelling_tools import EXPORTS

TOOLS = sorted(EXPORTS)
SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("finished"))


def content_of(path: Path) -> Any:
    """What is in a file or folder that `curate sample` wrote."""
    if path.is_dir():
        return {part.name: content_of(part) for part in sorted(path.iterdir())}
    if path.suffix == ".html":
        page = ReadPage.of(path)
        columns = {name: page.column(name) for name in page.columns["dialogues"]}
        return [page.figures, columns, page.dialogues]
    text = path.read_text()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text) if path.suffix == ".json" else text.splitlines()


@pytest.mark.parametrize(
    ("name", "out", "options"),
    [
        ("dialogues", "a.csv", {}),
        ("turns", "a.jsonl", {"purpose": "agreement", "seed": 7}),
        ("words", "a.csv", {"purpose": "calibrate", "by": "role", "dimensions": ["verdict", "safety"]}),
        ("fifths", "a.jsonl", {"of": "n_turns > 1", "by": "mean_score", "risk": 0.2}),
        ("page", "a.html", {"risk": 0.05, "confidence": 0.95}),
        ("page_of_turns", "a.html", {"purpose": "agreement", "of": "all", "by": "n_turns"}),
        ("pairs", "a.jsonl", {"of": "natural_pairs"}),
        ("page_of_pairs", "a.html", {"of": "natural_pairs", "seed": 3}),
        ("label_studio", "a", {"dimensions": ["accept", "coherence"], "tool": "label-studio"}),
        ("label_studio_pairs", "a", {"of": "natural_pairs", "tool": "label-studio"}),
        ("argilla", "a", {"purpose": "agreement", "dimensions": ["helpfulness"], "tool": "argilla"}),
        ("argilla_pairs", "a", {"of": "natural_pairs", "tool": "argilla"}),
    ],
)  # fmt: skip
def test_a_draw_and_what_is_written_of_it(
    finished: Path, tmp_path: Path, name: str, out: str, options: dict[str, Any]
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    sampled = sample(run, 4, out=tmp_path / out, **options)
    assert isinstance(sampled, Sampled)
    table = read_drawn(run, sampled.draw)
    found = {
        **asdict(sampled),
        "draw": sampled.draw.model_dump(mode="json"),
        "table": table.sort("stratum", "order").rows()[:8],
        "file": content_of(tmp_path / out),
    }
    check(kept(found, tmp_path, finished.parent), SAMPLES / f"{name}.json")
    assert draw_again(sampled.draw, table)[0] == sampled.draw
    assert draw_again(sampled.draw, table)[1].equals(table)


def test_a_draw_only_grows_and_up_to_all(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    few = sample(run, 5, out=tmp_path / "a.csv", of="natural_pairs").draw
    larger = sample(run, 1000, out=tmp_path / "b.csv", of="natural_pairs").draw
    assert (larger.id, larger.made, larger.sizes) == (few.id, few.made, (5, 12))
    assert sample(run, 1, out=tmp_path / "c.csv", of="natural_pairs").draw == larger
    other = sample(run, 1, out=tmp_path / "d.csv", of="natural_pairs", seed=1).draw
    assert other.id != larger.id
    assert other.sizes == (1,)


def test_a_table_that_is_none_of_a_draw_is_damaged(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    draw = sample(run, 5, out=tmp_path / "a.csv").draw
    table = read_drawn(run, draw)
    for damaged in (table.drop("swapped"), table.with_columns(drawn=table["drawn"].shift(1))):
        with pytest.raises(CurateError, match=r"the table of the draw .* is damaged"):
            draw_again(draw, damaged)


def answered(folder: Path, tool: str, say: Any) -> Path:
    """The export of a project that was made from what `curate sample` wrote; `say` answers an item."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    items = json.loads(files["tasks.json" if tool == "label-studio" else "records.json"])
    export = EXPORTS[tool](files, [[("7", say(item))] for item in items])
    file = folder.parent / f"{folder.name}.json"
    file.write_text(json.dumps(export))
    return file


@pytest.mark.parametrize("tool", TOOLS)
def test_labels_of_a_tool_certify_as_those_of_a_file_do(
    run: Path, tmp_path: Path, tool: str
) -> None:
    out = tmp_path / "c.json"
    assert call("certify", run, drawn(run), "--out", out).exit_code == 0
    by_file = held_certificate(run)
    done = call("sample", run, "-n", 150, "--tool", tool, "--out", tmp_path / "project")
    assert f"150 of {SELECTED}" in done.output

    def say(item: Any) -> dict[str, str]:
        about = item["data" if tool == "label-studio" else "metadata"]
        return {"accept": "reject" if BAD[about["dialogue_id"]] else "accept"}

    done = call("certify", run, answered(tmp_path / "project", tool, say), "--out", out)
    assert done.exit_code == 0, done.output
    certificate = held_certificate(run)
    assert certificate.labels.draw == by_file.labels.draw is not None
    assert (certificate.labels.bad, certificate.labels.missing) == (by_file.labels.bad, 0)
    assert certificate.p_value == by_file.p_value


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_tells_nobody_which_side_is_which_and_its_answers_turn_pairs_round(
    tmp_path: Path, tool: str
) -> None:
    """The reply that opens with "Sure" is the chosen one; people find one of 30 the wrong way round."""
    run = test_pair_checks.run(tmp_path, test_pair_checks.rows(40)).folder
    project = tmp_path / "project"
    call("sample", run, "-n", 30, "--of", "natural_pairs", "--tool", tool, "--out", project)
    wrong: list[str] = []

    def say(item: Any) -> dict[str, str]:
        sides = item["data" if tool == "label-studio" else "fields"]
        about = item["data" if tool == "label-studio" else "metadata"]
        sure = "a" if sides["a"].startswith("[assistant] Sure") else "b"
        if not wrong:
            wrong.append(about["pair_id"])
            return {"better": "ab"[sure == "a"]}
        return {"better": sure}

    export = answered(project, tool, say)
    assert call("certify", run, export, "--out", tmp_path / "c.json").exit_code == 0
    certificate = read_trust_report(run, Certificate, TrustKind.PAIR_CERTIFICATE)
    assert certificate is not None
    assert (certificate.labels.bad, certificate.labels.drawn) == (1, 30)
    done = review_run(run, export)
    assert done.report.pairs_turned == 1
    turned = [answer for answer in kept_answers(run) if answer.value == "rejected"]
    assert [(answer.pair_id, answer.rater) for answer in turned] == [(wrong[0], "7")]


def test_each_kind_of_question_is_a_project_of_its_own(run: Path, tmp_path: Path) -> None:
    project = tmp_path / "p"
    done = call("sample", run, "--for", "agreement", "--tool", "argilla", "--out", project)
    assert done.exit_code == 2
    assert "the same questions about every item" in done.output
    assert not project.exists()
    assert call("sample", run, "--tool", "prodigy").exit_code == 2
