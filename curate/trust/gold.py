"""People's labels matched to the dialogues of a run, and put on levels by their scales (`scales`).

Rows that cannot be used are counted by their reason (`label_rows`).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.records import CONVERSATION_DIMENSIONS, TURN_DIMENSIONS, VERDICTS
from curate.records.readings import METRIC
from curate.trust.label_rows import (
    ADHERENCE,
    DIMENSIONS,
    NO_VALUE,
    GoldRow,
    Unused,
    is_not_applicable,
    refuse_empty,
    truth_of,
)
from curate.trust.scales import Scale, assumed_scale, scale_of

ANSWERED_AGAIN = "the same rater answered again later"
"""Reason why a row with a time is not used: in a review file the last answer counts."""
_HASH = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class GoldItem:
    """The turn or conversation, and the dimension, that a label is about; `turn` is None for the conversation."""

    content_hash: str
    turn: int | None
    dimension: str


_VERDICT_SCALE = Scale(0, len(VERDICTS) - 1, VERDICTS)


@dataclass(frozen=True, slots=True)
class Label:
    """The label of one item, from all its raters.

    Attributes:
        level: 1-5, or 1-4 of a verdict: their mean rounded half up; None for n/a, by more than half of them.
        each: every rater's own level, n/a left out.
        place: of the first row.
        rows: how many rows it is made of.
        mean: of their levels, not rounded; None for n/a.
        raters: the level of each rater who has a name.
    """

    level: int | None
    each: tuple[int, ...]
    place: str
    rows: int
    mean: float | None = None
    raters: Mapping[str, int] = field(default_factory=dict)

    def shifted(self, by: int) -> Label:
        """Return the label with its levels moved up by so much."""
        return replace(
            self,
            level=None if self.level is None else self.level + by,
            each=tuple(level + by for level in self.each),
            mean=None if self.mean is None else self.mean + by,
            raters={name: level + by for name, level in self.raters.items()},
        )


@dataclass(slots=True)
class Votes:
    """The yes or no of each rater of one dialogue or turn; raters without a name go by a number."""

    place: str
    by_rater: dict[str, bool] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)

    @property
    def rows(self) -> int:
        """How many rows they are made of."""
        return len(self.by_rater)

    @property
    def is_yes(self) -> bool:
        """True where more than half say so."""
        return 2 * sum(self.by_rater.values()) > len(self.by_rater)


@dataclass(slots=True)
class Gold:
    """Labels matched to the dialogues of a run.

    Attributes:
        levels: of the rubric's dimensions.
        metrics: of the weighted metrics, on levels from 0.
        verdicts: by content hash, where raters gave one of the four verdicts: 1 poor to 4 excellent.
        good_votes: by content hash, who finds the dialogue good.
        adherent_votes: by item, who finds that a turn (the last one where the row names none) keeps its role.
        scales: by dimension, what its values were put on 1-5 from.
        assumed_scales: by dimension whose values do not show where its scale ends, which one was assumed for which values.
        languages: by content hash, where a row names one.
        unused: rows that say nothing about this run.
    """

    levels: dict[GoldItem, Label] = field(default_factory=dict)
    metrics: dict[GoldItem, Label] = field(default_factory=dict)
    verdicts: dict[str, Label] = field(default_factory=dict)
    good_votes: dict[str, Votes] = field(default_factory=dict)
    adherent_votes: dict[GoldItem, Votes] = field(default_factory=dict)
    scales: dict[str, Scale] = field(default_factory=dict)
    assumed_scales: dict[str, str] = field(default_factory=dict)
    languages: dict[str, str] = field(default_factory=dict)
    unused: Unused = field(default_factory=Unused)
    rows: int = 0

    @property
    def good(self) -> dict[str, bool]:
        """By content hash, whether a dialogue is good: by more than half of its raters."""
        return {key: votes.is_yes for key, votes in self.good_votes.items()}

    @property
    def adherent(self) -> dict[GoldItem, bool]:
        """By item, whether a turn keeps its role, by more than half of its raters."""
        return {item: votes.is_yes for item, votes in self.adherent_votes.items()}


def match_gold(
    rows: Sequence[GoldRow],
    dialogues: Iterable[Dialogue],
    scales: Mapping[str, Scale] | None = None,
    unused: Unused | None = None,
    metrics: Mapping[str, int] | None = None,
) -> Gold:
    """Match labels to a run's dialogues and put their values on levels.

    Where no scale is given: whole numbers that all lie in 1-5 are taken as they are, other numbers are put on
    1-5 linearly from the lowest to the highest that occurs. Labels of metrics are on the metric's own scale, 0-5, or
    pass and fail.

    Args:
        rows: labels, in the order of the file.
        dialogues: of the run.
        scales: by dimension; `*` for all of the rubric.
        unused: rows that could not be used so far.
        metrics: those of the run, by name their highest level: 5, or 1 of pass and fail.

    Raises:
        UsageError: no label is about a dialogue of the run; one rater gives one item two values, without times
            that say which is the last; the values of a dimension are words, and no scale orders them.
    """
    gold = Gold(rows=len(rows), unused=unused or Unused())
    scales = scales or {}
    highest = {METRIC + name: level for name, level in (metrics or {}).items()}
    by_item = _rows_by_item(gold, rows, DialogueFinder(rows, dialogues), highest)
    if not by_item:
        refuse_empty(gold.unused)
        raise _no_label(gold.unused, has_rows=bool(rows))
    for name, values in _values(by_item).items():
        stated = scales.get(name) or scales.get("*")
        gold.scales[name] = stated or scale_of(name, values)
        if stated is None and (assumed := assumed_scale(gold.scales[name], values)):
            gold.assumed_scales[name] = assumed
    for item, by_rater in by_item.items():
        if item.dimension in highest:
            top = highest[item.dimension]
            scale = scales.get(item.dimension) or Scale(0, top)
            gold.scales[item.dimension] = scale
            label = _label(gold, scale, [*by_rater.values()], levels=top + 1)
            if label is not None:
                gold.metrics[item] = label.shifted(-1)
        elif item.dimension in gold.scales:
            label = _label(gold, gold.scales[item.dimension], [*by_rater.values()])
            if label is not None:
                gold.levels[item] = label
        elif item.dimension == ADHERENCE:
            _vote(gold, gold.adherent_votes, item, by_rater)
        else:
            _vote(gold, gold.good_votes, item.content_hash, by_rater)
            words = [row for row in by_rater.values() if _is_verdict(row.value)]
            if words:
                label = _label(gold, _VERDICT_SCALE, words, levels=len(VERDICTS))
                assert label is not None
                gold.verdicts[item.content_hash] = label
    return gold


def _rows_by_item(
    gold: Gold, rows: Sequence[GoldRow], find: DialogueFinder, highest: Mapping[str, int]
) -> dict[GoldItem, dict[str, GoldRow]]:
    """Return the usable rows by item and rater; the others are counted in `gold.unused`."""
    by_item: dict[GoldItem, dict[str, GoldRow]] = defaultdict(dict)
    for row in rows:
        dialogue = find(row)
        if isinstance(dialogue, str):
            gold.unused.add(dialogue, row.place)
            continue
        if (reason := _unfit(row, highest)) is not None:
            gold.unused.add(reason, row.place)
            continue
        turn = row.turn
        if row.dimension == ADHERENCE and turn is None:
            turn = max((t.number for t in dialogue.turns if t.has_assistant), default=None)
        item = GoldItem(dialogue.content_hash, turn, row.dimension)
        earlier = by_item[item].get(row.rater or "")
        if earlier is not None:
            if not (earlier.time and row.time):
                raise _given_twice(earlier, row)
            earlier, row = sorted((earlier, row), key=lambda one: one.time or "")
            gold.unused.add(ANSWERED_AGAIN, earlier.place)
        by_item[item][row.rater or f"#{len(by_item[item])}"] = row
        if row.language is not None:
            gold.languages[dialogue.content_hash] = row.language
    return by_item


def _no_label(unused: Unused, *, has_rows: bool) -> UsageError:
    is_about_others = not has_rows or unused.counts.keys() <= NO_DIALOGUE
    return UsageError(
        "no label is about a dialogue of this run" if is_about_others else "no label can be used",
        got="; ".join(unused.reasons()) or "no rows",
        expected="ids or content hashes as `curate show RUN` and scores.parquet have them"
        if is_about_others
        else f"one of the dimensions {', '.join(DIMENSIONS)}; of a turn with its number in `turn`",
    )


def _given_twice(first: GoldRow, second: GoldRow) -> UsageError:
    turn = "" if second.turn is None else f", turn {second.turn}"
    of = second.dialogue_id or second.content or ""
    return UsageError(
        "one rater gives one dialogue two values",
        got=f"{second.dimension} of {of[:60]}{turn} by {second.rater}: {first.value} ({first.place}) and "
        f"{second.value} ({second.place})",
        expected="one row per rater, dialogue, turn and dimension",
        fix="keep the row that counts; people who share a name need names of their own",
    )


def _vote(gold: Gold, votes: dict[Any, Votes], key: Any, by_rater: Mapping[str, GoldRow]) -> None:
    """Add raters' yes and no; of one who gave both a verdict and an accept, these must not contradict."""
    for name, row in by_rater.items():
        answer = truth_of(row.value)
        if answer is None:
            gold.unused.add(f"not a yes or no: {str(row.value)[:40]!r}", row.place)
            continue
        current = votes.setdefault(key, Votes(row.place))
        rater = name if row.rater is not None else f"#{len(current.by_rater)}"
        if current.by_rater.setdefault(rater, answer) != answer:
            gold.unused.add("verdict and accept of one rater contradict each other", row.place)
        if row.rater is not None:
            current.named.add(rater)


