"""Check a run's rubric judge, once all of its rows are there.

`trust` reads no files; this module passes it dialogues and rows. The result is `judge_checks` of the manifest, which
summary, `show` and dataset card print.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.executors.opening import Runner
from curate.records import Judgment, StageName, Unscored
from curate.run.staging import Job, scored_rows
from curate.stages import Judged, Stage, WorkItem
from curate.storage.stage_rows import StageRows
from curate.trust.failure_modes import FailureModes
from curate.trust.judge_checks import JudgeTally

_SCENARIOS = 100
"""Number of different scenarios that is enough to give each dialogue another one's."""


@dataclass(frozen=True, slots=True)
class Swapped:
    """A sample of dialogues judged with another dialogue's scenario.

    Attributes:
        records: by the content hash of the dialogue as it is; those that are unscored are left out.
        why_none: why no dialogue was judged so; empty where some were.
    """

    records: Mapping[str, Mapping[str, Any]]
    why_none: str = ""


async def judge_swapped(job: Job, stage: Stage[Judged], runner: Runner) -> Swapped:
    """Judge an even sample again, each dialogue with the scenario of another."""
    sample, why_none = _swapped_sample(
        job, job.recipe.judge.persona_check if job.recipe.judge else 0
    )
    rows = scored_rows(job.path, stage.name, stage.fingerprint)
    by_key = {other.content_hash: other for other in sample.values()}
    keys, done = pl.Series(list(by_key), dtype=pl.String), frozenset(rows.done())
    items = (WorkItem(other) for key, other in by_key.items() if key not in done)
    await job.make_rows(stage, rows, keys, items, runner)
    job.log.stage(stage.name).rows = len(keys)
    records = {key: orjson.loads(row) for key, row in rows.stored(keys)}
    return Swapped(
        {
            key: records[other.content_hash]
            for key, other in sample.items()
            if records[other.content_hash]["kind"] == "judgment"
        },
        why_none,
    )


def _swapped_sample(job: Job, size: int) -> tuple[dict[str, Dialogue], str]:
    """Return by content hash each sampled dialogue with another's scenario; the same sample whenever the data is the same."""
    scenarios: dict[str, None] = {}

    def with_scenario(dialogue: Dialogue) -> bool:
        scenario = (dialogue.scenario or "").strip()
        if scenario and len(scenarios) < _SCENARIOS:
            scenarios[scenario] = None
        return bool(scenario)

    distinct = job.dialogues(job.hashes().is_first_distinct())
    # The hashes are even, so the smallest are a sample that grows with the data without changing.
    sample = nsmallest(size, filter(with_scenario, distinct), key=lambda one: one.content_hash)
    if len(scenarios) < 2:
        return {}, "all dialogues have the same scenario, so there is no other to judge them with"
    different = list(scenarios)
    swapped = {}
    for at, dialogue in enumerate(sample):
        own = (dialogue.scenario or "").strip()
        others = (different[(at + step) % len(different)] for step in range(len(different)))
        other = next(scenario for scenario in others if scenario != own)
        swapped[dialogue.content_hash] = dialogue.model_copy(update={"scenario": other})
    return swapped, ""


def check_judge_scores(
    job: Job, judgments: StageRows[Judgment | Unscored], swapped: Swapped | None
) -> None:
    """Check the run's judgments, equal dialogues once; the result stands in the report of their stage."""
    hashes = job.hashes()
    has_row = hashes.is_first_distinct() & hashes.is_in(judgments.done().implode())
    tally, modes = JudgeTally(), FailureModes()
    with job.log.timed("judge_checks"):
        rows = zip(job.dialogues(has_row), judgments.stored(hashes), strict=True)
        for dialogue, (key, row) in rows:
            if key != dialogue.content_hash:
                raise ValueError(f"the rows in {judgments.folder} are in another order")
            record = orjson.loads(row)
            tally.add(record)
            if record["kind"] == "judgment":
                modes.add(dialogue, record)
                if swapped is not None and key in swapped.records:
                    modes.add_swapped(dialogue.id, record, swapped.records[key])
    report = tally.report()
    if report is not None:
        why_none = "judge.persona_check is 0, or no model was asked"
        if swapped is not None:
            why_none = swapped.why_none
        report = report.model_copy(update={"failure_modes": modes.report(why_none)})
    job.log.stage(StageName.JUDGE).figures["judge_checks"] = report
