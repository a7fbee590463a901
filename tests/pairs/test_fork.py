"""One fork from end to end, with every way it can be dropped."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message, ToolCall
from curate.pairs.config import ForkConfig
from curate.pairs.fork import fork_dialogue
from curate.pairs.prefix import to_wire
from curate.records import (
    AdherenceTurn,
    Change,
    PreferencePair,
    StageName,
    TurnClaims,
    TurnReading,
    Unscored,
)
from tests.pairs.scripted import (
    FINE,
    PAIR_CURVE,
    WEAK,
    Values,
    World,
    by_text,
    chat,
    fault,
    judged,
    reply,
    say,
)

BAD = "Your refund of $40 is on its way."
GOOD = "Your refund of $45 is on its way."
OTHER = "Your refund of $41 is on its way."
ONE = ForkConfig(resamples=0)
THREE = ForkConfig(resamples=3, guided_revision=False)
DIALOGUE = chat(
    "Refund order 7, I paid $45.", "Which card?", "The blue one.", BAD, "Thanks.", "Bye."
)
JUDGMENT = judged(DIALOGUE, {1: (5, 5, 5), 2: (2, 2, 5), 3: (5, 5, 5)}, weakest=2)


async def fork(world: World, config: ForkConfig = ONE, dialogue=DIALOGUE, judgment=JUDGMENT):
    return await fork_dialogue(dialogue, judgment, world.asks(), config)


def drop_reasons(records: list[PreferencePair]) -> list[str | None]:
    return [record.drop_reason for record in records]


async def test_one_wrong_amount_mended_gives_a_verified_pair() -> None:
    world = World({BAD: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD))
    [pair] = await fork(world)
    assert pair.drop_reason is None
    assert pair.prompt == DIALOGUE.messages[:3]
    assert (pair.chosen, pair.rejected) == (say("assistant", GOOD), DIALOGUE.messages[3])
    assert (pair.source, pair.basis, pair.turn) == ("revision", "judge", 2)
    assert (pair.policy, pair.judge, pair.issue) == ("reviser", "judge", "names the wrong amount")
    assert pair.check is not None
    assert pair.check.margin == pytest.approx(2.0)
    assert pair.check.noise == 0
    assert (pair.check.decided_by, pair.check.required) == ("uncalibrated", 0)
    assert pair.check.evidence == pair.check.preference == pytest.approx(math.log(18))
    assert pair.check.token_ratio == 1
    assert (pair.check.preferred_first, pair.check.preferred_second) == (True, True)
    assert pair.check.chosen_scores == {"context_use": 5, "helpfulness": 5, "safety": 5}
    assert pair.content_hash == DIALOGUE.content_hash


async def test_the_policy_is_asked_exactly_the_exported_prompt() -> None:
    tool = {"type": "function", "function": {"name": "find", "parameters": {}}}
    dialogue = DIALOGUE.model_copy(update={"tools": (tool,)})
    world = World(
        {BAD: WEAK, GOOD: FINE, OTHER: WEAK}, resamples=[GOOD, OTHER, BAD], prefer=by_text(GOOD)
    )
    records = await fork(world, THREE, dialogue)
    assert drop_reasons(records) == ["rejected_preferred", "identical", None]
    for request in world.policy_requests:
        assert request.messages == to_wire(records[2].prompt)
        assert request.tools == records[2].tools == (tool,)


async def test_both_sides_are_rescored_alone_on_the_same_truncated_dialogue() -> None:
    world = World({BAD: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD))
    await fork(world)
    assert [(part.messages[-1].content, turn, wording) for part, turn, wording in world.scored] == [
        (BAD, 2, 0), (BAD, 2, 1), (BAD, 2, 2), (GOOD, 2, 0), (GOOD, 2, 1), (GOOD, 2, 2),
    ]  # fmt: skip
    for part, _, _ in world.scored:
        assert part.messages[:-1] == DIALOGUE.messages[:3]
        assert len(part.turns) == 2
    assert len({part.content_hash for part, _, _ in world.scored}) == 2


async def test_the_noise_is_measured_over_the_wordings_and_does_not_decide() -> None:
    wobbly: list[Values] = [(5, 5, 5), (3, 3, 5), (2, 2, 5)]
    world = World({BAD: WEAK, GOOD: wobbly}, revision=GOOD, prefer=by_text(GOOD))
    [pair] = await fork(world)
    assert pair.drop_reason is None
    assert pair.check is not None
    assert pair.check.differences == pytest.approx((2, 2 / 3, 0))
    assert pair.check.noise == pytest.approx(1.0184 / math.sqrt(3), abs=1e-3)


def ranking(**worth: float) -> Callable[[str, str], float]:
    """A judge to whom each text is worth so many log-odds."""
    of = {BAD: 0.0, GOOD: worth.get("good", 0.0), OTHER: worth.get("other", 0.0)}
    pull = worth.get("pull", 0.0)
    return lambda first, second: float(of[first] - of[second] + pull)


TWO = ForkConfig(resamples=2, guided_revision=False)


async def test_the_candidate_with_the_most_evidence_is_taken_and_the_rest_is_kept() -> None:
    world = World(
        {BAD: WEAK, GOOD: (4, 4, 5), OTHER: FINE},  # by its scores the other would be
        resamples=[OTHER, GOOD, GOOD],
        prefer=ranking(good=3, other=1),
    )
    records = await fork(world, THREE)
    assert drop_reasons(records) == ["duplicate", None, "not_best"]
    assert [record.chosen.content for record in records if record.chosen] == [GOOD, GOOD, OTHER]
    assert len(world.asked("compare")) == 2
    assert len({record.pair_id for record in records}) == 3


@pytest.mark.parametrize(("pull", "taken"), [(0.5, OTHER), (0.1, GOOD)])
async def test_two_close_candidates_are_shown_side_by_side(pull: float, taken: str) -> None:
    """Close is nearer than the position pulls; then the judge prefers the other, against the ranking."""
    ranked = ranking(good=2.2, other=2, pull=pull)

    def prefer(first: str, second: str) -> float:
        return ranked(first, second) if BAD in (first, second) else 1.0 if first == OTHER else -1.0

    world = World({BAD: WEAK, GOOD: FINE, OTHER: FINE}, resamples=[GOOD, OTHER], prefer=prefer)
    records = await fork(world, TWO)
    assert drop_reasons(records) == [None, "not_best"]
    assert records[0].chosen is not None
    assert records[0].chosen.content == taken
    assert len(world.asked("compare")) == (3 if taken == OTHER else 2)


async def test_the_next_candidate_is_tried_where_the_best_falls_in_its_role() -> None:
    async def score_role(part: Dialogue, turn: int) -> AdherenceTurn:
        return AdherenceTurn(turn=turn, score=0.1 if part.messages[-1].content == GOOD else 0.9)

    world = World(
        {BAD: WEAK, GOOD: FINE, OTHER: FINE},
        resamples=[GOOD, OTHER],
        prefer=ranking(good=3, other=1),
    )
    with_role = DIALOGUE.model_copy(update={"role_definition": "A clerk."})
    records = await fork_dialogue(with_role, JUDGMENT, world.asks(score_role=score_role), TWO)
    assert drop_reasons(records) == ["other_dimension_fell", None]


LONE = ForkConfig(resamples=1, guided_revision=False)


@pytest.mark.parametrize(
    ("precisions", "drop_reason"),
    [
        ({BAD: 0.5, GOOD: 0.5}, None),
        ({BAD: 0.5, GOOD: 0.4}, "other_dimension_fell"),
        ({BAD: None, GOOD: 0.9}, "other_dimension_fell"),
        ({BAD: 0.9, GOOD: None}, None),
    ],
)
async def test_a_chosen_side_has_no_smaller_share_of_true_claims(
    precisions: dict[str, float | None], drop_reason: str | None
) -> None:
    async def score_facts(part: Dialogue, turn: int) -> TurnClaims:
        return TurnClaims(turn=turn, precision=precisions[part.messages[-1].content])

    world = World({BAD: WEAK, GOOD: FINE}, resamples=[GOOD], prefer=ranking(good=3))
    asks = world.asks(score_facts=score_facts)
    (record,) = await fork_dialogue(DIALOGUE, JUDGMENT, asks, LONE)
    assert record.drop_reason == drop_reason
    assert record.check is not None
    assert record.check.rejected_facts == (1.0 if precisions[BAD] is None else precisions[BAD])
    if drop_reason:
        assert "factual precision falls from " in record.detail


async def test_claims_that_are_not_known_leave_the_pair_unscored() -> None:
    async def score_facts(part: Dialogue, turn: int) -> Unscored:
        return Unscored(
            dialogue_id="d", content_hash="0", stage=StageName.FACTUALITY, reason="bad_reply"
        )

    world = World({BAD: WEAK, GOOD: FINE}, resamples=[GOOD], prefer=ranking(good=3))
    (record,) = await fork_dialogue(DIALOGUE, JUDGMENT, world.asks(score_facts=score_facts), LONE)
    assert (record.drop_reason, record.check and record.check.unscored) == ("unscored", "bad_reply")


async def test_letters_without_log_probabilities_rank_by_the_margin() -> None:
    world = World(
        {BAD: WEAK, GOOD: FINE, OTHER: (4, 4, 5)},
        resamples=[OTHER, GOOD],
        prefer=lambda first, second: "A" if second == BAD else "B",
        can_read_labels=False,
    )
    records = await fork(world, TWO)
    assert [record.chosen.content for record in records if record.chosen] == [GOOD, OTHER]
    assert drop_reasons(records) == [None, "not_best"]
    assert {record.check.decided_by for record in records if record.check} == {"letters"}


@pytest.mark.parametrize(
    ("revision", "scores", "prefer", "drop_reason"),
    [
        (BAD + " ", {}, "A", "identical"),
        ("Sure! your refund of $40 is on its way, thank you", {}, "A", "cosmetic"),
        (GOOD, {GOOD: (5, 5, 4)}, "A", "other_dimension_fell"),
        (GOOD, {GOOD: FINE}, "A", "rejected_preferred"),
        (GOOD, {GOOD: FINE}, "bad", "rejected_preferred"),
        (GOOD, {GOOD: "bad_reply"}, "A", "unscored"),
        ("", {}, "A", "no_candidate"),
        (reply("Your ref", "length"), {}, "A", "no_candidate"),
        (fault("timeout"), {}, "A", "engine_error"),
    ],
)
async def test_each_drop_reason_of_a_candidate(revision, scores, prefer, drop_reason) -> None:
    world = World(
        {BAD: WEAK, **scores},
        revision=revision,
        prefer=by_text(BAD) if prefer == "bad" else lambda a, b: "A",
    )
    [record] = await fork(world)
    assert record.drop_reason == drop_reason
    assert record.detail.startswith("revision: ")
    assert record.rejected.content == BAD
    assert record.prompt == DIALOGUE.messages[:3]
    if drop_reason in ("identical", "cosmetic"):
        assert len(world.scored) == 3  # the original alone
        assert not world.asked("compare")


STATED = "Your refund of $45 is on its way, says Ann."


async def test_a_made_up_detail_is_dropped_before_it_is_scored() -> None:
    world = World({BAD: WEAK, STATED: FINE}, revision=STATED, prefer=by_text(STATED))
    world.made_up = {"Ann"}
    [record] = await fork(world)
    assert record.drop_reason == "ungrounded_specifics"
    assert record.check is not None
    assert record.check.specifics == ("Ann",)  # the amount is the user's
    assert record.check.ungrounded == "Ann"
    assert len(world.scored) == 3  # the original alone
    world.made_up = set()
    [pair] = await fork(world)
    assert pair.drop_reason is None
    assert pair.check is not None
    assert (pair.check.specifics, pair.check.ungrounded) == (("Ann",), None)


@pytest.mark.parametrize(
    ("roles", "drop_reason"),
    [
        ({GOOD: 0.9, BAD: 0.9}, None),
        ({GOOD: 0.8, BAD: 0.9}, None),
        ({GOOD: 0.79, BAD: 0.9}, "other_dimension_fell"),
        ({GOOD: None, BAD: 0.9}, "unscored"),
        ({GOOD: 0.9, BAD: None}, "unscored"),
    ],
)
async def test_role_adherence_may_not_fall(roles, drop_reason) -> None:
    async def score_role(part: Dialogue, turn: int) -> AdherenceTurn:
        score = roles[part.messages[-1].content]
        return AdherenceTurn(turn=turn, score=score, unscored=None if score else "low_coverage")

    world = World({BAD: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD))
    asks = world.asks(score_role=score_role)
    with_role = DIALOGUE.model_copy(update={"role_definition": "A clerk."})
    [pair] = await fork_dialogue(with_role, JUDGMENT, asks, ONE)
    assert pair.drop_reason == drop_reason
    assert pair.check is not None
    assert pair.check.unscored == ("low_coverage" if drop_reason == "unscored" else None)
    if drop_reason != "unscored":
        assert (pair.check.chosen_role, pair.check.rejected_role) == (roles[GOOD], roles[BAD])
    # Without a role, or where the recipe says so, it is not asked about.
    [pair] = await fork_dialogue(DIALOGUE, JUDGMENT, asks, ONE)
    assert pair.drop_reason is None
    unchecked = ONE.model_copy(update={"check_role": False})
    [pair] = await fork_dialogue(with_role, JUDGMENT, asks, unchecked)
    assert pair.drop_reason is None


async def test_early_stop_asks_for_candidates_one_by_one_until_one_passes() -> None:
    world = World(
        {BAD: WEAK, OTHER: WEAK, GOOD: FINE}, resamples=[OTHER, GOOD, BAD], prefer=by_text(GOOD)
    )
    config = ForkConfig(resamples=3, early_stop=True)
    records = await fork(world, config)
    assert drop_reasons(records) == ["rejected_preferred", None]
    assert not world.described
    assert [request.sample for request in world.policy_requests] == [0, 1]
    assert not world.reviser_requests
    assert len(world.asked("compare")) == 2
    # The calls it makes are those of the run without it, so the reply log serves either.
    every = World(world.scores, resamples=world.resamples, revision=OTHER, prefer=world.prefer)
    await fork(every, ForkConfig(resamples=3))
    assert world.policy_requests == every.policy_requests[:2]


async def test_early_stop_without_a_curve_stops_where_the_judge_agrees_in_both_orders() -> None:
    """What the run's spread will be is not known yet, and a pair that fails it would be the fork's last."""
    world = World(
        {BAD: WEAK, OTHER: FINE, GOOD: FINE},
        resamples=[OTHER, GOOD],
        prefer=ranking(good=2, other=0.5, pull=1),
    )
    records = await fork(world, ForkConfig(resamples=2, early_stop=True))
    assert drop_reasons(records) == ["below_margin", None]
    curve = PAIR_CURVE.model_copy(update={"threshold": 0.6})
    records = await fork(world, ForkConfig(resamples=2, early_stop=True, curve=curve))
    assert drop_reasons(records) == [None]


async def test_early_stop_asks_for_the_issue_only_when_it_comes_to_the_revision() -> None:
    silent = judged(DIALOGUE, {1: (5, 5, 5), 2: (2, 2, 5), 3: (5, 5, 5)}, weakest=2, issues=())
    config = ForkConfig(resamples=1, early_stop=True, principles=("Be exact.",))
    scores = {BAD: WEAK, OTHER: WEAK, GOOD: FINE}
    world = World(scores, resamples=[GOOD], revision=GOOD, prefer=by_text(GOOD))
    [pair] = await fork(world, config, judgment=silent)
    assert (pair.drop_reason, pair.issue) == (None, "")
    assert not world.asked("critique")
    assert not world.described
    world = World(scores, resamples=[OTHER], revision=GOOD, prefer=by_text(GOOD), issue="wrong")
    dropped, pair = await fork(world, config, judgment=silent)
    assert (dropped.issue, pair.drop_reason, pair.issue) == ("", None, "wrong")
    assert len(world.asked("critique")) == len(world.described) == 1


async def test_early_stop_ends_with_the_revision_and_keeps_every_drop_reason() -> None:
    world = World(
        {BAD: WEAK, OTHER: WEAK, GOOD: FINE}, resamples=[OTHER, OTHER], revision=GOOD,
        prefer=by_text(GOOD),
    )  # fmt: skip
    records = await fork(world, ForkConfig(resamples=2, early_stop=True))
    assert drop_reasons(records) == ["rejected_preferred", "duplicate", None]
    assert [record.source for record in records] == ["resample", "resample", "revision"]


async def test_a_pair_says_how_it_was_drawn_and_what_it_changes() -> None:
    world = World(
        {BAD: WEAK, GOOD: FINE, OTHER: WEAK},
        resamples=[GOOD, OTHER],
        revision=BAD,
        prefer=by_text(GOOD),
    )
    records = await fork(world, ForkConfig(resamples=2))
    by_source = {record.detail.partition(":")[0] or "passed": record for record in records}
    assert by_source["passed"].sampling == {
        "temperature": 0.8, "top_p": 0.95, "max_tokens": 512, "sample": 0,
    }  # fmt: skip
    assert by_source["resample 1"].sampling["sample"] == 1
    assert by_source["revision"].sampling == {"temperature": 0, "max_tokens": 512}
    assert by_source["passed"].changes == (
        Change(kind="amount", removed=("$40",), added=("$45",)),
        Change(kind="sentence", removed=(BAD,), added=(GOOD,)),
    )
    assert by_source["revision"].changes == ()


async def test_principles_shape_the_issue_and_spare_its_description() -> None:
    silent = judged(DIALOGUE, {1: (5, 5, 5), 2: (2, 2, 5), 3: (5, 5, 5)}, weakest=2, issues=())
    config = ForkConfig(resamples=0, principles=("Get amounts right.",))
    world = World(
        {BAD: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD), critique="Breaks 1."
    )
    [pair] = await fork(world, config, judgment=silent)
    assert pair.issue == "Breaks 1."
    assert not world.described
    [pair] = await fork(world, config)
    assert pair.issue == "names the wrong amount; Breaks 1."
    world.critique = "none"
    [pair] = await fork(world, config, judgment=silent)
    assert pair.issue == "names the wrong amount"
    assert len(world.described) == 1


async def test_an_original_that_is_fine_in_a_fresh_context_asks_no_policy() -> None:
    world = World({BAD: (4, 4, 4.6)}, resamples=[GOOD] * 3, revision=GOOD)
    [record] = await fork(world, ForkConfig())
    assert record.drop_reason == "original_was_fine"
    assert (record.source, record.chosen) == ("none", None)
    assert record.check is not None
    assert record.check.rejected_scores["safety"] == pytest.approx(4.6)
    assert not world.policy_requests
    assert not world.reviser_requests


async def test_an_original_that_cannot_be_rescored_is_unscored() -> None:
    [record] = await fork(World({BAD: "context_overflow"}))
    assert (record.drop_reason, record.detail) == ("unscored", "original: context_overflow")
    assert record.check is not None
    assert record.check.unscored == "context_overflow"


async def test_an_issue_is_asked_for_only_where_the_judgment_names_none() -> None:
    world = World({BAD: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD))
    await fork(world)
    assert not world.described
    silent = judged(DIALOGUE, {1: (5, 5, 5), 2: (2, 2, 5), 3: (5, 5, 5)}, weakest=2, issues=())
    world = World({BAD: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD), issue="too little")
    [pair] = await fork(world, judgment=silent)
    assert pair.issue == "too little"
    [(part, turn)] = world.described
    assert (part.messages, turn) == (DIALOGUE.messages[:4], 2)


CALL = Message(role="assistant", tool_calls=(ToolCall(name="find", arguments={"id": 7}),))


def tools_dialogue(*after: Message) -> Dialogue:
    return Dialogue(
        id="t", messages=(say("user", "Refund."), CALL, say("tool", "paid: 45"), *after)
    )


@pytest.mark.parametrize(
    ("dialogue", "turns", "weakest", "at", "drop_reason"),
    [
        (DIALOGUE, {1: (5, 5, 5), 2: (5, 5, 5), 3: (5, 5, 5)}, None, "weakest", "original_was_fine"),
        (DIALOGUE, {1: (5, 5, 5), 2: (4, 4, 5), 3: (5, 5, 5)}, None, "earliest", "original_was_fine"),
        (DIALOGUE, {2: (2, 2, 5), 3: (5, 5, 5)}, 2, "weakest", "unscored"),
        (DIALOGUE, {2: (2, 2, 5), 3: (5, 5, 5)}, 2, "earliest", "unscored"),
        (tools_dialogue(), {1: (2, 2, 5)}, 1, "weakest", "no_text_in_turn"),
        (DIALOGUE, {9: (2, 2, 5)}, 9, "weakest", "no_text_in_turn"),
        (
            chat("Hi").model_copy(
                update={"messages": (say("user", "Hi"), say("assistant", "a"), say("assistant", "b"))}
            ),
            {1: (2, 2, 5)},
            1,
            "weakest",
            "prompt_end",
        ),
    ],
)  # fmt: skip
async def test_each_drop_reason_of_a_fork_point_makes_no_call(
    dialogue, turns, weakest, at, drop_reason
):
    world = World({})
    judgment = judged(dialogue, turns, weakest)
    [record] = await fork(world, ForkConfig(at=at), dialogue, judgment)
    assert record.drop_reason == drop_reason
    assert record.detail
    assert record.chosen is None
    assert record.source == "none"
    assert world.calls == 0


async def test_a_turn_with_tools_is_forked_at_its_last_text_with_the_results_in_the_prompt() -> (
    None
):
    dialogue = tools_dialogue(say("assistant", BAD))
    world = World({BAD: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD))
    [pair] = await fork(world, ONE, dialogue, judged(dialogue, {1: (2, 2, 5)}, 1))
    assert pair.drop_reason is None
    assert pair.prompt == dialogue.messages[:3]
    assert pair.prompt[-1].role == "tool"


async def test_thinking_is_left_out_of_the_prompt_unless_asked_for() -> None:
    thought = say("assistant", "Which card?", reasoning="they have two")
    dialogue = Dialogue(id="r", messages=(DIALOGUE.messages[0], thought, *DIALOGUE.messages[2:]))
    judgment = judged(dialogue, {1: (5, 5, 5), 2: (2, 2, 5), 3: (5, 5, 5)}, weakest=2)
    for keep in (False, True):
        world = World({BAD: WEAK, GOOD: FINE}, resamples=["<think>x</think>" + GOOD],
                      prefer=by_text(GOOD))  # fmt: skip
        config = ForkConfig(resamples=1, guided_revision=False, prompt_reasoning=keep)
        [pair] = await fork(world, config, dialogue, judgment)
        assert (pair.prompt[1].reasoning is not None) is keep
        assert pair.chosen == say("assistant", GOOD, reasoning="x")
        [request] = world.policy_requests
        assert ("they have two" in str(request.messages)) is keep


async def test_the_pair_id_depends_on_the_pair_and_not_on_scores_or_ids() -> None:
    world = World({BAD: WEAK, GOOD: FINE}, revision=GOOD, prefer=by_text(GOOD))
    [first] = await fork(world)
    again = World({BAD: (1, 1, 5), GOOD: (4, 5, 5)}, revision=GOOD, prefer=by_text(GOOD))
    renamed = chat(*(message.content for message in DIALOGUE.messages)).model_copy(
        update={"id": "another"}
    )
    [second] = await fork(again, ONE, renamed)
    assert first.pair_id == second.pair_id
    mended = World({BAD: WEAK, OTHER: FINE}, revision=OTHER, prefer=by_text(OTHER))
    assert (await fork(mended))[0].pair_id != first.pair_id


async def test_every_candidate_gives_one_record() -> None:
    world = World(
        {BAD: WEAK, GOOD: FINE},
        resamples=[BAD, "", fault("server"), GOOD, reply("x", "length")],
        revision=GOOD,
        prefer=by_text(GOOD),
    )
    records = await fork(world, ForkConfig(resamples=5))
    assert len(records) == 6
    assert sorted(map(str, drop_reasons(records))) == [
        "None", "duplicate", "engine_error", "identical", "no_candidate", "no_candidate",
    ]  # fmt: skip
    assert len({record.pair_id for record in records}) == 6


def test_a_fork_without_any_candidate_is_refused_by_the_config() -> None:
    with pytest.raises(ValueError, match="a fork needs candidates"):
        ForkConfig(resamples=0, guided_revision=False)
    with pytest.raises(ValueError, match="length_ratio"):
        ForkConfig(length_ratio=(1.1, 1.2))


message = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool", "system"]),
    content=st.text("ab ", max_size=4),
    reasoning=st.none() | st.just("thought"),
)


@given(st.lists(message, min_size=1, max_size=12), st.data())
async def test_the_prompt_is_the_exact_prefix_of_the_rejected_message(
    messages: list[Message], data: st.DataObject
) -> None:
    dialogue = Dialogue(id="h", messages=tuple(messages))
    numbers = [turn.number for turn in dialogue.turns if turn.in_rubric]
    weakest = data.draw(st.sampled_from([None, *numbers]))
    turns = {number: (2, 2, 5) if number == weakest else (5, 5, 5) for number in numbers}

    world = World(
        {m.content: WEAK for m in messages} | {"mended 7": FINE},
        resamples=["mended 7"],
        prefer=by_text("mended 7"),
    )
    config = ForkConfig(resamples=1, guided_revision=False)
    [pair] = await fork_dialogue(dialogue, judged(dialogue, turns, weakest), world.asks(), config)
    if pair.source == "none":
        assert pair.drop_reason in ("original_was_fine", "no_text_in_turn", "prompt_end")
        return
    index = len(pair.prompt)
    assert pair.rejected == dialogue.messages[index]
    assert [m.model_copy(update={"reasoning": None}) for m in dialogue.messages[:index]] == list(
        pair.prompt
    )
    assert pair.prompt[-1].role in ("user", "tool")
    assert next(t for t in dialogue.turns if t.start <= index < t.stop).number == weakest
    [request] = world.policy_requests
    assert request.messages == to_wire(pair.prompt)


amounts = st.integers(1, 99_999).map(lambda cents: f"${cents / 100:.2f}")
sentences = st.lists(
    st.sampled_from(["It is sent.", "Ask me.", "Not yet.", "The card is blue."]), max_size=3
)


@given(amounts, amounts, sentences, sentences)
async def test_a_revision_that_mends_one_wrong_amount_passes(
    wrong: str, right: str, before: list[str], after: list[str]
) -> None:
    assume(wrong != right)
    original, mended = (
        " ".join([*before, f"Your refund is {amount}.", *after]) for amount in (wrong, right)
    )
    dialogue = chat(f"Refund me {right}.", original)
    world = World({original: WEAK, mended: FINE}, revision=mended, prefer=by_text(mended))
    [pair] = await fork(world, ONE, dialogue, judged(dialogue, {1: (2, 2, 5)}, 1))
    assert pair.drop_reason is None, pair.detail
    assert pair.check is not None
    assert pair.check.specifics == ()  # the right amount is the user's
    assert ("amount", (wrong,), (right,)) in [
        (change.kind, change.removed, change.added) for change in pair.changes
    ]


values = st.one_of(
    st.integers(0, 99), st.sampled_from(["Ann", "Ben", "7", ""]), st.booleans(), st.none()
)


@given(st.dictionaries(st.sampled_from("abc"), values, min_size=1), st.data())
async def test_a_revision_that_mends_one_wrong_argument_passes(
    arguments: dict[str, object], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(arguments)))
    right = {**arguments, key: data.draw(values)}
    dialogue = Dialogue(
        id="t",
        messages=(
            say("user", f"Do it with {json.dumps(right)}."),
            Message(role="assistant", tool_calls=(ToolCall(name="do", arguments=arguments),)),
        ),
    )
    is_same = json.dumps(right) == json.dumps(arguments)
    world = World(
        {},
        failed="message 1: it calls the right tool",
        revision=json.dumps({"name": "do", "arguments": right}),
    )
    world.prefer = lambda first, second: "A" if json.dumps(right) in _spaced(first) else "B"

    async def score(part: Dialogue, turn: int, wording: int) -> TurnReading:
        made = json.dumps(part.messages[-1].tool_calls[0].arguments) == json.dumps(right)
        level = 5.0 if made else 2.0
        names = ("context_use", "helpfulness", "safety")
        return TurnReading(turn=turn, values=dict.fromkeys(names, level), wording=wording)

    asks = world.asks()
    asks = replace(asks, judging=replace(asks.judging, score_turn=score))
    config = ForkConfig(resamples=0, tool_turns="failed_message")
    [pair] = await fork_dialogue(dialogue, judged(dialogue, {1: (2, 2, 5)}, 1), asks, config)
    if is_same:
        assert pair.drop_reason in ("original_was_fine", "identical", "cosmetic")
    else:
        assert pair.drop_reason is None, pair.detail
        assert [change.kind for change in pair.changes] == ["argument"]


def _spaced(shown: str) -> str:
    """A candidate's call as `json.dumps` writes it."""
    return json.dumps(json.loads(shown[shown.index("{") :]))
