"""The stages that make rows: the one place that binds a recipe, its models and the rooms' functions.

A stage is set up once (the mode that an engine supports, the identity of the scores, the fingerprint of its rows) and
then run by any executor, here or in a worker that has bound the same stage to its own engines. Rooms do not import
each other, so what a fork needs from the judge is passed to it here.
"""

from curate.stages.binding import Stages, bind_stages, model_pool
from curate.stages.joint_stages import adherence_by, metrics_by, rubric_stage, scorers
from curate.stages.pair_stages import Verifier, bind_judge, bind_verifier, fork_stage, pair_identity
from curate.stages.scoring_stages import (
    adherence_stage,
    calibrate_judge,
    calibrate_metrics,
    factuality_stage,
    judge_stage,
    reference_stage,
)
from curate.stages.stage import (
    Calibrated,
    Judged,
    Stage,
    StageRow,
    WorkItem,
    code_version,
    make_row,
)
