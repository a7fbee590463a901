"""OASST trees, nested and flat, and tables with one row a message."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sources.conftest import Loaded, said

Rows = Callable[..., Loaded]


def node(
    name: str, *replies: dict[str, Any], rank: int | None = None, **more: Any
) -> dict[str, Any]:
    role = "prompter" if name.startswith("u") else "assistant"
    return {
        "message_id": name,
        "text": name,
        "role": role,
        "rank": rank,
        "replies": list(replies),
        **more,
    }


def tree(root: dict[str, Any]) -> dict[str, Any]:
    return {"message_tree_id": f"tree-{root['message_id']}", "prompt": root}


def flattened(root: dict[str, Any], parent: str | None = None) -> list[dict[str, Any]]:
    own = {key: value for key, value in root.items() if key != "replies"} | {"parent_id": parent}
    return [
        own,
        *(row for reply in root["replies"] for row in flattened(reply, root["message_id"])),
    ]


SMALL = node(
    "u0",
    node("a1", node("u2", node("a3")), rank=1),
    node("a4", node("u5"), node("u6"), rank=0),
    node("a7", node("u8", node("a9")), deleted=True),
    lang="es",
)


def texts(loaded: Loaded) -> list[list[str]]:
    return [[text for _, text in said(dialogue)] for dialogue in loaded.dialogues]


def test_every_path_is_a_dialogue_cut_back_and_deduplicated(rows: Rows) -> None:
    loaded = rows(tree(SMALL))
    assert texts(loaded) == [["u0", "a1", "u2", "a3"], ["u0", "a4"]]
    first, second = loaded.dialogues
    assert first.labels["message_ranks"] == [None, 1, None, None]
    assert second.labels["message_ranks"] == [None, 0]
    assert first.metadata["message_ids"] == ["u0", "a1", "u2", "a3"]
    assert first.metadata["lang"] == "es"
    assert first.group == second.group == "tree-u0"
    assert (first.id, second.id) == ("tree-u0/a3", "tree-u0/a4")
    (deleted,) = loaded.quarantined
    assert (deleted.part, deleted.reason) == ("a7", "deleted")
    assert loaded.tally.rows_used == 1


def test_labels_of_messages_are_read_in_both_forms(rows: Rows) -> None:
    listed = {"name": ["spam", "quality"], "value": [0, 0.75], "count": [3, 3]}
    by_name = {"spam": {"value": 0, "count": 3}, "quality": 0.75}
    root = node("u0", node("a1", labels=by_name), labels=listed)
    expected = {"spam": 0, "quality": 0.75}
    for loaded in (rows(tree(root)), rows(*flattened(root))):
        assert loaded.dialogues[0].labels["message_labels"] == [expected, expected]
    half = rows(tree(node("u0", node("a1", labels=listed), labels={})))
    assert half.dialogues[0].labels["message_labels"] == [None, expected]
    assert "message_labels" not in rows(tree(node("u0", node("a1")))).dialogues[0].labels


def test_an_empty_question_goes_with_all_below_it(rows: Rows) -> None:
    root = node("u0", node("a1"), node("a2", node("u3", node("a4"), text=" ")))
    loaded = rows(tree(root))
    assert texts(loaded) == [["u0", "a1"], ["u0", "a2"]]
    assert [(part.part, part.reason) for part in loaded.quarantined] == [("u3", "empty_user")]
    flat = rows(*flattened(root))
    assert texts(flat) == [["u0", "a1"], ["u0", "a2"]]
    assert {row.row: row.reason for row in flat.quarantined} == {
        4: "empty_user",
        5: "missing_parent",
    }


def test_a_tree_without_an_assistant_is_quarantined(rows: Rows) -> None:
    loaded = rows(tree(node("u0", node("u1"))), tree(node("u2", deleted=True)), tree(SMALL))
    assert dict(loaded.tally.reasons) == {"no_assistant": 1, "deleted": 1}


def test_a_very_deep_tree_is_read_without_recursion(rows: Rows) -> None:
    root = node("u100")
    for depth in range(99, -1, -1):
        root = node(f"{'ua'[depth % 2]}{depth}", root)
    loaded = rows(tree(root))
    assert len(loaded.dialogues[0].messages) == 100


def test_flat_rows_in_any_order_give_the_same_dialogues(rows: Rows) -> None:
    flat = flattened(SMALL)
    random.Random(3).shuffle(flat)
    loaded = rows(*flat)
    assert loaded.shape == "oasst"
    nested = rows(tree(SMALL))
    assert sorted(texts(loaded)) == sorted(texts(nested))
    # u5, u6: unanswered; a7: deleted; u8, a9: below it.
    assert dict(loaded.tally.reasons) == {"no_assistant": 2, "deleted": 1, "missing_parent": 2}
    assert (loaded.tally.rows_in, loaded.tally.rows_used) == (10, 5)
    for dialogue in loaded.dialogues:
        assert dialogue.lineage is not None
        assert len(dialogue.lineage.rows) == len(dialogue.messages)


def test_a_root_that_is_answered_by_nobody_is_a_dialogue_of_one_message(rows: Rows) -> None:
    for loaded in (rows(tree(node("a0", rank=2))), rows(*flattened(node("a0", rank=2)))):
        (dialogue,) = loaded.dialogues
        assert texts(loaded) == [["a0"]]
        assert dialogue.labels == {"message_ranks": [2], "best_ranks": [None]}


def test_flat_orphans_duplicates_and_cycles_are_quarantined(rows: Rows) -> None:
    good = flattened(node("u0", node("a1")))
    orphan = {"message_id": "a2", "parent_id": "gone", "role": "assistant", "text": "x"}
    cycle = [
        {"message_id": "c1", "parent_id": "c2", "role": "assistant", "text": "x"},
        {"message_id": "c2", "parent_id": "c1", "role": "assistant", "text": "x"},
    ]
    loaded = rows(*good, orphan, *cycle, good[1], {**orphan, "message_id": None})
    assert dict(loaded.tally.reasons) == {
        "missing_parent": 3,
        "duplicate_message": 1,
        "missing_field": 1,
    }
    assert loaded.tally.rows_used == 2


def test_table_groups_and_orders_its_rows(rows: Rows) -> None:
    table = [
        {
            "conversation_id": key,
            "turn": turn,
            "speaker": who,
            "utterance": f"{key}{turn}",
            "lang": key,
        }
        for turn, who in ((10, "agent"), (9, "customer"))
        for key in ("a", "b")
    ]
    loaded = rows(*table)
    assert loaded.shape == "turns_table"
    assert texts(loaded) == [["a9", "a10"], ["b9", "b10"]]
    first = loaded.dialogues[0]
    assert (first.id, first.metadata) == ("a", {"lang": "a"})
    assert first.lineage is not None
    assert sorted(first.lineage.rows) == [1, 3]
    assert (loaded.tally.rows_in, loaded.tally.dialogues) == (4, 2)


def test_table_columns_by_name(rows: Rows) -> None:
    table = [{"k": 1, "n": n, "wer": who, "was": str(n)} for n, who in ((2, "bot"), (1, "human"))]
    columns = {"conversation": "k", "order": "n", "role": "wer", "text": "was"}
    assert texts(rows(*table, columns=columns)) == [["1", "2"]]


def test_a_conversation_with_a_hole_is_not_used(rows: Rows) -> None:
    table = [
        {"conversation_id": "a", "role": "user", "text": "1"},
        {"conversation_id": "a", "role": "narrator", "text": "2"},
        {"conversation_id": "a", "role": "assistant", "text": "3"},
        {"conversation_id": "b", "role": "user", "text": "1"},
        {"conversation_id": "b", "role": "assistant", "text": "2"},
        {"conversation_id": None, "role": "assistant", "text": "2"},
    ]
    loaded = rows(*table)
    assert texts(loaded) == [["1", "2"]]
    assert dict(loaded.tally.reasons) == {
        "unknown_role": 1,
        "incomplete_conversation": 2,
        "missing_field": 1,
    }
    details = {row.row: row.detail for row in loaded.quarantined}
    assert details.pop(2).startswith("'narrator' (known: system, ")
    assert details == {
        1: "row 2: unknown_role",
        3: "row 2: unknown_role",
        6: "no conversation_id",
    }


def test_rows_without_the_columns_of_a_table_say_which_are_missing(rows: Rows) -> None:
    loaded = rows({"a": 1}, {"b": 2}, shape="turns_table")
    assert [(row.row, row.reason, row.detail) for row in loaded.quarantined] == [
        (number, "missing_field", "no conversation id, role and text columns") for number in (1, 2)
    ]


def test_limit_counts_conversations_where_one_spans_rows(rows: Rows) -> None:
    table = [
        {"conversation_id": key, "role": who, "text": who}
        for key in "abc"
        for who in ("user", "assistant")
    ]
    loaded = rows(*table, limit=2)
    assert (loaded.tally.rows_in, loaded.tally.dialogues) == (4, 2)
