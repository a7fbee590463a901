"""The rule for what counts as bad, as a user states it over people's answers about each dialogue or pair.

People's answers become one row a member: a column for each dimension (of several raters the mean of their numbers,
or the word that most of them say; of a turn's dimension the mean over the labelled turns, and the lowest as `min_<dimension>`),
and `human`, the dimension's value where the file has one dimension. A rule is an SQL condition over these columns, a single
word that is a label, or, where nothing is said, that reviewers reject.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from curate.errors import UsageError
from curate.trust.label_rows import GOOD, finite_number, is_not_applicable, truth_of

HUMAN: Final = "human"
BETTER: Final = "better"
_WORD = re.compile(r"[^\W\d]\w*(?:-\w+)*")
_MEMBER = "member"


@dataclass(frozen=True, slots=True)
class RaterAnswer:
    """One rater's answer about one member in one dimension; `place` says where it was read."""

    member: str
    dimension: str
    value: Any
    place: str
    turn: int | None = None
    rater: str | None = None


def check_answers(answers: Iterable[RaterAnswer]) -> None:
    """Raise a UsageError where a rater says two things of one dialogue, turn and dimension."""
    seen: dict[tuple[str, str, int | None, str], RaterAnswer] = {}
    for answer in answers:
        if answer.rater is None:
            continue
        key = (answer.member, answer.dimension, answer.turn, answer.rater)
        first = seen.setdefault(key, answer)
        if first is not answer:
            raise UsageError(
                "one rater gives one dialogue two labels",
                got=f"{answer.rater}: {first.value} ({first.place}) and {answer.value} ({answer.place})",
                expected="one label for each rater, dialogue, turn and dimension",
                fix="keep the label that is right",
            )


def bad_members(answers: Sequence[RaterAnswer], rule: str | None) -> tuple[dict[str, bool], str]:
    """Return which members are bad, of those that the rule can be decided for.

    Args:
        answers: of all members; n/a and what is empty is no answer.
        rule: SQL over the dimensions, a label, or None for what reviewers reject.

    Returns:
        By member, and the rule in words.

    Raises:
        UsageError: it is not defined which labels are bad, or the rule does not fit the labels.
    """
    table = answer_table(answers)
    if rule is None:
        return _rejected(answers), "reviewers reject it"
    if _WORD.fullmatch(rule) and rule not in table.columns:
        return _labelled(answers, rule), f"the label is {rule}"
    try:
        value = table.with_columns(pl.sql_expr(rule).alias(" bad"))[" bad"]
    except PolarsError as error:
        raise UsageError(
            "--bad does not fit the labels",
            got=f"{rule!r} ({str(error).splitlines()[0] if str(error) else type(error).__name__})",
            expected=f"a condition over {', '.join(name for name in table.columns if name != _MEMBER)}",
            fix='for example --bad "human < 3", or a label: --bad reject',
        ) from error
    if value.dtype != pl.Boolean:
        raise UsageError(
            "--bad is not a condition", got=rule, expected="true or false, such as human < 3"
        )
    known = zip(table[_MEMBER], value, strict=True)
    return {member: is_bad for member, is_bad in known if is_bad is not None}, rule


def answer_table(answers: Sequence[RaterAnswer]) -> pl.DataFrame:
    """Return a row for each member with a column for each dimension; see the module."""
    by_item: dict[tuple[str, str], dict[int | None, list[Any]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for answer in answers:
        if _is_given(answer.value):
            by_item[answer.member, answer.dimension][answer.turn].append(answer.value)
    numeric: dict[str, bool] = {}
    for (_, name), turns in by_item.items():
        values = [value for answers_of in turns.values() for value in answers_of]
        numeric[name] = numeric.get(name, True) and all(
            finite_number(v) is not None for v in values
        )
    rows: dict[str, dict[str, Any]] = {}
    for (member, name), turns in by_item.items():
        row = rows.setdefault(member, {_MEMBER: member})
        if not numeric[name]:
            row[name] = _most_said(value for answers_of in turns.values() for value in answers_of)
            continue
        means = [
            _mean([finite_number(value) or 0.0 for value in answers_of])
            for answers_of in turns.values()
        ]
        row[name] = _mean(means)
        if set(turns) != {None}:
            row[f"min_{name}"] = min(means)
    columns = sorted({name for row in rows.values() for name in row} - {_MEMBER})
    table = pl.DataFrame(
        [{name: row.get(name) for name in (_MEMBER, *columns)} for row in rows.values()],
        schema={
            _MEMBER: pl.String,
            **{name: pl.String if numeric.get(name) is False else pl.Float64 for name in columns},
        },
    )
    if len(numeric) == 1 and HUMAN not in table.columns:
        table = table.with_columns(pl.col(next(iter(numeric))).alias(HUMAN))
    return table


def _rejected(answers: Sequence[RaterAnswer]) -> dict[str, bool]:
    votes: dict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        good = truth_of(answer.value) if answer.dimension in GOOD else None
        if good is not None:
            votes[answer.member].append(good)
    if not votes:
        names = sorted({answer.dimension for answer in answers})
        raise UsageError(
            "it is not defined which labels are bad",
            got=f"labels of {', '.join(names) or 'nothing'}",
            expected="accept or verdict among the dimensions, or --bad",
            fix='for example --bad "human < 3"',
        )
    return {member: 2 * sum(good) <= len(good) for member, good in votes.items()}


def _labelled(answers: Sequence[RaterAnswer], label: str) -> dict[str, bool]:
    """Return by member whether at least half of its answers are the label."""
    votes: dict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        if _is_given(answer.value):
            votes[answer.member].append(_word(answer.value) == label.lower())
    if not any(any(matches) for matches in votes.values()):
        values = Counter(_word(a.value) for a in answers if _is_given(a.value))
        raise UsageError(
            "no label has that value",
            got=label,
            expected=f"a value of a label ({', '.join(value for value, _ in values.most_common(8)) or 'there is none'}), or a condition",
        )
    return {member: 2 * sum(matches) >= len(matches) for member, matches in votes.items()}


def _is_given(value: Any) -> bool:
    return value is not None and bool(str(value).strip()) and not is_not_applicable(value)


def _word(value: Any) -> str:
    return str(value).strip().lower()


def _most_said(values: Iterable[Any]) -> str:
    counts: Mapping[str, int] = Counter(_word(value) for value in values)
    return max(sorted(counts), key=lambda word: counts[word])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
