"""Rows with one defect each, in each trainer's form, with what becomes of them: found by `check`, and shown by the
real loaders, which are asked the same.

Every file is a good row, the planted one, a good row; so the planted row is number 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Row = dict[str, Any]


class Planted(NamedTuple):
    """A defect.

    Attributes:
        name: of the test.
        row: the row that has it; a column with `...` is left out of the good row's.
        code: what `check` is to call it.
        effect: what becomes of the row. Of `stops` and `dropped` the loader shows the same.
        limit: the trainer's limit in tokens.
    """

    name: str
    row: Row
    code: str
    effect: str
    limit: int = 1024

    def rows(self, good: Row) -> list[Row]:
        """The file's rows."""
        planted = {k: v for k, v in {**good, **self.row}.items() if v is not ...}
        return [good, planted, good]


def message(role: str, content: Any, **more: Any) -> Row:
    return {"role": role, "content": content, **more}


def said(role: str, value: Any) -> Row:
    return {"from": role, "value": value}


LONG = "The parcel left the depot. " * 60
CALL = {"type": "function", "function": {"name": "track", "arguments": {"parcel": 81}}}
TOOL = {
    "type": "function",
    "function": {
        "name": "track",
        "description": "Where a parcel is.",
        "parameters": {"type": "object", "properties": {"parcel": {"type": "integer"}}},
    },
}
TOOLS_TEXT = (
    '[{"type":"function","function":{"name":"track","description":"Where a parcel is.",'
    '"parameters":{"type":"object","properties":{"parcel":{"type":"integer"}}}}}]'
)
ASK = message("user", "Where is parcel 81?")
YES = message("assistant", "It left the depot at nine.")
NO = message("assistant", "No idea.")
BOT = message("narrator", "The clerk sighs.")
LONG_ASK, LONG_YES = message("user", LONG), message("assistant", LONG)


TRL_DPO: Row = {"prompt": [ASK], "chosen": [YES], "rejected": [NO]}
TRL_DPO_PLANTED = [
    Planted("identical sides", {"rejected": [YES]}, "identical_sides", "corrupted"),
    Planted("prompt ends with assistant", {"prompt": [ASK, NO]}, "prompt_not_open", "corrupted"),
    Planted("string prompt", {"prompt": "Where?"}, "mixed_shapes", "stops"),
    Planted("string side", {"chosen": "At the depot."}, "mixed_shapes", "stops"),
    Planted("prompt missing", {"prompt": ...}, "missing_column", "stops"),
    Planted("rejected missing", {"rejected": ...}, "missing_column", "stops"),
    Planted("untrimmed", {"chosen": [message("assistant", "At nine. ")]}, "untrimmed", "noted"),
    Planted("unknown role", {"prompt": [BOT, ASK]}, "unknown_role", "corrupted"),
    Planted("several messages", {"chosen": [YES, ASK, NO]}, "several_messages", "mis_masked"),
    Planted("side of the user", {"chosen": [ASK]}, "side_not_assistant", "mis_masked"),
    Planted("empty side", {"chosen": [message("assistant", "")]}, "empty_side", "corrupted"),
    Planted("prompt too long", {"prompt": [LONG_ASK]}, "prompt_too_long", "dropped", limit=200),
    Planted("answer too long", {"chosen": [LONG_YES]}, "too_long", "truncated", limit=200),
    Planted(
        "calls not carried",
        {"chosen": [message("assistant", "I look.", tool_calls=[CALL])]},
        "tools_not_carried",
        "corrupted",
    ),
    Planted("tools no JSON", {"tools": "track"}, "tools_not_json", "stops"),
    Planted("prompt without messages", {"prompt": []}, "no_messages", "stops"),
]

TRL_REWARD_PLANTED = [
    Planted("identical sides", {"rejected": [YES]}, "identical_sides", "corrupted"),
    Planted("a side too long", {"chosen": [LONG_YES]}, "too_long", "dropped", limit=200),
]

TRL_SFT: Row = {"messages": [ASK, YES]}
TRL_SFT_PLANTED = [
    Planted("no assistant", {"messages": [ASK]}, "no_assistant", "corrupted"),
    Planted("unknown role", {"messages": [BOT, ASK, YES]}, "unknown_role", "corrupted"),
    Planted("messages missing", {"messages": ...}, "missing_column", "stops"),
    Planted("too long", {"messages": [ASK, LONG_YES]}, "too_long", "truncated", limit=200),
    Planted("ends with the user", {"messages": [ASK, YES, ASK]}, "ends_open", "noted"),
]

