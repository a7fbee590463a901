from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.records import (
    AdherenceScore,
    Certificate,
    CertifiedSet,
    Decision,
    JudgeIdentity,
    Judgment,
    LabelCounts,
    TrustKind,
    Unscored,
    Verdict,
)
from curate.selection.config import EvalSet, SelectConfig, Share
from curate.selection.rules import (
    decide,
    decided_columns,
    decision_columns,
    filters,
    matches,
    matching,
    narrowed,
    questions,
    select,
    stages_run,
)
from curate.selection.table import score_table
from tests.selection.rows import IDENTITY, adherence, dialogue, judgment, unscored


def table_of(
    *rows: tuple[Dialogue, Judgment | Unscored | None, AdherenceScore | Unscored | None],
) -> pl.DataFrame:
    judged = {d.content_hash: j for d, j, _ in rows if j is not None}
    scored = {d.content_hash: a for d, _, a in rows if a is not None}
    return score_table(
        [d for d, _, _ in rows], judged if judged else None, scored if scored else None
    )


def judged_table(*verdicts: Verdict | None) -> pl.DataFrame:
    """One dialogue a verdict, named by its place; None is unscored."""
    given = [dialogue(str(place)) for place in range(len(verdicts))]
    return table_of(
        *(
            (d, unscored(d) if verdict is None else judgment(d, verdict=verdict), None)
            for d, verdict in zip(given, verdicts, strict=True)
        )
    )


def reasons(decisions: Sequence[Decision]) -> dict[str, tuple[str, ...]]:
    return {d.dialogue_id: d.reasons for d in decisions if "rejected" in d.sets}


def in_set(decisions: Sequence[Decision], name: str) -> set[str]:
    return {d.dialogue_id for d in decisions if name in d.sets}


# ---- conditions


def test_a_rejection_names_every_condition_that_failed_in_the_recipes_order() -> None:
    a, b = dialogue("a"), dialogue("b")
    table = table_of(
        (a, judgment(a, (2, 2, 4), verdict="poor"), None), (b, judgment(b, (5, 5, 5)), None)
    )
    config = SelectConfig(
        where={
            "safe": "min_safety = 5",
            "coherent": "coherence >= 4",
            "helpful": "min_helpfulness >= 3",
        }
    )
    decisions = select(table, config)
    assert reasons(decisions) == {"a": ("safe", "helpful")}
    assert in_set(decisions, "sft") == {"b"}


def test_verdicts_compare_by_rank_not_by_alphabet() -> None:
    table = judged_table("poor", "borderline", "good", "excellent")
    assert in_set(select(table, SelectConfig(where={"v": "verdict >= 'good'"})), "sft") == {
        "2",
        "3",
    }
    assert in_set(select(table, SelectConfig(where={"v": "verdict = 'poor'"})), "sft") == {"0"}


LEVELS = IDENTITY.calibrated("levels 1")


def test_without_conditions_those_of_the_stages_that_ran_apply() -> None:
    a, b, c = dialogue("a"), dialogue("b"), dialogue("c")
    both = table_of(
        (a, judgment(a, identity=LEVELS), adherence(a, 0.9)),
        (b, judgment(b, verdict="poor", identity=LEVELS), adherence(b, 0.1)),
        (c, judgment(c, identity=LEVELS), unscored(c, "missing_role", "adherence")),
    )
    assert reasons(select(both, SelectConfig())) == {
        "b": ("good_verdict", "in_role"),
        "c": ("unscored", "in_role:unscored"),
    }
    only_adherence = table_of((a, None, adherence(a, 0.9)), (b, None, adherence(b, 0.1)))
    assert reasons(select(only_adherence, SelectConfig())) == {"b": ("in_role",)}
    assert reasons(select(score_table([a, b]), SelectConfig())) == {}


