"""Each fault that an audit looks for is seen where it was put, and is not where there is none."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import pytest
from scipy import stats

from curate.dialogue import Message
from curate.records import (
    AuditCheck,
    ConversationLevel,
    ConversationScore,
    JudgeIdentity,
    Judgment,
    LabelReading,
    PairSetReport,
    PreferencePair,
    RubricScores,
    SetCheck,
    StageName,
    TurnScores,
    Unscored,
    UnscoredReason,
    WindowOpinion,
)
from curate.trust.audit.audit_figures import _Gap, audit_sentence, gap_check, mean_check
from curate.trust.audit.judgment_audit import JudgmentAudit, repeat_checks
from curate.trust.audit.pair_audit import pair_checks
from curate.trust.audit.table_audit import collapse_checks, unscored_checks, verdict_checks
from curate.trust.pair_set import PairSetConfig, check_pair_set

IDENTITY = JudgeIdentity(engine="scripted", model="script")
Scores = Sequence[tuple[int, int, int]]


def judgment(
    number: int,
    turns: Scores,
    *,
    weakest: int | None = None,
    verdict: str = "good",
    expected: Callable[[int], float] | None = None,
    windows: Sequence[tuple[int, int]] = (),
    disagreement: float | None = None,
) -> Judgment:
    """One of dialogue `number`; `weakest` counts turns from 1, `expected` gives each turn's expectation."""
    one = ConversationScore(score=4)
    return Judgment(
        dialogue_id=f"d{number}",
        content_hash=f"{number:032x}",
        identity=IDENTITY,
        per_turn=tuple(
            TurnScores(
                turn=at,
                scores=RubricScores(context_use=c, helpfulness=h, safety=s),
                readings={}
                if expected is None
                else {"helpfulness": LabelReading(mean=expected(at), coverage=1.0)},
            )
            for at, (c, h, s) in enumerate(turns, start=1)
        ),
        conversation_level=ConversationLevel(
            coherence=one, task_completion=one, repair_handling=ConversationScore(score="n/a")
        ),
        verdict=verdict,  # type: ignore[arg-type]
        weakest_turn=weakest,
        windows=tuple(WindowOpinion(first_turn=a, last_turn=b) for a, b in windows),
        overlap_disagreement=disagreement,
    )


def varied(draw: random.Random, turns: int) -> Scores:
    return [(draw.randint(2, 5), draw.randint(1, 5), 5) for _ in range(turns)]


def checks_of(records: Sequence[Judgment]) -> dict[str, AuditCheck]:
    audit = JudgmentAudit()
    for record in records:
        audit.add(record.dialogue_id, record)
    return {check.name: check for check in audit.checks()}


def a_good_judge(n: int = 60) -> list[Judgment]:
    """Scores that vary, blame that falls anywhere, windows that agree."""
    draw = random.Random(3)
    records = []
    for number in range(n):
        turns = 4 + number % 7
        records.append(
            judgment(
                number,
                varied(draw, turns),
                weakest=draw.randint(1, turns),
                verdict=draw.choice(["poor", "borderline", "good", "excellent"]),
                windows=[(1, 4), (4, turns)] if turns > 5 else (),
                disagreement=0.2 if turns > 5 else None,
            )
        )
    return records


def test_a_good_judge_passes() -> None:
    checks = checks_of(a_good_judge())
    held = {name: check.status for name, check in checks.items() if check.n}
    constant = {"coherence", "task_completion"}  # as `judgment` has them
    assert {name for name, status in held.items() if status == "warn"} == constant
    assert checks["repair_handling"].status == "not_enough_data"
    assert checks["safety"].figure == 1.0
    assert checks["safety"].status == "pass"


@pytest.mark.parametrize(("place", "name"), [(1, "first"), (-1, "last")])
def test_a_judge_that_blames_one_end_is_seen(place: int, name: str) -> None:
    draw = random.Random(5)
    records = []
    for number in range(60):
        turns = 3 + number % 6
        at = draw.randint(1, turns) if number % 2 else (place if place > 0 else turns)
        records.append(judgment(number, varied(draw, turns), weakest=at))
    checks = checks_of(records)
    assert checks[name].status == "warn"
    assert set(checks[name].ids) <= {record.dialogue_id for record in records}
    assert checks["last" if name == "first" else "first"].status == "pass"


def test_blame_by_chance_seldom_warns() -> None:
    warned = 0
    for seed in range(200):
        draw = random.Random(seed)
        sizes = [draw.randint(2, 8) for _ in range(40)]
        records = [
            judgment(n, [(4, 4, 5)] * size, weakest=draw.randint(1, size))
            for n, size in enumerate(sizes)
        ]
        checks = checks_of(records)
        warned += "warn" in {checks["first"].status, checks["last"].status}
    assert warned <= 200 * 0.05


