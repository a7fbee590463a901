"""Which rule accepts truly better pairs? Planted twins whose truth is known, one set of readings, several rules.

    python benchmarks/compare_pairs.py ask --model judge.gguf --data mtbench101.jsonl --out readings.jsonl
    python benchmarks/compare_pairs.py report readings.jsonl [more.jsonl ...]

`ask` plants one flaw in one reply of each of `--pairs` dialogues (`curate.trust.twins`) and asks the judge all
that verification asks about the two replies; each pair's readings are a line, and it goes on where it stopped.

`report` compares four rules on the same readings, each pair as it is and reversed:

- margin and both letters: the mean score of the chosen side higher by max(0.3, 2 * hypot of both sides' standard
  deviations over the wordings) or more, no dimension lower by more than that hypot of its own, and the likelier
  letter for the chosen side in both orders;
- both letters: the last of these alone;
- preference above the spread: the mean log-odds over both orders above the standard deviation of the position's
  pull, which is what decides without a curve;
- curve: each pair by weights and a threshold fitted to pairs of other kinds in other dialogues, as `curate calibrate`
  tells its figures: each kind is held out, with each fifth of the dialogues.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import fmean, pstdev, stdev

import numpy as np
from asking import add_judge, add_material, asked_before, open_judge, table

from curate import load_dialogues
from curate.dialogue import Dialogue, Message
from curate.engines.base import Engine
from curate.engines.label_mass import read_label_mass
from curate.judging.config import RubricConfig
from curate.judging.turn_rescoring import score_turn
from curate.pairs.closed_questions import letter_request
from curate.pairs.pair_prompts import ClosedQuestion, comparison
from curate.pairs.prefix import with_messages
from curate.pairs.verification import cut_after, token_ratio
from curate.records import TURN_DIMENSIONS, Unscored
from curate.trust.agreement import (
    Statistic,
    bootstrap_interval,
    resampled_aucs,
)
from curate.trust.pair_curve import CrossValidation, HeldOut, KnownPair
from curate.trust.twins import Twin, plant_twins

WORDINGS = 2
PRECISION = 0.9
LEAST = 40
"""Pairs below which a report says nothing."""

Scores = dict[str, float]


async def read_letters(engine: Engine, questions: list[ClosedQuestion]) -> list[dict[str, float]]:
    """Return the log-probability by letter, and `coverage`."""
    replies = await engine.complete(list(map(letter_request, questions)))
    masses = [
        read_label_mass(reply, question.labels)
        for reply, question in zip(replies, questions, strict=True)
    ]
    return [{**mass.logprobs, "coverage": mass.coverage} for mass in masses]


async def read_side(engine: Engine, prompt: Dialogue, side: Message, turn: int) -> list[dict]:
    """Return the three scores of a side under each wording."""
    config = RubricConfig(mode="tokens", text="off")
    part = cut_after(prompt, side)
    read = [
        await score_turn(part, turn, engine.complete, config, wording=wording)
        for wording in range(WORDINGS)
    ]
    return [{"unscored": r.reason} if isinstance(r, Unscored) else dict(r.values) for r in read]


async def read_twin(engine: Engine, twin: Twin, *, is_brief: bool) -> dict:
    """Return all readings of a pair; `orders` are P(A), P(B) with the original first, then second.

    A brief reading has scores only where the letters agree over both orders: elsewhere no rule on scores and
    letters can pass the pair, whatever the scores are.
    """
    prompt = with_messages(twin.dialogue, twin.prompt)
    original, degraded = twin.original, twin.degraded
    orders = await read_letters(
        engine, [comparison(prompt, original, degraded), comparison(prompt, degraded, original)]
    )
    sides = {}
    if not is_brief or _letters_agree(*orders):
        sides = {
            "original": await read_side(engine, prompt, original, twin.turn),
            "degraded": await read_side(engine, prompt, degraded, twin.turn),
        }
    return {
        "dialogue": twin.dialogue.id,
        "turn": twin.turn,
        "kind": twin.kind,
        "task": twin.dialogue.labels.get("task") or twin.dialogue.metadata.get("task"),
        "orders": orders,
        "ratio": token_ratio(original, degraded),
        **sides,
    }


def _letters_agree(original_first: Scores, degraded_first: Scores) -> bool:
    """Return whether the likelier letter is the same reply's in both orders."""
    if not all({"A", "B"} <= order.keys() for order in (original_first, degraded_first)):
        return False
    return (original_first["A"] > original_first["B"]) == (
        degraded_first["B"] > degraded_first["A"]
    )


