"""What labels of a run cannot certify, each refused with the reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curate.errors import UsageError
from curate.run.labels.certify import certify_run
from curate.run.labels.populations import read_members
from curate.run.labels.question import Question
from curate.run.labels.sample import sample
from curate.trust.label_rows import GivenLabels
from tests.run.test_populations import run as run  # a fixture


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def draw(run: Path, n: int = 1, **options: Any) -> None:
    sample(run, n, out=run / f"draw-{n}.csv", **options)


def fit_to_all(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    labelled = read_members(run, "all")["unit"].to_list()
    manifest["recipe"]["judge"] = {"calibration": {"labelled": labelled}}
    (run / "manifest.json").write_text(json.dumps(manifest))


def draw_twice(run: Path) -> None:
    draw(run, 1)
    draw(run, 2)


DIALOGUES = [{"id": name, "dimension": "accept", "value": "accept"} for name in ("c1", "c2")]
PAIRS = [{"pair_id": f"p{n}", "better": "chosen"} for n in range(3)]


@pytest.mark.parametrize(
    ("prepare", "rows", "question", "got"),
    [
        (None, PAIRS, {"of": "natural_pairs", "column": "preference"}, "--of natural_pairs --column preference"),
        (None, PAIRS, {"of": "natural_pairs", "hold_out": 0.5}, "labels of pairs"),
        (None, DIALOGUES, {"hold_out": 1.0}, 1.0),
        (fit_to_all, DIALOGUES, {}, "2 dialogues of the SFT set, all of them used"),
        (None, DIALOGUES[:1], {}, "1 label of the set"),
        (None, DIALOGUES, {"may_stop": True}, "labels of unknown origin"),
        (draw_twice, DIALOGUES, {}, "1 then 2 labels"),
        (lambda run: draw(run, 4, of="all", by="label_word"), DIALOGUES, {"may_stop": True}, "a draw stratified by label_word"),
        (lambda run: draw(run, 2), DIALOGUES, {"may_stop": True, "of": "all"}, "2 of 4"),
    ],
)  # fmt: skip
def test_what_labels_cannot_certify_is_refused(
    copy: Path,
    prepare: Callable[[Path], None] | None,
    rows: list[dict[str, Any]],
    question: dict[str, Any],
    got: str | float,
) -> None:
    if prepare is not None:
        prepare(copy)
    gold = GivenLabels("gold.csv", [(f"gold.csv:{n}", row) for n, row in enumerate(rows, 1)])
    with pytest.raises(UsageError) as caught:
        certify_run(copy, gold, Question(**question))
    assert caught.value.got == got
