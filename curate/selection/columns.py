"""The columns of the score table: name, type, the stage they come from, what they mean.

One list, because the table's schema, the check of a recipe's conditions, the rule that a dialogue which a
stage could not score fails every condition on it, and the documentation all follow from it.
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
"""Columns of single metrics; which there are depends on the recipe's section `metrics`."""
METRIC_PARTS: dict[str, pl.DataType] = {"": pl.Int8(), "_expected": pl.Float64()}
"""By ending what `metric_<name>` holds: the score (0-5, or 0 and 1 for fail and pass; null for n/a), and in scoring mode
tokens its expectation."""

LABEL_PREFIX = "label_"
"""Columns made of a dialogue's own scalar labels; which there are depends on the data."""

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
    """One column. `stages`: whose scores it holds; empty for facts about the dialogue."""

    name: str
    dtype: pl.DataType
    about: str
    stages: tuple[ScoringStage, ...] = ()


def _facts() -> list[Column]:
    text, count = pl.String(), pl.Int32()
    return [
        Column("id", text, "Dialogue id."),
        Column("content_hash", text, "128-bit hash of what a judge can see, 32 hex digits."),
        Column("source", text, "Source name, from the lineage."),
        Column("file", text, "File within the source."),
        Column("group", text, "Task or tree id shared by alternatives."),
        Column("role", text, "Role definition; over 80 characters: its first 70 and a hash."),
        Column("language", text, "`language` or `lang` of the dialogue's metadata."),
        Column("reward", pl.Float64(), "Reward the data came with."),
        Column(
            "rejected_as",
            text,
            f"Why the data calls it the worse alternative ({', '.join(REJECTED_SIDES)}); null where not.",
        ),
        Column("n_turns", count, "Turns that begin with a user message."),
        Column("n_assistant_turns", count, "Turns with an assistant message, turn 0 included."),
        Column("n_tool_calls", count, "Tool calls by the assistant."),
        Column("characters", pl.Int64(), "Characters of all messages but system ones."),
        Column("judge_unscored", text, "Why the judge gave no scores; null where it did."),
        Column("adherence_unscored", text, "Why there is no adherence score; null where there is."),
        Column("metrics_unscored", text, "Why the metrics gave no score; null where they did."),
        Column("factuality_unscored", text, "Why the claims are not known; null where they are."),
    ]