async def ask(args: argparse.Namespace) -> None:
    dialogues = [
        dialogue.model_copy(update={"scenario": dialogue.scenario or args.scenario})
        for dialogue in load_dialogues(args.data).dialogues
        if (dialogue.labels.get("task") or dialogue.metadata.get("task")) not in args.leave_out
    ]
    twins = plant_twins(dialogues, args.pairs, seed=args.seed)
    done = asked_before(args.out)
    engine = await open_judge(args)
    part, parts = map(int, args.part.split("/"))
    for number, twin in enumerate(twins):
        if number % parts != part or twin.dialogue.id in done:
            continue
        start = time.perf_counter()
        line = await read_twin(engine, twin, is_brief=args.brief)
        line["seconds"] = round(time.perf_counter() - start, 1)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{number}/{len(twins)} {twin.kind} {line['seconds']} s", file=sys.stderr, flush=True)
    await engine.close()


@dataclass(frozen=True, slots=True)
class Reading:
    """A judge's readings of a pair, with one side as the chosen one.

    Attributes:
        is_better: the chosen side is the original.
        log_odds: that chosen is better, shown first and shown second.
        chosen, rejected: scores by wording; empty where they were not asked for.
    """

    dialogue: str
    kind: str
    is_better: bool
    log_odds: tuple[float, float]
    chosen: Sequence[Scores]
    rejected: Sequence[Scores]

    @property
    def preference(self) -> float:
        return fmean(self.log_odds)

    @property
    def margin(self) -> float:
        return _mean(self.chosen, _compared) - _mean(self.rejected, _compared)

    def noise(self, value: Callable[[Scores], float]) -> float:
        """Of a difference, the sides taken for unpaired."""
        return math.hypot(*(stdev(map(value, side)) for side in (self.chosen, self.rejected)))

    def turned(self) -> Reading:
        first, second = self.log_odds
        return replace(
            self,
            is_better=not self.is_better,
            log_odds=(-second, -first),
            chosen=self.rejected,
            rejected=self.chosen,
        )


def _compared(scores: Scores) -> float:
    return fmean(scores[name] for name in TURN_DIMENSIONS)


def _mean(side: Sequence[Scores], value: Callable[[Scores], float]) -> float:
    return fmean(map(value, side))


