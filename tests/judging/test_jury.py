"""A jury's judgment out of its judges': scores, readings, verdict, disagreement, and what is missing."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.judging.config import RubricConfig
from curate.judging.jury import combine, combine_digits, combine_metrics
from curate.judging.opinions import Metered, MeteredRecord, together
from curate.judging.rubric import judge_dialogue
from curate.records import (
    JudgeIdentity,
    Judgment,
    LabelReading,
    MetricsScore,
    Unscored,
    UnscoredTurn,
)
from curate.records.metrics import MetricScore
from curate.records.several_judges import JuryRule
from tests.judging.judge import IDENTITY, ScriptedJudge, dialogue_of, said

JURY = JudgeIdentity(engine="jury", model="a + b + c")
DIGITS = st.lists(st.integers(1, 5), min_size=1, max_size=7)


async def heard(
    scores: dict[Any, Any], name: str, mode: Any = "json", turns: int = 2
) -> MeteredRecord:
    used = Metered(ScriptedJudge(scores))
    config = RubricConfig(mode=mode, text="off")
    row = await judge_dialogue(dialogue_of(turns), used, config, IDENTITY)
    return MeteredRecord(name, row, used)


def combined(
    *each: MeteredRecord, rule: JuryRule = "median", **options: Any
) -> Judgment | Unscored:
    rules, names = RubricConfig(jury=rule).jury_rules, [one.judge for one in each]
    return together(each, lambda rows: combine(rows, rules, names, **options), JURY)


def scored(*each: MeteredRecord, rule: JuryRule = "median") -> Judgment:
    result = combined(*each, rule=rule)
    assert isinstance(result, Judgment), result
    return result


@given(DIGITS)
def test_the_rules_of_digits(digits: list[int]) -> None:
    assert combine_digits(digits, "median") == statistics.median_low(digits)
    assert combine_digits(digits, "minimum") == min(digits)
    voted, votes = combine_digits(digits, "vote"), Counter(digits)
    assert votes[voted] == max(votes.values())


def test_a_vote_that_is_tied_goes_to_the_middle() -> None:
    assert combine_digits([1, 4, 5], "vote") == 4
    assert combine_digits([1, 1, 5, 5], "vote") == 1


async def test_the_majority_is_right_and_the_one_that_errs_is_kept_as_evidence() -> None:
    right = {(1, "helpfulness"): 2}
    judges = [await heard(right, "a"), await heard(right, "b"), await heard({}, "c")]
    result = scored(*judges)
    assert result.per_turn[0].scores.helpfulness == 2
    assert (result.verdict, result.weakest_turn) == ("borderline", 1)
    assert [one.verdict for one in result.opinions] == ["borderline", "borderline", "excellent"]
    assert [one.judge for one in result.opinions] == ["a", "b", "c"]
    assert result.identity == JURY
    assert result.requests == sum(one.used.requests for one in judges)
    # One of eight scores (six of turns, two of the whole; repair is n/a) differs by 3, in two of three pairs.
    assert result.disagreement == pytest.approx(2 * 3 / (3 * 8))


async def test_judges_that_say_the_same_do_not_disagree() -> None:
    judges = [await heard({(1, "safety"): 4}, name) for name in ("a", "b")]
    assert scored(*judges).disagreement == 0.0


@pytest.mark.parametrize(("rule", "level"), [("median", 4), ("minimum", 2), ("vote", 4)])
async def test_the_rule_decides(rule: JuryRule, level: int) -> None:
    judges = [await heard({(1, "context_use"): n}, str(n)) for n in (2, 4, 4)]
    assert scored(*judges, rule=rule).per_turn[0].scores.context_use == level


def test_a_rule_may_be_of_one_dimension() -> None:
    rules = RubricConfig(jury={"safety": "minimum"}).jury_rules
    assert (rules["safety"], rules["helpfulness"]) == ("minimum", "median")


async def test_readings_mix_judges_of_both_modes() -> None:
    tokens = await heard({(1, "helpfulness"): {"4": 0.5, "2": 0.5}}, "a", mode="tokens")
    digits = await heard({(1, "helpfulness"): 5}, "b", mode="json")
    reading = scored(tokens, digits).per_turn[0].readings["helpfulness"]
    assert reading.probabilities == pytest.approx({"4": 0.25, "2": 0.25, "5": 0.5})
    assert reading.mean == pytest.approx((3 + 5) / 2)
    assert reading.spread == pytest.approx(statistics.pstdev([4, 2, 5, 5]))


async def test_the_mean_of_a_reading_is_the_rules() -> None:
    judges = [await heard({(1, "helpfulness"): n}, str(n)) for n in (1, 4, 5)]
    means = {
        rule: scored(*judges, rule=rule).per_turn[0].readings["helpfulness"].mean
        for rule in ("median", "minimum", "vote")
    }
    assert means == {"median": 4, "minimum": 1, "vote": pytest.approx(10 / 3)}


async def test_what_most_judges_call_not_applicable_is_so() -> None:
    says_na, scores = {}, {(None, "repair_handling"): 2}
    most = [await heard(says_na, "a"), await heard(says_na, "b"), await heard(scores, "c")]
    assert scored(*most).conversation_level.repair_handling.score == "n/a"
    half = [await heard(says_na, "a"), await heard(scores, "b")]
    repaired = scored(*half).conversation_level.repair_handling
    assert repaired.score == 2
    assert repaired.reading is not None
    assert repaired.reading.probabilities == {"n/a": 0.5, "2": 0.5}
    assert repaired.reading.mean == 2


async def test_the_note_of_a_score_is_that_of_a_judge_who_gave_it() -> None:
    given = []
    for name, score, note in (("a", 2, "two"), ("b", 4, ""), ("c", 4, "four"), ("d", 4, "other")):
        one = await heard({(None, "coherence"): score}, name)
        assert isinstance(one.row, Judgment)
        noted = one.row.conversation_level.coherence.model_copy(update={"note": note})
        level = one.row.conversation_level.model_copy(update={"coherence": noted})
        row = one.row.model_copy(update={"conversation_level": level})
        given.append(MeteredRecord(name, row, one.used))
    coherence = scored(*given).conversation_level.coherence
    assert (coherence.score, coherence.note) == (4, "four")


async def test_a_judge_that_scores_nothing_leaves_the_jury_unscored_and_is_named() -> None:
    fails = ScriptedJudge(answer=lambda _: said("no form"))
    config = RubricConfig(mode="json", text="off", retries=0)
    used = Metered(fails)
    row = await judge_dialogue(dialogue_of(2), used, config, IDENTITY)
    result = combined(await heard({}, "a"), MeteredRecord("engine:b", row, used))
    assert isinstance(result, Unscored)
    assert result.reason == "bad_reply"
    assert result.detail.startswith("engine:b: ")


async def test_a_turn_that_one_judge_could_not_score_is_unscored() -> None:
    whole, part = await heard({}, "a"), await heard({}, "b")
    assert isinstance(part.row, Judgment)
    missing = UnscoredTurn(turn=2, reason="low_coverage", detail="0.01")
    row = part.row.model_copy(
        update={"per_turn": part.row.per_turn[:1], "unscored_turns": (missing,)}
    )
    cut = MeteredRecord("b", row, part.used)
    refused = combined(whole, cut)
    assert isinstance(refused, Unscored)
    assert (refused.reason, "turn 2" in refused.detail) == ("low_coverage", True)
    kept = combined(whole, cut, min_scored_share=0.5)
    assert isinstance(kept, Judgment)
    assert [turn.turn for turn in kept.per_turn] == [1]
    assert kept.missing_turns == {2}


def record(
    score: int | None, reading: dict[str, float] | None = None, **metric: Any
) -> MetricsScore:
    held = MetricScore(
        name="tone",
        tier="delivery",
        scale=metric.pop("scale", "scored"),
        weight=1,
        share=1,
        score=score,
        na=None if score is not None else "judge",
        reading=reading
        and LabelReading(mean=metric.pop("mean"), coverage=1, probabilities=reading),
        **metric,
    )
    other = MetricScore(name="end", tier="process", scale="scored", weight=0, share=0, score=5)
    return MetricsScore(
        dialogue_id="d",
        content_hash="h",
        identity=IDENTITY,
        metrics=(held, other),
        overall_score=20 * (score or 0),
        pass_threshold=75,
        passed=False,
        weights_key="",
        overall_range=(0, 100),
    )


def test_metrics_become_one_by_the_rule_and_keep_the_diagnosis_of_their_level() -> None:
    rows = [record(5), record(1, failure_code="rude", turns=(2,)), record(2, failure_code="cold")]
    combined = {rule: combine_metrics(rows, rule) for rule in ("median", "minimum", "vote")}
    held = {}
    for rule, row in combined.items():
        assert isinstance(row, MetricsScore)
        held[rule] = (row.overall_score, row.metrics[0].failure_code, row.metrics[0].turns)
    assert held == {
        "median": (40, "cold", ()),
        "minimum": (20, "rude", (2,)),
        "vote": (40, "cold", ()),
    }


def test_readings_of_pass_and_fail_mix() -> None:
    row = combine_metrics(
        [
            record(1, {"pass": 0.8, "fail": 0.2}, mean=0.8, scale="binary"),
            record(0, scale="binary"),
            record(1, scale="binary"),
        ],
        "vote",
    )
    assert isinstance(row, MetricsScore)
    reading = row.metrics[0].reading
    assert reading is not None
    assert reading.probabilities == pytest.approx({"pass": 0.6, "fail": 0.4})
    assert reading.mean == pytest.approx(0.6)
    assert row.metrics[0].score == 1


def test_a_metric_is_not_applicable_where_most_say_so() -> None:
    row = combine_metrics([record(None), record(None), record(3)], "median")
    assert isinstance(row, Unscored)
    assert row.reason == "nothing_applies"
    half = combine_metrics([record(None), record(3)], "median")
    assert isinstance(half, MetricsScore)
    assert half.overall_score == 60