def test_fifths_are_even_where_every_turn_is_blamed_alike() -> None:
    audit = JudgmentAudit()
    for size in range(2, 13):
        for at in range(1, size + 1):
            record = judgment(100 * size + at, [(4, 4, 5)] * size, weakest=at)
            # Each size counts as one dialogue's worth of blame a turn.
            audit.add(record.dialogue_id, record)
    assert audit.weakest_fifths == pytest.approx([0.2] * 5)


def test_ties_that_fall_to_the_first_turn_are_told() -> None:
    same = [judgment(n, [(3, 3, 5)] * 3, weakest=1) for n in range(40)]
    check = checks_of(same)["first"]
    assert check.status == "warn"
    assert "40 of them tied with a later turn" in check.detail


def test_windows_that_disagree_are_seen_and_the_worst_named_first() -> None:
    draw = random.Random(1)
    records = [
        judgment(
            n,
            varied(draw, 8),
            weakest=4,
            windows=[(1, 4), (4, 8)],
            disagreement=0.6 + n / 100,
        )
        for n in range(40)
    ]
    checks = checks_of(records)
    seams = checks["difference of scores"]
    assert seams.status == "warn"
    assert seams.figure == pytest.approx(0.6 + 0.195)
    assert seams.ids[0] == "d39"
    # Turn 4 is one of eight, and the only one scored twice.
    assert checks["weakest turns at seams"].figure == pytest.approx(1 - 1 / 8)
    assert checks["weakest turns at seams"].status == "warn"


def test_a_judge_that_always_says_five_is_seen() -> None:
    records = [judgment(n, [(5, 5, 5)] * 4, verdict="excellent") for n in range(30)]
    checks = checks_of(records)
    for name in ("verdict", "context_use", "helpfulness", "coherence"):
        assert checks[name].status == "warn", name
    assert checks["different dialogues"].status == "not_enough_data"


