"""The files of `curate sample`: written, answered, and read back by the commands that take labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.records import Certificate, TrustKind
from curate.run.review import review_run
from curate.run.review_answers import kept_answers
from curate.run.trust_reports import read_trust_report
from tests.run import test_pair_checks
from tests.run.test_certify import BAD, SELECTED, call, drawn, held_certificate
from tests.run.test_certify import run as run  # a fixture
from tests.trust.test_labelling_tools import EXPORTS

TOOLS = sorted(EXPORTS)


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
