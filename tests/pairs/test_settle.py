"""What is decided when all pairs are there: the spread of the position's pull, and the labels of the data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.pairs.config import VerifyConfig
from curate.pairs.settle import (
    LEAST_COMPARISONS,
    Survey,
    agreement_warning,
    describe_decisions,
    hold_by_itself,
    hold_to_certificate,
    leave_to_the_data,
    settle_pair,
    survey,
)
from curate.records import (
    Certificate,
    CertifiedSet,
    LabelAgreement,
    LabelCounts,
    PairCheck,
    PreferencePair,
    TrustKind,
)
from curate.statistics import wilson
from tests.pairs.scripted import PAIR_CURVE, say

CONFIG = VerifyConfig()


def pair(first: float, second: float, basis: str = "judge", **more: Any) -> PreferencePair:
    """A pair whose better side has so much log-odds, shown first and shown second."""
    preference = (first + second) / 2
    check = PairCheck(
        log_odds_first=first,
        log_odds_second=second,
        preference=preference,
        evidence=preference,
        token_ratio=more.pop("ratio", 1.0),
        decided_by="uncalibrated",
    )
    return labelled(check, basis, **more)


def labelled(check: PairCheck | None, basis: str = "rank", **more: Any) -> PreferencePair:
    return PreferencePair.model_validate(
        {
            "pair_id": "p",
            "dialogue_id": "d",
            "content_hash": "d",
            "source": "natural",
            "basis": basis,
            "prompt": (say("user", "Hi"),),
            "chosen": say("assistant", "Yes."),
            "rejected": say("assistant", "No."),
            "check": check,
            **more,
        }
    )


def spread(of: float, number: int = LEAST_COMPARISONS) -> Survey:
    """A judge whose position pulls by as much either way, with so many comparisons."""
    return survey(pair(pull, -pull) for pull in [of, -of] * (number // 2))


@pytest.mark.parametrize(
    ("preference", "ratio", "drop_reason"),
    [
        (0.51, 1.0, None),
        (0.49, 1.0, "below_margin"),
        (0.51, 2.0, "length_only"),
        (1.01, 2.0, None),
        (-0.1, 1.0, "rejected_preferred"),
    ],
)
def test_the_preference_must_exceed_the_spread_of_the_pull(
    preference: float, ratio: float, drop_reason: str | None
) -> None:
    found = spread(0.5)
    assert found.spread == pytest.approx(0.5)
    # Its own pull, of 3, is the judge's usual bias or not: the spread decides.
    settled = settle_pair(pair(preference + 3, preference - 3, ratio=ratio), found, CONFIG)
    assert settled.drop_reason == drop_reason
    assert settled.check is not None
    assert settled.check.required == pytest.approx(0.5 if ratio == 1 else 1.0)


def test_a_position_bias_that_is_the_same_everywhere_asks_for_nothing() -> None:
    found = survey(pair(2.1, -1.9) for _ in range(LEAST_COMPARISONS))
    assert found.spread == pytest.approx(0)
    assert settle_pair(pair(2.1, -1.9), found, CONFIG).drop_reason is None


@pytest.mark.parametrize(
    ("first", "second", "drop_reason"),
    [
        (2.0, 0.1, None),
        (2.0, -0.1, "below_margin"),
        (0.1, 2.0, None),
        (-0.1, 2.0, "below_margin"),
        (0.4, 0.4, None),
    ],
)
def test_with_few_comparisons_both_orders_must_agree(
    first: float, second: float, drop_reason: str | None
) -> None:
    few = spread(0.0, LEAST_COMPARISONS - 2)
    settled = settle_pair(pair(first, second), few, CONFIG)
    check = pair(first, second).check
    assert check is not None
    alone = hold_by_itself(check, CONFIG)
    assert settled.drop_reason == alone.drop_reason == drop_reason
    assert settled.check is not None
    assert settled.check.required == alone.check.required == pytest.approx(abs(first - second) / 2)


def test_what_is_decided_already_stays_as_it_is() -> None:
    found = spread(100.0)
    for held in (
        pair(1, 1, drop_reason="cosmetic"),
        labelled(None),
        labelled(PairCheck(preference=0.1, evidence=0.1, decided_by="twins")),
        labelled(PairCheck(preferred_first=True, preferred_second=True, decided_by="letters")),
    ):
        assert settle_pair(held, found, CONFIG) == held
        assert held.check is None or held.check.decided_by == "uncalibrated" or (
            hold_by_itself(held.check, CONFIG).drop_reason is None
        )  # fmt: skip


log_odds = st.floats(-6, 6)


@given(log_odds, log_odds, st.lists(st.tuples(log_odds, log_odds), max_size=15))
def test_a_pair_and_its_mirror_never_both_pass(first: float, second: float, others: Any) -> None:
    there, back = pair(first, second), pair(-second, -first)
    found = survey([there, back, *(pair(*other) for other in others)])
    assert any(settle_pair(held, found, CONFIG).drop_reason is not None for held in (there, back))


@given(st.lists(st.tuples(log_odds, log_odds), min_size=1, max_size=15), st.floats(-5, 5))
def test_what_a_position_adds_everywhere_decides_nothing(others: Any, pull: float) -> None:
    """From ten comparisons on."""
    others = [(round(first, 3), round(second, 3)) for first, second in others] * 10
    plain = [pair(*other) for other in others]
    pulled = [pair(first + pull, second - pull) for first, second in others]
    drop_reasons = [
        [
            settle_pair(held, survey(held_all), CONFIG).drop_reason
            for held in held_all[: len(others) // 10]
        ]
        for held_all in (plain, pulled)
    ]
    margins = [
        abs(abs(held.check.preference or 0) - (survey(plain).spread or 0))
        for held in plain
        if held.check
    ]
    if min(margins) > 1e-6:
        assert drop_reasons[0] == drop_reasons[1]


def test_agreement_counts_natural_pairs_that_were_compared() -> None:
    found = survey(
        [
            pair(1, 1, "rank"),
            pair(1, -3, "rank", drop_reason="rejected_preferred"),
            pair(5, 5, "judge"),  # its better side is the judge's own opinion
            labelled(PairCheck(preferred_first=True, preferred_second=False)),
            labelled(PairCheck(preferred_first=True)),  # the other order could not be read
            labelled(None, drop_reason="cosmetic"),
        ]
    )
    assert found.agreement is not None
    assert (found.agreement.pairs, found.agreement.share) == (3, 0.5)
    assert survey([pair(1, 1)]).agreement is None


@pytest.mark.parametrize(("agreed", "is_shown"), [(14, False), (15, True)])
def test_agreement_is_shown_where_the_interval_is_above_a_coin(agreed: int, is_shown: bool) -> None:
    """Of 20, by Wilson's interval: 14 is .48 to .85, 15 is .53 to .89."""
    found = survey(
        pair(*[1.0 if at < agreed else -1.0] * 2, "rank", content_hash=f"d{at}") for at in range(20)
    )
    assert found.agreement is not None
    assert found.agreement.is_shown is is_shown


