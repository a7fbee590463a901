"""Shared by the scripts that ask a judge and keep its readings: options, readings kept already, tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from curate.engines.base import Engine
from curate.engines.config import EngineConfig, LlamaCppConfig
from curate.engines.open import open_engine


def add_judge(parser: argparse.ArgumentParser) -> None:
    judge = parser.add_mutually_exclusive_group(required=True)
    judge.add_argument("--model", help="a GGUF file, run by llama.cpp")
    judge.add_argument("--engine", help="an engine as in a recipe, as JSON; in place of --model")
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--threads", type=int)


def add_material(parser: argparse.ArgumentParser) -> None:
    """Add the options for MT-Bench-101: which dialogues are asked about, and what the judge is told about them."""
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument(
        "--leave-out",
        nargs="*",
        default=["SC"],
        help="tasks whose replies hold mistakes on purpose",
    )
    parser.add_argument(
        "--scenario",
        default="A person talks with an assistant, which should answer every message correctly and heed "
        "all that was said before.",
    )


def planted_parser(description: str | None, *, limit: int) -> argparse.ArgumentParser:
    """Return the parser of a resumable script that asks a recipe's judge about planted flaws."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--limit", type=int, default=limit, help="planted flaws")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--replies", type=Path, required=True, help="SQLite file that keeps them")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="then it reports")
    return parser


async def open_judge(args: argparse.Namespace) -> Engine:
    return await open_engine(
        TypeAdapter(EngineConfig).validate_json(args.engine)
        if args.engine
        else LlamaCppConfig(model=args.model, context=args.context, threads=args.threads)
    )


def asked_before(out: Path) -> set[str]:
    """Return the ids of the dialogues in a file of readings; none if there is no file."""
    if not out.exists():
        return set()
    return {json.loads(line)["dialogue"] for line in out.open(encoding="utf-8")}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
