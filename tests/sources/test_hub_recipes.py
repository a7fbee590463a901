"""Every ready recipe reads rows as its dataset's card describes them; the rows were written for these tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.recipe import Recipe, load_recipe
from curate.sources import RowCounts, open_rows
from curate.sources.hub_recipes import HubRecipe, find_hub_recipe, hub_recipes

ASK, TELL = "What is a quasar?", "A very bright galactic nucleus."
CHAT = [{"role": "user", "content": ASK}, {"role": "assistant", "content": TELL}]
SHARED = [{"from": "human", "value": ASK}, {"from": "gpt", "value": TELL}]
FLAGS = {"flagged": False, "categories": {"hate": False}, "category_scores": {"hate": 0.01}}


def wildchat(**other: Any) -> dict[str, Any]:
    more = {"country": "Norway", "hashed_ip": "ab", "header": {}, "language": "English", "redacted": False,
            "state": "Oslo", "timestamp": None, "toxic": False, "turn_identifier": 1}  # fmt: skip
    return {
        "conversation_hash": "c1", "model": "gpt-4", "timestamp": "2024-01-01T00:00:00+00:00",
        "conversation": [message | more for message in CHAT * 2], "turn": 2, "language": "English",
        "openai_moderation": [FLAGS] * 4, "detoxify_moderation": [{"toxicity": 0.1}] * 4,
        "toxic": False, "redacted": False, "state": "Oslo", "country": "Norway", "hashed_ip": "ab", "header": {},
    } | other  # fmt: skip


def lmsys(**other: Any) -> dict[str, Any]:
    return {"conversation_id": "l1", "model": "vicuna-13b", "conversation": CHAT * 2, "turn": 2,
            "language": "English", "openai_moderation": [FLAGS] * 4, "redacted": False} | other  # fmt: skip


def oasst(number: str, parent: str | None, role: str, text: str, **other: Any) -> dict[str, Any]:
    return {"message_id": number, "parent_id": parent, "user_id": "u", "created_date": "2023", "text": text,
            "role": role, "lang": "en", "review_count": 3, "review_result": True, "deleted": False, "rank": None,
            "synthetic": False, "model_name": None, "detoxify": None, "message_tree_id": "m1",
            "tree_state": "ready_for_export", "emojis": None, "labels": None} | other  # fmt: skip


def arena(**other: Any) -> dict[str, Any]:
    second = [CHAT[0], {"role": "assistant", "content": "A star."}]
    return {"question_id": "q1", "model_a": "vicuna-13b", "model_b": "alpaca-13b", "winner": "model_a",
            "judge": "arena_user_1", "conversation_a": CHAT, "conversation_b": second, "turn": 1, "anony": True,
            "language": "English", "tstamp": 1682351591.1, "openai_moderation": FLAGS,
            "toxic_chat_tag": {"roberta-large": {"flagged": False, "probability": 0.01}}} | other  # fmt: skip


def helpsteer(preference: int, **other: Any) -> dict[str, Any]:
    return {"domain": "general", "language": "english", "context": [*CHAT, {"role": "user", "content": "Why?"}],
            "response1": "Because of a black hole.", "response2": "Nobody knows.",
            "overall_preference": preference,
            "individual_preference": [{"score": preference, "reasoning": "…", "feedback1": "", "feedback2": ""}]} | other  # fmt: skip


def ultrafeedback(score: float) -> dict[str, Any]:
    sides = {
        side: [CHAT[0], {"role": "assistant", "content": side}] for side in ("chosen", "rejected")
    }
    return {
        "prompt": ASK,
        "prompt_id": "p1",
        "messages": sides["chosen"],
        "score_chosen": score,
        "score_rejected": 3.0,
    } | sides


def magpie(**other: Any) -> dict[str, Any]:
    return {"uuid": "u1", "model": "llama", "gen_input_configs": {"temperature": 1.0}, "conversations": SHARED * 2,
            "instruction": ASK, "response": TELL, "instruction_2": ASK, "response_2": TELL, "intent": "…",
            "difficulty": "easy", "input_quality": "good", "task_category": "Information seeking",
            "llama_guard_2": "safe", "instruct_reward": 2.5, "language": "EN", "response_length": 31} | other  # fmt: skip


CALLS = [
    {"from": "human", "value": "Cancel order 7."},
    {"from": "function_call", "value": '{"name": "cancel", "arguments": {"order": 7}}'},
    {"from": "observation", "value": '{"ok": true}'},
    {"from": "gpt", "value": "It is cancelled."},
]
TRAJ = [
    {"role": "system", "content": "Policy."},
    {"role": "user", "content": "Cancel order 7."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "cancel", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "name": "cancel", "content": "done"},
    {"role": "assistant", "content": "It is cancelled."},
]  # fmt: skip
CAPYBARA = [{"input": ASK, "output": TELL}, {"input": "Why?", "output": "Because of a black hole."}]

# recipe: its rows, how many rows its `where` leaves out, and the dialogues that the others give.
ROWS: dict[str, tuple[list[dict[str, Any]], int, int]] = {
    "wildchat": ([wildchat(), wildchat(language="French"), wildchat(toxic=True), wildchat(turn=1), wildchat(redacted=True)], 4, 1),
    "lmsys-chat-1m": ([lmsys(), lmsys(openai_moderation=[FLAGS, FLAGS | {"flagged": True}]), lmsys(turn=1)], 2, 1),
    "ultrachat-200k": ([{"prompt": ASK, "prompt_id": "p", "messages": CHAT * 2}], 0, 1),
    "oasst2": (
        [oasst("m1", None, "prompter", ASK), oasst("m2", "m1", "assistant", TELL, rank=0),
         oasst("m3", "m1", "assistant", "A star.", rank=1),
         oasst("m4", None, "prompter", "Hola", lang="es", message_tree_id="m4")], 1, 2),
    "sharegpt": ([{"id": "s1", "conversations": SHARED}], 0, 1),
    "slimorca": ([{"conversations": [{"from": "system", "value": "Be brief.", "weight": None}, *(item | {"weight": 0} for item in SHARED)]}], 0, 1),
    "capybara": ([{"source": "Airoboros", "conversation": CAPYBARA}], 0, 1),
    "no-robots": ([{"prompt": ASK, "prompt_id": "n1", "messages": CHAT, "category": "Open QA"}], 0, 1),
    "magpie-mt": ([magpie(), magpie(input_quality="poor"), magpie(llama_guard_2="unsafe\nS1")], 2, 1),
    "soda": (
        [{"head": "PersonX asks", "relation": "xWant", "tail": "to know", "literal": "Ann wants to know.",
          "narrative": "Ann asks Bob about the sky.", "dialogue": [ASK, TELL, "Oh."], "speakers": ["Ann", "Bob", "Ann"],
          "PersonX": "Ann", "PersonY": "Bob", "PersonZ": "", "original_index": 1, "split": "train"}], 0, 1),
    "hh-rlhf": ([{side: f"\n\nHuman: {ASK}\n\nAssistant: {side}" for side in ("chosen", "rejected")}], 0, 2),
    "ultrafeedback": ([ultrafeedback(8.5), ultrafeedback(4.0)], 1, 2),
    "helpsteer3": ([helpsteer(-2), helpsteer(1), helpsteer(0), helpsteer(3, domain="code")], 2, 4),
    "pku-saferlhf": (
        [{"prompt": ASK, "response_0": "I will not say.", "response_1": TELL, "prompt_source": "x",
          "is_response_0_safe": True, "is_response_1_safe": True, "better_response_id": 1, "safer_response_id": 0}], 0, 2),
    "chatbot-arena": ([arena(), arena(winner="tie"), arena(language="German"), arena(openai_moderation=FLAGS | {"flagged": True})], 3, 2),
    "capybara-dpo": (
        [{"source": "Airoboros", "conversation": CAPYBARA, "original_response": "…", "prompt": ASK,
          "chosen": CHAT, "rejected": [CHAT[0], {"role": "assistant", "content": "A star."}],
          "rating_chosen": rating, "rating_rejected": 2, "chosen_model": "a", "rejected_model": "b"} for rating in (5, 3)], 1, 2),
    "tau-bench": (
        [{"task_id": 0, "reward": 1.0, "traj": TRAJ, "trial": 0,
          "info": {"task": {"user_id": "u", "instruction": "Cancel it.", "actions": [{"name": "cancel", "kwargs": {}}], "outputs": []}}}], 0, 1),
    "apigen-mt": ([{"conversations": CALLS, "system": "Policy.", "tools": '[{"name": "cancel", "description": "…", "parameters": {}}]'}], 0, 1),
    "toolace": (
        [{"system": "You may call functions: [{…}]",
          "conversations": [{"from": "user", "value": "Weather?"}, {"from": "assistant", "value": '[Weather(city="Oslo")]'},
                            {"from": "tool", "value": '[{"name": "Weather", "results": {}}]'}, {"from": "assistant", "value": "Rain."}]}], 0, 1),
}  # fmt: skip


def read(name: str, rows: list[dict[str, Any]]) -> tuple[Recipe, RowCounts, list[Dialogue]]:
    recipe = load_recipe(find_hub_recipe(name).path)
    tally, dialogues = RowCounts(), []
    for unit in open_rows(rows, recipe.source[0]).read(recipe.role, recipe.scenario):
        tally.add(unit)
        dialogues += unit.dialogues
    return recipe, tally, dialogues


def test_every_ready_recipe_is_tested_on_rows() -> None:
    assert {recipe.name for recipe in hub_recipes()} == ROWS.keys()
    assert len(ROWS) >= 14


@pytest.mark.parametrize("name", ROWS)
def test_a_ready_recipe_reads_its_datasets_rows(name: str) -> None:
    rows, left_out, made = ROWS[name]
    recipe, tally, dialogues = read(name, rows)
    assert (tally.rows_left_out.total(), tally.quarantined, len(dialogues)) == (left_out, 0, made)
    assert recipe.source[0].license
    for dialogue in dialogues:
        assert dialogue.messages[-1].role in ("assistant", "user")
        assert {"user", "assistant"} <= {message.role for message in dialogue.messages}
        assert dialogue.scenario
        assert dialogue.role_definition
    preferences = [dialogue.labels.get("preference") for dialogue in dialogues]
    if recipe.judge is False:
        assert sorted(map(str, preferences)) == ["chosen", "rejected"] * (made // 2) or set(
            preferences
        ) == {"chosen", "rejected"}


@pytest.mark.parametrize("name", ROWS)
def test_a_ready_recipe_leaves_the_judge_to_its_user(name: str) -> None:
    recipe = load_recipe(find_hub_recipe(name).path)
    assert recipe.models.judge is None
    with pytest.raises(UsageError, match="names no judge"):
        recipe.checked()
    judge = {"engine": "openai", "model": "m", "base_url": "http://localhost:1/v1"}
    path = find_hub_recipe(name).path
    load_recipe(path, [f"models.judge={json.dumps(judge)}"]).checked()


def test_whose_answer_is_better_is_read_as_the_set_says() -> None:
    def chosen(name: str) -> list[str]:
        dialogues = read(name, ROWS[name][0])[2]
        return [
            one.messages[-1].content for one in dialogues if one.labels["preference"] == "chosen"
        ]

    assert chosen("helpsteer3") == ["Because of a black hole.", "Nobody knows."]
    assert chosen("pku-saferlhf") == ["I will not say."]
    assert chosen("chatbot-arena") == [TELL]


def test_calls_and_roles_are_read_as_the_set_has_them() -> None:
    for name in ("apigen-mt", "tau-bench"):
        [dialogue] = read(name, ROWS[name][0])[2]
        assert [call.name for message in dialogue.messages for call in message.tool_calls] == [
            "cancel"
        ]
        assert dialogue.role_definition == "Policy."
    [soda] = read("soda", ROWS["soda"][0])[2]
    assert [message.role for message in soda.messages] == ["user", "assistant", "user"]
    assert soda.scenario == "Ann asks Bob about the sky."


def test_a_recipe_is_found_by_its_dataset_or_its_name() -> None:
    by_id: HubRecipe = find_hub_recipe("hub:allenai/WildChat-1M")
    assert by_id == find_hub_recipe("wildchat")
    assert Path(by_id.path).is_file()
    with pytest.raises(UsageError, match="did you mean hub:allenai/WildChat-1M"):
        find_hub_recipe("hub:allenai/WildChat")