def test_many_pairs_of_one_dialogue_count_as_few() -> None:
    def agreement(dialogues: int) -> LabelAgreement:
        pairs = (
            pair(*[1.0 if at % 20 < 15 else -1.0] * 2, "rank", content_hash=f"d{at % dialogues}")
            for at in range(100)
        )
        found = survey(pairs).agreement
        assert found is not None
        assert (found.pairs, found.share) == (100, 0.75)
        return found

    assert agreement(20).interval == pytest.approx(wilson(0.75, 20))
    assert agreement(100).interval == pytest.approx(wilson(0.75, 100))
    assert not agreement(2).is_shown


def test_pairs_left_to_the_data_lose_the_judges_refusals_alone() -> None:
    check = PairCheck(preference=-1.0, decided_by="twins")
    left = leave_to_the_data(labelled(check, drop_reason="rejected_preferred"))
    assert left.check is not None
    assert (left.drop_reason, left.check.decided_by, left.check.preference) == (None, "data", -1.0)
    for kept in (
        labelled(None, drop_reason="below_margin"),  # the data's own gap
        labelled(None, drop_reason="unscored"),  # not asked about yet
        labelled(check, drop_reason="contaminated"),
    ):
        assert leave_to_the_data(kept) == kept


def certificate(column: str | None = "probability", threshold: float | None = 0.8) -> Certificate:
    return Certificate(
        kind=TrustKind.PAIR_CERTIFICATE,
        sentence="Shown.",
        made="2026-11-20T10:00:00+00:00",
        fingerprints={},
        issued=True,
        run="r",
        test="audit",
        bad="better = rejected",
        risk=0.1,
        confidence=0.95,
        certified=CertifiedSet(
            of="pairs", column=column, threshold=threshold, size=4, fingerprint="f"
        ),
        labels=LabelCounts(origin="unknown", drawn=4, labelled=4, bad=0),
        bound=0.1,
        source="s",
    )