def _label(gold: Gold, scale: Scale, rows: Sequence[GoldRow], levels: int = 5) -> Label | None:
    """Return the label of an item by all its raters, on levels from 1; None where no row can be used."""
    places: list[tuple[GoldRow, float]] = []
    absent = 0
    for row in rows:
        place = scale.level(row.value)
        if is_not_applicable(row.value):
            absent += 1
        elif place is None:
            gold.unused.add(f"not on the scale {scale}: {str(row.value)[:40]!r}", row.place)
        else:
            places.append((row, 1 + (place - 1) * (levels - 1) / 4))
    used = absent + len(places)
    if not used:
        return None
    is_na = 2 * absent > used or not places
    mean = math.fsum(place for _, place in places) / len(places) if places else 0.0
    return Label(
        level=None if is_na else _rounded(mean),
        each=tuple(_rounded(place) for _, place in places),
        place=rows[0].place,
        rows=used,
        mean=None if is_na else mean,
        raters={row.rater: _rounded(place) for row, place in places if row.rater is not None},
    )


_NO_CONTENT = "no dialogue of the run has that content"
_NO_ID = "no dialogue of the run has that id"
_SEVERAL = "several dialogues of the run have that id"
NO_DIALOGUE = frozenset({_NO_CONTENT, _NO_ID, _SEVERAL})
"""Reasons for which `DialogueFinder` finds no dialogue."""


