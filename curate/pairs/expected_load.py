"""The calls of making and verifying a pair that passes every check, for an estimate.

The same questions in the same order as in `fork.fork_dialogue` and `verification.verify_sides`, put to stand-ins whose
answers decide nothing. Of a fork the original is bad and every candidate better than it; the last that is compared
passes with `early_stop`, else the one whose length is nearest to the original's.
"""

from __future__ import annotations

from dataclasses import replace

from curate.dialogue import Dialogue, Message
from curate.pairs.candidates import Candidate
from curate.pairs.config import ForkConfig, VerifyConfig
from curate.pairs.fork import Fork, candidates_of, one_line, open_fork, unusable, whole_issue
from curate.pairs.fork_points import find_forks
from curate.pairs.judge_functions import ForkAsks, JudgeAsks
from curate.pairs.questions import repair_suffices
from curate.pairs.verification import (
    Sides,
    check_role_and_facts,
    check_specifics,
    compare_orders,
    score_chosen,
    score_rejected,
    token_ratio,
)
from curate.records import Judgment, PairCheck, RubricScores

EXTRA_WORD = "indeed"
"""A plain word: no detail in it that the judge would be asked about."""


async def ask_as_a_fork(
    dialogue: Dialogue, judgment: Judgment, asks: ForkAsks, config: ForkConfig
) -> None:
    """Ask what `fork.fork_dialogue` asks, at the turn's last text: a stand-in names no failed message."""
    points = [
        point for point in find_forks(dialogue, judgment, config) if point.drop_reason is None
    ]
    for point in points[: config.max_forks]:
        await repair_suffices(dialogue, judgment, point, asks, config)
        fork = open_fork(dialogue, point, config, asks)
        scores, _ = await score_rejected(
            fork.prompt, fork.rejected, fork.turn, asks.judging, config
        )
        if scores is None:
            continue
        issues = next((entry.issues for entry in judgment.per_turn if entry.turn == fork.turn), ())
        fork = replace(fork, issue=one_line(*issues))
        passed = await _passing_message(fork)
        if passed is None:
            continue
        sides = fork.sides(passed)
        await check_role_and_facts(sides, PairCheck(), asks.judging, config)
        if config.at == "earliest" and not passed.tool_calls:
            await asks.rejudge(sides.parts[0])


async def _passing_message(fork: Fork) -> Message | None:
    """Ask for candidates as a fork does and hold each against the original; None where none is compared."""
    compared: list[Candidate] = []
    if fork.config.early_stop:
        async for candidate in candidates_of(fork):
            await _compare(fork, candidate, compared)
        return compared[-1].message if compared else None
    if fork.config.guided_revision:
        fork = replace(fork, issue=await whole_issue(fork))
    for candidate in [candidate async for candidate in candidates_of(fork)]:
        await _compare(fork, candidate, compared)
    ranked = [candidate.message for candidate in compared if candidate.message is not None]
    ranked.sort(key=lambda message: abs(token_ratio(message, fork.rejected) - 1))
    if len(ranked) > 1:
        best = replace(fork.sides(ranked[0]), rejected=ranked[1])
        await compare_orders(best, PairCheck(), fork.asks.judging, fork.config)
    return ranked[0] if ranked else None


async def _compare(fork: Fork, candidate: Candidate, compared: list[Candidate]) -> None:
    """Score a candidate and hold it against the original; adds it to `compared`."""
    message = candidate.message
    if message is None or unusable(fork.rejected, candidate, compared)[0] is not None:
        return
    sides, judging = fork.sides(message), fork.asks.judging
    if (await check_specifics(sides, PairCheck(), judging, fork.config)).drop_reason is None:
        await score_chosen(sides, PairCheck(), judging, fork.config)
    await compare_orders(sides, PairCheck(), judging, fork.config)
    compared.append(candidate)


async def ask_as_a_verification(sides: Sides, asks: JudgeAsks, config: VerifyConfig) -> None:
    """Ask what `verification.verify_sides` asks; the arguments are the same."""
    scores, _ = await score_rejected(sides.prompt, sides.rejected, sides.turn, asks, config)
    if scores is None:
        return
    await score_chosen(sides, PairCheck(), asks, config)
    await compare_orders(sides, PairCheck(), asks, config)
    await check_specifics(sides, PairCheck(), asks, config)
    await check_role_and_facts(sides, PairCheck(), asks, config)


def one_word_longer(message: Message) -> Message:
    """Return a side that differs from the message by `EXTRA_WORD`, as a verified pair's better side would."""
    return message.model_copy(update={"content": f"{message.content} {EXTRA_WORD}"})


def with_a_bad_turn(judgment: Judgment, at: int, config: ForkConfig) -> Judgment:
    """Return a judgment whose weakest turn is one of the dialogue's, another for each `at`, the rest fine.

    With `at: earliest` the turns after it are bad too, since it is asked whether they follow from it.
    """
    fine = RubricScores(context_use=5, helpfulness=5, safety=5)
    bad = RubricScores(context_use=2, helpfulness=2, safety=5)
    weakest = at % len(judgment.per_turn)
    last_bad = len(judgment.per_turn) if config.at == "earliest" else weakest
    turns = [
        turn.model_copy(
            update={"scores": bad if weakest <= place <= last_bad else fine, "readings": {}}
        )
        for place, turn in enumerate(judgment.per_turn)
    ]
    return judgment.model_copy(
        update={
            "per_turn": tuple(turns),
            "weakest_turn": turns[weakest].turn,
            "weakest_probabilities": {},
        }
    )
