"""Near-duplicates: MinHash documents a CPU second against datasketch, and what either finds (target 7).

Both get the same sets of word 3-grams, make signatures of the same number of permutations, and put them into the
same number of bands and rows; texts that share a band are candidates. What is a near-duplicate is settled by the
exact Jaccard similarity of all pairs, from the sets of strings and with neither library. CPU seconds are those of the
whole process, so threads are no advantage; the best of several rounds counts, loading and start left out.

    python benchmarks/minhash.py [--json] [--documents N]

datasketch runs in the venv that CURATE_PEERS_PYTHON names; without it, its figures are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

PERMUTATIONS = 128
THRESHOLD = 0.8
SHINGLE = 3
ROUNDS = 3
WORDS = 250
VOCABULARY = 20_000

Pair = tuple[int, int]


def corpus(count: int, seed: int = 0) -> list[str]:
    """Texts of 50 to 450 words by Zipf's law; three in ten are an earlier one with up to a quarter changed."""
    rng = random.Random(seed)
    weights = [1 / (rank + 2) for rank in range(VOCABULARY)]
    pool = rng.choices([f"word{n}" for n in range(VOCABULARY)], weights, k=count * WORDS)
    texts: list[list[str]] = []
    for number in range(count):
        if number and rng.random() < 0.3:
            words = list(rng.choice(texts))
            for _ in range(int(len(words) * rng.random() * rng.choice([0.02, 0.1, 0.25]))):
                words[rng.randrange(len(words))] = rng.choice(pool)
        else:
            start = rng.randrange(len(pool) - 450)
            words = pool[start : start + rng.randrange(50, 450)]
            rng.shuffle(words)
        texts.append(words)
    return [" ".join(words).capitalize() + "." for words in texts]


def shingles(tokens: list[str]) -> list[str]:
    runs = (" ".join(tokens[n : n + SHINGLE]) for n in range(max(1, len(tokens) - SHINGLE + 1)))
    return list(dict.fromkeys(runs))


def near_pairs(sets: list[list[str]]) -> set[Pair]:
    """All pairs with a Jaccard similarity of at least the threshold; those that share nothing are passed over."""
    holders: dict[str, list[int]] = {}
    for number, of in enumerate(sets):
        for shingle in of:
            holders.setdefault(shingle, []).append(number)
    shared: Counter[Pair] = Counter()
    for numbers in holders.values():
        shared.update(combinations(numbers, 2))
    return {
        (one, other)
        for (one, other), both in shared.items()
        if both / (len(sets[one]) + len(sets[other]) - both) >= THRESHOLD
    }


