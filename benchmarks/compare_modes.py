"""Compare the rubric judge's scoring modes and prompts: agreement, requests, tokens, time, by engine.

    python benchmarks/compare_modes.py --model judge.gguf --data conture/data.json --variants "tokens;json"
    python benchmarks/compare_modes.py --model judge.gguf --data conture/data.json --turns 4 \\
        --variants "tokens;tokens, thought of 48;json;json, 3 samples"
    python benchmarks/compare_modes.py --data recipes/sample/dialogues.jsonl \\
        --engine '{"engine": "vllm", "model": "judge-folder"}'

Our own sample is known by its planted flaws (`.jsonl`): does the judge score the flawless dialogues
higher (AUC), and how often is its weakest turn the flawed one? Two public sets are known by their shape:
- LLM-Rubric (`real_data.json` beside `human_judges_real_convs_FIXED_ANON.tsv`): one person's overall
  satisfaction (Q0, 1-4) a dialogue, set against the judge's overall score of the dialogue;
- ConTurE (`data.json`): three people's majority impression (0-2) of every turn, set against the judge's
  score of that turn, over all turns and within each dialogue (which no difference between bots explains).

The judge's overall score is the mean of coherence, task_completion (where it is no n/a) and the turns'
mean helpfulness; a turn's is the mean of context_use and helpfulness. In mode `tokens` and with several samples these
are expectations, in mode `json` integers. Every variant sees the same dialogues, drawn with a fixed seed.
A Markdown table goes to standard output: the agreement, the share of dialogues scored, requests, tokens
(prompt, of these not cached, generated) and seconds; then how far each variant agrees with the first and, where turns are
rated, by how much better or worse it agrees with people: paired, an interval that holds 0 is no ground to prefer either.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from curate import load_dialogues
from curate.dialogue import Dialogue, Message
from curate.engines.base import Ask, Completion, Engine, Request
from curate.engines.config import EngineConfig, LlamaCppConfig
from curate.engines.open import open_engine
from curate.executors.local import for_each
from curate.judging import PROMPT_VERSION, RubricConfig, judge_dialogue
from curate.judging.rubric_prompts import resolve_texts
from curate.records import JudgeIdentity, Judgment, TurnScores, Unscored
from curate.trust.agreement import auc

RATINGS = "human_judges_real_convs_FIXED_ANON.tsv"
SEED = 42
BOOTSTRAP = 1000


@dataclass
class Gold:
    """A dialogue and people's rating: one overall, or one for each turn."""

    dialogue: Dialogue
    overall: float | None = None
    turns: dict[int, float] = field(default_factory=dict)
    flaw: int | None = None
    """Turn of the planted flaw; 0 for a dialogue without one."""


def load_gold(path: Path) -> list[Gold]:
    """Return any of the three kinds of data, recognised by its shape."""
    if path.suffix == ".jsonl":
        return load_sample(path)
    row = json.loads(path.read_text(encoding="utf-8"))[0]
    return load_conture(path) if "turns" in row else load_llm_rubric(path)


def load_sample(path: Path) -> list[Gold]:
    return [
        Gold(dialogue, flaw=(dialogue.metadata.get("flaw") or {"turn": 0})["turn"])
        for dialogue in load_dialogues(path).dialogues
    ]


def load_llm_rubric(path: Path) -> list[Gold]:
    with (path.parent / RATINGS).open(encoding="utf-8", newline="") as file:
        rated = {row["text_id"]: float(row["Q0"]) for row in csv.DictReader(file, delimiter="\t")}
    scenario = (
        "A user asks an assistant about cloud computing; the assistant should answer correctly, "
        "to the point and with what the user needs."
    )
    return [
        Gold(
            Dialogue(
                id=row["_id"],
                scenario=scenario,
                messages=tuple(Message(**message) for message in row["messages"]),
            ),
            overall=rated[row["_id"]],
        )
        for row in json.loads(path.read_text(encoding="utf-8"))
        if row["_id"] in rated
    ]


def load_conture(path: Path) -> list[Gold]:
    gold = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        messages: list[Message] = []
        ratings: dict[int, float] = {}
        for number, turn in enumerate(row["turns"], 1):
            for role, key in (("user", "user"), ("assistant", "chatbot")):
                text = re.sub(r"^(User|Chatbot): ", "", turn[key])
                messages.append(Message(role=role, content=text))
            ratings[number] = float(turn["overall impression"])
        dialogue = Dialogue(
            id=str(row["dialog_id"]),
            scenario="An open conversation between a person and a social chatbot, which should answer "
            "sensibly, stay on the person's topic and keep the conversation going.",
            messages=tuple(messages),
        )
        gold.append(Gold(dialogue, turns=ratings))
    return gold


