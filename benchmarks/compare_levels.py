"""Compare a judge's readings with people's ratings: its most likely digits, calibrated levels, and `p_good`.

    python benchmarks/compare_levels.py ask --model judge.gguf --data conture/data.json --out readings.jsonl
    python benchmarks/compare_levels.py report readings.jsonl [more.jsonl ...] --data conture/data.json
    python benchmarks/compare_levels.py agreement readings.jsonl [more.jsonl ...] --data conture/data.json

`ask` judges every dialogue in mode `tokens`, or as `--judge` says, one line each; it goes on where it stopped. `ask --examples 3 --out
shown.jsonl` shows three labelled dialogues in the shared start of every prompt and asks about the others; `report
readings.jsonl --beside shown.jsonl` compares both on those, as it does two ways to judge. `report` makes no model calls:
levels and `p_good` are fitted to the first labels that a seed draws, as `curate calibrate` fits them, and
tested on the dialogues that no label was drawn from, 20 seeds. A figure is the mean over the seeds; its 95 %
interval draws dialogues again (1,000 times), all seeds at once. `agreement` prints the figures and gates of `curate
agreement` on the same readings, of likeliest digits and, by cross-validation on all labels, of calibrated levels.

Two public sets are known by their shape: ConTurE (people's majority impression of every turn, 0-2; two or three raters
of each dialogue) and LLM-Rubric (one person's overall satisfaction, 1-4). Of LLM-Rubric the distributions that
come with it (`gpt-3.5-turbo-16k_real_evaluations_FIXED.tsv`) serve as readings, too, and each of its nine questions
is a dimension.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import random
import sys
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import get_args

import numpy as np
from asking import add_judge, asked_before, open_judge, table
from compare_modes import RATINGS, SEED, load_gold, spearman
from pydantic import TypeAdapter

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.judging import RubricConfig, judge_dialogue
from curate.judging.rubric_prompts import prompt_version
from curate.records import Figure as MeasuredFigure
from curate.records import JudgeIdentity, Judgment, Unscored, Verdict
from curate.records.readings import dialogue_readings
from curate.run.labels.run_scores import labelled_readings
from curate.selection.table import score_table
from curate.statistics import RESAMPLES
from curate.trust.agreement import auc, brier_score
from curate.trust.gold import match_gold
from curate.trust.label_rows import GoldRow
from curate.trust.levels import (
    LabelledReading,
    confusion,
    fit_cut_points,
    kappa_of_table,
)
from curate.trust.ordinal_agreement import Compared, measure_dimension
from curate.trust.p_good import LabelledDialogue, fit_good
from curate.trust.raters import krippendorff_alpha
from curate.trust.scales import Scale

LABELS = (25, 100)
LEVEL_NAMES = ("1", "2", "3", "4", "5")
SEEDS = 20
TURNS_LABELLED = 5
"""Turns that a person labels of one dialogue; the product wants labels of five dialogues or more."""
LEAST_HELD_OUT = 10
EXAMPLE_TURNS = 3
EXAMPLE_CHARACTERS = 160
"""Of each message of a worked example: a few examples are to cost no more than the rubric does."""
GOOD_SHARE = 0.69
"""A dialogue is good from the rating on that comes nearest to this share of good ones."""

_RECORD: TypeAdapter[Judgment | Unscored] = TypeAdapter(Judgment | Unscored)
_VERDICTS = tuple(reversed(get_args(Verdict)))


async def ask(args: argparse.Namespace) -> None:
    gold = load_gold(args.data)
    random.Random(SEED).shuffle(gold)
    done = asked_before(args.out)
    engine = await open_judge(args)
    tuning = gold[max(0, len(gold) - args.examples) :]
    shown = tuple(worked_example(item.dialogue, load_people(args.data)) for item in tuning)
    asked = {"mode": "tokens", "text": "off", "examples": shown} | json.loads(args.judge)
    config = RubricConfig.model_validate(asked)
    identity = JudgeIdentity(
        engine="benchmark",
        model=str(args.model or args.engine),
        mode=config.mode,
        prompt_version=prompt_version(config),
    )
    held_out = gold[: len(gold) - len(tuning)]
    part, parts = map(int, args.part.split("/"))
    for number, item in enumerate(held_out[: args.limit]):
        if number % parts != part or item.dialogue.id in done:
            continue
        start = time.perf_counter()
        record = await judge_dialogue(item.dialogue, engine.complete, config, identity)
        line = {"dialogue": item.dialogue.id, "judgment": record.model_dump(mode="json")}
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        seconds = time.perf_counter() - start
        print(f"{number + 1}/{len(held_out)} {seconds:.1f} s", file=sys.stderr, flush=True)
    await engine.close()


def worked_example(dialogue: Dialogue, people: People) -> str:
    """Return the first turns of a dialogue, shortened, and people's levels of them and of the conversation."""
    gold = match_gold(
        [row for row in people.labels if row.dialogue_id == dialogue.id], [dialogue], people.scales
    )
    lines = []
    for turn in dialogue.turns[:EXAMPLE_TURNS]:
        lines += [
            f"[{turn.number}.{message.role}] {textwrap.shorten(message.content, EXAMPLE_CHARACTERS)}"
            for message in turn.messages
        ]
    lines.append("Levels that people give:")
    for item, label in gold.levels.items():
        if item.turn is None or item.turn <= EXAMPLE_TURNS:
            where = "the conversation" if item.turn is None else f"turn {item.turn}"
            lines.append(f"- {item.dimension} of {where}: {label.level or 'n/a'}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class People:
    """People's ratings of a data set.

    Attributes:
        labels: of turns and conversations, as `curate calibrate` takes them.
        scales: by dimension, of the labels.
        ratings: by name, then dialogue id: one number for a whole dialogue, higher is better.
    """

    dialogues: Sequence[Dialogue]
    labels: Sequence[GoldRow]
    scales: Mapping[str, Scale]
    ratings: Mapping[str, Mapping[str, float]]


def load_people(path: Path) -> People:
    gold = load_gold(path)
    rows = json.loads(path.read_text(encoding="utf-8"))
    dialogues = [item.dialogue for item in gold]
    if "turns" not in rows[0]:
        overall = {item.dialogue.id: item.overall for item in gold if item.overall is not None}
        labels = [
            GoldRow(path.name, "task_completion", value, dialogue_id=key)
            for key, value in overall.items()
        ]
        scales = {"task_completion": Scale(1, 4)}
        return People(dialogues, labels, scales, {"overall satisfaction": overall})
    labels = []
    for row in rows:
        key = str(row["dialog_id"])
        for number, turn in enumerate(row["turns"], 1):
            labels += [
                GoldRow(path.name, name, turn["overall impression"], dialogue_id=key, turn=number)
                for name in ("helpfulness", "context_use")
            ]
        for rater, given in enumerate(row["dialog_ratings"]):
            asked = {"coherence": "coherent", "task_completion": "human (overall)"}
            labels += [
                GoldRow(path.name, name, given[question], dialogue_id=key, rater=str(rater))
                for name, question in asked.items()
            ]
    scales = {
        "helpfulness": Scale(0, 2),
        "context_use": Scale(0, 2),
        "coherence": Scale(1, 3),
        "task_completion": Scale(1, 5),
    }
    ratings = {
        "overall rating, mean of the raters": {
            str(row["dialog_id"]): fmean(given["human (overall)"] for given in row["dialog_ratings"])
            for row in rows
        },
        "impression of a turn, mean over turns": {
            str(row["dialog_id"]): fmean(turn["overall impression"] for turn in row["turns"])
            for row in rows
        },
    }  # fmt: skip
    return People(dialogues, labels, scales, ratings)


@dataclass(slots=True)
class Rated:
    """One dialogue with the judge's readings and people's ratings.

    Attributes:
        items: by dimension, its turns or the conversation.
        features: what `p_good` is fitted to.
        ranks: by name, what a run ranks by without `p_good`.
        ratings: by name.
    """

    features: Mapping[str, float | None]
    ranks: Mapping[str, float]
    ratings: Mapping[str, float]
    items: dict[str, list[LabelledReading]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class Readings:
    """Scored dialogues by id, how many others could not be scored, and by dimension the raters' alpha."""

    dialogues: Mapping[str, Rated]
    unscored: int
    alpha: Mapping[str, float | None]


def read(files: Iterable[Path], data: Path) -> Readings:
    """Return the readings of all files as one judge's; the last one of a dialogue that occurs twice."""
    files = list(files)
    if any(file.suffix == ".tsv" for file in files):
        return read_distributions(files[0], data)
    people = load_people(data)
    records = {
        record.content_hash: record
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
        for record in [_RECORD.validate_python(json.loads(line)["judgment"])]
    }
    known = {dialogue.content_hash: dialogue for dialogue in people.dialogues}
    if strange := records.keys() - known.keys():
        sys.exit(f"{len(strange)} readings are of dialogues that {data} does not hold")
    judgments = {key: row for key, row in records.items() if isinstance(row, Judgment)}
    scored = [known[key] for key in judgments]
    columns = score_table(scored, judgments).select("verdict", "mean_score")
    by_hash = {
        key: Rated(
            features=dialogue_readings(judgments[key]),
            ranks={"mean score": mean, "verdict": _VERDICTS.index(verdict)},
            ratings={name: held[known[key].id] for name, held in people.ratings.items()},
        )
        for key, (verdict, mean) in zip(judgments, columns.iter_rows(), strict=True)
    }
    gold = match_gold(people.labels, scored, people.scales)
    each: dict[str, list[Sequence[int]]] = defaultdict(list)
    for item, label in gold.levels.items():
        own = {key: key for key in judgments}
        found = labelled_readings({item: label}, judgments, {}, own, gold.unused)
        by_hash[item.content_hash].items[item.dimension] += found
        each[item.dimension].append(label.each)
    alpha = {name: krippendorff_alpha(units) for name, units in each.items()}
    dialogues = {known[key].id: rated for key, rated in by_hash.items()}
    return Readings(dialogues, len(records) - len(judgments), alpha)


def read_distributions(path: Path, data: Path) -> Readings:
    """Return the distributions of LLM-Rubric's own judge, over 1-4 for each of nine questions."""
    scale = Scale(1, 4)
    with (data.parent / RATINGS).open(encoding="utf-8", newline="") as file:
        people = {row["text_id"]: row for row in csv.DictReader(file, delimiter="\t")}
    found: dict[str, Rated] = {}
    expected: dict[str, dict[str, float]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            key, question = row["text_id"], row["criterion"]
            if key not in people:
                continue
            masses = [float(row[f"answer{answer}_prob"]) for answer in (1, 2, 3, 4)]
            mean = sum(n * mass for n, mass in enumerate(masses, 1)) / sum(masses)
            expected[key][question] = mean
            digit = scale.level(1 + masses.index(max(masses)))
            said = scale.level(people[key][question])
            value = scale.level(mean)
            assert digit is not None
            rated = found.setdefault(
                key, Rated(expected[key], {}, {"overall satisfaction": float(people[key]["Q0"])})
            )
            level = None if said is None else round(said)
            rated.items[question].append(LabelledReading(value, round(digit), 0.0, level, key))
    for key, rated in found.items():
        rated.ranks = {"mean score": fmean(expected[key].values())}
    return Readings(found, 0, {})


@dataclass(frozen=True, slots=True)
class Figure:
    """A value and the same on dialogues drawn again; `refused` counts the seeds whose labels gave no fit."""

    value: float | None
    drawn: Sequence[float]
    refused: int = 0

    def minus(self, other: Figure) -> Figure:
        """Return the paired difference: both were drawn on the same dialogues."""
        if self.value is None or other.value is None:
            return NOTHING
        drawn = np.subtract(self.drawn, other.drawn).tolist()
        return Figure(self.value - other.value, drawn, max(self.refused, other.refused))

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        low, high = np.nanquantile(self.drawn, [0.025, 0.975])
        few = f"; {self.refused} of {SEEDS} seeds refused" if self.refused else ""
        return f"{self.value:.2f} ({low:.2f} to {high:.2f}{few})"


NOTHING = Figure(None, ())
Measure = Callable[[Sequence[int]], float | None]
"""Of dialogues, named by their places and as often as they were drawn, a figure; None where undefined."""


class Evaluation:
    """All figures of one judge over the dialogues `ids`; two judges on the same `ids` are paired."""

    def __init__(self, readings: Readings, ids: Sequence[str]) -> None:
        self.dialogues = [readings.dialogues[key] for key in ids]
        rng = np.random.default_rng(SEED)
        self._draws = rng.integers(len(ids), size=(RESAMPLES, len(ids))).tolist()
        self.levels = {
            name: self._level_figures([held.items.get(name, []) for held in self.dialogues])
            for name in sorted({name for held in self.dialogues for name in held.items})
        }
        self.good = {
            (name, labels): self._good_figures(self.is_good(name), labels)
            for name in self.dialogues[0].ratings
            for labels in LABELS
        }

    def least_good(self, rating: str) -> float:
        """The rating from which on a dialogue is good: that share of good ones comes nearest to GOOD_SHARE."""
        given = [held.ratings[rating] for held in self.dialogues]
        return min(
            sorted(set(given)),
            key=lambda least: abs(fmean(value >= least for value in given) - GOOD_SHARE),
        )

    def is_good(self, rating: str) -> list[bool]:
        least = self.least_good(rating)
        return [held.ratings[rating] >= least for held in self.dialogues]

    def _mean(self, measures: Sequence[Measure], seeds: int) -> Figure:
        """Return the mean of several fits' figures, if any seed gave one."""
        if not measures:
            return NOTHING
        everyone = range(len(self.dialogues))

        def mean(places: Sequence[int]) -> float:
            held = [value for measure in measures if (value := measure(places)) is not None]
            return fmean(held) if held else float("nan")

        value = mean(everyone)
        drawn = [mean(places) for places in self._draws]
        return NOTHING if value != value else Figure(value, drawn, seeds - len(measures))

    def _level_figures(self, given: Sequence[Sequence[LabelledReading]]) -> dict[str, Figure]:
        usable = [[i for i in items if None not in (i.level, i.value, i.digit)] for items in given]
        pairs = [[(i.value, i.level) for i in items] for items in usable]
        figures = {
            "likeliest digit": self._mean([_kappa(usable, lambda item: item.digit)], 1),
            "expectation, Spearman": self._mean(
                [lambda places: spearman([pair for place in places for pair in pairs[place]])], 1
            ),
        }
        for labels in LABELS:
            levels, digits = [], []
            for seed in range(SEEDS):
                drawn = _draw_turns(given, usable, labels, seed)
                if drawn is None:
                    break
                known, held_out = drawn
                try:
                    level = fit_cut_points(known).level
                except UsageError:
                    continue
                levels.append(_kappa(held_out, lambda item, level=level: level(item.value)))
                digits.append(_kappa(held_out, lambda item: item.digit))
            figures[f"{labels} labels"] = self._mean(levels, SEEDS)
            gain = figures[f"{labels} labels"].minus(self._mean(digits, SEEDS))
            figures[f"gain of {labels} labels over the digit"] = gain
        return figures

    def _good_figures(self, is_good: Sequence[bool], labels: int) -> dict[str, Figure]:
        areas: dict[str, list[Measure]] = defaultdict(list)
        briers: dict[str, list[Measure]] = defaultdict(list)
        for seed in range(SEEDS):
            order = list(range(len(self.dialogues)))
            random.Random(seed).shuffle(order)
            known, rest = order[:labels], order[labels:]
            if len(rest) < LEAST_HELD_OUT:
                break
            try:
                model = fit_good(
                    [
                        LabelledDialogue(self.dialogues[at].features, is_good[at], str(at))
                        for at in known
                    ]
                )
            except UsageError:
                continue
            held = {at: self.dialogues[at] for at in rest}
            share = fmean(is_good[at] for at in known)
            found = {at: model.probability(one.features) for at, one in held.items()}
            areas["p_good, AUC"].append(_scored(auc, found, is_good))
            for name in self.dialogues[0].ranks:
                ranks = {at: one.ranks[name] for at, one in held.items()}
                areas[f"{name}, AUC"].append(_scored(auc, ranks, is_good))
            briers["p_good, Brier"].append(_scored(brier_score, found, is_good))
            briers["share of good labels, Brier"].append(
                _scored(brier_score, dict.fromkeys(rest, share), is_good)
            )
        names = ["p_good, AUC", *(f"{name}, AUC" for name in self.dialogues[0].ranks)]
        names += ["p_good, Brier", "share of good labels, Brier"]
        return {name: self._mean((areas | briers).get(name, []), SEEDS) for name in names}

    def all_figures(self) -> dict[str, Figure]:
        """Return every figure by name."""
        named = {
            f"{dimension}: {name}": figure
            for dimension, figures in self.levels.items()
            for name, figure in figures.items()
        }
        for (rating, labels), figures in self.good.items():
            named |= {
                f"good by {rating}, {labels} labels: {name}": figure
                for name, figure in figures.items()
            }
        return named


def _draw_turns(
    given: Sequence[Sequence[LabelledReading]],
    usable: Sequence[Sequence[LabelledReading]],
    labels: int,
    seed: int,
) -> tuple[list[LabelledReading], list[Sequence[LabelledReading]]] | None:
    """So many labels, at most TURNS_LABELLED of a dialogue, and what is left of the dialogues without one.

    None where too few dialogues would be left to test on.
    """
    draw = random.Random(seed)
    order = list(range(len(given)))
    draw.shuffle(order)
    known: list[LabelledReading] = []
    held_out: list[Sequence[LabelledReading]] = list(usable)
    for place in order:
        if len(known) >= labels:
            break
        held_out[place] = ()
        known += draw.sample(given[place], min(TURNS_LABELLED, len(given[place])))
    enough = len(known) >= labels and sum(map(bool, held_out)) >= LEAST_HELD_OUT
    return (known[:labels], held_out) if enough else None


def _kappa(
    items: Sequence[Sequence[LabelledReading]], answer: Callable[[LabelledReading], int]
) -> Measure:
    tables = np.array(
        [confusion([i.level for i in held], [answer(i) for i in held]) for held in items]
    ).reshape(len(items), -1)

    def kappa(places: Sequence[int]) -> float | None:
        counts = np.bincount(places, minlength=len(items))
        return kappa_of_table((counts @ tables).reshape(5, 5))

    return kappa


def _scored(
    figure: Callable[[Sequence[float], Sequence[bool]], float | None],
    values: Mapping[int, float],
    labels: Sequence[bool],
) -> Measure:
    def of(places: Sequence[int]) -> float | None:
        held = [place for place in places if place in values]
        return figure([values[place] for place in held], [labels[place] for place in held])

    return of


def report(args: argparse.Namespace) -> None:
    ours = read(args.readings, args.data)
    theirs = read(args.beside, args.data) if args.beside else None
    ids = sorted(ours.dialogues.keys() & (theirs or ours).dialogues.keys())
    if len(ids) < min(LABELS) + LEAST_HELD_OUT:
        sys.exit(
            f"{len(ids)} scored dialogues are too few: a report wants {min(LABELS)} to label and "
            f"{LEAST_HELD_OUT} to test on"
        )
    print(f"{len(ids)} dialogues, {ours.unscored} more that the judge could not score\n")
    evaluation = Evaluation(ours, ids)
    _print_levels(evaluation, ours.alpha)
    _print_good(evaluation)
    if theirs is not None:
        other = Evaluation(theirs, ids).all_figures()
        rows = [
            [name, str(figure), str(other[name]), str(figure.minus(other[name]))]
            for name, figure in evaluation.all_figures().items()
        ]
        print("\nThe same dialogues, seeds and labels by both:\n")
        print(table(("figure", "readings", "beside", "difference"), rows))


def _print_levels(evaluation: Evaluation, alpha: Mapping[str, float | None]) -> None:
    rows = []
    for name, figures in evaluation.levels.items():
        number = sum(len(held.items.get(name, [])) for held in evaluation.dialogues)
        raters = alpha.get(name)
        shown = "-" if raters is None else f"{raters:.2f}"
        rows.append([name, str(number), shown, *map(str, figures.values())])
    heads = next(iter(evaluation.levels.values()))
    print("Quadratic-weighted kappa with people:\n")
    print(table(("dimension", "labels there are", "alpha of the raters", *heads), rows))


def _print_good(evaluation: Evaluation) -> None:
    print("\nGood or not:\n")
    rows = []
    for (rating, labels), figures in evaluation.good.items():
        share = fmean(evaluation.is_good(rating))
        rule = f"{rating}, {evaluation.least_good(rating):.2f} or more ({share:.0%})"
        left = max(0, len(evaluation.dialogues) - labels)
        rows.append([rule, str(labels), str(left), *map(str, figures.values())])
    heads = next(iter(evaluation.good.values()))
    print(table(("good where", "labels", "held out", *heads), rows))


def agreement(args: argparse.Namespace) -> None:
    readings = read(args.readings, args.data)
    rows = []
    for name in sorted({name for held in readings.dialogues.values() for name in held.items}):
        items = [
            Compared(item.digit, item.value, item.level, item.level, key)
            for key, held in readings.dialogues.items()
            for item in held.items.get(name, [])
        ]
        held = measure_dimension(
            items, LEVEL_NAMES, scale="", compared="digits", scales_differ=True, epsilon=0.15
        )
        assert held is not None
        gate = held.gate
        assert held.mapped is not None
        assert gate.lower is not None
        alpha = readings.alpha.get(name)
        rows.append(
            [
                name,
                f"{held.labels:,} of {held.dialogues:,}",
                "-" if alpha is None else f"{alpha:.2f}",
                *map(
                    _with_interval,
                    (held.levels.kappa, held.mapped.kappa, held.spearman, held.kendall),
                ),
                f"{_with_interval(held.levels.agreement)}; {_with_interval(held.mapped.agreement)}",
                f"{_with_interval(held.levels.within_one)}; {_with_interval(held.mapped.within_one)}",
                f"{_with_interval(held.levels.bias)}; {_with_interval(held.mapped.bias)}",
                f"{gate.state.replace('_', ' ')} ({gate.lower:.2f} to {gate.upper:.2f})",
            ]
        )
    heads = (
        "dimension", "labels of dialogues", "alpha of the raters", "kappa of the likeliest digit",
        "kappa of calibrated levels", "Spearman", "tau-b", "same: before; after",
        "within one: before; after", "bias: before; after", "gate (one-sided bounds)",
    )  # fmt: skip
    print(table(heads, rows))


def _with_interval(figure: MeasuredFigure) -> str:
    if figure.value is None or figure.interval is None:
        return "-"
    return "{:.2f} ({:.2f} to {:.2f})".format(figure.value, *figure.interval)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("ask")
    add_judge(asking)
    asking.add_argument("--data", required=True, type=Path)
    asking.add_argument("--out", required=True, type=Path)
    asking.add_argument(
        "--judge",
        default="{}",
        help='options of the judge as in a recipe, as JSON: \'{"mode": "json", "samples": 8}\'',
    )
    asking.add_argument("--limit", type=int)
    asking.add_argument("--part", default="0/1", help="N/M: every Mth dialogue from the Nth on")
    asking.add_argument(
        "--examples",
        type=int,
        default=0,
        help="labelled dialogues shown in the shared start of every prompt: the last of the shuffled ones, which "
        "are then not asked about; `report --beside` compares the readings with those without",
    )
    asking.set_defaults(run=lambda args: asyncio.run(ask(args)))
    telling = commands.add_parser("report")
    telling.add_argument("readings", nargs="+", type=Path, help="files that `ask` wrote")
    telling.add_argument("--data", required=True, type=Path, help="what was asked about")
    telling.add_argument(
        "--beside",
        nargs="+",
        type=Path,
        default=[],
        help="other readings of the same dialogues, compared on those that both hold",
    )
    telling.set_defaults(run=report)
    agreeing = commands.add_parser("agreement")
    agreeing.add_argument("readings", nargs="+", type=Path, help="files that `ask` wrote")
    agreeing.add_argument("--data", required=True, type=Path, help="what was asked about")
    agreeing.set_defaults(run=agreement)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
