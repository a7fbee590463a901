"""What each trainer's rows look like, and what each cannot carry and refuses.

The shapes are what the trainers' own readers take, read in their sources: axolotl 0.19, LLaMA-Factory 0.9.5,
OpenRLHF 0.11, verl 0.9, ms-swift 4.6; OpenAI's as its fine-tuning guide has them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from curate.dialogue import Message
from curate.export.config import ExportConfig, SalvageConfig
from curate.export.counts import ExportCounts
from curate.export.good_turns import MixedDialogue
from curate.export.trainers import Trainer
from curate.export.writing import ExportData, write_export
from tests.export.samples import (
    BAD,
    GOOD,
    TRACK,
    USER,
    call,
    dialogue,
    mixed_dialogue,
    pair,
    result,
    tool_dialogue,
    tool_pair,
)

THINKS = Message(role="assistant", content="Yes.", reasoning="They want a yes.")
SYSTEM = Message(role="system", content="You track parcels.")
BOTH = call("track", {"parcel": 81}, content="One moment.")


def export(folder: Path, trainer: Trainer, **data: Any) -> ExportCounts:
    options = data.pop("options", {})
    config = ExportConfig(salvage=SalvageConfig(), **options)
    return write_export(folder, trainer, ExportData(**data), config)


def lines(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def refusals(counts: ExportCounts, name: str) -> dict[str, int]:
    return dict(counts.refused[name])


class TestTrl:
    def test_a_reward_row_has_the_margin_that_was_measured(self, tmp_path: Path) -> None:
        counts = export(
            tmp_path, "trl", pairs=[pair("a"), pair("b", check=None)], natural=[pair("n")]
        )
        rows = lines(tmp_path / "reward.jsonl")
        assert [row.keys() for row in rows] == [{"prompt", "chosen", "rejected", "margin"}] * 2
        assert [row["margin"] for row in rows] == [1.5, 1.5]
        assert (
            counts.rows["reward"] == 2
        )  # one of each sort; the pair without a margin is a DPO row
        known = pl.read_parquet(tmp_path / "provenance.parquet").filter(pl.col("file") == "reward")
        assert known["pair_id"].to_list() == ["a", "n"]

    def test_a_kto_row_is_one_side_with_its_label(self, tmp_path: Path) -> None:
        export(tmp_path, "trl", pairs=[pair("a"), tool_pair("b")])
        rows = lines(tmp_path / "kto.jsonl")
        assert [(row["label"], "tools" in row) for row in rows] == [
            (True, False),
            (False, True),
            (True, True),
            (False, False),
        ]
        assert rows[0] == {
            "prompt": [said("user", USER.content)],
            "completion": [said("assistant", GOOD.content)],
            "label": True,
        }
        known = pl.read_parquet(tmp_path / "provenance.parquet").filter(pl.col("file") == "kto")
        assert known.select("row", "pair_id", "side").rows() == [
            (0, "a", "chosen"),
            (1, "b", "rejected"),
            (2, "b", "chosen"),
            (3, "a", "rejected"),
        ]

    def test_a_mixed_dialogue_gives_a_row_for_each_good_message(self, tmp_path: Path) -> None:
        counts = export(tmp_path, "trl", mixed=[MixedDialogue(mixed_dialogue(), (2,))])
        rows = lines(tmp_path / "sft_salvaged.jsonl")
        assert [[m["role"] for m in row["prompt"]] for row in rows] == [
            ["user", "assistant", "user"],
            ["user", "assistant", "user", "assistant", "tool"],
        ]
        assert "tool_calls" in rows[0]["completion"][0]
        assert rows[1]["completion"] == [said("assistant", GOOD.content)]
        assert all(orjson.loads(row["tools"]) == [TRACK] for row in rows)
        assert (counts.salvaged_dialogues, counts.salvaged_turns) == (1, 1)
        known = pl.read_parquet(tmp_path / "turn_provenance.parquet")
        assert known.select("file", "row", "dialogue_id", "turns", "messages").rows() == [
            ("sft_salvaged", 0, "mixed", [2], [3]),
            ("sft_salvaged", 1, "mixed", [2], [5]),
        ]

    def test_a_message_after_another_of_the_assistant_is_no_completion(
        self, tmp_path: Path
    ) -> None:
        twice = dialogue("twice", USER, GOOD, BAD)
        counts = export(tmp_path, "trl", mixed=[MixedDialogue(twice, (1,))])
        assert counts.rows["sft_salvaged"] == 1
        assert refusals(counts, "sft_salvaged") == {"prompt_not_open": 1}

    def test_unsloth_takes_the_same_files(self, tmp_path: Path) -> None:
        given: dict[str, Any] = {"sft": [tool_dialogue()], "pairs": [pair("a")]}
        for trainer in ("trl", "unsloth"):
            export(tmp_path / trainer, trainer, **given)  # type: ignore[arg-type]
        made = [
            {path.name: path.read_bytes() for path in (tmp_path / trainer).iterdir()}
            for trainer in ("trl", "unsloth")
        ]
        assert made[0] == made[1]


class TestAxolotl:
    def test_a_pair_is_messages_and_one_message_a_side(self, tmp_path: Path) -> None:
        named = USER.model_copy(update={"name": "Ann"})
        export(tmp_path, "axolotl", pairs=[pair(prompt=(SYSTEM, named))])
        assert lines(tmp_path / "dpo.jsonl") == [
            {
                "messages": [said("system", SYSTEM.content), said("user", USER.content)],
                "chosen": said("assistant", GOOD.content),
                "rejected": said("assistant", BAD.content),
            }
        ]

    @pytest.mark.parametrize(
        "fields",
        [
            {"tools": (TRACK,)},
            {"chosen": call("track", {"parcel": 81})},
            {"prompt": (USER, call("track", {"parcel": 81}), result("1"))},
        ],
    )
    def test_a_pair_with_tools_is_refused(self, tmp_path: Path, fields: dict[str, Any]) -> None:
        counts = export(tmp_path, "axolotl", pairs=[pair("t", **fields), pair("p")])
        assert counts.rows["dpo"] == 1
        assert refusals(counts, "dpo") == {"tools_not_carried": 1}
        [refused] = lines(tmp_path / "refused.jsonl")
        assert refused["pair_id"] == "t"
        assert "axolotl's DPO" in refused["detail"]

    def test_thinking_that_is_to_be_kept_is_refused_in_a_pair_and_carried_in_sft(
        self, tmp_path: Path
    ) -> None:
        counts = export(
            tmp_path,
            "axolotl",
            sft=[dialogue("t", USER, THINKS)],
            pairs=[pair(chosen=THINKS)],
            options={"keep_reasoning": True},
        )
        assert refusals(counts, "dpo") == {"reasoning_not_carried": 1}
        [row] = lines(tmp_path / "sft.jsonl")
        assert row["messages"][1]["reasoning_content"] == "They want a yes."

    def test_sft_carries_tools(self, tmp_path: Path) -> None:
        export(tmp_path, "axolotl", sft=[tool_dialogue()])
        [row] = lines(tmp_path / "sft.jsonl")
        assert orjson.loads(row["tools"]) == [TRACK]
        assert row["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"parcel": 81}

    def test_each_message_of_a_mixed_dialogue_says_whether_it_is_trained(
        self, tmp_path: Path
    ) -> None:
        export(tmp_path, "axolotl", mixed=[MixedDialogue(mixed_dialogue(), (2,))])
        [row] = lines(tmp_path / "sft_salvaged.jsonl")
        # what follows the last message to train on is left out: axolotl wants a row to end with one
        assert [m["train"] for m in row["messages"]] == [False, False, False, True, False, True]
        assert row["messages"][-1]["content"] == GOOD.content


class TestLlamaFactory:
    def test_a_pair_is_a_conversation_with_a_dict_a_side(self, tmp_path: Path) -> None:
        export(tmp_path, "llamafactory", pairs=[pair(prompt=(SYSTEM, USER))])
        assert lines(tmp_path / "dpo.jsonl") == [
            {
                "conversations": [{"from": "human", "value": USER.content}],
                "system": SYSTEM.content,
                "tools": "",
                "chosen": {"from": "gpt", "value": GOOD.content},
                "rejected": {"from": "gpt", "value": BAD.content},
            }
        ]

    def test_calls_are_messages_of_json(self, tmp_path: Path) -> None:
        export(tmp_path, "llamafactory", sft=[tool_dialogue()])
        [row] = lines(tmp_path / "sft.jsonl")
        assert [m["from"] for m in row["conversations"]] == [
            "human",
            "function_call",
            "observation",
            "gpt",
        ]
        assert orjson.loads(row["conversations"][1]["value"]) == {
            "name": "track",
            "arguments": {"parcel": 81},
        }
        assert orjson.loads(row["tools"]) == [TRACK]

    def test_several_calls_are_a_list(self, tmp_path: Path) -> None:
        one = call("track", {"parcel": 81})
        two = one.model_copy(update={"tool_calls": one.tool_calls * 2})
        export(tmp_path, "llamafactory", sft=[dialogue("two", USER, two, result("1"), GOOD)])
        [row] = lines(tmp_path / "sft.jsonl")
        assert len(orjson.loads(row["conversations"][1]["value"])) == 2

    def test_a_text_beside_a_call_stands_before_the_marked_json(self, tmp_path: Path) -> None:
        export(tmp_path, "llamafactory", sft=[dialogue("b", USER, BOTH, result("1"), GOOD)])
        [row] = lines(tmp_path / "sft.jsonl")
        assert row["conversations"][1]["value"] == (
            'One moment.\n<tool_call>{"name":"track","arguments":{"parcel":81}}</tool_call>'
        )

    def test_thinking_is_a_block_before_the_text(self, tmp_path: Path) -> None:
        export(
            tmp_path,
            "llamafactory",
            sft=[dialogue("t", USER, THINKS)],
            options={"keep_reasoning": True},
        )
        [row] = lines(tmp_path / "sft.jsonl")
        assert row["conversations"][1]["value"] == "<think>\nThey want a yes.\n</think>\n\nYes."

    @pytest.mark.parametrize(
        ("reason", "messages"),
        [
            ("not_alternating", (GOOD, USER, GOOD)),
            ("not_alternating", (USER, USER, GOOD)),
            ("not_alternating", (USER, GOOD, SYSTEM, USER, GOOD)),
            ("not_alternating", (SYSTEM, SYSTEM, USER, GOOD)),
            ("not_alternating", (USER, BOTH, result("1"), result("2"), GOOD)),
            ("marker_in_text", (USER, call("f", {"x": "</tool_call>"}), result("1"), GOOD)),
        ],
    )
    def test_what_its_reader_would_drop_or_break_on_is_refused(
        self, tmp_path: Path, reason: str, messages: tuple[Message, ...]
    ) -> None:
        counts = export(tmp_path, "llamafactory", sft=[dialogue("x", *messages), dialogue("a")])
        assert counts.rows["sft"] == 1
        assert refusals(counts, "sft") == {reason: 1}

    def test_dataset_info_declares_every_file_with_rows_in_full(self, tmp_path: Path) -> None:
        export(tmp_path, "llamafactory", sft=[dialogue("a")], natural=[pair("n")])
        info = orjson.loads((tmp_path / "dataset_info.json").read_bytes())
        tags = {
            "role_tag": "from",
            "content_tag": "value",
            "user_tag": "human",
            "assistant_tag": "gpt",
            "observation_tag": "observation",
            "function_tag": "function_call",
            "system_tag": "system",
        }
        columns = {"messages": "conversations", "system": "system", "tools": "tools"}
        assert info == {
            "curate_sft": {
                "file_name": "sft.jsonl",
                "formatting": "sharegpt",
                "columns": columns,
                "tags": tags,
            },
            "curate_dpo_natural": {
                "file_name": "dpo_natural.jsonl",
                "formatting": "sharegpt",
                "ranking": True,
                "columns": columns | {"chosen": "chosen", "rejected": "rejected"},
                "tags": tags,
            },
        }

    def test_dataset_info_declares_each_shard(self, tmp_path: Path) -> None:
        options = {"shard_rows": 1, "formats": ("parquet",)}
        export(tmp_path, "llamafactory", sft=[dialogue("a"), dialogue("b")], options=options)
        info = orjson.loads((tmp_path / "dataset_info.json").read_bytes())
        files = [entry["file_name"] for entry in info.values()]
        assert files == ["sft-00000-of-00002.parquet", "sft-00001-of-00002.parquet"]
        assert all((tmp_path / file).exists() for file in files)

    def test_a_mixed_dialogue_ends_with_each_good_message_or_weighs_them(
        self, tmp_path: Path
    ) -> None:
        export(tmp_path, "llamafactory", mixed=[MixedDialogue(mixed_dialogue(), (2,))])
        rows = lines(tmp_path / "sft_salvaged.jsonl")
        assert [row["conversations"][-1]["from"] for row in rows] == ["function_call", "gpt"]
        assert all(len(row["conversations"]) % 2 == 0 for row in rows)
        [row] = lines(tmp_path / "sft_salvaged_v1.jsonl")
        assert [m["loss_weight"] for m in row["messages"]] == [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]
        assert row["messages"][3]["content"] == [
            {"type": "tool_call", "value": '{"name":"track","arguments":{"parcel":81}}'}
        ]
        assert row["messages"][5]["content"] == [{"type": "text", "value": GOOD.content}]
        assert "curate_sft_salvaged_v1" not in (tmp_path / "dataset_info.json").read_text()


class TestOpenRlhf:
    def test_pairs_are_lists_and_reward_rows_have_a_margin(self, tmp_path: Path) -> None:
        export(tmp_path, "openrlhf", pairs=[pair("a")])
        row = {
            "prompt": [said("user", USER.content)],
            "chosen": [said("assistant", GOOD.content)],
            "rejected": [said("assistant", BAD.content)],
        }
        assert lines(tmp_path / "dpo.jsonl") == [row]
        assert lines(tmp_path / "reward.jsonl") == [row | {"margin": 1.5}]

    def test_tools_are_refused_everywhere(self, tmp_path: Path) -> None:
        mixed = [MixedDialogue(mixed_dialogue(), (2,))]
        counts = export(
            tmp_path, "openrlhf", sft=[tool_dialogue()], pairs=[tool_pair()], mixed=mixed
        )
        assert sum(counts.rows.values()) == 0
        for name, number in (("sft", 1), ("dpo", 1), ("reward", 1), ("sft_salvaged", 2)):
            assert refusals(counts, name) == {"tools_not_carried": number}

    def test_a_row_of_a_mixed_dialogue_ends_with_what_is_trained_on(self, tmp_path: Path) -> None:
        two = dialogue("two", USER, GOOD, USER, BAD, USER, GOOD)
        export(tmp_path, "openrlhf", mixed=[MixedDialogue(two, (1, 3))])
        rows = lines(tmp_path / "sft_salvaged.jsonl")
        assert [len(row["messages"]) for row in rows] == [2, 6]
        assert all(row["messages"][-1]["content"] == GOOD.content for row in rows)


class TestVerl:
    def test_it_gets_parquet_only(self, tmp_path: Path) -> None:
        export(tmp_path, "verl", sft=[dialogue("a")], options={"formats": ("jsonl",)})
        assert {path.suffix for path in tmp_path.iterdir()} == {".parquet", ".jsonl"}
        assert [path.name for path in tmp_path.glob("*.jsonl")] == ["refused.jsonl"]
        [row] = pl.read_parquet(tmp_path / "sft.parquet").rows(named=True)
        assert row == {"messages": [said("user", USER.content), said("assistant", GOOD.content)]}

    def test_a_reward_row_is_three_texts(self, tmp_path: Path) -> None:
        export(tmp_path, "verl", pairs=[pair(prompt=(SYSTEM, USER, BAD, USER))])
        [row] = pl.read_parquet(tmp_path / "rm.parquet").rows(named=True)
        assert row == {
            "prompt": f"\n\nSystem: {SYSTEM.content}\n\nHuman: {USER.content}\n\nAssistant: {BAD.content}"
            f"\n\nHuman: {USER.content}\n\nAssistant: ",
            "chosen": GOOD.content,
            "rejected": BAD.content,
        }

    def test_a_text_that_would_open_a_message_is_refused(self, tmp_path: Path) -> None:
        spoken = [
            Message(role="assistant", content=text)
            for text in ("Well.\n\nHuman: no", "Human: hm", "\nAssistant: yes")
        ]
        pairs = [pair(str(n), chosen=message) for n, message in enumerate(spoken)]
        counts = export(tmp_path, "verl", pairs=pairs)
        assert (counts.rows["rm"], refusals(counts, "rm")) == (2, {"marker_in_text": 1})

    def test_tools_and_masks_are_refused(self, tmp_path: Path) -> None:
        plain = dialogue("plain", USER, GOOD, USER, BAD)
        counts = export(
            tmp_path,
            "verl",
            sft=[tool_dialogue()],
            pairs=[tool_pair()],
            mixed=[MixedDialogue(plain, (1,))],
        )
        assert refusals(counts, "sft") == {"tools_not_carried": 1}
        assert refusals(counts, "rm") == {"tools_not_carried": 1}
        assert refusals(counts, "sft_salvaged") == {"mask_not_carried": 1}


class TestSwift:
    def test_a_pair_is_two_whole_conversations(self, tmp_path: Path) -> None:
        export(tmp_path, "swift", pairs=[tool_pair()])
        [row] = lines(tmp_path / "dpo.jsonl")
        prompt = [
            said("user", USER.content, loss=False),
            said("tool_call", '{"name":"track","arguments":{"parcel":81}}', loss=False),
            said("tool_response", '{"at": "depot"}', loss=False),
        ]
        assert row["messages"] == [*prompt, said("assistant", GOOD.content, loss=True)]
        assert row["rejected_messages"] == [*prompt, said("assistant", BAD.content, loss=True)]
        assert row["tools"] == row["rejected_tools"]
        assert orjson.loads(row["tools"]) == [TRACK]

    def test_a_text_beside_a_call_is_a_message_before_it(self, tmp_path: Path) -> None:
        export(tmp_path, "swift", sft=[dialogue("b", USER, BOTH, result("1"), GOOD)])
        [row] = lines(tmp_path / "sft.jsonl")
        assert [m["role"] for m in row["messages"]] == [
            "user",
            "assistant",
            "tool_call",
            "tool_response",
            "assistant",
        ]

    def test_each_message_of_a_mixed_dialogue_says_its_loss(self, tmp_path: Path) -> None:
        export(tmp_path, "swift", mixed=[MixedDialogue(mixed_dialogue(), (2,))])
        [row] = lines(tmp_path / "sft_salvaged.jsonl")
        assert [(m["role"], m["loss"]) for m in row["messages"]] == [
            ("user", False),
            ("assistant", False),
            ("user", False),
            ("tool_call", True),
            ("tool_response", False),
            ("assistant", True),
        ]

    def test_a_reward_row_has_a_margin(self, tmp_path: Path) -> None:
        export(tmp_path, "swift", pairs=[pair("a")])
        [row] = lines(tmp_path / "reward.jsonl")
        assert row.keys() == {"messages", "rejected_messages", "margin"}


class TestOpenAi:
    def test_it_gets_json_lines_only(self, tmp_path: Path) -> None:
        export(tmp_path, "openai", sft=[dialogue("a")], options={"formats": ("parquet",)})
        assert [path.name for path in sorted(tmp_path.glob("sft.*"))] == ["sft.jsonl"]

    def test_a_pair_is_an_input_and_two_outputs(self, tmp_path: Path) -> None:
        export(tmp_path, "openai", pairs=[tool_pair()])
        [row] = lines(tmp_path / "dpo.jsonl")
        arguments = '{"parcel":81}'
        function = {"name": "track", "arguments": arguments}
        assert row == {
            "input": {
                "messages": [
                    said("user", USER.content),
                    said(
                        "assistant",
                        "",
                        tool_calls=[{"id": "call_1", "type": "function", "function": function}],
                    ),
                    said("tool", '{"at": "depot"}', tool_call_id="call_1"),
                ],
                "tools": [TRACK],
            },
            "preferred_output": [said("assistant", GOOD.content)],
            "non_preferred_output": [said("assistant", BAD.content)],
        }

    def test_ids_that_are_missing_are_numbered_and_answered_in_order(self, tmp_path: Path) -> None:
        one = call("track", {"parcel": 81}).tool_calls[0].model_copy(update={"id": None})
        two = Message(role="assistant", tool_calls=(one, one))
        answers = [Message(role="tool", content=text) for text in ("1", "2")]
        export(tmp_path, "openai", sft=[dialogue("x", USER, two, *answers, GOOD)])
        [row] = lines(tmp_path / "sft.jsonl")
        assert [c["id"] for c in row["messages"][1]["tool_calls"]] == ["call_1", "call_2"]
        assert [m.get("tool_call_id") for m in row["messages"][2:4]] == ["call_1", "call_2"]

    def test_a_result_without_a_call_is_refused(self, tmp_path: Path) -> None:
        counts = export(
            tmp_path, "openai", sft=[dialogue("x", USER, GOOD, USER, result("1"), GOOD)]
        )
        assert refusals(counts, "sft") == {"result_without_call": 1}

    def test_messages_of_the_assistant_weigh_nothing_or_one(self, tmp_path: Path) -> None:
        export(tmp_path, "openai", mixed=[MixedDialogue(mixed_dialogue(), (2,))])
        [row] = lines(tmp_path / "sft_salvaged.jsonl")
        assert [m.get("weight") for m in row["messages"]] == [None, 0, None, 1, None, 1]

    def test_thinking_that_is_to_be_kept_has_no_place(self, tmp_path: Path) -> None:
        counts = export(
            tmp_path,
            "openai",
            sft=[dialogue("t", USER, THINKS)],
            options={"keep_reasoning": True},
        )
        assert refusals(counts, "sft") == {"reasoning_not_carried": 1}