def variants() -> dict[str, RubricConfig]:
    """Return the variants to compare. Their texts are derived from ours, so that one thing differs at a time."""
    ours = resolve_texts(RubricConfig()).rubric
    scales = ours.index("Scales, 1")
    asks_only = "\n".join(
        line for line in ours[scales:].splitlines() if not re.match(r"[1-5] = ", line)
    )
    ends_only = "\n".join(line for line in ours.splitlines() if not re.match(r"[2-4] = ", line))
    task = ours.splitlines()[0]
    json_mode = RubricConfig(mode="json", text="off")
    tokens = RubricConfig(mode="tokens", text="off")
    return {
        "tokens": tokens,
        "json": json_mode,
        "tokens, no prefix": tokens.model_copy(update={"answer_prefix": ""}),
        "tokens, prefix 'Score: [['": tokens.model_copy(update={"answer_prefix": "Score: [["}),
        "tokens, prefix '[['": tokens.model_copy(update={"answer_prefix": "[["}),
        "tokens, levels 1 and 5 only": RubricConfig(mode="tokens", text="off", rubric=ends_only),
        "tokens, no levels": RubricConfig(
            mode="tokens", text="off", rubric=ours[:scales] + asks_only
        ),
        "tokens, scales only": RubricConfig(
            mode="tokens", text="off", rubric=f"{task}\n{ours[scales:]}"
        ),
        "tokens, no levels, no rules": RubricConfig(
            mode="tokens", text="off", rubric=f"{task}\n{asks_only}"
        ),
        "json, no levels": RubricConfig(mode="json", text="off", rubric=ours[:scales] + asks_only),
        "json, scales only": RubricConfig(
            mode="json", text="off", rubric=f"{task}\n{ours[scales:]}"
        ),
    }


def variant(name: str) -> RubricConfig | None:
    """Return the variant of a name, with any number of thoughts and samples; None if there is none."""
    known = variants()
    if of := re.fullmatch(r"tokens, thought of (\d+)", name):
        return known["tokens"].model_copy(update={"thought_tokens": int(of[1])})
    if of := re.fullmatch(r"json, (\d+) samples", name):
        return known["json"].model_copy(update={"samples": int(of[1])})
    return known.get(name)


def shortened(item: Gold, turns: int) -> Gold:
    """Return the first turns, each with its rating."""
    kept = [turn for turn in item.dialogue.turns if turn.number <= turns]
    messages = item.dialogue.messages[: kept[-1].stop]
    ratings = {number: rating for number, rating in item.turns.items() if number <= turns}
    return replace(
        item, dialogue=item.dialogue.model_copy(update={"messages": messages}), turns=ratings
    )


def turn_score(turn: TurnScores) -> float:
    values = []
    for name in ("context_use", "helpfulness"):
        reading = turn.readings.get(name)
        exact = reading.mean if reading is not None else None
        values.append(exact if exact is not None else float(getattr(turn.scores, name)))
    return statistics.fmean(values)


def overall_score(judgment: Judgment) -> float:
    parts = []
    for name in ("coherence", "task_completion"):
        score = getattr(judgment.conversation_level, name)
        if score.reading is not None and score.reading.mean is not None:
            parts.append(score.reading.mean)
        elif score.score != "n/a":
            parts.append(float(score.score))
    turns = [turn.readings.get("helpfulness") for turn in judgment.per_turn]
    exact = [reading.mean for reading in turns if reading is not None and reading.mean is not None]
    parts.append(statistics.fmean(exact or [turn.scores.helpfulness for turn in judgment.per_turn]))
    return statistics.fmean(parts)


def ranks(values: Sequence[float]) -> list[float]:
    """Return ranks from 1; ties share their mean."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    result = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start
        while stop < len(order) and values[order[stop]] == values[order[start]]:
            stop += 1
        for index in order[start:stop]:
            result[index] = (start + 1 + stop) / 2
        start = stop
    return result


def spearman(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Pearson's correlation of ranks; None if a side is constant or there are fewer than three pairs."""
    if len(pairs) < 3:
        return None
    one, other = ranks([a for a, _ in pairs]), ranks([b for _, b in pairs])
    if len(set(one)) == 1 or len(set(other)) == 1:
        return None
    return statistics.correlation(one, other)


def interval(clusters: Sequence[Sequence[tuple[float, float]]]) -> str:
    """Return the 95 % bootstrap interval; dialogues are drawn with all their pairs."""
    drawn = random.Random(SEED)
    figures = []
    for _ in range(BOOTSTRAP):
        sample = drawn.choices(clusters, k=len(clusters))
        figure = spearman([pair for cluster in sample for pair in cluster])
        if figure is not None:
            figures.append(figure)
    figures.sort()
    if not figures:
        return "none"
    low, high = figures[int(0.025 * len(figures))], figures[int(0.975 * len(figures)) - 1]
    return f"{low:.2f} to {high:.2f}"


