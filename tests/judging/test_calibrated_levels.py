"""Calibrated levels in a judgment: what changes, what stays, and whose calibration is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.engines.base import Capability
from curate.engines.scripted import ScriptedEngine
from curate.errors import UsageError
from curate.judging.calibrated_levels import (
    check_adherence,
    check_good_metrics,
    check_judge,
    describe_levels,
    with_levels,
)
from curate.judging.config import RubricConfig
from curate.judging.verdict import rule_verdict, weakest_turn
from curate.records import (
    Calibration,
    ConversationLevel,
    ConversationScore,
    CutPoints,
    GoodModel,
    JudgeIdentity,
    Judgment,
    LabelReading,
    RubricScores,
    TurnScores,
    Unscored,
)
from curate.records.calibration import calibrated_identity
from curate.records.calibration_file import read_calibration
from curate.stages import judge_stage, pair_identity

JUDGE = JudgeIdentity(engine="scripted", model="m", mode="tokens", prompt_version="p1")
NAMES = ("context_use", "helpfulness", "safety")
mean = st.floats(1, 5)
rows_of_means = st.lists(st.tuples(mean, mean, mean), min_size=1, max_size=5)
cuts_of = st.lists(st.floats(1, 6), min_size=4, max_size=4).map(sorted)


def cuts(*values: float, **more: Any) -> CutPoints:
    return CutPoints.model_validate({"cuts": values, "method": "kappa"} | more)


def calibration(**levels: CutPoints) -> Calibration:
    return Calibration(kind="calibration", identity=JUDGE, levels=levels)


def read(value: float, na: float = 0.0) -> LabelReading:
    return LabelReading(mean=value, coverage=1.0, probabilities={"4": 1 - na, "n/a": na})


def judged(
    *turns: tuple[float, float, float],
    coherence: float = 4.1,
    task: float = 4.1,
    na: float = 0.0,
    **more: Any,
) -> Judgment:
    """A judge that says 4 (5 in safety) of everything; only its expectations differ."""
    per_turn = tuple(
        TurnScores(
            turn=number,
            scores=RubricScores(context_use=4, helpfulness=4, safety=5),
            readings={name: read(value) for name, value in zip(NAMES, means, strict=True)},
        )
        for number, means in enumerate(turns, 1)
    )
    level = ConversationLevel(
        coherence=ConversationScore(score=4, reading=read(coherence)),
        task_completion=ConversationScore(score=4, reading=read(task, na), note="fine"),
        repair_handling=ConversationScore(score="n/a", reading=read(3.0, 0.9)),
    )
    fields = {
        "dialogue_id": "d",
        "content_hash": "0",
        "identity": JUDGE,
        "per_turn": per_turn,
        "conversation_level": level,
        "verdict": rule_verdict(per_turn, level),
        "weakest_turn": weakest_turn(per_turn),
    }
    return Judgment.model_validate(fields | more)


def apply(judgment: Judgment, **levels: CutPoints) -> Judgment:
    made = with_levels(judgment, levels, calibrated_identity(levels, JUDGE))
    assert isinstance(made, Judgment)
    return made


def test_other_cut_points_are_another_judge_and_the_same_in_another_order_are_not() -> None:
    first, second = cuts(1.5, 2.5, 3.5, 4.5), cuts(1.5, 2.5, 3.5, 4.25)
    levels = {"coherence": first, "safety": second}
    named = calibrated_identity(levels, JUDGE)
    assert named == calibrated_identity(dict(reversed(levels.items())), JUDGE)
    assert named.uncalibrated() == JUDGE
    others = (
        {"coherence": second, "safety": first},
        {"coherence": first},
        {"coherence": first, "helpfulness": second},
    )
    found = [calibrated_identity(other, JUDGE) for other in others]
    assert all(other not in (named, JUDGE) for other in found)


def test_verdict_and_weakest_turn_follow_the_levels_and_the_readings_stay() -> None:
    before = judged((4.2, 4.3, 4.9), (4.1, 3.9, 4.9))
    assert (before.verdict, before.weakest_turn) == ("excellent", None)
    after = apply(before, helpfulness=cuts(3.5, 4.0, 4.1, 4.25))
    assert [turn.scores.helpfulness for turn in after.per_turn] == [5, 2]
    assert (after.verdict, after.weakest_turn) == ("borderline", 2)
    assert [turn.digits for turn in after.per_turn] == [turn.scores for turn in before.per_turn]
    assert [turn.readings for turn in after.per_turn] == [t.readings for t in before.per_turn]
    # dimensions without cut points keep their digits
    assert [turn.scores.context_use for turn in after.per_turn] == [4, 4]
    assert after.conversation_level.coherence.score == 4
    assert after.identity.uncalibrated() == JUDGE != after.identity


def test_a_conversation_score_is_cut_and_its_note_kept() -> None:
    after = apply(judged((4, 4, 5), task=3.2), task_completion=cuts(3.3, 3.5, 4.0, 4.5))
    held = after.conversation_level.task_completion
    assert (held.score, held.digit, held.note) == (1, 4, "fine")
    assert after.verdict == "poor"


@pytest.mark.parametrize(
    ("na", "na_cut", "expected"),
    [(0.29, 0.3, 3), (0.3, 0.3, "n/a"), (0.3, 0.1, "n/a"), (0.9, None, 3), (0.9, 1.5, 3)],
)
def test_n_a_goes_by_its_own_cut(na: float, na_cut: float | None, expected: Any) -> None:
    after = apply(
        judged((4, 4, 5), task=4.1, na=na), task_completion=cuts(2, 4, 4.5, 4.7, na_cut=na_cut)
    )
    assert after.conversation_level.task_completion.score == expected


def test_without_a_cut_of_its_own_n_a_is_what_the_judge_says() -> None:
    points = {"repair_handling": cuts(2, 4, 4.5, 4.7)}
    assert apply(judged((4, 4, 5)), **points).conversation_level.repair_handling.score == "n/a"
    fitted = {"repair_handling": cuts(2, 4, 4.5, 4.7, na_cut=0.95)}
    held = apply(judged((4, 4, 5)), **fitted).conversation_level.repair_handling
    assert (held.score, held.digit) == (2, "n/a")


@pytest.mark.parametrize(
    ("digit", "na_cut", "expected"), [("n/a", 1.0, "n/a"), ("n/a", 1.5, "n/a"), (4, 0.01, 3), (4, 0.0, "n/a")]
)  # fmt: skip
def test_n_a_without_a_distribution_has_the_probability_0_or_1(
    digit: Any, na_cut: float, expected: Any
) -> None:
    plain = judged((4, 4, 5))
    said = ConversationScore(score=digit)
    level = plain.conversation_level.model_copy(update={"task_completion": said})
    plain = plain.model_copy(update={"conversation_level": level})
    after = apply(plain, task_completion=cuts(2, 4, 4.5, 4.7, na_cut=na_cut))
    held = after.conversation_level.task_completion
    assert (held.score, held.digit) == (expected, digit)


def test_whole_digits_are_cut_where_there_is_no_expectation() -> None:
    plain = judged((4, 4, 5))
    level = plain.conversation_level
    plain = plain.model_copy(
        update={
            "per_turn": tuple(t.model_copy(update={"readings": {}}) for t in plain.per_turn),
            "conversation_level": ConversationLevel(
                coherence=level.coherence.model_copy(update={"reading": None}),
                task_completion=ConversationScore(score="n/a"),
                repair_handling=ConversationScore(score=4),
            ),
        }
    )
    points = cuts(1.0, 3.5, 4.5, 6.0, na_cut=0.5)
    after = apply(plain, helpfulness=points, coherence=points, task_completion=points)
    assert after.per_turn[0].scores.helpfulness == 3
    assert after.conversation_level.coherence.score == 3
    assert after.conversation_level.task_completion.score == "n/a"


@given(rows_of_means, cuts_of, cuts_of, st.sampled_from([None, 0.2, 0.8]))
def test_applying_twice_is_applying_once_and_the_last_one_counts(
    rows: list[tuple[float, float, float]],
    first: list[float],
    second: list[float],
    na_cut: float | None,
) -> None:
    before = judged(*rows, na=0.5)
    one = {name: cuts(*first, na_cut=na_cut) for name in ("helpfulness", "task_completion")}
    other = {name: cuts(*second) for name in ("safety", "coherence")}
    after = apply(before, **one)
    assert apply(after, **one) == after
    assert apply(apply(before, **other), **one) == after
    assert all(
        1 <= value <= 5 for turn in after.per_turn for value in turn.scores.model_dump().values()
    )
    assert after.verdict == rule_verdict(after.per_turn, after.conversation_level)
    assert after.weakest_turn == weakest_turn(after.per_turn)


def test_mismatches_are_counted_anew() -> None:
    before = judged(
        (4, 3.9, 5), judge_verdict="excellent", verdict_mismatch=False, weakest_mismatch=False
    )
    low = {"helpfulness": cuts(1.0, 4.0, 4.5, 4.7)}
    after = apply(before, **low)
    assert (after.verdict_mismatch, after.weakest_mismatch) == (True, True)
    assert (after.judge_verdict, after.judge_weakest_turn) == ("excellent", None)
    never_asked = apply(judged((4, 3.9, 5)), **low)
    assert (never_asked.verdict_mismatch, never_asked.weakest_mismatch) == (None, None)
    rejected = with_levels(before, low, JUDGE, reject_mismatch=True)
    assert isinstance(rejected, Unscored)
    assert rejected.reason == "rejected_mismatch"
    assert isinstance(with_levels(before, {}, JUDGE, reject_mismatch=True), Judgment)


@pytest.mark.parametrize("name", ["model", "revision", "quantisation", "mode", "prompt_version"])
def test_another_judge_is_refused_with_both_named(name: str) -> None:
    made = calibration(coherence=cuts(2, 3, 4, 5))
    check_judge(made, JUDGE)
    # where it runs is no part of who judges
    check_judge(made, JUDGE.model_copy(update={"engine": "openai", "sampling": {"base_url": "x"}}))
    other = JUDGE.model_copy(update={name: "another"})
    with pytest.raises(UsageError) as caught:
        check_judge(made, other)
    assert f"{name} another" in str(caught.value.got)
    assert f"{name} {getattr(JUDGE, name) or 'none'}" in str(caught.value.expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [("paraphrases", 2), ("show_reasoning", True), ("max_turns", 4)],
)
def test_a_judge_with_other_readings_is_refused_like_another(name: str, value: Any) -> None:
    def asked(**options: Any) -> JudgeIdentity:
        engine = ScriptedEngine([], capabilities={Capability.TOP_LOGPROBS})
        return judge_stage(RubricConfig.model_validate(options), engine).identity

    plain, other = asked(), asked(**{name: value})
    assert name not in plain.sampling
    made = Calibration(kind="calibration", identity=plain, levels={"coherence": cuts(2, 3, 4, 5)})
    check_judge(made, plain)
    for fitted, here in ((plain, other), (other, plain)):
        made = made.model_copy(update={"identity": fitted})
        with pytest.raises(UsageError, match="another judge or other settings of it") as caught:
            check_judge(made, here)
        said = {str(caught.value.got), str(caught.value.expected)}
        assert said == {f"{name} {value}", f"{name} by default"}


def test_a_calibration_fitted_under_an_option_that_is_gone_is_refused() -> None:
    fitted = JUDGE.model_copy(update={"sampling": {**JUDGE.sampling, "turn_view": "whole"}})
    made = Calibration(kind="calibration", identity=fitted, levels={"coherence": cuts(2, 3, 4, 5)})
    with pytest.raises(UsageError, match="other settings of it") as caught:
        check_judge(made, JUDGE)
    assert (caught.value.got, caught.value.expected) == ("turn_view by default", "turn_view whole")


def test_json_replies_do_not_hang_on_options_of_single_questions() -> None:
    engine = ScriptedEngine([], capabilities=set())
    config = RubricConfig(paraphrases=3)
    assert judge_stage(config, engine).identity == judge_stage(RubricConfig(), engine).identity


def test_a_curve_of_sides_does_not_hang_on_options_of_whole_dialogues() -> None:
    engine = ScriptedEngine([], capabilities={Capability.TOP_LOGPROBS})
    plain, other, third = (
        pair_identity(judge_stage(RubricConfig.model_validate(options), engine).identity)
        for options in ({}, {"paraphrases": 2}, {"show_reasoning": True})
    )
    assert plain == other
    assert plain != third


def good_of(**fitted: JudgeIdentity) -> Calibration:
    good = GoodModel(
        features=(*fitted,), means=(0.5,), scales=(0.1,), weights=(1.0,), intercept=0.0,
        labels=20, good=10, brier=0.2, brier_without=0.25, **fitted,
    )  # fmt: skip
    return Calibration(kind="calibration", identity=JUDGE, good=good)


def test_p_good_is_refused_beside_other_metrics() -> None:
    made = good_of(metrics=JUDGE)
    check_good_metrics(made, JUDGE)
    check_good_metrics(made, JUDGE.model_copy(update={"engine": "openai"}))
    check_good_metrics(None, None)
    check_good_metrics(calibration(), None)
    check_good_metrics(good_of(adherence=JUDGE), None)
    for identity, got in (
        (None, "metrics none"),
        (JUDGE.model_copy(update={"mode": "json"}), "mode json"),
    ):
        with pytest.raises(UsageError, match="by its metrics,") as caught:
            check_good_metrics(made, identity)
        assert got in str(caught.value.got)
        assert caught.value.fix == (
            "score the same metrics in the same way, or run `curate calibrate` on a run like this one"
        )


def test_p_good_is_refused_beside_another_role_adherence() -> None:
    made = good_of(adherence=JUDGE)
    check_adherence(made, JUDGE)
    check_adherence(None, None)
    check_adherence(calibration(), None)
    for identity in (None, JUDGE.model_copy(update={"mode": "binary"})):
        with pytest.raises(UsageError, match="by its scores of role adherence"):
            check_adherence(made, identity)


def test_one_sentence_says_whether_levels_are_calibrated() -> None:
    made = calibration(coherence=cuts(2, 3, 4, 5), safety=cuts(2, 3, 4, 5))
    identity = calibrated_identity(made.levels, JUDGE)
    assert describe_levels(made, JUDGE).startswith("levels are not calibrated: ")
    assert describe_levels(made, identity) == (
        "levels are calibrated: safety, coherence; most likely digits: context_use, helpfulness, "
        "task_completion, repair_handling."
    )
    stated = calibration(safety=cuts(1, 1, 1, 1, method="given_shares"))
    assert describe_levels(stated, identity).startswith("levels are by stated shares: safety; most")
    assert "taken from" in describe_levels(None, identity)


def test_a_file_is_read_by_the_config_and_refused_with_what_is_wrong(tmp_path: Any) -> None:
    made = calibration(coherence=cuts(2, 3, 4, 5))
    path = tmp_path / "calibration.json"
    path.write_text(made.model_dump_json())
    assert RubricConfig.model_validate({"calibration": str(path)}).calibration == made
    assert RubricConfig(calibration=made).calibration == made
    path.write_text("{")
    with pytest.raises(UsageError, match=r"judge\.calibration cannot be used"):
        RubricConfig.model_validate({"calibration": str(path)})
    path.write_text('{"kind": "calibration"}')
    with pytest.raises(UsageError, match="has no calibration of the rubric judge"):
        RubricConfig.model_validate({"calibration": str(path)})
    for wrong in ({"kind": "calibration", "levels": {"tone": {}}}, {"x": 1}, 3):
        with pytest.raises(UsageError, match="cannot be used"):
            read_calibration(wrong, "judge.calibration")
    with pytest.raises(UsageError, match="cannot be used"):
        read_calibration(str(tmp_path / "absent.json"), "judge.calibration")
    with pytest.raises(ValidationError, match="not a dimension of the rubric: tone"):
        calibration(tone=cuts(2, 3, 4, 5))
    with pytest.raises(ValidationError, match="identity is missing"):
        Calibration(kind="calibration", levels={"coherence": cuts(2, 3, 4, 5)})
