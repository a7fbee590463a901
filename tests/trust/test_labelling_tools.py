"""What is written for Label Studio and Argilla, and their answers read back by the reader of all labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.trust.label_rows import read_gold, read_label_rows
from curate.trust.labelling_tools import (
    LabellingItem,
    check_one_kind,
    exported_rows,
    questions_about,
    tool_files,
)

HOSTILE = 'a "quoted" </Choice> & more\u2028\x00'


def item(number: int = 0, text: str = "Hello", **about: Any) -> LabellingItem:
    given = {"draw": "d1", "content": f"{number:032x}", "dialogue_id": f"chat-{number}"} | about
    return LabellingItem(given, [{"role": "user", "content": text}])


def label_studio(files: dict[str, bytes], answers: list[list[tuple[Any, dict[str, str]]]]) -> Any:
    """The export of a project: by task, who gave which answers."""
    tasks = json.loads(files["tasks.json"])
    for number, (task, said_by) in enumerate(zip(tasks, answers, strict=True)):
        task["id"] = number
        task["annotations"] = [
            {
                "completed_by": who,
                "was_cancelled": False,
                "updated_at": "2026-11-23T08:00:00.000000Z",
                "result": [
                    {
                        "from_name": name,
                        "to_name": "dialogue",
                        "type": "choices",
                        "value": {"choices": [value]},
                    }
                    for name, value in said.items()
                ],
            }
            for who, said in said_by
        ]
    return tasks


def argilla(files: dict[str, bytes], answers: list[list[tuple[str, dict[str, str]]]]) -> Any:
    """What `to_disk` writes of a dataset: by record, who gave which answers."""
    records = json.loads(files["records.json"])
    for record, said_by in zip(records, answers, strict=True):
        for who, said in said_by:
            for name, value in said.items():
                record["responses"].setdefault(name, []).append({"value": value, "user_id": who})
    return records


EXPORTS = {"label-studio": label_studio, "argilla": argilla}


@pytest.mark.parametrize("tool", EXPORTS)
@pytest.mark.hypothesis
@given(data=st.data())
def test_every_answer_comes_back_about_what_was_asked(tool: str, data: st.DataObject) -> None:
    questions = questions_about(["accept", "coherence"])
    turns = data.draw(st.lists(st.one_of(st.none(), st.integers(1, 9)), min_size=1, max_size=4))
    items = [item(number, turn=turn) for number, turn in enumerate(turns)]
    said = st.fixed_dictionaries(
        {}, optional={n: st.sampled_from(asked) for n, asked in questions.items()}
    )
    raters = st.dictionaries(st.sampled_from(["1", "2", "ann@x.org"]), said, min_size=1)
    answers = [list(data.draw(raters).items()) for _ in items]
    expected = [
        (one.about["content"], one.about["turn"], name, value, who)
        for one, given in zip(items, answers, strict=True)
        for who, held in given
        for name, value in held.items()
    ]
    export = EXPORTS[tool](tool_files(tool, items, questions, "p"), answers)
    if not expected:
        with pytest.raises(UsageError, match="no answers"):
            exported_rows(export, "f")
        return
    rows = exported_rows(json.loads(json.dumps(export)), "f")
    came = [(r["content"], r.get("turn"), r["dimension"], r["value"], r["rater"]) for r in rows]
    key = repr
    assert sorted(came, key=key) == sorted(expected, key=key)
    assert {row["draw"] for row in rows} == {"d1"}


def test_a_file_of_either_tool_is_gold(tmp_path: Path) -> None:
    files = tool_files("label-studio", [item(), item(1)], questions_about(["coherence"]), "p")
    answers: list[list[tuple[Any, dict[str, str]]]] = [
        [({"id": 3, "email": "ann@x.org"}, {"coherence": "4"})],
        [],
    ]
    (tmp_path / "export.json").write_text(json.dumps(label_studio(files, answers)))
    (row,) = read_gold(tmp_path / "export.json")
    assert (row.content, row.dimension, row.value, row.rater) == (
        "0" * 32,
        "coherence",
        "4",
        "ann@x.org",
    )
    assert row.time == "2026-11-23T08:00:00.000000Z"


def test_what_was_skipped_or_is_a_draft_is_no_answer() -> None:
    files = tool_files("label-studio", [item()], questions_about(["accept"]), "p")
    export = label_studio(files, [[(1, {"accept": "accept"}), (2, {"accept": "reject"})]])
    export[0]["annotations"][1]["was_cancelled"] = True
    assert [row["rater"] for row in exported_rows(export, "f")] == ["1"]
    records = argilla(
        tool_files("argilla", [item(), item(1)], questions_about(["accept"]), "p"),
        [[("a", {"accept": "accept"})], [("b", {"accept": "reject"})]],
    )
    records[0]["status"], records[1]["status"] = "completed", "pending"
    assert [row["rater"] for row in exported_rows(records, "f")] == ["a"]


def test_the_sides_of_a_pair_are_shown_as_a_and_b() -> None:
    pair = LabellingItem({**item().about, "pair_id": "p1"}, item().messages, ("first", "second"))
    studio = tool_files("label-studio", [pair], questions_about(["better"]), "p")
    (task,) = json.loads(studio["tasks.json"])
    assert (task["data"]["a"], task["data"]["b"]) == ("first", "second")
    (record,) = json.loads(
        tool_files("argilla", [pair], questions_about(["better"]), "p")["records.json"]
    )
    assert (record["fields"]["a"], record["fields"]["b"]) == ("first", "second")
    for rows in (
        exported_rows(label_studio(studio, [[(1, {"better": "b"})]]), "f"),
        exported_rows(
            argilla({"records.json": json.dumps([record]).encode()}, [[("u", {"better": "b"})]]),
            "f",
        ),
    ):
        assert (rows[0]["pair_id"], rows[0]["better"]) == ("p1", "b")


@pytest.mark.parametrize(
    "questions",
    [
        {"accept": ("accept", "reject"), "adherence": ("yes", "no")},
        {"better": ("a", "b", "tie")},
        {"safety": ("1", "2", "3", "4", "5")},
        {
            "metric_grounding": ("0", "1", "2", "3", "4", "5", "n/a"),
            "metric_done": ("fail", "pass", "n/a"),
        },
    ],
)
def test_the_interface_asks_each_dimension_with_its_choices(
    questions: dict[str, tuple[str, ...]],
) -> None:
    metrics = {"metric_grounding": 5, "metric_done": 1, "metric_of_no_interest": 5}
    assert questions_about([*questions], metrics) == questions
    config = ElementTree.fromstring(tool_files("label-studio", [], questions, "p")["config.xml"])
    asked = {
        str(one.get("name")): tuple(choice.get("value") for choice in one)
        for one in config.iter("Choices")
    }
    assert asked == questions
    settings = json.loads(tool_files("argilla", [], questions, "p")["settings.json"])
    assert {
        question["name"]: tuple(option["value"] for option in question["settings"]["options"])
        for question in settings["questions"]
    } == asked


@given(text=st.one_of(st.just(HOSTILE), st.just(""), st.just("x" * 45_000)))
def test_argilla_gets_messages_as_long_as_its_server_takes(text: str) -> None:
    files = tool_files("argilla", [item(text=text)], questions_about(["accept"]), "p")
    (record,) = json.loads(files["records.json"])
    pieces = [message["content"] for message in record["fields"]["dialogue"]]
    assert all(1 <= len(piece) <= 20_000 for piece in pieces)
    assert "".join(pieces) == (text or " ")


def test_more_messages_than_argilla_shows_are_refused() -> None:
    long = LabellingItem(item().about, [{"role": "user", "content": "x"}] * 501)
    with pytest.raises(UsageError, match="longer than Argilla shows"):
        tool_files("argilla", [long], questions_about(["accept"]), "p")


def test_questions_of_turns_and_of_dialogues_are_two_projects() -> None:
    check_one_kind(["helpfulness", "safety"])
    check_one_kind(["coherence", "accept"])
    with pytest.raises(UsageError, match="the same questions about every item"):
        check_one_kind(["helpfulness", "coherence"])


@pytest.mark.parametrize(
    "export",
    [
        {"a": 1},
        [1],
        ["x"],
        [{"annotations": [{"result": [{}]}], "data": {}}],
        [{"id": 1, "accept": "accept", "annotator": 1}],  # JSON-MIN
        [
            {
                "id": "1",
                "responses": {"accept": [{"value": "accept", "user_id": "u"}]},
                "metadata": {},
            }
        ],
        [{"data": dict(item().about)}],  # tasks as they were imported
        [{"data": {"text": "of another project"}, "annotations": [{"result": []}]}],
    ],
)
def test_anything_else_is_refused(export: Any, tmp_path: Path) -> None:
    (tmp_path / "export.json").write_text(json.dumps(export))
    with pytest.raises(UsageError, match="export"):
        read_label_rows(tmp_path / "export.json")


def test_a_half_written_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "export.json").write_text('[{"data": {"con')
    with pytest.raises(UsageError, match="cannot be read"):
        read_label_rows(tmp_path / "export.json")