def test_expectations_that_are_equal_to_the_last_digit_are_seen() -> None:
    draw = random.Random(2)
    means = [draw.uniform(1, 5) for _ in range(40)]
    records = [
        judgment(n, [(4, 4, 5)] * 3, expected=lambda _, n=n: means[n // 2 if n < 10 else n])
        for n in range(40)
    ]
    check = checks_of(records)["different dialogues"]
    assert (check.status, check.behind, check.n) == ("warn", 10, 40)
    assert check.ids == tuple(f"d{n}" for n in range(10))


def test_a_judge_asked_again_is_held_against_itself() -> None:
    first = a_good_judge(40)
    same = repeat_checks([(one.dialogue_id, one, one) for one in first], "")
    assert [(check.status, check.figure) for check in same] == [("pass", 0)] * 4
    other = a_good_judge(41)[1:]
    turned = repeat_checks(
        [
            (one.dialogue_id, one, two.model_copy(update={"weakest_turn": 99}))
            for one, two in zip(first, other, strict=True)
        ],
        "",
    )
    assert [check.status for check in turned] == ["pass", *["warn"] * 3]
    gone = Unscored(
        dialogue_id="d0", content_hash="0", stage=StageName.JUDGE, reason=UnscoredReason.BAD_REPLY
    )
    lost, *rest = repeat_checks(
        [(one.dialogue_id, one, gone if n < 4 else one) for n, one in enumerate(first)], ""
    )
    assert (lost.status, lost.behind, lost.ids) == ("warn", 4, ("d0", "d1", "d2", "d3"))
    assert [check.n for check in rest] == [36] * 3
    assert {check.status for check in repeat_checks([], "why")} == {"not_run"}
    assert {check.status for check in repeat_checks([], "")} == {"not_enough_data"}


def table(n: int = 120, **columns: Sequence[object]) -> pl.DataFrame:
    plain = {
        "id": [f"d{k}" for k in range(n)],
        "characters": [100 + k for k in range(n)],
        "language": ["en" if k % 2 else "de" for k in range(n)],
        "role": [None] * n,
        "source": ["a"] * n,
        "verdict": ["good" if k % 4 < 2 else "poor" for k in range(n)],
        "judge_unscored": [None] * n,
    }
    return pl.DataFrame(plain | columns, schema_overrides={"judge_unscored": pl.String})


def test_what_cannot_be_scored_is_held_against_length_and_language() -> None:
    cut = ["context_overflow" if k >= 100 else None for k in range(120)]
    by_length, by_language = unscored_checks(table(judge_unscored=cut), ["judge"], ["skipped"])
    assert by_length.status == "warn"
    assert by_length.figure == pytest.approx(20 / 30)
    assert "the longest fourth" in by_length.detail
    assert by_length.ids[0] == "d100"
    assert by_language.status == "pass"
    skipped = ["skipped" if k >= 100 else None for k in range(120)]
    left = unscored_checks(table(judge_unscored=skipped), ["judge"], ["skipped"])
    assert [(check.figure, check.n) for check in left] == [(0, 100), (0, 100)]


def test_verdicts_that_go_by_language_are_seen() -> None:
    fair = {check.name: check for check in verdict_checks(table())}
    assert fair["language"].status == "pass"
    assert (fair["role"].status, fair["role"].detail) == ("not_run", "the data names no role")
    assert (fair["source"].status, fair["source"].detail) == ("not_run", "only one source: a")
    harsh = ["good" if k % 2 or k % 8 == 0 else "poor" for k in range(120)]
    found = {check.name: check for check in verdict_checks(table(verdict=harsh))}
    assert found["language"].status == "warn"
    assert found["language"].figure == pytest.approx(0.75)


def test_scores_within_a_narrow_band_are_collapsed() -> None:
    even = [k / 120 for k in range(120)]
    same = [0.5 + k / 12_000 for k in range(120)]
    checks = {
        check.name: check
        for check in collapse_checks(table(adherence=even, p_good=same, metric_tone=[5] * 120))
    }
    assert checks["adherence"].status == "pass"
    assert checks["p_good"].status == checks["metric_tone"].status == "warn"


def test_the_gap_of_two_shares_has_newcombes_interval() -> None:
    # Newcombe (1998), table II, 56/70 against 48/80, method 10.
    gap = _Gap.between("a", 56, 70, 48, 80, 1)
    assert gap.size == pytest.approx(0.2)
    assert gap.ends == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_a_group_that_is_too_small_is_no_ground_for_a_warning() -> None:
    rows = pl.DataFrame(
        {
            "id": [str(k) for k in range(50)],
            "group": ["fr"] * 5 + ["en"] * 45,
            "shows": [True] * 5 + [False] * 45,
        }
    )
    check = gap_check("unscored", "language", rows, threshold=0.1, of="rows", detail="")
    assert check.status == "not_enough_data"


def test_no_gap_seldom_warns() -> None:
    draw = np.random.default_rng(0)
    groups = [f"g{k % 4}" for k in range(120)]
    warned = 0
    for _ in range(300):
        shows = draw.random(120) < 0.5
        rows = pl.DataFrame({"id": groups, "group": groups, "shows": shows})
        check = gap_check("unscored", "x", rows, threshold=0.1, of="rows", detail="")
        warned += check.status == "warn"
    assert warned <= 300 * 0.06


def test_a_mean_over_dialogues_of_one_size_has_students_interval() -> None:
    draw = np.random.default_rng(1)
    values = draw.random(30)
    check = mean_check(
        "window seams",
        "x",
        (values * 4).tolist(),
        [4] * 30,
        [str(k) for k in range(30)],
        threshold=1.0,
        of="dialogues",
        detail="",
    )
    ends = stats.t.interval(0.95, 29, loc=values.mean(), scale=stats.sem(values))
    assert check.interval == pytest.approx(ends)


def pair(number: int, chosen: str, rejected: str) -> PreferencePair:
    return PreferencePair(
        pair_id=f"p{number}",
        dialogue_id=f"d{number}",
        turn=1,
        content_hash=f"{number:032x}",
        source="natural",
        basis="data",
        prompt=(Message(role="user", content=f"Question {number}?"),),
        chosen=Message(role="assistant", content=chosen),
        rejected=Message(role="assistant", content=rejected),
    )


def test_pairs_behind_lengths_and_words_are_named() -> None:
    pairs = [
        pair(n, "Sure, " + "a longer answer " * 3, "An answer.")
        if n % 10
        else pair(n, f"Short {n}", f"nobody said number {n} at this length, by far the longest")
        for n in range(100)
    ]
    report = check_pair_set(lambda: pairs, PairSetConfig(), count_repeats=lambda _: 0)
    checks = {check.name: check for check in pair_checks("judge", report, lambda: pairs)}
    wins, words = checks["judge: longer wins"], checks["judge: word auc"]
    assert (wins.status, wins.behind) == ("warn", 90)
    assert wins.figure == pytest.approx(0.9)
    assert "p0" not in wins.ids
    assert (words.status, words.behind) == ("warn", 90)
    quiet = PairSetReport(
        pairs=1, checks=(SetCheck(name="longer_wins", status="not_run", threshold=0.6),)
    )
    (idle,) = pair_checks("judge", quiet, list)
    assert (idle.status, idle.ids) == ("not_run", ())


def test_the_sentence_says_what_warns_and_what_could_not_be_told() -> None:
    def check(status: str, name: str = "x") -> AuditCheck:
        return AuditCheck(part="pairs", name=name, status=status, threshold=1)  # type: ignore[arg-type]

    assert "all 2 checks" in audit_sentence([check("pass"), check("pass")])
    said = audit_sentence([check("warn", "a"), check("pass"), check("not_enough_data")])
    assert said == "The audit: 1 of 2 checks warns: pairs (a). 1 had too little to tell."
    assert "none of 1 check " in audit_sentence([check("not_run")])
