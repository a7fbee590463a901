"""People's labels of a run's dialogues or pairs: which members are bad, and the recorded draw they are of.

`trust.bad_rule` has the rule of what is bad, `sample` makes draws. Unused labels are counted by reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from curate.errors import UsageError
from curate.records import Draw
from curate.run.ingest import read_dialogues
from curate.run.labels.populations import (
    PAIR_SETS,
    UNIT,
    is_of_pairs,
    read_drawn,
    read_draws,
    read_members,
)
from curate.trust.bad_rule import BETTER, HUMAN, RaterAnswer, bad_members, check_answers
from curate.trust.gold import DialogueFinder
from curate.trust.label_rows import (
    NO_VALUE,
    GivenLabels,
    Unused,
    gold_row,
    refuse_empty,
)

REJECTED_PREFERRED = "better = 'rejected'"
"""Default rule for pairs."""
_REMARKS = frozenset({"note", "weakest_turn", "better", "chosen_text"})
"""Dimensions of a review file that are no labels."""


@dataclass(slots=True)
class DrawnLabels:
    """People's labels, by member.

    Attributes:
        bad: whether a member is bad; members without an answer are missing.
        rule: rule of what is bad, in words.
        draw: the draw they are of; None if their origin is not known.
        drawn: `unit`, `stratum`, `order`, `drawn` of all that could have been drawn.
        pairs: whether the members are pairs.
        unused: rows that could not be used, by reason.
    """

    bad: Mapping[str, bool]
    rule: str
    draw: Draw | None
    drawn: pl.DataFrame | None
    pairs: bool = False
    unused: Unused = field(default_factory=Unused)


def read_labels(run: Path, labels: GivenLabels, rule: str | None, of: str | None) -> DrawnLabels:
    """Return which members are bad by people's labels.

    Args:
        run: run folder.
        labels: of dialogues or of pairs.
        rule: of what is bad, see `trust.bad_rule`.
        of: the set they are to certify; None where the file says by its columns whether it is of pairs.

    Raises:
        UsageError: a file that is none of labels, labels of other dialogues, two of one rater, a rule that does not fit.
    """
    if not labels.rows:
        raise UsageError(
            f"{labels.origin} has no labels",
            got="no rows",
            fix=f"`curate sample {run}` writes a file to be filled in",
        )
    rows = _latest(labels.rows)
    pairs = of in PAIR_SETS or (of is None and all(row.get("pair_id") for _, row in rows))
    read_answers = _pair_answers if pairs else _dialogue_answers
    answers, unused = read_answers(run, labels.origin, rows)
    check_answers(answers)
    draw, drawn = _origin(
        run, [row for _, row in rows], {answer.member for answer in answers}, pairs
    )
    if drawn is not None and pairs:
        answers = list(_unswapped(answers, drawn))
    bad, rule_in_words = bad_members(answers, rule or (REJECTED_PREFERRED if pairs else None))
    return DrawnLabels(bad, rule_in_words, draw, drawn, pairs, unused)


_Placed = tuple[str, dict[str, Any]]
"""The place of a row, and the row."""


def _latest(rows: Sequence[_Placed]) -> list[_Placed]:
    """Return the last answer to each question of rows that have a time (a review file), and all other rows."""
    question = ("id", "content", "pair_id", "turn", "dimension", "rater")
    latest: dict[Any, _Placed] = {}
    for place, row in sorted(rows, key=lambda placed: str(placed[1].get("time") or "")):
        latest[tuple(row.get(name) for name in question) if row.get("time") else place] = place, row
    return list(latest.values())


def one_a_group(labels: DrawnLabels, members: pl.DataFrame) -> DrawnLabels:
    """Return the labels with one of each group: labels that were not drawn are often of neighbours, which resemble each other."""
    labelled = members.filter(pl.col(UNIT).is_in(pl.Series(list(labels.bad)).implode()))
    # the least hash of each group, which says nothing of its label
    first = labelled.sort(UNIT).unique(pl.coalesce("group", UNIT), keep="first")[UNIT]
    if alike := labelled.height - len(first):
        labels.unused.add("another dialogue of its group has a label", "", alike)
    return replace(labels, bad={unit: labels.bad[unit] for unit in first})


def _dialogue_answers(
    run: Path, origin: str, rows: Sequence[_Placed]
) -> tuple[list[RaterAnswer], Unused]:
    """Return the answers about dialogues, by content hash; a row without a dimension answers `human`."""
    columns = {name for _, row in rows for name in row}
    if not columns & {"id", "dialogue_id", "content", "content_hash"} or "value" not in columns:
        raise UsageError(
            f"{origin} is not a file of labels",
            got=f"columns: {', '.join(sorted(columns)) or 'none'}",
            expected="columns `id` or `content`, and `value`; where needed, `dimension`, `turn` and `rater`",
            fix=f"`curate sample {run}` writes one to be filled in",
        )
    gold_rows = [gold_row(place, row, HUMAN) for place, row in rows if not row.get("pair_id")]
    find, unused, answers = DialogueFinder(gold_rows, read_dialogues(run)), Unused(), []
    if about_pairs := len(rows) - len(gold_rows):
        unused.add("it is about a pair", origin, about_pairs)
    for row in gold_rows:
        dialogue = find(row)
        if isinstance(dialogue, str):
            unused.add(dialogue, row.place)
        elif row.value is None or not str(row.value).strip():
            unused.add(NO_VALUE, row.place)
        elif row.dimension in _REMARKS:
            unused.add(f"{row.dimension} is no label of a dialogue", row.place)
        else:
            answers.append(
                RaterAnswer(
                    dialogue.content_hash, row.dimension, row.value, row.place, row.turn, row.rater
                )
            )
    _refuse_none(answers, unused, "dialogue")
    return answers, unused


def _pair_answers(
    run: Path, origin: str, rows: Sequence[_Placed]
) -> tuple[list[RaterAnswer], Unused]:
    """Return the answers about pairs, by id: chosen or rejected, in a draw's file a or b, or tie."""
    columns = {name for _, row in rows for name in row}
    if not columns >= {"pair_id", BETTER}:
        raise UsageError(
            f"{origin} does not say which side is better",
            got=f"columns: {', '.join(sorted(columns)) or 'none'}",
            expected="`pair_id` and `better` (chosen, rejected or tie; in a draw's file a, b or tie)",
        )
    pair_ids = {unit for of in PAIR_SETS for unit in _units_of(run, of)}
    unused, answers = Unused(), []
    for place, row in rows:
        key, better = (str(row.get(name) or "").strip() for name in ("pair_id", BETTER))
        if key not in pair_ids:
            unused.add("the run has no pair of that id", place)
        elif not better:
            unused.add(NO_VALUE, place)
        elif better.lower() not in ("a", "b", "tie", "chosen", "rejected"):
            unused.add(f"better is neither a, b, chosen, rejected nor tie: {better[:40]!r}", place)
        else:
            rater = str(row.get("rater") or "").strip() or None
            answers.append(RaterAnswer(key, BETTER, better.lower(), place, rater=rater))
    _refuse_none(answers, unused, "pair")
    return answers, unused


