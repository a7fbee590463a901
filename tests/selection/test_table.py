import math
from pathlib import Path

import polars as pl
import pytest

from curate.dialogue import Dialogue, Message, ToolCall
from curate.records import (
    AdherenceReason,
    AdherenceTrend,
    ConversationAdherence,
    FactualClaim,
    FactualityScore,
    GoodModel,
    JudgeIdentity,
    LabelReading,
    MetricScore,
    MetricsScore,
    TurnClaims,
)
from curate.selection import table as module
from curate.selection.columns import COLUMNS, SCHEMA, dimensions_of_column
from curate.selection.table import (
    facts_frame,
    facts_row,
    mixed_identities,
    rejected_side,
    score_table,
    with_scores,
)
from tests.selection.rows import IDENTITY, adherence, dialogue, judgment, unscored


def test_an_empty_table_has_every_column() -> None:
    assert score_table([]).schema == pl.Schema(SCHEMA)


def test_types_do_not_depend_on_the_data() -> None:
    assert score_table([dialogue("a")]).schema == pl.Schema(SCHEMA)
    assert len(SCHEMA) == len(COLUMNS)


def test_facts_about_the_dialogue() -> None:
    of = dialogue(
        "a",
        group="task-7",
        reward=0.5,
        role_definition="Be kind.",
        metadata={"language": "es"},
        messages=(
            Message(role="system", content="hidden"),
            Message(role="assistant", content="welcome"),
            Message(role="user", content="hi"),
            Message(role="user", content="there"),
            Message(role="assistant", content="", tool_calls=(ToolCall(name="find"),)),
        ),
    )
    (row,) = score_table([of]).iter_rows(named=True)
    assert (row["id"], row["content_hash"]) == ("a", of.content_hash)
    assert (row["source"], row["file"], row["group"]) == ("logs", "a.jsonl", "task-7")
    assert (row["role"], row["language"], row["reward"]) == ("Be kind.", "es", 0.5)
    assert (row["n_turns"], row["n_assistant_turns"], row["n_tool_calls"]) == (2, 2, 1)
    assert row["characters"] == len("welcome") + len("hi") + len("there")
    assert row["verdict"] is row["judge_unscored"] is row["adherence_unscored"] is None


def test_long_roles_stay_apart_when_shortened() -> None:
    roles = ["You answer for a library. " * 10 + ending for ending in ("Be brief.", "Be warm.")]
    shown = score_table([dialogue(role, role_definition=role) for role in roles])["role"]
    assert shown.n_unique() == 2
    assert shown.str.len_chars().max() <= 80  # type: ignore[operator]


def test_scores_of_a_judgment() -> None:
    of = dialogue("a")
    judged = judgment(of, (5, 4, 5), (2, 3, 5), verdict="borderline", weakest=2)
    (row,) = score_table([of], {of.content_hash: judged}).iter_rows(named=True)
    assert row["verdict"] == "borderline"
    assert (row["min_context_use"], row["mean_context_use"]) == (2, 3.5)
    assert (row["min_helpfulness"], row["mean_helpfulness"]) == (3, 3.5)
    assert (row["weakest_turn"], row["weakest_context_use"], row["weakest_safety"]) == (2, 2, 5)
    assert (row["coherence"], row["task_completion"]) == (4, 4)
    assert (row["task_completion_na"], row["repair_handling_na"]) == (False, True)
    assert row["repair_handling"] is None
    assert row["lowest_score"] == 2
    assert row["mean_score"] == pytest.approx((3.5 + 3.5 + 5 + 4 + 4) / 5)
    assert row["n_issues"] == 1
    assert row["mean_safety_expected"] is row["uncertainty"] is None
    assert row["attention"] == 0.75
    assert row["judge_key"].startswith("judge json ")


def test_readings_fill_the_continuous_columns() -> None:
    of = dialogue("a")
    judged = judgment(of, (5, 4, 5), (2, 3, 5), spread=0.5)
    (row,) = score_table([of], {of.content_hash: judged}).iter_rows(named=True)
    assert row["mean_context_use_expected"] == 3.25
    assert row["mean_context_use_spread"] == 0.5
    assert (row["coherence_expected"], row["coherence_spread"]) == (3.75, 0.5)
    assert row["repair_handling_expected"] is None
    assert row["mean_score"] == pytest.approx((3.25 + 3.25 + 4.75 + 3.75 + 3.75) / 5)
    assert (row["judge_coverage"], row["uncertainty"]) == (0.9, 0.25)


