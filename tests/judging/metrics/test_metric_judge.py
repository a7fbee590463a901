"""The coroutine: what is asked, what comes of bad replies, and what is never made up."""

from typing import Any

import pytest

from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Fault, Request
from curate.engines.label_mass import LETTER_PREFIX
from curate.errors import UsageError
from curate.judging.metrics import MetricsConfig, score_metrics
from curate.records import MetricScore, MetricsScore, Unscored
from tests.judging.metrics.scripted import (
    IDENTITY,
    MetricJudge,
    first_token,
    outcome,
    plain,
    said,
    scored,
    with_tools,
)

MODES = pytest.mark.parametrize("mode", ["json", "tokens"])
FAULT = Completion(finish="error", fault=Fault("server", "down"))
CUT = Completion(text="{", finish="length")
TWO: dict[str, Any] = {"choose": ["grounding_fidelity", "response_delivery"]}


def by_name(row: MetricsScore) -> dict[str, MetricScore]:
    return {metric.name: metric for metric in row.metrics}


@MODES
async def test_all_metrics_of_a_good_dialogue_come_to_one_hundred(mode: str) -> None:
    judge = MetricJudge()
    row = await scored(with_tools(), judge, mode)
    assert row.overall_score == 100
    assert row.passed
    assert [metric.score for metric in row.metrics] == [5] * 8
    assert row.requests == len(judge.asked) == (1 if mode == "json" else 8)
    assert (
        len({request.messages[0]["content"].partition("</dialogue>")[0] for request in judge.asked})
        == 1
    )


@MODES
async def test_weights_scores_and_threshold_make_the_overall_score(mode: str) -> None:
    choose = [
        {"metric": "tool_routing", "weight": 1.0},
        {"metric": "task_completion", "weight": 0.5},
    ]
    judge = MetricJudge({"tool_routing": 4, "task_completion": "fail"})
    row = await scored(with_tools(), judge, mode, choose=choose, pass_threshold=53.3)
    assert row.overall_score == pytest.approx(100 * 4 / 5 * 2 / 3)
    assert row.passed
    assert (
        await scored(with_tools(), judge, mode, choose=choose, pass_threshold=53.4)
    ).passed is False


@MODES
async def test_metrics_of_tools_are_not_asked_about_a_dialogue_without_any(mode: str) -> None:
    judge = MetricJudge({"grounding_fidelity": 0})
    row = await scored(plain(), judge, mode)
    held = by_name(row)
    assert held["tool_routing"].na == "no_tools"
    assert held["tool_routing"].score is None
    assert held["tool_routing"].share == 0
    assert held["tool_routing"].weight == pytest.approx(0.15)
    assert held["grounding_fidelity"].share == pytest.approx(0.125 / 0.55)
    assert row.overall_score == pytest.approx(100 * (1 - 0.125 / 0.55))
    assert all("Score the metric tool_routing" not in request.question for request in judge.asked)
    assert all("tool_routing" not in str(request.schema) for request in judge.asked)


@MODES
async def test_the_judge_may_say_that_a_metric_does_not_apply(mode: str) -> None:
    judge = MetricJudge({"parameter_extraction": "n/a", "tool_routing": 0})
    choose = ["tool_routing", "parameter_extraction"]
    row = await scored(with_tools(), judge, mode, choose=choose)
    held = by_name(row)
    assert held["parameter_extraction"].na == "judge"
    assert (held["tool_routing"].share, row.overall_score) == (1, 0)


@MODES
async def test_where_nothing_applies_there_is_no_score(mode: str) -> None:
    judge = MetricJudge({"tool_routing": "n/a"})
    row = await outcome(with_tools(), judge, mode, choose=["tool_routing"])
    assert isinstance(row, Unscored)
    assert row.reason == "nothing_applies"
    judge = MetricJudge()
    row = await outcome(plain(), judge, mode, choose=["tool_routing"])
    assert isinstance(row, Unscored)
    assert (row.reason, judge.asked) == ("nothing_applies", [])


@MODES
async def test_poor_metrics_have_a_code_and_turns_and_no_other_has_a_code(mode: str) -> None:
    judge = MetricJudge({"tool_routing": 2, "grounding_fidelity": 3})
    held = by_name(await scored(with_tools(), judge, mode))
    assert held["tool_routing"].failure_code == "bad_tool_routing"
    assert held["tool_routing"].turns == (1,)
    assert held["tool_routing"].is_poor
    assert held["grounding_fidelity"].failure_code is None
    assert not held["grounding_fidelity"].is_poor