def _judged() -> list[Column]:
    def judge(name: str, dtype: pl.DataType, about: str) -> Column:
        return Column(name, dtype, about, ("judge",))

    score, real, boolean = pl.Int8(), pl.Float64(), pl.Boolean()
    verdict = pl.Enum(VERDICTS)
    columns = [
        judge(
            "verdict",
            verdict,
            "By the rule, from the scores: poor < borderline < good < excellent.",
        ),
        judge("judge_verdict", verdict, "What the judge itself said; null where it was not asked."),
        judge("verdict_mismatch", boolean, "The two differ; null where the judge gave none."),
        judge("weakest_mismatch", boolean, "Judge and rule name different weakest turns."),
    ]
    for name in CONVERSATION_DIMENSIONS:
        if name == "coherence":
            columns.append(judge(name, score, "Conversation score, 1-5."))
        else:
            columns.append(judge(name, score, "Conversation score, 1-5; null for n/a."))
            columns.append(judge(f"{name}_na", boolean, "The score is n/a."))
        columns.append(
            judge(f"{name}_expected", real, "Expectation, 1-5; needs mode tokens or samples.")
        )
        columns.append(
            judge(f"{name}_spread", real, "Standard deviation, 0-2; needs mode tokens or samples.")
        )
    for name in TURN_DIMENSIONS:
        columns.append(judge(f"min_{name}", score, "Lowest score of a turn, 1-5."))
        columns.append(judge(f"mean_{name}", real, "Mean score over turns, 1-5."))
        columns.append(
            judge(
                f"mean_{name}_expected",
                real,
                "Mean expectation, 1-5; needs mode tokens or samples.",
            )
        )
        columns.append(
            judge(
                f"mean_{name}_spread",
                real,
                "Mean standard deviation, 0-2; needs mode tokens or samples.",
            )
        )
        columns.append(judge(f"weakest_{name}", score, "Score of the weakest turn, 1-5."))
    columns += [
        judge("weakest_turn", pl.Int32(), "Number of the weakest turn; null where none is weak."),
        judge("lowest_score", score, "Lowest of all scores of turns and conversation, 1-5."),
        judge(
            "mean_score",
            real,
            "Mean of the three turn dimensions' means and the conversation scores, 1-5; of "
            "expectations where there are some. The column to rank by.",
        ),
        judge("n_issues", pl.Int32(), "Issues the judge listed over all turns."),
        judge(
            "n_unscored_turns", pl.Int32(), "Turns without a score in a dialogue that has others."
        ),
        judge("overlap_disagreement", real, "Mean absolute difference between windows, 0-4."),
        judge(
            "jury_disagreement",
            real,
            "Mean absolute difference between two judges' scores, 0-4, over all pairs of judges; null where one "
            "judge was asked.",
        ),
        judge(
            "judge_coverage",
            real,
            "Least mass on the asked labels, or share of samples that could be used, 0-1; "
            "needs mode tokens or samples.",
        ),
        judge(
            "levels_calibrated",
            boolean,
            "Scores are calibrated levels (`judge.calibration`), which verdict and weakest turn go by.",
        ),
        judge(
            "p_good",
            real,
            "Probability that people find the dialogue good, 0-1; null without a calibration that has it.",
        ),
        judge("judge_key", pl.String(), "Model, mode and a hash of the judge's whole identity."),
    ]
    return columns


def _adherent() -> list[Column]:
    def adherence(name: str, dtype: pl.DataType, about: str) -> Column:
        return Column(name, dtype, about, ("adherence",))

    real, count = pl.Float64(), pl.Int32()
    return [
        adherence("adherence", real, "Session score, 0-1."),
        adherence("adherent", pl.Boolean(), "By threshold or strict mode, as the recipe says."),
        adherence("adherence_low", real, "Lower end of the 95 % interval, 0-1."),
        adherence("adherence_high", real, "Upper end of the 95 % interval, 0-1."),
        adherence("min_adherence", real, "Lowest score of a turn, 0-1."),
        adherence("n_off_role_turns", count, "Turns scored and not adherent."),
        adherence("first_off_role_turn", count, "Number of the first such turn; null without one."),
        adherence(
            "n_turns_in_role",
            count,
            "Assistant turns before the first that is not adherent, or of which that is not known; all "
            "where there is none. Null for granularity conversation.",
        ),
        adherence("adherence_slope", real, "Change of the score from one turn to the next."),
        adherence("adherence_slope_low", real, "Lower end of the slope's 95 % interval."),
        adherence("adherence_slope_high", real, "Upper end of the slope's 95 % interval."),
        adherence(
            "adherence_trend_p",
            real,
            "That an order of the turns by chance shows a trend this strong, 0-1 (Mann-Kendall).",
        ),
        *(
            adherence(
                f"n_{kind}_violations",
                count,
                f"Turns (or the conversation) with a violation of kind {kind}; include_reason only.",
            )
            for kind in VIOLATIONS
        ),
        adherence("n_adherence_unscored_turns", count, "Turns without an adherence score."),
        adherence(
            "n_adherence_imputed", count, "Answers of 0.5 for want of evidence (on_missing: half)."
        ),
        adherence(
            "adherence_coverage", real, "Least mass on yes and no, 0-1; continuous mode only."
        ),
        adherence("adherence_key", pl.String(), "Model, mode and a hash of the whole identity."),
    ]