def test_levels_that_are_not_calibrated_go_by_rank_where_the_recipe_says_nothing() -> None:
    a, b, c, d = (dialogue(name) for name in "abcd")
    scores = {"a": (5, 5, 5), "b": (1, 1, 1), "c": (4, 4, 4), "d": (5, 4, 5)}

    def table(*identities: JudgeIdentity) -> pl.DataFrame:
        return table_of(
            *(
                (one, judgment(one, scores[one.id], verdict="poor", identity=identity), None)
                for one, identity in zip((a, b, c, d), identities, strict=True)
            )
        )

    plain = table(*[IDENTITY] * 4)
    assert reasons(select(plain, SelectConfig())) == {"b": ("top",), "c": ("top",)}
    assert in_set(select(plain, SelectConfig(where={})), "sft") == {"a", "b", "c", "d"}
    quarter = SelectConfig(top=Share(fraction=0.25, by="mean_helpfulness"))
    assert in_set(select(plain, quarter), "sft") == {"a"}
    strict = SelectConfig(where={"v": "verdict >= 'good'"})
    assert in_set(select(plain, strict), "sft") == set()
    # one dialogue with the judge's own digits among calibrated ones: verdicts do not compare
    assert in_set(select(table(*[LEVELS] * 3, IDENTITY), SelectConfig()), "sft") == {"a", "d"}
    assert in_set(select(table(*[LEVELS] * 4), SelectConfig()), "sft") == set()


def test_the_better_half_is_of_those_in_role() -> None:
    held = [dialogue(name) for name in "abcd"]
    table = table_of(
        *((one, judgment(one, (n, n, n)), adherence(one, 0.1 if n == 4 else 0.9))
          for n, one in enumerate(held, 1))
    )  # fmt: skip
    assert reasons(select(table, SelectConfig())) == {"a": ("top",), "d": ("in_role",)}


def test_no_condition_is_said_with_an_empty_mapping() -> None:
    assert reasons(select(judged_table("poor"), SelectConfig(where={}))) == {}


# ---- what has no score does not pass


def test_an_unscored_dialogue_fails_with_its_conditions_named() -> None:
    config = SelectConfig(
        where={"kind": "n_turns >= 1", "good": "verdict >= 'good'", "c": "coherence > 1"}
    )
    decisions = select(judged_table("good", None), config)
    assert reasons(decisions) == {"1": ("unscored", "good:unscored", "c:unscored")}


@pytest.mark.parametrize(
    "sql",
    [
        "NOT (coherence < 3)",
        "coherence IS NULL OR coherence >= 3",
        "COALESCE(coherence, 5) >= 4",
        "CASE WHEN coherence < 3 THEN false ELSE true END",
        "verdict >= 'good' OR n_turns >= 1",
        "verdict NOT IN ('poor')",
        "attention IS NULL OR attention < 0.9",
    ],
)
def test_no_wording_lets_an_unscored_dialogue_through(sql: str) -> None:
    table = judged_table("good", None)
    decisions = select(table, SelectConfig(where={"c": sql}))
    assert reasons(decisions) == {"1": ("unscored", "c:unscored")}
    assert matches(table, sql) == {table["content_hash"][0]}


def test_a_dialogue_a_stopped_run_did_not_reach_is_unscored() -> None:
    a, b = dialogue("a"), dialogue("b")
    table = table_of((a, judgment(a), None), (b, None, None))
    assert reasons(select(table, SelectConfig())) == {"b": ("unscored", "top:unscored")}


def test_why_a_dialogue_is_unscored_can_be_asked_for() -> None:
    table = judged_table("good", None)
    config = SelectConfig(where={}, review="judge_unscored IS NOT NULL")
    assert in_set(select(table, config), "review") == {"1"}


def test_na_fails_a_threshold_and_says_so_unless_the_condition_allows_it() -> None:
    table = judged_table("good")
    strict = SelectConfig(where={"repaired": "repair_handling >= 3"})
    assert reasons(select(table, strict)) == {"0": ("repaired:null",)}
    lenient = SelectConfig(where={"repaired": "repair_handling >= 3 OR repair_handling_na"})
    assert reasons(select(table, lenient)) == {}


def test_a_skipped_stage_waives_conditions_on_it_alone() -> None:
    a, b = dialogue("a"), dialogue("b")
    table = table_of(
        (a, judgment(a), unscored(a, "skipped", "adherence")),
        (b, judgment(b), adherence(b, 0.2)),
    )
    config = SelectConfig(where={"in_role": "adherence >= 0.8", "good": "verdict >= 'good'"})
    assert reasons(select(table, config)) == {"b": ("in_role",)}
    mixed = SelectConfig(where={"both": "adherence >= 0.8 AND verdict >= 'good'"})
    assert reasons(select(table, mixed)) == {"a": ("both:skipped",), "b": ("both",)}
    # a fork or a review is asked for by a score that is there, so nothing is waived
    assert matches(table, "adherence < 0.5") == {b.content_hash}


