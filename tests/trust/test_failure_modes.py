"""Each way to fail is caught on a scripted judge built to show it, and a good judge is silent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from curate.dialogue import Dialogue, Message
from curate.judging.config import RubricConfig
from curate.judging.rubric import judge_dialogue
from curate.records import FailureMode, Judgment
from curate.trust.failure_modes import FailureModes, mode_rows
from curate.trust.pushback import has_pushback
from tests.judging.judge import IDENTITY, ScriptedJudge

JSON = RubricConfig(mode="json", text="off")
Scores = dict[tuple[int | None, str], Any]
Judging = Callable[[int, Dialogue], Scores]
"""Number of a dialogue and the dialogue to its scores; what is left out is 5 (repair n/a)."""


def dialogue(number: int, turns: int = 4, *, pushback: str = "", **fields: Any) -> Dialogue:
    """Turns whose answers differ in length, the longest at no fixed place; `pushback` opens the second turn."""
    messages = []
    for turn in range(1, turns + 1):
        ask = pushback if turn == 2 and pushback else f"Question {turn} of {number}?"
        words = 5 + 37 * ((number * 7 + turn * 5) % 11)
        answer = f"Answer {turn}: " + "word " * words
        messages += [
            Message(role="user", content=ask),
            Message(role="assistant", content=answer),
        ]
    return Dialogue(
        id=f"d{number}", messages=tuple(messages), scenario="Help with an order.", **fields
    )


async def judged(one: Dialogue, scores: Scores) -> dict[str, Any]:
    row = await judge_dialogue(one, ScriptedJudge(scores=scores), JSON, IDENTITY)
    assert isinstance(row, Judgment)
    record: dict[str, Any] = json.loads(row.model_dump_json())
    return record


async def modes_of(
    dialogues: list[Dialogue], judging: Judging, *, no_swaps: str = "not asked for"
) -> dict[str, FailureMode]:
    modes = FailureModes()
    for number, one in enumerate(dialogues):
        modes.add(one, await judged(one, judging(number, one)))
    return {mode.name: mode for mode in modes.report(no_swaps)}


def a_good_judge(number: int, one: Dialogue) -> Scores:
    """One bad turn in every second dialogue, charged to it, and seen in the whole; pushback is a repair."""
    scores: Scores = {(None, "verdict"): "excellent"}
    if number % 2:
        scores |= {(2, "helpfulness"): 2, (2, "context_use"): 2}
        scores |= {(None, "coherence"): 2, (None, "task_completion"): 3}
        scores[None, "verdict"] = "borderline"
    if "meant" in one.messages[2].content:
        scores[None, "repair_handling"] = 4
    return scores


def ordinary(count: int = 40) -> list[Dialogue]:
    """Short and long dialogues, some with pushback."""
    return [
        dialogue(n, turns=12 if n % 3 == 0 else 4, pushback="No, I meant the other." * (n % 4 == 0))
        for n in range(count)
    ]


async def test_a_good_judge_is_silent() -> None:
    modes = await modes_of(ordinary(), a_good_judge)
    assert {name: mode.status for name, mode in modes.items()} == {
        "aggregation_bias": "pass",
        "repair_false_na": "pass",
        "persona_collapse": "not_run",
        "length_favouritism": "pass",
        "verdict_mismatch": "pass",
        "flat_long_dialogues": "pass",
    }
    assert modes["flat_long_dialogues"].n == 14
    assert modes["repair_false_na"].n == 10


async def test_a_judge_that_averages_its_turns_is_caught() -> None:
    def averages(number: int, one: Dialogue) -> Scores:
        mean = 4 if number % 2 else 5  # of 5, 3 and 5 it is 4.3
        scores = {(turn.number, "helpfulness"): 3 for turn in one.turns} if number % 2 else {}
        return scores | {(None, "coherence"): mean, (None, "task_completion"): mean}

    mode = (await modes_of(ordinary(), averages))["aggregation_bias"]
    assert (mode.status, mode.figure, mode.n, mode.behind) == ("warn", 1.0, 20, 20)
    assert mode.dialogues[:2] == ("d1", "d3")


async def test_a_judge_that_sees_no_repair_where_users_push_back_is_caught() -> None:
    def blind(number: int, one: Dialogue) -> Scores:
        return a_good_judge(number, one) | {(None, "repair_handling"): "n/a"}

    mode = (await modes_of(ordinary(), blind))["repair_false_na"]
    assert (mode.status, mode.figure, mode.n) == ("warn", 1.0, 10)
    assert mode.dialogues == tuple(f"d{n}" for n in range(0, 40, 4))


async def test_a_note_on_the_missing_repair_is_told_and_excuses_nothing() -> None:
    modes = FailureModes()
    for number in range(0, 40, 4):
        one = ordinary()[number]
        record = await judged(one, {})
        record["conversation_level"]["repair_handling"]["note"] = "nothing to repair"
        modes.add(one, record)
    mode = {mode.name: mode for mode in modes.report("no")}["repair_false_na"]
    assert mode.status == "warn"
    assert "10 of them with a note" in mode.detail


async def test_a_judge_that_rewards_length_is_caught() -> None:
    def rewards_length(number: int, one: Dialogue) -> Scores:
        return {
            (turn.number, "helpfulness"): 1 + min(4, len(turn.messages[1].content) // 420)
            for turn in one.turns
        }

    mode = (await modes_of(ordinary(), rewards_length))["length_favouritism"]
    assert mode.status == "warn"
    assert mode.figure is not None
    assert mode.figure > 0.9
    assert len(mode.dialogues) == 20 <= mode.behind


async def test_a_judge_whose_verdict_is_not_its_scores_is_caught() -> None:
    def contradicts(number: int, one: Dialogue) -> Scores:
        verdict = "poor" if number < 10 else a_good_judge(number, one)[None, "verdict"]
        return a_good_judge(number, one) | {(None, "verdict"): verdict}

    mode = (await modes_of(ordinary(), contradicts))["verdict_mismatch"]
    assert (mode.status, mode.figure, mode.dialogues[:2]) == ("warn", 0.25, ("d0", "d1"))


async def test_a_judge_that_gives_every_turn_of_a_long_dialogue_the_same_is_caught() -> None:
    def flat(number: int, one: Dialogue) -> Scores:
        if len(one.turns) <= 10:
            return a_good_judge(number, one)
        return {(turn.number, "helpfulness"): 4 for turn in one.turns}

    mode = (await modes_of(ordinary(), flat))["flat_long_dialogues"]
    assert (mode.status, mode.figure, mode.n) == ("warn", 1.0, 14)


async def test_too_little_is_said_and_no_pass() -> None:
    modes = await modes_of(ordinary(4), a_good_judge)
    statuses = {mode.status for name, mode in modes.items() if name != "length_favouritism"}
    assert statuses == {"not_enough_data", "not_run"}
    assert all(mode.figure is None for mode in modes.values() if mode.status != "pass")
    assert "20 needed" in modes["verdict_mismatch"].detail


async def test_equal_helpfulness_has_no_correlation_with_length() -> None:
    mode = (await modes_of(ordinary(), lambda *_: {}))["length_favouritism"]
    assert (mode.status, mode.figure) == ("not_enough_data", None)
    assert "same helpfulness" in mode.detail


async def test_a_language_without_words_is_named_and_not_counted_as_free_of_pushback() -> None:
    modes = FailureModes()
    for number, (text, fields) in enumerate(
        [
            ("Нет, я имел в виду другое.", {}),
            ("No, intendevo l'altro.", {"metadata": {"language": "it"}}),
            ("I meant the other one.", {}),
        ]
    ):
        one = dialogue(number, pushback=text, **fields)
        modes.add(one, await judged(one, {}))
    mode = {mode.name: mode for mode in modes.report("no")}["repair_false_na"]
    assert mode.n == 1
    assert (
        "no words for Cyrillic script 1, it 1 (there are lists for en, es, zh, de, fr)"
        in mode.detail
    )


async def test_rows_for_a_reader_name_what_warns_and_dialogues_to_look_at() -> None:
    modes = await modes_of(ordinary(), lambda n, d: {(None, "repair_handling"): "n/a"})
    rows = mode_rows(list(modes.values()))
    assert len(rows) == 6
    (repair,) = (row for row in rows if row[0] == "repair false n/a")
    assert repair[1] == "1.00"
    assert repair[3] == "warn"
    assert "Look at d0, d4, d8 …" in repair[4]


class TestPersona:
    """A sample judged again under another dialogue's scenario."""

    async def swapped(self, judging: Callable[[bool], Mapping[Any, Any]]) -> FailureMode:
        modes = FailureModes()
        for number in range(12):
            one = dialogue(number)
            own, other = [await judged(one, dict(judging(is_own))) for is_own in (True, False)]
            modes.add_swapped(one.id, own, other)
        return {mode.name: mode for mode in modes.report()}["persona_collapse"]

    async def test_a_judge_that_ignores_the_scenario_is_caught(self) -> None:
        mode = await self.swapped(lambda is_own: {})
        assert (mode.status, mode.figure, mode.n) == ("warn", 1.0, 12)

    async def test_a_judge_that_holds_replies_against_the_scenario_passes(self) -> None:
        mode = await self.swapped(lambda is_own: {} if is_own else {(3, "helpfulness"): 2})
        assert (mode.status, mode.figure) == ("pass", 0.0)


@pytest.mark.parametrize(
    ("text", "language", "pushes"),
    [
        ("Wait, that is the wrong one.", None, True),
        ("I can't wait to see it.", None, False),
        ("No, thanks, that's all.", None, False),
        ("That’s not what I asked.", "en-GB", True),
        ("Eso no es lo que pedí.", "es", True),
        ("Sí, gracias.", "Spanish", False),
        ("不對,我說的是另一個。", None, True),
        ("好的,谢谢你。", "zh", False),
        ("Das stimmt nicht.", None, True),
        ("Danke, das reicht.", "de", False),
        ("Ce n'est pas ce que je voulais.", "fr", True),
        ("Merci beaucoup.", None, False),
        ("これは違います。", None, "Japanese script"),
        ("Eso está mal.", "en", False),
    ],
)
def test_pushback_is_looked_for_in_the_language_of_the_dialogue(
    text: str, language: str | None, pushes: bool | str
) -> None:
    fields = {} if language is None else {"metadata": {"language": language}}
    assert has_pushback(dialogue(1, pushback=text, **fields)) == pushes
    first = Dialogue(id="a", messages=(Message(role="user", content=text),))
    assert has_pushback(first) is False  # nothing was answered yet
