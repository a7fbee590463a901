"""A closed question in every order of its options: a taste for a letter or a place cancels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from curate.engines.base import Capability, Completion, Request
from curate.engines.label_mass import logsumexp
from curate.engines.scripted import ScriptedEngine
from curate.judging.config import RubricConfig
from curate.pairs.closed_questions import Choice, ask_choice
from curate.pairs.pair_prompts import (
    NONE,
    ClosedQuestion,
    comparison,
    critique,
    revision,
    specifics_questions,
    suffices_questions,
)
from curate.records import ScoringMode
from curate.stages import bind_judge
from tests.pairs.scripted import World, chat, fault, reply, say

PROMPT = chat("How much?", "It is 45.", "Sure?")
LETTERS = "ABCDEF"


def questions(details: int) -> list[ClosedQuestion]:
    names = [f"detail {at}" for at in range(details)]
    return specifics_questions(PROMPT, say("assistant", "It is 45."), names)


async def choose(
    orders: Sequence[ClosedQuestion],
    worth: Mapping[str, float],
    taste: Sequence[float] = (0.0,) * 6,
) -> Choice:
    """By a judge to whom each meaning is worth so much, and each letter so much on top of it."""
    of = {order.trunk.text + order.question(as_json=False): order for order in orders}

    async def judge(requests: Sequence[Request]) -> list[Completion]:
        answers = []
        for request in requests:
            meanings = of[request.messages[0]["content"]].meanings
            mass = [worth[meaning] + taste[at] for at, meaning in enumerate(meanings)]
            total = logsumexp(mass)
            shares = zip(request.labels, mass, strict=True)
            answers.append(
                Completion(first_token=tuple((name, value - total) for name, value in shares))
            )
        return answers

    return await ask_choice(orders, replace(World({}).judging(), judge=judge), 0.5)


worths = st.lists(st.floats(-6, 6), min_size=2, max_size=6)


@given(worths, st.lists(st.floats(-6, 6), min_size=6, max_size=6))
async def test_a_taste_for_letters_changes_neither_the_choice_nor_its_probabilities(
    values: list[float], taste: list[float]
) -> None:
    orders = questions(len(values) - 1)
    worth = dict(zip(orders[0].meanings, values, strict=True))
    without, with_taste = await choose(orders, worth), await choose(orders, worth, taste)
    assert with_taste.probabilities == pytest.approx(without.probabilities, abs=1e-9)
    ranked = sorted(values)
    assume(ranked[-1] - ranked[-2] > 1e-6)
    assert with_taste.best == without.best == max(worth, key=worth.__getitem__)


@pytest.mark.parametrize("details", [1, 2, 5])
def test_every_option_stands_at_every_place_once(details: int) -> None:
    orders = questions(details)
    assert len(orders) == details + 1
    for place in zip(*(order.meanings for order in orders), strict=True):
        assert sorted(place) == sorted({*orders[0].meanings})
    for order in orders:
        text = order.question(as_json=False)
        for letter, meaning in zip(order.labels, order.meanings, strict=True):
            said = "none of them is made up" if meaning == NONE else meaning
            assert f"\n{letter} = {said}\n" in text


async def test_a_letter_that_is_not_listed_counts_as_the_most_it_can_be() -> None:
    orders = suffices_questions(PROMPT, 1, [2])

    async def judge(requests: Sequence[Request]) -> list[Completion]:
        # "yes" both times, and once nothing else is listed
        return [
            Completion(first_token=(("A", math.log(0.9)), ("The", math.log(0.04)))),
            Completion(first_token=(("B", math.log(0.8)), ("A", math.log(0.2)))),
        ]

    found = await ask_choice(orders, replace(World({}).judging(), judge=judge), 0.5)
    odds = (math.log(0.9 / 0.04) + math.log(4)) / 2
    assert found.probabilities["yes"] == pytest.approx(1 / (1 + math.exp(-odds)))


async def test_a_judge_of_letters_alone_is_asked_in_one_order() -> None:
    orders = suffices_questions(PROMPT, 1, [2])
    asked: list[Request] = []

    async def judge(requests: Sequence[Request]) -> list[Completion]:
        asked.extend(requests)
        return [reply('{"answer": "B"}')] * len(requests)

    asks = replace(World({}).judging(judge_mode="json"), judge=judge)
    found = await ask_choice(orders, asks, 0.5)
    assert (found.best, found.probabilities, len(asked)) == ("no", {"yes": 0.0, "no": 1.0}, 1)


@pytest.mark.parametrize(
    "first", [fault("bad_request"), fault("malformed_reply"), reply("A"), fault("timeout")]
)
async def test_where_letters_are_refused_or_not_listed_they_are_asked_for_by_a_schema(
    first: Completion,
) -> None:
    asked: list[Request] = []

    async def judge(requests: Sequence[Request]) -> list[Completion]:
        asked.extend(requests)
        return [reply('{"answer": "B"}') if request.schema else first for request in requests]

    asks = replace(World({}).judging(), judge=judge)
    found = await ask_choice(suffices_questions(PROMPT, 1, [2]), asks, 0.5)
    if first.fault is not None and first.fault.kind == "timeout":
        # says nothing about what the engine can do
        assert (found.best, found.reason, found.detail) == (None, "engine_error", "timeout")
        assert [request.schema for request in asked] == [None, None]
    else:
        assert (found.best, found.probabilities) == ("no", {"yes": 0.0, "no": 1.0})
        assert [bool(request.schema) for request in asked] == [False, False, True]


async def test_one_order_that_cannot_be_read_leaves_no_choice() -> None:
    async def judge(requests: Sequence[Request]) -> list[Completion]:
        return [Completion(first_token=(("A", -0.1), ("B", -3.0))), fault("timeout")]

    asks = replace(World({}).judging(judge_mode="tokens"), judge=judge)
    found = await ask_choice(suffices_questions(PROMPT, 1, [2]), asks, 0.5)
    assert (found.best, found.reason, found.detail) == (None, "engine_error", "timeout")


def test_every_question_about_a_message_shows_what_the_data_says_beside_the_dialogue() -> None:
    dialogue = chat(
        "Where is it?",
        "At the depot.",
        role_definition="A clerk.",
        emphasis="Weigh the dates.",
        evidence=("Order 7 left on Monday.", "Refunds take a week."),
        expected_outcomes=("order 7 is found",),
    )
    message = say("assistant", "It left on Monday.")
    for trunk in (
        comparison(dialogue, message, say("assistant", "No.")).trunk,
        specifics_questions(dialogue, message, ["Monday"])[0].trunk,
        suffices_questions(dialogue, 1, [2])[0].trunk,
        critique(dialogue, message, ["Be brief."])[0],
        revision(dialogue, message, "It is vague.")[0],
    ):
        before, _, _ = trunk.text.partition("<dialogue>")
        assert "<role>\nA clerk.\n</role>" in before
        assert "<emphasis>\nWeigh the dates.\n</emphasis>" in before
        assert "<evidence>\nOrder 7 left on Monday.\n\nRefunds take a week.\n</evidence>" in before
        assert "<expected_outcomes>\norder 7 is found\n</expected_outcomes>" in before


@pytest.mark.parametrize(
    ("mode", "capabilities", "letters"),
    [
        ("json", {Capability.TOP_LOGPROBS}, None),
        ("json", {Capability.LABEL_LOGPROBS}, None),
        ("json", set(), "json"),
        ("tokens", {Capability.TOP_LOGPROBS}, "tokens"),
    ],
)
def test_whole_scores_do_not_keep_letters_from_being_read(
    mode: ScoringMode, capabilities: set[Capability], letters: ScoringMode | None
) -> None:
    async def ask(requests: Sequence[Request]) -> list[Completion]:
        raise AssertionError(requests)

    engine = ScriptedEngine([], capabilities=capabilities)
    assert bind_judge(ask, RubricConfig(mode=mode), engine).judge_mode == letters
