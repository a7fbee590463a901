"""Which rule finds the turn with a planted flaw? Dialogues with one flaw, one set of readings, several rules.

    python benchmarks/compare_weakest.py ask --model judge.gguf --data mtbench101.jsonl --out readings.jsonl
    python benchmarks/compare_weakest.py report readings.jsonl [more.jsonl ...]
    python benchmarks/compare_weakest.py report levels.jsonl [...] --people conture/data.json

`ask` plants one flaw (`curate.trust.twins`) in one turn of each of `--dialogues` dialogues of `--turns` turns, the
turns as even as the dialogues allow, and scores their turns as a run does in mode `tokens`; what the judge says
of the weakest turn is asked as well. With `--flaws` the dialogues have flaws of their own, at the turn that their
metadata names (`recipes/sample`). A line a dialogue; it goes on where it stopped.

With `--people` the truth is people's instead of planted, and the readings are those of `compare_levels.py ask`: the
turns of a ConTurE dialogue whose impression is the lowest. Dialogues whose turns are all alike are left out.

`report` compares rules on the same readings. None is fitted to where the flaws are:

- weakest turn: by the most likely digits, ties by expectations; none where no turn has a flaw;
- the same by levels: expectations cut at quantiles of these readings, or at the cuts of `--calibration`;
- lowest mean: of the three expectations;
- lowest dimension: the lowest of the three;
- lowest for its dimension: the expectation least below the dialogue's own mean of that dimension, in standard
  deviations of such differences;
- lowest mean for its place: less the mean of all dialogues' turns of that number;
- most below fine: the largest share of the mass on digits below the fine level (safety 5, else 4);
- the judge's own: its likeliest answer to which turn is weakest, "none of them" left out;
- the judge's own, prior off: its log-probability less the mean of that letter over all dialogues;
- lowest mean and the judge's own, prior off: the sum of both, each in standard deviations.

Chance is a turn drawn at random from each of these dialogues. Where several turns are the worst, any of them is a hit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev

from asking import add_judge, add_material, asked_before, open_judge, table

from curate import load_dialogues
from curate.dialogue import Dialogue
from curate.judging.config import RubricConfig
from curate.judging.session import Failure, Page, Scope, open_session
from curate.judging.verdict import weakest_turn
from curate.judging.windowed import ask_scope
from curate.pairs.prefix import with_messages
from curate.records import TURN_DIMENSIONS, CutPoints, RubricScores, TurnScores
from curate.records.calibration_file import read_calibration
from curate.trust.agreement import bootstrap_interval, resampled_means
from curate.trust.levels import share_cut_points
from curate.trust.twins import Twin, plant_twins

SHARES = {1: 0.05, 2: 0.1, 3: 0.15, 4: 0.3, 5: 0.4}
"""Of levels, where no calibration is named: as many bad turns as one in three."""
FINE = {"context_use": 4, "helpfulness": 4, "safety": 5}
LEAST = 10
"""Dialogues below which a report says nothing."""
DRAWS = 12
"""Plantings of every dialogue to choose from, so that all turns come up."""


@dataclass(frozen=True, slots=True)
class Flawed:
    """A dialogue with one flaw."""

    dialogue: Dialogue
    turn: int
    kind: str


def scored_turns(dialogue: Dialogue) -> tuple[int, ...]:
    return tuple(turn.number for turn in dialogue.turns if turn.in_rubric)


def plant(dialogues: Sequence[Dialogue], count: int, seed: int) -> list[Flawed]:
    """Plant one flaw in each dialogue: in the turn (first, second, ...) that has had fewest, then of such a kind."""
    drawn: dict[str, list[Twin]] = defaultdict(list)
    for draw in range(DRAWS):
        for twin in plant_twins(dialogues, len(dialogues), seed=seed + draw):
            drawn[twin.dialogue.id].append(twin)
    turns: Counter[tuple[int, int]] = Counter()
    kinds: Counter[str] = Counter()
    flawed = []
    for twins in list(drawn.values())[:count]:
        of = len(scored_turns(twins[0].dialogue))
        twin = min(twins, key=lambda twin: (turns[of, twin.turn], kinds[twin.kind]))
        turns[of, twin.turn] += 1
        kinds[twin.kind] += 1
        messages = list(twin.dialogue.messages)
        messages[twin.index] = twin.degraded
        flawed.append(Flawed(with_messages(twin.dialogue, messages), twin.turn, twin.kind))
    return flawed


def find_flawed(dialogues: Iterable[Dialogue]) -> list[Flawed]:
    """Dialogues whose metadata names the turn of a flaw."""
    return [
        Flawed(dialogue, flaw["turn"], flaw["kind"])
        for dialogue in dialogues
        if (flaw := dialogue.metadata.get("flaw"))
    ]


async def ask(args: argparse.Namespace) -> None:
    least, most = map(int, args.turns.split("-"))
    dialogues = [
        dialogue.model_copy(update={"scenario": dialogue.scenario or args.scenario})
        for file in args.data
        for dialogue in load_dialogues(file).dialogues
        if (dialogue.labels.get("task") or dialogue.metadata.get("task")) not in args.leave_out
        and least <= len(scored_turns(dialogue)) <= most
    ]
    flawed = (
        find_flawed(dialogues)[: args.dialogues]
        if args.flaws
        else plant(dialogues, args.dialogues, args.seed)
    )
    done = asked_before(args.out)
    engine = await open_judge(args)
    config = RubricConfig(mode="tokens", text="off")
    part, parts = map(int, args.part.split("/"))
    for number, held in enumerate(flawed):
        if number % parts != part or held.dialogue.id in done:
            continue
        start = time.perf_counter()
        turns = scored_turns(held.dialogue)
        session = open_session(held.dialogue, engine.complete, config)
        read = await ask_scope(
            session, Page(held.dialogue.turns), Scope(turns=turns, weakest=turns)
        )
        line: dict[str, object] = {
            "dialogue": held.dialogue.id,
            "kind": held.kind,
            "turn": held.turn,
            "per_turn": None,
            "weakest": {},
            "seconds": round(time.perf_counter() - start, 1),
        }
        if isinstance(read, Failure) or read.unscored:
            failure = read if isinstance(read, Failure) else read.unscored[0]
            line["unscored"] = f"{failure.reason} {failure.detail}"
        else:
            line["per_turn"] = [turn.model_dump(mode="json") for turn in read.turns]
            line["weakest"] = read.weakest_probabilities
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(
            f"{number}/{len(flawed)} {held.kind} in turn {held.turn} of {len(turns)}, {line['seconds']} s",
            file=sys.stderr,
            flush=True,
        )
    await engine.close()


@dataclass(frozen=True, slots=True)
class Held:
    """The judge's readings of a flawed dialogue.

    Attributes:
        worst: where the flaw is, or the turns that people rate lowest.
        own: log-probability of each turn as the judge's own answer, over the turns alone; empty where that could not
            be read.
    """

    worst: frozenset[int]
    kind: str
    per_turn: tuple[TurnScores, ...]
    own: Mapping[int, float]

    @property
    def turns(self) -> list[int]:
        return [scores.turn for scores in self.per_turn]


Values = list[dict[int, float]]
"""Of each dialogue a value a turn; the highest is the flaw's."""


