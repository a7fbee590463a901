"""The columns of the score table: name, type, the stage they come from, and their meaning.

The table's schema, the checks of a recipe's conditions, the rule that a dialogue without a stage's scores fails every
condition on them, and the documentation are all derived from this one list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import polars as pl

from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    VERDICTS,
    ScoringStage,
    ViolationKind,
)
from curate.records.readings import METRIC

VIOLATIONS: tuple[ViolationKind, ...] = get_args(ViolationKind)
"""Kinds of violations of a role, as the judge names them."""

METRIC_PREFIX = METRIC
"""Prefix of the columns of single metrics, one for each metric of the recipe's section `metrics`."""
METRIC_PARTS: dict[str, pl.DataType] = {"": pl.Int8(), "_expected": pl.Float64()}
"""Types of the columns `metric_<name>` by suffix: the score (0-5, or 0 and 1 for fail and pass; null for n/a) and, in
scoring mode tokens, its expectation."""

LABEL_PREFIX = "label_"
"""Prefix of the columns of dialogues' own scalar labels, which depend on the data."""

REJECTED_SIDES: dict[str, str] = {
    "rejected_side": "the data labels it as the rejected side of a preference",
    "lower_ranked": "an assistant message in it has a sibling of a better rank",
    "failed_trajectory": "its reward is known and not above 0",
}
"""Reason codes of dialogues that the data itself calls the worse alternative."""

SKIPPED = "skipped"
"""Reason code of a stage that the recipe leaves out for a dialogue."""
NOT_SCORED = "not_scored"
"""Reason code of a dialogue that a stage has not reached (a run stopped by its budget)."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the score table.

    Attributes:
        about: its meaning, for the documentation.
        stages: stages whose scores it is made of; empty for facts about the dialogue.
    """

    name: str
    dtype: pl.DataType
    about: str
    stages: tuple[ScoringStage, ...] = ()


_SCORE, _COUNT, _REAL, _TRUTH, _TEXT = (
    *(pl.Int8(), pl.Int32(), pl.Float64(), pl.Boolean(), pl.String()),
)
_VERDICT = pl.Enum(VERDICTS)
_READ = "needs mode tokens or samples."

_Description = tuple[str, pl.DataType, str]
"""Name, type and meaning of a column."""


def _of_conversation(name: str) -> list[_Description]:
    """Return the columns of a conversation score."""
    has_na = name != "coherence"
    na = [(f"{name}_na", _TRUTH, "The score is n/a.")] if has_na else []
    return [
        (name, _SCORE, f"Conversation score, 1-5{'; null for n/a' if has_na else ''}."),
        *na,
        (f"{name}_expected", _REAL, f"Expectation, 1-5; {_READ}"),
        (f"{name}_spread", _REAL, f"Standard deviation, 0-2; {_READ}"),
    ]


def _of_turns(name: str) -> list[_Description]:
    """Return the columns of a turn dimension."""
    return [
        (f"min_{name}", _SCORE, "Lowest score of a turn, 1-5."),
        (f"mean_{name}", _REAL, "Mean score over turns, 1-5."),
        (f"mean_{name}_expected", _REAL, f"Mean expectation, 1-5; {_READ}"),
        (f"mean_{name}_spread", _REAL, f"Mean standard deviation, 0-2; {_READ}"),
        (f"weakest_{name}", _SCORE, "Score of the weakest turn, 1-5."),
    ]