def best(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU and wall seconds of the best round, and what it gave."""
    rounds = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        rounds.append((time.process_time() - cpu, time.perf_counter() - wall, result))
    return min(rounds, key=lambda one: one[0])


def ours(texts: list[str], sets: list[list[str]]) -> dict[str, Any]:
    import numpy as np
    from rensa import RMinHash

    from curate.dialogue import Dialogue, Message
    from curate.selection.config import DedupConfig, NearConfig
    from curate.selection.dedup import Deduplication
    from curate.selection.minhash import Bands, banding, digest_rows

    near = NearConfig(threshold=THRESHOLD, shingle=SHINGLE, permutations=PERMUTATIONS)
    dialogues = [
        Dialogue(id=str(number), messages=(Message(role="user", content=text),))
        for number, text in enumerate(texts)
    ]

    def sign() -> Any:
        return digest_rows(
            RMinHash.digest_matrix_from_token_sets(sets, PERMUTATIONS, 0), PERMUTATIONS
        )

    def candidates() -> set[Pair]:
        bands = Bands(THRESHOLD, PERMUTATIONS, 0)
        bands.add_signatures(sign(), [True] * len(sets))
        buckets = bands.buckets(np.arange(len(sets)))
        members: dict[int, list[int]] = defaultdict(list)
        for item in buckets.items.tolist():
            for bucket in buckets.of(item):
                members[bucket].append(item)
        return {pair for inside in members.values() for pair in combinations(inside, 2)}

    def whole() -> Any:
        with Deduplication(lambda: dialogues, DedupConfig(near=near)) as found:
            return found.at()

    signed, paired, ended = best(sign), best(candidates), best(whole)
    return {
        "banding": banding(THRESHOLD, PERMUTATIONS),
        "sign": signed[:2],
        "candidates": paired[:2],
        "whole": ended[:2],
        "found": sorted(paired[2]),
        "kept": len(ended[2].kept),
        "bytes": banding(THRESHOLD, PERMUTATIONS)[0] * 4,
    }


def peer(path: Path) -> dict[str, Any]:
    """datasketch on the shingles in a file, with its own hash (sha1) and with a cheap one (crc32)."""
    from datasketch import MinHash, MinHashLSH

    given = json.loads(path.read_text(encoding="utf-8"))
    sets = [[shingle.encode() for shingle in of] for of in given["sets"]]
    bands = tuple(given["banding"])

    def sign(**options: Any) -> list[Any]:
        return list(MinHash.bulk(sets, num_perm=PERMUTATIONS, seed=1, **options))

    def candidates() -> set[Pair]:
        index = MinHashLSH(num_perm=PERMUTATIONS, params=bands)
        found: set[Pair] = set()
        for number, signature in enumerate(sign()):
            found.update((other, number) for other in index.query(signature))
            index.insert(number, signature)
        return found

    signed, cheap = best(sign), best(lambda: sign(hashfunc=zlib.crc32))
    paired = best(candidates)
    return {
        "sign": signed[:2],
        "cheap": cheap[:2],
        "candidates": paired[:2],
        "found": sorted(paired[2]),
    }


def run_peer(sets: list[list[str]], banding: tuple[int, int]) -> dict[str, Any] | None:
    python = os.environ.get("CURATE_PEERS_PYTHON")
    if not python:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shingles.json"
        path.write_text(json.dumps({"sets": sets, "banding": banding}), encoding="utf-8")
        command = [python, __file__, "--peer", str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def recall_and_precision(found: Iterable[Iterable[int]], near: set[Pair]) -> tuple[float, float]:
    pairs = {tuple(pair) for pair in found}
    hits = len(pairs & near)
    return hits / len(near), hits / len(pairs) if pairs else 1.0


def measure(count: int) -> dict[str, Any]:
    from curate.selection.shingles import tokenise

    texts = corpus(count)
    sets = [shingles(tokenise(text)) for text in texts]
    near = near_pairs(sets)
    mine = ours(texts, sets)
    other = run_peer(sets, mine["banding"])
    rows: list[dict[str, Any]] = []

    def row(metric: str, value: float, unit: str, beside: str, target: str = "") -> None:
        met = value >= float(target.split()[1]) if target else None
        shown = {"metric": metric, "value": round(value, 4), "unit": unit}
        rows.append(shown | {"target": target, "met": met, "beside": beside})

    def rate(seconds: list[float]) -> str:
        return f"{count / seconds[0]:,.0f} a CPU second, {count / seconds[1]:,.0f} a second"

    missing = "CURATE_PEERS_PYTHON is not set: datasketch was not run"
    for key, name in (("sign", "signatures"), ("candidates", "signatures and candidates")):
        said = f"datasketch {rate(other[key])}" if other else missing
        row(f"{name}: documents", count / mine[key][0], "a CPU second", said)
        if other:
            ratio = other[key][0] / mine[key][0]
            row(f"{name}: against datasketch", ratio, "times", rate(mine[key]), ">= 10")
    if other:
        said = f"datasketch with crc32 for sha1: {rate(other['cheap'])}"
        row(
            "signatures: against its cheap hash", other["cheap"][0] / mine["sign"][0], "times", said
        )
    said = f"the whole step: tokens, signatures, candidates, exact Jaccard; {mine['kept']} of {count} kept"
    row("from text to decision: documents", count / mine["whole"][0], "a CPU second", said)
    theirs = recall_and_precision(other["found"], near) if other else None
    for place, name in enumerate(("recall", "precision")):
        said = f"datasketch {theirs[place]:.4f}" if theirs else missing
        value = recall_and_precision(mine["found"], near)[place]
        row(f"{name} of candidates", value, f"of {len(near)} pairs", said)
    row(
        "held in memory", mine["bytes"], "bytes a text", f"{PERMUTATIONS * 4} for a whole signature"
    )
    bands, band_rows = mine["banding"]
    how = (
        f"{count} texts, {sum(map(len, sets)) // count} {SHINGLE}-grams each on average; {PERMUTATIONS} permutations, "
        f"{bands} bands of {band_rows}; Jaccard >= {THRESHOLD}; best of {ROUNDS}. Candidates are confirmed by exact "
        "Jaccard afterwards, so the precision of what is removed is 1."
    )
    return {"target": 7, "name": "Near-duplicates (MinHash)", "rows": rows, "how": how}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        print(json.dumps(peer(arguments.peer)))
        return
    result = measure(arguments.documents)
    if arguments.json:
        print(json.dumps(result))
        return
    for row in result["rows"]:
        met = {True: "met", False: "NOT MET", None: ""}[row["met"]]
        print(
            f"{row['metric']:44} {row['value']:>14,.4g} {row['unit']:16} {row['target']:6} {met:8} {row['beside']}"
        )
    print(result["how"])


if __name__ == "__main__":
    sys.exit(main())