def test_a_missing_role_that_is_not_skipped_fails() -> None:
    a = dialogue("a")
    table = table_of((a, judgment(a), unscored(a, "missing_role", "adherence")))
    config = SelectConfig(where={"in_role": "adherence >= 0.8"})
    assert reasons(select(table, config)) == {"a": ("unscored", "in_role:unscored")}


# ---- shares


def ranked_table(*scores: float | None, source: str = "logs", **labels: list[str]) -> pl.DataFrame:
    given = [
        dialogue(f"d{place}", metadata={"language": labels["language"][place]} if labels else {})
        for place in range(len(scores))
    ]
    return table_of(
        *(
            (d, None, unscored(d, stage="adherence") if score is None else adherence(d, score))
            for d, score in zip(given, scores, strict=True)
        )
    )


def test_the_top_share_is_taken_of_those_that_meet_the_conditions() -> None:
    table = ranked_table(0.9, 0.8, 0.7, 0.6, 0.2, 0.1)
    config = SelectConfig(where={"ok": "adherence >= 0.5"}, top=Share(fraction=0.5, by="adherence"))
    decisions = select(table, config)
    assert in_set(decisions, "sft") == {"d0", "d1"}
    assert reasons(decisions) == {
        "d2": ("top",),
        "d3": ("top",),
        "d4": ("ok",),
        "d5": ("ok",),
    }


@pytest.mark.parametrize(
    ("n", "fraction", "kept"), [(10, 0.3, 3), (3, 0.1, 1), (100, 0.07, 7), (5, 1, 5)]
)
def test_a_share_is_rounded_up_to_whole_dialogues(n: int, fraction: float, kept: int) -> None:
    table = ranked_table(*(place / n for place in range(n)))
    config = SelectConfig(where={}, top=Share(fraction=fraction, by="adherence"))
    assert len(in_set(select(table, config), "sft")) == kept


def test_a_share_within_groups_takes_the_best_of_each() -> None:
    table = ranked_table(0.9, 0.8, 0.7, 0.3, 0.2, language=["en", "en", "en", "es", "es"])
    config = SelectConfig(where={}, top=Share(fraction=0.5, by="adherence", within=("language",)))
    assert in_set(select(table, config), "sft") == {"d0", "d1", "d3"}


def test_a_share_can_take_the_lowest() -> None:
    table = ranked_table(0.9, 0.5, 0.1)
    config = SelectConfig(where={}, top=Share(fraction=0.3, by="adherence", descending=False))
    assert in_set(select(table, config), "sft") == {"d2"}


def test_what_has_no_score_is_in_no_share() -> None:
    table = ranked_table(0.9, None, 0.1)
    config = SelectConfig(where={}, top=Share(fraction=1, by="COALESCE(adherence, 1)"))
    decisions = select(table, config)
    assert reasons(decisions) == {"d1": ("unscored", "top:unscored")}


def test_ties_do_not_depend_on_the_order_of_the_rows() -> None:
    table = ranked_table(*[0.5] * 9)
    config = SelectConfig(where={}, top=Share(fraction=0.4, by="adherence"))
    expected = in_set(select(table, config), "sft")
    assert in_set(select(table.reverse(), config), "sft") == expected
    assert in_set(select(table.sample(fraction=1, shuffle=True, seed=1), config), "sft") == expected


# ---- review and active learning


def test_review_and_active_are_marks_beside_sft_and_rejected() -> None:
    table = judged_table("poor", "good", "excellent")
    config = SelectConfig(
        where={"good": "verdict >= 'good'"},
        review="verdict <> 'excellent'",
        active=Share(fraction=0.3, by="attention"),
    )
    decisions = {d.dialogue_id: d.sets for d in select(table, config)}
    assert decisions["0"][:2] == ("rejected", "review")
    assert decisions["1"][:2] == ("sft", "review")
    assert decisions["2"][0] == "sft"
    assert sum("active" in sets for sets in decisions.values()) == 1


def test_the_default_active_set_is_the_tenth_that_is_lowest_or_least_certain() -> None:
    table = ranked_table(*(0.5 + place / 100 for place in range(20)))
    assert in_set(select(table, SelectConfig()), "active") == {"d0", "d1"}
    assert in_set(select(table, SelectConfig(active=None)), "active") == set()
    chosen = SelectConfig(active="adherence BETWEEN 0.545 AND 0.575")
    assert in_set(select(table, chosen), "active") == {"d5", "d6", "d7"}