def mean_of(scores: TurnScores, name: str) -> float:
    mean = scores.readings[name].mean
    return float(getattr(scores.scores, name)) if mean is None else mean


def below_fine(scores: TurnScores, name: str) -> float:
    shares = scores.readings[name].probabilities
    return sum(share for digit, share in shares.items() if int(digit) < FINE[name])


def read(files: Iterable[Path]) -> tuple[list[Held], int]:
    """The dialogues of all files, and how many the judge could not answer about."""
    found: dict[str, Held] = {}
    unread = 0
    for line in (line for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        held = json.loads(line)
        if held["per_turn"] is None:
            unread += 1
            continue
        per_turn = tuple(map(TurnScores.model_validate, held["per_turn"]))
        # A letter that the engine did not list is no likelier than the least that it did.
        shares = {int(key): share for key, share in held["weakest"].items() if key != "none"}
        least = min(held["weakest"].values(), default=1.0)
        whole = {scores.turn: shares.get(scores.turn, least) for scores in per_turn}
        total = sum(whole.values())
        own = {turn: math.log(share / total) for turn, share in whole.items()} if shares else {}
        found[held["dialogue"]] = Held(frozenset({held["turn"]}), held["kind"], per_turn, own)
    return list(found.values()), unread


def read_people(files: Iterable[Path], people: Path) -> tuple[list[Held], int]:
    """The dialogues of ConTurE that a judge scored, and how many it could not; those without a worst turn left out."""
    rated = {
        str(row["dialog_id"]): [turn["overall impression"] for turn in row["turns"]]
        for row in json.loads(people.read_text(encoding="utf-8"))
    }
    found: dict[str, Held] = {}
    unread = 0
    for line in (line for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        held = json.loads(line)
        judgment = held["judgment"]
        if judgment["kind"] != "judgment":
            unread += 1
            continue
        ratings = rated[held["dialogue"]]
        per_turn = tuple(map(TurnScores.model_validate, judgment["per_turn"]))
        worst = {s.turn for s in per_turn if ratings[s.turn - 1] == min(ratings)}
        if len(worst) < len(per_turn):
            found[held["dialogue"]] = Held(frozenset(worst), "people's ratings", per_turn, {})
    return list(found.values()), unread


def by_levels(held: Held, levels: Mapping[str, CutPoints]) -> int | None:
    leveled = []
    for scores in held.per_turn:
        digits = scores.scores.model_dump()
        given = {
            name: levels[name].level(mean_of(scores, name)) if name in levels else digits[name]
            for name in TURN_DIMENSIONS
        }
        update = {"scores": RubricScores(**given), "digits": scores.scores}
        leveled.append(scores.model_copy(update=update))
    return weakest_turn(leveled)


def lowest_mean(held: Held) -> dict[int, float]:
    return {s.turn: -fmean(mean_of(s, name) for name in TURN_DIMENSIONS) for s in held.per_turn}


def lowest_for_dimension(dialogues: Sequence[Held]) -> Values:
    differences: list[dict[str, dict[int, float]]] = []
    for held in dialogues:
        by_name = {}
        for name in TURN_DIMENSIONS:
            own = fmean(mean_of(scores, name) for scores in held.per_turn)
            by_name[name] = {scores.turn: own - mean_of(scores, name) for scores in held.per_turn}
        differences.append(by_name)
    spread = {
        name: pstdev(value for one in differences for value in one[name].values()) or 1.0
        for name in TURN_DIMENSIONS
    }
    return [
        {
            turn: max(one[name][turn] / spread[name] for name in TURN_DIMENSIONS)
            for turn in held.turns
        }
        for held, one in zip(dialogues, differences, strict=True)
    ]


def less_place(values: Values) -> Values:
    """Less the mean of all dialogues of the same number of turns, or of all, at the same place."""
    alike: dict[tuple[int, int], list[float]] = defaultdict(list)
    for one in values:
        centre = fmean(one.values())
        # Values all alike stand for an answer that could not be read: they say nothing of a place.
        for place, value in enumerate(one.values() if len(set(one.values())) > 1 else ()):
            alike[len(one), place].append(value - centre)
    return [
        {
            turn: value - fmean(alike[len(one), place] or [0.0])
            for place, (turn, value) in enumerate(one.items())
        }
        for one in values
    ]


def standardised(values: Values) -> Values:
    """Less the dialogue's own mean, in standard deviations of all these differences."""
    centred = [{turn: v - fmean(one.values()) for turn, v in one.items()} for one in values]
    spread = pstdev(value for one in centred for value in one.values()) or 1.0
    return [{turn: value / spread for turn, value in one.items()} for one in centred]


def summed(first: Values, second: Values) -> Values:
    return [
        {turn: a[turn] + b[turn] for turn in a}
        for a, b in zip(standardised(first), standardised(second), strict=True)
    ]


def highest(values: Values) -> list[int | None]:
    return [max(one, key=one.__getitem__) for one in values]


def where(is_told: Sequence[bool], named: Sequence[int | None]) -> list[int | None]:
    """None where the judge's own answer could not be read."""
    return [turn if told else None for told, turn in zip(is_told, named, strict=True)]


def report(args: argparse.Namespace) -> None:
    dialogues, unread = (
        read_people(args.readings, args.people) if args.people else read(args.readings)
    )
    if len(dialogues) < args.least:
        sys.exit(
            f"{len(dialogues)} dialogues that the judge could answer about, and {unread} others: too few, "
            f"a report wants {args.least}"
        )
    calibration = read_calibration(args.calibration, "--calibration") if args.calibration else None
    levels = (
        calibration.levels
        if calibration
        else {
            name: share_cut_points(
                [mean_of(scores, name) for held in dialogues for scores in held.per_turn], SHARES
            )
            for name in TURN_DIMENSIONS
        }
    )
    means = [lowest_mean(held) for held in dialogues]
    own = [dict(held.own) or dict.fromkeys(held.turns, 0.0) for held in dialogues]
    is_told = [bool(held.own) for held in dialogues]
    rules: dict[str, list[int | None]] = {
        "weakest turn": [weakest_turn(held.per_turn) for held in dialogues],
        "weakest turn by levels": [by_levels(held, levels) for held in dialogues],
        "lowest mean": highest(means),
        "lowest dimension": highest(
            [
                {s.turn: -min(mean_of(s, name) for name in TURN_DIMENSIONS) for s in held.per_turn}
                for held in dialogues
            ]
        ),
        "lowest for its dimension": highest(lowest_for_dimension(dialogues)),
        "lowest mean for its place": highest(less_place(means)),
        "most below fine": highest(
            [
                {s.turn: max(below_fine(s, name) for name in TURN_DIMENSIONS) for s in held.per_turn}
                for held in dialogues
            ]
        ),
        "the judge's own": where(is_told, highest(own)),
        "the judge's own, prior off": where(is_told, highest(less_place(own))),
        "lowest mean and the judge's own, prior off": highest(summed(means, less_place(own))),
    }  # fmt: skip
    lengths = Counter(len(held.turns) for held in dialogues)
    print(
        f"{len(dialogues)} dialogues of {min(lengths)} to {max(lengths)} turns, {unread} more that the judge could "
        "not answer about; 95 % by bootstrap over dialogues\n"
    )
    today = hits(dialogues, rules["weakest turn"], 0)
    rows = [
        [
            "chance",
            "",
            f"{fmean(chance(held, 0) for held in dialogues):.2f}",
            f"{fmean(chance(held, 1) for held in dialogues):.2f}",
            "",
        ]
    ]
    for name, named in rules.items():
        exact = hits(dialogues, named, 0)
        gain = [ours - theirs for ours, theirs in zip(exact, today, strict=True)]
        rows.append(
            [
                name,
                str(sum(turn is not None for turn in named)),
                _mean(exact),
                _mean(hits(dialogues, named, 1)),
                "" if name == "weakest turn" else _mean(gain, signed=True),
            ]
        )
    print(table(("rule", "named", "exact", "within one turn", "exact, against the first"), rows))
    print("\nExact, by kind:\n")
    kinds = []
    for kind in sorted({held.kind for held in dialogues}):
        at = [place for place, held in enumerate(dialogues) if held.kind == kind]
        found = [
            sum(hits([dialogues[p] for p in at], [named[p] for p in at], 0))
            for named in rules.values()
        ]
        by_chance = sum(chance(dialogues[p], 0) for p in at)
        kinds.append([kind, str(len(at)), f"{by_chance:.1f}", *(f"{hit:.0f}" for hit in found)])
    print(table(("kind", "dialogues", "chance", *rules), kinds))


def hits(dialogues: Sequence[Held], named: Sequence[int | None], slack: int) -> list[float]:
    """1 where the turn named is within so many scored turns of the flaw; none named is no hit."""
    return [
        float(
            turn is not None
            and any(
                abs(held.turns.index(turn) - held.turns.index(worst)) <= slack
                for worst in held.worst
            )
        )
        for held, turn in zip(dialogues, named, strict=True)
    ]


def chance(held: Held, slack: int) -> float:
    return fmean(hits([held] * len(held.turns), held.turns, slack))


def _mean(values: Sequence[float], *, signed: bool = False) -> str:
    ends = bootstrap_interval(partial(resampled_means, values), len(values))
    form: Callable[[float], str] = (lambda v: f"{v:+.2f}") if signed else (lambda v: f"{v:.2f}")
    interval = "" if ends is None else f" ({form(ends.low)} to {form(ends.high)})"
    return f"{form(fmean(values))}{interval}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("ask")
    add_judge(asking)
    asking.add_argument("--data", required=True, nargs="+", type=Path)
    asking.add_argument("--out", required=True, type=Path)
    asking.add_argument("--flaws", action="store_true", help="the data has flaws; plant none")
    asking.add_argument("--dialogues", type=int, default=120)
    asking.add_argument("--turns", default="4-8", help="LEAST-MOST scored turns of a dialogue")
    add_material(asking)
    asking.add_argument("--part", default="0/1", help="N/M: every Mth dialogue from the Nth on")
    asking.set_defaults(run=lambda args: asyncio.run(ask(args)))
    telling = commands.add_parser("report")
    telling.add_argument("readings", nargs="+", type=Path, help="files that `ask` wrote")
    telling.add_argument(
        "--people", type=Path, help="ConTurE's data, for readings of compare_levels.py"
    )
    telling.add_argument("--calibration", type=Path, help="file that `curate calibrate` wrote")
    telling.add_argument("--least", type=int, default=LEAST, help="fewer dialogues are no report")
    telling.set_defaults(run=report)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