TRL_COMPLETION: Row = {"prompt": [ASK], "completion": [YES]}
TRL_COMPLETION_PLANTED = [
    Planted(
        "mask over several replies",
        {"completion": [YES, ASK, NO]},
        "several_messages",
        "mis_masked",
    ),
    Planted("prompt too long", {"prompt": [LONG_ASK]}, "prompt_too_long", "dropped", limit=200),
    Planted("completion missing", {"completion": ...}, "missing_column", "stops"),
    Planted("string prompt", {"prompt": "Where?"}, "mixed_shapes", "stops"),
]

TRL_KTO: Row = {"prompt": [ASK], "completion": [YES], "label": True}
TRL_KTO_PLANTED = [
    Planted("label missing", {"label": ...}, "label_not_bool", "stops"),
    Planted("prompt too long", {"prompt": [LONG_ASK]}, "prompt_too_long", "dropped", limit=200),
    Planted("several messages", {"completion": [YES, ASK, NO]}, "several_messages", "mis_masked"),
]

AXOLOTL_DPO: Row = {"messages": [ASK], "chosen": YES, "rejected": NO}
AXOLOTL_DPO_PLANTED = [
    Planted("identical sides", {"rejected": YES}, "identical_sides", "corrupted"),
    Planted("prompt ends with assistant", {"messages": [ASK, NO]}, "prompt_not_open", "corrupted"),
    Planted("unknown role", {"messages": [BOT, ASK]}, "unknown_role", "stops"),
    Planted("unknown role of a side", {"chosen": BOT}, "unknown_role", "stops"),
    Planted("untrimmed", {"chosen": message("assistant", "At nine. \n")}, "untrimmed", "noted"),
    Planted("empty side", {"chosen": message("assistant", "")}, "empty_side", "corrupted"),
    Planted("chosen missing", {"chosen": ...}, "missing_column", "stops"),
    Planted(
        "words of the dummy question",
        {"chosen": message("assistant", "dummy")},
        "answer_changed",
        "corrupted",
    ),
    Planted(
        "tool calls",
        {"chosen": message("assistant", "I look.", tool_calls=[CALL])},
        "tools_not_carried",
        "corrupted",
    ),
    Planted("prompt too long", {"messages": [LONG_ASK]}, "prompt_too_long", "dropped", limit=200),
    Planted("answer too long", {"chosen": LONG_YES}, "too_long", "dropped", limit=200),
]

AXOLOTL_SFT: Row = {"messages": [ASK, YES]}
AXOLOTL_SFT_PLANTED = [
    Planted("no assistant", {"messages": [ASK]}, "no_assistant", "dropped"),
    Planted("unknown role", {"messages": [BOT, ASK, YES]}, "unknown_role", "mis_masked"),
    Planted("messages missing", {"messages": ...}, "missing_column", "stops"),
    Planted("too long", {"messages": [ASK, LONG_YES]}, "too_long", "dropped", limit=200),
]

