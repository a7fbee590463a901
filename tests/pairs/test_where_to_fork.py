"""Several candidate turns, the earliest that suffices, and turns with tools: what is asked and what it gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from curate.dialogue import Dialogue, Message, ToolCall
from curate.engines.base import Completion
from curate.pairs.config import ForkConfig
from curate.pairs.fork import drop_forks, fork_dialogue
from curate.records import LabelReading, PreferencePair
from tests.pairs.scripted import FINE, WEAK, World, by_text, chat, count_funnel, fault, judged, say

BAD, GOOD = "Your refund of $40 is on its way.", "Your refund of $45 is on its way."
LATER = "It will be $40, as I said."
DIALOGUE = chat("Refund order 7, I paid $45.", BAD, "Sure?", LATER, "Bye.", "Bye.")
BOTH_BAD = judged(DIALOGUE, {1: (2, 2, 5), 2: (1, 1, 5), 3: (5, 5, 5)}, weakest=2)
ONE = ForkConfig(resamples=0)
EARLIEST = ForkConfig(resamples=0, at="earliest")


def mending(**more: object) -> World:
    scores = {BAD: WEAK, LATER: WEAK, GOOD: FINE}
    return World(scores, revision=GOOD, prefer=by_text(GOOD), **more)  # type: ignore[arg-type]


async def fork(world: World, config: ForkConfig, dialogue=DIALOGUE, judgment=BOTH_BAD):
    return await fork_dialogue(dialogue, judgment, world.asks(), config)


async def test_a_turn_behind_a_bad_one_is_dropped_and_the_bad_one_is_forked() -> None:
    dropped, pair = await fork(mending(), ONE)
    assert (dropped.turn, dropped.drop_reason, dropped.source) == (2, "earlier_turn_bad", "none")
    assert (pair.turn, pair.drop_reason) == (1, None)
    assert pair.confidence == pytest.approx(2 / 3)
    assert pair.pair_id != dropped.pair_id


def doubting():
    """A judgment of three turns, each with some doubt and none with a flaw but the last."""
    judgment = judged(DIALOGUE, {1: (4, 5, 5), 2: (4, 5, 5), 3: (2, 2, 5)}, weakest=3)
    reading = LabelReading(mean=3.5, spread=0.5, coverage=1, probabilities={"3": 0.6, "4": 0.4})
    return judgment.model_copy(
        update={
            "per_turn": tuple(
                turn
                if turn.turn == 3
                else turn.model_copy(update={"readings": {"context_use": reading}})
                for turn in judgment.per_turn
            )
        }
    )


@pytest.mark.parametrize(("max_forks", "over"), [(1, 2), (2, 1), (3, 0)])
async def test_not_more_than_max_forks_and_every_candidate_turn_has_a_record(
    max_forks: int, over: int
) -> None:
    world = World(
        {"Bye.": WEAK, BAD: WEAK, LATER: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD)
    )
    records = await fork(
        world, ONE.model_copy(update={"max_forks": max_forks}), DIALOGUE, doubting()
    )
    assert [record.turn for record in records] == [3, 1, 2]
    assert sum(record.drop_reason == "over_limit" for record in records) == over
    forked = {record.turn for record in records if record.source != "none"}
    assert len(forked) == max_forks == len(world.reviser_requests)
    [_, turns, *_] = count_funnel(records)
    assert (turns.entered, turns.passed, turns.dropped.get("over_limit", 0)) == (3, max_forks, over)


async def test_a_turn_found_fine_makes_room_for_the_next() -> None:
    world = World({"Bye.": FINE, BAD: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD))
    records = await fork(world, ONE, DIALOGUE, doubting())
    assert [(record.turn, record.drop_reason) for record in records] == [
        (3, "original_was_fine"), (1, None), (2, "over_limit"),
    ]  # fmt: skip


async def test_the_earliest_turn_that_suffices_is_asked_about_and_confirmed() -> None:
    world = mending()
    pair, dropped = await fork(world, EARLIEST)
    assert (pair.turn, pair.drop_reason) == (1, None)
    assert pair.check is not None
    assert pair.check.confirmed is True
    assert dropped.drop_reason == "earlier_turn_bad"
    [[asked, other]] = world.asked("suffices")
    text = asked.messages[0]["content"]
    assert "in turn 1, and again in turn 2." in text
    assert "A = yes, its later" in text
    assert "B = yes, its later" in other.messages[0]["content"]
    assert LATER in text  # the whole dialogue is shown
    [again] = world.rejudged
    assert [message.content for message in again.messages] == [DIALOGUE.messages[0].content, GOOD]


@pytest.mark.parametrize("config", [EARLIEST, EARLIEST.model_copy(update={"early_stop": True})])
async def test_a_repair_that_would_leave_another_fault_does_not_suffice(config: ForkConfig) -> None:
    world = mending(suffices="no")
    records = await fork(world, config)
    assert [record.drop_reason for record in records] == ["does_not_suffice", "earlier_turn_bad"]
    assert "turn 2" in records[0].detail
    assert world.calls == 2  # both orders

    world = mending(judged_again={1: (3, 5, 5)})
    records = await fork(world, config)
    assert [record.drop_reason for record in records] == ["does_not_suffice", "earlier_turn_bad"]
    assert records[0].source == "revision"
    assert records[0].check is not None
    assert records[0].check.confirmed is False
    assert "turn 1 is bad in context_use" in records[0].detail


def reason(record: PreferencePair) -> str | None:
    assert record.check is not None
    return record.check.unscored


async def test_an_answer_that_cannot_be_had_is_unscored() -> None:
    world = mending(judged_again="context_overflow")
    [record, _] = await fork(world, EARLIEST)
    assert (record.drop_reason, record.source) == ("unscored", "revision")
    assert "context_overflow" in record.detail
    assert reason(record) == "context_overflow"

    async def fails(requests):
        return [fault("context_overflow")] * len(requests)

    asks = mending().asks()
    asks = replace(asks, judging=replace(asks.judging, judge=fails))
    [record, _] = await fork_dialogue(DIALOGUE, BOTH_BAD, asks, EARLIEST)
    assert (record.drop_reason, record.source) == ("unscored", "none")
    assert "does it suffice" in record.detail
    assert reason(record) == "context_overflow"


async def test_where_no_turn_after_it_is_bad_nothing_is_asked_and_it_is_still_confirmed() -> None:
    world = mending()
    judgment = judged(DIALOGUE, {1: (2, 2, 5), 2: (5, 5, 5), 3: (5, 5, 5)}, weakest=1)
    [pair] = await fork(world, EARLIEST, DIALOGUE, judgment)
    assert pair.check is not None
    assert (pair.drop_reason, pair.check.confirmed) == (None, True)
    assert not world.asked("suffices")
    at_weakest = mending()
    [pair] = await fork(at_weakest, ONE, DIALOGUE, judgment)
    assert pair.check is not None
    assert pair.check.confirmed is None
    assert not at_weakest.rejudged


# --- turns with tools

CALL = Message(role="assistant", tool_calls=(ToolCall(name="find", arguments={"id": 8}, id="c1"),))
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
TOOLS = Dialogue(
    id="t",
    messages=(say("user", "Refund order 7."), CALL, say("tool", "paid: 40"), say("assistant", BAD)),
    tools=(TOOL,),
)
TOOLS_BAD = judged(TOOLS, {1: (2, 2, 5)}, 1)
MENDED = '{"name": "find", "arguments": {"id": 7}}'
FAILED = ForkConfig(resamples=0, tool_turns="failed_message")


TOOL = "message 1: it calls the wrong tool"
ARGUMENT = "message 1: it calls the right tool"
RESULT = "message 2: it reads"
TEXT = "message 2: what it says"


def calling(failed: str, **more: object) -> World:
    world = World({BAD: WEAK, GOOD: FINE}, failed=failed, revision=MENDED, **more)  # type: ignore[arg-type]

    async def score(part: Dialogue, turn: int, wording: int):
        last = part.messages[-1]
        values = FINE if any(call.arguments == {"id": 7} for call in last.tool_calls) else WEAK
        world.scores[last.content] = values if last.tool_calls else world.scores[last.content]
        return await World.score_turn(world, part, turn, wording)

    world.score_turn = score  # type: ignore[method-assign]
    world.prefer = lambda first, second: "A" if '"id":7' in first else "B"
    return world


async def test_a_wrong_argument_is_mended_by_a_corrected_call() -> None:
    world = calling(ARGUMENT)
    [pair] = await fork(world, FAILED, TOOLS, TOOLS_BAD)
    assert pair.drop_reason is None, pair.detail
    assert pair.rejected == CALL
    assert pair.prompt == TOOLS.messages[:1]
    assert pair.chosen is not None
    assert [(call.name, call.arguments, call.id) for call in pair.chosen.tool_calls] == [
        ("find", {"id": 7}, "c1")
    ]
    assert [(change.kind, change.removed, change.added) for change in pair.changes] == [
        ("argument", ("find.id: 8",), ("find.id: 7",))
    ]
    assert pair.issue.startswith("an argument of the call is wrong; ")
    [[asked, *others]] = world.asked("failed")
    text = asked.messages[0]["content"]
    assert "Message 1\n<reply>\n(calls tool) find" in text
    assert "B = message 1: it calls the right tool with a wrong argument\n" in text
    assert asked.labels == ("A", "B", "C", "D", "E")
    assert len(others) == 4  # every way to fail stands at every letter once
    assert '"name": "find"' in text  # the tools that were offered


@pytest.mark.parametrize("failed", [RESULT, TEXT, "none"])
async def test_a_wrong_text_is_forked_at_the_text(failed: str) -> None:
    world = calling(failed)
    world.revision, world.prefer = GOOD, by_text(GOOD)
    [pair] = await fork(world, FAILED, TOOLS, TOOLS_BAD)
    assert pair.rejected == TOOLS.messages[3]
    assert pair.prompt == TOOLS.messages[:3]
    assert ("a tool's result is read wrongly" in pair.issue) is (failed == RESULT)


async def test_the_same_call_is_cosmetic_and_a_text_is_no_candidate() -> None:
    same = Completion(
        text="I look it up.",
        tool_calls=({"function": {"name": "find", "arguments": '{"id": 8}'}},),
        finish="tool_calls",
    )
    world = calling(TOOL, resamples=[same, "I refund it."])
    config = ForkConfig(resamples=2, guided_revision=False, tool_turns="failed_message")
    records = await fork(world, config, TOOLS, TOOLS_BAD)
    assert [record.drop_reason for record in records] == ["cosmetic", "no_candidate"]
    assert "answers instead of calling a tool" in records[1].detail


async def test_a_failed_call_behind_another_message_has_no_open_prompt() -> None:
    twice = TOOLS.model_copy(
        update={"messages": (TOOLS.messages[0], say("assistant", "Wait."), CALL)}
    )
    twice = Dialogue.model_validate(twice.model_dump())
    [record] = await fork(
        calling("message 2: it calls the wrong tool"),
        FAILED,
        twice,
        judged(twice, {1: (2, 2, 5)}, 1),
    )
    assert (record.drop_reason, record.rejected.tool_calls) == ("prompt_end", CALL.tool_calls)
    world = calling("none")
    world.scores["Wait."] = FINE
    [record] = await fork(world, FAILED, twice, judged(twice, {1: (2, 2, 5)}, 1))
    assert record.rejected.content == "Wait."


async def test_without_an_answer_to_which_message_failed_the_turn_is_unscored() -> None:
    async def fails(requests):
        return [fault("timeout")] * len(requests)

    asks = calling(TOOL).asks()
    asks = replace(asks, judging=replace(asks.judging, judge=fails))
    [record] = await fork_dialogue(TOOLS, TOOLS_BAD, asks, FAILED)
    assert (record.drop_reason, record.source) == ("unscored", "none")
    assert record.detail == "which message failed: timeout"
    assert reason(record) == "engine_error"


async def test_by_default_a_turn_with_tools_is_not_asked_about() -> None:
    world = calling(TOOL)
    world.revision, world.prefer = GOOD, by_text(GOOD)
    [pair] = await fork(world, ONE, TOOLS, TOOLS_BAD)
    assert (pair.drop_reason, pair.rejected) == (None, TOOLS.messages[3])
    assert not world.asked("failed")


def test_a_dialogue_that_must_not_be_forked_has_a_record_for_each_candidate_turn() -> None:
    records = drop_forks(DIALOGUE, BOTH_BAD, EARLIEST, "contaminated", "eval:3: some words")
    assert [(record.turn, record.drop_reason) for record in records] == [
        (1, "contaminated"), (2, "earlier_turn_bad"),
    ]  # fmt: skip
    assert records[0].detail == "eval:3: some words"
    assert {record.source for record in records} == {"none"}
