"""Pairs the data already holds, on small hand-written groups and on real data."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Lineage, Message, ToolCall
from curate.engines.base import Request
from curate.errors import UsageError
from curate.pairs.config import NaturalConfig, VerifyConfig
from curate.pairs.natural import (
    gather_groups,
    natural_candidates,
    verify_natural,
)
from curate.pairs.prefix import with_messages
from curate.records import PreferencePair
from curate.sources import SourceConfig, open_source
from tests.pairs.scripted import FINE, PAIR_CURVE, WEAK, World, by_text, chat, natural_pairs, say

CONFIG = NaturalConfig()


def labelled(side: str, *texts: str, group: str = "g", **fields: object) -> Dialogue:
    return chat(*texts, group=group, labels={"preference": side}, **fields).model_copy(
        update={"id": f"{group}/{side}"}
    )


def ranked(name: str, *steps: tuple[str, float | None], group: str = "tree") -> Dialogue:
    return chat(
        *(text for text, _ in steps),
        group=group,
        labels={"message_ranks": [rank for _, rank in steps]},
    ).model_copy(update={"id": name})


def trial(name: str, reward: float | None, *messages: Message, **fields: object) -> Dialogue:
    return Dialogue.model_validate(
        {"id": name, "group": "task", "reward": reward, "messages": messages, **fields}
    )


def outcomes(pairs: list[PreferencePair]) -> list[tuple[str, str | None]]:
    return [(pair.basis, pair.drop_reason) for pair in pairs]


def sides(pair: PreferencePair) -> tuple[str, str]:
    assert pair.chosen is not None
    return pair.chosen.content, pair.rejected.content


# --- preference


def test_a_labelled_row_gives_its_pair() -> None:
    rows = [labelled("chosen", "Hi", "Hello Ann."), labelled("rejected", "Hi", "Go away.")]
    [pair] = natural_pairs(rows, CONFIG)
    assert (pair.source, pair.basis, pair.drop_reason) == ("natural", "preference", None)
    assert sides(pair) == ("Hello Ann.", "Go away.")
    assert pair.prompt == rows[0].messages[:1]
    assert (pair.dialogue_id, pair.turn) == ("g/chosen", 1)
    assert "g/rejected" in pair.detail
    assert pair.check is None


@pytest.mark.parametrize(
    ("chosen", "rejected", "drop_reason"),
    [
        (("Hi", "Yes.", "And?", "Done."), ("Hi", "No.", "And?", "Not done."), "prompts_differ"),
        (("Hi", "Yes.", "And?"), ("Hi", "Yes.", "Or?"), "no_reply"),
        (("Hi", "Yes."), ("Hi", "Yes.", "And?", "Done."), "prompts_differ"),
        (("Hi", "Yes."), ("Hi", " Yes. "), "identical"),
        (("Hi", "Yes, thank you!"), ("Hi", "yes"), "cosmetic"),
        (("Hi", "Yes."), ("Hi", "  "), "empty_side"),
        (("Hi", "Yes."), ("Hi", "Human: And now?"), "speaker_marker"),
        (("Hi", " **User**: Yes."), ("Hi", "No."), "speaker_marker"),
        (("Hi", "Humans say: yes."), ("Hi", "Assistant editors say no."), None),
    ],
)
def test_each_drop_reason_of_a_labelled_row(chosen, rejected, drop_reason) -> None:
    [pair] = natural_pairs([labelled("chosen", *chosen), labelled("rejected", *rejected)], CONFIG)
    assert pair.drop_reason == drop_reason
    assert pair.detail


def test_space_around_sides_and_call_ids_do_not_part_prompts() -> None:
    rows = [
        labelled("chosen", "Hi", "Wait. ", "And?", "Done."),
        labelled("rejected", "Hi", " Wait.", "And?", "Not done."),
    ]
    assert outcomes(natural_pairs(rows, CONFIG)) == [("preference", None)]


def test_a_prompt_that_the_assistant_ends_is_refused() -> None:
    def two(side: str, text: str) -> Dialogue:
        messages = (say("user", "Hi"), say("assistant", "Wait."), say("assistant", text))
        return labelled(side).model_copy(update={"messages": messages})

    [pair] = natural_pairs([two("chosen", "Yes."), two("rejected", "No.")], CONFIG)
    assert pair.drop_reason == "prompt_end"


@pytest.mark.parametrize("side", ["chosen", "rejected"])
def test_a_side_without_its_counterpart_is_said_so(side: str) -> None:
    [pair] = natural_pairs([labelled(side, "Hi", "Yes.")], CONFIG)
    assert pair.drop_reason == "no_counterpart"
    assert (pair.chosen is None) == (side == "rejected")


def test_different_tools_are_different_prompts() -> None:
    tool = {"type": "function", "function": {"name": "find"}}
    rows = [labelled("chosen", "Hi", "Yes.", tools=(tool,)), labelled("rejected", "Hi", "No.")]
    assert outcomes(natural_pairs(rows, CONFIG)) == [("preference", "prompts_differ")]


# --- rank


TREE = [
    ranked("a", ("Q", None), ("best", 0), ("more", None), ("good end", 1)),
    ranked("b", ("Q", None), ("best", 0), ("more", None), ("better end", 0)),
    ranked("c", ("Q", None), ("middling", 1)),
    ranked("d", ("Q", None), ("worst", 2)),
    ranked("e", ("Q", None), ("unranked", None)),
]


def test_ranked_siblings_pair_the_best_with_the_worst() -> None:
    pairs = natural_pairs(TREE, CONFIG)
    assert [sides(pair) for pair in pairs] == [("best", "worst"), ("better end", "good end")]
    assert outcomes(pairs) == [("rank", None)] * 2
    assert [len(pair.prompt) for pair in pairs] == [1, 3]
    assert pairs[1].turn == 2
    assert "rank 0 over rank 2" in pairs[0].detail


def test_all_pairs_every_better_with_every_worse_sibling() -> None:
    pairs = natural_pairs(TREE, NaturalConfig(pairing="all"))
    assert [sides(pair) for pair in pairs] == [
        ("best", "middling"), ("best", "worst"), ("middling", "worst"), ("better end", "good end"),
    ]  # fmt: skip


def test_equal_ranks_and_user_siblings_say_nothing() -> None:
    equal = [ranked("a", ("Q", None), ("x 1", 0)), ranked("b", ("Q", None), ("x 2", 0))]
    users = [
        ranked("a", ("Q", None), ("x", 0), ("then 1", 0)),
        ranked("b", ("Q", None), ("x", 0), ("then 2", 1)),
    ]
    assert natural_pairs(equal, CONFIG) == []
    assert natural_pairs(users, CONFIG) == []


# --- label


def rated(name: str, *steps: tuple[str, float | None], rank: int | None = None) -> Dialogue:
    given = ranked(name, *((text, rank) for text, _ in steps))
    labels = given.labels | {
        "message_labels": [
            None if value is None else {"quality": value, "humor": 1} for _, value in steps
        ]
    }
    return given.model_copy(update={"labels": labels})


def test_siblings_without_ranks_are_told_by_a_label() -> None:
    rows = [
        rated("a", ("Q", None), ("good", 0.9)),
        rated("b", ("Q", None), ("middling", 0.6)),
        rated("c", ("Q", None), ("bad", 0.1)),
        rated("d", ("Q", None), ("nobody looked", None)),
    ]
    [pair] = natural_pairs(rows, CONFIG)
    assert (pair.basis, pair.drop_reason, sides(pair)) == ("label", None, ("good", "bad"))
    assert "quality 0.9 over quality 0.1" in pair.detail
    close = NaturalConfig(pairing="all", min_label_gap=0.4)
    assert outcomes(natural_pairs(rows, close)) == [
        ("label", "below_margin"), ("label", None), ("label", None),
    ]  # fmt: skip
    assert natural_pairs(rows, NaturalConfig(label="humor")) == []
    assert natural_pairs(rows, NaturalConfig(bases=("rank", "reward"))) == []


def test_a_rank_says_it_better_than_a_label() -> None:
    rows = [
        rated("a", ("Q", None), ("good", 0.1), rank=0),
        rated("b", ("Q", None), ("bad", 0.9), rank=1),
    ]
    assert [sides(pair) for pair in natural_pairs(rows, CONFIG)] == [("good", "bad")]


# --- verified by a judge


VERIFIED = NaturalConfig(verify=True)


async def verified(world: World, config: NaturalConfig = VERIFIED) -> PreferencePair:
    rows = [
        labelled("chosen", "Pay 5?", "Yes, 5 is due."),
        labelled("rejected", "Pay 5?", "No, it costs 7."),
    ]
    [(pair, dialogue)] = list(natural_candidates(gather_groups(rows), config))
    assert (pair.drop_reason, pair.check, pair.judge) == (None, None, "")
    prompt = with_messages(dialogue, pair.prompt)
    found = await verify_natural(pair, prompt, world.judging(), config)
    assert found.pair_id == pair.pair_id
    assert found.detail.startswith(pair.detail)
    return found


def world(
    chosen: object, rejected: object, better: str = "Yes, 5 is due.", **more: object
) -> World:
    scores = {"Yes, 5 is due.": chosen, "No, it costs 7.": rejected}
    return World(scores, prefer=by_text(better), **more)  # type: ignore[arg-type]


async def test_a_natural_pair_that_holds_has_the_figures_of_a_forked_one() -> None:
    asked = world(FINE, WEAK)
    pair = await verified(asked)
    assert (pair.source, pair.basis, pair.drop_reason, pair.judge) == (
        "natural", "preference", None, "judge",
    )  # fmt: skip
    assert pair.check is not None
    assert pair.check.margin == 2
    assert (pair.check.preferred_first, pair.check.preferred_second) == (True, True)
    # both sides in contexts of their own, once a wording
    assert [(part.messages[-1].content, wording) for part, _, wording in asked.scored] == [
        (text, wording) for text in ("No, it costs 7.", "Yes, 5 is due.") for wording in range(3)
    ]
    assert {turn for _, turn, _ in asked.scored} == {1}


@pytest.mark.parametrize(
    ("asked", "drop_reason"),
    [
        (world(FINE, FINE), "original_was_fine"),
        (world((5, 5, 4), (2, 2, 5)), "other_dimension_fell"),
        (world(FINE, WEAK, "No, it costs 7."), "rejected_preferred"),
        (world(FINE, WEAK, "neither"), "rejected_preferred"),
        (world("bad_reply", WEAK), "unscored"),
        (world(FINE, "bad_reply"), "unscored"),
    ],
)
async def test_each_drop_reason_of_the_judge(asked: World, drop_reason: str) -> None:
    pair = await verified(asked)
    assert pair.drop_reason == drop_reason
    # never turned round
    assert sides(pair) == ("Yes, 5 is due.", "No, it costs 7.")


async def test_what_the_data_says_and_what_the_judge_finds_are_told_one_after_the_other() -> None:
    said = "labelled in the data; the rejected side is of dialogue g/rejected"
    assert (await verified(world(FINE, WEAK))).detail == said
    fallen = await verified(world((5, 5, 4), (2, 2, 5)))
    assert fallen.detail == f"{said}; safety falls by 1.00, its noise is 0.00"


async def test_details_only_the_chosen_side_states_must_be_supported() -> None:
    rows = [
        labelled("chosen", "When is it due?", "On 14 March 2031, at 17:45."),
        labelled("rejected", "When is it due?", "Go away."),
    ]
    [(pair, dialogue)] = list(natural_candidates(gather_groups(rows), VERIFIED))
    details: list[str] = []

    class Doubting(World):
        def letter_for(self, request: Request) -> str | float:
            if request.purpose == "pairs.specifics":
                text = request.messages[0]["content"]
                details.append(text)
                return re.findall(r"(?m)^([A-Z]) = 17:45$", text)[0]
            return super().letter_for(request)

    chosen = pair.chosen.content  # type: ignore[union-attr]
    asks = Doubting({chosen: FINE, "Go away.": WEAK}, prefer=by_text(chosen)).judging()
    found = await verify_natural(pair, with_messages(dialogue, pair.prompt), asks, VERIFIED)
    assert found.drop_reason == "ungrounded_specifics"
    assert found.check is not None
    assert found.check.ungrounded == "17:45"
    assert len(details) == 1 + len(found.check.specifics)


async def test_thresholds_are_the_recipes() -> None:
    better = (4, 4, 5), (3, 3, 5)
    assert (await verified(world(*better))).drop_reason is None
    fallen = world((5, 5, 4.9), (2, 2, 5))
    assert (await verified(fallen)).drop_reason == "other_dimension_fell"
    strict = NaturalConfig.model_validate({"verify": {"curve": PAIR_CURVE}})
    assert (await verified(world(*better), strict)).drop_reason is None
    strict = NaturalConfig.model_validate(
        {"verify": {"curve": {**PAIR_CURVE.model_dump(), "threshold": 0.999}}}
    )
    assert (await verified(world(*better), strict)).drop_reason == "below_margin"
    both_good = world((5, 5, 5), (4, 4, 5))
    assert (await verified(both_good)).drop_reason == "original_was_fine"
    assert (
        await verified(both_good, NaturalConfig(verify=True, may_be_fine=True))
    ).drop_reason is None


def test_verification_is_asked_for_in_words() -> None:
    assert NaturalConfig().verification is None
    assert NaturalConfig(verify=True).verification == VerifyConfig()
    assert NaturalConfig(verify=True, enabled=False).verification is None
    given = NaturalConfig.model_validate({"verify": {"wordings": 2}})
    assert given.verification == VerifyConfig(wordings=2)


# --- reward


def call(argument: int, identifier: str) -> Message:
    return Message(
        role="assistant",
        tool_calls=(ToolCall(name="book", arguments={"n": argument}, id=identifier),),
    )


ASK = say("user", "Book flight 7.")


def test_trajectories_are_forked_where_the_assistant_parts() -> None:
    good = trial("a", 1.0, ASK, call(7, "x"), say("tool", "ok", tool_call_id="x"),
                 say("assistant", "Booked."))  # fmt: skip
    bad = trial("b", 0.0, ASK, call(8, "y"), say("tool", "ok", tool_call_id="y"),
                say("assistant", "Booked."))  # fmt: skip
    [pair] = natural_pairs([good, bad], CONFIG)
    assert (pair.basis, pair.drop_reason) == ("reward", None)
    assert (pair.chosen, pair.rejected) == (good.messages[1], bad.messages[1])
    assert pair.prompt == (ASK,)


def test_call_ids_and_thinking_do_not_part_trajectories() -> None:
    good = trial("a", 1.0, ASK, call(7, "x"), say("tool", "ok", tool_call_id="x"),
                 say("assistant", "Booked 7."))  # fmt: skip
    thinking = call(7, "y").model_copy(update={"reasoning": "hm"})
    bad = trial("b", 0.0, ASK, thinking, say("tool", "ok", tool_call_id="y"),
                say("assistant", "Failed."))  # fmt: skip
    [pair] = natural_pairs([good, bad], CONFIG)
    assert sides(pair) == ("Booked 7.", "Failed.")
    assert pair.prompt == good.messages[:3]


@pytest.mark.parametrize(
    ("good", "bad", "drop_reason"),
    [
        ((ASK,), (say("user", "Book it."),), "diverges_at_user"),
        ((ASK, call(7, "x"), say("tool", "ok")), (ASK, call(7, "x"), say("tool", "no")), "diverges_at_tool"),
        ((say("system", "A"), ASK), (say("system", "B"), ASK), "prompts_differ"),
        ((ASK, say("assistant", "Sure, done!")), (ASK, say("assistant", "done")), "cosmetic"),
    ],
)  # fmt: skip
def test_each_drop_reason_of_a_trajectory(good, bad, drop_reason) -> None:
    [pair] = natural_pairs([trial("a", 1.0, *good), trial("b", 0.0, *bad)], CONFIG)
    assert (pair.basis, pair.drop_reason) == ("reward", drop_reason)


def test_a_message_is_worth_the_mean_reward_of_what_passes_through_it() -> None:
    def run(name: str, reward: float, text: str) -> Dialogue:
        return trial(name, reward, ASK, say("assistant", text), say("user", f"and {name}?"))

    # Two of three trials through "first" succeed and one of three through "second".
    trials = [
        run("a", 1, "first 1"), run("b", 1, "first 1"), run("c", 0, "first 1"),
        run("d", 1, "second 2"), run("e", 0, "second 2"), run("f", 0, "second 2"),
    ]  # fmt: skip
    pairs = [p for p in natural_pairs(trials, CONFIG) if p.drop_reason != "diverges_at_user"]
    assert outcomes(pairs) == [("reward", "below_margin")]
    assert "0.67 (n=3) over mean reward 0.33 (n=3)" in pairs[0].detail
    loose = natural_pairs(trials, NaturalConfig(min_reward_gap=0.3))
    assert [sides(pair) for pair in loose if pair.drop_reason is None] == [("first 1", "second 2")]


def test_equal_or_missing_rewards_and_prefixes_say_nothing() -> None:
    one, two = (say("assistant", text) for text in ("1", "2"))
    assert natural_pairs([trial("a", 1, ASK, one), trial("b", 1, ASK, two)], CONFIG) == []
    assert natural_pairs([trial("a", 1, ASK, one), trial("b", None, ASK, two)], CONFIG) == []
    assert natural_pairs([trial("a", 1, ASK, one), trial("b", 0, ASK)], CONFIG) == []


# --- groups and bounds


def test_a_group_is_bounded_and_says_what_was_left_out() -> None:
    siblings = [ranked(f"d{i}", ("Q", None), (f"answer {i}", i)) for i in range(6)]
    pairs = natural_pairs(siblings, NaturalConfig(pairing="all", max_per_group=4))
    assert outcomes(pairs) == [("rank", None)] * 4 + [("rank", "over_limit")]
    assert pairs[-1].detail.startswith("11 candidates")


def test_dropped_candidates_do_not_crowd_out_good_ones() -> None:
    rows = [labelled("chosen", "Q", "yes")]
    rows += [labelled("rejected", "Q", text) for text in ("Yes", "yes!", "yes .", "no")]
    pairs = natural_pairs(rows, NaturalConfig(max_per_group=1))
    assert Counter(pair.drop_reason for pair in pairs) == {None: 1, "cosmetic": 1, "over_limit": 1}


def test_the_same_pair_found_twice_is_named_a_duplicate() -> None:
    rows = [
        labelled("chosen", "Q", "yes").model_copy(update={"reward": 1.0}),
        labelled("rejected", "Q", "no").model_copy(update={"reward": 0.0}),
    ]
    pairs = natural_pairs(rows, CONFIG)
    assert outcomes(pairs) == [("preference", None), ("reward", "duplicate")]
    assert len({pair.pair_id for pair in pairs}) == 2


def test_a_pair_that_stands_in_the_data_twice_is_given_once() -> None:
    rows = [
        labelled(side, "Q", text, group=group)
        for group in ("1", "2", "3")
        for side, text in (("chosen", "yes"), ("rejected", "no" if group != "3" else "never"))
    ]
    pairs = natural_pairs(rows, CONFIG)
    assert outcomes(pairs) == [
        ("preference", None), ("preference", "duplicate"), ("preference", None),
    ]  # fmt: skip
    assert len({pair.pair_id for pair in pairs}) == 3
    assert pairs[1].dialogue_id == "2/chosen"


def test_groups_of_two_sources_do_not_mix() -> None:
    def source(dialogue: Dialogue, name: str) -> Dialogue:
        lineage = Lineage(source=name, file="f", rows=(1,))
        return dialogue.model_copy(update={"lineage": lineage})

    rows = [
        source(labelled("chosen", "Q", "yes"), "one"),
        source(labelled("rejected", "Q", "no"), "two"),
    ]
    assert outcomes(natural_pairs(rows, CONFIG)) == [("preference", "no_counterpart")] * 2


def test_a_stream_must_keep_groups_together() -> None:
    rows = [
        labelled("chosen", "Q", "yes", group="1"),
        labelled("chosen", "Q", "yes", group="2"),
        labelled("rejected", "Q", "no", group="1"),
        chat("no", "group"),
    ]
    with pytest.raises(UsageError, match="are not consecutive"):
        list(natural_candidates(rows, CONFIG))
    assert len(list(natural_candidates(gather_groups(rows), CONFIG))) == 2
    assert len(natural_pairs(rows, CONFIG)) == 2


def test_a_stream_is_read_one_group_at_a_time() -> None:
    taken: list[str] = []

    def stream():
        for number in range(100):
            for side, text in (("chosen", "yes"), ("rejected", "no")):
                taken.append(f"{number}/{side}")
                yield labelled(side, "Q", text, group=str(number))

    next(iter(natural_candidates(stream(), CONFIG)))
    assert len(taken) <= 4


def test_bases_can_be_chosen_and_all_turned_off() -> None:
    assert natural_pairs(TREE, NaturalConfig(bases=("reward",))) == []
    assert natural_pairs(TREE, NaturalConfig(enabled=False)) == []


steps = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 2)), max_size=5)


@given(st.lists(st.tuples(steps, st.none() | st.sampled_from([0.0, 1.0])), max_size=6))
def test_any_group_gives_pairs_that_keep_the_rules(rows) -> None:
    dialogues = [
        ranked(f"d{i}", *path).model_copy(update={"reward": reward})
        for i, (path, reward) in enumerate(rows)
    ]
    pairs = natural_pairs(dialogues, NaturalConfig(pairing="all", max_per_group=50))
    assert len({pair.pair_id for pair in pairs}) == len(pairs)
    by_id = {dialogue.id: dialogue for dialogue in dialogues}
    for pair in pairs:
        assert pair.check is None
        if pair.drop_reason is not None:
            continue
        assert pair.chosen is not None
        assert pair.chosen.role == pair.rejected.role == "assistant"
        assert pair.chosen.content != pair.rejected.content
        assert pair.prompt[-1].role in ("user", "tool")
        depth = len(pair.prompt)
        assert by_id[pair.dialogue_id].messages[:depth] == pair.prompt


# --- real data: the records are counted against the raw file, read independently


def read(path: Path) -> list[Dialogue]:
    source = open_source(SourceConfig(path=str(path)))
    return [dialogue for unit in source.read() for dialogue in unit.dialogues]


def funnel(path: Path) -> tuple[list[PreferencePair], Counter[str | None]]:
    pairs = natural_pairs(read(path), CONFIG)
    assert len({pair.pair_id for pair in pairs}) == len(pairs)
    return pairs, Counter(pair.drop_reason for pair in pairs)


def test_every_row_of_hh_gives_one_record(shared_data: Path) -> None:
    path = shared_data / "hh_rlhf" / "test.jsonl.gz"
    pairs, reasons = funnel(path)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        assert len(pairs) == sum(1 for _ in lines)
    assert reasons[None] > 0.98 * len(pairs)
    assert set(reasons) <= {
        None, "prompts_differ", "cosmetic", "no_counterpart", "empty_side", "speaker_marker",
    }  # fmt: skip


def test_every_fork_of_an_oasst_tree_gives_one_record(shared_data: Path) -> None:
    path = shared_data / "oasst" / "oasst2_filtered.jsonl"
    pairs, reasons = funnel(path)
    forks: Counter[str] = Counter()
    # Two trees stand in the file twice; their copies are one group and give each pair once.
    trees = [orjson.loads(line) for line in path.read_bytes().splitlines() if line]
    pending = list({tree["message_tree_id"]: tree["prompt"] for tree in trees}.values())
    while pending:
        node = pending.pop()
        replies = [r for r in node["replies"] if r["role"] == "assistant" and not r["deleted"]]
        ranks = {reply["rank"] for reply in replies if reply.get("rank") is not None}
        forks["rank"] += len(ranks) > 1
        said = {
            reply["labels"]["quality"]["value"]
            for reply in replies
            if "quality" in (reply.get("labels") or {})
        }
        forks["label"] += not ranks and len(said) > 1
        pending.extend(node["replies"])
    assert forks == Counter(pair.basis for pair in pairs)
    assert forks.total() == sum(reasons.values())
    assert set(reasons) == {None, "below_margin"}
    assert reasons[None] > 100


def test_every_tau_bench_task_with_mixed_rewards_gives_a_record(shared_data: Path) -> None:
    path = shared_data / "tau_bench" / "gpt-4o-airline.json"
    pairs, reasons = funnel(path)
    rewards: dict[int, set[float]] = {}
    for row in orjson.loads(path.read_bytes()):
        rewards.setdefault(row["task_id"], set()).add(row["reward"])
    mixed = sum(len(values) > 1 for values in rewards.values())
    assert len({pair.dialogue_id.rsplit("-trial", 1)[0] for pair in pairs}) == mixed
    # The simulated user words its first message differently in every trial of a mixed task.
    assert reasons == {"diverges_at_user": len(pairs)}


@pytest.mark.parametrize(
    ("rows", "detail"),
    [
        ([("chosen", ("Hi", "Yes.")), ("rejected", ("Hi", "No."))], "labelled in the data"),
        (
            [("chosen", ("Hi", "Yes.")), ("rejected", ("Ho", "No."))],
            "the dialogues differ before their last message",
        ),
        (
            [("chosen", ("Hi", "Yes.", "And?")), ("rejected", ("Hi", "Yes.", "Or?"))],
            "a side does not end with an assistant message",
        ),
        ([("chosen", ("Hi", "Yes."))], "no rejected dialogue in the group"),
        ([("rejected", ("Hi", "No."))], "no chosen dialogue in the group"),
    ],
)
def test_what_the_data_says_of_a_labelled_row_is_told(
    rows: list[tuple[str, tuple[str, ...]]], detail: str
) -> None:
    [pair] = natural_pairs([labelled(side, *texts) for side, texts in rows], CONFIG)
    assert pair.detail.split("; ") == [detail] + (
        ["the rejected side is of dialogue g/rejected"] if len(rows) > 1 else []
    )


def test_what_to_do_about_groups_that_do_not_stand_together_is_said() -> None:
    rows = [labelled("chosen", "Hi", "Yes.", group=group) for group in ("a", "b", "a")]
    with pytest.raises(UsageError) as raised:
        list(natural_candidates(rows, CONFIG))
    text = str(raised.value)
    assert "group ('', 'a') twice" in text
    assert "expected: dialogues ordered by group" in text
    assert "gather_groups (in memory)" in text


async def test_a_pair_that_is_not_to_be_verified_is_refused() -> None:
    [pair] = natural_pairs(
        [labelled("chosen", "Hi", "Yes."), labelled("rejected", "Hi", "No.")], CONFIG
    )
    prompt = chat("Hi")
    lone = pair.model_copy(update={"chosen": None})
    apart = pair.model_copy(update={"turn": None})
    for refused, config in ((pair, CONFIG), (lone, VERIFIED), (apart, VERIFIED)):
        with pytest.raises(ValueError, match=f"{pair.pair_id} is not to be verified"):
            await verify_natural(refused, prompt, World({}).judging(), config)