def read(files: Iterable[Path]) -> tuple[list[Reading], int]:
    """Return the pairs of all files, the original as the chosen side, and how many the judge could not answer about."""
    readings: dict[str, Reading] = {}
    unread = 0
    for line in (line for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        held = json.loads(line)
        first, second = held["orders"]
        sides: tuple[list[Scores], list[Scores]] = (
            held.get("original", []),
            held.get("degraded", []),
        )
        is_read = all(order.keys() >= {"A", "B"} for order in (first, second))
        if is_read and not any("unscored" in scores for side in sides for scores in side):
            odds = (first["A"] - first["B"], second["B"] - second["A"])
            readings[held["dialogue"]] = Reading(held["dialogue"], held["kind"], True, odds, *sides)
        else:
            unread += 1
    return list(readings.values()), unread


def passes_margin_and_letters(of: Reading) -> bool:
    if not passes_letters(of) or of.margin < max(0.3, 2 * of.noise(_compared)):
        return False
    for name in TURN_DIMENSIONS:
        value = itemgetter(name)
        if _mean(of.rejected, value) - _mean(of.chosen, value) > of.noise(value):
            return False
    return True


def passes_letters(of: Reading) -> bool:
    return min(of.log_odds) > 0


def held_out(pairs: Sequence[Reading]) -> list[HeldOut]:
    """Each pair by a curve of other kinds and other dialogues; by the preference alone where scores are missing."""
    scored = all(of.chosen for of in pairs)
    known = [
        KnownPair(of.preference, of.margin if scored else 0.0, of.dialogue, of.kind) for of in pairs
    ]
    return CrossValidation(known, hold_out_kinds=True).held_out(PRECISION)


def report(args: argparse.Namespace) -> None:
    pairs, unread = read(args.readings)
    if len(pairs) < args.least:
        sys.exit(
            f"{len(pairs)} pairs that the judge could answer about, and {unread} others: too few, "
            f"a report wants {args.least}"
        )
    both = [*pairs, *(of.turned() for of in pairs)]
    spread = pstdev((of.log_odds[0] - of.log_odds[1]) / 2 for of in pairs)
    curve = held_out(pairs)
    rules = {
        "margin and both letters": [passes_margin_and_letters(of) for of in both],
        "both letters": [passes_letters(of) for of in both],
        f"preference above the spread ({spread:.2f})": [of.preference > spread for of in both],
        "curve of other kinds and dialogues": [
            *(held.better_passes for held in curve),
            *(held.worse_passes for held in curve),
        ],
    }
    ranked = {
        **({"margin": [of.margin for of in both]} if all(of.chosen for of in pairs) else {}),
        "less sure of both letters": [min(of.log_odds) for of in both],
        "preference": [of.preference for of in both],
        "curve of other kinds and dialogues": [
            *(held.probability for held in curve),
            *(1 - held.probability for held in curve),
        ],
    }
    print(
        f"{len(pairs)} pairs, {unread} more that the judge could not answer about; 95 % by bootstrap over dialogues\n"
    )
    heads = ("rule", "better passed", "worse passed", "precision", "recall")
    print(table(heads, [[name, *_figures(both, passed)] for name, passed in rules.items()]))
    print(
        "\n"
        + table(("ranked by", "AUC"), [[n, _area(both, values)] for n, values in ranked.items()])
    )
    print("\nBetter / worse sides passed, by kind:\n")
    rows = []
    for kind in sorted({of.kind for of in pairs}):
        cells = [
            _passed(both, passed, [at for at, of in enumerate(both) if of.kind == kind])
            for passed in rules.values()
        ]
        number = sum(of.kind == kind for of in pairs)
        rows.append([kind, str(number), *(f"{better} / {worse}" for better, worse in cells)])
    print(table(("kind", "pairs", *rules), rows))


def _passed(
    both: Sequence[Reading], passed: Sequence[bool], rows: Iterable[int]
) -> tuple[int, int]:
    """Return the better and worse sides that passed, among these rows."""
    accepted = [both[at].is_better for at in rows if passed[at]]
    return sum(accepted), len(accepted) - sum(accepted)


def _figures(both: Sequence[Reading], passed: Sequence[bool]) -> list[str]:
    right = np.array([ok and of.is_better for ok, of in zip(passed, both, strict=True)], float)

    def precision(counts: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return counts @ right / (counts @ np.array(passed, float))

    def recall(counts: np.ndarray) -> np.ndarray:
        return counts @ right / (counts.sum(axis=1) / 2)

    better, worse = _passed(both, passed, range(len(both)))
    return [str(better), str(worse), _with_interval(both, precision), _with_interval(both, recall)]


def _area(both: Sequence[Reading], values: Sequence[float]) -> str:
    return _with_interval(both, partial(resampled_aucs, values, [of.is_better for of in both]))


def _with_interval(both: Sequence[Reading], figure: Statistic) -> str:
    """Return a figure of rows with its interval; a dialogue is drawn with both its rows."""
    [value] = figure(np.ones((1, len(both))))
    if np.isnan(value):
        return "-"
    ends = bootstrap_interval(lambda counts: figure(np.hstack((counts, counts))), len(both) // 2)
    return f"{value:.2f}" if ends is None else f"{value:.2f} ({ends.low:.2f} to {ends.high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("ask")
    add_judge(asking)
    asking.add_argument("--data", required=True, type=Path)
    asking.add_argument("--out", required=True, type=Path)
    asking.add_argument("--pairs", type=int, default=240)
    add_material(asking)
    asking.add_argument(
        "--brief",
        action="store_true",
        help="ask for scores only where the letters agree: a third of the time, and the report then has no margin",
    )
    asking.add_argument("--part", default="0/1", help="N/M: every Mth pair from the Nth on")
    asking.set_defaults(run=lambda args: asyncio.run(ask(args)))
    telling = commands.add_parser("report")
    telling.add_argument("readings", nargs="+", type=Path, help="files that `ask` wrote")
    telling.add_argument("--least", type=int, default=LEAST, help="fewer pairs are no report")
    telling.set_defaults(run=report)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
