"""Try a recipe's judge on planted flaws: plan the cases, ask the judge, make its score card.

The flaws are `trust.probe_cases`, the statistics `trust.probe_card`, the questions the judge's own and those of
verification. Here they are joined to a recipe and its run folder. Replies are kept in the run folder, so a probe that
was stopped goes on where it stopped, and a second card of the same cases costs nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean, median

import orjson

from curate.dialogue import Dialogue
from curate.engines.accounting import Accounting, Budget, cost_of
from curate.engines.base import Ask, Capability, Completion, EngineIdentity, Request, Usage
from curate.engines.pool import Asks, Described, EngineFacts
from curate.engines.stand_in import StandIn, settled
from curate.errors import CurateError, UsageError
from curate.executors.first_rows import FirstRows
from curate.executors.local import for_each
from curate.executors.loop import run as run_in_loop
from curate.judging.config import RubricConfig
from curate.pairs.asks import JudgeAsks
from curate.pairs.config import VerifyConfig
from curate.pairs.flaw_kind import kind_question
from curate.pairs.letters import ask_choice
from curate.pairs.prefix import with_messages
from curate.pairs.verify import compare_orders
from curate.planning.metering import BY_CHARACTERS, Load, Meter
from curate.recipe import Recipe, parse_source
from curate.records import (
    Judgment,
    PairCheck,
    ProbeComparison,
    ProbeOutcome,
    ProbeReport,
    StageName,
    TrustKind,
    Unscored,
)
from curate.records.validation import load_record
from curate.run.sample_dialogues import sample_dialogues
from curate.run.trust_reports import read_trust_report, report_path, write_trust_report
from curate.sources import open_source
from curate.sources.sample import sample_rewordings
from curate.stages import (
    Judged,
    Stage,
    WorkItem,
    bind_judge,
    judge_stage,
    make_row,
    model_pool,
    rubric_stage,
)
from curate.storage.files import atomic_file, damaged
from curate.trust.probe_card import card_lines, card_sentence, compare_lines
from curate.trust.probe_cases import (
    KIND_SENTENCES,
    Case,
    counted,
    plant_cases,
    shortened,
)
from curate.trust.probe_outcomes import Reading, Readings, outcomes_of
from curate.trust.probe_variants import (
    Variant,
    clean_variants,
    hidden_instructions,
    swapped_sides,
)

CASES = 312
"""Planted flaws of a whole card: 24 of each kind, where the dialogues have room for as many."""
LEAST_CASES = 13
_SHARE_OF_LINE = 10
"""Of each further line there is one case for so many planted flaws."""
_LEAST_OF_LINE = 8
_POOL = 4
"""Dialogues read for each case, at most."""
_KINDS: dict[str, str] = {str(kind): said for kind, said in KIND_SENTENCES.items()}
_OPINIONS = ("judge.verdict", "judge.weakest")
_AGAIN = 1000
"""Number of the sample that a repeated question is asked as: another draw, kept apart from the first."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What a judge is to be asked.

    Attributes:
        cases: planted flaws with their twins.
        variants: dialogues in two versions.
        sides: cases whose two sides are shown together.
        again: dialogues that are judged twice, and whose last turn is asked about in other words.
        source: which dialogues these are made from.
        load: of all of it, tokens counted at 4 characters each.
        cost: at the recipe's prices and without a prefix cache; None where the judge has none.
        planted_by: cases by who planted them.
        not_planted: asked of a policy and not used, by reason.
    """

    cases: tuple[Case, ...]
    variants: tuple[Variant, ...]
    sides: tuple[Case, ...]
    again: tuple[Dialogue, ...]
    source: str
    seed: int
    load: Load = field(default_factory=Load)
    cost: float | None = None
    planted_by: dict[str, int] = field(default_factory=dict)
    not_planted: dict[str, int] = field(default_factory=dict)

    @property
    def judged(self) -> list[Dialogue]:
        """Every dialogue to be judged, once; those that share a start stand together."""
        held: dict[str, dict[str, Dialogue]] = {}

        def add(group: str, *dialogues: Dialogue | None) -> None:
            for dialogue in filter(None, dialogues):
                held.setdefault(group, {})[dialogue.content_hash] = dialogue

        for dialogue in self.again:
            add(dialogue.content_hash, dialogue)
        for case in self.cases:
            add(case.group, case.untouched, case.planted, case.harmless)
        for variant in self.variants:
            add(variant.group, variant.first, variant.second)
        return list({key: one for of in held.values() for key, one in of.items()}.values())


def plan_probe(
    recipe: Recipe, data: str | None = None, limit: int = CASES, seed: int = 42
) -> ProbePlan:
    """Plant flaws and count what asking about them takes; no model calls.

    Args:
        recipe: names the judge; its role and scenario are those of dialogues that carry none.
        data: a path or Hub id of dialogues that are good as they are; the sample's where None.
        limit: most planted flaws. Of each other line there are a tenth as many, at least 8.
        seed: of the draws.

    Raises:
        UsageError: no judge is named; the data has no room for flaws.
    """
    if recipe.models.lead is None:
        raise UsageError("no judge is named", expected="models.judge")
    rewordings, translated = sample_rewordings()
    clean = _clean_dialogues(recipe, data, limit, seed)
    cases = plant_cases(clean, limit, rewordings=rewordings, seed=seed) if clean else []
    if len(cases) < min(limit, LEAST_CASES):
        raise UsageError(
            "the dialogues have too little room for planted flaws",
            got=f"{len(cases)} flaws in {len(clean)} dialogues",
            expected=f"at least {LEAST_CASES}",
            fix="name more dialogues, or leave --data out: the sample has room for 300",
        )
    each = max(_LEAST_OF_LINE, limit // _SHARE_OF_LINE)
    drawn = random.Random(seed).sample(clean, len(clean))
    plan = ProbePlan(
        cases=tuple(cases),
        variants=(
            *clean_variants(drawn, each, translated, seed),
            *hidden_instructions(cases, each, seed),
        ),
        sides=tuple(swapped_sides(cases, each, seed)),
        again=tuple(drawn[:each]),
        source="curate's sample dialogues" if data is None else data,
        seed=seed,
        planted_by={"edits": len(cases)},
    )
    return _estimated(recipe, plan)


def _clean_dialogues(recipe: Recipe, data: str | None, limit: int, seed: int) -> list[Dialogue]:
    if data is None:
        return [shortened(dialogue) for dialogue in sample_dialogues(recipe)]
    read = open_source(parse_source({"path": data})).read(
        recipe.role, recipe.scenario, recipe.role_from
    )
    dialogues: dict[str, Dialogue] = {}
    for dialogue in (held for unit in read for held in unit.dialogues):
        if any(turn.in_rubric for turn in dialogue.turns):
            short = shortened(dialogue)
            dialogues.setdefault(short.content_hash, short)
        if len(dialogues) >= _POOL * limit:
            break
    # As many dialogues as cases are enough, and of one order whatever the file's.
    names = sorted(dialogues)
    return [dialogues[key] for key in random.Random(seed).sample(names, len(names))[:limit]]


def _estimated(recipe: Recipe, plan: ProbePlan) -> ProbePlan:
    """The plan with what it takes, of a judge that gives log-probabilities unless the recipe says JSON."""
    rubric = _rubric(recipe)
    mode = "json" if rubric.mode == "json" else "tokens"
    capability = Capability.JSON_SCHEMA if mode == "json" else Capability.LABEL_LOGPROBS
    nobody = EngineFacts(EngineIdentity("", ""), frozenset({capability}), 1)
    stand_in = StandIn()
    kept: dict[str, Completion] = {}

    async def ask(requests: Sequence[Request]) -> list[Completion]:
        completions = []
        for request in requests:
            key = request.key(nobody.identity)
            if key not in kept:
                (kept[key],) = await stand_in([request])
            completions.append(kept[key])
        return completions

    plain = rubric.model_copy(update={"mode": mode, "calibration": None})
    prober = _Prober.of(plan, plain, judge_stage(plain, nobody), nobody, Asks.of(ask))
    for job in prober.jobs():
        settled(job())
    # Of several judges each is asked, as if the second of a cascade were about all of it.
    several = len(recipe.models.judges_by_role)
    load = Meter(BY_CHARACTERS).load(stand_in.asked).times(several)
    prices = recipe.models.lead.prices if recipe.models.lead else None
    cost = None
    if prices is not None and several == 1:
        usage = Usage(prompt_tokens=round(load.prompt), completion_tokens=round(load.completion))
        cost = cost_of(usage, prices)
    return replace(plan, load=load, cost=cost)


def _rubric(recipe: Recipe) -> RubricConfig:
    """How the recipe's judge scores, without words and opinions, which no line of the card reads."""
    rubric = recipe.judge or RubricConfig()
    return rubric.model_copy(update={"text": "off", "persona_check": 0, "on_mismatch": "use_rule"})


