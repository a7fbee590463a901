"""What is written, what is refused, and that nothing gets lost between the two."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message
from curate.errors import CurateError
from curate.export.config import ExportConfig
from curate.export.counts import ExportCounts
from curate.export.template_messages import Refused, wire_tools
from curate.export.writing import ExportData, write_export
from curate.records import PreferencePair
from tests.export.samples import (
    BAD,
    GOOD,
    TRACK,
    USER,
    call,
    dialogue,
    pair,
    renew_dialogue,
    result,
    tool_dialogue,
    tool_pair,
)


def run(
    folder: Path,
    sft: Iterable[Dialogue] = (),
    pairs: Iterable[PreferencePair] = (),
    natural: Iterable[PreferencePair] = (),
    **options: Any,
) -> ExportCounts:
    data = ExportData(sft=sft, pairs=pairs, natural=natural)
    return write_export(folder, "trl", data, ExportConfig(**({"kinds": ("sft", "dpo")} | options)))


def lines(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


class TestSft:
    def test_a_row_is_messages_and_nothing_else(self, tmp_path: Path) -> None:
        run(tmp_path, [dialogue("a", labels={"x": 1}, scenario="s", role_definition="r")])
        assert lines(tmp_path / "sft.jsonl") == [
            {
                "messages": [
                    {"role": "user", "content": "Where is parcel 81?"},
                    {
                        "role": "assistant",
                        "content": "It left the depot at nine and arrives today.",
                    },
                ]
            }
        ]

    def test_what_follows_the_last_assistant_message_is_cut_and_counted(
        self, tmp_path: Path
    ) -> None:
        asked = Message(role="user", content="And then?")
        counts = run(tmp_path, [dialogue("a", USER, GOOD, asked, asked), dialogue("b")])
        rows = lines(tmp_path / "sft.jsonl")
        assert [row["messages"][-1]["role"] for row in rows] == ["assistant", "assistant"]
        assert counts.dialogues_cut == 1
        known = pl.read_parquet(tmp_path / "sft_provenance.parquet")
        assert known["messages_cut"].to_list() == [2, 0]

    def test_a_greeting_before_the_first_user_message_stays(self, tmp_path: Path) -> None:
        greeting = Message(role="assistant", content="Good morning.")
        run(tmp_path, [dialogue("a", greeting, USER, GOOD)])
        assert lines(tmp_path / "sft.jsonl")[0]["messages"][0]["content"] == "Good morning."

    def test_only_what_is_trained_on_is_stripped(self, tmp_path: Path) -> None:
        asked = Message(role="user", content="    x = 1\n")
        answer = Message(role="assistant", content="\n Fine. \n")
        run(tmp_path, [dialogue("a", asked, answer)])
        texts = [m["content"] for m in lines(tmp_path / "sft.jsonl")[0]["messages"]]
        assert texts == ["    x = 1\n", "Fine."]

    def test_reasoning_is_written_only_where_asked_for(self, tmp_path: Path) -> None:
        thinking = Message(role="assistant", content="Yes.", reasoning="They want a yes.")
        run(tmp_path, [dialogue("a", USER, thinking)])
        assert "reasoning" not in (tmp_path / "sft.jsonl").read_text()
        run(tmp_path, [dialogue("a", USER, thinking)], keep_reasoning=True)
        kept = lines(tmp_path / "sft.jsonl")[0]["messages"][1]
        assert kept["reasoning_content"] == "They want a yes."

    def test_the_role_becomes_a_system_message_only_where_asked_for(self, tmp_path: Path) -> None:
        own = dialogue(
            "own", Message(role="system", content="Own."), USER, GOOD, role_definition="R"
        )
        given_role = dialogue("given", role_definition="You track parcels.")
        assert run(tmp_path, [given_role, own]).roles_added == 0
        assert lines(tmp_path / "sft.jsonl")[0]["messages"][0]["role"] == "user"
        assert (
            run(tmp_path, [given_role, own, dialogue("none")], role_as_system=True).roles_added == 1
        )
        first = [row["messages"][0] for row in lines(tmp_path / "sft.jsonl")]
        assert first == [
            {"role": "system", "content": "You track parcels."},
            {"role": "system", "content": "Own."},
            {"role": "user", "content": USER.content},
        ]

    def test_tool_calls_keep_arguments_as_objects_and_no_key_is_null(self, tmp_path: Path) -> None:
        run(tmp_path, [tool_dialogue()])
        row = lines(tmp_path / "sft.jsonl")[0]
        assert row["messages"][1] == {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "track", "arguments": {"parcel": 81}},
                }
            ],
        }
        assert row["messages"][2]["tool_call_id"] == "call_1"
        assert orjson.loads(row["tools"]) == [TRACK]
        assert "null" not in (tmp_path / "sft.jsonl").read_text()


class TestPairs:
    def test_a_row_has_one_message_a_side_after_the_exact_prompt(self, tmp_path: Path) -> None:
        asked = Message(role="user", content=" Where? ")
        answer = Message(role="assistant", content=" There. ", reasoning="hm")
        run(tmp_path, pairs=[pair(prompt=(asked,), chosen=answer)], natural=[tool_pair()])
        assert lines(tmp_path / "dpo.jsonl") == [
            {
                "prompt": [{"role": "user", "content": " Where? "}],
                "chosen": [{"role": "assistant", "content": "There."}],
                "rejected": [{"role": "assistant", "content": "No idea."}],
            }
        ]
        natural = lines(tmp_path / "dpo_natural.jsonl")[0]
        assert natural.keys() == {"prompt", "chosen", "rejected", "tools"}
        assert natural["prompt"][-1]["role"] == "tool"

    @pytest.mark.parametrize(
        ("reason", "fields"),
        [
            ("not_verified", {"drop_reason": "order_flip"}),
            ("no_chosen", {"chosen": None}),
            ("side_not_assistant", {"rejected": USER}),
            ("prompt_not_open", {"prompt": (USER, GOOD)}),
            ("prompt_not_open", {"prompt": ()}),
            ("no_user", {"prompt": (result("81"),)}),
            ("empty_assistant", {"rejected": Message(role="assistant", content=" \n")}),
            (
                "identical_sides",
                {"rejected": GOOD.model_copy(update={"content": GOOD.content + " "})},
            ),
            ("identical_sides", {"rejected": GOOD.model_copy(update={"reasoning": "other"})}),
            ("arguments_not_object", {"chosen": call("track", '{"parcel": ')}),
            ("not_json", {"chosen": call("track", {"parcel": float("nan")})}),
            ("not_json", {"chosen": call("track", {"parcel": 2**64})}),
            ("tool_without_name", {"tools": ({"type": "function", "function": {}},)}),
        ],
    )
    def test_what_cannot_be_carried_is_refused_with_its_reason(
        self, tmp_path: Path, reason: str, fields: dict[str, Any]
    ) -> None:
        counts = run(tmp_path, pairs=[pair("bad", **fields), pair("good")])
        assert (counts.rows["dpo"], counts.refused["dpo"]) == (1, {reason: 1})
        refused = lines(tmp_path / "refused.jsonl")
        assert [(r["file"], r["pair_id"], r["reason"]) for r in refused] == [("dpo", "bad", reason)]
        assert refused[0]["detail"]
        assert pl.read_parquet(tmp_path / "provenance.parquet")["pair_id"].to_list() == ["good"]

    def test_sides_that_differ_only_in_call_ids_are_identical(self, tmp_path: Path) -> None:
        first = call("track", {"parcel": 81})
        other = first.model_copy(
            update={"tool_calls": (first.tool_calls[0].model_copy(update={"id": "call_9"}),)}
        )
        counts = run(tmp_path, pairs=[pair(chosen=first, rejected=other)])
        assert counts.refused["dpo"] == {"identical_sides": 1}

    def test_a_pair_id_stands_once_in_the_whole_export(self, tmp_path: Path) -> None:
        counts = run(tmp_path, pairs=[pair("x"), pair("x")], natural=[pair("x")])
        assert counts.rows["dpo"] == 1
        assert counts.refused["dpo"] == counts.refused["dpo_natural"] == {"duplicate_pair_id": 1}

    def test_reasoning_that_is_kept_can_tell_the_sides_apart(self, tmp_path: Path) -> None:
        other = GOOD.model_copy(update={"reasoning": "careless"})
        counts = run(tmp_path, pairs=[pair(rejected=other)], keep_reasoning=True)
        assert counts.rows["dpo"] == 1


class TestSidecars:
    def test_every_row_is_found_by_its_number(self, tmp_path: Path) -> None:
        plain = [
            dialogue(f"plain-{i}", Message(role="user", content=f"{i}?"), GOOD) for i in range(3)
        ]
        run(tmp_path, [*plain, tool_dialogue(), renew_dialogue(), tool_dialogue("again")])
        rows = lines(tmp_path / "sft.jsonl")
        known = pl.read_parquet(tmp_path / "sft_provenance.parquet")
        assert known["row"].to_list() == list(range(6))
        found = {
            rows[row]["messages"][0]["content"]: name
            for name, row in known.select("dialogue_id", "row").iter_rows()
        }
        assert found["0?"] == "plain-0"
        assert found["2?"] == "plain-2"
        assert found["Keep my book two more weeks."] == "renewed"
        assert known["lineage_rows"].to_list()[0] == [3, 4]

    def test_a_pair_keeps_all_that_is_known_about_it(self, tmp_path: Path) -> None:
        run(tmp_path, pairs=[pair("a"), tool_pair("b")], natural=[pair("c", check=None, turn=None)])
        known = pl.read_parquet(tmp_path / "provenance.parquet")
        assert known.select("pair_id", "file", "row").rows() == [
            ("a", "dpo", 0),
            ("b", "dpo", 1),
            ("c", "dpo_natural", 0),
        ]
        first = known.row(0, named=True)
        assert first == {
            "pair_id": "a",
            "file": "dpo",
            "row": 0,
            "dialogue_id": "of-a",
            "content_hash": "0" * 32,
            "source": "revision",
            "basis": "judge",
            "turn": 2,
            "side": None,
            "margin": 1.5,
            "noise": 0.2,
            "preference": None,
            "probability": None,
            "decided_by": None,
            "token_ratio": 1.1,
            "judge": "scripted:judge",
            "policy": "scripted:policy",
            "issue": "gives up at once",
            "lineage_source": "sample",
            "lineage_file": "a.jsonl",
            "lineage_rows": [7],
            "lineage_part": None,
        }


class TestFolder:
    def test_a_row_of_a_new_kind_goes_to_the_head(self, tmp_path: Path) -> None:
        plain = [dialogue(f"{i}") for i in range(50)]
        run(tmp_path, [*plain, tool_dialogue(), tool_dialogue(), renew_dialogue()])
        with_tools = ["tools" in row for row in lines(tmp_path / "sft.jsonl")]
        assert with_tools == [False, True, True] + [False] * 49 + [True]

    def test_the_same_input_gives_the_same_bytes(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            run(tmp_path / name, [dialogue("a"), tool_dialogue()], [pair("x")], [tool_pair()])
        one, two = (
            {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
            for name in ("one", "two")
        )
        assert one == two
        assert len(one) == 9

    def test_an_export_without_rows_leaves_empty_files_not_old_ones(self, tmp_path: Path) -> None:
        run(tmp_path, [dialogue("a")], [pair("x")])
        counts = run(tmp_path)
        assert counts.rows == {"sft": 0, "dpo": 0, "dpo_natural": 0}
        assert (tmp_path / "sft.jsonl").read_bytes() == b""
        assert pl.read_parquet(tmp_path / "dpo.parquet").columns == ["prompt", "chosen", "rejected"]
        assert pl.read_parquet(tmp_path / "provenance.parquet").height == 0

    def test_a_format_that_is_no_longer_wanted_does_not_stay_behind(self, tmp_path: Path) -> None:
        run(tmp_path, [dialogue("a")])
        run(tmp_path, [dialogue("b")], formats=("jsonl",))
        assert {path.suffix for path in tmp_path.glob("sft.*")} == {".jsonl"}
        run(tmp_path, [dialogue("b")], formats=("parquet",))
        assert {path.suffix for path in tmp_path.glob("sft.*")} == {".parquet"}
        (tmp_path / "notes.txt").write_text("mine")
        run(tmp_path)
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_an_export_that_breaks_off_leaves_the_earlier_one(self, tmp_path: Path) -> None:
        run(tmp_path, [dialogue("a")], [pair("x")])
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

        def torn() -> Iterable[Dialogue]:
            yield dialogue("b")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, torn())
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    def test_a_folder_that_cannot_be_written_is_an_error_with_a_name(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CurateError, match="cannot write the export in"):
            run(tmp_path / "file" / "trl", [dialogue("a")])

    def test_counts_for_the_manifest_name_files_and_reasons(self, tmp_path: Path) -> None:
        alone = dialogue("alone", USER)
        counts = run(tmp_path, [alone, dialogue("a")], [pair("x", rejected=GOOD)])
        assert counts.as_dict() == {
            "sft": 1,
            "dpo": 0,
            "dpo_natural": 0,
            "dialogues_cut": 0,
            "roles_added": 0,
            "refused_sft": 1,
            "refused_sft_no_assistant": 1,
            "refused_dpo": 1,
            "refused_dpo_identical_sides": 1,
            "refused_dpo_natural": 0,
        }


class TestTools:
    def test_bare_and_anthropic_definitions_become_functions(self) -> None:
        schema = {"type": "object", "properties": {}}
        given_tools = [
            {"name": "a", "parameters": schema},
            {"name": "b", "input_schema": schema},
            {"type": "function", "name": "c", "parameters": schema},
            TRACK,
        ]
        wired = orjson.loads(wire_tools(given_tools) or "")
        assert [tool["function"]["name"] for tool in wired] == ["a", "b", "c", "track"]
        assert {tool["type"] for tool in wired} == {"function"}
        assert all(tool["function"]["parameters"]["type"] == "object" for tool in wired)

    def test_no_tools_is_no_column(self) -> None:
        assert wire_tools(()) is None

    def test_a_definition_without_a_name_is_refused(self) -> None:
        with pytest.raises(Refused, match="tool_without_name"):
            wire_tools([{"description": "does something"}])


messages = st.lists(
    st.one_of(
        st.builds(
            Message,
            role=st.sampled_from(["system", "user", "assistant", "tool"]),
            content=st.text(max_size=8),
        ),
        st.just(call("track", {"parcel": 1})),
        st.just(call("track", "broken")),
    ),
    max_size=6,
)


@given(st.lists(messages, max_size=6), st.lists(st.tuples(messages, messages), max_size=6))
def test_every_row_is_written_or_refused_and_obeys_the_rules(
    tmp_path_factory: pytest.TempPathFactory,
    dialogues: list[list[Message]],
    sides: list[tuple[list[Message], list[Message]]],
) -> None:
    folder = tmp_path_factory.mktemp("export")
    sft = [Dialogue(id=str(i), messages=tuple(made)) for i, made in enumerate(dialogues)]
    pairs = [
        pair(
            str(i),
            prompt=tuple(prompt),
            chosen=side[0] if side else None,
            rejected=side[-1] if side else BAD,
        )
        for i, (prompt, side) in enumerate(sides)
    ]
    counts = run(folder, sft, pairs)
    assert counts.rows["sft"] + counts.refused["sft"].total() == len(sft)
    assert counts.rows["dpo"] + counts.refused["dpo"].total() == len(pairs)
    assert len(lines(folder / "refused.jsonl")) == sum(r.total() for r in counts.refused.values())
    for row in lines(folder / "sft.jsonl"):
        assert row["messages"][-1]["role"] == "assistant"
    for row in lines(folder / "dpo.jsonl"):
        assert row["prompt"][-1]["role"] in ("user", "tool")
        assert [m["role"] for m in row["chosen"] + row["rejected"]] == ["assistant"] * 2
        assert row["chosen"] != row["rejected"]
        for side in (row["chosen"][0], row["rejected"][0]):
            assert side["content"] == side["content"].strip()
