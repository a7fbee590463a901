"""Ask a judge all questions of a plan, keep its answers, and make its card from them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from statistics import fmean, median

from curate.dialogue import Dialogue
from curate.engines.base import Ask, Completion, Request
from curate.engines.model_pool import Asks
from curate.executors.first_rows import FirstRows
from curate.executors.local import for_each
from curate.judging.config import RubricConfig
from curate.pairs.closed_questions import ask_choice
from curate.pairs.config import VerifyConfig
from curate.pairs.judge_functions import JudgeAsks
from curate.pairs.prefix import with_messages
from curate.pairs.probe_prompts import kind_question, rewritten
from curate.pairs.verification import Sides, compare_orders
from curate.recipe import Recipe
from curate.records import (
    Judgment,
    PairCheck,
    ProbeOutcome,
    ProbeReport,
    StageName,
    Unscored,
)
from curate.run.probe_plan import ProbePlan, is_in_words
from curate.stages import Judged, Stage, Verifier, WorkItem, make_row
from curate.trust.plants import LENGTH_SLACK
from curate.trust.probe_card import card_lines, card_sentence
from curate.trust.probe_cases import (
    KIND_SENTENCES,
    ProbeCase,
    cases_by_kind,
)
from curate.trust.probe_outcomes import JudgmentReading, Readings, outcomes_of

_KINDS: dict[str, str] = {str(kind): sentence for kind, sentence in KIND_SENTENCES.items()}
_OPINIONS = ("judge.verdict", "judge.weakest")
_AGAIN = 1000
"""Added to the sample number of a repeated question, so that it is another draw with a kept reply of its own."""


def rubric_of(recipe: Recipe) -> RubricConfig:
    """Return the recipe's rubric without written texts and opinions, which no line of the card reads."""
    rubric = recipe.judge or RubricConfig()
    return rubric.model_copy(update={"text": "off", "persona_check": 0, "on_mismatch": "use_rule"})


async def plant_by_policy(plan: ProbePlan, policy: Ask, open_at_once: int) -> ProbePlan:
    """Have the policy write the first `plan.by_policy` flaws; return the plan with them.

    A case that the policy could not write keeps its edit.
    """
    if not plan.by_policy:
        return plan
    cases = [case for case in plan.cases if is_in_words(case)][: plan.by_policy]
    written: dict[str, ProbeCase] = {}
    reasons: Counter[str] = Counter()

    async def write(case: ProbeCase) -> ProbeCase | str:
        message = case.untouched.messages[case.index]
        prompt = with_messages(case.untouched, case.untouched.messages[: case.index])
        flawed = await rewritten(prompt, message, KIND_SENTENCES[case.kind], LENGTH_SLACK, policy)
        if isinstance(flawed, str):
            return flawed
        reworded = await rewritten(prompt, message, None, LENGTH_SLACK, policy)
        return case.with_messages(flawed, None if isinstance(reworded, str) else reworded)

    def take(case: ProbeCase, result: ProbeCase | str) -> None:
        if isinstance(result, str):
            reasons[result] += 1
        else:
            written[case.key] = result

    await for_each(cases, write, take, open_at_once=open_at_once)
    return replace(
        plan,
        cases=tuple(written.get(case.key, case) for case in plan.cases),
        planted_by={"edits": len(plan.cases) - len(written), "policy": len(written)},
        not_planted=dict(sorted(reasons.items())),
    )


@dataclass(frozen=True, slots=True)
class Probed:
    """A judge's card and the outcomes behind it."""

    report: ProbeReport
    outcomes: tuple[ProbeOutcome, ...]

    @property
    def unscored_share(self) -> float:
        """Share of all questions that got no usable answer, 0-1."""
        return sum(self.report.unscored.values()) / max(1, self.report.asked)


