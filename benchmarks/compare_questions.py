"""Which question of the `tokens` mode agrees best with people? One trunk a dialogue, many questions on it.

    python benchmarks/compare_questions.py ask --model judge.gguf --data conture/data.json --out readings.jsonl
    python benchmarks/compare_questions.py report readings.jsonl

`ask` reads every variant of a question on the same prompt, so that one thing differs at a time, and keeps
each reading as a line; it goes on where it stopped. `report` prints a Markdown table: Spearman with
people (bootstrap interval over dialogues), mean coverage, the difference of each question to the one that is asked today of
the same dimension (on the same dialogues, drawn together), and what averaging and recalibrating add.

Two public sets are known by their shape (see `compare_modes.py`): ConTurE, three people's majority
impression (0-2) of every turn, and LLM-Rubric, one person's overall satisfaction (1-4) a dialogue.
Recalibration is ridge regression of the rating on the expectations of all items, fitted and measured on
different dialogues (5 folds); its gain is what knowing this judge on this kind of data is worth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from compare_modes import SEED, Gold, difference, interval, load_gold, spearman
from pydantic import TypeAdapter

from curate.dialogue import Turn
from curate.engines.base import Engine, Request
from curate.engines.config import EngineConfig, LlamaCppConfig
from curate.engines.label_mass import read_label_mass
from curate.engines.layout import Trunk, trunk
from curate.engines.open import open_engine
from curate.judging.config import RubricConfig
from curate.judging.rubric_prompts import RubricTexts, resolve_texts

DIGITS = {digit: float(digit) for digit in "12345"}
LETTERS = {letter: float(5 - index) for index, letter in enumerate("ABCDE")}
YES_NO = {"yes": 1.0, "no": 0.0}
LETTER_SCALE = "A = 5, B = 4, C = 3, D = 2, E = 1. Answer with one letter and nothing else."
FOLDS = 5


@dataclass(frozen=True)
class Variant:
    """One way to ask: its name, the question, and the value of each label."""

    name: str
    question: str
    values: dict[str, float]
    prefix: str = "("


def variants(texts: RubricTexts, turn: int | None) -> list[Variant]:
    """The questions about a turn, or about the conversation where `turn` is None."""
    what = "the whole conversation" if turn is None else f"the assistant's reply in turn {turn}"
    section = "conversation" if turn is None else "score"
    names = ("coherence", "task_completion") if turn is None else ("helpfulness", "context_use")
    main = names[-1] if turn is None else names[0]

    def ours(name: str, wording: int) -> str:
        return texts.question(
            f"{section}.{wording}", dimension=name, turn=turn, asks=texts.asks[name], or_na=""
        )

    asked = [Variant(f"{name}, wording 0", ours(name, 0), DIGITS) for name in names]
    asked += [Variant(f"{main}, wording {n}", ours(main, n), DIGITS) for n in (1, 2, 3)]
    asked += [
        Variant(f"{main}, prefix {prefix!r}", ours(main, 0), DIGITS, prefix)
        for prefix in ("[[", "Score: [[", "", "**", "Score: (")
    ]
    asked.append(
        Variant(
            f"{main}, letters",
            f"Score the {main} of {what}: {texts.asks[main]}. {LETTER_SCALE}",
            LETTERS,
        )
    )
    asked.append(
        Variant(
            "overall",
            f"How good is {what}, all in all? Answer with one digit from 1 (worst) to 5 (best) and "
            "nothing else.",
            DIGITS,
        )
    )
    asked.append(
        Variant(
            "yes or no",
            f"Would a demanding user be satisfied with {what}? Answer yes or no and nothing else.",
            YES_NO,
        )
    )
    return asked


@dataclass(frozen=True)
class View:
    """A trunk with its name and the questions on it."""

    name: str
    trunk: Trunk
    turn: int | None
    asked: list[Variant]


def views(gold: Gold, texts: RubricTexts, bare: RubricTexts) -> Iterator[View]:
    """Trunks in an order in which each shares most with the one before."""
    dialogue = gold.dialogue
    turns = dialogue.turns
    if gold.overall is not None:
        whole = variants(texts, None)
        yield View("levels", trunk(texts.rubric, dialogue, turns), None, whole)
        yield View("no levels", trunk(bare.rubric, dialogue, turns), None, whole[:2])
        return
    for rubric, name, count in ((texts, "up to the turn", None), (bare, "no levels", 2)):
        for index, turn in enumerate(turns):
            shown: Sequence[Turn] = turns[: index + 1]
            asked = variants(texts, turn.number)[:count]
            yield View(name, trunk(rubric.rubric, dialogue, shown), turn.number, asked)
    whole_trunk = trunk(texts.rubric, dialogue, turns)
    for turn in turns:
        yield View("whole dialogue", whole_trunk, turn.number, variants(texts, turn.number)[:2])


def without_levels(texts: RubricTexts) -> RubricTexts:
    """Return the same rubric with each scale in one clause."""
    lines = [
        line
        for line in texts.rubric.splitlines()
        if line[:4] not in {f"{n} = " for n in range(1, 6)}
    ]
    return replace(texts, rubric="\n".join(lines) + "\n")


async def ask(args: argparse.Namespace) -> None:
    gold = load_gold(args.data)
    random.Random(SEED).shuffle(gold)
    texts = resolve_texts(RubricConfig(mode="tokens"))
    done = set()
    if args.out.exists():
        done = {json.loads(line)["dialogue"] for line in args.out.open(encoding="utf-8")}
    engine = await open_engine(
        TypeAdapter(EngineConfig).validate_json(args.engine)
        if args.engine
        else LlamaCppConfig(model=args.model, context=args.context, threads=args.threads)
    )
    for number, item in enumerate(gold[: args.limit]):
        if item.dialogue.id in done:
            continue
        lines = [line async for line in _read(engine, item, texts, args)]
        with args.out.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        print(f"{number + 1}/{args.limit}", file=sys.stderr, flush=True)
    await engine.close()


async def _read(
    engine: Engine, item: Gold, texts: RubricTexts, args: argparse.Namespace
) -> AsyncIterator[str]:
    for view in views(item, texts, without_levels(texts)):
        asked = [variant for variant in view.asked if args.only in variant.name]
        if not asked:
            continue
        rating = item.overall if view.turn is None else item.turns[view.turn]
        requests = [
            Request(view.trunk, v.question, max_tokens=1, prefill=v.prefix, labels=tuple(v.values))
            for v in asked
        ]
        for variant, completion in zip(asked, await engine.complete(requests), strict=True):
            if completion.fault is not None:
                print(f"{item.dialogue.id}: {completion.fault}", file=sys.stderr)
                continue
            mass = read_label_mass(
                completion, tuple(variant.values), ignore_case=variant.values is YES_NO
            )
            yield (
                json.dumps(
                    {
                        "dialogue": item.dialogue.id,
                        "turn": view.turn,
                        "rating": rating,
                        "view": view.name,
                        "variant": variant.name,
                        "coverage": mass.coverage,
                        "mean": sum(
                            share * variant.values[label]
                            for label, share in mass.probabilities.items()
                        ),
                    }
                )
                + "\n"
            )


Point = tuple[str, int | None]


def report(args: argparse.Namespace) -> None:
    rows = [json.loads(line) for path in args.readings for line in path.open(encoding="utf-8")]
    ratings: dict[Point, float] = {(r["dialogue"], r["turn"]): r["rating"] for r in rows}
    means: dict[tuple[str, str], dict[Point, float]] = defaultdict(dict)
    coverage: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        name = (row["view"], row["variant"])
        means[name][row["dialogue"], row["turn"]] = row["mean"]
        coverage[name].append(row["coverage"])
    print(f"{len({point[0] for point in ratings})} dialogues, {len(ratings)} ratings\n")
    print("| view | question | Spearman (95 %) | coverage | to today's question (95 %) |")
    print("|---|---|---|---|---|")
    for (view, variant), values in means.items():
        dimension = variant.split(",")[0]
        today = means.get(("up to the turn", f"{dimension}, wording 0"))
        gain = "" if today is None or today is values else _difference(values, today, ratings)
        print(f"| {view} | {variant} | {_agreement(values, ratings)} | "
              f"{statistics.fmean(coverage[view, variant]):.2f} | {gain} |")  # fmt: skip
    for view in dict.fromkeys(view for view, _ in means):
        wordings = [v for (w, name), v in means.items() if w == view and "wording" in name]
        main = [v for (w, name), v in means.items() if w == view and "wording 3" in name]
        if main:
            main_name = next(n for w, n in means if w == view and "wording 3" in n).split(",")[0]
            same = [
                v
                for (w, n), v in means.items()
                if w == view and n.startswith(f"{main_name}, wording")
            ]
            print(
                f"| {view} | {main_name}, four wordings averaged | {_agreement(_mean(same), ratings)} | |"
            )
        if len(wordings) > 1:
            both = _agreement(_mean(wordings[:2]), ratings)
            print(f"| {view} | both dimensions averaged | {both} | |")
        every = [v for (w, _), v in means.items() if w == view]
        print(f"| {view} | all items, recalibrated (5 folds) | "
              f"{_agreement(_recalibrated(every, ratings), ratings)} | |")  # fmt: skip


def _agreement(values: dict[Point, float], ratings: dict[Point, float]) -> str:
    clusters: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for point, value in values.items():
        clusters[point[0]].append((value, ratings[point]))
    whole = spearman([pair for cluster in clusters.values() for pair in cluster])
    return "constant" if whole is None else f"{whole:.2f} ({interval(list(clusters.values()))})"


def _difference(
    values: dict[Point, float], today: dict[Point, float], ratings: dict[Point, float]
) -> str:
    """How much higher the Spearman of `values` is than that of `today`, on the points of both."""
    clusters: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for point in values.keys() & today.keys():
        clusters[point[0]].append((values[point], today[point], ratings[point]))

    return difference([clusters[name] for name in sorted(clusters)])


def _mean(sets: Sequence[dict[Point, float]]) -> dict[Point, float]:
    shared = set(sets[0]).intersection(*sets[1:])
    return {
        point: statistics.fmean(one[point] for one in sets) for point in sorted(shared, key=str)
    }


def _recalibrated(
    sets: Sequence[dict[Point, float]], ratings: dict[Point, float]
) -> dict[Point, float]:
    import numpy as np

    points = sorted(set(sets[0]).intersection(*sets[1:]), key=str)
    dialogues = sorted({point[0] for point in points})
    random.Random(SEED).shuffle(dialogues)
    fold_of = {dialogue: index % FOLDS for index, dialogue in enumerate(dialogues)}
    features = np.array([[one[point] for one in sets] for point in points])
    target = np.array([ratings[point] for point in points])
    folds = np.array([fold_of[point[0]] for point in points])
    fitted = np.zeros(len(points))
    for fold in range(FOLDS):
        train, test = folds != fold, folds == fold
        centre, spread = features[train].mean(axis=0), features[train].std(axis=0) + 1e-9
        scaled = (features - centre) / spread
        x, y = scaled[train], target[train] - target[train].mean()
        weights = np.linalg.solve(x.T @ x + len(x) * np.eye(x.shape[1]), x.T @ y)
        # Fold means differ; only the ranking within the whole is wanted, so the mean is added back.
        fitted[test] = scaled[test] @ weights + target[train].mean()
    return {point: float(value) for point, value in zip(points, fitted, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("ask")
    judge = asking.add_mutually_exclusive_group(required=True)
    judge.add_argument("--model", help="a GGUF file, run by llama.cpp")
    judge.add_argument("--engine", help="an engine as in a recipe, as JSON; in place of --model")
    asking.add_argument("--data", required=True, type=Path)
    asking.add_argument("--out", required=True, type=Path)
    asking.add_argument("--limit", type=int, default=20, help="dialogues")
    asking.add_argument("--only", default="", help="ask only the variants whose name holds this")
    asking.add_argument("--context", type=int, default=8192)
    asking.add_argument("--threads", type=int)
    asking.set_defaults(run=lambda args: asyncio.run(ask(args)))
    reporting = commands.add_parser("report")
    reporting.add_argument("readings", nargs="+", type=Path)
    reporting.set_defaults(run=report)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