_DESCRIPTIONS: dict[tuple[ScoringStage, ...], list[_Description]] = {
    (): [
        ("id", _TEXT, "Dialogue id."),
        ("content_hash", _TEXT, "128-bit hash of what a judge can see, 32 hex digits."),
        ("source", _TEXT, "Source name, from the lineage."),
        ("file", _TEXT, "File within the source."),
        ("group", _TEXT, "Task or tree id shared by alternatives."),
        ("role", _TEXT, "Role definition; over 80 characters: its first 70 and a hash."),
        ("language", _TEXT, "`language` or `lang` of the dialogue's metadata."),
        ("reward", _REAL, "Reward the data came with."),
        (
            "rejected_as",
            _TEXT,
            f"Why the data calls it the worse alternative ({', '.join(REJECTED_SIDES)}); null where not.",
        ),
        ("n_turns", _COUNT, "Turns that begin with a user message."),
        ("n_assistant_turns", _COUNT, "Turns with an assistant message, turn 0 included."),
        ("n_tool_calls", _COUNT, "Tool calls by the assistant."),
        ("characters", pl.Int64(), "Characters of all messages but system ones."),
        ("judge_unscored", _TEXT, "Why the judge gave no scores; null where it did."),
        ("adherence_unscored", _TEXT, "Why there is no adherence score; null where there is."),
        ("metrics_unscored", _TEXT, "Why the metrics gave no score; null where they did."),
        ("factuality_unscored", _TEXT, "Why the claims are not known; null where they are."),
    ],
    ("judge",): [
        ("verdict", _VERDICT, "By the rule, from scores: poor < borderline < good < excellent."),
        ("judge_verdict", _VERDICT, "The judge's own verdict; null where it was not asked."),
        ("verdict_mismatch", _TRUTH, "`verdict` and `judge_verdict` differ; null without both."),
        ("weakest_mismatch", _TRUTH, "Judge and rule name different weakest turns."),
        *(column for name in CONVERSATION_DIMENSIONS for column in _of_conversation(name)),
        *(column for name in TURN_DIMENSIONS for column in _of_turns(name)),
        ("weakest_turn", _COUNT, "Number of the weakest turn; null where none is weak."),
        ("lowest_score", _SCORE, "Lowest of all scores of turns and conversation, 1-5."),
        (
            "mean_score",
            _REAL,
            "Mean of the three turn dimensions' means and the conversation scores, 1-5; from expectations where there "
            "are any. The column to rank by.",
        ),
        ("n_issues", _COUNT, "Issues the judge listed over all turns."),
        ("n_unscored_turns", _COUNT, "Turns without a score in a dialogue that has others."),
        ("overlap_disagreement", _REAL, "Mean absolute difference between windows, 0-4."),
        (
            "jury_disagreement",
            _REAL,
            "Mean absolute difference between two judges' scores, 0-4, over all pairs of judges; null where only one "
            "judge was asked.",
        ),
        (
            "judge_coverage",
            _REAL,
            f"Lowest probability of the valid labels together, or share of usable samples, 0-1; {_READ}",
        ),
        (
            "levels_calibrated",
            _TRUTH,
            "Scores are calibrated levels (`judge.calibration`), and so are verdict and weakest turn.",
        ),
        (
            "p_good",
            _REAL,
            "Probability that people find the dialogue good, 0-1; null without a calibration that has it.",
        ),
        ("judge_key", _TEXT, "Model, mode and a hash of the judge's whole identity."),
    ],
    ("adherence",): [
        ("adherence", _REAL, "Session score, 0-1."),
        ("adherent", _TRUTH, "The role is kept, by threshold or strict mode, as the recipe says."),
        ("adherence_low", _REAL, "Lower end of the 95 % interval, 0-1."),
        ("adherence_high", _REAL, "Upper end of the 95 % interval, 0-1."),
        ("min_adherence", _REAL, "Lowest score of a turn, 0-1."),
        ("n_off_role_turns", _COUNT, "Turns that are scored and not adherent."),
        ("first_off_role_turn", _COUNT, "First turn that is not adherent; null without one."),
        (
            "n_turns_in_role",
            _COUNT,
            "Assistant turns before the first that is not adherent or has no score; all of them where there is no such "
            "turn. Null for granularity conversation.",
        ),
        ("adherence_slope", _REAL, "Change of the score from one turn to the next."),
        ("adherence_slope_low", _REAL, "Lower end of the slope's 95 % interval."),
        ("adherence_slope_high", _REAL, "Upper end of the slope's 95 % interval."),
        (
            "adherence_trend_p",
            _REAL,
            "Probability of a trend this strong if the turns were in random order, 0-1 (Mann-Kendall).",
        ),
        *(
            (
                f"n_{kind}_violations",
                _COUNT,
                f"Turns (or the conversation) with a violation of kind {kind}; include_reason only.",
            )
            for kind in VIOLATIONS
        ),
        ("n_adherence_unscored_turns", _COUNT, "Turns without an adherence score."),
        ("n_adherence_imputed", _COUNT, "Answers of 0.5 for lack of evidence (on_missing: half)."),
        ("adherence_coverage", _REAL, "Lowest P(yes) + P(no), 0-1; continuous mode only."),
        (
            "adherence_disagreement",
            _REAL,
            "Mean absolute difference between two judges' scores of a turn, 0-1; null without a jury.",
        ),
        ("adherence_key", _TEXT, "Model, mode and a hash of the whole identity."),
    ],
    ("metrics",): [
        ("overall_score", _REAL, "Weighted sum of the metrics, 0-100."),
        ("metrics_passed", _TRUTH, "overall_score is at least `pass_threshold`."),
        ("overall_low", _REAL, "Lowest overall score with weights changed by up to 20 %."),
        ("overall_high", _REAL, "Highest overall score with weights changed by up to 20 %."),
        ("n_poor_metrics", _COUNT, "Metrics with a score of 2 or less, or fail."),
        ("n_na_metrics", _COUNT, "Metrics that do not apply."),
        (
            "metrics_disagreement",
            _REAL,
            "Mean absolute difference between two judges' scores, over the scale, 0-1; null without a jury.",
        ),
        ("metrics_key", _TEXT, "Model, mode and a hash of identity and weights."),
    ],
    ("factuality",): [
        ("factual_precision", _REAL, "Share of claims that are true, 0-1; null without claims."),
        ("min_factual_precision", _REAL, "Lowest precision of a turn that claims facts, 0-1."),
        ("n_claims", _COUNT, "Factual claims: true, false or unverifiable."),
        ("n_false_claims", _COUNT, "Claims that are false."),
        ("n_unverifiable_claims", _COUNT, "Claims with no evidence for or against them."),
        ("factuality_key", _TEXT, "Model, mode and a hash of the whole identity."),
    ],
    ("judge", "adherence"): [
        (
            "uncertainty",
            _REAL,
            "How undecided the judge was, 0-1: the larger of the mean spread of its readings over 2 and "
            "the mean of 1 - |2 P(yes) - 1| over turns. Null without distributions (modes json, binary).",
        ),
        (
            "attention",
            _REAL,
            "How useful a look by a person may be, 0-1: the largest of uncertainty, (5 - lowest_score) / 4 and "
            "1 - adherence.",
        ),
    ],
}
"""The columns by the stages whose scores they are made of, in the order of the table."""

