"""Does `factuality` see a false claim? Turns with one planted, compared with their untouched twins.

    python benchmarks/facts_of_twins.py recipe.yaml --limit 20 --replies replies.sqlite

The judge is the recipe's, and so is the section `factuality`. The cases are those of `curate probe` whose flaw is a false
claim that the dialogue itself gives away: a number or a name that was said before (`contradiction`) or that a tool gave
(`misread_result`) became another one. Only the turn in question is asked about. They come one a dialogue, then a second;
every reply is kept, so the same command goes on where it stopped, and `--minutes` stops it by itself.

- lower: the planted turn has the lower precision; a tie is half, so a judge that sees nothing has .50. A turn that claims
  nothing counts as 1, as in the verification of forks.
- called false: turns with a claim labelled false.

The interval is that of the probe's card: clustered by dialogue.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from asking import planted_parser, table
from compare_modes import Meter

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Ask
from curate.judging.factuality import FactualityConfig, claims_of_turn
from curate.recipe import Recipe, load_recipe
from curate.records import ProbeOutcome, Unscored
from curate.records.factuality import TurnClaims
from curate.run.probe_plan import CASES, draw_cases
from curate.stages import model_pool
from curate.trust.probe_card import clustered
from curate.trust.probe_cases import ProbeCase
from curate.trust.probe_outcomes import higher

KINDS = ("contradiction", "misread_result")
Sides = tuple[TurnClaims | Unscored, TurnClaims | Unscored]
"""The untouched turn and the planted one."""


def spread(cases: Sequence[ProbeCase], limit: int) -> list[ProbeCase]:
    """The cases of the kinds, one of each dialogue first, then the second ones, up to a limit."""
    held = [case for case in cases if case.kind in KINDS]
    seen: Counter[str] = Counter()
    rounds = []
    for at, case in enumerate(held):
        rounds.append((seen[case.group], at))
        seen[case.group] += 1
    return [held[at] for _, at in sorted(rounds)[:limit]]


async def ask_sides(case: ProbeCase, ask: Ask, config: FactualityConfig) -> Sides:
    untouched = await claims_of_turn(case.untouched, case.turn, ask, config)
    return untouched, await claims_of_turn(case.planted, case.turn, ask, config)


def precision_of(claims: TurnClaims) -> float:
    return 1.0 if claims.precision is None else claims.precision


def is_called_false(claims: TurnClaims) -> bool:
    return any(claim.label == "false" for claim in claims.claims)


def report(read: Sequence[tuple[ProbeCase, Sides]]) -> str:
    """A row for each kind and one for all, and what was left out."""
    both = [
        (case, untouched, planted)
        for case, (untouched, planted) in read
        if isinstance(untouched, TurnClaims) and isinstance(planted, TurnClaims)
    ]
    rows = []
    for name, kinds in (*((kind, (kind,)) for kind in KINDS), ("all", KINDS)):
        held = [sides for sides in both if sides[0].kind in kinds]
        if not held:
            continue
        outcomes = [
            ProbeOutcome(
                line="detection",
                case=case.key,
                group=case.group,
                value=higher(precision_of(untouched) - precision_of(planted)),
                against=0.5,
            )
            for case, untouched, planted in held
        ]
        figures = clustered(outcomes, "share")
        ends = "too few" if figures is None else "{:.2f} to {:.2f}".format(*figures.interval)
        rows.append(
            (
                name,
                f"{len(held)}, {len({case.group for case, *_ in held})}",
                f"{fmean(outcome.value for outcome in outcomes):.2f} ({ends})",
                *(f"{fmean(precision_of(sides[at]) for sides in held):.2f}" for at in (1, 2)),
                *(f"{sum(is_called_false(sides[at]) for sides in held)}" for at in (1, 2)),
            )
        )
    heads = ("flaw", "cases, dialogues", "lower", "precision untouched", "planted", "called false: untouched", "planted")  # fmt: skip
    lost = [side.reason for _, sides in read for side in sides if isinstance(side, Unscored)]
    counts = ", ".join(f"{reason}: {count}" for reason, count in Counter(lost).items())
    return f"{table(heads, rows)}\n{len(lost)} of {2 * len(read)} turns unscored {counts}".rstrip()


async def ask_all(
    recipe: Recipe, cases: Sequence[ProbeCase], args: argparse.Namespace
) -> list[tuple[ProbeCase, Sides]]:
    """Ask about all sides until the time is over, and print what they cost."""
    start = time.monotonic()
    read = []
    config = recipe.factuality or FactualityConfig()
    async with (
        model_pool(recipe) as models,
        models.asking(args.replies, Accounting(), Budget()) as asks,
    ):
        meter = Meter(asks.judge)
        for case in cases:
            if time.monotonic() - start > 60 * args.minutes:
                break
            read.append((case, await ask_sides(case, meter, config)))
            print(f"\r{len(read)}/{len(cases)}", end="", flush=True)
    counts = meter.counts
    print(
        f"\n{counts['requests']:,} requests (kept replies included), {counts['prompt']:,} tokens in, "
        f"{counts['prompt'] - counts['cached']:,} of them prefilled, {counts['generated']:,} out; "
        f"{time.monotonic() - start:.0f} seconds"
    )
    return read


def main() -> None:
    args = planted_parser(__doc__, limit=20).parse_args()
    recipe = load_recipe(args.recipe)
    cases = spread(draw_cases(recipe, limit=CASES, seed=args.seed).cases, args.limit)
    print(report(asyncio.run(ask_all(recipe, cases, args))))


if __name__ == "__main__":
    main()
