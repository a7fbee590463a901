"""The script `benchmarks/localisation.py`: what a metric's verdicts blame, and the lines made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from curate.dialogue import Dialogue, Message
from curate.trust.probe_cases import ProbeCase


@pytest.fixture(scope="module")
def script(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("localisation")


def dialogue(name: str, turns: int = 4) -> Dialogue:
    messages = []
    for turn in range(1, turns + 1):
        messages += [
            Message(role="user", content=f"Question {turn}?"),
            Message(role="assistant", content=f"Answer {turn} of {name}."),
        ]
    return Dialogue(id=name, messages=tuple(messages))


def case(turn: int) -> ProbeCase:
    untouched, planted = dialogue("a"), dialogue("b")
    return ProbeCase("evasion", "group", turn, 2 * turn - 1, untouched, planted, None)


def verdicts(*words: str | None) -> list[Any]:
    return [None if word is None else SimpleNamespace(verdict=word) for word in words]


NUMBERS = [1, 1, 2, 2, 3, 3]


def test_each_metric_blames_the_turns_that_its_verdicts_name(script: ModuleType) -> None:
    relevancy = SimpleNamespace(verdicts=verdicts("yes", "No ", None))
    assert script.blamed("TurnRelevancy", relevancy, NUMBERS) == Counter([2])
    broken = [SimpleNamespace(index=5), SimpleNamespace(index=99), SimpleNamespace(index=4)]
    role = SimpleNamespace(out_of_character_verdicts=SimpleNamespace(verdicts=broken))
    assert script.blamed("RoleAdherence", role, NUMBERS) == Counter([3])
    # Nothing is known before the second question, so the first answer is not asked about.
    facts = [SimpleNamespace(data=None), None, SimpleNamespace(data={"a": "b"}), None, None, None]
    known = SimpleNamespace(knowledges=facts, verdicts=verdicts("no", "yes"))
    assert script.blamed("KnowledgeRetention", known, NUMBERS) == Counter([3])
    assert script.blamed("ConversationCompleteness", None, NUMBERS) == Counter()


def test_a_turn_drawn_from_those_blamed_hits_in_expectation(script: ModuleType) -> None:
    planted, held = case(2).planted.content_hash, case(2)
    untouched = held.untouched.content_hash

    def lines(before: float, after: float, **blame: int) -> dict[str, float]:
        blamed = Counter({int(turn[1:]): count for turn, count in blame.items()})
        scores = {
            untouched: script.Score(before, Counter()),
            planted: script.Score(after, blamed),
        }
        return {one.line: one.value for one in script.outcomes([held], scores)}

    assert lines(1.0, 0.5, t2=1) == {"detection": 1, "weakest_turn": 1, "within_one": 1}
    assert lines(0.5, 0.5, t1=1, t4=1) == {"detection": 0.5, "weakest_turn": 0, "within_one": 0.5}
    assert lines(0.5, 1.0, t2=2, t4=1) == {"detection": 0, "weakest_turn": 1, "within_one": 1}
    # Where it blames none, any of the four turns is drawn.
    assert lines(1.0, 1.0) == {"detection": 0.5, "weakest_turn": 0.25, "within_one": 0.75}


def test_tool_calls_and_results_stand_in_the_text(script: ModuleType) -> None:
    call = {"name": "find", "arguments": {"id": 7}}
    messages = [
        Message(role="user", content="Where?"),
        Message.model_validate({"role": "assistant", "tool_calls": [call]}),
        Message(role="tool", content="in transit"),
        Message(role="assistant", content="On its way."),
    ]
    (asked, answered) = script.chat_of(Dialogue(id="d", messages=tuple(messages)))
    assert asked == (1, "user", "Where?")
    assert answered == (
        *(1, "assistant"),
        '[calls find({"id": 7})]\n[result: in transit]\nOn its way.',
    )


def test_all_metrics_together_blame_what_most_of_them_do(script: ModuleType) -> None:
    first = {"a": script.Score(1.0, Counter([1])), "b": script.Score(0.0, Counter())}
    second = {"a": script.Score(0.5, Counter([1, 2]))}
    together = script.all_of_them({"x": first, "y": second})
    assert together == {"a": script.Score(0.75, Counter({1: 2, 2: 1}))}


def test_only_an_optional_reason_behind_the_verdict_is_left_out(script: ModuleType) -> None:
    verdict, reason = {"type": "string"}, {"type": "string"}

    def schema(*names: str, required: tuple[str, ...]) -> dict[str, Any]:
        fields = {"verdict": verdict, "reason": reason, "index": {"type": "integer"}}
        return {"properties": {name: fields[name] for name in names}, "required": list(required)}

    short = script.without_reason(schema("verdict", "reason", required=("verdict",)))
    assert list(short["properties"]) == ["verdict"]
    assert short["additionalProperties"] is False
    for whole in (
        schema("reason", "verdict", required=("verdict",)),
        schema("verdict", "reason", required=("verdict", "reason")),
        schema("reason", required=()),
        schema("index", required=("index",)),
    ):
        assert script.without_reason(whole) == whole