@MODES
async def test_a_failed_call_is_unscored_and_never_zero(mode: str) -> None:
    row = await outcome(with_tools(), MetricJudge(answer=lambda *_: FAULT), mode)
    assert isinstance(row, Unscored)
    assert row.reason == "engine_error"
    assert "down" in row.detail
    assert row.stage == "metrics"


@MODES
async def test_a_prompt_that_does_not_fit_is_unscored(mode: str) -> None:
    fault = Completion(finish="error", fault=Fault("context_overflow", "too long"))
    row = await outcome(with_tools(), MetricJudge(answer=lambda *_: fault), mode)
    assert isinstance(row, Unscored)
    assert row.reason == "context_overflow"


async def test_a_dialogue_without_an_assistant_is_not_asked_about() -> None:
    judge = MetricJudge()
    row = await outcome(Dialogue(id="d", messages=(Message(role="user", content="Hi"),)), judge)
    assert isinstance(row, Unscored)
    assert (row.reason, judge.asked) == ("no_assistant_turn", [])


async def test_the_mode_must_be_resolved() -> None:
    with pytest.raises(UsageError):
        await score_metrics(plain(), MetricJudge(), MetricsConfig(), IDENTITY)


# ---- json: what cannot be used is asked again by itself


def first_says(value: Any) -> MetricJudge:
    """The first reply is `value`; all later ones are good."""
    reply = value if isinstance(value, Completion) else said(value)
    return MetricJudge(answer=lambda _, before: reply if before == 0 else None)


def entry(score: Any, code: Any = None, turns: Any = ()) -> dict[str, Any]:
    return {"score": score, "failure_code": code, "turns": list(turns)}


def replaying(replies: list[Completion]) -> MetricJudge:
    """The first replies are these; all later ones are good."""
    return MetricJudge(answer=lambda _, before: replies[before] if before < len(replies) else None)


GOOD = entry(4)


async def test_a_missing_metric_is_asked_again_by_itself() -> None:
    judge = first_says({"grounding_fidelity": GOOD})
    row = await scored(with_tools(), judge, **TWO)
    assert [metric.score for metric in row.metrics] == [4, 5]
    again = judge.asked[1]
    assert again.schema is not None
    assert [*again.schema["properties"]] == ["response_delivery"]
    assert "response_delivery is missing" in again.question
    assert "grounding_fidelity" not in again.question
    assert again.sample == 1


async def test_each_metric_is_asked_again_until_it_can_be_used() -> None:
    judge = MetricJudge(answer=lambda _, before: said({}) if before in (0, 1, 2) else None)
    row = await scored(with_tools(), judge, **TWO)
    assert [metric.score for metric in row.metrics] == [5, 5]
    assert [list(request.schema["properties"]) for request in judge.asked if request.schema] == [
        ["grounding_fidelity", "response_delivery"],
        *[["grounding_fidelity"], ["response_delivery"]] * 2,
    ]


@pytest.mark.parametrize("score", [6, -1, 2.5, "5", True, None, "n/a", [5]])
async def test_a_score_outside_its_scale_is_asked_again_and_never_moved(score: Any) -> None:
    judge = first_says({"grounding_fidelity": entry(score), "response_delivery": GOOD})
    row = await scored(with_tools(), judge, **TWO)
    assert [metric.score for metric in row.metrics] == [5, 4]
    assert "the score of grounding_fidelity is" in judge.asked[1].question
    never = MetricJudge(
        answer=lambda *_: said({"grounding_fidelity": entry(score), "response_delivery": GOOD})
    )
    unscored = await outcome(with_tools(), never, **TWO)
    assert isinstance(unscored, Unscored)
    assert unscored.reason == "bad_reply"
    assert "1 of 2 metrics: grounding_fidelity" in unscored.detail
    assert len(never.asked) == 3