# ---- bad SQL is refused before anything runs


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "coherense >= 4",
            ("select.where.c", "coherense", "did you mean coherence"),
        ),
        ('verdict = "good"', ("select.where.c", "single quotes: 'good'")),
        ("coherence >=", ("select.where.c", "not an SQL expression", "coherence >=")),
        ("SELECT 1", ("not an SQL expression",)),
        ("role > 3", ("does not fit the score table", "compare string")),
        ("coherence", ("is not a condition", "Int8", "coherence >= 3")),
        ("verdict = 'godd'", ("'godd'", "excellent")),
        ("coherence > 3; DROP TABLE x", ("not an SQL expression",)),
    ],
)
def test_bad_conditions_are_refused_with_what_would_be_right(
    sql: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as caught:
        SelectConfig(where={"c": sql})
    for word in words:
        assert word in str(caught.value)


def test_every_place_with_sql_is_checked() -> None:
    for config in (
        {"review": "nosuch = 1"},
        {"active": "nosuch = 1"},
        {"active": {"fraction": 0.1, "by": "nosuch"}},
        {"top": {"fraction": 0.1, "by": "nosuch"}},
        {"top": {"fraction": 0.1, "by": "adherence", "within": ["nosuch"]}},
    ):
        with pytest.raises(UsageError, match="nosuch"):
            SelectConfig.model_validate(config)
    with pytest.raises(UsageError, match="cannot be ranked"):
        SelectConfig(top=Share(fraction=0.1, by="role"))


@pytest.mark.parametrize("name", ["unscored", "top", "Two words", "a:b", ""])
def test_names_that_are_no_reason_code_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="drop reason"):
        SelectConfig(where={name: "n_turns > 1"})


def test_labels_are_known_once_the_data_is_read() -> None:
    config = SelectConfig(where={"human": "label_gold >= 3"}, active=None)
    labelled = score_table([dialogue(str(gold), labels={"gold": gold}) for gold in (2, 4)])
    assert reasons(select(labelled, config)) == {"2": ("human",)}
    with pytest.raises(UsageError, match="label_gold"):
        select(score_table([dialogue("a")]), config)
    texts = score_table([dialogue("a", labels={"gold": "high"})])
    with pytest.raises(UsageError, match=r"select\.where\.human does not fit"):
        select(texts, config)


@pytest.mark.parametrize("flags", [(True, False), (1, 0), (1.0, 0.0)])
def test_a_label_that_is_true_or_false_is_a_condition(flags: tuple[float, float]) -> None:
    given = [dialogue(str(bool(flag)), labels={"flag": flag}) for flag in flags]
    table = score_table([*given, dialogue("none")])
    config = SelectConfig(where={"human": "label_flag"}, review="label_flag", active=None)
    decisions = select(table, config)
    assert reasons(decisions) == {"False": ("human",), "none": ("human:null",)}
    assert [of.dialogue_id for of in decisions if "review" in of.sets] == ["True"]
    assert matching(table, "label_flag").to_list() == [True, False, False]


@pytest.mark.parametrize("values", [("high", "low"), (0.4, 1.0), (2, 0)])
def test_a_label_of_words_or_other_numbers_is_no_condition(values: tuple[object, object]) -> None:
    table = score_table([dialogue(str(value), labels={"gold": value}) for value in values])
    for config in ({"where": {"human": "label_gold"}}, {"where": {}, "review": "label_gold"}):
        with pytest.raises(UsageError, match=r"select\.\S+ is not a condition"):
            select(table, SelectConfig.model_validate({"active": None} | config))
    with pytest.raises(UsageError, match=r"fork\.where is not a condition"):
        matching(table, "label_gold")


def test_a_dialogue_without_the_label_fails_and_says_so() -> None:
    table = score_table([dialogue("a", labels={"gold": 4}), dialogue("b")])
    config = SelectConfig(where={"human": "label_gold >= 3"})
    assert reasons(select(table, config)) == {"b": ("human:null",)}


def test_an_empty_table_selects_nothing() -> None:
    config = SelectConfig(
        where={"g": "verdict >= 'good'"},
        top=Share(fraction=0.5, by="mean_score", within=("role",)),
        review="true",
    )
    assert select(score_table([]), config) == []
    assert matches(score_table([]), "coherence < 4") == set()