@dataclass(slots=True)
class Prober:
    """Asks a judge all questions of a plan, and keeps its answers.

    Attributes:
        stage: judges dialogues, as the recipe's judge does.
        asks: the models.
        judging: the questions of verification.
        judged, again, kinds, picks, wordings: answers, as `trust.probe_outcomes.Readings` describes them.
        unscored: questions without a usable answer, by reason.
        asked: questions asked so far.
    """

    plan: ProbePlan
    stage: Stage[Judged]
    asks: Asks
    judging: JudgeAsks
    verify: VerifyConfig = field(default_factory=VerifyConfig)
    first_rows: FirstRows = field(default_factory=lambda: FirstRows(StageName.JUDGE))
    judged: dict[str, JudgmentReading] = field(default_factory=dict)
    again: dict[str, JudgmentReading] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    picks: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    wordings: dict[str, float] = field(default_factory=dict)
    unscored: Counter[str] = field(default_factory=Counter)
    asked: int = 0

    @classmethod
    def of(
        cls,
        plan: ProbePlan,
        stage: Stage[Judged],
        verifier: Verifier,
        asks: Asks,
    ) -> Prober:
        """Return a prober of open judges.

        Args:
            plan: what to ask.
            stage, verifier: how the judges score dialogues, and compare sides.
            asks: the models.
        """
        asks = asks.with_judges(without_opinions)
        return cls(plan, stage, asks, verifier.asks(asks))

    def jobs(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield all questions to ask, those about dialogues that share a start one after the other."""
        for dialogue in self.plan.judged:
            yield partial(self._judge, dialogue)
        for case in self.plan.cases:
            yield partial(self._name_kind, case)
        for case in self.plan.sides:
            yield partial(self._pick_side, case)
        for dialogue in self.plan.repeated:
            yield partial(self._judge_again, dialogue)
            yield partial(self._reword, dialogue)

    async def _judge(self, dialogue: Dialogue) -> None:
        row = await self._row(dialogue, self.asks)
        self.first_rows.see(row)
        if isinstance(row, Judgment):
            self.judged[dialogue.content_hash] = JudgmentReading.of(row)

    async def _judge_again(self, dialogue: Dialogue) -> None:
        row = await self._row(dialogue, self.asks.with_judges(_another_draw))
        if isinstance(row, Judgment):
            self.again[dialogue.content_hash] = JudgmentReading.of(row)

    async def _row(self, dialogue: Dialogue, asks: Asks) -> Judged:
        self.asked += 1
        row = await make_row(self.stage, WorkItem(dialogue), asks)
        if isinstance(row, Judgment) and self.stage.calibrated is not None:
            row = self.stage.calibrated.apply(row)
        if isinstance(row, Unscored):
            self.unscored[row.reason] += 1
        assert isinstance(row, Judgment | Unscored)
        return row

    async def _name_kind(self, case: ProbeCase) -> None:
        self.asked += 1
        draw = random.Random(f"{self.plan.seed} {case.key}")
        question = kind_question(case.planted, case.turn, _KINDS, draw)
        choice = await ask_choice([question], self.judging, self.verify.min_coverage)
        if choice.best is None:
            self.unscored[choice.reason] += 1
        else:
            self.kinds[case.key] = choice.best

    async def _pick_side(self, case: ProbeCase) -> None:
        self.asked += 1
        prompt = with_messages(case.untouched, case.untouched.messages[: case.index])
        better, worse = case.untouched.messages[case.index], case.planted.messages[case.index]
        sides = Sides(prompt, better, worse, case.turn)
        check = (await compare_orders(sides, PairCheck(), self.judging, self.verify)).check
        if check.preferred_first is None or check.preferred_second is None:
            self.unscored[check.unscored or "bad_reply"] += 1
        else:
            self.picks[case.key] = (check.preferred_first, check.preferred_second)

    async def _reword(self, dialogue: Dialogue) -> None:
        self.asked += 1
        turn = next(turn for turn in reversed(dialogue.turns) if turn.in_rubric)
        part = with_messages(dialogue, dialogue.messages[: turn.stop])
        means = []
        for wording in (0, 1):
            reading = await self.judging.score_turn(part, turn.number, wording)
            if isinstance(reading, Unscored):
                self.unscored[reading.reason] += 1
                return
            means.append(fmean(reading.values.values()))
        self.wordings[dialogue.content_hash] = means[1] - means[0]

    def result(self, fingerprints: dict[str, str]) -> Probed:
        """Return the card made from the answers so far."""
        plan = self.plan
        readings = Readings(self.judged, self.again, self.kinds, self.picks, self.wordings)
        # Replies come back in any order; the card must not depend on it.
        outcomes = sorted(
            outcomes_of(plan.cases, plan.variants, readings), key=lambda o: (o.line, o.case)
        )
        lines = card_lines(outcomes)
        harmless = [case.changed(case.harmless) for case in plan.cases if case.harmless is not None]
        report = ProbeReport(
            sentence=card_sentence(lines, len(plan.cases)),
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            fingerprints=fingerprints,
            identity=self.stage.calibrated.identity
            if self.stage.calibrated
            else self.stage.identity,
            source=plan.source,
            seed=plan.seed,
            cases=len(plan.cases),
            dialogues=len({case.group for case in plan.cases}),
            kinds=cases_by_kind(plan.cases),
            planted_by=plan.planted_by,
            not_planted=plan.not_planted,
            changed=median(case.changed(case.planted) for case in plan.cases),
            changed_harmlessly=median(harmless) if harmless else None,
            without_harmless=len(plan.cases) - len(harmless),
            asked=self.asked,
            unscored=dict(sorted(self.unscored.items())),
            lines=lines,
        )
        return Probed(report, tuple(outcomes))


def without_opinions(ask: Ask) -> Ask:
    """Return `ask` without the judge's own verdict and weakest turn, which no line reads: a quarter of all requests."""

    async def ask_needed(requests: Sequence[Request]) -> list[Completion]:
        needed = [request for request in requests if request.purpose not in _OPINIONS]
        replies = iter(await ask(needed) if needed else [])
        return [
            next(replies) if request.purpose not in _OPINIONS else Completion()
            for request in requests
        ]

    return ask_needed


def _another_draw(ask: Ask) -> Ask:
    """Return `ask` with other sample numbers, so that no kept reply to the first questions answers these."""

    async def ask_again(requests: Sequence[Request]) -> list[Completion]:
        return await ask([replace(one, sample=one.sample + _AGAIN) for one in requests])

    return ask_again