@pytest.mark.parametrize(
    ("wrong", "reason", "flags"),
    [
        (entry(5, "wrong_tool"), "is not poor and has the failure_code", ["failure_code_dropped"]),
        (entry(3, "wrong_tool"), "is not poor and has the failure_code", ["failure_code_dropped"]),
        (entry(2, None, [1]), "has no failure_code", ["failure_code_missing"]),
        (entry(2, "Wrong tool", [1]), "is not in snake_case", ["failure_code_dropped"]),
        (entry(2, "x" * 81, [1]), "is not in snake_case", ["failure_code_dropped"]),
        (entry(2, "wrong_tool", [1, 9]), "names [9]", ["turns_dropped"]),
        (entry(2, "wrong_tool", ["1"]), 'names ["1"]', ["turns_dropped"]),
        (entry(2, "wrong_tool", []), "names no turn", ["turns_missing"]),
        (entry(5, None, [0]), "names [0]", ["turns_dropped"]),
        ({"score": 5, "failure_code": None, "turns": "1"}, 'names "1"', ["turns_dropped"]),
    ],
)
async def test_a_diagnosis_that_does_not_fit_is_asked_again_then_left_out_with_a_flag(
    wrong: dict[str, Any], reason: str, flags: list[str]
) -> None:
    judge = first_says({"grounding_fidelity": wrong, "response_delivery": GOOD})
    row = await scored(with_tools(), judge, **TWO)
    assert by_name(row)["grounding_fidelity"].flags == ()
    assert reason in judge.asked[1].question
    stubborn = MetricJudge(
        answer=lambda *_: said({"grounding_fidelity": wrong, "response_delivery": GOOD})
    )
    held = by_name(await scored(with_tools(), stubborn, **TWO))["grounding_fidelity"]
    assert (held.score, [*held.flags]) == (wrong["score"], flags)
    assert set(held.turns) <= {1, 2}
    has_code = wrong["failure_code"] == "wrong_tool" and flags != ["failure_code_dropped"]
    assert held.failure_code == ("wrong_tool" if has_code else None)
    assert len(stubborn.asked) == 3


async def test_a_usable_score_outlives_a_second_reply_that_has_none() -> None:
    wrong = said({"grounding_fidelity": entry(2, None, [1]), "response_delivery": GOOD})
    judge = MetricJudge(answer=lambda _, before: wrong if before == 0 else said({}))
    held = by_name(await scored(with_tools(), judge, **TWO))["grounding_fidelity"]
    assert (held.score, held.turns, held.flags) == (2, (1,), ("failure_code_missing",))


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Completion(text="I cannot."), "no JSON object"),
        (
            Completion(text='{"grounding_fidelity": {"score"', finish="length"),
            "longer than allowed",
        ),
    ],
)
async def test_a_reply_that_cannot_be_read_is_asked_again_metric_by_metric(
    reply: Completion, why: str
) -> None:
    judge = first_says(reply)
    row = await scored(with_tools(), judge, **TWO)
    assert row.requests == 3
    assert all(why in request.question for request in judge.asked[1:])
    never = await outcome(with_tools(), MetricJudge(answer=lambda *_: reply), **TWO)
    assert isinstance(never, Unscored)
    assert never.reason == ("reply_cut" if reply.finish == "length" else "bad_reply")


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_a_metric_is_asked_again_as_often_as_the_retries(retries: int) -> None:
    judge = MetricJudge(answer=lambda *_: said({"response_delivery": GOOD}))
    row = await outcome(with_tools(), judge, retries=retries, **TWO)
    assert isinstance(row, Unscored)
    detail = "1 of 2 metrics: grounding_fidelity: grounding_fidelity is missing"
    assert (row.reason, row.detail, row.requests) == ("bad_reply", detail, retries + 1)
    assert [request.sample for request in judge.asked] == [*range(retries + 1)]


async def test_each_further_question_and_the_reason_are_about_the_reply_before() -> None:
    replies = [said({"response_delivery": GOOD}), Completion(text="no"), CUT]
    judge = replaying(replies)
    row = await outcome(with_tools(), judge, **TWO)
    assert isinstance(row, Unscored)
    assert (row.reason, row.requests) == ("reply_cut", 3)
    _, second, third = (request.question for request in judge.asked)
    assert "grounding_fidelity is missing" in second
    assert "no JSON object" in third
    assert "is missing" not in third
    assert (await scored(with_tools(), replaying(replies), **TWO, retries=3)).requests == 4


