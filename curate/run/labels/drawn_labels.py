"""People's labels of a run's dialogues or pairs: which members are bad, the recorded draw they are of, and which labels
are kept from fitting.

`trust.bad_rule` has the rule of what is bad, `sample` makes draws. Unused labels are counted by reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import polars as pl
from pydantic import TypeAdapter

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.records import Draw, TrustKind
from curate.run.ingest import read_dialogues
from curate.run.labels.populations import (
    PAIR_SETS,
    UNIT,
    is_of_pairs,
    read_drawn,
    read_draws,
    read_members,
)
from curate.run.read_back import read_manifest
from curate.storage.line_files import read_records
from curate.storage.whole_files import write_atomically
from curate.trust.bad_rule import BETTER, HUMAN, RaterAnswer, bad_members, check_answers
from curate.trust.gold import DialogueFinder
from curate.trust.label_rows import (
    NO_VALUE,
    GivenLabels,
    GoldRow,
    Unused,
    gold_row,
    labels_in_data,
    labels_in_file,
    refuse_empty,
)

REJECTED_PREFERRED = "better = 'rejected'"
"""Default rule for pairs."""
_KEPT_LABEL: TypeAdapter[tuple[str, str, dict[str, Any]]] = TypeAdapter(
    tuple[str, str, dict[str, Any]]
)

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


def given_labels(
    run: Path, gold: Path | None, dimension: str | None = None, label: str = "label"
) -> GivenLabels:
    """Return people's labels from a file, or those that the run's dialogues have.

    Args:
        run: run folder.
        gold: CSV, JSONL or Parquet; None for the data's own.
        dimension: that the data's own labels are of; None for a file.
        label: name of the data's own.

    Raises:
        UsageError: neither or both; no file, or no dialogue with such a label.
    """
    if (gold is None) == (dimension is None):
        raise UsageError(
            "labels are needed from exactly one place",
            got="no labels" if gold is None else f"{gold} and --dimension {dimension}",
            expected="a file GOLD, or --dimension with the data's own labels",
        )
    read_manifest(run)
    if gold is not None:
        return labels_in_file(gold)
    labels = labels_in_data(read_dialogues(run), label, dimension or "")
    if not labels:
        raise UsageError("no dialogue has that label", got=label, fix="name the label with --label")
    names = ("content", "dimension", "value", "turn")
    rows = [(row.place, {name: getattr(row, name) for name in names}) for row in labels]
    return GivenLabels(f"the data's label '{label}'", rows)


def labels_path(run: Path, kind: TrustKind) -> Path:
    """Return the path of the labels behind a run's report of the kind."""
    return run / "trust" / "labels" / f"{kind}.jsonl"


def keep_labels(run: Path, kind: TrustKind, labels: GivenLabels) -> None:
    """Write the labels behind a report into the run folder."""
    write_atomically(labels_path(run, kind), labels_as_kept(labels))


def labels_as_kept(labels: GivenLabels) -> bytes:
    """Return labels as the lines of a file, each with their origin and its place."""
    lines = ([labels.origin, place, row] for place, row in labels.rows)
    return b"".join(orjson.dumps(line, default=str) + b"\n" for line in lines)


def read_kept_labels(path: Path) -> GivenLabels:
    """Return the labels that `keep_labels` wrote.

    Raises:
        CurateError: a line is damaged.
    """
    rows = list(read_records(path, _KEPT_LABEL.validate_json))
    return GivenLabels(rows[0][0] if rows else path.name, [(place, row) for _, place, row in rows])


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


def without_kept(
    run: Path, rows: Sequence[GoldRow], hold_out: float
) -> tuple[list[GoldRow], Unused]:
    """Return the rows to fit to, and those kept for a certificate."""
    reserved: set[str] = set()
    for draw in read_draws(run):
        if draw.purpose == "certify" and not is_of_pairs(draw.of):
            reserved |= set(read_drawn(run, draw).filter("drawn")[UNIT])
    find = DialogueFinder(rows, read_dialogues(run))
    usable: list[GoldRow] = []
    kept_rows = Unused()
    for row in rows:
        dialogue = find(row)
        key = dialogue.content_hash if isinstance(dialogue, Dialogue) else ""
        if key in reserved:
            kept_rows.add("drawn to certify, and kept for that", row.place)
        elif key and is_held_out(key, hold_out):
            kept_rows.add("held out for a certificate", row.place)
        else:
            usable.append(row)
    if rows and not usable:
        raise UsageError(
            "all labels are reserved for a certificate",
            got="; ".join(kept_rows.reasons()),
            expected="labels of other dialogues",
            fix=f"curate sample {run} --for calibrate",
        )
    return usable, kept_rows


def check_hold_out(share: float) -> None:
    """Raise a UsageError for a share that leaves nothing, or is none."""
    if not 0 <= share < 1:
        raise UsageError("--hold-out must be a share", got=share, expected="0 or more and below 1")


def is_held_out(content_hash: str, share: float) -> bool:
    """Return whether a dialogue is among the `share` that is kept for a certificate; the same dialogues each time."""
    digest = hashlib.blake2b(f"hold out {content_hash}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64


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
