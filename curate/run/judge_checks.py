"""The checks of a run's rubric judge: its rows counted once they are all there.

`trust.judge_checks` knows no files; the rows are handed to it here. What comes out stands in the manifest
(`judge_checks`), from where summary, `show` and dataset card take it.
"""

from __future__ import annotations

import orjson

from curate.records import Judgment, StageName, Unscored
from curate.run.staging import Job
from curate.storage.rows import StageRows
from curate.trust.judge_checks import JudgeTally


def check_judge_scores(job: Job, judgments: StageRows[Judgment | Unscored]) -> None:
    """Count the run's judgments into the report of its stage."""
    tally = JudgeTally()
    for _, record in judgments.stored(job.hashes()):
        tally.add(orjson.loads(record))
    job.log.stage(StageName.JUDGE).checks = tally.report()
