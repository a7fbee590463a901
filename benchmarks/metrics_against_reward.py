"""How well weighted metrics rank trajectories whose reward is known: AUC of each, with an interval over tasks.

    python benchmarks/metrics_against_reward.py runs/my-run

The run's recipe has `metrics:`, its source rewards of 0 or 1 (tau-bench). No model is asked.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from curate.run.outputs import SCORES
from curate.statistics import SEED
from curate.trust.agreement import auc

RESAMPLES = 2_000


def interval(
    scores: Sequence[float], solved: Sequence[bool], tasks: Sequence[str]
) -> tuple[float, float]:
    """95 % percentile bootstrap of the AUC; whole tasks are drawn, since trials of one task are alike."""
    rows = defaultdict(list)
    for at, task in enumerate(tasks):
        rows[task].append(at)
    draw, areas = random.Random(SEED), []
    for _ in range(RESAMPLES):
        drawn = [at for task in draw.choices(list(rows), k=len(rows)) for at in rows[task]]
        area = auc([scores[at] for at in drawn], [solved[at] for at in drawn])
        if area is not None:
            areas.append(area)
    areas.sort()
    return areas[int(0.025 * len(areas))], areas[int(0.975 * len(areas))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    table = pl.read_parquet(parser.parse_args().run / SCORES)
    scored = table.filter(pl.col("overall_score").is_not_null() & pl.col("reward").is_not_null())
    print(f"{scored.height} of {table.height} trajectories have a reward and a score")
    print("| score | trajectories, solved | AUC (95 %) |\n|---|---|---|")
    for name in [
        "overall_score",
        *(c for c in table.columns if c.startswith("metric_") and c.endswith("_expected")),
    ]:
        rows = scored.filter(pl.col(name).is_not_null())
        solved = (rows["reward"] == 1).to_list()
        values = rows[name].to_list()
        area = auc(values, solved)
        if area is None:
            print(f"| {name} | {rows.height}, {sum(solved)} | not defined |")
            continue
        low, high = interval(values, solved, rows["group"].to_list())
        print(f"| {name} | {rows.height}, {sum(solved)} | {area:.2f} ({low:.2f} to {high:.2f}) |")


if __name__ == "__main__":
    main()