@dataclass(frozen=True, slots=True)
class Probed:
    """A judge's card and the outcomes behind it."""

    report: ProbeReport
    outcomes: tuple[ProbeOutcome, ...]

    @property
    def unscored_share(self) -> float:
        """Share of all that was asked that came to nothing, 0-1."""
        return sum(self.report.unscored.values()) / max(1, self.report.asked)


def probe_judge(
    recipe: Recipe,
    plan: ProbePlan,
    replies: Path,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Probed:
    """Ask the recipe's judge about all cases and make its card.

    Args:
        recipe: names the judge and how it scores; prices, budget and redaction hold as in a run.
        plan: of the same recipe.
        replies: file that keeps the replies, so that none is asked for twice.
        progress: told steps done and all steps.

    Raises:
        EngineError: the judge cannot be reached or used, or nothing came of the first 50 dialogues.
        BudgetReached: a limit is used up; what was received is kept.
    """
    alone = {"fork": False, "metrics": False, "adherence": False, "factuality": False}
    asked = recipe.checked().model_copy(update=alone)

    async def ask_all() -> tuple[_Prober, dict[str, str]]:
        async with model_pool(asked) as models:
            rubric = _rubric(asked)
            cascade = asked.models.cascade
            stage = rubric_stage(rubric, models.judges, cascade)
            if stage.judges:
                rubric = rubric.model_copy(update={"calibration": None})  # not the lead judge's
            resolved = rubric.model_copy(update={"mode": judge_stage(rubric, models.judge).mode})
            own = rubric_stage(asked.judge or RubricConfig(), models.judges, cascade)
            budget = Budget(**asked.budget.model_dump())
            async with models.asking(replies, Accounting(), budget) as asks:
                prober = _Prober.of(plan, resolved, stage, models.judge, asks)
                jobs = list(prober.jobs())
                done = 0

                def count(_: object, __: None) -> None:
                    nonlocal done
                    done += 1
                    if progress is not None:
                        progress(done, len(jobs))

                async def work(job: Callable[[], Awaitable[None]]) -> None:
                    await job()

                await for_each(
                    jobs, work, count, open_at_once=models.facts.open_dialogues(StageName.JUDGE)
                )
            return prober, {StageName.JUDGE.value: own.fingerprint}

    prober, fingerprints = run_in_loop(ask_all())
    return prober.probed(fingerprints)


@dataclass(slots=True)
class _Prober:
    """Asks a judge all that a plan has, and keeps what it said.

    Attributes:
        stage: judges dialogues, as the recipe's judge does.
        asks: the models.
        rubric: its mode resolved.
        judging: the questions of verification.
    """

    plan: ProbePlan
    rubric: RubricConfig
    stage: Stage[Judged]
    asks: Asks
    judging: JudgeAsks
    verify: VerifyConfig = field(default_factory=VerifyConfig)
    first_rows: FirstRows = field(default_factory=lambda: FirstRows(StageName.JUDGE))
    judged: dict[str, Reading] = field(default_factory=dict)
    again: dict[str, Reading] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    picks: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    wordings: dict[str, float] = field(default_factory=dict)
    unscored: Counter[str] = field(default_factory=Counter)
    asked: int = 0

    @classmethod
    def of(
        cls,
        plan: ProbePlan,
        rubric: RubricConfig,
        stage: Stage[Judged],
        engine: Described,
        asks: Asks,
    ) -> _Prober:
        """A prober of a judge that is open.

        Args:
            rubric: its mode resolved.
            stage: the same rubric bound to the engine.
        """
        asks = asks.with_judges(_without_opinions)
        return cls(plan, rubric, stage, asks, bind_judge(asks.judge, rubric, engine))

    def jobs(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """All that is to be asked, dialogues that share a start one after the other."""
        for dialogue in self.plan.judged:
            yield partial(self._judge, dialogue)
        for case in self.plan.cases:
            yield partial(self._name_kind, case)
        for case in self.plan.sides:
            yield partial(self._pick_side, case)
        for dialogue in self.plan.again:
            yield partial(self._judge_again, dialogue)
            yield partial(self._reword, dialogue)

    async def _judge(self, dialogue: Dialogue) -> None:
        row = await self._row(dialogue, self.asks)
        self.first_rows.see(row)
        if isinstance(row, Judgment):
            self.judged[dialogue.content_hash] = Reading.of(row)

    async def _judge_again(self, dialogue: Dialogue) -> None:
        row = await self._row(dialogue, replace(self.asks, judge=_another_draw(self.asks.judge)))
        if isinstance(row, Judgment):
            self.again[dialogue.content_hash] = Reading.of(row)

    async def _row(self, dialogue: Dialogue, asks: Asks) -> Judged:
        self.asked += 1
        row = await make_row(self.stage, WorkItem(dialogue), asks)
        if isinstance(row, Judgment) and self.stage.calibrated is not None:
            row = self.stage.calibrated.apply(row)
        if isinstance(row, Unscored):
            self.unscored[row.reason] += 1
        assert isinstance(row, Judgment | Unscored)
        return row

    async def _name_kind(self, case: Case) -> None:
        self.asked += 1
        draw = random.Random(f"{self.plan.seed} {case.key}")
        question = kind_question(case.planted, case.turn, _KINDS, draw)
        choice = await ask_choice([question], self.judging, self.verify.min_coverage)
        if choice.best is None:
            self.unscored[choice.reason] += 1
        else:
            self.kinds[case.key] = choice.best

    async def _pick_side(self, case: Case) -> None:
        self.asked += 1
        prompt = with_messages(case.untouched, case.untouched.messages[: case.index])
        better, worse = (held.messages[case.index] for held in (case.untouched, case.planted))
        outcome = await compare_orders(
            prompt, better, worse, PairCheck(), self.judging, self.verify
        )
        first, second = outcome.check.preferred_first, outcome.check.preferred_second
        if first is None or second is None:
            self.unscored[outcome.check.unscored or "bad_reply"] += 1
        else:
            self.picks[case.key] = (first, second)

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

    def probed(self, fingerprints: dict[str, str]) -> Probed:
        """The card of what was read."""
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
            kinds=counted(plan.cases),
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


def _without_opinions(ask: Ask) -> Ask:
    """The same without the judge's own verdict and weakest turn, which no line reads: a quarter of what is asked."""

    async def asked(requests: Sequence[Request]) -> list[Completion]:
        needed = [held for held in requests if held.purpose not in _OPINIONS]
        replies = iter(await ask(needed) if needed else [])
        return [
            next(replies) if held.purpose not in _OPINIONS else Completion() for held in requests
        ]

    return asked


def _another_draw(ask: Ask) -> Ask:
    """The same questions as other samples of the same prompts: none of the kept replies of the first answers them."""

    async def asked(requests: Sequence[Request]) -> list[Completion]:
        return await ask([replace(held, sample=held.sample + _AGAIN) for held in requests])

    return asked


def outcomes_path(run: Path) -> Path:
    """Where the outcomes behind a run's card lie."""
    return report_path(run, TrustKind.PROBE).with_name("probe-outcomes.jsonl")


def write_probe(run: Path, probed: Probed) -> Path:
    """Keep the card in a run folder, and the outcomes behind it beside it; return the card's path.

    Raises:
        RunLockedError: another process is writing the folder.
    """
    path = write_trust_report(run, probed.report)
    with atomic_file(outcomes_path(run)) as out:
        for outcome in probed.outcomes:
            out.write(orjson.dumps(outcome.model_dump(mode="json")) + b"\n")
    return path


def read_probe(run: Path) -> Probed | None:
    """The card of a run folder with its outcomes; None where there is none.

    Raises:
        CurateError: it is damaged.
    """
    report = read_trust_report(run, ProbeReport, TrustKind.PROBE)
    path = outcomes_path(run)
    if report is None or not path.is_file():
        return None
    outcomes = []
    for line in path.read_bytes().splitlines():
        try:
            outcomes.append(load_record(ProbeOutcome, orjson.loads(line)))
        except (orjson.JSONDecodeError, CurateError) as error:
            raise damaged(path, error) from error
    return Probed(report, tuple(outcomes))


def compare_probes(first: Probed, second: Probed) -> ProbeComparison:
    """Two cards held against each other over the cases that both have.

    Raises:
        UsageError: they have no case in common.
    """
    keys = [{(o.line, o.case) for o in probed.outcomes} for probed in (first, second)]
    if not keys[0] & keys[1]:
        raise UsageError(
            "the two cards have no case in common",
            got=f"{first.report.source} (seed {first.report.seed}) and {second.report.source} "
            f"(seed {second.report.seed})",
            expected="the same --data and --seed",
        )
    lines = compare_lines(first.outcomes, second.outcomes)
    better = {
        side: [held.name for held in lines if held.better == side] for side in ("first", "second")
    }
    said = [
        f"the {side} does better in {', '.join(name.replace('_', ' ') for name in names)}"
        for side, names in better.items()
        if names
    ]
    unseen = [held.detectable for held in lines if held.name == "detection" and held.detectable]
    sentence = "; ".join(said) + "." if said else "No line tells the two apart."
    if unseen:
        sentence += (
            f" A difference of {unseen[0]:.2f} in detection would have been seen with 80 % power."
        )
    return ProbeComparison(
        first=first.report.identity,
        second=second.report.identity,
        sentence=sentence[0].upper() + sentence[1:],
        lines=lines,
        only_first=len(keys[0] - keys[1]),
        only_second=len(keys[1] - keys[0]),
    )