def test_scores_of_adherence() -> None:
    of = dialogue("a")
    (row,) = score_table(
        [of], adherence={of.content_hash: adherence(of, 0.9, 0.2, None, 0.4)}
    ).iter_rows(named=True)
    assert row["adherence"] == pytest.approx(0.5)
    assert row["adherent"]
    assert (row["adherence_low"], row["adherence_high"]) == pytest.approx((0.4, 0.6))
    assert (row["min_adherence"], row["n_off_role_turns"], row["first_off_role_turn"]) == (
        0.2,
        2,
        2,
    )
    assert (row["n_adherence_unscored_turns"], row["adherence_coverage"]) == (1, 0.8)
    assert row["uncertainty"] == pytest.approx((0.2 + 0.4 + 0.8) / 3)
    assert row["attention"] == pytest.approx(0.5)


def test_binary_scores_claim_no_certainty() -> None:
    of = dialogue("a")
    table = score_table([of], adherence={of.content_hash: adherence(of, 1, 1, mode="binary")})
    assert table["uncertainty"].to_list() == [None]


def test_unscored_is_null_with_a_reason_never_a_number() -> None:
    a, b = dialogue("a"), dialogue("b")
    table = score_table(
        [a, b], {a.content_hash: unscored(a, "context_overflow")}, {a.content_hash: unscored(a)}
    )
    assert table["judge_unscored"].to_list() == ["context_overflow", "not_scored"]
    assert table["adherence_unscored"].to_list() == ["bad_reply", "not_scored"]
    scores = [column.name for column in COLUMNS if column.stages]
    assert table.select(pl.all_horizontal(pl.col(scores).is_null()).all()).item()


def test_dialogues_of_equal_content_share_scores_and_keep_their_own_labels() -> None:
    a, b = dialogue("x", labels={"n": 1}), dialogue("x", labels={"n": 2}).model_copy()
    table = score_table([a, b.model_copy(update={"id": "y"})], {a.content_hash: judgment(a)})
    assert table["verdict"].to_list() == ["good", "good"]
    assert table["label_n"].to_list() == [1, 2]
    assert table["id"].to_list() == ["x", "y"]


def test_labels_become_columns_of_the_narrowest_type() -> None:
    labels = [
        {"flag": True, "count": 3, "score": 1, "kind": "a", "list": [1], "mixed": 1, "big": 2**70},
        {"flag": False, "count": 4, "score": 2.5, "mixed": "x", "only_here": True, "nan": math.nan},
    ]
    table = score_table(dialogue(str(i), labels=given) for i, given in enumerate(labels))
    schema = {name: dtype for name, dtype in table.schema.items() if name.startswith("label_")}
    assert schema == {
        "label_big": pl.String(),
        "label_count": pl.Int64(),
        "label_flag": pl.Boolean(),
        "label_kind": pl.String(),
        "label_mixed": pl.String(),
        "label_nan": pl.Int64(),
        "label_only_here": pl.Boolean(),
        "label_score": pl.Float64(),
    }
    assert table["label_mixed"].to_list() == ["1", "x"]
    assert table["label_score"].to_list() == [1.0, 2.5]
    assert table["label_nan"].to_list() == [None, None]


def test_chunks_make_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [
        dialogue(str(i), labels={"v": 1 if i < 3 else 0.5} | ({"w": "x"} if i == 4 else {}))
        for i in range(5)
    ]
    whole = score_table(given)
    monkeypatch.setattr(module, "CHUNK", 2)
    chunked = score_table(iter(given))
    assert chunked.equals(whole)
    assert chunked.schema == whole.schema


def test_scores_of_two_judges_in_one_column_are_flagged() -> None:
    a, b = dialogue("a"), dialogue("b")
    other = JudgeIdentity(engine="scripted", model="judge", mode="tokens", prompt_version="1")
    same = score_table([a, b], {d.content_hash: judgment(d) for d in (a, b)})
    mixed = score_table(
        [a, b], {a.content_hash: judgment(a), b.content_hash: judgment(b, identity=other)}
    )
    assert mixed_identities(same) == {}
    assert list(mixed_identities(mixed)) == ["judge"]
    assert len(mixed_identities(mixed)["judge"]) == 2


def test_the_documentation_lists_every_column_with_its_meaning() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "selecting.md").read_text("utf-8")
    for column in COLUMNS:
        line = next(line for line in page.splitlines() if line.startswith(f"| `{column.name}` |"))
        assert column.about.replace("|", "\\|") in line


