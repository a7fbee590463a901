"""The funnel is a pure count of records, and it always adds up."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from curate.pairs.funnel import FUNNEL_KINDS, Funnel
from curate.records import DropReason, FunnelStage, PairCheck, PreferencePair
from tests.pairs.scripted import count_funnel, say

REASONS = list(DropReason)


def record(
    dialogue: str = "d",
    turn: int | None = 1,
    source: str = "resample",
    drop_reason: str | None = None,
    basis: str = "judge",
    check: PairCheck | None = None,
) -> PreferencePair:
    return PreferencePair.model_validate(
        {
            "pair_id": "p",
            "dialogue_id": dialogue,
            "content_hash": dialogue,
            "source": source,
            "basis": basis,
            "turn": turn,
            "prompt": (say("user", "Hi"),),
            "chosen": say("assistant", "Yes."),
            "rejected": say("assistant", "No."),
            "drop_reason": drop_reason,
            "check": check,
        }
    )


def rows(stages: tuple[FunnelStage, ...]) -> list[tuple[str, int, dict[str, int], int]]:
    return [(stage.name, stage.entered, stage.dropped, stage.passed) for stage in stages]


def test_the_stages_of_forks() -> None:
    records = [
        record("fine", None, "none", "original_was_fine"),
        record("two", 3, "none", "earlier_turn_bad"),
        record("two", 1, "resample", "no_candidate"),
        record("two", 1, "resample", "cosmetic"),
        record("two", 1, "resample", "below_margin"),
        record("two", 1, "revision", "order_flip"),
        record("one", 2, "resample", "not_best"),
        record("one", 2, "resample", "below_margin"),
        record("one", 2, "revision", None),
        record("found fine again", 2, "none", "original_was_fine"),
    ]
    assert rows(count_funnel(records)) == [
        ("have a bad turn", 4, {"original_was_fine": 1}, 3),
        ("forked", 4, {"earlier_turn_bad": 1, "original_was_fine": 1}, 2),
        ("made", 7, {"no_candidate": 1}, 6),
        ("differ", 6, {"cosmetic": 1}, 5),
        ("grounded", 5, {}, 5),
        ("worse in nothing", 5, {}, 5),
        ("better", 5, {"below_margin": 2, "order_flip": 1}, 2),
        ("repairs the dialogue", 2, {}, 2),
        ("passed", 2, {"not_best": 1}, 1),
    ]
    assert count_funnel(records, "natural") == ()


def test_the_stages_of_natural_pairs_tell_the_data_from_the_judge() -> None:
    natural = {"source": "natural", "basis": "rank"}
    records = [
        record(**natural, drop_reason="below_margin"),  # the rewards differ too little
        record(**natural, drop_reason="below_margin", check=PairCheck(margin=0.1)),
        record(**natural, drop_reason="cosmetic"),
        record(**natural, drop_reason="contaminated"),
        record(**natural),
    ]
    assert rows(count_funnel(records, "natural")) == [
        ("in the data", 5, {"below_margin": 1}, 4),
        ("differ", 4, {"cosmetic": 1}, 3),
        ("verified", 3, {"below_margin": 1}, 2),
        ("passed", 2, {"contaminated": 1}, 1),
    ]
    assert count_funnel(records, "fork") == ()


def test_pairs_that_no_judge_saw_have_no_stage_of_verified_ones() -> None:
    records = [
        record(source="natural", basis="rank", drop_reason=code) for code in ("cosmetic", None)
    ]
    stages = [row[0] for row in rows(count_funnel(records, "natural"))]
    assert stages == ["in the data", "differ", "passed"]


records_of_turns = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(1, 3),
        st.one_of(
            st.sampled_from(REASONS),  # dropped, or a list of candidates
            st.lists(st.sampled_from([None, *REASONS]), min_size=1, max_size=4),
        ),
    ),
    unique_by=lambda entry: entry[:2],
    max_size=9,
)
records_in_data = st.lists(st.tuples(st.sampled_from([None, *REASONS]), st.booleans()), max_size=9)


@given(records_of_turns, records_in_data, st.randoms(use_true_random=False))
def test_it_adds_up_whatever_the_records_and_in_any_order(turns, natural, order) -> None:
    records = [
        record(
            basis="rank", source="natural", drop_reason=code, check=PairCheck() if judged else None
        )
        for code, judged in natural
    ]
    for dialogue, turn, outcome in turns:
        if isinstance(outcome, str):
            records.append(record(dialogue, turn, "none", outcome))
        else:
            records += [record(dialogue, turn, "resample", code) for code in outcome]
    order.shuffle(records)
    funnel = Funnel()
    for entry in records:
        funnel.add(entry)
    for kind in FUNNEL_KINDS:
        stages = funnel.stages(kind)
        mine = [entry for entry in records if (entry.basis == "judge") == (kind == "fork")]
        assert bool(stages) == bool(mine)
        for stage in stages:
            assert stage.entered == sum(stage.dropped.values()) + stage.passed
            assert min(stage.passed, *stage.dropped.values(), 0) == 0
        for before, after in pairwise(stages):
            assert before.unit != after.unit or before.passed == after.entered
        dropped = sum((Counter(stage.dropped) for stage in stages), Counter())
        assert dropped == Counter(
            entry.drop_reason for entry in mine if entry.drop_reason is not None
        )
        if stages:
            passed = sum(entry.drop_reason is None for entry in mine)
            is_made = stages[-1].unit in ("candidates", "natural candidates")
            assert (stages[-1].passed if is_made else 0) == passed


def test_every_reason_with_a_stage_is_counted_there() -> None:
    """The others, of candidates of a fork, in the last one: none goes uncounted."""
    for reason in DropReason:
        stages = count_funnel([record(drop_reason=reason)])[2:]
        [stage] = [stage for stage in stages if stage.dropped]
        assert stage.dropped == {reason: 1}
        assert stage.name == (reason.place or "passed")


def test_the_docs_list_every_drop_reason() -> None:
    text = (Path(__file__).parents[2] / "docs" / "pairs.md").read_text()
    for reason in DropReason:
        assert f"| `{reason}` | {reason.place or ''} | {reason.meaning} |" in text


def test_the_commonest_reason_stands_first_and_equal_ones_by_name() -> None:
    reasons = ["order_flip", "below_margin", "rejected_preferred", "rejected_preferred"]
    stages = count_funnel(record(str(at), 1, drop_reason=why) for at, why in enumerate(reasons))
    (verified,) = [stage for stage in stages if stage.dropped]
    assert list(verified.dropped.items()) == [
        ("rejected_preferred", 2),
        ("below_margin", 1),
        ("order_flip", 1),
    ]
