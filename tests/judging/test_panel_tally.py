"""What a cascade saved and lost, and how far a jury's judges are apart, from records whose figures are known."""

from __future__ import annotations

from typing import Any

import pytest

from curate.engines.config import Prices
from curate.judging.panel_tally import CascadeTally, JuryTally

SMALL, LARGE = Prices(input=1, output=0), Prices(input=10, output=0)


def opinion(judge: str, verdict: str | None, tokens: int = 0, **more: Any) -> dict[str, Any]:
    return {"judge": judge, "verdict": verdict, "prompt_tokens": tokens, **more}


def record(*opinions: dict[str, Any], **more: Any) -> dict[str, Any]:
    judges = [{"model": "s"}, {"model": "l"}]
    return {"opinions": opinions, "identity": {"sampling": {"judges": judges}}, **more}


def settled(verdict: str = "good", tokens: int = 100) -> dict[str, Any]:
    return record(opinion("s", verdict, tokens))


def checked(first: str, second: str | None) -> dict[str, Any]:
    return record(opinion("s", first, 100), opinion("l", second, 200, counts=False))


def escalated(tokens: int = 100) -> dict[str, Any]:
    return record(opinion("s", "good", tokens, counts=False), opinion("l", "poor", 2 * tokens))


def tallied(*records: dict[str, Any], priced: bool = True) -> Any:
    tally = CascadeTally((SMALL, LARGE) if priced else (SMALL, None))
    for held in records:
        tally.add(held)
    return tally.report()


def test_what_a_cascade_loses_is_scaled_up_from_what_it_checks() -> None:
    report = tallied(
        *[settled()] * 5, checked("good", "good"), checked("good", "poor"), *[escalated()] * 3
    )
    assert (report.dialogues, report.escalated, report.checked, report.lost) == (10, 3, 2, 1)
    assert report.lost_share == pytest.approx(0.7 / 2)
    low, high = report.lost_interval
    assert 0 < low < 0.35 < high < 0.7
    assert "1 of 2 others" in report.sentence


def test_a_check_that_the_second_judge_could_not_score_tells_nothing() -> None:
    report = tallied(settled(), checked("good", None), escalated())
    assert (report.checked, report.lost_share) == (0, None)


def test_savings_allow_for_the_length_of_the_dialogues() -> None:
    """The two that are settled are three times as long as the escalated one, whose tokens double with the large judge."""
    report = tallied(settled(tokens=300), settled(tokens=300), escalated(100))
    assert report.tokens == (700, 200)
    assert report.tokens_saved == 2 * 600
    assert report.cost == pytest.approx((700 * 1 + 200 * 10) / 1e6)
    assert report.cost_alone == pytest.approx((200 + 1200) * 10 / 1e6)


def test_without_prices_or_a_dialogue_that_both_judged_no_cost_is_made_up() -> None:
    assert tallied(settled(), escalated(), priced=False).cost is None
    alone = tallied(settled(), settled())
    assert (alone.tokens_saved, alone.cost_alone) == (None, None)
    assert "not known" in alone.sentence
    assert tallied() is None


def test_the_judge_that_is_farthest_from_the_others_is_named_without_its_folder() -> None:
    tally = JuryTally()
    each = [
        opinion("a", "good", scores={"coherence": 4.0}),
        opinion("b", "good", scores={"coherence": 4.5}),
        opinion("hf:/home/someone/odd", "poor", scores={"coherence": 1.0}),
    ]
    tally.add(record(*each, disagreement=(0.5 + 3 + 3.5) / 3))
    report = tally.report()
    assert report is not None
    assert [member.apart for member in report.members] == pytest.approx([1.75, 2.0, 3.25])
    assert "odd from the others by 3.25" in report.sentence
    assert "/home" not in report.sentence
    assert report.same_verdict == 0


def test_a_cascade_s_sentence_says_what_was_saved_and_what_it_cost() -> None:
    report = tallied(
        settled(tokens=300), settled(tokens=300), escalated(100), checked("good", "poor")
    )
    assert report.judges == ("s", "l")
    assert report.sentence.startswith(
        "the second judge decided 1 of 4 dialogues (25%); it gave 1 of 1 others that were checked another verdict, "
        "which is 75.0% of all ("
    )
    # 600 tokens of the first judge alone, 200 beside the second's 400
    assert "about 1,200 of its 1,600 tokens (75%) were saved, for 800 of the first judge" in (
        report.sentence
    )
    assert report.sentence.endswith("cost 0.0048 in place of about 0.016.")


def test_a_cascade_that_was_never_sure_says_so_and_loses_nothing() -> None:
    report = tallied(escalated(), escalated())
    assert (report.share, report.lost_share, report.lost_interval) == (1.0, 0.0, None)
    assert report.sentence == (
        "the second judge decided all 2 dialogues; `curate calibrate RUN --cascade` fits when it is to be asked."
    )


def test_a_cascade_that_checked_nothing_says_that_what_it_lost_is_not_known() -> None:
    report = tallied(settled(), escalated())
    assert (
        "; what it would have changed of the others is not known, as none was checked; about 200 of its 400 tokens"
        in report.sentence
    )
    alone = tallied(settled(), priced=False)
    assert alone.sentence == (
        "the second judge decided 0 of 1 dialogues (0%); what it would have changed of the others is not known, as none "
        "was checked."
    )


def test_a_jury_s_sentence_has_its_figures() -> None:
    tally = JuryTally()
    same = [opinion(name, "good", scores={"coherence": 4.0}) for name in ("a", "b")]
    tally.add(record(*same, disagreement=0.0))
    apart = [opinion("a", "good", scores={"x": 4.0}), opinion("b", "poor", scores={"y": 1.0})]
    tally.add(record(*apart, disagreement=0.5))
    report = tally.report()
    assert report is not None
    assert (report.dialogues, report.same_verdict, report.disagreement) == (2, 1, 0.25)
    assert report.sentence == (
        "all judges give 1 of 2 dialogues one verdict; they differ by 0.25 levels a score, a from the others by 0.00."
    )
    assert JuryTally().report() is None
