"""Try a recipe's judge on planted flaws: plan the cases, ask the judge, make its score card.

The flaws are `trust.probe_cases`, the statistics `trust.probe_card`, the questions the judge's own and those of
verification. Here they are joined to a recipe and its run folder. Replies are kept in the run folder, so a probe that
was stopped goes on where it stopped, and a second card of the same cases costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Capability, Completion, EngineIdentity, Request
from curate.engines.model_pool import Asks, EngineFacts, ModelPool
from curate.engines.stand_in import StandIn, settled
from curate.errors import CurateError, UsageError
from curate.executors.local import for_each
from curate.executors.loop import run as run_in_loop
from curate.judging.config import RubricConfig
from curate.planning.metering import BY_CHARACTERS, Meter
from curate.recipe import Recipe
from curate.records import (
    ProbeComparison,
    ProbeOutcome,
    ProbeReport,
    Rates,
    StageName,
    TrustKind,
)
from curate.records.validation import load_record
from curate.run.probe_asking import Probed, Prober, planted_by_policy, rubric_of
from curate.run.probe_plan import CASES, ProbePlan, draw_cases
from curate.run.trust_reports import read_trust_report, report_path, write_trust_report
from curate.stages import bind_verifier, judge_stage, rubric_stage, scorers
from curate.storage.whole_files import atomic_file, damaged
from curate.trust.probe_card import compare_lines


def plan_probe(
    recipe: Recipe,
    data: str | None = None,
    limit: int = CASES,
    seed: int = 42,
    by_policy: int = 0,
    rates: Rates | None = None,
) -> ProbePlan:
    """Plant flaws and count what asking about them takes, as `draw_cases`; no model calls.

    Args:
        rates: of the judge, for the time; None where they are not known.
    """
    plan = _estimated(recipe, draw_cases(recipe, data, limit, seed, by_policy))
    load = plan.load
    seconds = None if rates is None else rates.seconds(load.prefilled, load.completion)
    return replace(plan, rates=rates, seconds=seconds)


def _estimated(recipe: Recipe, plan: ProbePlan) -> ProbePlan:
    """The plan with what it takes, of a judge that gives log-probabilities unless the recipe says JSON."""
    rubric = rubric_of(recipe)
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
    verifier = bind_verifier(plain, [nobody])
    prober = Prober.of(plan, judge_stage(plain, nobody), verifier, Asks.of(ask))
    for job in prober.jobs():
        settled(job())
    # Of several judges each is asked, as if the second of a cascade were about all of it.
    several = len(recipe.models.judges_by_role)
    load = Meter(BY_CHARACTERS).load(stand_in.asked).times(several)
    lead = recipe.models.lead
    return replace(plan, load=load, cost=load.cost(lead.prices if lead and several == 1 else None))


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

    async def ask_all() -> tuple[Prober, dict[str, str]]:
        named = asked.models
        if named.lead is None:
            raise UsageError("no judge is named", expected="models.judge")
        pool = ModelPool(
            named.lead,
            named.policy if plan.by_policy else None,
            judges=named.judges_by_role,
            redact=asked.redact,
        )
        async with pool as models:
            rubric = rubric_of(asked)
            stage = rubric_stage(rubric, models.judges, named.cascade)
            several = scorers(models, named.cascade)
            verifier = bind_verifier(rubric, several)
            own = rubric_stage(asked.judge or RubricConfig(), models.judges, named.cascade)
            budget = Budget(**asked.budget.model_dump())
            async with models.asking(replies, Accounting(), budget) as asks:
                written = await planted_by_policy(plan, asks.policy, models.policy.open_dialogues)
                prober = Prober.of(written, stage, verifier, asks)
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
            return prober, {StageName.JUDGE.value: own.result}

    prober, fingerprints = run_in_loop(ask_all())
    return prober.probed(fingerprints)


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
