"""Labels of people: how they are read, matched to a run and put on levels, and what is counted as unused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message
from curate.errors import UsageError
from curate.records import CONVERSATION_DIMENSIONS, TURN_DIMENSIONS
from curate.trust.gold import Gold, GoldItem, dialogue_text, match_gold
from curate.trust.label_rows import (
    DIMENSIONS,
    GoldRow,
    PairVote,
    labels_in_data,
    labels_in_file,
    read_gold,
    read_label_rows,
    split_labels,
)
from curate.trust.scales import Scale, parse_scales


def dialogue(name: str, turns: int = 2, **fields: Any) -> Dialogue:
    messages = [Message(role="system", content="hidden")]
    for number in range(1, turns + 1):
        messages.append(Message(role="user", content=f"{name} asks\n {number}"))
        messages.append(Message(role="assistant", content=f"{name}  answers {number}"))
    return Dialogue(id=name, messages=tuple(messages), **fields)


A, B = dialogue("a"), dialogue("b")
ROWS = [
    {"id": "a", "turn": 1, "dimension": "helpfulness", "value": 0, "rater": "x"},
    {"id": "a", "turn": 2, "dimension": "helpfulness", "value": 2, "rater": "x"},
    {"id": "b", "turn": None, "dimension": "verdict", "value": "good", "rater": None},
]


def row(dimension: str, value: Any, **fields: Any) -> GoldRow:
    return GoldRow(
        **({"place": "g:1", "dialogue_id": "a"} | fields | {"dimension": dimension, "value": value})
    )


def matched(*rows: GoldRow, scale: str | None = None) -> Gold:
    return match_gold(rows, [A, B], parse_scales([scale] if scale else ()))


def levels(gold: Gold) -> dict[int | None, int | None]:
    return {item.turn: label.level for item, label in gold.levels.items()}


@pytest.mark.parametrize(
    ("kind", "separator"),
    [("csv", ","), ("csv", ";"), ("csv", "\t"), ("jsonl", ""), ("parquet", "")],
)
def test_three_kinds_of_files_say_the_same(tmp_path: Path, kind: str, separator: str) -> None:
    path = tmp_path / f"gold.{kind}"
    frame = pl.DataFrame([{**one, "value": str(one["value"])} for one in ROWS])
    if kind == "csv":
        frame.write_csv(path, separator=separator, include_bom=separator == ";")
        if separator == "\t":  # as Excel's "Unicode text"
            path.write_text(path.read_text(), encoding="utf-16")
    elif kind == "parquet":
        frame.write_parquet(path)
    else:
        path.write_text("".join(json.dumps(one) + "\n\n" for one in ROWS))
    gold = match_gold(read_gold(path), [A, B])
    assert levels(gold) == {1: 1, 2: 5}
    assert gold.good == {B.content_hash: True}
    assert str(gold.scales["helpfulness"]) == "0-2"
    assert gold.unused.counts == {}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gold.csv", "who,what\n1,2\n", "columns: what, who"),
        ("gold.csv", "id,value\n1,2\n", "columns: id, value"),
        ("gold.jsonl", "{", "cannot be read"),
        ("gold.parquet", "none", "cannot be read"),
        ("gold.txt", "a", ".csv, .jsonl, .parquet or .json"),
        ("gold.jsonl", "", "columns: none"),
    ],
)
def test_what_is_no_file_of_labels_is_refused(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_gold(path)
    with pytest.raises(UsageError, match="no such file"):
        read_gold(tmp_path / "absent.csv")


def test_labels_in_an_old_code_page_are_refused_and_no_name_is_garbled(tmp_path: Path) -> None:
    path = tmp_path / "gold.csv"
    path.write_text("id,value,rater\na,3,Zoë\n", encoding="cp1252")
    with pytest.raises(UsageError, match="in UTF-8"):
        read_gold(path)


def test_a_dialogue_is_found_by_id_hash_or_text() -> None:
    assert dialogue_text(A) == "a asks 1 a answers 1 a asks 2 a answers 2"
    for content in (
        A.content_hash,
        dialogue_text(A),
        "a asks 1\na answers 1\n\na asks 2 a answers 2 ",
    ):
        gold = matched(row("coherence", 3, dialogue_id=None, content=content))
        assert list(gold.levels) == [GoldItem(A.content_hash, None, "coherence")]


@pytest.mark.parametrize(
    ("values", "scale", "expected"),
    [
        ([1, 3, 5], None, [1, 3, 5]),
        ([1, 2, 3], None, [1, 2, 3]),  # whole numbers in 1-5 are taken as they are
        ([1, 2, 3], "1-3", [1, 3, 5]),
        ([0, 1, 2, 3, 4], None, [1, 2, 3, 4, 5]),
        ([0, 1, 2], None, [1, 3, 5]),
        ([0, 1], None, [1, 5]),
        ([True, False], None, [5, 1]),
        ([0, 1, 2], "0-4", [1, 2, 3]),
        ([10, 55, 100], None, [1, 3, 5]),
        (["1.0", "2.5", "4"], None, [1, 3, 5]),
        ([-1, 0, 1], None, [1, 3, 5]),
        ([7, 7, 7], None, [1, 1, 1]),
        (["bad", "Fair", "good "], "bad,fair,good", [1, 3, 5]),
        ([0, 3, 10], "helpfulness=0-10", [1, 2, 5]),
    ],
)
def test_any_ordinal_scale_is_put_on_levels(
    values: list[Any], scale: str | None, expected: list[int]
) -> None:
    many = dialogue("many", turns=len(values))
    rows = [
        row("helpfulness", value, dialogue_id="many", turn=turn)
        for turn, value in enumerate(values, 1)
    ]
    gold = match_gold(rows, [many], parse_scales([scale] if scale else ()))
    assert [label.level for label in gold.levels.values()] == expected


@pytest.mark.parametrize("text", ["2-0", "3", "a,a", "=", "tone=0-2", "safety=", ""])
def test_what_is_no_scale_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="scale"):
        parse_scales([text])


def test_several_raters_are_averaged_and_rounded_half_up() -> None:
    def said(*values: Any) -> int | None:
        rows = [row("coherence", value, rater=f"r{n}") for n, value in enumerate(values)]
        (label,) = matched(*rows).levels.values()
        return label.level

    assert said(2, 3) == 3
    assert said(2, 2, 3) == 2
    assert said(1, 4) == 3
    assert said("n/a", "n/a", 4) is None
    assert said("n/a", 4) == 4
    assert said("N/A") is None


def test_two_values_of_one_rater_are_refused_and_unnamed_rows_are_raters_of_their_own() -> None:
    with pytest.raises(
        UsageError, match=r"(?s)two values.*coherence of a by x: 1 \(g:1\) and 5 \(g:1\)"
    ):
        matched(row("coherence", 1, rater="x"), row("coherence", 5, rater="x"))
    (label,) = matched(row("coherence", 1), row("coherence", 5)).levels.values()
    assert (label.level, label.each) == (3, (1, 5))


def test_a_dialogue_is_good_where_more_than_half_say_so() -> None:
    def good(*values: tuple[str, Any]) -> bool:
        return matched(*(row(name, value) for name, value in values)).good[A.content_hash]

    assert good(("verdict", "excellent"))
    assert good(("verdict", "good"), ("accept", "no"), ("accept", True))
    assert not good(("accept", 1), ("accept", 0))
    assert not good(("verdict", "borderline"))
    assert not good(("verdict", "Poor"))


def test_role_adherence_is_of_the_last_turn_unless_one_is_named() -> None:
    gold = matched(row("adherence", "violation"), row("adherence", "adherent", turn=1))
    assert {item.turn: held for item, held in gold.adherent.items()} == {2: False, 1: True}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (row("coherence", 3, dialogue_id="c"), "no dialogue of the run has that id"),
        (row("coherence", 3, content="f" * 32), "no dialogue of the run has that content"),
        (row("tone", 3), "no such dimension: 'tone'"),
        (row("coherence", None), "no value"),
        (row("coherence", " "), "no value"),
        (row("safety", 3), "safety is a dimension of turns, and the row names no turn"),
        (row("verdict", "good", turn=1), "verdict is of the conversation, and a turn is named"),
        (row("coherence", "fine"), "not on the scale 1-5: 'fine'"),
        (row("coherence", "nan"), "not on the scale 1-5: 'nan'"),
        (row("accept", "perhaps"), "not a yes or no: 'perhaps'"),
    ],
)
def test_what_says_nothing_is_counted_with_its_reason_and_the_first_place(
    wrong: GoldRow, reason: str
) -> None:
    fine = [row("coherence", 3, dialogue_id="b"), row("coherence", 4)]
    gold = matched(*fine, wrong, wrong)
    assert gold.unused.counts == {reason: 2}
    assert gold.unused.first == {reason: "g:1"}
    assert gold.rows == 4


def test_an_id_of_two_dialogues_names_neither() -> None:
    other = dialogue("x").model_copy(update={"id": "a"})
    rows = [row("coherence", 3), row("coherence", 3, dialogue_id="b")]
    gold = match_gold(rows, [A, other, B])
    assert gold.unused.counts == {"several dialogues of the run have that id": 1}
    with pytest.raises(UsageError, match="no label is about a dialogue of this run"):
        match_gold(rows[:1], [A, other])


def test_labels_in_the_data_are_one_value_or_one_for_each_scored_turn() -> None:
    held = dialogue("c", labels={"stars": 4, "help": [1, None], "short": [1]})
    rows = labels_in_data([held, A], "stars", "coherence")
    assert [(r.content, r.turn, r.value) for r in rows] == [(held.content_hash, None, 4)]
    rows = labels_in_data([held, A], "help", "helpfulness")
    assert [(r.turn, r.value) for r in rows] == [(1, 1)]
    with pytest.raises(UsageError, match="does not fit its turns"):
        labels_in_data([held], "short", "helpfulness")
    with pytest.raises(UsageError, match="no such dimension"):
        labels_in_data([held], "stars", "tone")


def test_a_scale_says_its_ends_and_nothing_lies_beyond_them() -> None:
    scale = Scale(0, 2)
    assert [scale.level(value) for value in (0, 1, 2, -1, 3, "x", None)] == [1, 3, 5] + [None] * 4


def test_more_than_half_of_the_raters_say_whether_a_turn_keeps_its_role() -> None:
    said = [("ann", "adherent"), ("bob", "violation"), ("eve", "violation")]
    gold = matched(*(row("adherence", value, turn=1, rater=name) for name, value in said))
    assert [*gold.adherent.values()] == [False]
    (votes,) = gold.adherent_votes.values()
    assert votes.by_rater == {"ann": True, "bob": False, "eve": False}
    assert votes.named == {"ann", "bob", "eve"}


def test_verdicts_are_levels_of_their_own_beside_good_or_not() -> None:
    gold = matched(
        row("verdict", "excellent", rater="ann"),
        row("verdict", "Borderline", rater="bob"),
        row("accept", "yes", dialogue_id="b", rater="ann"),
    )
    label = gold.verdicts[A.content_hash]
    assert (label.level, label.mean, label.raters) == (3, 3.0, {"ann": 4, "bob": 2})
    assert gold.good == {A.content_hash: False, B.content_hash: True}
    assert B.content_hash not in gold.verdicts


def test_one_raters_verdict_and_accept_are_one_vote_and_may_not_contradict() -> None:
    gold = matched(row("verdict", "good", rater="x"), row("accept", "yes", rater="x"))
    assert gold.good_votes[A.content_hash].by_rater == {"x": True}
    assert gold.unused.counts == {}
    gold = matched(row("verdict", "good", rater="x"), row("accept", "no", rater="x"))
    assert gold.good == {A.content_hash: True}
    said = "verdict and accept of one rater contradict each other"
    assert gold.unused.counts == {said: 1}


def test_words_that_nothing_orders_are_refused_with_the_option_that_orders_them() -> None:
    with pytest.raises(UsageError, match=r"the worst first: --scale coherence=WORST,...,BEST"):
        matched(row("coherence", "poorly"), row("coherence", "fine"), row("coherence", "n/a"))
    gold = matched(row("coherence", "n/a"))
    assert [label.level for label in gold.levels.values()] == [None]


def test_the_datas_own_labels_of_adherence_are_of_each_turn_or_of_the_last() -> None:
    each = A.model_copy(update={"labels": {"kept": [True, None]}})
    last = B.model_copy(update={"labels": {"kept": "violation"}})
    gold = match_gold(labels_in_data([each, last], "kept", "adherence"), [each, last])
    assert gold.adherent == {
        GoldItem(A.content_hash, 1, "adherence"): True,
        GoldItem(B.content_hash, 2, "adherence"): False,
    }


def test_a_file_may_hold_labels_of_dialogues_and_of_pairs(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    rows: list[dict[str, Any]] = [
        {"id": "a", "dimension": "coherence", "value": 4, "language": "de", "comment": "nice"},
        {"pair_id": "p", "better": "rejected", "rater": "ann"},
        {"pair_id": "p", "better": "both"},
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    labels, votes, unused = split_labels(labels_in_file(path))
    assert [(one.dimension, one.value, one.language) for one in labels] == [("coherence", 4, "de")]
    assert votes == [PairVote("gold.jsonl:2", "p", chosen_is_better=False, rater="ann")]
    assert unused.first == {"better is neither chosen nor rejected: 'both'": "gold.jsonl:3"}
    path.write_text(json.dumps({"pair_id": "p", "better": "chosen"}) + "\n")
    assert split_labels(labels_in_file(path))[0] == []
    path.write_text("")
    with pytest.raises(UsageError, match="not a file of labels"):
        split_labels(labels_in_file(path))


GIVEN = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([*DIMENSIONS, "tone"]),
        st.sampled_from([1, 3, 5, "2", "n/a", "good", "poor", "yes", "huh", None]),
        st.sampled_from([None, 1, 2, 9]),
    ),
    min_size=1,
    max_size=30,
)


@given(GIVEN)
def test_every_row_is_used_or_counted_with_its_reason(
    given_rows: list[tuple[str, str, Any, int | None]],
) -> None:
    """Raters have names of their own here, so no two rows are one person's."""
    rows = [row("coherence", 3, dialogue_id="a", rater="sure")]
    for dimension in (
        *TURN_DIMENSIONS,
        *CONVERSATION_DIMENSIONS,
    ):  # numbers, so that words are mistakes
        turn = 1 if dimension in TURN_DIMENSIONS else None
        rows.append(row(dimension, 4, dialogue_id="b", turn=turn, rater="number"))
    rows += [
        row(dimension, value, dialogue_id=name, turn=turn, rater=f"r{number}")
        for number, (name, dimension, value, turn) in enumerate(given_rows)
    ]
    gold = match_gold(rows, [A, B])
    used = sum(label.rows for label in gold.levels.values())
    votes = [*gold.good_votes.values(), *gold.adherent_votes.values()]
    used += sum(len(held.by_rater) for held in votes)
    assert used + sum(gold.unused.counts.values()) == len(rows)
    for label in gold.levels.values():
        assert label.level is None or min(label.each) <= label.level <= max(label.each)