COLUMNS: tuple[Column, ...] = tuple(
    Column(*description, stages)
    for stages, descriptions in _DESCRIPTIONS.items()
    for description in descriptions
)
SCHEMA: dict[str, pl.DataType] = {column.name: column.dtype for column in COLUMNS}
STAGES_OF: dict[str, tuple[ScoringStage, ...]] = {column.name: column.stages for column in COLUMNS}


def stages_of_column(name: str) -> tuple[ScoringStage, ...]:
    """Return the stages whose scores a column is made of; empty for facts and labels."""
    return ("metrics",) if name.startswith(METRIC_PREFIX) else STAGES_OF.get(name, ())


def dimensions_of_column(name: str) -> tuple[str, ...]:
    """Return the dimensions that a column is made of, by their names in `curate agreement`.

    A verdict is made of all six; labels of verdicts themselves (`verdict`, `good`) come first.
    """
    if "adherence" in STAGES_OF.get(name, ()) and len(STAGES_OF[name]) == 1:
        return ("adherence",)
    if name.startswith(METRIC_PREFIX):
        return (name.removesuffix("_expected"),)
    rubric = (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS)
    if name == "verdict":
        return ("verdict", "good", *rubric)
    if name in ("mean_score", "lowest_score"):
        return rubric
    of_judge = STAGES_OF.get(name) == ("judge",)
    return tuple(dimension for dimension in rubric if of_judge and dimension in name)


def metric_type(name: str) -> pl.DataType | None:
    """Return the type of a single metric's column; None for any other column."""
    if not name.startswith(METRIC_PREFIX):
        return None
    return METRIC_PARTS["_expected" if name.endswith("_expected") else ""]


ADHERENCE_COLUMNS = frozenset(
    {"adherence_unscored", *(name for name, stages in STAGES_OF.items() if "adherence" in stages)}
)
"""Columns made of role adherence scores, or saying why there are none."""

EXPECTATION_ONLY: tuple[str, ...] = tuple(
    name
    for name, stages in STAGES_OF.items()
    if stages == ("judge",) and name.endswith(("_expected", "_spread", "_coverage"))
)
"""Null in scoring mode json without samples."""
REASONS_ONLY: tuple[str, ...] = tuple(f"n_{kind}_violations" for kind in VIOLATIONS)
"""Null where adherence is scored without reasons."""
TURNS_ONLY: tuple[str, ...] = (
    "min_adherence",
    "n_off_role_turns",
    "first_off_role_turn",
    "n_turns_in_role",
    "adherence_slope",
    "adherence_slope_low",
    "adherence_slope_high",
    "adherence_trend_p",
)
"""Null where adherence is scored of the conversation as a whole."""

HIGHER_IS_WORSE: frozenset[str] = frozenset(
    {"uncertainty", "attention", "n_issues", "n_off_role_turns", "n_adherence_imputed"}
    | {"n_poor_metrics", "n_false_claims", "n_unverifiable_claims"}
    | {
        name
        for name in SCHEMA
        if name.endswith(("_spread", "_disagreement", "_violations", "_unscored_turns"))
    }
)
"""Columns of doubts and faults, in which higher is worse: a lower bound on one would keep the worst dialogues."""

SCORE_OF: dict[ScoringStage, str] = {
    "judge": "verdict",
    "adherence": "adherence",
    "metrics": "overall_score",
    "factuality": "n_claims",
}
"""For each stage, the column that is null exactly where it has no scores."""
UNSCORED_OF: dict[ScoringStage, str] = {stage: f"{stage}_unscored" for stage in SCORE_OF}
"""For each stage, the column that says why it has no scores."""
