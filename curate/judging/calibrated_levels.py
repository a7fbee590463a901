"""Calibrated levels in place of the judge's most likely digits, and what follows from them.

Pure functions of a judgment or a record of metrics: readings stay, what the judge said stands beside (`digits`,
`digit`), and verdict and weakest turn, or the overall score, are computed from the levels. So a calibration costs no call, and taking it off or
changing it none either. Applying it twice is applying it once.
"""

from __future__ import annotations

from collections.abc import Mapping

from curate.judging.config import READING_OPTIONS
from curate.judging.metrics.weighing import with_metrics
from curate.judging.session import STAGE
from curate.judging.verdict import rule_verdict, weakest_turn
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    Calibration,
    ConversationLevel,
    ConversationScore,
    CutPoints,
    JudgeIdentity,
    Judgment,
    RubricScores,
    TurnScores,
    Unscored,
    UnscoredReason,
)
from curate.records.calibration import MetricCalibration
from curate.records.calibration_file import check_same_judge, identity_fields
from curate.records.metrics import MetricScore, MetricsScore
from curate.records.readings import conversation_value, metric_digit, metric_value, turn_value

_COMPARED_METRICS = ("model", "revision", "quantisation", "mode", "prompt_version")
# `turn_view` is an option no more: a calibration fitted to the other view still says so, and is refused.
_COMPARED = (
    *_COMPARED_METRICS,
    "turn_view",
    *READING_OPTIONS,
    *("rule", "doubt", "threshold", "judges"),  # of a jury or a cascade
)
_COMPARED_ADHERENCE = (*_COMPARED, "answer_prefix")


def check_judge(calibration: Calibration, identity: JudgeIdentity) -> None:
    """Raise a UsageError where a calibration was fitted to another judge, or to one asked in another way."""
    fitted = calibration.identity
    if fitted is not None:
        fix = "run `curate calibrate` on a run of this judge, or leave judge.calibration out"
        check_same_judge(
            identity_fields(fitted), identity_fields(identity), "judge.calibration", fix, _COMPARED
        )


def check_adherence(calibration: Calibration | None, identity: JudgeIdentity | None) -> None:
    """Raise a UsageError where `p_good` was fitted to role adherence that a run does not score so.

    `identity` is the one of the run's own scores; None where it has none by a judge.
    """
    fitted = calibration.good.adherence if calibration and calibration.good else None
    if fitted is None:
        return
    here = {"role adherence": "by no judge"} if identity is None else identity_fields(identity)
    names = (*_COMPARED_ADHERENCE, "role adherence")
    key = "p_good of judge.calibration, by its scores of role adherence,"
    fix = "score adherence in the same way, or run `curate calibrate` on a run like this one"
    check_same_judge(identity_fields(fitted), here, key, fix, names)


def check_good_metrics(calibration: Calibration | None, identity: JudgeIdentity | None) -> None:
    """Raise a UsageError where `p_good` was fitted to weighted metrics that a run does not score so.

    `identity` is the one of the run's own metrics; None where it has none.
    """
    fitted = calibration.good.metrics if calibration and calibration.good else None
    if fitted is None:
        return
    here = {"metrics": "none"} if identity is None else identity_fields(identity)
    key = "p_good of judge.calibration, by its metrics,"
    fix = "score the same metrics in the same way, or run `curate calibrate` on a run like this one"
    check_same_judge(identity_fields(fitted), here, key, fix, (*_COMPARED, "metrics"))


def check_metric_judge(calibration: MetricCalibration, identity: JudgeIdentity) -> None:
    """Raise a UsageError where levels of metrics were fitted to another judge, or to other metrics."""
    fitted, here = identity_fields(calibration.identity.uncalibrated()), identity_fields(identity)
    fix = "run `curate calibrate` on a run of this judge with these metrics, or leave metrics.calibration out"
    check_same_judge(fitted, here, "metrics.calibration", fix, _COMPARED_METRICS)


