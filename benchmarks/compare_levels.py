"""A judge's readings of dialogues that people have rated, to hold calibrated levels and `p_good` against people.

    python benchmarks/compare_levels.py ask --model judge.gguf --data conture/data.json --out readings.jsonl

Every dialogue is judged in mode `tokens`, a line each with people's ratings; it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path

from compare_modes import SEED, load_gold
from pydantic import TypeAdapter

from curate.engines.config import EngineConfig, LlamaCppConfig, open_engine
from curate.judging import PROMPT_VERSION, RubricConfig, judge_dialogue
from curate.records import JudgeIdentity


async def ask(args: argparse.Namespace) -> None:
    gold = load_gold(args.data)
    random.Random(SEED).shuffle(gold)
    done = set()
    if args.out.exists():
        done = {json.loads(line)["dialogue"] for line in args.out.open(encoding="utf-8")}
    engine = await open_engine(
        TypeAdapter(EngineConfig).validate_json(args.engine)
        if args.engine
        else LlamaCppConfig(model=args.model, context=args.context, threads=args.threads)
    )
    config = RubricConfig(mode="tokens", text="off", conversation="further_call")
    identity = JudgeIdentity(
        engine="benchmark",
        model=str(args.model or args.engine),
        mode="tokens",
        prompt_version=PROMPT_VERSION,
    )
    part, parts = map(int, args.part.split("/"))
    for number, item in enumerate(gold[: args.limit]):
        if number % parts != part or item.dialogue.id in done:
            continue
        start = time.perf_counter()
        record = await judge_dialogue(item.dialogue, engine.complete, config, identity)
        line = {
            "dialogue": item.dialogue.id,
            "overall": item.overall,
            "turns": item.turns,
            "judgment": record.model_dump(mode="json"),
        }
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(
            f"{number + 1}/{len(gold)} {time.perf_counter() - start:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("ask")
    judge = asking.add_mutually_exclusive_group(required=True)
    judge.add_argument("--model", help="a GGUF file, run by llama.cpp")
    judge.add_argument("--engine", help="an engine as in a recipe, as JSON; in place of --model")
    asking.add_argument("--data", required=True, type=Path)
    asking.add_argument("--out", required=True, type=Path)
    asking.add_argument("--limit", type=int)
    asking.add_argument("--part", default="0/1", help="N/M: every Mth dialogue from the Nth on")
    asking.add_argument("--context", type=int, default=8192)
    asking.add_argument("--threads", type=int)
    asking.set_defaults(run=lambda args: asyncio.run(ask(args)))
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