def difference(clusters: Sequence[Sequence[tuple[float, float, float]]]) -> str:
    """Return by how much the first values' Spearman with the third exceeds the second's, with its 95 % interval.

    Paired: dialogues are drawn with all their rows, each with both values.
    """

    def of(drawn: Sequence[Sequence[tuple[float, float, float]]]) -> float | None:
        rows = [row for cluster in drawn for row in cluster]
        one = spearman([(row[0], row[2]) for row in rows])
        other = spearman([(row[1], row[2]) for row in rows])
        return None if one is None or other is None else one - other

    whole, rng = of(clusters), random.Random(SEED)
    drawn = [of(rng.choices(clusters, k=len(clusters))) for _ in range(BOOTSTRAP)]
    known = sorted(one for one in drawn if one is not None)
    if whole is None or not known:
        return "none"
    low, high = known[int(0.025 * len(known))], known[int(0.975 * len(known)) - 1]
    return f"{whole:+.2f} ({low:+.2f} to {high:+.2f})"


@dataclass
class Meter:
    """An engine that counts its requests."""

    complete: Ask
    counts: Counter[str] = field(default_factory=Counter)

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        completions = await self.complete(requests)
        self.counts["requests"] += len(requests)
        for completion in completions:
            self.counts["prompt"] += completion.usage.prompt_tokens
            self.counts["cached"] += completion.usage.cached_tokens
            self.counts["generated"] += completion.usage.completion_tokens
        return completions


def flaw_figures(gold: Sequence[Gold], results: Mapping[str, Judgment | Unscored]) -> str:
    """Return the AUC of flawless against flawed dialogues, and the share of flawed turns found to be the weakest."""
    scores: list[float] = []
    flawless: list[bool] = []
    hits: list[bool] = []
    for item in gold:
        judgment = results[item.dialogue.id]
        if isinstance(judgment, Judgment):
            scores.append(overall_score(judgment))
            flawless.append(item.flaw == 0)
            if item.flaw:
                hits.append(judgment.weakest_turn == item.flaw)
    area = auc(scores, flawless)
    return f"AUC {'-' if area is None else f'{area:.2f}'} | {sum(hits)}/{len(hits)} flaws weakest"


def against_first(
    first: Mapping[str, Judgment | Unscored], other: Mapping[str, Judgment | Unscored]
) -> str:
    """Return equal verdicts, Spearman of overall scores, and mean absolute difference of turn scores."""
    shared = [
        (one, two)
        for key, one in first.items()
        if isinstance(one, Judgment) and isinstance(two := other[key], Judgment)
    ]
    equal = sum(one.verdict == two.verdict for one, two in shared)
    rank = spearman([(overall_score(one), overall_score(two)) for one, two in shared])
    apart = [
        abs(turn_score(a) - turn_score(b))
        for one, two in shared
        for a, b in zip(one.per_turn, two.per_turn, strict=False)
        if a.turn == b.turn
    ]
    shown = "not defined" if rank is None else f"{rank:.2f}"
    return (
        f"{equal} of {len(shared)} verdicts equal, Spearman of overall scores {shown}, turn scores "
        f"{statistics.fmean(apart):.2f} apart on average"
        if shared
        else "no dialogue scored by both"
    )


def rated_turns(
    gold: Sequence[Gold], *read: Mapping[str, Judgment | Unscored]
) -> list[list[tuple[float, ...]]]:
    """Of each dialogue that all have scored its rated turns: the score by each, then people's rating."""
    clusters = []
    for item in gold:
        judgments = [results[item.dialogue.id] for results in read]
        scored = [judgment for judgment in judgments if isinstance(judgment, Judgment)]
        if len(scored) < len(read):
            continue
        scores = [{t.turn: turn_score(t) for t in judgment.per_turn} for judgment in scored]
        turns = [turn for turn in item.turns if all(turn in of for of in scores)]
        clusters.append([(*(of[turn] for of in scores), item.turns[turn]) for turn in turns])
    return clusters


def figures(gold: Sequence[Gold], results: Mapping[str, Judgment | Unscored]) -> str:
    """Return the table's cells on agreement."""
    if gold[0].flaw is not None:
        return flaw_figures(gold, results)
    within: list[float] = []
    if gold[0].overall is not None:
        clusters = [
            [(overall_score(judgment), item.overall)]
            for item in gold
            if item.overall is not None
            and isinstance(judgment := results[item.dialogue.id], Judgment)
        ]
    else:
        clusters = [[(score, rating) for score, rating in of] for of in rated_turns(gold, results)]
        within = [figure for of in clusters if (figure := spearman(of)) is not None]
    whole = spearman([pair for cluster in clusters for pair in cluster])
    shown = "constant" if whole is None else f"{whole:.3f} ({interval(clusters)})"
    inside = f"{statistics.fmean(within):.3f} ({len(within)})" if within else "-"
    return f"{shown} | {inside}"


