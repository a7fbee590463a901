"""Compares two runs over the same dialogues: verdicts, sets, scores.

Scores are compared in pairs, a dialogue with itself, so that a shift is told from the spread between dialogues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from pydantic import Field

from curate.dialogue import Frozen
from curate.records import CONVERSATION_DIMENSIONS, TURN_DIMENSIONS, VERDICTS, Rate
from curate.statistics import Ends, student_t, wilson

SCORES = (
    "mean_score",
    *(f"mean_{name}" for name in TURN_DIMENSIONS),
    *CONVERSATION_DIMENSIONS,
    "p_good",
    "adherence",
    "overall_score",
    "factual_precision",
)
"""Columns of the score table whose shift is reported; single metrics follow them."""
UNSCORED = "unscored"
"""The verdict of a dialogue that has none."""


class ChangedDialogue(Frozen):
    """A dialogue with another verdict, or in other sets, than before."""

    id: str
    before: str
    after: str


class ScoreShift(Frozen):
    """How a score changed over the dialogues that have it in both runs, equal dialogues once."""

    column: str
    n: int
    before: float = Field(description="Mean in the first run.")
    after: float = Field(description="Mean in the second.")
    shift: float = Field(description="Mean of after minus before, dialogue by dialogue.")
    interval: tuple[float, float] | None = Field(
        None, description="95 % of the shift, Student's t over dialogues; null for fewer than two."
    )
    gained: int = Field(description="Dialogues that have the score in the second run only.")
    lost: int = Field(description="Those that have it in the first only.")


class SetChange(Frozen):
    """Sizes of a set in both runs, and the ids that the second run gained and lost."""

    before: int
    after: int
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class TableDiff(Frozen):
    """The differences of two score tables over the dialogues that are in both."""

    both: int = Field(description="Dialogues in both runs.")
    only_first: tuple[str, ...] = Field((), description="Ids of those of the first run alone.")
    only_second: tuple[str, ...] = ()
    other_content: tuple[str, ...] = Field(
        (),
        description="Ids of dialogues in both whose content, role or scenario is another; compared all the same.",
    )
    same_verdict: Rate
    same_verdict_interval: tuple[float, float] | None = None
    better: int = Field(description="Dialogues with a better verdict in the second run.")
    worse: int
    verdicts: dict[str, dict[str, int]] = Field(
        description="Dialogues by verdict in the first run, then in the second."
    )
    changed_verdicts: tuple[ChangedDialogue, ...] = ()
    sets: dict[str, SetChange] = Field(default_factory=dict)
    shifts: tuple[ScoreShift, ...] = ()


def compare_tables(first: pl.DataFrame, second: pl.DataFrame) -> TableDiff:
    """Compare the score tables of two runs, dialogue by dialogue.

    Args:
        first: as `scores.parquet`, with the column `sets` (lists of names).
        second: likewise. A dialogue is the one of the same id, else the one of the same content whose id
            the other run does not have.
    """
    matched = matched_rows(first, second)
    rows = matched.both
    verdicts = [
        (row_id, before or UNSCORED, after or UNSCORED)
        for row_id, before, after in rows.select("id", "verdict", "verdict_2").iter_rows()
    ]
    # Without a judge in either run no dialogue has a verdict that could change.
    judged = [one for one in verdicts if (one[1], one[2]) != (UNSCORED, UNSCORED)]
    same = sum(before == after for _, before, after in judged)
    steps = [
        VERDICTS.index(after) - VERDICTS.index(before)
        for _, before, after in judged
        if UNSCORED not in (before, after)
    ]
    moved = Counter((before, after) for _, before, after in judged)
    order = [*VERDICTS, UNSCORED]
    return TableDiff(
        both=rows.height,
        only_first=matched.only_first,
        only_second=matched.only_second,
        other_content=tuple(rows.filter(pl.col("content_hash") != pl.col("content_hash_2"))["id"]),
        same_verdict=Rate(count=same, of=len(judged)),
        same_verdict_interval=wilson(same / len(judged), len(judged)) if judged else None,
        better=sum(step > 0 for step in steps),
        worse=sum(step < 0 for step in steps),
        verdicts={
            before: {after: moved[before, after] for after in order if moved[before, after]}
            for before in order
            if any(key[0] == before for key in moved)
        },
        changed_verdicts=tuple(
            ChangedDialogue(id=row_id, before=before, after=after)
            for row_id, before, after in judged
            if before != after
        ),
        sets=_sets(rows, matched.first, matched.second),
        shifts=_shifts(rows, first.columns, second.columns),
    )


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """The rows of two runs beside each other: columns of the second end in `_2` where both have them."""

    both: pl.DataFrame
    first: pl.DataFrame
    second: pl.DataFrame
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


def matched_rows(first: pl.DataFrame, second: pl.DataFrame) -> MatchedRows:
    """Match two score tables as `compare_tables` does."""
    by_id = first.join(second, on="id", suffix="_2").with_columns(id_2=pl.col("id"))
    left = first.join(second, on="id", how="anti").unique("content_hash", maintain_order=True)
    right = second.join(first, on="id", how="anti").unique("content_hash", maintain_order=True)
    by_content = left.join(
        right.with_columns(content_hash_2=pl.col("content_hash")), on="content_hash", suffix="_2"
    )
    both = pl.concat([by_id, by_content.select(by_id.columns)])
    hashes = by_content["content_hash"]
    return MatchedRows(
        both,
        first,
        second,
        tuple(left.filter(~pl.col("content_hash").is_in(hashes.implode()))["id"]),
        tuple(right.filter(~pl.col("content_hash").is_in(hashes.implode()))["id"]),
    )


def _sets(both: pl.DataFrame, first: pl.DataFrame, second: pl.DataFrame) -> dict[str, SetChange]:
    """Return what each set gained and lost of the dialogues in both runs; its sizes are of all dialogues."""
    sizes = [
        dict(table.select(pl.col("sets").explode().drop_nulls()).group_by("sets").len().iter_rows())
        for table in (first, second)
    ]
    return {
        name: SetChange(
            before=sizes[0].get(name, 0),
            after=sizes[1].get(name, 0),
            gained=tuple(both.filter(~_in(name, "sets") & _in(name, "sets_2"))["id"]),
            lost=tuple(both.filter(_in(name, "sets") & ~_in(name, "sets_2"))["id"]),
        )
        for name in dict.fromkeys([*sorted(sizes[0]), *sorted(sizes[1])])
    }


def _in(name: str, column: str) -> pl.Expr:
    return pl.col(column).list.contains(name)


def _shifts(
    both: pl.DataFrame, first: Sequence[str], second: Sequence[str]
) -> tuple[ScoreShift, ...]:
    distinct = both.unique(["content_hash", "content_hash_2"], maintain_order=True)
    shifts = (_shift(distinct, name) for name in score_columns(first, second))
    return tuple(shift for shift in shifts if shift is not None)


def score_columns(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Return the scores among the columns of two tables that both have."""
    metrics = (
        name for name in first if name.startswith("metric_") and not name.endswith("_expected")
    )
    return [name for name in (*SCORES, *metrics) if name in first and name in second]


