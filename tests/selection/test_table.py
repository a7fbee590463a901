import math
from pathlib import Path

import polars as pl
import pytest

from curate.dialogue import Message, ToolCall
from curate.records import JudgeIdentity
from curate.selection import table as module
from curate.selection.columns import COLUMNS, SCHEMA
from curate.selection.table import mixed_identities, score_table
from tests.selection.rows import adherence, dialogue, judgment, unscored


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