def turns_beside(
    gold: Sequence[Gold],
    first: Mapping[str, Judgment | Unscored],
    other: Mapping[str, Judgment | Unscored],
) -> str:
    """How alike both rank turns, and by how much `other` agrees better with people than `first`."""
    clusters = [[(b, a, rating) for a, b, rating in of] for of in rated_turns(gold, first, other)]
    alike = spearman([(a, b) for cluster in clusters for b, a, _ in cluster])
    shown = "not defined" if alike is None else f"{alike:.2f}"
    return f"turns: Spearman between the two {shown}, agreement with people {difference(clusters)}"


async def run(args: argparse.Namespace) -> None:
    config = (
        TypeAdapter(EngineConfig).validate_json(args.engine)
        if args.engine
        else LlamaCppConfig(model=args.model, context=args.context)
    )
    names = [name.strip() for name in (args.variants or ";".join(variants())).split(";")]
    chosen = {name: rubric for name in names if (rubric := variant(name)) is not None}
    unknown = [name for name in names if name not in chosen]
    if unknown:
        others = ["tokens, thought of N", "json, N samples"]
        sys.exit(f"no such variant: {unknown}; there are: {'; '.join([*variants(), *others])}")
    engine = await open_engine(config)
    for path in args.data:
        gold = load_gold(path)
        random.Random(SEED).shuffle(gold)
        gold = [shortened(item, args.turns) if args.turns else item for item in gold[: args.limit]]
        print(
            f"\n## {path.parent.name}, {len(gold)} dialogues, {engine.identity.model} "
            f"({engine.identity.engine}), {PROMPT_VERSION}\n"
        )
        print("| variant | agreement | (within, or found) | scored | requests | tokens in "
              "| prefilled | out | seconds |")  # fmt: skip
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        by_name: dict[str, dict[str, Judgment | Unscored]] = {}
        for name in names:
            meter = Meter(engine.complete)
            start = time.monotonic()
            results = by_name[name] = await judge_all(gold, meter, chosen[name], engine, name)
            seconds = time.monotonic() - start
            save(args.save, path, f"{engine.identity.engine} {name}", results)
            done = sum(isinstance(result, Judgment) for result in results.values())
            counts = meter.counts
            cells = (
                counts["requests"],
                counts["prompt"],
                counts["prompt"] - counts["cached"],
                counts["generated"],
            )
            print(f"| {name} | {figures(gold, results)} | {done}/{len(gold)} | "
                  + " | ".join(f"{cell:,}" for cell in cells)
                  + f" | {seconds:.0f} |", flush=True)  # fmt: skip
        for name in names[1:]:
            pair = by_name[names[0]], by_name[name]
            print(f"\n{name} beside {names[0]}: {against_first(*pair)}.")
            if gold[0].turns:
                print(f"{turns_beside(gold, *pair)}.")
    await engine.close()


async def judge_all(
    gold: Sequence[Gold], meter: Meter, config: RubricConfig, engine: Engine, name: str
) -> dict[str, Judgment | Unscored]:
    """Judge every dialogue, with as many open at once as the engine allows."""
    results: dict[str, Judgment | Unscored] = {}
    identity = JudgeIdentity(engine=engine.identity.engine, model=engine.identity.model)

    async def work(item: Gold) -> Judgment | Unscored:
        return await judge_dialogue(item.dialogue, meter, config, identity)

    def done(item: Gold, result: Judgment | Unscored) -> None:
        results[item.dialogue.id] = result
        print(f"{name}: {len(results)}/{len(gold)}", file=sys.stderr, end="\r")

    await for_each(gold, work, done, open_at_once=engine.open_dialogues)
    return results


def save(folder: Path | None, data: Path, name: str, results: Mapping[str, Any]) -> None:
    """Write the records, so that a figure can be examined later."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    label = re.sub(r"\W+", "_", f"{data.parent.name} {name}")
    with (folder / f"{label}.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(result.model_dump_json() + "\n" for result in results.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a GGUF file or 'smollm2', run by llama.cpp")
    parser.add_argument("--engine", help="an engine as in a recipe, as JSON; in place of --model")
    parser.add_argument("--data", required=True, nargs="+", type=Path)
    parser.add_argument("--limit", type=int, default=50, help="dialogues a data set")
    parser.add_argument("--turns", type=int, help="only the first so many of each dialogue")
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--variants", help="names, separated by semicolons; all where not given")
    parser.add_argument("--save", type=Path, help="folder for the records")
    args = parser.parse_args()
    if (args.model is None) == (args.engine is None):
        parser.error("give either --model or --engine")
    asyncio.run(run(args))


if __name__ == "__main__":
    main()
