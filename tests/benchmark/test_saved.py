from __future__ import annotations

import json
from pathlib import Path

import pytest

from curate.benchmark.methods import MethodScores
from curate.benchmark.output import read_saved_scores, saved_scores
from curate.errors import UsageError


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "not a file of saved scores"),
        ("{", "not a file of saved scores"),
        ('{"results": {"m": {}}}', "not a file of saved scores"),
        ('{"results": {"m": {"scores": [1]}}}', "1 value"),
        ('{"results": {"m": {"scores": ["a", 1]}}}', "value 1 is 'a'"),
        ('{"results": {"m": {"scores": [1, true]}}}', "value 2 is True"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as raised:
        read_saved_scores(path, 2)
    assert said in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        read_saved_scores(tmp_path / "nowhere.json", 2)


def test_rows_may_be_left_out_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    path.write_text(json.dumps({"results": {"m": {"model": "big", "scores": [0.5, None]}}}))
    (found,) = read_saved_scores(path, 2)
    assert (found.name, found.model, found.scores) == ("saved:m", "big", (0.5, None))
    assert found.origin == "recomputed from saved scores"
    assert found.unscored == {"null": 1}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = MethodScores("knn", (0.25, None), "run here", model="e", reasons=(None, "no_reference"))
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(saved_scores([made], 2)))
    (found,) = read_saved_scores(path, 2)
    assert (found.name, found.scores, found.model) == ("saved:knn", made.scores, "e")