def test_of_answers_with_a_time_the_last_one_counts() -> None:
    early, late = "2026-11-20T10:00:00+00:00", "2026-11-20T11:00:00+00:00"
    for rows in (
        (row("coherence", 1, rater="x", time=early), row("coherence", 5, rater="x", time=late)),
        (row("coherence", 5, rater="x", time=late), row("coherence", 1, rater="x", time=early)),
    ):
        gold = matched(*rows)
        assert levels(gold) == {None: 5}
        assert gold.unused.counts == {"the same rater answered again later": 1}
    with pytest.raises(UsageError, match="two values"):
        matched(row("coherence", 1, rater="x", time=early), row("coherence", 5, rater="x"))


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("us")], ids=str)
def test_a_table_of_labels_with_a_time_that_is_none_is_refused(
    tmp_path: Path, kind: pa.DataType
) -> None:
    path = tmp_path / "gold.parquet"
    far = pa.array([2**31 - 1 if kind == pa.date32() else 2**62], kind)
    pq.write_table(pa.table({"id": ["a"], "dimension": ["human"], "value": [1], "day": far}), path)
    with pytest.raises(UsageError, match="the labels cannot be read"):
        read_label_rows(path)


def test_a_header_that_ends_as_on_an_old_mac_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "gold.csv"
    path.write_bytes(b"id,dimension,value\ra,human,1\n")
    with pytest.raises(UsageError):
        read_gold(path)
    path.write_bytes(b"id" * 200_000 + b",dimension,value\na,human,1\n")
    with pytest.raises(UsageError):
        read_gold(path)