LLAMAFACTORY_INFO: Row = {
    "formatting": "sharegpt",
    "ranking": True,
    "columns": {
        "messages": "conversations",
        "chosen": "chosen",
        "rejected": "rejected",
        "system": "system",
        "tools": "tools",
    },
    "tags": {
        "role_tag": "from",
        "content_tag": "value",
        "user_tag": "human",
        "assistant_tag": "gpt",
        "observation_tag": "observation",
        "function_tag": "function_call",
        "system_tag": "system",
    },
}
HUMAN = said("human", "Where is parcel 81?")
LONG_HUMAN = said("human", LONG)
GPT = said("gpt", "It left the depot at nine.")
LLAMAFACTORY_DPO: Row = {
    "conversations": [HUMAN],
    "chosen": GPT,
    "rejected": said("gpt", "No idea."),
    "system": "You track parcels.",
    "tools": TOOLS_TEXT,
}
LLAMAFACTORY_DPO_PLANTED = [
    Planted("identical sides", {"rejected": GPT}, "identical_sides", "corrupted"),
    Planted(
        "prompt ends with assistant", {"conversations": [HUMAN, GPT]}, "prompt_not_open", "dropped"
    ),
    Planted(
        "roles do not alternate", {"conversations": [HUMAN, HUMAN, GPT]}, "role_order", "dropped"
    ),
    Planted(
        "unknown role", {"conversations": [said("narrator", "Hm.")]}, "unknown_role", "dropped"
    ),
    Planted("unknown role of a side", {"chosen": said("bot", "Yes.")}, "unknown_role", "stops"),
    Planted("side of the user", {"chosen": HUMAN}, "side_not_assistant", "mis_masked"),
    Planted("chosen missing", {"chosen": ...}, "missing_column", "dropped"),
    Planted("empty side", {"chosen": said("gpt", "")}, "empty_side", "corrupted"),
    Planted("untrimmed", {"chosen": said("gpt", " At nine.")}, "untrimmed", "noted"),
    Planted("null content", {"conversations": [said("human", None)]}, "null_content", "stops"),
    Planted(
        "call that is no JSON",
        {"conversations": [HUMAN, said("function_call", "track 81"), said("observation", "{}")]},
        "call_not_json",
        "stops",
    ),
    Planted("tools no JSON", {"tools": "track"}, "tools_not_json", "stops"),
    Planted(
        "prompt too long",
        {"conversations": [LONG_HUMAN]},
        "prompt_too_long",
        "truncated",
        limit=400,
    ),
]
LLAMAFACTORY_SFT_INFO: Row = {**LLAMAFACTORY_INFO, "ranking": False} | {
    "columns": {"messages": "conversations", "system": "system", "tools": "tools"}
}
LLAMAFACTORY_SFT: Row = {"conversations": [HUMAN, GPT], "system": "s", "tools": TOOLS_TEXT}
LLAMAFACTORY_SFT_PLANTED = [
    Planted("ends with the user", {"conversations": [HUMAN, GPT, HUMAN]}, "ends_open", "dropped"),
    Planted("roles do not alternate", {"conversations": [GPT, HUMAN]}, "role_order", "dropped"),
    Planted("empty answer", {"conversations": [HUMAN, said("gpt", "")]}, "empty_side", "corrupted"),
]

SWIFT_DPO: Row = {"messages": [ASK, YES], "rejected_messages": [ASK, NO]}
SWIFT_DPO_PLANTED = [
    Planted("identical sides", {"rejected_messages": [ASK, YES]}, "identical_sides", "corrupted"),
    Planted("unknown role", {"messages": [BOT, ASK, YES]}, "unknown_role", "dropped"),
    Planted("rejected missing", {"rejected_messages": ...}, "missing_column", "corrupted"),
    Planted("null content", {"messages": [message("user", None), YES]}, "null_content", "dropped"),
    Planted("no answer", {"messages": [ASK]}, "side_not_assistant", "mis_masked"),
    Planted(
        "system in the middle",
        {"messages": [ASK, message("system", "Be brief."), YES]},
        "role_order",
        "dropped",
    ),
    Planted(
        "empty side",
        {"rejected_messages": [ASK, message("assistant", "")]},
        "empty_side",
        "corrupted",
    ),
    Planted(
        "prompt too long",
        {
            "messages": [LONG_ASK, YES],
            "rejected_messages": [LONG_ASK, NO],
        },
        "too_long",
        "dropped",
        limit=200,
    ),
]
SWIFT_RESPONSE: Row = {"messages": [ASK, YES], "rejected_response": "No idea."}
SWIFT_RESPONSE_PLANTED = [
    Planted("identical sides", {"rejected_response": YES["content"]}, "identical_sides", "dropped"),
    Planted("rejected missing", {"rejected_response": ...}, "missing_column", "dropped"),
]
SWIFT_SFT: Row = {"messages": [ASK, YES]}
SWIFT_SFT_PLANTED = [
    Planted("unknown role", {"messages": [BOT, ASK, YES]}, "unknown_role", "dropped"),
    Planted("ends with the user", {"messages": [ASK, YES, ASK]}, "ends_open", "mis_masked"),
    Planted("too long", {"messages": [ASK, LONG_YES]}, "too_long", "dropped", limit=200),
]

