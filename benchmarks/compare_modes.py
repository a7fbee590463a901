"""Compare the rubric judge's scoring modes and prompts against people's ratings.

    python benchmarks/compare_modes.py --model judge.gguf --data llm_rubric/real_data.json --limit 60
    python benchmarks/compare_modes.py --model judge.gguf --data conture/data.json --variants "tokens;json"

Two public sets are known by their shape:
- LLM-Rubric (`real_data.json` beside `human_judges_real_convs_FIXED_ANON.tsv`): one person's overall
  satisfaction (Q0, 1-4) a dialogue, set against the judge's overall score of the dialogue;
- ConTurE (`data.json`): three people's majority impression (0-2) of every turn, set against the judge's
  score of that turn, over all turns and within each dialogue (which no difference between bots explains).

The judge's overall score is the mean of coherence, task_completion (where it is no n/a) and the turns'
mean helpfulness; a turn's is the mean of context_use and helpfulness. In mode `tokens` these are
expectations, in mode `json` integers. Every variant sees the same dialogues, drawn with a fixed seed.
A Markdown table goes to standard output: Spearman with its bootstrap interval, the share of dialogues
scored, requests, tokens (prompt, of these cached, generated) and seconds. An interval that holds the
other variant's figure is no ground to prefer either.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.engines.base import Ask, Completion, Request
from curate.engines.config import LlamaCppConfig, open_engine
from curate.judging import PROMPT_VERSION, RubricConfig, judge_dialogue
from curate.judging.wording import resolve_texts
from curate.records import JudgeIdentity, Judgment, TurnScores, Unscored

RATINGS = "human_judges_real_convs_FIXED_ANON.tsv"
SEED = 42
BOOTSTRAP = 1000


@dataclass
class Gold:
    """A dialogue and what people said: overall, or a rating a turn."""

    dialogue: Dialogue
    overall: float | None = None
    turns: dict[int, float] = field(default_factory=dict)


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
    """What is compared. Texts of a variant are derived from ours, so that one thing differs at a time."""
    ours = resolve_texts(RubricConfig()).rubric
    scales = ours.index("Scales, 1")
    asks_only = "\n".join(
        line for line in ours[scales:].splitlines() if not re.match(r"[1-5] = ", line)
    )
    ends_only = "\n".join(line for line in ours.splitlines() if not re.match(r"[2-4] = ", line))
    task = ours.splitlines()[0]
    json_mode = RubricConfig(mode="json", text="off")
    tokens = RubricConfig(mode="tokens")
    return {
        "tokens": tokens,
        "json": json_mode,
        "tokens, no prefix": tokens.model_copy(update={"answer_prefix": ""}),
        "tokens, prefix 'Score: [['": tokens.model_copy(update={"answer_prefix": "Score: [["}),
        "tokens, prefix '[['": tokens.model_copy(update={"answer_prefix": "[["}),
        "tokens, levels 1 and 5 only": RubricConfig(mode="tokens", rubric=ends_only),
        "tokens, no levels": RubricConfig(mode="tokens", rubric=ours[:scales] + asks_only),
        "tokens, scales only": RubricConfig(mode="tokens", rubric=f"{task}\n{ours[scales:]}"),
        "tokens, no levels, no rules": RubricConfig(mode="tokens", rubric=f"{task}\n{asks_only}"),
        "json, no levels": RubricConfig(mode="json", text="off", rubric=ours[:scales] + asks_only),
        "json, scales only": RubricConfig(
            mode="json", text="off", rubric=f"{task}\n{ours[scales:]}"
        ),
    }


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
    """Ranks from 1, ties share their mean."""
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
    """Pearson over ranks; None where a side is constant or there are fewer than three pairs."""
    if len(pairs) < 3:
        return None
    one, other = ranks([a for a, _ in pairs]), ranks([b for _, b in pairs])
    if len(set(one)) == 1 or len(set(other)) == 1:
        return None
    return statistics.correlation(one, other)


def interval(clusters: Sequence[Sequence[tuple[float, float]]]) -> str:
    """95 % bootstrap interval, dialogues drawn with all their pairs."""
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


@dataclass
class Meter:
    """Counts what an engine was asked."""

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


def figures(gold: Sequence[Gold], results: Mapping[str, Judgment | Unscored]) -> str:
    """The table's cells on agreement."""
    clusters: list[list[tuple[float, float]]] = []
    within: list[float] = []
    for item in gold:
        judgment = results[item.dialogue.id]
        if not isinstance(judgment, Judgment):
            continue
        if item.overall is not None:
            clusters.append([(overall_score(judgment), item.overall)])
            continue
        pairs = [(turn_score(turn), item.turns[turn.turn]) for turn in judgment.per_turn]
        clusters.append(pairs)
        figure = spearman(pairs)
        if figure is not None:
            within.append(figure)
    whole = spearman([pair for cluster in clusters for pair in cluster])
    shown = "constant" if whole is None else f"{whole:.3f} ({interval(clusters)})"
    inside = f"{statistics.fmean(within):.3f} ({len(within)})" if within else "-"
    return f"{shown} | {inside}"


async def run(args: argparse.Namespace) -> None:
    engine = await open_engine(LlamaCppConfig(model=args.model, context=args.context))
    chosen = variants()
    names = [name.strip() for name in args.variants.split(";")] if args.variants else list(chosen)
    unknown = [name for name in names if name not in chosen]
    if unknown:
        sys.exit(f"no such variant: {unknown}; there are: {'; '.join(chosen)}")
    for path in args.data:
        row = json.loads(path.read_text(encoding="utf-8"))[0]
        gold = load_conture(path) if "turns" in row else load_llm_rubric(path)
        random.Random(SEED).shuffle(gold)
        gold = gold[: args.limit]
        print(
            f"\n## {path.parent.name}, {len(gold)} dialogues, {Path(args.model).name}, {PROMPT_VERSION}\n"
        )
        print("| variant | Spearman (95 %) | within dialogues (n) | scored | requests | prompt tokens "
              "| cached | generated | seconds |")  # fmt: skip
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        for name in names:
            meter = Meter(engine.complete)
            results: dict[str, Judgment | Unscored] = {}
            identity = JudgeIdentity(engine="llamacpp", model=Path(args.model).name)
            start = time.monotonic()
            for index, item in enumerate(gold):
                results[item.dialogue.id] = await judge_dialogue(
                    item.dialogue, meter, chosen[name], identity
                )
                print(f"{name}: {index + 1}/{len(gold)}", file=sys.stderr, end="\r")
            seconds = time.monotonic() - start
            save(args.save, path, name, results)
            done = sum(isinstance(result, Judgment) for result in results.values())
            print(f"| {name} | {figures(gold, results)} | {done}/{len(gold)} | "
                  + " | ".join(str(meter.counts[key])
                               for key in ("requests", "prompt", "cached", "generated"))
                  + f" | {seconds:.0f} |", flush=True)  # fmt: skip
    await engine.close()


def save(folder: Path | None, data: Path, name: str, results: Mapping[str, Any]) -> None:
    """Keep the records, so that a figure can be looked into later."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    label = re.sub(r"\W+", "_", f"{data.parent.name} {name}")
    with (folder / f"{label}.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(result.model_dump_json() + "\n" for result in results.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="a GGUF file or 'smollm2'")
    parser.add_argument("--data", required=True, nargs="+", type=Path)
    parser.add_argument("--limit", type=int, default=50, help="dialogues a data set")
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--variants", help="names, separated by semicolons; all where not given")
    parser.add_argument("--save", type=Path, help="folder for the records")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