@pytest.mark.parametrize(
    ("check", "detail"),
    [
        (PairCheck(probability=0.8), None),
        (PairCheck(probability=0.79), "probability 0.79, certified from 0.8 on"),
        (PairCheck(), "probability none, certified from 0.8 on"),
        (None, "probability none, certified from 0.8 on"),
    ],
)
def test_a_pair_below_the_certified_threshold_is_dropped(
    check: PairCheck | None, detail: str | None
) -> None:
    held = labelled(check, detail="rank 0 over rank 1")
    found = hold_to_certificate(held, certificate())
    if detail is None:
        assert found == held
    else:
        assert found.drop_reason == "below_certificate"
        assert found.detail == f"rank 0 over rank 1; {detail}"
        assert hold_to_certificate(labelled(check), certificate()).detail == detail


def test_a_certificate_without_a_threshold_drops_nothing_nor_is_a_drop_reason_replaced() -> None:
    held = labelled(PairCheck(probability=0.1))
    assert hold_to_certificate(held, certificate(None, None)) == held
    dropped = labelled(PairCheck(probability=0.1), drop_reason="cosmetic")
    assert hold_to_certificate(dropped, certificate()) == dropped


def test_what_decided_is_said_with_its_figures() -> None:
    decided = {"uncalibrated": 3, "letters": 1, "data": 2}
    assert describe_decisions(decided, None, spread(0.5)) == (
        "3 by the judge's preference alone, held against the spread of its position bias (0.50 in log-odds); "
        "not calibrated; 1 by the judge's choice in both orders, without log-probabilities; not calibrated; "
        "2 by the data alone, with which the judge is not shown to agree"
    )
    assert "(0.00 in log-odds)" in describe_decisions({"uncalibrated": 1}, CONFIG, Survey())
    curve = VerifyConfig(curve=PAIR_CURVE)
    assert describe_decisions({"twins": 4}, curve, Survey()) == f"4 by {PAIR_CURVE.described}"


def test_a_judge_that_is_not_shown_to_agree_is_warned_of() -> None:
    agreement = LabelAgreement(pairs=20, share=0.5, interval=(0.3, 0.7))
    assert agreement_warning(agreement) == (
        "The judge prefers the side that the data calls better in 50% (95 % 30% to 70%) of 20 natural pairs, which is "
        "not shown to be better than a coin: its verification is worth nothing on this data. Natural pairs are left as "
        "the data has them."
    )


def test_a_survey_says_what_decided_and_has_no_spread_of_nothing() -> None:
    found = survey([labelled(None), labelled(PairCheck(decided_by="letters")), pair(1, 0)])
    assert found.decided_by == {"letters", "uncalibrated"}
    assert found.pulls == [0.5]
    assert survey([labelled(PairCheck(log_odds_first=1.0))]).spread is None


def test_a_settled_pair_keeps_what_was_said_of_it() -> None:
    settled = settle_pair(pair(0.1, 0.1, detail="rank 0 over rank 1"), spread(0.5), CONFIG)
    assert settled.detail == "rank 0 over rank 1; evidence 0.10, required 0.50"
    assert settle_pair(pair(0.1, 0.1), spread(0.5), CONFIG).detail == "evidence 0.10, required 0.50"
    assert settle_pair(pair(1, 1, detail="x"), spread(0.5), CONFIG).detail == "x"