def _units_of(run: Path, of: str) -> list[str]:
    try:
        return read_members(run, of)[UNIT].to_list()
    except UsageError:  # the run has no pairs of that kind
        return []


def _unswapped(answers: Iterable[RaterAnswer], drawn: pl.DataFrame) -> Iterable[RaterAnswer]:
    """Yield answers about a and b as answers about chosen and rejected."""
    swapped = dict(drawn.select(UNIT, "swapped").iter_rows())
    sides = {"a": ("chosen", "rejected"), "b": ("rejected", "chosen")}
    for answer in answers:
        value = sides.get(answer.value, (answer.value,) * 2)[swapped.get(answer.member, False)]
        yield replace(answer, value=value)


def _refuse_none(answers: Sequence[RaterAnswer], unused: Unused, unit: str) -> None:
    if not answers:
        refuse_empty(unused, BETTER if unit == "pair" else "value")
        raise UsageError(
            f"no label is about a {unit} of this run",
            got="; ".join(unused.reasons()) or "no rows",
            expected="a file that `curate sample` wrote, filled in, or ids as the run has them",
        )


def _origin(
    run: Path, rows: Sequence[Mapping[str, Any]], labelled: set[str], pairs: bool
) -> tuple[Draw | None, pl.DataFrame | None]:
    """Return the recorded draw of the labels: the one that the file names, else the newest that has them all."""
    draws = [draw for draw in read_draws(run) if is_of_pairs(draw.of) == pairs]
    draw_ids = {str(row["draw"]).strip() for row in rows if row.get("draw")}
    if len(draw_ids) > 1:
        raise UsageError(
            "the labels are of several draws",
            got=", ".join(sorted(draw_ids)),
            expected="the labels of one: each draw fixes its own number of labels",
        )
    if draw_ids and draw_ids.isdisjoint(draw.id for draw in draws):
        raise UsageError(
            "the file names a draw that is not recorded with the run",
            got=next(iter(draw_ids)),
            expected=f"a draw that {run} records: {', '.join(draw.id for draw in draws) or 'none'}",
            fix="certify the run that it was drawn from, or take the column `draw` out: the certificate then "
            "says that the labels' origin is not known",
        )
    for draw in reversed(draws):
        if draw_ids and draw.id not in draw_ids:
            continue
        drawn = read_drawn(run, draw)
        if draw_ids or labelled <= set(drawn.filter("drawn")[UNIT]):
            return draw, drawn
    return None, None