OPENRLHF_DPO: Row = {"prompt": [ASK], "chosen": [YES], "rejected": [NO]}
OPENRLHF_DPO_PLANTED = [
    Planted("identical sides", {"rejected": [YES]}, "identical_sides", "corrupted"),
    Planted("string prompt", {"prompt": "Where?"}, "mixed_shapes", "stops"),
    Planted("tools", {"tools": [TOOL]}, "tools_not_carried", "corrupted"),
    Planted("rejected missing", {"rejected": ...}, "missing_column", "stops"),
    Planted("several messages", {"chosen": [YES, ASK, NO]}, "several_messages", "mis_masked"),
    Planted("empty side", {"chosen": [message("assistant", " ")]}, "empty_side", "corrupted"),
]
OPENRLHF_WHOLE: Row = {"chosen": [ASK, YES], "rejected": [ASK, NO]}
OPENRLHF_WHOLE_PLANTED = [
    Planted("other prompt", {"rejected": [ASK, YES, ASK, NO]}, "prefix_differs", "corrupted"),
    Planted("string side", {"chosen": "At nine."}, "mixed_shapes", "corrupted"),
]
OPENRLHF_SFT: Row = {"messages": [ASK, YES]}
OPENRLHF_SFT_PLANTED = [
    Planted("no assistant", {"messages": [ASK, ASK]}, "no_assistant", "mis_masked"),
    Planted("messages missing", {"messages": ...}, "missing_column", "stops"),
]

VERL_REWARD: Row = {"prompt": "Where is it?", "chosen": "Here.", "rejected": "No idea."}
VERL_REWARD_PLANTED = [
    Planted("identical sides", {"rejected": "Here."}, "identical_sides", "corrupted"),
    Planted("empty side", {"rejected": " "}, "empty_side", "corrupted"),
    Planted("rejected missing", {"rejected": ...}, "missing_column", "stops"),
]

VERL_SFT: Row = {"messages": [ASK, YES]}
VERL_SFT_PLANTED = [
    Planted("no assistant", {"messages": [ASK]}, "no_assistant", "corrupted"),
    Planted("too long", {"messages": [ASK, LONG_YES]}, "too_long", "stops", limit=200),
]

OPENAI_DPO: Row = {
    "input": {"messages": [ASK]},
    "preferred_output": [YES],
    "non_preferred_output": [NO],
}
OPENAI_DPO_PLANTED = [
    Planted("identical sides", {"non_preferred_output": [YES]}, "identical_sides", "corrupted"),
    Planted("several messages", {"preferred_output": [YES, NO]}, "several_messages", "stops"),
    Planted("unknown role", {"input": {"messages": [BOT, ASK]}}, "unknown_role", "stops"),
    Planted(
        "prompt ends with assistant",
        {"input": {"messages": [ASK, NO]}},
        "prompt_not_open",
        "corrupted",
    ),
    Planted("input missing", {"input": ...}, "missing_column", "stops"),
]
OPENAI_SFT: Row = {"messages": [ASK, YES]}
OPENAI_SFT_PLANTED = [
    Planted("no assistant", {"messages": [ASK]}, "no_assistant", "stops"),
    Planted(
        "arguments no text",
        {"messages": [ASK, message("assistant", "", tool_calls=[CALL])]},
        "call_not_json",
        "stops",
    ),
    Planted(
        "another key",
        {"messages": [ASK, message("assistant", "At nine.", reasoning_content="hm")]},
        "extra_columns",
        "stops",
    ),
]

GOOD: list[tuple[Any, Row, Row | None]] = [
    ("trl", TRL_DPO, None),
    ("trl", TRL_SFT, None),
    ("trl", TRL_COMPLETION, None),
    ("trl", TRL_KTO, None),
    ("unsloth", TRL_DPO, None),
    ("axolotl", AXOLOTL_DPO, None),
    ("axolotl", AXOLOTL_SFT, None),
    ("llamafactory", LLAMAFACTORY_DPO, LLAMAFACTORY_INFO),
    ("llamafactory", LLAMAFACTORY_SFT, LLAMAFACTORY_SFT_INFO),
    ("swift", SWIFT_DPO, None),
    ("swift", SWIFT_RESPONSE, None),
    ("swift", SWIFT_SFT, None),
    ("openrlhf", OPENRLHF_DPO, None),
    ("openrlhf", OPENRLHF_WHOLE, None),
    ("openrlhf", OPENRLHF_SFT, None),
    ("openai", OPENAI_DPO, None),
    ("openai", OPENAI_SFT, None),
]
