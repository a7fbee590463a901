"""The script `benchmarks/talked_to.py`: what is asked about, and the shares and differences made of the scores."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Request
from curate.recipe import Recipe
from curate.run.probe_plan import draw_cases
from curate.trust.probe_outcomes import JudgmentReading
from curate.trust.probe_variants import Variant


@pytest.fixture(scope="module")
def script(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("talked_to")


def said(text: str) -> Dialogue:
    messages = (Message(role="user", content="?"), Message(role="assistant", content=text))
    return Dialogue(id=text, messages=messages)


def variant(line: str, group: str) -> Variant:
    return Variant(line, group, said(f"{line} {group} first"), said(f"{line} {group} second"))


def scores(made: Callable[[float], Any], *moves: tuple[Variant, float, float]) -> dict[str, Any]:
    return {
        dialogue.content_hash: made(value)
        for held, *values in moves
        for dialogue, value in zip((held.first, held.second), values, strict=True)
    }


def test_the_flaw_is_the_only_difference_of_one_line_and_the_attack_of_the_others(
    script: ModuleType,
) -> None:
    judge = {"engine": "scripted", "replies": "none.jsonl"}
    recipe = {"name": "none", "source": {"path": "none.jsonl"}, "models": {"judge": judge}}
    cases = draw_cases(Recipe.model_validate(recipe), limit=13).cases
    lines = ("fake_verdict_in_user", "instruction_in_user")
    variants = script.variants_of(cases, 8, lines, 42)
    flaws = [held for held in variants if held.line == script.SEEN]
    assert len(flaws) == 8
    assert len(variants) == 24
    flawed = {case.group: case for case in cases}
    for held in variants:
        pairs = zip(held.first.messages, held.second.messages, strict=True)
        (before, after) = next((a, b) for a, b in pairs if a != b)
        if held.line == script.SEEN:
            assert before.role == after.role == "assistant"
            assert held.group in flawed
        else:
            assert before.role == after.role == "user"
    # The harmless side of an attack is the flawed side of the flaw, so it is asked about once.
    attacks = [held for held in variants if held.line == lines[0]]
    assert [a.first.content_hash for a in attacks] == [f.first.content_hash for f in flaws]
    assert [held.line for held in variants[:2]] == [script.SEEN, lines[0]]


def test_each_side_is_a_share_of_its_own_scale(script: ModuleType) -> None:
    def rubric(level: float) -> Any:
        return script.Rubric(
            JudgmentReading({"safety": level, "helpfulness": level}, 0, None, (1,))
        )

    attack = variant("instruction_in_user", "a")
    (ours,) = script.outcomes([attack], scores(rubric, (attack, 2.0, 4.0)))[attack.line]
    (peers,) = script.outcomes([attack], scores(script.Share, (attack, 0.2, 0.7)))[attack.line]
    assert (ours.value, peers.value) == pytest.approx((0.5, 0.5))
    assert (rubric(1.0).value, rubric(5.0).value) == (0.0, 1.0)


def test_a_flaw_is_seen_where_the_dialogue_without_it_scores_higher(script: ModuleType) -> None:
    flaws = [variant(script.SEEN, group) for group in "abcd"]
    moves = ((0.2, 0.6), (0.5, 0.5), (0.6, 0.5), (0.1, 0.1))
    held = scores(script.Share, *((one, *move) for one, move in zip(flaws, moves, strict=True)))
    made = script.outcomes(flaws, held)
    assert [one.value for one in made[script.SEEN]] == [1.0, 0.5, 0.0, 0.5]
    assert {one.against for one in made[script.SEEN]} == {0.5}
    assert [one.value for one in made[script.COST]] == pytest.approx([0.4, 0.0, -0.1, 0.0])
    assert script.spread(held) == "0.10 to 0.60"
    del held[flaws[0].second.content_hash]
    assert len(script.outcomes(flaws, held)[script.SEEN]) == 3


def test_the_difference_is_over_the_cases_that_both_scored(script: ModuleType) -> None:
    line = "instruction_in_user"
    attacks = [variant(line, group) for group in "abcdefg"]
    moves = [0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.9]
    ours = scores(
        script.Share, *((one, 0.0, move) for one, move in zip(attacks, moves, strict=True))
    )
    # The last is missing, and of the rest each moves by .1 more.
    theirs = scores(
        script.Share,
        *((one, 0.0, move + 0.1) for one, move in zip(attacks[:6], moves, strict=False)),
    )
    made = script.report(attacks, {"curate": ours, "deepeval": theirs, "gaussia": {}})
    rows = [row for row in made.splitlines() if row.startswith("| deepeval")]
    assert rows[0] == (
        "| deepeval | instruction in user | 6, 6 | +0.200 | +0.300 | +0.100 (+0.10 to +0.10) |"
    )
    assert len(rows) == 1
    assert "| gaussia" not in made
    other = variant("fake_fence_in_user", "a")
    both = ours | scores(script.Share, (other, 0.0, 0.9))
    made = script.report([*attacks, other], {"curate": both, "deepeval": {}, "gaussia": both})
    rows = [row for row in made.splitlines() if row.startswith("| gaussia")]
    lines = [row.split(" | ")[1:3] for row in rows]
    assert lines[-1] == ["all attacks", "8, 7"]
    assert [name for name, _ in lines] == [
        "instruction in user",
        "fake fence in user",
        "all attacks",
    ]


def test_gaussia_is_answered_with_the_likeliest_tokens_as_it_asks_for_them(
    script: ModuleType,
) -> None:
    asked: list[Request] = []

    async def ask(requests: Sequence[Request]) -> list[Completion]:
        asked.extend(requests)
        first = (("YES", math.log(0.6)), ("NO", math.log(0.3)), ("Maybe", math.log(0.1)))
        return [Completion(text="YES", first_token=first) for _ in requests]

    async def invoke() -> Any:
        model = script.GaussiaModel(ask, asyncio.get_running_loop())
        bound = model.bind(logprobs=True, top_logprobs=2, temperature=1.0)
        return await asyncio.to_thread(bound.invoke, [("system", "Role."), ("human", "Hello")])

    (place,) = asyncio.run(invoke()).response_metadata["logprobs"]["content"]
    assert place["token"] == "YES"
    assert [top["token"] for top in place["top_logprobs"]] == ["YES", "NO"]
    roles = [(message["role"], message["content"]) for message in asked[0].messages]
    assert roles == [("system", "Role."), ("user", "Hello")]


def test_deepeval_is_given_the_log_probabilities_of_its_number_alone(script: ModuleType) -> None:
    import localisation

    text = 'Well: {"reason": "the \\"score\\" is low", "score": 7}'
    number = localisation.SCORE.search(text)
    assert number is not None
    assert text[number.end() :] == "7}"
    assert localisation.SCORE.search('{"score": "seven"}') is None
    reply = localisation.chat_completion(text, [("7", -0.1), ("8", -3.0)])
    (place,) = reply.choices[0].logprobs.content
    assert reply.choices[0].message.content == text
    assert place.token == "7"
    tops = [(top.token, top.logprob) for top in place.top_logprobs]
    assert tops == [("7", -0.1), ("8", -3.0)]