def _measured() -> list[Column]:
    def metrics(name: str, dtype: pl.DataType, about: str) -> Column:
        return Column(name, dtype, about, ("metrics",))

    real, count = pl.Float64(), pl.Int32()
    return [
        metrics("overall_score", real, "Weighted sum of the metrics, 0-100."),
        metrics("metrics_passed", pl.Boolean(), "overall_score is at least `pass_threshold`."),
        metrics("overall_low", real, "Lowest overall score with weights changed by up to 20 %."),
        metrics("overall_high", real, "Highest overall score with weights changed so."),
        metrics("n_poor_metrics", count, "Metrics with a score of 2 or less, or fail."),
        metrics("n_na_metrics", count, "Metrics that do not apply."),
        metrics("metrics_key", pl.String(), "Model, mode and a hash of identity and weights."),
    ]


def _checked() -> list[Column]:
    def facts(name: str, dtype: pl.DataType, about: str) -> Column:
        return Column(name, dtype, about, ("factuality",))

    real, count = pl.Float64(), pl.Int32()
    return [
        facts(
            "factual_precision", real, "True claims over factual ones, 0-1; null without claims."
        ),
        facts("min_factual_precision", real, "Lowest precision of a turn that claims facts, 0-1."),
        facts("n_claims", count, "Factual claims: true, false or unverifiable."),
        facts("n_false_claims", count, "Those of them that are false."),
        facts("n_unverifiable_claims", count, "Those that nothing at hand tells about."),
        facts("factuality_key", pl.String(), "Model, mode and a hash of the whole identity."),
    ]


def _derived() -> list[Column]:
    both: tuple[ScoringStage, ...] = ("judge", "adherence")
    return [
        Column(
            "uncertainty",
            pl.Float64(),
            "How undecided the judge was, 0-1: the larger of the mean spread of its readings over 2 and "
            "the mean of 1 - |2 P(yes) - 1| over turns. Null without distributions (modes json, binary).",
            both,
        ),
        Column(
            "attention",
            pl.Float64(),
            "How much a look by a human may teach, 0-1: the largest of uncertainty, "
            "(5 - lowest_score) / 4 and 1 - adherence.",
            both,
        ),
    ]


COLUMNS: tuple[Column, ...] = (
    *_facts(),
    *_judged(),
    *_adherent(),
    *_measured(),
    *_checked(),
    *_derived(),
)
SCHEMA: dict[str, pl.DataType] = {column.name: column.dtype for column in COLUMNS}
STAGES_OF: dict[str, tuple[ScoringStage, ...]] = {column.name: column.stages for column in COLUMNS}


def stages_of_column(name: str) -> tuple[ScoringStage, ...]:
    """Whose scores a column holds; none for facts and labels."""
    return ("metrics",) if name.startswith(METRIC_PREFIX) else STAGES_OF.get(name, ())


def dimensions_of_column(name: str) -> tuple[str, ...]:
    """The dimensions of the judge's scores that a column is made of, as `curate agreement` calls them.

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
    """The type of a single metric's column; None for any other column."""
    if not name.startswith(METRIC_PREFIX):
        return None
    return METRIC_PARTS["_expected" if name.endswith("_expected") else ""]


ADHERENCE_COLUMNS = frozenset(
    {"adherence_unscored", *(name for name, stages in STAGES_OF.items() if "adherence" in stages)}
)
"""Columns that role adherence, or the lack of it, has a part in."""

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

SCORE_OF: dict[ScoringStage, str] = {
    "judge": "verdict",
    "adherence": "adherence",
    "metrics": "overall_score",
    "factuality": "n_claims",
}
"""The column that is null exactly where a stage has no scores."""
UNSCORED_OF: dict[ScoringStage, str] = {
    "judge": "judge_unscored",
    "adherence": "adherence_unscored",
    "metrics": "metrics_unscored",
    "factuality": "factuality_unscored",
}
"""The column that says why."""
