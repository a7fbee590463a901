"""Keep runs' replies as a recording that runs without the model; `recipes/demo/replies.jsonl.zst` was made so.

    python scripts/record_replies.py RUN… --model MODEL.yaml --out OUT.jsonl.zst --command 'curate run …'

RUN is a run whose replies its one model gave, or that was replayed from a recording: then OUT has just those that were asked for.
MODEL.yaml is a mapping like a recipe's `models.judge`; the engine is opened to learn its identity.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
from pathlib import Path

from pydantic import TypeAdapter

from curate.engines.config import EngineConfig
from curate.engines.open import open_engine
from curate.engines.scripted import record_runs
from curate.storage.yaml_text import parse_yaml


async def record(runs: list[Path], config: EngineConfig, out: Path, date: str, command: str) -> int:
    engine = await open_engine(config)
    try:
        replies = [run / "replies.sqlite" for run in runs]
        return record_runs(replies, out, engine, date=date, command=command)
    finally:
        await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    for name in ("--model", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--command", required=True, help="what makes the replies again")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    given = parser.parse_args()
    config: EngineConfig = TypeAdapter(EngineConfig).validate_python(
        parse_yaml(given.model.read_text())
    )
    count = asyncio.run(record(given.runs, config, given.out, given.date, given.command))
    print(f"{count} replies, {given.out.stat().st_size / 1000:.0f} kB: {given.out}")


if __name__ == "__main__":
    main()
