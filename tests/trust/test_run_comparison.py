"""Two score tables held against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from curate.trust.run_comparison import changed_keys, compare_tables

SCHEMA = {
    "id": pl.String,
    "content_hash": pl.String,
    "verdict": pl.String,
    "sets": pl.List(pl.String),
    "adherence": pl.Float64,
}


def table(*rows: tuple[Any, ...]) -> pl.DataFrame:
    """Rows of id, content, verdict, sets, adherence."""
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


FIRST = table(
    ("a", "1", "good", ["sft"], 0.9),
    ("b", "2", "poor", ["rejected"], 0.5),
    ("c", "3", "good", ["sft"], 0.7),
    ("d", "4", None, ["rejected"], None),
    ("e", "5", "good", ["sft"], 0.2),
)


def test_what_changed_is_named() -> None:
    second = table(
        ("a", "1", "good", ["sft", "review"], 0.8),
        ("b", "2", "excellent", ["sft"], 0.7),
        ("c", "3", "borderline", ["rejected"], None),
        ("d", "4", "good", ["sft"], 0.4),
        ("f", "6", "good", ["sft"], 0.4),
    )
    found = compare_tables(FIRST, second)
    assert (found.both, found.only_first, found.only_second) == (4, ("e",), ("f",))
    assert (found.same_verdict.count, found.same_verdict.of) == (1, 4)
    assert (found.better, found.worse) == (1, 1)
    assert [(one.id, one.before, one.after) for one in found.changed_verdicts] == [
        ("b", "poor", "excellent"),
        ("c", "good", "borderline"),
        ("d", "unscored", "good"),
    ]
    assert found.verdicts == {
        "poor": {"excellent": 1},
        "good": {"borderline": 1, "good": 1},
        "unscored": {"good": 1},
    }
    sft = found.sets["sft"]
    assert (sft.before, sft.after, sft.gained, sft.lost) == (3, 4, ("b", "d"), ("c",))
    assert found.sets["review"].gained == ("a",)
    (shift,) = found.shifts
    assert (shift.column, shift.n, shift.gained, shift.lost) == ("adherence", 2, 1, 1)
    assert shift.shift == pytest.approx(0.05)


def test_a_run_against_itself_is_the_same() -> None:
    found = compare_tables(FIRST, FIRST)
    assert (found.both, found.only_first, found.only_second) == (5, (), ())
    # The dialogue without a verdict in either run is no agreement of two judges.
    assert (found.same_verdict.count, found.same_verdict.of) == (4, 4)
    assert not found.changed_verdicts
    assert not any(change.gained or change.lost for change in found.sets.values())
    assert [shift.shift for shift in found.shifts] == [0]


def test_renamed_dialogues_are_known_by_their_content_and_changed_ones_by_their_id() -> None:
    second = table(("z", "1", "good", ["sft"], 0.9), ("b", "other", "poor", ["rejected"], 0.5))
    found = compare_tables(FIRST, second)
    assert found.both == 2
    assert found.other_content == ("b",)
    assert found.only_first == ("c", "d", "e")
    assert found.only_second == ()


def test_without_a_judge_there_are_no_verdicts_to_compare() -> None:
    plain = FIRST.with_columns(verdict=pl.lit(None, pl.String))
    found = compare_tables(plain, plain)
    assert (found.same_verdict.of, found.same_verdict_interval, found.verdicts) == (0, None, {})


def test_a_shift_has_the_paired_interval_and_equal_dialogues_count_once() -> None:
    draw = np.random.default_rng(4)
    before, after = draw.random(20), draw.random(20)

    def of(values: np.ndarray[Any, Any]) -> pl.DataFrame:
        rows = [(f"d{k}", str(k), "good", [], float(v)) for k, v in enumerate(values)]
        return table(*rows, ("again", "0", "good", [], float(values[0])))

    (shift,) = compare_tables(of(before), of(after)).shifts
    paired = stats.ttest_rel(after, before).confidence_interval()
    assert shift.n == 20
    assert shift.interval == pytest.approx((paired.low, paired.high))


nested = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.dictionaries(st.text("ab", min_size=1), inner, max_size=3) | st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("ab", min_size=1), nested, max_size=3))
def test_a_mapping_does_not_differ_from_itself(value: dict[str, Any]) -> None:
    assert changed_keys(value, value) == {}


def test_changed_keys_are_named_by_their_path() -> None:
    before = {"judge": {"mode": "json"}, "source": [{"path": "a"}], "redact": []}
    after = {"judge": {"mode": "tokens"}, "source": [{"path": "b"}], "redact": ["email"]}
    assert changed_keys(before, after) == {
        "judge.mode": ("json", "tokens"),
        "source.0.path": ("a", "b"),
        "redact": ([], ["email"]),
    }
    assert changed_keys({"fork": False}, {"fork": {"resamples": 2}}) == {
        "fork": (False, None),
        "fork.resamples": (None, 2),
    }
