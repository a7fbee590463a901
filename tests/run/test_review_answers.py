"""People's answers without a run: votes, the latest answer, and decisions in place of the rules'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.errors import UsageError
from curate.records import PreferencePair, ReviewAnswer, ReviewReport
from curate.run.review_answers import (
    by_rules,
    kept_answers,
    latest_answers,
    parse_answers,
    read_answers,
    review_report,
    reviews_of,
    with_reviews,
    write_answers,
)
from curate.selection.rules import DECISION_SCHEMA

A, B, C, D, E = (letter * 32 for letter in "abcde")


def answer(
    content: str = A, value: str = "accept", rater: str = "ann", **more: Any
) -> ReviewAnswer:
    base = {"id": "chat", "dimension": "accept", "time": "2026-01-01T10:00:00Z"} | more
    return ReviewAnswer(content=content, value=value, rater=rater, **base)


def of_pair(pair: str, value: str, rater: str = "ann", dimension: str = "better", **more: Any):
    return answer(value=value, rater=rater, pair_id=pair, dimension=dimension, **more)


def test_most_of_those_who_decide_about_a_dialogue_win() -> None:
    reviews = reviews_of(
        [
            answer(A, "accept", "ann", time="3"),
            answer(A, "reject", "bob", time="1"),
            answer(A, "accept", "cem", time="2"),
            answer(B, "reject", "ann"),
            answer(C, "accept", "ann"),
            answer(C, "reject", "bob"),
            answer(D, "4", "dee", dimension="helpfulness"),
        ]
    )
    assert reviews.dialogues == {
        A: (True, ("bob", "cem", "ann"), "3"),
        B: (False, ("ann",), "2026-01-01T10:00:00Z"),
    }
    assert reviews.disagreed == {C}
    assert reviews.raters == {"ann", "bob", "cem", "dee"}


def test_a_pair_is_turned_where_more_call_the_rejected_side_better() -> None:
    reviews = reviews_of(
        [
            of_pair("p", "rejected"),
            of_pair("p", "tie", "bob"),
            of_pair("q", "rejected"),
            of_pair("q", "chosen", "bob"),
            of_pair("r", "chosen"),
            answer(value="rejected", dimension="better"),  # of no pair
            of_pair("s", "later words", dimension="chosen_text", time="2"),
            of_pair("s", "first words", "bob", dimension="chosen_text", time="1"),
            answer(value="x", dimension="chosen_text"),
        ]
    )
    assert reviews.turned == {"p"}
    assert reviews.texts == {"s": "later words"}


def test_the_chosen_text_is_exported_as_it_was_written() -> None:
    def pair(name: str, chosen: str | None) -> PreferencePair:
        side = None if chosen is None else {"role": "assistant", "content": chosen}
        fields = {"content_hash": A, "source": "natural", "basis": "rank", "prompt": []}
        return PreferencePair.model_validate(
            {"pair_id": name, "dialogue_id": "d", "chosen": side}
            | fields
            | {"rejected": {"role": "assistant", "content": "no"}}
        )

    reviews = reviews_of([of_pair(name, "new", dimension="chosen_text") for name in ("p", "r")])
    pairs = [pair("p", "old"), pair("q", "old"), pair("r", None)]
    exported = list(reviews.pairs(pairs))
    assert [one.chosen and one.chosen.content for one in exported] == ["new", "old", None]
    assert exported[1:] == pairs[1:]


def test_the_later_answer_of_a_person_to_a_question_counts() -> None:
    early, late = answer(value="accept", time="1"), answer(value="reject", time="2")
    same_time = answer(value="accept", time="2")
    other = answer(value="accept", rater="bob", time="0")
    assert latest_answers([early, other], [late]) == [late, other]
    assert latest_answers([late], [early, other]) == [late, other]
    assert latest_answers([late], [same_time]) == [same_time]


def decided(*rows: tuple[str, list[str]]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "content_hash": [content for content, _ in rows],
            "reasons": [reasons for _, reasons in rows],
            "reviewed": [None for _ in rows],
        },
        schema={name: DECISION_SCHEMA[name] for name in ("content_hash", "reasons", "reviewed")},
    )


def test_people_s_decisions_stand_in_place_of_the_rules_and_can_be_taken_off() -> None:
    rules = decided((A, ["unsafe"]), (B, []), (C, ["top"]))
    reviews = reviews_of([answer(A, "accept"), answer(B, "reject")])
    after = with_reviews(rules, reviews)
    assert after["reasons"].to_list() == [[], ["reviewed"], ["top"]]
    time = "2026-01-01T10:00:00Z"
    assert after["reviewed"].to_list() == [
        {"accept": True, "raters": ["ann"], "time": time, "rule_reasons": ["unsafe"]},
        {"accept": False, "raters": ["ann"], "time": time, "rule_reasons": []},
        None,
    ]
    assert by_rules(after).equals(rules)
    assert with_reviews(rules, reviews_of([])).equals(rules)


def test_the_figures_of_a_review() -> None:
    rules = decided((A, ["unsafe"]), (B, []), (C, []), (E, []))
    reviews = reviews_of(
        [
            answer(A, "accept"),
            answer(B, "accept"),
            answer(E, "accept"),
            answer(C, "accept"),
            answer(C, "reject", "bob"),
            answer(D, "accept"),
            answer(D, "reject", "bob"),  # of another run
            of_pair("p", "rejected"),
            of_pair("gone", "rejected"),
            of_pair("p", "x", dimension="chosen_text"),
            of_pair("q", "x", dimension="chosen_text"),
        ]
    )
    after = with_reviews(rules, reviews)
    assert review_report(after, reviews, ["p", "q"]) == ReviewReport(
        raters=2, accepted=3, rejected=0, disagreed=1, changed=1, pairs_turned=1, texts=1
    )
    assert review_report(None, reviews, []) == ReviewReport(raters=2)
    assert review_report(after, reviews_of([]), ["p"]) is None


def test_answers_are_kept_and_read_again(tmp_path: Path) -> None:
    assert kept_answers(tmp_path) == []
    answers = [answer(A), of_pair("p", "tie")]
    write_answers(tmp_path, answers)
    assert kept_answers(tmp_path) == answers
    file = tmp_path / "review" / "answers.jsonl"
    assert read_answers(file) == answers
    assert "null" not in file.read_text()
    with pytest.raises(UsageError) as caught:
        read_answers(tmp_path / "gone.jsonl")
    assert "no such review file" in str(caught.value)
    assert "an export of the report's page" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": "chat"', ["line 3 of f.jsonl is not an answer of a review, or is cut off"]),
        ('{"id": "chat"}', ["got: content: Field required", "export the review again"]),
        (
            answer(value="maybe").model_dump_json(),
            ["line 3 of f.jsonl has no such answer about accept", "got: maybe", "accept or reject"],
        ),
        (
            of_pair("p", "both").model_dump_json(),
            ["no such answer about better", "got: both", "expected: chosen, rejected, tie"],
        ),
    ],
)
def test_a_line_that_is_no_answer_is_named(line: str, words: list[str]) -> None:
    lines = [answer().model_dump_json().encode(), b" ", line.encode()]
    assert parse_answers(Path("f.jsonl"), lines[:2]) == [answer()]
    with pytest.raises(UsageError) as caught:
        parse_answers(Path("f.jsonl"), lines)
    for word in words:
        assert word in str(caught.value)