def _shift(rows: pl.DataFrame, name: str) -> ScoreShift | None:
    import numpy as np

    values = rows.select(
        before=pl.col(name).cast(pl.Float64), after=pl.col(f"{name}_2").cast(pl.Float64)
    )
    known = values.drop_nulls()
    if known.is_empty():
        return None
    before, after = known["before"].to_numpy(), known["after"].to_numpy()
    differences = after - before
    n, shift = len(differences), float(differences.mean())
    interval: Ends | None = None
    if n > 1:
        half = student_t(n - 1) * float(differences.std(ddof=1) / np.sqrt(n))
        interval = (shift - half, shift + half)
    return ScoreShift(
        column=name,
        n=n,
        before=float(before.mean()),
        after=float(after.mean()),
        shift=shift,
        interval=interval,
        gained=values.filter(pl.col("before").is_null() & pl.col("after").is_not_null()).height,
        lost=values.filter(pl.col("before").is_not_null() & pl.col("after").is_null()).height,
    )


def changed_keys(
    before: Mapping[str, object], after: Mapping[str, object]
) -> dict[str, tuple[object, object]]:
    """Return the differences of two nested mappings by dotted key; a key that one lacks is None there."""
    flat, other = _flat(before), _flat(after)
    keys = dict.fromkeys([*flat, *other])
    return {key: (flat.get(key), other.get(key)) for key in keys if flat.get(key) != other.get(key)}


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, Mapping) and value:
        return {
            key: leaf
            for name, part in value.items()
            for key, leaf in _flat(part, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    if isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        return _flat(dict(enumerate(value)), prefix)
    return {prefix: value}
