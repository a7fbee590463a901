"""Try a recipe's judge on planted flaws: plan the cases, ask the judge, make its score card.

The flaws come from `trust.probe_cases`, the statistics from `trust.probe_card`; the questions are the judge's own and
those of verification. Here they are joined to a recipe and its run folder. Replies are kept in the run folder, so a probe
that was stopped goes on where it stopped, and a second card of the same cases needs no model calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from curate.run.probe_asking import Probed, Prober, plant_by_policy, rubric_of
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
    """Plant flaws and count what asking about them takes; no model calls.

    Args:
        recipe, data, limit, seed, by_policy: as for `draw_cases`.
        rates: of the judge, for the time; None where they are not known.

    Raises:
        UsageError: as `draw_cases`.
    """
    plan = _with_estimate(recipe, draw_cases(recipe, data, limit, seed, by_policy))
    load = plan.load
    seconds = None if rates is None else rates.seconds(load.prefilled, load.completion)
    return replace(plan, rates=rates, seconds=seconds)


def _with_estimate(recipe: Recipe, plan: ProbePlan) -> ProbePlan:
    """Return the plan with its load and cost, for a judge that gives log-probabilities unless the recipe says JSON."""
    rubric = rubric_of(recipe)
    mode = "json" if rubric.mode == "json" else "tokens"
    capability = Capability.JSON_SCHEMA if mode == "json" else Capability.LABEL_LOGPROBS
    engine = EngineFacts(EngineIdentity("", ""), frozenset({capability}), 1)
    stand_in = StandIn()
    replies: dict[str, Completion] = {}

    async def ask(requests: Sequence[Request]) -> list[Completion]:
        completions = []
        for request in requests:
            key = request.key(engine.identity)
            if key not in replies:
                (replies[key],) = await stand_in([request])
            completions.append(replies[key])
        return completions

    plain = rubric.model_copy(update={"mode": mode, "calibration": None})
    verifier = bind_verifier(plain, [engine])
    prober = Prober.of(plan, judge_stage(plain, engine), verifier, Asks.of(ask))
    for job in prober.jobs():
        settled(job())
    # Each judge counts as asked about everything, the second of a cascade, too.
    judges = len(recipe.models.judges_by_role)
    load = Meter(BY_CHARACTERS).load(stand_in.calls).times(judges)
    lead = recipe.models.lead
    return replace(plan, load=load, cost=load.cost(lead.prices if lead and judges == 1 else None))


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
        progress: called with steps done and all steps.

    Raises:
        UsageError: no judge is named.
        EngineError: the judge cannot be reached or used, or the first 50 dialogues all failed.
        BudgetReached: a limit is used up; the replies so far are kept.
    """
    no_other_stages = {"fork": False, "metrics": False, "adherence": False, "factuality": False}
    recipe = recipe.checked().model_copy(update=no_other_stages)

    async def ask_all() -> tuple[Prober, dict[str, str]]:
        configs = recipe.models
        if configs.lead is None:
            raise UsageError("no judge is named", expected="models.judge")
        pool = ModelPool(
            configs.lead,
            configs.policy if plan.by_policy else None,
            judges=configs.judges_by_role,
            redact=recipe.redact,
        )
        async with pool as models:
            rubric = rubric_of(recipe)
            stage = rubric_stage(rubric, models.judges, configs.cascade)
            verifier = bind_verifier(rubric, scorers(models, configs.cascade))
            recipe_stage = rubric_stage(
                recipe.judge or RubricConfig(), models.judges, configs.cascade
            )
            budget = Budget(**recipe.budget.model_dump())
            async with models.asking(replies, Accounting(), budget) as asks:
                final_plan = await plant_by_policy(plan, asks.policy, models.policy.open_dialogues)
                prober = Prober.of(final_plan, stage, verifier, asks)
                jobs = list(prober.jobs())
                done = 0

                def count(_: object, __: None) -> None:
                    nonlocal done
                    done += 1
                    if progress is not None:
                        progress(done, len(jobs))

                open_at_once = models.facts.open_dialogues(StageName.JUDGE)
                await for_each(jobs, lambda job: job(), count, open_at_once=open_at_once)
            return prober, {StageName.JUDGE.value: recipe_stage.result}

    prober, fingerprints = run_in_loop(ask_all())
    return prober.result(fingerprints)


def outcomes_path(run: Path) -> Path:
    """Return the path of the outcomes behind a run's card."""
    return report_path(run, TrustKind.PROBE).with_name("probe-outcomes.jsonl")


def write_probe(run: Path, probed: Probed) -> Path:
    """Write the card and the outcomes behind it into a run folder; return the card's path.

    Raises:
        RunLockedError: another process is writing the folder.
    """
    path = write_trust_report(run, probed.report)
    with atomic_file(outcomes_path(run)) as out:
        for outcome in probed.outcomes:
            out.write(orjson.dumps(outcome.model_dump(mode="json")) + b"\n")
    return path


def read_probe(run: Path) -> Probed | None:
    """Return the card of a run folder with its outcomes; None where there is none.

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
    """Compare two cards over the cases that both have.

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
        side: [line.name for line in lines if line.better == side] for side in ("first", "second")
    }
    advantages = [
        f"the {side} does better in {', '.join(name.replace('_', ' ') for name in names)}"
        for side, names in better.items()
        if names
    ]
    detectable = [line.detectable for line in lines if line.name == "detection" and line.detectable]
    sentence = "; ".join(advantages) + "." if advantages else "No line tells the two apart."
    if detectable:
        sentence += f" A difference of {detectable[0]:.2f} in detection would have been seen with 80 % power."
    return ProbeComparison(
        first=first.report.identity,
        second=second.report.identity,
        sentence=sentence[0].upper() + sentence[1:],
        lines=lines,
        only_first=len(keys[0] - keys[1]),
        only_second=len(keys[1] - keys[0]),
    )