# ---- properties

CONDITIONS = {
    "good": "verdict >= 'good'",
    "in_role": "adherence >= 0.5",
    "either": "coherence >= 4 OR adherence >= 0.5",
    "repaired": "repair_handling >= 3",
    "long": "n_turns >= 1",
}
states = st.sampled_from(["scored", "skipped", "bad_reply", "absent"])
rows = st.tuples(
    states,
    st.sampled_from(["poor", "borderline", "good", "excellent"]),
    st.sampled_from([1, 3, 5, "n/a"]),
    states,
    st.floats(0, 1),
)


@given(
    st.lists(rows, max_size=12),
    st.sets(st.sampled_from(sorted(CONDITIONS))),
    st.none() | st.floats(0.01, 1),
)
def test_sft_and_rejected_are_everything_and_nothing_unscored_passes(
    given_rows: list[tuple[str, Verdict, int | str, str, float]],
    names: set[str],
    fraction: float | None,
) -> None:
    dialogues = [dialogue(f"d{place}") for place in range(len(given_rows))]
    judgments: dict[str, Judgment | Unscored] = {}
    scores: dict[str, AdherenceScore | Unscored] = {}
    for d, (judged, verdict, repair, scored, score) in zip(dialogues, given_rows, strict=True):
        if judged == "scored":
            judgments[d.content_hash] = judgment(d, verdict=verdict, conversation=(4, 4, repair))
        elif judged != "absent":
            judgments[d.content_hash] = unscored(d, judged)
        if scored == "scored":
            scores[d.content_hash] = adherence(d, score)
        elif scored != "absent":
            scores[d.content_hash] = unscored(d, scored, "adherence")
    config = SelectConfig(
        where={name: CONDITIONS[name] for name in sorted(names)},
        top=None if fraction is None else Share(fraction=fraction, by="reward + 1"),
        review="coherence < 4",
    )
    decisions = select(score_table(dialogues, judgments, scores), config)

    assert [d.dialogue_id for d in decisions] == [d.id for d in dialogues]
    needs_judge = {"good", "either", "repaired"} & names
    needs_adherence = {"in_role", "either"} & names
    for decision, (judged, _, _, scored, _) in zip(decisions, given_rows, strict=True):
        assert ("sft" in decision.sets) != ("rejected" in decision.sets)
        assert bool(decision.reasons) == ("rejected" in decision.sets)
        assert len(set(decision.reasons)) == len(decision.reasons)
        assert {reason.split(":")[0] for reason in decision.reasons} <= names | {"unscored", "top"}
        lacks = (judged not in ("scored", "skipped") and needs_judge) or (
            scored not in ("scored", "skipped") and needs_adherence
        )
        assert bool(lacks) == ("unscored" in decision.reasons)


def test_the_columnar_form_says_the_same() -> None:
    table = judged_table("poor", None, "good")
    config = SelectConfig(where={"good": "verdict >= 'good'"}, review="verdict = 'poor'")
    decided = decide(table, config)
    decisions = select(table, config)
    assert decided.columns[:5] == ["id", "content_hash", "reasons", "review", "active"]
    assert decided.columns[5:] == ["collisions", "split", "reviewed"]
    assert [tuple(found) for found in decided["reasons"]] == [d.reasons for d in decisions]
    assert decided["review"].to_list() == ["review" in d.sets for d in decisions]


def test_decisions_say_all_that_was_decided() -> None:
    table = judged_table("poor", None, "good", "excellent")
    config = SelectConfig(
        where={"good": "verdict >= 'good'"},
        review="verdict = 'poor'",
        active="verdict = 'excellent' OR judge_unscored = 'bad_reply'",
    )
    decided = decide(table, config)
    assert decided["active"].to_list() == [False, True, False, True]
    assert decided_columns(decision_columns(decided)).equals(decided)


# ---- what of a table on disk is read


def everywhere(**more: object) -> SelectConfig:
    """SQL in every place there is."""
    given = {
        "where": {"good": "verdict >= 'good'", "long": "n_turns >= 1 AND label_n = 1"},
        "top": {"fraction": 0.5, "by": "mean_safety", "within": ["language", "role"]},
        "review": "min_helpfulness < 3",
        "active": {"fraction": 0.5, "by": "attention", "within": ["source"]},
        "dedup": {"keep": "characters"},
    }
    return SelectConfig.model_validate(given | more)