class DialogueFinder:
    """Finds the dialogue a row is about, or says why there is none."""

    def __init__(self, rows: Sequence[GoldRow], dialogues: Iterable[Dialogue]) -> None:
        has_text = any(row.content and not _HASH.fullmatch(row.content) for row in rows)
        ids = {row.dialogue_id for row in rows}
        hashes = {row.content for row in rows}
        self._by_id: dict[str, list[Dialogue]] = defaultdict(list)
        self._by_content: dict[str, Dialogue] = {}
        for dialogue in dialogues:
            if dialogue.id in ids:
                self._by_id[dialogue.id].append(dialogue)
            if dialogue.content_hash in hashes:
                self._by_content[dialogue.content_hash] = dialogue
            if has_text:
                self._by_content[dialogue_text(dialogue)] = dialogue

    def __call__(self, row: GoldRow) -> Dialogue | str:
        """Return the dialogue, or why there is none."""
        if row.content is not None:
            matches = self._by_content.get(row.content) or self._by_content.get(_plain(row.content))
            return matches or _NO_CONTENT
        candidates = self._by_id.get(row.dialogue_id or "", [])
        if len({dialogue.content_hash for dialogue in candidates}) > 1:
            return _SEVERAL
        return candidates[0] if candidates else _NO_ID


def dialogue_text(dialogue: Dialogue) -> str:
    """Return the texts of all messages but system ones, in order, with single spaces: what `content` may hold."""
    return _plain(" ".join(m.content for m in dialogue.messages if m.role != "system"))


def _plain(text: str) -> str:
    return " ".join(text.split())


def _unfit(row: GoldRow, metrics: Container[str]) -> str | None:
    """Return why a row cannot be used, whatever dialogue it is about; None where it can."""
    if row.dimension.startswith(METRIC) and row.dimension not in metrics:
        return f"the run has no such metric: {row.dimension[:40]!r}"
    if row.dimension not in DIMENSIONS and row.dimension not in metrics:
        return f"no such dimension: {row.dimension[:40]!r}"
    if row.value is None or not str(row.value).strip():
        return NO_VALUE
    if row.dimension in TURN_DIMENSIONS and row.turn is None:
        return f"{row.dimension} is a dimension of turns, and the row names no turn"
    if row.turn is not None and row.dimension not in (*TURN_DIMENSIONS, ADHERENCE):
        return f"{row.dimension} is of the conversation, and a turn is named"
    return None


def _is_verdict(value: Any) -> bool:
    return str(value).strip().lower() in VERDICTS


def _rounded(mean: float) -> int:
    """Round half up; a value that is a hair below a half by binary fractions counts as a half."""
    return math.floor(mean + 0.5 + 1e-9)


def _values(by_item: Mapping[GoldItem, Mapping[str, GoldRow]]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = defaultdict(list)
    for item, by_rater in by_item.items():
        if item.dimension in (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS):
            values[item.dimension] += [row.value for row in by_rater.values()]
    return values
