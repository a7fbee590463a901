"""The checks over a set of pairs: CPU seconds and memory, and whether they see a planted marker.

Pairs of a prompt of 80 words and two sides of 150, by Zipf's law over 30,000 words; in a share of them the
chosen side opens with "Sure!". Figures are of one process: reading the pairs from a file, all checks but
repeated prompts, and repeated prompts (which reads the file twice).

    python benchmarks/pair_set.py [--pairs N] [--planted SHARE]
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from curate.dialogue import Message
from curate.records import PreferencePair
from curate.run.pair_checks import count_repeated_prompts
from curate.trust.pair_set import PairSetConfig, check_pair_set

WORDS = [f"word{n}" for n in range(30_000)]
WEIGHTS = list(accumulate(1 / (rank + 1) for rank in range(len(WORDS))))


def write(path: Path, count: int, planted: float) -> None:
    draw = random.Random(0)

    def text(words: int) -> str:
        return " ".join(draw.choices(WORDS, cum_weights=WEIGHTS, k=words))

    with path.open("wb") as out:
        for number in range(count):
            opening = "Sure! " if draw.random() < planted else ""
            pair = PreferencePair(
                pair_id=str(number),
                dialogue_id=str(number),
                content_hash="",
                source="natural",
                basis="rank",
                prompt=(Message(role="user", content=text(80)),),
                chosen=Message(role="assistant", content=opening + text(150)),
                rejected=Message(role="assistant", content=text(150)),
            )
            out.write(pair.model_dump_json().encode() + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--planted", type=float, default=0.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.jsonl"
        write(path, options.pairs, options.planted)

        def read() -> Iterator[PreferencePair]:
            with path.open("rb") as lines:
                yield from map(PreferencePair.model_validate_json, lines)

        def megabytes() -> float:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

        before, start = megabytes(), time.process_time()
        report = check_pair_set(read, PairSetConfig(repeated_prompts=None))
        print(f"checks   {time.process_time() - start:6.1f} CPU s  {megabytes() - before:6.0f} MB")
        start = time.process_time()
        repeats = count_repeated_prompts(read)
        print(f"repeats  {time.process_time() - start:6.1f} CPU s  {megabytes() - before:6.0f} MB")
        for check in report.checks[:3]:
            print(f"{check.name} {check.figure:.3f} {check.status}  {check.detail}")
        print(f"repeated prompts {repeats}")


if __name__ == "__main__":
    main()