def describe_levels(calibration: Calibration | None, identity: JudgeIdentity) -> str:
    """Say in one sentence whether the verdicts of scores with this identity go by calibrated levels."""
    if identity == identity.uncalibrated():
        return (
            "levels are not calibrated: they are the judge's most likely digits, and verdicts follow from "
            "them. Ranks (mean_score) say more; `curate calibrate` makes levels of people's labels."
        )
    if calibration is None or not calibration.levels:
        return "levels are calibrated, as in the run they are taken from."
    names = (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS)
    parts: dict[str, list[str]] = {
        "calibrated": [],
        "by stated shares": [],
        "most likely digits": [],
    }
    for name in names:
        cuts = calibration.levels.get(name)
        stated = cuts is not None and cuts.method == "given_shares"
        how = (
            "most likely digits" if cuts is None else "by stated shares" if stated else "calibrated"
        )
        parts[how].append(name)
    clauses = "; ".join(
        f"{how}: {', '.join(dimensions)}" for how, dimensions in parts.items() if dimensions
    )
    return f"levels are {clauses}."


def with_levels(
    judgment: Judgment,
    levels: Mapping[str, CutPoints],
    identity: JudgeIdentity,
    *,
    reject_mismatch: bool = False,
) -> Judgment | Unscored:
    """Return a judgment with calibrated levels in `scores`, and the verdict and weakest turn they give.

    Args:
        judgment: by the judge the cut points were fitted to.
        levels: cut points by dimension; a dimension without keeps its digits.
        reject_mismatch: unscored (`rejected_mismatch`) where the judge's own verdict is another.
    """
    per_turn = tuple(_turn(turn, levels) for turn in judgment.per_turn)
    level = judgment.conversation_level
    conversation = ConversationLevel(
        **{
            name: _conversation(getattr(level, name), levels.get(name))
            for name in CONVERSATION_DIMENSIONS
        }
    )
    verdict, weakest = rule_verdict(per_turn, conversation), weakest_turn(per_turn)
    judge_verdict = judgment.judge_verdict
    if reject_mismatch and judge_verdict is not None and judge_verdict != verdict:
        detail = f"the judge said {judge_verdict}, its calibrated levels give {verdict}"
        reason = UnscoredReason.REJECTED_MISMATCH
        return Unscored.of(judgment, STAGE, reason, detail, judgment.requests)
    was_asked = judgment.weakest_mismatch is not None
    return judgment.model_copy(
        update={
            "identity": identity,
            "per_turn": per_turn,
            "conversation_level": conversation,
            "verdict": verdict,
            "verdict_mismatch": None if judge_verdict is None else judge_verdict != verdict,
            "weakest_turn": weakest,
            "weakest_mismatch": judgment.judge_weakest_turn != weakest if was_asked else None,
        }
    )


def _turn(turn: TurnScores, levels: Mapping[str, CutPoints]) -> TurnScores:
    digits = turn.digits or turn.scores
    scores: dict[str, int] = {}
    for name in TURN_DIMENSIONS:
        cuts = levels.get(name)
        scores[name] = getattr(digits, name) if cuts is None else cuts.level(turn_value(turn, name))
    return turn.model_copy(update={"scores": RubricScores(**scores), "digits": digits})


def _conversation(original: ConversationScore, cuts: CutPoints | None) -> ConversationScore:
    digit = original.score if original.digit is None else original.digit
    if cuts is None:
        return original.model_copy(update={"score": digit, "digit": digit})
    reading = original.reading
    if cuts.na_cut is None:
        is_na = digit == "n/a"
    elif reading is None:
        is_na = float(digit == "n/a") >= cuts.na_cut
    else:
        is_na = reading.probabilities.get("n/a", 0.0) >= cuts.na_cut
    value = conversation_value(original)
    score = "n/a" if is_na or value is None else cuts.level(value)
    return original.model_copy(update={"score": score, "digit": digit})


def with_metric_levels(
    record: MetricsScore, levels: Mapping[str, CutPoints], identity: JudgeIdentity
) -> MetricsScore:
    """Return a record with calibrated levels in `score`, and the overall score they give.

    A diagnosis is the judge's, made for its own digit: a metric that is poor by its level alone has none.

    Args:
        record: by the judge the cut points were fitted to.
        levels: cut points by metric; a metric without keeps its digit, and what is n/a stays so.
    """
    metrics = [_metric(metric, levels.get(metric.name)) for metric in record.metrics]
    return with_metrics(record.model_copy(update={"identity": identity}), metrics)


def _metric(metric: MetricScore, cuts: CutPoints | None) -> MetricScore:
    digit, value = metric_digit(metric), metric_value(metric)
    level = digit if cuts is None or value is None else cuts.level(value)
    return metric.model_copy(update={"score": level, "digit": digit})