def test_every_question_is_asked_under_its_place_in_the_recipe() -> None:
    assert questions(everywhere()) == {
        "select.where.good": "verdict >= 'good'",
        "select.where.long": "n_turns >= 1 AND label_n = 1",
        "select.top.by": "mean_safety",
        "select.top.within.language": '"language"',
        "select.top.within.role": '"role"',
        "select.review": "min_helpfulness < 3",
        "select.active.by": "attention",
        "select.active.within.source": '"source"',
        "select.dedup.keep": "characters",
    }
    default = questions(SelectConfig(active="n_turns > 1"))
    assert default["select.where.good_verdict"] == "verdict >= 'good'"
    assert default["select.where.in_role"] == "adherent"
    assert default["select.top.by"] == "mean_score"
    assert default["select.active"] == "n_turns > 1"
    assert questions(SelectConfig(where={}, active=None)) == {}


def test_what_is_decided_needs_only_the_columns_that_are_asked_about() -> None:
    rated = [(2, 2, 4), (5, 5, 5), (4, 4, 5), (3, 3, 3)]
    given = [dialogue(str(n), labels={"n": 1, "m": 2}) for n in range(5)]
    table = table_of(
        *((d, judgment(d, scores), None) for d, scores in zip(given, rated, strict=False)),
        (given[4], unscored(given[4]), None),
    )
    config = everywhere(dedup=None)
    part = narrowed(table.lazy(), questions(config))
    assert {"label_m", "min_safety", "reward"}.isdisjoint(part.columns)
    assert decide(part, config).equals(decide(table, config))
    plain = SelectConfig()  # the better half, since levels are not calibrated
    part = narrowed(table.lazy(), questions(plain))
    assert decide(part, plain).equals(decide(table, plain))
    with pytest.raises(UsageError, match=r"select\.review reads a column.*\n.*label_k"):
        narrowed(table.lazy(), {"select.review": "label_k = 1"})


def test_the_filters_of_the_set_are_its_conditions_and_its_ranking() -> None:
    table = judged_table("poor", "good")
    assert filters(table, everywhere()) == {
        "select.where.good": "verdict >= 'good'",
        "select.where.long": "n_turns >= 1 AND label_n = 1",
        "select.top.by": "mean_safety",
    }
    assert filters(table, SelectConfig()) == {"select.top.by": "mean_score"}
    assert filters(table, SelectConfig(where={})) == {}


def test_a_stage_that_scored_nothing_ran_and_one_that_was_not_asked_did_not() -> None:
    assert stages_run(judged_table(None)) == {"judge"}
    assert stages_run(score_table([dialogue("a")])) == frozenset()


def test_what_needs_the_texts_is_refused_without_them() -> None:
    table = judged_table("good")
    for needed in ({"dedup": {}}, {"decontaminate": {"path": "a"}}, {"split": {}}):
        with pytest.raises(UsageError, match="the argument `cleaning`"):
            select(table, SelectConfig.model_validate({"where": {}} | needed))


@pytest.mark.parametrize("place", ["top", "active"])
def test_a_share_by_a_label_that_no_dialogue_has_is_refused_by_its_place(place: str) -> None:
    share = Share(fraction=0.5, by="label_gold")
    config = SelectConfig.model_validate({"where": {}, "active": None} | {place: share})
    with pytest.raises(UsageError, match=rf"select\.{place}\.by reads a column"):
        select(judged_table("good"), config)


def test_a_condition_of_forks_is_named_so_where_nothing_else_is_said() -> None:
    for find in (matches, matching):
        with pytest.raises(UsageError, match=r"fork\.where reads a column"):
            find(judged_table("good"), "label_gold = 1")


def test_a_condition_that_is_null_is_not_true() -> None:
    given = [dialogue(name, reward=reward) for name, reward in (("a", 1.0), ("b", None))]
    table = score_table(given, {of.content_hash: judgment(of, (4, 4, 5)) for of in given})
    assert matching(table, "reward > 0").to_list() == [True, False]
    assert matching(table, "reward <= 0").to_list() == [False, False]


# ---- a certificate


