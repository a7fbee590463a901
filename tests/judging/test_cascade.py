"""When a cascade asks its second judge, which of the two decides, and what is kept of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from curate.engines.base import Completion, Request, Usage
from curate.engines.layout import Trunk
from curate.errors import UsageError
from curate.judging.cascade import (
    CascadeRule,
    check_cascade,
    doubt_of,
    judge_by_cascade,
)
from curate.judging.config import RubricConfig
from curate.judging.opinions import Metered, MeteredRecord
from curate.judging.rubric import judge_dialogue
from curate.records import (
    CascadeFit,
    JudgeIdentity,
    Judgment,
    LabelReading,
    RubricScores,
    TurnScores,
    Unscored,
)
from tests.judging.judge import IDENTITY, ScriptedJudge, dialogue_of, level

SMALL, LARGE = (IDENTITY.model_copy(update={"model": name}) for name in ("small", "large"))
BOTH = JudgeIdentity(engine="cascade", model="small + large")
FIT = CascadeFit(
    made="2026-11-20T10:00:00+00:00",
    judges=(SMALL, LARGE),
    doubt="margin",
    threshold=0.3,
    truth="people",
    risk=0.05,
    confidence=0.95,
    dialogues=50,
    kept=40,
    lost=1,
    lost_at_most=0.04,
    sentence="Shown.",
)


def judgment(*readings: dict[str, float], spread: float | None = None) -> Judgment:
    """One turn a distribution, of its helpfulness."""
    return Judgment(
        dialogue_id="d",
        content_hash="0",
        identity=SMALL,
        per_turn=tuple(
            TurnScores(
                turn=number,
                scores=RubricScores(context_use=5, helpfulness=4, safety=5),
                readings={
                    "helpfulness": LabelReading(
                        mean=4, spread=spread, coverage=1, probabilities=shares
                    )
                },
            )
            for number, shares in enumerate(readings, start=1)
        ),
        conversation_level=level(),
        verdict="good",
        weakest_turn=None,
    )


def test_doubt_by_the_margin_is_how_little_the_likeliest_level_leads() -> None:
    held = judgment({"4": 0.7, "5": 0.2, "3": 0.1}, {"4": 0.4, "5": 0.6})
    assert doubt_of(held, "margin") == pytest.approx(1 - (0.5 + 0.2) / 2)
    assert doubt_of(judgment({"4": 1.0}), "margin") == pytest.approx(0)
    assert doubt_of(judgment({}), "margin") == pytest.approx(1)
    assert doubt_of(judgment(), "margin") is None


def test_doubt_by_the_spread_is_half_the_mean_deviation() -> None:
    assert doubt_of(judgment({"4": 1.0}, {"4": 1.0}, spread=0.5), "spread") == 0.25
    assert doubt_of(judgment({"4": 1.0}), "spread") is None


@pytest.mark.parametrize(
    ("rule", "doubt", "is_sure"),
    [
        (CascadeRule(threshold=0.3), 0.3, True),
        (CascadeRule(threshold=0.3), 0.31, False),
        (CascadeRule(threshold=0.3), None, False),
        (CascadeRule(threshold=0.0), 0.0, True),
        (CascadeRule(), 0.0, False),
        (CascadeRule(fit=FIT), 0.3, True),
        (CascadeRule(fit=FIT), 0.4, False),
    ],
)
def test_the_small_judge_decides_up_to_the_threshold(
    rule: CascadeRule, doubt: float | None, is_sure: bool
) -> None:
    assert rule.is_sure(doubt) is is_sure


def test_a_fit_brings_its_own_doubt_and_threshold() -> None:
    assert CascadeRule(fit=FIT).asked_doubt == "margin"
    assert CascadeRule(doubt="margin").asked_doubt == "margin"
    assert CascadeRule().asked_doubt == "spread"
    with pytest.raises(ValueError, match="either threshold or fit, not both"):
        CascadeRule(fit=FIT, threshold=0.2)


def test_a_share_of_the_sure_ones_is_drawn_by_their_hash() -> None:
    hashes = [f"{n:032x}" for n in range(0, 16**12, 16**12 // 2000)]
    drawn = [one for one in hashes if CascadeRule(check=0.05).is_checked(one)]
    assert len(drawn) == pytest.approx(100, abs=1)
    assert not any(CascadeRule(check=0).is_checked(one) for one in hashes)
    assert all(CascadeRule(check=1).is_checked(one) for one in hashes)


def test_what_the_large_judge_is_expected_to_be_asked() -> None:
    assert CascadeRule().expected_share == CascadeRule(threshold=0.5).expected_share == 1.0
    # a fifth is escalated, and of the other four a tenth is checked
    assert CascadeRule(fit=FIT, check=0.1).expected_share == pytest.approx(0.2 + 0.8 * 0.1)


def test_a_first_judge_without_readings_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        check_cascade(CascadeRule(), "json", 1, (SMALL, LARGE))
    text = str(caught.value)
    assert "gives no readings" in text
    assert "got: one JSON reply per call" in text
    assert "log-probabilities (judge.mode: tokens), or several samples" in text
    assert "or set judge.samples: 5" in text
    check_cascade(CascadeRule(), "json", 5, (SMALL, LARGE))
    check_cascade(CascadeRule(), "tokens", 1, (SMALL, LARGE))
    check_cascade(CascadeRule(), None, 1, (SMALL, LARGE))


def test_a_fit_to_other_judges_is_refused() -> None:
    rule = CascadeRule(fit=FIT)
    check_cascade(rule, "tokens", 1, (SMALL, LARGE))
    for others in ((LARGE, LARGE), (SMALL, SMALL)):
        with pytest.raises(UsageError) as caught:
            check_cascade(rule, "tokens", 1, others)
        assert "models.judge.fit was fitted to another judge" in str(caught.value)
        assert "fit it with these judges: curate calibrate RUN --cascade" in str(caught.value)


SURE, UNSURE = {"5": 1.0}, {"5": 0.5, "1": 0.5}


class Judges:
    """Two judges; the small one as sure as its reading of a turn, the large one always of a 2."""

    def __init__(self, reading: dict[str, float], broken: str = "") -> None:
        self.reading, self.broken = reading, broken
        self.asked: list[str] = []

    async def heard(self, name: str, scores: dict[Any, Any]) -> MeteredRecord[Judgment]:
        self.asked.append(name)
        used = Metered(ScriptedJudge(scores))
        config = RubricConfig(mode="tokens", text="off")
        row: Judgment | Unscored = await judge_dialogue(dialogue_of(1), used, config, IDENTITY)
        if name == self.broken:
            row = Unscored.of(dialogue_of(1), "judge", "bad_reply", "no form")
        return MeteredRecord(f"engine:{name}", row, used)

    async def small(self) -> MeteredRecord[Judgment]:
        return await self.heard("small", {(1, "helpfulness"): self.reading})

    async def large(self) -> MeteredRecord[Judgment]:
        return await self.heard("large", {(1, "helpfulness"): 2})

    async def decide(self, rule: CascadeRule, content_hash: str = "f" * 32) -> Judgment | Unscored:
        return await judge_by_cascade(self.small, self.large, rule, BOTH, content_hash=content_hash)


async def test_a_sure_small_judge_decides_alone() -> None:
    judges = Judges(SURE)
    found = await judges.decide(CascadeRule(threshold=0.1))
    assert isinstance(found, Judgment)
    assert judges.asked == ["small"]
    assert (found.identity, found.verdict, found.disagreement) == (BOTH, "excellent", None)
    [opinion] = found.opinions
    assert (opinion.judge, opinion.counts, opinion.doubt) == ("engine:small", True, 0.0)
    assert found.requests == opinion.requests > 0


async def test_an_unsure_one_leaves_it_to_the_large_one() -> None:
    judges = Judges(UNSURE)
    found = await judges.decide(CascadeRule(threshold=0.1, check=0))
    assert isinstance(found, Judgment)
    assert judges.asked == ["small", "large"]
    assert found.per_turn[0].scores.helpfulness == 2
    small, large = found.opinions
    assert (small.counts, large.counts) == (False, True)
    assert small.doubt is not None
    assert small.doubt > 0.1
    assert large.doubt is None
    assert found.requests == small.requests + large.requests
    assert found.disagreement is not None
    assert found.disagreement > 0


async def test_a_sure_one_that_is_checked_still_decides() -> None:
    judges = Judges(SURE)
    found = await judges.decide(CascadeRule(threshold=0.1), content_hash="0" * 32)
    assert isinstance(found, Judgment)
    assert judges.asked == ["small", "large"]
    assert found.per_turn[0].scores.helpfulness == 5
    assert [opinion.counts for opinion in found.opinions] == [True, False]


async def test_the_one_that_decides_must_have_scored() -> None:
    judges = Judges(UNSURE, broken="large")
    found = await judges.decide(CascadeRule(threshold=0.1))
    assert isinstance(found, Unscored)
    assert (found.reason, found.detail) == ("bad_reply", "engine:large: no form")
    assert found.requests > 0
    # one that gave no scores is not sure: the large one is asked
    judges = Judges(SURE, broken="small")
    found = await judges.decide(CascadeRule(threshold=0.1, check=0))
    assert isinstance(found, Judgment)
    assert [(one.reason, one.counts) for one in found.opinions] == [
        ("bad_reply", False),
        ("", True),
    ]


async def test_what_several_calls_used_is_added_up() -> None:
    async def ask(requests: Sequence[Request]) -> list[Completion]:
        return [Completion("x", usage=Usage(100, 60, 7)) for _ in requests]

    used = Metered(ask)
    request = Request(Trunk("Hi\n"), max_tokens=1)
    await used([request, request])
    await used([request])
    spent = (used.requests, used.prompt_tokens, used.cached_tokens, used.completion_tokens)
    assert spent == (3, 300, 180, 21)