def test_a_dialogue_that_came_with_nothing_has_nulls_not_empty_text() -> None:
    bare = Dialogue(id="a", messages=(Message(role="user", content="hi"),), role_definition=" \n")
    (row,) = score_table([bare]).iter_rows(named=True)
    names = ("source", "file", "group", "role", "language", "reward", "rejected_as")
    assert [row[name] for name in names] == [None] * len(names)
    assert (row["n_turns"], row["n_assistant_turns"], row["n_tool_calls"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("metadata", "language"),
    [({"lang": "de"}, "de"), ({"language": "es", "lang": "de"}, "es"), ({"language": 3}, None)],
)
def test_the_language_is_taken_under_either_name(
    metadata: dict[str, object], language: str
) -> None:
    assert score_table([dialogue("a", metadata=metadata)])["language"].item() == language


def test_a_role_is_shown_on_one_line_and_whole_up_to_80_characters() -> None:
    exact, longer = "r" * 80, "r" * 81
    shown = score_table(
        dialogue(str(n), role_definition=role)
        for n, role in enumerate(["Be\n  kind. ", exact, longer])
    )["role"].to_list()
    assert shown[:2] == ["Be kind.", exact]
    assert shown[2].startswith("r" * 70 + "… ")


@pytest.mark.parametrize(
    ("labels", "reward", "why"),
    [
        ({"preference": "rejected"}, 1.0, "rejected_side"),
        ({"preference": "chosen"}, None, None),
        ({"message_ranks": [None, 0, 1], "best_ranks": [None, 0, 0]}, None, "lower_ranked"),
        ({"message_ranks": [None, 0, 1], "best_ranks": [None, 0, 1]}, None, None),
        ({"message_ranks": [None, 0, 1]}, None, "lower_ranked"),
        ({"message_ranks": [None, 0, 1], "best_ranks": [0]}, None, "lower_ranked"),
        ({"message_ranks": [None, 0, 1], "best_ranks": [None, 0, None]}, None, "lower_ranked"),
        ({"message_ranks": [None, 3, 0]}, None, None),  # of a user message, which is no reply
        ({"message_ranks": [None, 0, 0, 5]}, None, None),  # there is no such message
        ({"message_ranks": "012"}, None, None),
        ({"message_ranks": [None, 0, "1"]}, None, None),
        ({}, 0.0, "failed_trajectory"),
        ({}, -2.0, "failed_trajectory"),
        ({}, 0.01, None),
        ({}, math.nan, None),
        ({}, -math.inf, None),
    ],
)
def test_what_the_data_calls_the_worse_alternative(
    labels: dict[str, object], reward: float | None, why: str | None
) -> None:
    of = dialogue("a", labels=labels, reward=reward)
    assert rejected_side(of) == why
    assert score_table([of])["rejected_as"].item() == why


def of_metrics(of: Dialogue, overall: float = 40.0, passed: bool = False) -> MetricsScore:
    read = LabelReading(mean=1.75, spread=0.5, coverage=0.9)
    given = {"tier": "execution", "weight": 0.25, "share": 0.25}
    return MetricsScore(
        dialogue_id=of.id,
        content_hash=of.content_hash,
        identity=IDENTITY,
        metrics=(
            MetricScore(name="routing", scale="scored", score=2, reading=read, **given),
            MetricScore(name="completion", scale="binary", score=0, **given),
            MetricScore(name="tone", scale="scored", score=5, **given),
            MetricScore(name="recovery", scale="scored", score=None, na="judge", **given),
        ),
        overall_score=overall,
        pass_threshold=75.0,
        passed=passed,
        weights_key="w",
        overall_range=(overall - 5, overall + 7),
        disagreement=0.2,
    )


def test_scores_of_metrics() -> None:
    a, b, c = dialogue("a"), dialogue("b"), dialogue("c")
    given = {
        a.content_hash: of_metrics(a),
        b.content_hash: unscored(b, "reply_cut", "metrics"),
    }
    table = score_table([a, b, c], metrics=given)
    row = table.row(0, named=True)
    assert (row["overall_score"], row["metrics_passed"]) == (40.0, False)
    assert (row["overall_low"], row["overall_high"]) == (35.0, 47.0)
    assert (row["n_poor_metrics"], row["n_na_metrics"]) == (2, 1)
    assert row["metrics_disagreement"] == 0.2
    assert (row["metric_routing"], row["metric_routing_expected"]) == (2, 1.75)
    assert (row["metric_completion"], row["metric_tone"], row["metric_recovery"]) == (0, 5, None)
    assert "metric_tone_expected" not in table.columns
    assert table["metrics_unscored"].to_list() == [None, "reply_cut", "not_scored"]
    assert table["overall_score"].to_list() == [40.0, None, None]
    # the same judge's scores of other weights do not compare
    other = of_metrics(b).model_copy(update={"weights_key": "v"})
    both = score_table([a, b], metrics=given | {b.content_hash: other})
    assert list(mixed_identities(both)) == ["metrics"]


def test_metrics_that_nobody_has_yet_have_their_columns() -> None:
    facts = facts_frame([facts_row(dialogue("a", labels={"n": 1}))])
    table = with_scores(facts, None, None, metrics=[None], metric_names=["routing"])
    assert table.columns[-3:] == ["label_n", "metric_routing", "metric_routing_expected"]
    assert table.schema["metric_routing"] == pl.Int8()
    assert table.schema["metric_routing_expected"] == pl.Float64()
    assert table["metrics_unscored"].to_list() == ["not_scored"]
    assert with_scores(facts, None, None)["metrics_unscored"].to_list() == [None]


def of_claims(of: Dialogue, *turns: tuple[list[str], float | None]) -> FactualityScore:
    return FactualityScore(
        dialogue_id=of.id,
        content_hash=of.content_hash,
        identity=IDENTITY,
        per_turn=tuple(
            TurnClaims(
                turn=number,
                claims=tuple(FactualClaim(words="w", label=label) for label in labels),  # type: ignore[arg-type]
                precision=precision,
            )
            for number, (labels, precision) in enumerate(turns, start=1)
        ),
        precision=0.4,
    )


def test_scores_of_factuality() -> None:
    a, b, c, d = (dialogue(name) for name in "abcd")
    claims = of_claims(
        a,
        (["true", "true", "false"], 0.7),
        (["not_factual"], None),
        (["false", "unverifiable"], 0.1),
    )
    given = {
        a.content_hash: claims,
        b.content_hash: of_claims(b, (["not_factual"], None)),
        c.content_hash: unscored(c, "reply_cut", "factuality"),
    }
    table = score_table([a, b, c, d], factuality=given)
    row = table.row(0, named=True)
    assert (row["factual_precision"], row["min_factual_precision"]) == (0.4, 0.1)
    assert (row["n_claims"], row["n_false_claims"], row["n_unverifiable_claims"]) == (5, 2, 1)
    assert row["factuality_key"].startswith("judge json ")
    assert table["min_factual_precision"].to_list()[1:] == [None] * 3
    assert table["n_claims"].to_list() == [5, 0, None, None]
    assert table["factuality_unscored"].to_list() == [None, None, "reply_cut", "not_scored"]
    assert score_table([a])["factuality_unscored"].item() is None


GOOD = GoodModel(
    features=("coherence", "adherence"),
    means=(3.0, 0.5),
    scales=(1.0, 0.5),
    weights=(1.0, 2.0),
    intercept=-1.0,
    labels=20,
    good=10,
    brier=0.2,
    brier_without=0.25,
)


def test_the_probability_of_good_needs_every_reading_that_the_judges_owe() -> None:
    a, b, c = dialogue("a"), dialogue("b"), dialogue("c")
    table = score_table(
        [a, b, c],
        {a.content_hash: judgment(a), b.content_hash: judgment(b), c.content_hash: unscored(c)},
        {a.content_hash: adherence(a, 1.0), b.content_hash: unscored(b, "bad_reply", "adherence")},
        good=GOOD,
    )
    # log-odds -1 + (4 - 3) + 2 (1 - 0.5) / 0.5
    assert table["p_good"].to_list() == [pytest.approx(1 / (1 + math.exp(-2))), None, None]


def test_the_probability_of_good_needs_metrics_where_it_was_fitted_to_them() -> None:
    a, b = dialogue("a"), dialogue("b")
    fields = {"features": ("metric_tone",), "means": (3.0,), "scales": (1.0,), "weights": (0.5,)}
    good = GOOD.model_copy(update=fields | {"metrics": IDENTITY})
    judged = {of.content_hash: judgment(of) for of in (a, b)}
    table = score_table([a, b], judged, good=good, metrics={a.content_hash: of_metrics(a)})
    assert table["p_good"].to_list() == [pytest.approx(0.5), None]  # -1 + 0.5 (5 - 3)


def test_reasons_and_the_trend_of_adherence() -> None:
    of = dialogue("a")
    plain = adherence(of, 0.2, 0.3, 0.9)
    kinds = ("tone", "scope", None)
    score = plain.model_copy(
        update={
            "per_turn": tuple(
                turn.model_copy(
                    update={"reason": AdherenceReason(violation=kind), "imputed": kind == "scope"}
                )
                for turn, kind in zip(plain.per_turn, kinds, strict=True)
            ),
            "trend": AdherenceTrend(slope=0.35, interval=(-0.1, 0.8), p_value=0.25),
            "turns_in_role": 0,
        }
    )
    (row,) = score_table([of], adherence={of.content_hash: score}).iter_rows(named=True)
    assert row["adherence_slope"] == 0.35
    assert (row["adherence_slope_low"], row["adherence_slope_high"]) == (-0.1, 0.8)
    assert (row["adherence_trend_p"], row["n_turns_in_role"]) == (0.25, 0)
    assert (row["n_tone_violations"], row["n_scope_violations"], row["n_other_violations"]) == (
        *(1, 1, 0),
    )
    assert row["n_adherence_imputed"] == 1
    (row,) = score_table([of], adherence={of.content_hash: plain}).iter_rows(named=True)
    assert row["adherence_slope"] is row["n_tone_violations"] is None
    assert row["n_adherence_imputed"] == 0


def test_adherence_of_a_conversation_as_a_whole() -> None:
    of = dialogue("a")
    whole = ConversationAdherence(
        coverage=0.7, imputed=True, reason=AdherenceReason(violation="tone")
    )
    score = adherence(of, 0.9).model_copy(
        update={"per_turn": (), "conversation": whole, "session_score": 0.3}
    )
    (row,) = score_table([of], adherence={of.content_hash: score}).iter_rows(named=True)
    assert (row["adherence"], row["adherence_coverage"]) == (0.3, 0.7)
    assert (row["n_adherence_imputed"], row["n_tone_violations"]) == (1, 1)
    assert row["n_off_role_turns"] is row["min_adherence"] is None
    assert row["uncertainty"] == pytest.approx(0.6)  # 1 - |2 x 0.3 - 1|


def test_what_the_judge_says_of_itself_and_whether_its_levels_are_calibrated() -> None:
    of = dialogue("a")
    judged = judgment(of, identity=IDENTITY.calibrated("levels 1")).model_copy(
        update={
            "judge_verdict": "poor",
            "verdict_mismatch": True,
            "weakest_mismatch": False,
            "overlap_disagreement": 0.5,
            "disagreement": 1.5,
        }
    )
    (row,) = score_table([of], {of.content_hash: judged}).iter_rows(named=True)
    assert (row["judge_verdict"], row["verdict_mismatch"]) == ("poor", True)
    assert (row["weakest_mismatch"], row["levels_calibrated"]) == (False, True)
    assert (row["overlap_disagreement"], row["jury_disagreement"]) == (0.5, 1.5)
    assert row["weakest_turn"] is row["weakest_safety"] is None
    plain = score_table([of], {of.content_hash: judgment(of)})
    assert plain["levels_calibrated"].to_list() == [False]


def test_labels_of_whole_numbers_too_large_for_a_column_are_text() -> None:
    table = score_table(
        dialogue(str(n), labels={"fits": 2**63 - 1, "large": n or 2**63, "truth": n or True})
        for n in range(2)
    )
    assert table["label_fits"].to_list() == [2**63 - 1] * 2
    assert table["label_large"].to_list() == [str(2**63), "1"]
    assert table["label_truth"].to_list() == [1, 1]


@pytest.mark.parametrize(
    ("column", "dimensions"),
    [
        ("adherence", ("adherence",)),
        ("n_off_role_turns", ("adherence",)),
        ("uncertainty", ()),
        ("metric_tone_expected", ("metric_tone",)),
        ("min_safety", ("safety",)),
        ("mean_context_use_expected", ("context_use",)),
        ("repair_handling_na", ("repair_handling",)),
        ("n_issues", ()),
        ("label_safety", ()),
        ("characters", ()),
    ],
)
def test_the_dimensions_a_column_is_made_of(column: str, dimensions: tuple[str, ...]) -> None:
    assert dimensions_of_column(column) == dimensions


def test_a_verdict_and_the_mean_are_made_of_all_six_scores() -> None:
    six = dimensions_of_column("mean_score")
    assert len(six) == 6
    assert dimensions_of_column("lowest_score") == six
    assert dimensions_of_column("verdict") == ("verdict", "good", *six)
