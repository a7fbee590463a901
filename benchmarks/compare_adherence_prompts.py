"""How well does a judge with our adherence prompt tell adherent turns from violations?

Reads labelled flat rows (`role, assistant, ground_truth_assistant, label`; `adherent` is the positive
class), asks a local model about each in continuous mode, and prints AUC for the paper's own prompt and for
ours, asked of the same rows in one run. Rows that a prompt leaves unscored are counted, and left out for all.

    python benchmarks/compare_adherence_prompts.py --model judge.gguf --data benchmark.json --limit 150

`--rubric NAME=FILE` adds another rubric in our layout, for trying a wording before it replaces ours.
The figures of one small benchmark guard against regress; they are no target to tune to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from curate.adherence.config import AdherenceConfig
from curate.adherence.llm import LABELS, PROMPT_VERSION, prompt, read_continuous, turn_request
from curate.dialogue import Dialogue, Message
from curate.engines.base import Engine, Request
from curate.engines.config import LlamaCppConfig, open_engine
from curate.engines.layout import trunk

PAPER = (
    "You are an evaluation assistant. Given a role definition and an assistant response, determine "
    "whether the response adheres to the role. Answer ONLY with YES (adherent) or NO (non-adherent).\n\n"
    "Role definition:\n{role}\n\nAssistant response:\n{assistant}"
)
CONFIG = AdherenceConfig(output_mode="continuous")

Row = dict[str, str]
Ask = Callable[[Row], Request]


def paper_request(row: Row) -> Request:
    text = PAPER.format(role=row["role"], assistant=row["assistant"])
    return Request(messages=({"role": "user", "content": text},), max_tokens=1, labels=LABELS)


def our_request(rubric: str) -> Ask:
    def ask(row: Row) -> Request:
        dialogue = Dialogue(
            id="row",
            role_definition=row["role"],
            messages=(Message(role="assistant", content=row["assistant"]),),
        )
        on = trunk(rubric, dialogue, dialogue.turns, show_scenario=False)
        return turn_request(on, CONFIG)

    return ask


def auc(positive: list[float], negative: list[float]) -> float:
    """Share of pairs (adherent, violation) that the scores put in the right order; ties count half."""
    pairs = [(p > n) + 0.5 * (p == n) for p in positive for n in negative]
    return sum(pairs) / len(pairs) if pairs else float("nan")


def auc_of(scores: list[float], adherent: list[bool], rows: list[int]) -> float:
    return auc(
        [scores[row] for row in rows if adherent[row]],
        [scores[row] for row in rows if not adherent[row]],
    )


def paired_interval(
    ours: list[float], theirs: list[float], adherent: list[bool], resamples: int = 1000
) -> tuple[float, float]:
    """95 % percentile bootstrap of the difference of AUCs over the same resampled rows, seed 42."""
    rng = random.Random(42)
    rows = range(len(adherent))
    found = []
    for _ in range(resamples):
        drawn = rng.choices(rows, k=len(rows))
        if len({adherent[row] for row in drawn}) == 2:
            found.append(auc_of(ours, adherent, drawn) - auc_of(theirs, adherent, drawn))
    found.sort()
    return found[int(0.025 * len(found))], found[int(0.975 * len(found)) - 1]


async def score(engine: Engine, name: str, ask: Ask, rows: list[Row]) -> list[float | None]:
    """P(yes) of each row, None where unscored."""
    start, scores = time.monotonic(), []
    for place, row in enumerate(rows, start=1):
        [completion] = await engine.complete([ask(row)])
        scores.append(read_continuous(completion, CONFIG).score)
        if place % 25 == 0:
            print(f"  {name}: {place} rows, {time.monotonic() - start:.0f} s", flush=True)
    return scores


def report(rows: list[Row], scored: dict[str, list[float | None]]) -> None:
    kept = [
        place for place in range(len(rows)) if all(s[place] is not None for s in scored.values())
    ]
    adherent = [rows[place]["label"] == "adherent" for place in kept]
    clean = {name: [float(s[p] or 0.0) for p in kept] for name, s in scored.items()}
    kinds = sorted({row["label"] for row in rows} - {"adherent"})
    print(f"{len(kept)} of {len(rows)} rows scored by every prompt; ours is {PROMPT_VERSION}")
    header = ["prompt", "AUC", "separation", "unscored", *kinds]
    print(" | ".join(header))
    for name, scores in clean.items():
        good = [s for s, is_good in zip(scores, adherent, strict=True) if is_good]
        bad = [s for s, is_good in zip(scores, adherent, strict=True) if not is_good]
        by_kind = [
            auc(good, [scores[i] for i, p in enumerate(kept) if rows[p]["label"] == kind])
            for kind in kinds
        ]
        gap = sum(good) / max(1, len(good)) - sum(bad) / max(1, len(bad))
        unscored = sum(s is None for s in scored[name])
        cells = [f"{auc(good, bad):.3f}", f"{gap:+.3f}", str(unscored)]
        print(" | ".join([name, *cells, *(f"{value:.3f}" for value in by_kind)]))
    for name in clean:
        if name != "paper":
            low, high = paired_interval(clean[name], clean["paper"], adherent)
            print(f"AUC of {name} minus paper: 95 % interval {low:+.3f} to {high:+.3f}")


async def score_all(
    model: str, context: int, asks: dict[str, Ask], rows: list[Row]
) -> dict[str, list[float | None]]:
    engine = await open_engine(LlamaCppConfig(model=model, context=context))
    try:
        return {name: await score(engine, name, ask, rows) for name, ask in asks.items()}
    finally:
        await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="path of a GGUF file")
    parser.add_argument("--data", required=True, type=Path, help="JSON list of labelled rows")
    parser.add_argument("--limit", type=int, help="only the first rows")
    parser.add_argument("--rubric", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--save", type=Path, help="write every score to this JSON file")
    given = parser.parse_args()
    rows: list[Row] = json.loads(given.data.read_text("utf-8"))[: given.limit]
    asks: dict[str, Ask] = {"paper": paper_request, "ours": our_request(prompt("constructive"))}
    for added in given.rubric:
        name, _, file = added.partition("=")
        asks[name] = our_request(Path(file).read_text("utf-8"))
    scored = asyncio.run(score_all(given.model, given.context, asks, rows))
    if given.save:
        given.save.write_text(json.dumps(scored), encoding="utf-8")
    report(rows, scored)


if __name__ == "__main__":
    main()
