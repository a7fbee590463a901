"""Conversations of no known shape: what is certain is read, what is not is proposed, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import CurateError
from curate.sources import FORMATS, RowCounts, SourceConfig, open_rows, open_source
from curate.sources.config import Columns
from curate.sources.detect import Detection, detect
from curate.sources.proposal import Proposal, UnknownShapeError
from curate.sources.unit_result import RawRow
from tests.sources.conftest import Loaded, load, said

Rows = Callable[..., Loaded]
TEXTS = (
    "Hi there, can you help me?",
    "Of course, what is it?",
    "My order is late.",
    "I am sorry to hear it.",
)


def talk(names: tuple[Any, ...], who: str = "speaker", says: str = "text") -> list[dict[str, Any]]:
    return [{who: name, says: text} for name, text in zip(cycle(names), TEXTS, strict=False)]


def proposed(*rows: Any) -> Proposal:
    with pytest.raises(UnknownShapeError) as caught:
        open_rows(list(rows), SourceConfig(path="rows"))
    assert caught.value.proposal is not None
    return caught.value.proposal


def read_as_proposed(proposal: Proposal, *rows: Any) -> list[list[tuple[str, str]]]:
    config = SourceConfig.model_validate({"path": "rows", "mapping": yaml.safe_load(proposal.yaml)})
    units = open_rows(list(rows), config).read()
    return [said(dialogue) for unit in units for dialogue in unit.dialogues]


ALTERNATING = [
    (role, text) for role, text in zip(cycle(("user", "assistant")), TEXTS, strict=False)
]


@pytest.mark.parametrize(
    "row",
    [
        {"utterances": talk(("USER", "ASSISTANT"))},
        {"UTTERANCES": talk(("Human", "AI"), "SPEAKER", "UTTERANCE")},
        {"a": {"b": {"session": talk(("user", "bot"), "author", "message")}}},
        {"log": json.dumps(talk(("user", "bot"), "role", "content"))},
        {"lines": {"speaker": ["user", "bot"] * 2, "utterance": list(TEXTS)}},
        {"dialog": list(TEXTS), "speakers": ["user", "bot"] * 2},
        {"turns": [[item["speaker"], item["text"]] for item in talk(("user", "bot"))]},
        {"messages": [{"type": item["type"], "data": {"content": item["c"]}} for item in talk(("human", "ai"), "type", "c")]},
        {"dialog": talk(("user", "bot"), "id")},
        {"note": "User: " + TEXTS[0] + "\nAssistant: " + TEXTS[1] + "\nUser: " + TEXTS[2] + "\nAssistant: " + TEXTS[3]},
    ],
)  # fmt: skip
def test_what_is_certain_is_read(rows: Rows, row: dict[str, Any]) -> None:
    loaded = rows(row, row)
    assert loaded.shape == "mapping"
    assert said(loaded.dialogues[0]) == ALTERNATING


@pytest.mark.parametrize(
    ("row", "doubt"),
    [
        ({"turns": talk(("USER", "SYSTEM"))}, "'SYSTEM' is taken for the assistant"),
        ({"turns": talk(("seeker", "supporter"))}, "guessed from the speakers' names"),
        ({"turns": talk((0, 1), "agent", "data")}, "speaks first"),
        ({"turns": talk(("Ann", "Bob"))}, "speaks first"),
        ({"turns": [{"user": "Hi there", "chatbot": "Hello you"}, {"user": "Bye now", "chatbot": "Bye you"}]}, "guessed from the keys"),
        ({"turns": [{"user": f"User: {a}", "chatbot": b, "score": n} for n, (a, b) in enumerate([TEXTS[:2], TEXTS[2:]])]}, "guessed from the keys"),
        ({"dialog": list(TEXTS)}, "in turn"),
        ({"turns": [{"utterance": text} for text in TEXTS]}, "in turn"),
        ({"questions": [{"q": 1}], "text": "User: Hello you. System: Hi there. User: Bye. System: Good bye."}, "within lines"),
        ({"turns": [item | {"api_calls": [{"name": "f"}]} for item in talk(("user", "bot"))]}, "api_calls"),
        ({"turns": talk(("Ann", "Bob"), "zork")}, "may name no speaker"),
        ({"turns": [item | {"alternative": item["wording"][:-8]} for item in talk(("user", "bot"), says="wording")]}, "the text may also be 'alternative'"),
        ({"dialog": talk(("0_Wizard", "1_Apprentice"))}, "guessed from the speakers' names"),
        ({"dialog": talk(("agent_1", "agent_2"))}, "speaks first"),
        ({"chat": [{"user": TEXTS[0]}, {"bot": TEXTS[1]}, {"user": TEXTS[2]}, {"bot": TEXTS[3]}]}, "guessed from the keys"),
        ({"questions": [{"input_text": TEXTS[0], "turn": 1}, {"input_text": TEXTS[2], "turn": 2}],
          "answers": [{"input_text": TEXTS[1], "span": 3}, {"input_text": TEXTS[3], "span": 5}]}, "guessed from the keys"),
        ({"question": list(TEXTS[::2]), "responses": list(TEXTS[1::2])}, "guessed from the keys"),
    ],
)  # fmt: skip
def test_what_is_doubtful_is_proposed_and_not_read(row: dict[str, Any], doubt: str) -> None:
    proposal = proposed(row, row)
    assert any(doubt in said for said in proposal.doubts), proposal.doubts
    assert (proposal.rows, proposal.rows_read) == (2, 2)
    dialogues = read_as_proposed(proposal, row, row)
    assert len(dialogues) == 2
    assert {role for role, _ in dialogues[0]} == {"user", "assistant"}


def test_an_item_of_an_answer_and_what_the_user_says_to_it() -> None:
    turns = [
        {"user_utterance": {"text": TEXTS[0]}},
        {"system_utterance": {"text": TEXTS[1]}, "user_utterance": {"text": TEXTS[2]}},
        {"system_utterance": {"text": TEXTS[3]}, "user_utterance": {"text": "Thank you."}},
    ]
    row = {"turns": turns}
    [read, _] = read_as_proposed(proposed(row, row), row, row)
    assert read == [*ALTERNATING, ("user", "Thank you.")]


def test_a_transcript_with_names_that_differ(rows: Rows) -> None:
    pairs = [("Amanda", "Jerry"), ("Bo", "Cy Lee"), ("Dee", "Ed"), ("Flo", "Gil")]
    texts = [
        "\r\n".join(f"{name}: {text}" for name, text in zip(cycle(pair), TEXTS, strict=False))
        for pair in pairs
    ]
    proposal = proposed(*({"dialogue": text} for text in texts))
    assert proposal.settings["split"] == "names"
    read = read_as_proposed(proposal, *({"dialogue": text} for text in texts))
    assert read == [ALTERNATING] * 4


def test_an_event_log_of_several_agents(tmp_path: Path) -> None:
    events = [
        {"Agent": "UserGuide", "Action": "instruct", "Text": "Act confused, please."},
        {"Agent": "User", "Action": "utter", "Text": TEXTS[0]},
        {"Agent": "Wizard", "Action": "query", "Item": 3},
        {"Agent": "Wizard", "Action": "utter", "Text": TEXTS[1]},
        {"Agent": "User", "Action": "utter", "Text": TEXTS[2]},
        {"Agent": "Wizard", "Action": "utter", "Text": TEXTS[3]},
    ]
    rows = [{"DialogueID": n, "Events": events} for n in range(3)]
    proposal = proposed(*rows)
    assert proposal.settings["id"] == "DialogueID"
    assert proposal.settings["roles"] == {"Wizard": "assistant", "UserGuide": "skip"}
    assert read_as_proposed(proposal, *rows)[0] == ALTERNATING


@pytest.mark.parametrize(
    ("content", "selector"),
    [
        ({"d1": {"log": talk(("user", "bot"))}, "d2": {"log": talk(("user", "bot"))}}, "*"),
        ({"version": "1", "data": [{"log": talk(("user", "bot"))}] * 2}, "data[*]"),
        (talk(("User", "AI"), "role", "text"), "."),
    ],
)
def test_rows_within_a_file(tmp_path: Path, content: Any, selector: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps(content, indent=1))
    with pytest.raises(UnknownShapeError) as caught:
        open_source(SourceConfig(path=str(path)))
    proposal = caught.value.proposal
    assert proposal is not None
    assert proposal.settings["rows"] == selector
    config = SourceConfig.model_validate({"path": str(path), "mapping": proposal.settings})
    loaded = load(config)
    assert said(loaded.dialogues[0]) == ALTERNATING
    assert len(loaded.dialogues) == (1 if selector == "." else 2)


def test_rows_of_several_dialogues(rows: Rows) -> None:
    row = {"day": 1, "sessions": [{"log": talk(("user", "bot"))}, {"log": talk(("user", "bot"))}]}
    proposal = proposed(row, row)
    assert proposal.settings["rows"] == "sessions[*]"
    loaded = rows(row, row, mapping=proposal.settings)
    assert [said(dialogue) for dialogue in loaded.dialogues] == [ALTERNATING] * 4


def test_a_list_of_usual_messages_over_several_lines_is_one_dialogue(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(talk(("user", "assistant"), "role", "content"), indent=2))
    with pytest.raises(UnknownShapeError) as caught:
        open_source(SourceConfig(path=str(path)))
    proposal = caught.value.proposal
    assert proposal is not None
    assert proposal.settings == {"rows": ".", "each": "items[*]"}


@pytest.mark.parametrize(
    "row",
    [
        {"tags": ["one", "two", "three"], "n": 3},
        {"products": [{"name": "a bag of rice", "kind": "food"}, {"name": "a red hat", "kind": "wear"}]},
        {"text": "Note: this is a text. It has no speakers at all."},
        {"turns": ["How can I improve my time management?"]},
        {"answer": 4},
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_not_proposed(row: dict[str, Any]) -> None:
    with pytest.raises(UnknownShapeError) as caught:
        open_rows([row] * 3, SourceConfig(path="rows"))
    assert caught.value.proposal is None


def test_a_file_that_is_less_certain_is_read_like_the_others(tmp_path: Path) -> None:
    for number, names in enumerate([("USER", "ASSISTANT")] * 3 + [("ASSISTANT", "NARRATOR")]):
        content = [{"turns": talk(names)}, {"turns": talk(("USER", "ASSISTANT"))}]
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    (tmp_path / "broken.json").write_text("{oops")
    (tmp_path / "other.json").write_text('[{"a": 1}]')
    loaded = load(SourceConfig(path=str(tmp_path)))
    assert len(loaded.dialogues) == 7
    assert dict(loaded.tally.reasons) == {"unknown_role": 1, "broken_json": 1}
    assert [Path(item.file).name for item in loaded.source.skipped_files] == ["other.json"]


# ---- properties ---------------------------------------------------------------------------------

ODD_KEYS = st.text('ab."[]* 0', max_size=4)
NAMES = st.text("abcdefghijklmnopqrstuvwxyzABC", min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES | ODD_KEYS, inner, max_size=4)
    ),
    max_leaves=25,
)
SPOKEN = st.lists(
    st.fixed_dictionaries(
        {}, optional={
            "speaker": st.sampled_from(["user", "bot", "Ann", "Bob", 0, 1, True, None, [], {}]),
            "text": st.sampled_from([*TEXTS, "", None, 3, ["x"], {"a": TEXTS[0]}]),
            "kind": st.sampled_from(["say", "do", None, ["say"]]),
            'odd"key': st.sampled_from(TEXTS),
        },
    ) | st.sampled_from(TEXTS) | st.tuples(st.sampled_from(["user", "bot"]), st.sampled_from(TEXTS)).map(list),
    min_size=1, max_size=6,
)  # fmt: skip
ROW = JSON | st.dictionaries(
    st.sampled_from(["turns", "speakers", "a.b"]) | ODD_KEYS,
    SPOKEN | SPOKEN.map(json.dumps),
    max_size=3,
)
SENTENCES = st.lists(
    st.sampled_from(["order", "the", "is", "late", "help", "me", "please", "hat"]),
    min_size=3,
    max_size=9,
).map(" ".join)
SPEECHES = st.lists(SENTENCES, min_size=4, max_size=8, unique=True)


@given(
    st.lists(NAMES, min_size=1, max_size=3, unique=True), st.lists(SPEECHES, min_size=2, max_size=4)
)
def test_a_list_under_any_key_up_to_three_deep_is_read(
    path: list[str], talks: list[list[str]]
) -> None:
    rows: list[Any] = []
    for texts in talks:
        value: Any = [
            {"speaker": who, "utterance": text}
            for who, text in zip(cycle(("USER", "ASSISTANT")), texts, strict=False)
        ]
        for key in reversed(path):
            value = {key: value}
        rows.append(value)
    source = open_rows(rows, SourceConfig(path="rows"))
    dialogues = [dialogue for unit in source.read() for dialogue in unit.dialogues]
    assert [[message.content for message in one.messages] for one in dialogues] == talks


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROW, min_size=1, max_size=6))
def test_any_rows_are_refused_in_words_or_accounted_for(rows: list[Any]) -> None:
    try:
        source = open_rows(rows, SourceConfig(path="rows"))
    except UnknownShapeError as unknown:
        if unknown.proposal is None:
            return
        config = {"path": "rows", "mapping": yaml.safe_load(unknown.proposal.yaml)}
        source = open_rows(rows, SourceConfig.model_validate(config))
    except CurateError:
        return
    tally = RowCounts()
    for unit in source.read():
        tally.add(unit)  # which checks that every row is used or quarantined, once
    if source.config.mapping is None:
        assert tally.rows_in == len(rows) or any(one.flat for one in source.detections.values())


CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
KNOWN: dict[str, dict[str, Any]] = {
    "messages": {"messages": CHAT},
    "sharegpt": {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]},
    "conversation": {"conversation": CHAT},
    "card": {"dialogue": [{"turn": 1, "role": "user", "text": "Hi"}, {"turn": 1, "role": "assistant", "text": "Yo"}]},
    "gaussia": {"role": "R", "assistant": "Hello"},
    "preference": {"prompt": "Hi", "chosen": "a", "rejected": "b"},
    "hh": {"text": "\n\nHuman: Hi\n\nAssistant: Hello"},
    "ultrachat": {"data": ["Hi", "Hello"]},
    "alpaca": {"instruction": "Hi", "input": "", "output": "Hello"},
    "oasst": {"message_id": "1", "parent_id": None, "text": "Hi", "role": "prompter"},
    "history": {"history": [{"user": "Hi", "bot": "Hello"}]},
    "turns_table": {"dialog_id": 1, "speaker": "user", "text": "Hi"},
    "trajectory": {"traj": CHAT, "reward": 1.0},
}  # fmt: skip


@given(
    st.sampled_from([known.name for known in FORMATS]),
    st.dictionaries(NAMES.map(lambda name: f"x_{name}"), JSON, max_size=3),
)
def test_a_shape_that_is_known_is_read_as_that_shape(name: str, more: dict[str, Any]) -> None:
    """Structure is looked at only where no shape fits a row: what was certain before stays as it was."""
    rows = [KNOWN[name] | more] * 2 + [{"utterances": talk(("user", "bot"))}]
    before = detect([RawRow(n, row) for n, row in enumerate(rows, 1)], Columns())
    assert isinstance(before, Detection)
    source = open_rows(rows, SourceConfig(path="rows"))
    assert source.detection == before
    assert (source.detection.shape, source.detection.mapping) == (name, None)


@given(
    st.text(max_size=200),
    st.lists(st.sampled_from(["User:", "System:", "<|a|>", "A"]), min_size=1, unique=True),
)
def test_a_transcript_keeps_every_word(text: str, marks: list[str]) -> None:
    from curate.sources.transcripts import split_at_marks
    from curate.sources.unit_result import UnreadableError

    try:
        pieces = split_at_marks(text, marks)
    except UnreadableError:
        return
    joined = "".join("".join((mark, piece)) for mark, piece in pieces)
    assert "".join(joined.split()) == "".join(text.split())