@pytest.mark.parametrize("before", [0, 1])
async def test_a_fault_is_not_asked_again(before: int) -> None:
    bad = said({"response_delivery": GOOD})
    judge = replaying([*[bad] * before, FAULT])
    row = await outcome(with_tools(), judge, **TWO)
    assert isinstance(row, Unscored)
    assert (row.reason, row.requests, len(judge.asked)) == ("engine_error", before + 1, before + 1)


@pytest.mark.parametrize("later", [FAULT, Completion(text="no"), CUT])
async def test_a_usable_score_outlives_a_later_call_that_fails(later: Completion) -> None:
    wrong = said({"grounding_fidelity": entry(2, None, [1]), "response_delivery": GOOD})
    row = await scored(with_tools(), replaying([wrong, later]), **TWO, retries=1)
    held = by_name(row)["grounding_fidelity"]
    assert (held.score, held.turns, held.flags) == (2, (1,), ("failure_code_missing",))


# ---- tokens


async def test_a_score_by_tokens_has_its_distribution() -> None:
    choose = ["grounding_fidelity", {"metric": "task_completion", "weight": 1}]
    judge = MetricJudge(
        answer=lambda request, _: (
            first_token({"4": 0.5, "0": 0.25, " 0": 0.05, "the": 0.2})
            if "5" in request.labels
            else first_token({"P": 0.6, "F": 0.2, "N": 0.1})
        )
    )
    held = by_name(await scored(with_tools(), judge, "tokens", choose=choose))
    graded, binary = held["grounding_fidelity"].reading, held["task_completion"].reading
    assert graded is not None
    assert binary is not None
    assert (held["grounding_fidelity"].score, held["task_completion"].score) == (4, 1)
    assert graded.mean == pytest.approx(4 * 0.5 / 0.8)
    assert graded.coverage == pytest.approx(0.8)
    assert binary.mean == pytest.approx(0.75)
    assert binary.probabilities == pytest.approx({"pass": 2 / 3, "fail": 2 / 9, "n/a": 1 / 9})


async def test_labels_with_too_little_mass_are_asked_again_in_other_words() -> None:
    low = first_token({"the": 0.95, "4": 0.05})
    judge = MetricJudge(answer=lambda request, before: low if before == 0 else None)
    row = await scored(with_tools(), judge, "tokens", **TWO)
    assert [metric.score for metric in row.metrics] == [5, 5]
    first, _, again = judge.asked
    assert again.prefill != first.prefill
    assert again.question != first.question
    never = await outcome(
        with_tools(), MetricJudge(answer=lambda r, _: low if r.labels else None), "tokens", **TWO
    )
    assert isinstance(never, Unscored)
    assert never.reason == "low_coverage"


async def test_digits_and_letters_are_asked_for_behind_prefixes_of_their_own() -> None:
    judge = MetricJudge()
    choose = ["grounding_fidelity", {"metric": "task_completion", "weight": 1}]
    await scored(with_tools(), judge, "tokens", choose=choose)
    assert [request.prefill for request in judge.asked] == ["(", LETTER_PREFIX]


async def test_only_poor_metrics_are_diagnosed_in_one_call() -> None:
    choose = ["tool_routing", "grounding_fidelity", {"metric": "task_completion", "weight": 1}]
    judge = MetricJudge({"tool_routing": 1, "task_completion": "fail"})
    row = await scored(with_tools(), judge, "tokens", choose=choose)
    (asked,) = [request for request in judge.asked if request.purpose == "metrics.diagnosis"]
    assert "tool_routing 1, task_completion fail" in asked.question
    assert asked.schema is not None
    assert [*asked.schema["properties"]] == ["tool_routing", "task_completion"]
    assert by_name(row)["task_completion"].failure_code == "bad_task_completion"


@pytest.mark.parametrize(
    "reply", [FAULT, Completion(text="no"), Completion(text="{", finish="length")]
)
async def test_a_diagnosis_that_fails_costs_no_score(reply: Completion) -> None:
    def answer(request: Request, _: int) -> Completion | None:
        return reply if request.purpose == "metrics.diagnosis" else None

    judge = MetricJudge({"tool_routing": 0}, answer=answer)
    held = by_name(await scored(with_tools(), judge, "tokens"))["tool_routing"]
    assert (held.score, held.failure_code) == (0, None)
    assert held.flags == ("failure_code_missing", "turns_missing")


