"""A run of ConTurE from kept readings, to be certified by its turn labels; and how often such certificates hold.

    python benchmarks/certify_turns.py make readings/conture-qwen2.5-coder-1.5b.jsonl --data conture/data.json --out runs/conture
    curate sample runs/conture -n 90 --of scored --dimension helpfulness --out labels.csv
    python benchmarks/certify_turns.py fill labels.csv --data conture/data.json
    curate certify runs/conture labels.csv --column mean_score --bad "human < 0.75"
    python benchmarks/certify_turns.py simulate runs/conture --data conture/data.json
    python benchmarks/certify_turns.py label gold.csv --data conture/data.json
    curate agreement runs/conture gold.csv --scale context_use=0-2 --scale helpfulness=0-2 --scale coherence=1-3

`make` writes a run folder as a judge would have left it: no model calls. `fill` writes people's majority impression of every
turn (0-2) where a reviewer would write it. All 119 dialogues are labelled, so the truth is known: `simulate` draws 2,000
times and says how often the certified set has more bad ones than promised. `label` writes all of people's ratings.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from pathlib import Path
from statistics import fmean

import numpy as np
import polars as pl
from compare_levels import load_people
from compare_modes import load_gold

from curate.recipe import parse_recipe
from curate.records import Judgment, StageName
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_manifest
from curate.run.staging import scored_rows
from curate.storage.run_folder import RunFolder
from curate.trust.guarantee import certified_threshold, p_value, simple, threshold_grid

RUNS = 2_000
BAD = 0.75
"""A dialogue is bad where the mean impression of its turns is below it, on 0-2."""


def make(args: argparse.Namespace) -> None:
    """Write a run with these judgments, which selects every dialogue that has one."""
    judgments = [
        Judgment.model_validate(held)
        for line in args.readings.read_text(encoding="utf-8").splitlines()
        if (held := json.loads(line)["judgment"])["kind"] == "judgment"
    ]
    gold = load_gold(args.data)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        chats = args.out.parent / f"{args.out.name}.jsonl"
        chats.parent.mkdir(parents=True, exist_ok=True)
        rows = (
            {"id": d.id, "messages": [{"role": m.role, "content": m.content} for m in d.messages]}
            for d in (item.dialogue for item in gold)
        )
        chats.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        recipe = {
            "name": args.out.name,
            "source": {"path": str(chats)},
            "scenario": gold[0].dialogue.scenario,
            "adherence": False,
            "export": False,
        }
        first = run_recipe(parse_recipe(recipe | {"judge": False}), out=folder / "read")
        made = scored_rows(first.folder, StageName.JUDGE, "readings")
        for judgment in judgments:
            made.append(judgment.content_hash, judgment)
        made.close()
        made.compact([judgment.content_hash for judgment in judgments])
        manifest = read_manifest(first.folder).model_copy(
            update={
                "fingerprints": {"judge": "readings"},
                "identities": {"judge": judgments[0].identity},
            }
        )
        with RunFolder(first.folder) as held:
            held.write_manifest(manifest.model_dump(mode="json"))
        select = {"where": {"scored": "verdict IS NOT NULL"}}
        reused = {"select": select, "reuse": str(first.folder)}
        run_recipe(parse_recipe(recipe | reused), out=args.out)


def fill(args: argparse.Namespace) -> None:
    """Fill in the labels of every turn that the file asks about."""
    ratings = {item.dialogue.id: item.turns for item in load_gold(args.data)}
    with args.labels.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["value"] = f"{(ratings[row['id']] or {})[int(row['turn'])]:g}"
    with args.labels.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def label(args: argparse.Namespace) -> None:
    """Write all of people's ratings of dialogues and turns as `curate agreement` reads them."""
    with args.labels.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "turn", "dimension", "value", "rater"))
        for row in load_people(args.data).labels:
            writer.writerow((row.dialogue_id, row.turn, row.dimension, row.value, row.rater))


def simulate(args: argparse.Namespace) -> None:
    """Print how often a draw certifies, what it keeps, and how often the truth is worse than certified."""
    means = {
        item.dialogue.id: fmean((item.turns or {0: 0.0}).values()) for item in load_gold(args.data)
    }
    table = pl.read_parquet(args.run / "scores.parquet")
    scores = table["mean_score"].to_numpy()
    bad = np.array([means[name] < BAD for name in table["id"]])
    grid = threshold_grid(scores.tolist())
    inside = scores[None, :] >= np.array(grid)[:, None]
    truth = (inside & bad).sum(axis=1) / inside.sum(axis=1)
    print(
        f"{len(bad)} dialogues, {bad.sum()} bad ({bad.mean():.1%}); bad at or above each threshold:"
    )
    print("  " + ", ".join(f"{t:.2f}: {share:.0%}" for t, share in zip(grid, truth, strict=True)))
    for labels in (40, 60, 90):
        rng = np.random.default_rng(labels)
        wrong = certified = audits = 0
        kept = []
        for _ in range(RUNS):
            drawn = rng.choice(len(bad), labels, replace=False)
            n, k = inside[:, drawn].sum(axis=1), (inside[:, drawn] & bad[drawn]).sum(axis=1)
            sets = [
                (t, simple(int(k[at]), int(n[at]), int(inside[at].sum())))
                for at, t in enumerate(grid)
            ]
            passed = [step for step in certified_threshold(sets, 0.1, 0.1) if step.passed]
            audits += p_value(simple(int(bad[drawn].sum()), labels, len(bad)), 0.1) <= 0.1
            if passed:
                certified += 1
                kept.append(passed[-1].tally.size)
                wrong += bool(truth[grid.index(passed[-1].threshold)] > 0.1)
        size = f", keeps {np.median(kept):.0f} (median)" if kept else ""
        print(
            f"{labels} labels: threshold certified in {certified / RUNS:.1%} of draws{size}, wrong in {wrong / RUNS:.1%}; "
            f"the whole certified in {audits / RUNS:.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, run, place in (
        ("make", make, "readings"),
        ("fill", fill, "labels"),
        ("label", label, "labels"),
        ("simulate", simulate, "run"),
    ):
        command = commands.add_parser(name)
        command.add_argument(place, type=Path)
        command.add_argument("--data", type=Path, required=True)
        command.set_defaults(run_command=run)
        if name == "make":
            command.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.run_command(args)


if __name__ == "__main__":
    main()
