"""KTO rows from pairs: nothing lost, labels in turn, the sides of a pair apart, no answer labelled both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.export.labels import LabelSpool
from curate.export.template_messages import Refused


def side(prompt: str, answer: str, label: bool) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "completion": [{"role": "assistant", "content": answer}],
        "label": label,
    }


def spooled(path: Path, pairs: list[tuple[str, str, str]]) -> list[tuple[Any, ...]]:
    """(pair, side, label, reason) of each row."""
    with LabelSpool(path) as spool:
        for number, (prompt, chosen, rejected) in enumerate(pairs):
            spool.add(
                side(prompt, chosen, True), side(prompt, rejected, False), {"pair_id": str(number)}
            )
        return [
            (
                provenance["pair_id"],
                provenance["side"],
                row["label"],
                refusal.reason if refusal else None,
            )
            for row, provenance, refusal in spool.rows()
        ]


def test_labels_take_turns_and_the_sides_of_a_pair_lie_half_the_file_apart(tmp_path: Path) -> None:
    rows = spooled(tmp_path / "s", [(f"p{n}", "good", "bad") for n in range(5)])
    assert [label for _, _, label, _ in rows] == [True, False] * 5
    assert [pair for pair, *_ in rows] == ["0", "3", "1", "4", "2", "0", "3", "1", "4", "2"]
    assert not (tmp_path / "s").exists()


@given(st.integers(min_value=2, max_value=20))
def test_the_sides_of_a_pair_are_never_neighbours(
    tmp_path_factory: pytest.TempPathFactory, count: int
) -> None:
    path = tmp_path_factory.mktemp("labels") / "s"
    rows = spooled(path, [(f"p{n}", "good", "bad") for n in range(count)])
    assert sorted(rows) == sorted(
        (str(n), name, name == "chosen", None)
        for n in range(count)
        for name in ("chosen", "rejected")
    )
    if count > 2:  # of two pairs, four rows, some must be
        assert all(a[0] != b[0] for a, b in zip(rows[::2], rows[1::2], strict=True))


def test_an_answer_chosen_here_and_rejected_there_has_no_label(tmp_path: Path) -> None:
    rows = spooled(tmp_path / "s", [("p", "a", "b"), ("p", "b", "c"), ("q", "b", "d")])
    refused = {(pair, name): reason for pair, name, _, reason in rows if reason}
    assert refused == {
        ("0", "rejected"): "label_contradicted",
        ("1", "chosen"): "label_contradicted",
    }


def test_an_answer_that_wins_twice_is_one_row(tmp_path: Path) -> None:
    rows = spooled(tmp_path / "s", [("p", "a", "b"), ("p", "a", "c")])
    assert [reason for pair, name, _, reason in rows if name == "chosen"] == [
        None,
        "label_repeated",
    ]


def test_what_json_has_no_word_for_is_refused_with_both_sides(tmp_path: Path) -> None:
    with LabelSpool(tmp_path / "s") as spool:
        with pytest.raises(Refused, match="not_json"):
            spool.add(side("p", "a", True), side("p", "b", False) | {"x": float("nan")}, {})
        assert list(spool.rows()) == []