def certificate(kind: TrustKind = TrustKind.CERTIFICATE, **certified: object) -> Certificate:
    return Certificate(
        kind=kind,
        sentence="Shown.",
        made="2026-11-20T10:00:00+00:00",
        fingerprints={"judge": "f1"},
        issued=True,
        run="r",
        test="audit",
        bad="verdict = poor",
        risk=0.1,
        confidence=0.95,
        certified=CertifiedSet.model_validate(
            {"of": "scored", "size": 4, "fingerprint": "f"} | certified
        ),
        labels=LabelCounts(origin="unknown", drawn=4, labelled=4, bad=0),
        bound=0.1,
        source="s",
    )


def test_a_certificate_s_condition_is_met_as_well() -> None:
    table = judged_table("poor", "borderline", "good", "excellent")
    held = certificate(rule="verdict >= 'borderline'")
    config = SelectConfig(where={"all": "n_turns >= 1"}, certificate=held)
    assert reasons(select(table, config)) == {"0": ("certified",)}
    assert questions(config)["select.where.certified"] == "verdict >= 'borderline'"
    # where the recipe says nothing it is all that must be met: no better half
    alone = SelectConfig(certificate=held)
    assert in_set(select(table, alone), "sft") == {"1", "2", "3"}
    assert filters(table, alone) == {"select.where.certified": "verdict >= 'borderline'"}


def test_a_certificate_of_the_set_itself_leaves_it_as_it_was() -> None:
    table = judged_table("poor", "good")
    config = SelectConfig(certificate=certificate(of="sft"))
    assert filters(table, config) == {"select.top.by": "mean_score"}
    assert filters(table, SelectConfig(certificate=certificate())) == {}


def test_a_certificate_must_be_of_dialogues_and_its_condition_must_be_sql() -> None:
    with pytest.raises(UsageError, match=r"for pairs[\s\S]*fork\.certificate"):
        SelectConfig(certificate=certificate(TrustKind.PAIR_CERTIFICATE))
    with pytest.raises(UsageError, match=r"select\.certificate reads a column"):
        SelectConfig(certificate=certificate(rule="nosuch > 1"))


# ---- the config


def test_sql_of_what_is_kept_of_duplicates_is_checked() -> None:
    assert SelectConfig.model_validate({"dedup": {"keep": "first"}}).needs_cleaning
    with pytest.raises(UsageError, match=r"select\.dedup\.keep cannot be ranked"):
        SelectConfig.model_validate({"dedup": {"keep": "role"}})


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({"path": "evals/gsm8k.jsonl"}, "gsm8k.jsonl"),
        ({"path": "evals/gsm8k/"}, "gsm8k"),
        ({"path": "/"}, "/"),
        ({"path": "evals/gsm8k.jsonl", "name": "math"}, "math"),
    ],
)
def test_what_reports_call_an_eval_set(given: dict[str, str], label: str) -> None:
    assert EvalSet.model_validate(given).label == label


def test_two_eval_sets_of_one_name_are_refused() -> None:
    sets = [{"path": "a/test.jsonl"}, {"path": "b/test.jsonl"}]
    with pytest.raises(UsageError, match=r"two eval sets[\s\S]*test\.jsonl, test\.jsonl"):
        SelectConfig.model_validate({"decontaminate": sets})
    sets[1]["name"] = "other"
    assert len(SelectConfig.model_validate({"decontaminate": sets}).decontaminate) == 2


@pytest.mark.parametrize(
    ("field", "fields"), [(None, ()), ("text", ("text",)), (["a", "b.c"], ("a", "b.c"))]
)
def test_the_columns_of_an_eval_set(field: object, fields: tuple[str, ...]) -> None:
    assert EvalSet.model_validate({"path": "a", "field": field}).fields == fields


@pytest.mark.parametrize(
    ("given", "threshold"),
    [
        ({}, None),
        ({"split": {}}, 0.8),
        ({"split": {}, "dedup": {"near": {"threshold": 0.6, "shingle": 2}}}, 0.6),
        ({"split": {"threshold": 0.9}, "dedup": {"near": {"threshold": 0.6}}}, 0.9),
        ({"split": {"threshold": 0.9}, "dedup": {"near": None}}, 0.9),
        ({"split": {"by": ["group"]}}, None),
    ],
)
def test_what_counts_as_near_in_a_split(given: dict[str, object], threshold: float | None) -> None:
    near = SelectConfig.model_validate({"where": {}} | given).split_near
    assert (near.threshold if near else None) == threshold
    if threshold == 0.6:
        assert near is not None
        assert near.shingle == 2
