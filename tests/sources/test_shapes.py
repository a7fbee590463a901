"""Every shape of FORMATS.md loads with no shape given, and gives what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import get_args

import pytest

from curate.dialogue import Dialogue, Message, ToolCall
from curate.sources import FORMATS, Shape
from tests.sources.conftest import Loaded, said

Rows = Callable[..., Loaded]
ASK = {"role": "user", "content": "Hi"}
TELL = {"role": "assistant", "content": "Hello"}
EXCHANGE = [("user", "Hi"), ("assistant", "Hello")]

SIMPLE = {
    "messages": {"messages": [ASK, TELL]},
    "sharegpt": {
        "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    },
    "sharegpt role/text": {
        "conversations": [{"role": "user", "text": "Hi"}, {"role": "bot", "text": "Hello"}]
    },
    "conversation": {"conversation": [ASK, TELL]},
    "conversation of exchanges": {"conversation": [{"input": "Hi", "output": "Hello"}]},
    "card": {
        "dialogue": [
            {"turn": 1, "role": "user", "text": "Hi"},
            {"turn": 1, "role": "assistant", "text": "Hello"},
        ]
    },
    "gaussia": {"conversation": [{"qa_id": "1", "query": "Hi", "assistant": "Hello"}]},
    "hh": {"text": "\n\nHuman: Hi\n\nAssistant: Hello"},
    "ultrachat": {"data": ["Hi", "Hello"]},
    "alpaca": {"instruction": "Hi", "input": "", "output": "Hello"},
    "alpaca prompt/completion": {"prompt": "Hi", "completion": "Hello"},
    "history": {"history": [{"user": "Hi", "bot": "Hello"}]},
    "history pairs": {"history": [], "query": "Hi", "response": "Hello"},
    "trajectory": {"traj": [ASK, TELL], "reward": 1.0},
}


@pytest.mark.parametrize("name", SIMPLE)
def test_one_exchange_in_every_shape(rows: Rows, name: str) -> None:
    loaded = rows(SIMPLE[name])
    assert loaded.shape == name.split()[0]
    assert loaded.source.detection.confidence == 1.0
    (dialogue,) = loaded.dialogues
    assert said(dialogue) == EXCHANGE
    assert dialogue.id == "data-1"
    assert dialogue.lineage is not None
    assert dialogue.lineage.rows == (1,)
    assert dialogue.lineage.source == "data"


def test_the_config_knows_every_format() -> None:
    assert set(get_args(Shape)) == {"auto"} | {known.name for known in FORMATS}


# ---- messages -----------------------------------------------------------------------------------


def test_openai_tools_null_content_and_developer(rows: Rows) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
    schema = {"type": "function", "function": {"name": "find"}}
    row = {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "3", "tool_call_id": "c1", "name": "find"},
            TELL,
        ],
        "tools": json.dumps([schema]),
    }
    (dialogue,) = rows(row).dialogues
    system, user, calling, result, _ = dialogue.messages
    assert (system.role, user.content) == ("system", "a\nb")
    assert calling.content == ""
    assert calling.tool_calls == (ToolCall(name="find", arguments={"q": 1}, id="c1"),)
    assert (result.role, result.tool_call_id, result.name) == ("tool", "c1", "find")
    assert dialogue.tools == (schema,)
    assert dialogue.role_definition == "Be brief."


def test_arguments_that_are_no_object_stay_text(rows: Rows) -> None:
    calls = [
        {"function": {"name": "f", "arguments": text}} for text in ("{broken", "[1]", "", "null")
    ]
    row = {"messages": [ASK, {"role": "assistant", "content": "", "tool_calls": calls}]}
    (dialogue,) = rows(row).dialogues
    assert [call.arguments for call in dialogue.messages[1].tool_calls] == [
        "{broken",
        "[1]",
        "",
        "null",
    ]


def test_anthropic_blocks(rows: Rows) -> None:
    row = {
        "messages": [
            ASK,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": "3"}],
                    },
                    {"type": "text", "text": "And?"},
                ],
            },
            {"role": "assistant", "content": "Three."},
        ]
    }
    (dialogue,) = rows(row).dialogues
    assert [message.role for message in dialogue.messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert dialogue.messages[1] == Message(
        role="assistant",
        content="I look.",
        reasoning="hm",
        tool_calls=(ToolCall(name="find", arguments={"q": 1}, id="t1"),),
    )
    assert dialogue.messages[2] == Message(role="tool", content="3", tool_call_id="t1")


def test_llamafactory_parts_and_loss_weight(rows: Rows) -> None:
    row = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "value": "Hi"}], "loss_weight": 0.0},
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "value": "hm"},
                    {"type": "tool_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
                ],
                "loss_weight": 1.0,
            },
        ]
    }
    (dialogue,) = rows(row).dialogues
    assert dialogue.messages[1].reasoning == "hm"
    assert dialogue.messages[1].tool_calls == (ToolCall(name="f", arguments={"a": 1}),)
    assert dialogue.metadata["loss_weight"] == [0.0, 1.0]


def test_aligned_metadata_counts_the_system_field_too(rows: Rows) -> None:
    row = {"system": "Be brief.", "messages": [ASK, {**TELL, "loss_weight": 1.0, "model": "m"}]}
    (dialogue,) = rows(row).dialogues
    assert said(dialogue)[0] == ("system", "Be brief.")
    assert dialogue.metadata == {
        "loss_weight": [None, None, 1.0],
        "per_message": {"model": [None, None, "m"]},
    }


def test_thinking_is_parsed_off(rows: Rows) -> None:
    row = {"messages": [ASK, {"role": "assistant", "content": "<think>a</think>b"}, ASK, TELL]}
    (dialogue,) = rows(row).dialogues
    assert (dialogue.messages[1].content, dialogue.messages[1].reasoning) == ("b", "a")


def test_a_users_think_tags_are_the_users(rows: Rows) -> None:
    row = {"messages": [{"role": "user", "content": "<think>x</think>y"}, TELL]}
    assert said(rows(row).dialogues[0])[0] == ("user", "<think>x</think>y")


def test_kto_label_and_our_own_record(rows: Rows) -> None:
    assert rows({"messages": [ASK, TELL], "label": True}).dialogues[0].labels == {"label": True}
    original = Dialogue(
        id="d",
        messages=(
            Message(role="user", content="Hi"),
            Message(
                role="assistant",
                content="x",
                reasoning="r",
                tool_calls=(ToolCall(name="f", arguments={"a": 1}, id="1"),),
            ),
        ),
        role_definition="R",
        scenario="S",
        expected_outcomes=("o",),
        expected_tools=(ToolCall(name="f"),),
        references=(("ref", "other"),),
        evidence=("e",),
        emphasis="care",
        group="g",
        reward=0.5,
        labels={"a": 1},
        metadata={"m": [1]},
    )
    back = rows(original.model_dump(mode="json")).dialogues[0]
    assert back.model_copy(update={"lineage": None}) == original
    assert back.content_hash == original.content_hash


def test_evidence_beside_its_links(rows: Rows) -> None:
    (dialogue,) = rows({"messages": [TELL, ASK, TELL], "ref": "page", "ref_url": "u"}).dialogues
    assert dialogue.evidence == ("page",)
    assert dialogue.metadata == {"ref_url": "u"}
    assert [turn.number for turn in dialogue.turns] == [0, 1]


# ---- sharegpt, card, gaussia, history -----------------------------------------------------------


def test_sharegpt_function_calls(rows: Rows) -> None:
    row = {
        "conversations": [
            {"from": "human", "value": "Hi"},
            {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
            {"from": "observation", "value": "3"},
            {"from": "gpt", "value": "Three."},
        ],
        "tools": "[]",
    }
    (dialogue,) = rows(row).dialogues
    assert [message.role for message in dialogue.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert dialogue.messages[1].tool_calls == (ToolCall(name="f", arguments={"a": 1}),)
    assert dialogue.tools == ()


def test_card_scenario_and_fallbacks(rows: Rows) -> None:
    card = {**SIMPLE["card"], "scenario_description": "A greeting."}
    own, other = rows(card, SIMPLE["card"], role="R", scenario="S").dialogues
    assert (own.scenario, own.role_definition) == ("A greeting.", "R")
    assert (other.scenario, other.role_definition) == ("S", "R")
    (bare,) = rows(SIMPLE["card"]).dialogues
    assert (bare.scenario, bare.role_definition) == (None, None)


def test_the_datas_role_comes_before_the_recipes_unless_it_says_otherwise(rows: Rows) -> None:
    bare = {"messages": [ASK, TELL]}
    system = {"messages": [{"role": "system", "content": "sys"}, ASK, TELL]}
    blank = {"messages": [{"role": "system", "content": " "}, ASK, TELL]}
    field = {**system, "role_definition": "own"}
    given = (bare, system, blank, field)

    def roles(loaded: Loaded) -> list[str | None]:
        return [dialogue.role_definition for dialogue in loaded.dialogues]

    loaded = rows(*given, role="R")
    assert roles(loaded) == ["R", "sys", "R", "own"]
    assert loaded.tally.roles == {"recipe": 2, "system": 1, "field": 1}
    assert [d.lineage and d.lineage.role_from for d in loaded.dialogues] == [
        "recipe",
        "system",
        "recipe",
        "field",
    ]
    assert roles(rows(*given)) == [None, "sys", None, "own"]
    assert rows(*given).tally.roles == {"none": 2, "system": 1, "field": 1}
    turned = rows(*given, role="R", role_from="recipe")
    assert roles(turned) == ["R"] * 4
    assert turned.tally.roles == {"recipe": 4}


def test_gaussia_sessions_and_flat_rows(rows: Rows) -> None:
    session = {
        "session_id": "s1",
        "chatbot_role": "R",
        "context": "C",
        "conversation": [
            {"qa_id": "q", "query": "Hi", "assistant": "Hello", "ground_truth_assistant": "Hey"}
        ],
    }
    (dialogue,) = rows(session).dialogues
    assert (dialogue.id, dialogue.role_definition, dialogue.scenario) == ("s1", "R", "C")
    assert dialogue.references == (("Hey",),)
    assert dialogue.metadata["per_turn"] == {"qa_id": ["q"]}
    flat = {"role": "R", "assistant": "Hello", "ground_truth_assistant": "Hey", "label": "adherent"}
    (dialogue,) = rows(flat).dialogues
    assert said(dialogue) == [("assistant", "Hello")]
    assert dialogue.turns[0].number == 0
    assert (dialogue.role_definition, dialogue.references) == ("R", (("Hey",),))
    assert dialogue.labels == {"label": "adherent"}
    assert dialogue.metadata == {}
    (dialogue,) = rows({**flat, "ground_truth_assistant": 3}).dialogues
    assert dialogue.metadata == {"ground_truth_assistant": 3}  # not a reference


def test_history_before_the_question(rows: Rows) -> None:
    row = {"history": [["a", "b"]], "query": "c", "response": "d", "system": "s"}
    (dialogue,) = rows(row).dialogues
    assert [text for _, text in said(dialogue)] == ["s", "a", "b", "c", "d"]
    alpaca = {"instruction": "c", "input": "x", "output": "d", "history": [["a", "b"]]}
    loaded = rows(alpaca)
    assert loaded.shape == "alpaca"
    assert [text for _, text in said(loaded.dialogues[0])] == ["a", "b", "c\nx", "d"]


def test_ultrachat_200k_does_not_keep_its_prompt_twice(rows: Rows) -> None:
    (dialogue,) = rows({"prompt": "Hi", "prompt_id": "p", "messages": [ASK, TELL]}).dialogues
    assert (dialogue.id, dialogue.metadata) == ("p", {})


# ---- preferences --------------------------------------------------------------------------------

GOOD, BAD = {"role": "assistant", "content": "good"}, {"role": "assistant", "content": "bad"}
PREFERENCES = {
    "strings": {"prompt": "Hi", "chosen": "good", "rejected": "bad"},
    "lists after a prompt": {"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD]},
    "lists after a text": {"prompt": "Hi", "chosen": [GOOD], "rejected": [BAD]},
    "whole conversations": {"chosen": [ASK, GOOD], "rejected": [ASK, BAD]},
    "whole beside a text": {"prompt": "Hi", "chosen": [ASK, GOOD], "rejected": [ASK, BAD]},
    "messages and sides": {"messages": [ASK], "chosen": GOOD, "rejected": BAD},
    "llama-factory": {
        "conversations": [{"from": "human", "value": "Hi"}],
        "chosen": {"from": "gpt", "value": "good"},
        "rejected": {"from": "gpt", "value": "bad"},
    },
    "llama-factory v1": {"chosen_messages": [ASK, GOOD], "rejected_messages": [ASK, BAD]},
    "ms-swift": {"messages": [ASK, GOOD], "rejected_response": "bad"},
    "ms-swift messages": {"messages": [ASK, GOOD], "rejected_messages": [ASK, BAD]},
    "openai": {
        "input": {"messages": [ASK]},
        "preferred_output": [GOOD],
        "non_preferred_output": [BAD],
    },
    "question": {"question": "Hi", "chosen": "good", "rejected": "bad"},
    "json text": {
        "prompt": "Hi",
        "chosen": json.dumps([ASK, GOOD]),
        "rejected": json.dumps([ASK, BAD]),
    },
    "hh": {
        "chosen": "\n\nHuman: Hi\n\nAssistant: good",
        "rejected": "\n\nHuman: Hi\n\nAssistant: bad",
    },
    "hh whose prompt is null": {
        "prompt": None,
        "chosen": "\n\nHuman: Hi\n\nAssistant: good",
        "rejected": "\n\nHuman: Hi\n\nAssistant: bad",
    },
    "hh with its prompt apart": {
        "prompt": "\n\nHuman: Hi\n\nAssistant:",
        "chosen": " good",
        "rejected": " bad",
    },
}


@pytest.mark.parametrize("name", PREFERENCES)
def test_preference_rows_give_two_dialogues(rows: Rows, name: str) -> None:
    loaded = rows({**PREFERENCES[name], "id": "p"})
    assert loaded.shape == ("hh" if name.startswith("hh") else "preference")
    chosen, rejected = loaded.dialogues
    assert said(chosen) == [("user", "Hi"), ("assistant", "good")]
    assert said(rejected) == [("user", "Hi"), ("assistant", "bad")]
    assert (chosen.id, rejected.id) == ("p/chosen", "p/rejected")
    assert chosen.group == rejected.group == "p"
    assert chosen.labels == {"preference": "chosen"}
    assert rejected.labels == {"preference": "rejected"}
    assert (loaded.tally.rows_in, loaded.tally.rows_used, loaded.tally.dialogues) == (1, 1, 2)
    assert chosen.lineage is not None
    assert chosen.lineage.part == "chosen"


def test_the_input_of_an_instruction_belongs_to_it_and_of_any_other_prompt_does_not(
    rows: Rows,
) -> None:
    sides = {"chosen": "good", "rejected": "bad", "input": "x"}
    for key, asked, left in (
        ("instruction", "Hi\nx", {}),
        ("prompt", "Hi", {"input": "x"}),
        ("question", "Hi", {"input": "x"}),
    ):
        chosen, rejected = rows({key: "Hi", **sides}).dialogues
        assert (said(chosen), chosen.metadata) == ([("user", asked), ("assistant", "good")], left)
        assert (said(rejected), rejected.metadata) == (
            [("user", asked), ("assistant", "bad")],
            left,
        )
    chosen, _ = rows({"instruction": "Hi", **sides, "input": ""}).dialogues
    assert (said(chosen)[0], chosen.metadata) == (("user", "Hi"), {})


def test_one_bad_side_is_a_part_and_the_other_is_used(rows: Rows) -> None:
    loaded = rows({"prompt": "Hi", "chosen": "good", "rejected": ""}, {**PREFERENCES["strings"]})
    assert loaded.tally.dialogues == 3
    (part,) = loaded.quarantined
    assert (part.part, part.reason) == ("rejected", "empty")
    assert (loaded.tally.quarantined, loaded.tally.parts_quarantined) == (0, 1)


def test_a_prompt_that_is_not_what_was_asked_is_kept(rows: Rows) -> None:
    chosen, _ = rows({"prompt": "other", "chosen": [ASK, GOOD], "rejected": [ASK, BAD]}).dialogues
    assert chosen.metadata == {"prompt": "other"}


# ---- trajectory ---------------------------------------------------------------------------------


def test_trajectory_task_and_trials(rows: Rows) -> None:
    task = {
        "actions": [{"name": "book", "kwargs": {"n": 1}}],
        "instruction": "Book a seat.",
        "outputs": ["327"],
    }
    trials = [
        {
            "task_id": 0,
            "trial": trial,
            "reward": float(trial),
            "info": {"task": task},
            "traj": [ASK, TELL, ASK],
        }
        for trial in (0, 1)
    ]
    first, second = rows(*trials).dialogues
    assert (first.id, second.id) == ("task-0-trial-0", "task-0-trial-1")
    assert (first.group, second.group) == ("0", "0")
    assert (first.reward, second.reward) == (0.0, 1.0)
    assert first.expected_tools == (ToolCall(name="book", arguments={"n": 1}),)
    assert "Book a seat." in first.expected_outcomes[0]
    assert "327" in first.expected_outcomes[1]
    assert first.metadata["trial"] == 0
    assert first.messages[-1].role == "user"
