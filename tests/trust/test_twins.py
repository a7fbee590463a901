"""Planted flaws: each of its kind, as long as the original, at its place, and nowhere else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message, ToolCall
from curate.sources import open_source
from curate.sources.config import SourceConfig
from curate.trust.plants import LENGTH_SLACK
from curate.trust.twins import TWIN_KINDS, Twin, TwinKind, plant_twins

SAMPLE = Path(__file__).resolve().parents[2] / "recipes" / "sample"


@cache
def sample() -> tuple[Dialogue, ...]:
    return tuple(
        dialogue
        for name in ("support.jsonl", "dialogues.jsonl")
        for unit in open_source(SourceConfig(path=str(SAMPLE / name))).read()
        for dialogue in unit.dialogues
    )


def said(role: str, content: str = "", **more: Any) -> Message:
    return Message.model_validate({"role": role, "content": content, **more})


PARCEL = (
    "Your parcel 4711 left Leeds on 3 March. It is with Ann Miller now and will be with you at 17:45 on Friday. "
    "You can still change the day on our page, if that does not suit you."
)
CALL = ToolCall(name="find", arguments={"id": 47, "exact": True}, id="c1")


def dialogue(reply: str = PARCEL, **more: Any) -> Dialogue:
    asked = more.pop("asked", "Are you sure? I think that it has been lost.")
    messages = (
        said("user", "Where is my parcel 4711? Ann Miller sent it."),
        said(
            "assistant",
            "I look for it, and you hear from me as soon as the depot in Leeds has told me where your parcel 4711 "
            "is and when it will be with you. That takes an hour at most.",
        ),
        said("user", asked),
        said("assistant", reply),
    )
    return Dialogue.model_validate({"id": "d", "messages": messages, **more})


OTHERS = [
    dialogue("The library is open until eight on weekdays, and you can bring back books at any hour. " * 2)
    .model_copy(update={"id": f"o{at}"})
    for at in range(3)
]  # fmt: skip


def planted(kind: TwinKind, held: Dialogue) -> Twin | None:
    """The first twin, over seeds, with the flaw in the last message; None where that has no place for it."""
    for seed in range(8):
        for twin in plant_twins([held, *OTHERS], 4, kinds=[kind], seed=seed):
            if twin.dialogue is held and twin.index == len(held.messages) - 1:
                return twin
    return None


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(TWIN_KINDS), st.integers(0, 10_000))
def test_every_twin_of_the_sample_is_another_reply_of_the_same_length_at_one_place(
    kind: TwinKind, seed: int
) -> None:
    twins = plant_twins(sample(), 40, kinds=[kind], seed=seed)
    assert twins or kind == "sycophancy"  # few users of the sample push back
    assert len({twin.dialogue.id for twin in twins}) == len(twins)
    for twin in twins:
        assert twin.kind == kind
        original, degraded = twin.original, twin.degraded
        assert degraded != original
        assert original.role == degraded.role == "assistant"
        longer = abs(len(degraded.content.strip()) - len(original.content.strip()))
        assert longer <= LENGTH_SLACK * len(original.content.strip())
        # Nothing but the flaw: text or call, and the dialogue as it came.
        changed = "tool_calls" if kind in ("wrong_tool", "wrong_argument") else "content"
        assert degraded.model_copy(update={changed: getattr(original, changed)}) == original
        assert twin.prompt == twin.dialogue.messages[: twin.index]
        [turn] = [turn for turn in twin.dialogue.turns if turn.number == twin.turn]
        assert turn.start <= twin.index < turn.stop
    assert twins == plant_twins(sample(), 40, kinds=[kind], seed=seed)


def test_the_kinds_come_out_as_even_as_the_dialogues_allow() -> None:
    counts = Counter(twin.kind for twin in plant_twins(sample(), 24))
    assert len(counts) >= 10
    often = {
        kind: number
        for kind, number in counts.items()
        if kind not in ("wrong_tool", "wrong_argument", "sycophancy")
    }
    assert max(often.values()) - min(often.values()) <= 1
    assert plant_twins(sample(), 24, seed=1) != plant_twins(sample(), 24, seed=2)
    with pytest.raises(ValueError, match="count"):
        plant_twins(sample(), 0)


def test_where_dialogues_are_too_few_each_gives_a_second_twin() -> None:
    one, more = plant_twins(sample(), 24), plant_twins(sample(), 64)
    assert len({twin.dialogue.id for twin in one}) == 24
    assert 40 <= len(more) <= 64
    of_dialogue: dict[str, list[Twin]] = {}
    for twin in more:
        of_dialogue.setdefault(twin.dialogue.id, []).append(twin)
    assert len(of_dialogue) > 24
    assert max(map(len, of_dialogue.values())) == 2
    for twins in of_dialogue.values():
        assert (
            len({twin.turn for twin in twins}) == len({twin.kind for twin in twins}) == len(twins)
        )


def test_changed_amounts_change_every_number_and_nothing_else() -> None:
    twin = planted(
        "changed_amounts",
        dialogue("1. Pay 45.\n2. Wait 3 days, then pay 45 again, as ever and always."),
    )
    assert twin is not None
    text = twin.degraded.content
    assert re.sub(r"\d", "#", text) == re.sub(r"\d", "#", twin.original.content)
    assert text.startswith("1. ")
    assert "\n2. " in text
    first, second = re.findall(r"(?i)pay (\d\d)", text)
    assert first == second != "45"


def test_a_contradiction_changes_what_was_said_before_and_only_that() -> None:
    twin = planted("contradiction", dialogue())
    assert twin is not None
    assert "4711" not in twin.degraded.content
    assert "3 March" in twin.degraded.content
    assert "17:45" in twin.degraded.content


def test_a_dropped_constraint_is_the_answer_to_the_message_before() -> None:
    twin = planted("dropped_constraint", dialogue())
    assert twin is not None
    assert twin.degraded.content.startswith("I look for it,")


def test_a_wrong_tool_keeps_the_arguments_and_a_wrong_argument_the_tool() -> None:
    tools = tuple({"type": "function", "function": {"name": name}} for name in ("find", "send"))
    held = Dialogue(
        id="d",
        messages=(said("user", "Find it."), Message(role="assistant", tool_calls=(CALL,))),
        tools=tools,
    )
    tool, argument = planted("wrong_tool", held), planted("wrong_argument", held)
    assert tool is not None
    assert argument is not None
    assert (tool.degraded.tool_calls[0].name, tool.degraded.tool_calls[0].arguments) == (
        "send",
        CALL.arguments,
    )
    call = argument.degraded.tool_calls[0]
    assert call.name == "find"
    assert isinstance(call.arguments, dict)
    assert isinstance(CALL.arguments, dict)
    assert sum(call.arguments[name] != CALL.arguments[name] for name in CALL.arguments) == 1


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("changed_amounts", lambda: dialogue(re.sub(r"\d", "x", PARCEL))),
        ("contradiction", lambda: dialogue("It will be there soon, as was said, and nobody has to wait long.")),
        ("dropped_constraint", lambda: Dialogue(id="d", messages=dialogue().messages[2:])),
        ("role_break", lambda: dialogue(role_definition="")),
        ("wrong_tool", dialogue),
        ("wrong_argument", dialogue),
        ("sycophancy", lambda: dialogue(asked="Thank you very much.")),
        ("sycophancy", lambda: dialogue("You are right, sorry. " + PARCEL)),
        ("truncated_half", lambda: dialogue("It is with the driver and will be at your door before noon today, I hear.")),
        ("repetition", lambda: dialogue("It is with the driver and will be at your door before noon today, I hear.")),
        ("negation", lambda: dialogue("Bücher kommen am Freitag, und zwar alle drei, wenn nichts dazwischenkommt, gegen Mittag.")),
        ("evasion", lambda: dialogue("Bücher kommen am Freitag, und zwar alle drei, wenn nichts dazwischenkommt, gegen Mittag.")),
        ("evasion", lambda: dialogue("Yes.")),
    ],
)  # fmt: skip
def test_a_flaw_needs_its_place(kind: TwinKind, spoil: Callable[[], Dialogue]) -> None:
    assert planted(kind, spoil()) is None


@pytest.mark.parametrize("kind", [kind for kind in TWIN_KINDS if not kind.startswith("wrong")])
def test_each_kind_finds_its_place(kind: TwinKind) -> None:
    held = dialogue(role_definition="A clerk of the post.")
    assert planted(kind, held) is not None
