"""The checks of a run's rubric judge: its rows beside the dialogues, once they are all there.

`trust` knows no files; dialogues and rows are handed to it here. What comes out stands in the manifest
(`judge_checks`), from where summary, `show` and dataset card take it.
"""

from __future__ import annotations

import orjson

from curate.records import Judgment, StageName, Unscored
from curate.run.staging import Job
from curate.storage.rows import StageRows
from curate.trust.failure_modes import FailureModes
from curate.trust.judge_checks import JudgeTally


def check_judge_scores(job: Job, judgments: StageRows[Judgment | Unscored]) -> None:
    """Check the run's judgments, equal dialogues once; the result stands in the report of their stage."""
    hashes = job.hashes()
    wanted = hashes.is_first_distinct() & hashes.is_in(judgments.done().implode())
    tally, modes = JudgeTally(), FailureModes()
    with job.log.timed("judge_checks"):
        rows = zip(job.dialogues(wanted), judgments.stored(hashes), strict=True)
        for dialogue, (key, row) in rows:
            if key != dialogue.content_hash:
                raise ValueError(f"the rows in {judgments.folder} are in another order")
            record = orjson.loads(row)
            tally.add(record)
            if record["kind"] == "judgment":
                modes.add(dialogue, record)
        report = tally.report()
    if report is not None:
        found = modes.report("judging a sample again with another scenario is not asked for")
        report = report.model_copy(update={"failure_modes": found})
    job.log.stage(StageName.JUDGE).checks = report