async def test_a_diagnosis_is_asked_again_with_the_reason() -> None:
    bad = said({"tool_routing": {"failure_code": "wrong_tool", "turns": [7]}})

    def answer(request: Request, before: int) -> Completion | None:
        return bad if request.purpose == "metrics.diagnosis" and request.sample == 0 else None

    judge = MetricJudge({"tool_routing": 0}, answer=answer)
    held = by_name(await scored(with_tools(), judge, "tokens"))["tool_routing"]
    assert (held.failure_code, held.turns, held.flags) == ("bad_tool_routing", (1,), ())
    assert "names [7]" in judge.asked[-1].question


def diagnosed(*replies: Completion) -> MetricJudge:
    """Two poor metrics; the replies to what is wrong in them are these, later ones good."""
    left = [*replies]

    def answer(request: Request, _: int) -> Completion | None:
        return left.pop(0) if request.purpose == "metrics.diagnosis" and left else None

    return MetricJudge({"grounding_fidelity": 0, "response_delivery": 2}, answer=answer)


def flaw(code: str | None, *turns: int) -> dict[str, Any]:
    return {"failure_code": code, "turns": [*turns]}


def diagnoses(judge: MetricJudge) -> list[Request]:
    return [request for request in judge.asked if request.purpose == "metrics.diagnosis"]


async def test_only_the_metrics_whose_diagnosis_does_not_fit_are_asked_again() -> None:
    judge = diagnosed(
        said({"grounding_fidelity": flaw("made_up", 2), "response_delivery": flaw("curt", 7)})
    )
    held = by_name(await scored(with_tools(), judge, "tokens", **TWO))
    first, again = diagnoses(judge)
    assert first.schema is not None
    assert again.schema is not None
    assert [*first.schema["properties"]] == ["grounding_fidelity", "response_delivery"]
    assert [*again.schema["properties"]] == ["response_delivery"]
    assert "response_delivery 2" in again.question
    assert "grounding_fidelity" not in again.question
    assert (first.sample, again.sample) == (0, 1)
    assert again.max_tokens < first.max_tokens
    assert [(metric.failure_code, metric.turns, metric.flags) for metric in held.values()] == [
        ("made_up", (2,), ()),
        ("bad_response_delivery", (1,), ()),
    ]


async def test_all_that_is_wrong_in_the_diagnoses_is_told_at_once() -> None:
    judge = diagnosed(
        said({"grounding_fidelity": flaw("made_up"), "response_delivery": flaw(None, 1)})
    )
    await scored(with_tools(), judge, "tokens", **TWO)
    problems = (
        "grounding_fidelity is poor and names no turn; "
        "response_delivery is poor and has no failure_code"
    )
    assert problems in diagnoses(judge)[1].question


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_diagnoses_are_asked_again_as_often_as_the_retries(retries: int) -> None:
    judge = diagnosed(*[Completion(text="no")] * 9)
    row = await scored(with_tools(), judge, "tokens", **TWO, retries=retries)
    assert [request.sample for request in diagnoses(judge)] == [*range(retries + 1)]
    assert row.requests == len(judge.asked) == 2 + retries + 1


async def test_a_cut_diagnosis_is_asked_again_and_a_fault_is_not() -> None:
    judge = diagnosed(CUT, FAULT)
    held = by_name(await scored(with_tools(), judge, "tokens", **TWO))
    first, again = diagnoses(judge)
    assert "longer than allowed" in again.question
    assert again.question.startswith(first.question)
    flags = ("failure_code_missing", "turns_missing")
    assert [(metric.failure_code, metric.flags) for metric in held.values()] == [(None, flags)] * 2


@pytest.mark.parametrize("later", [said({}), said({"grounding_fidelity": 1}), CUT, FAULT])
async def test_the_usable_part_of_a_diagnosis_outlives_a_reply_without_any(
    later: Completion,
) -> None:
    half = {"grounding_fidelity": flaw("made_up", 7), "response_delivery": flaw("curt", 1)}
    judge = diagnosed(said(half), *[later] * 9)
    held = by_name(await scored(with_tools(), judge, "tokens", **TWO))["grounding_fidelity"]
    assert (held.failure_code, held.turns, held.flags) == ("made_up", (), ("turns_dropped",))
