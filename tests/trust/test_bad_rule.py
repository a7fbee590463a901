"""What counts as bad: conditions, labels, rejects, several raters and turns."""

from __future__ import annotations

from typing import Any

import pytest

from curate.errors import UsageError
from curate.trust.bad_rule import RaterAnswer, answer_table, bad_members, check_answers


def said(*rows: tuple[Any, ...]) -> list[RaterAnswer]:
    return [
        RaterAnswer(member, dimension, value, f"f:{at}", *more)
        for at, (member, dimension, value, *more) in enumerate(rows)
    ]


def test_numbers_are_means_over_turns_and_raters() -> None:
    answers = said(
        ("a", "helpfulness", "1", 1, "x"), ("a", "helpfulness", "3", 1, "y"), ("a", "helpfulness", 5, 2, "x"),
        ("b", "helpfulness", 4, 1),
    )  # fmt: skip
    rows = {row["member"]: row for row in answer_table(answers).iter_rows(named=True)}
    assert rows["a"] == {"member": "a", "helpfulness": 3.5, "min_helpfulness": 2.0, "human": 3.5}
    assert rows["b"]["min_helpfulness"] == 4
    assert bad_members(answers, "min_helpfulness < 3")[0] == {"a": True, "b": False}
    assert bad_members(answers, "human < 4") == ({"a": True, "b": False}, "human < 4")


def test_a_member_without_the_answer_is_not_told_of() -> None:
    answers = said(("a", "x", 1), ("b", "x", "n/a"), ("b", "y", 2), ("c", "x", " "), ("c", "y", 3))
    assert bad_members(answers, "x < 2")[0] == {"a": True}
    assert bad_members(answers, "x < 2 OR y > 2")[0] == {"a": True, "c": True}


def test_reviewers_reject_by_half_or_more() -> None:
    answers = said(
        ("a", "accept", "yes", None, "x"), ("a", "accept", "no", None, "y"), ("b", "verdict", "good"),
        ("c", "accept", "reject"), ("d", "accept", "perhaps"),
    )  # fmt: skip
    assert bad_members(answers, None)[0] == {"a": True, "b": False, "c": True}


def test_a_label_is_bad_by_half_or_more() -> None:
    answers = said(
        ("a", "kind", "Spam"), ("b", "kind", "fine"), ("b", "kind", "fine"), ("b", "kind", "spam")
    )
    assert bad_members(answers, "spam") == ({"a": True, "b": False}, "the label is spam")
    assert bad_members(answers, "kind = 'spam'")[0] == {"a": True, "b": False}


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (None, "it is not defined which labels are bad"),
        ("ham", "no label has that value"),
        ("kind", "not a condition"),
        ("kind <", "does not fit"),
        ("colour = 'red'", "does not fit"),
        ("kind < 3", "does not fit"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(rule: str | None, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        bad_members(said(("a", "kind", "spam")), rule)


def test_two_labels_of_one_rater_are_refused_and_of_two_are_not() -> None:
    check_answers(said(("a", "x", 1, None, "p"), ("a", "x", 2, None, "q"), ("a", "x", 2, 1, "p")))
    check_answers(said(("a", "x", 1), ("a", "x", 2)))
    with pytest.raises(UsageError, match=r"p: 1 \(f:0\) and 1 \(f:1\)"):
        check_answers(said(("a", "x", 1, None, "p"), ("a", "x", 1, None, "p")))
