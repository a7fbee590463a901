from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.benchmark.labelled_turns import LabelledTurn, labelled_turns, read_turns
from curate.errors import SourceError, UsageError
from curate.sources import SourceConfig
from tests.benchmark.rows import FOUR, row, write_rows


def read(path: Path, **options: Any) -> list[LabelledTurn]:
    return read_turns(SourceConfig(path=str(path)), **options)


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_papers_shape(tmp_path: Path) -> None:
    turns = read(write_rows(tmp_path / "rows.json", 4))
    assert [turn.label for turn in turns] == ["adherent", "scope", "adherent", "tone"]
    assert turns[0].case.references == (row(0)["ground_truth_assistant"],)
    assert turns[0].case.role.startswith("You are a clerk")


def test_the_last_turn_of_a_dialogue_with_its_own_references(tmp_path: Path) -> None:
    rows = [
        {
            "role_definition": "A clerk.",
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "My order?"},
                {"role": "assistant", "content": said},
            ],
            "references": [[], ["On its way.", "It left."]],
            "label": label,
        }
        for said, label in (("It left today.", "adherent"), ("Who cares.", "tone"))
    ]
    turns = read(lines(tmp_path / "rows.jsonl", rows))
    assert [turn.case.candidate for turn in turns] == ["It left today.", "Who cares."]
    assert turns[1].case.references == ("On its way.", "It left.")
    assert turns[1].case.turn == 2


def test_a_list_labels_every_turn_and_each_sees_no_later_one(tmp_path: Path) -> None:
    rows = [
        {
            "role_definition": "A clerk.",
            "messages": [
                {"role": "assistant", "content": "Welcome."},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "My order?"},
                {"role": "assistant", "content": "Who cares."},
            ],
            "references": [[], ["Good day."], ["It left."]],
            "label": [None, "adherent", "tone"],
        }
    ]
    first, second = read(lines(tmp_path / "rows.jsonl", rows))
    assert [message.content for message in first.dialogue.messages] == ["Welcome.", "Hi", "Hello."]
    assert [turn.number for turn in first.dialogue.turns] == [0, 1]
    assert (first.case.references, first.label) == (("Good day.",), "adherent")
    assert len(second.dialogue.messages) == 5
    assert (second.case.references, second.label) == (("It left.",), "tone")
    short = [{**rows[0], "label": ["adherent", "tone"]}]
    with pytest.raises(UsageError, match="a list with a label for each"):
        read(lines(tmp_path / "short.jsonl", short))


def test_a_flat_row_keeps_its_history_and_all_its_references(tmp_path: Path) -> None:
    """The reader of flat rows leaves `history` and `user` beside the messages; losing them would be silent."""
    rows = [
        {
            "role": "A clerk.",
            "history": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
            ],
            "user": "My order?",
            "assistant": said,
            "references": ["On its way.", "It left.", "Gone."],
            "label": label,
        }
        for said, label in (("It left today.", "adherent"), ("Who cares.", "tone"))
    ]
    first, second = read(lines(tmp_path / "rows.jsonl", rows))
    assert [message.content for message in first.dialogue.messages] == [
        "Hi",
        "Hello.",
        "My order?",
        "It left today.",
    ]
    assert (first.case.turn, len(first.case.references)) == (2, 3)
    assert second.case.candidate == "Who cares."


def test_a_history_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    rows = [{**row(number), "history": ["Hi"]} for number in range(2)]
    with pytest.raises(UsageError, match="history"):
        read(lines(tmp_path / "rows.jsonl", rows))


@pytest.mark.parametrize(("yes", "no"), [(True, False), (1, 0), ("kept", "broken")])
def test_labels_of_other_kinds(tmp_path: Path, yes: object, no: object) -> None:
    rows = [{**row(0), "label": yes}, {**row(1), "label": no}]
    turns = read(lines(tmp_path / "rows.jsonl", rows), adherent="kept")
    assert [turn.is_adherent for turn in turns] == [True, False]


def test_one_class_alone_is_refused_and_names_the_labels(tmp_path: Path) -> None:
    rows = [{**row(0), "label": "ok"}, {**row(1), "label": "bad"}]
    with pytest.raises(UsageError, match="--adherent") as raised:
        read(lines(tmp_path / "rows.jsonl", rows))
    assert "bad, ok" in str(raised.value)


def test_the_usual_word_is_a_violation_where_another_is_the_positive_label(tmp_path: Path) -> None:
    rows = [{**row(0), "label": "good"}, {**row(1), "label": "adherent"}]
    turns = read(lines(tmp_path / "rows.jsonl", rows), adherent="good")
    assert [turn.label for turn in turns] == ["adherent", "violation"]


def test_a_row_without_a_label_is_refused_with_its_number() -> None:
    bare = FOUR[0].dialogue.model_copy(update={"labels": {"kind": "x"}})
    with pytest.raises(UsageError, match="row 2") as raised:
        labelled_turns([FOUR[0].dialogue, bare])
    assert "--label; the row has kind" in str(raised.value)


def test_more_references_than_turns_are_refused() -> None:
    dialogue = FOUR[0].dialogue.model_copy(update={"references": (("a",), ("b",))})
    with pytest.raises(UsageError, match="2 lists of references and fewer"):
        labelled_turns([dialogue])


def test_a_bad_row_stops_the_benchmark_because_rows_must_keep_their_numbers(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", [row(0), row(1), {"role": "r", "label": "x"}])
    with pytest.raises(SourceError, match="row 3"):
        read(path)
