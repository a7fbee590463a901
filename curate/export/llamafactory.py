"""LLaMA-Factory: its ShareGPT form for SFT and ranking, with the `dataset_info.json` that declares each file.

The reader requires strict alternation (human or observation, then gpt or function_call) and empties a row that
breaks it, with a warning, and drops it later; so what does not alternate is refused here. A call is a message of
JSON; where a text stands beside it, the JSON is marked by `<tool_call>`. `system` and `tools` are texts, empty
where there is none, as the reader itself has it, so that all rows have the same columns. `dataset_info.json` names
every column and tag: a partial block resets those it leaves out.

There is no mask by message in the classic reader. Rows of mixed dialogues end with a message to train on and need
`mask_history: true`, which trains a row's last message only. The v1 engine (`USE_V1=1`) reads weights by message,
in a form of its own: `sft_salvaged_v1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from curate.export.template_messages import Refused, Wire, dump, thinking_and_text
from curate.export.trainer_facts import Fate, Order, StageFacts, TrainerFacts
from curate.export.trainer_module import Columns, TrainerRow, TrainingFile

_OPENS, _ANSWERS = ("human", "observation"), ("gpt", "function_call")
_CALL_WORDS: Final = ("<tool_call>", "</tool_call>")
TAGS: Final = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "observation_tag": "observation",
    "function_tag": "function_call",
    "system_tag": "system",
}

_SKIPS = "drop the row with a line in the log"
_TEXT = Fate("stops", "stop: it expects a text")
_FATES: Final = {
    "missing_column": Fate("dropped", f"{_SKIPS}: an answer is null"),
    "mixed_shapes": Fate("dropped", f"{_SKIPS}: an answer must be one message, or one text"),
    "unknown_role": Fate("dropped", f"{_SKIPS}: it knows no such role"),
    "role_order": Fate("dropped", f"{_SKIPS}: it expects another role at this place"),
    "prompt_not_open": Fate(
        "dropped", f"{_SKIPS}: it expects an odd number of messages before the sides"
    ),
    "ends_open": Fate("dropped", f"{_SKIPS}: it expects an even number of messages"),
    "empty_prompt": Fate("dropped", f"{_SKIPS}: there is no message to answer"),
    "no_messages": Fate("dropped", f"{_SKIPS}: there is no message to answer"),
    "no_assistant": Fate("dropped", f"{_SKIPS}: there is no answer"),
    "null_content": _TEXT,
    "content_not_text": _TEXT,
    "label_not_bool": Fate("dropped", f"{_SKIPS}: the label must be true or false"),
    "prompt_too_long": Fate("truncated", "cut off the end of the prompt, where the question is"),
}
_SIDE_FATES: Final = {
    "unknown_role": Fate("stops", "stop: a side has a role it does not know"),
    "not_messages": Fate("stops", "stop: a side has a role it does not know"),
}


def _stage() -> StageFacts:
    """Return the facts of any stage; columns and roles of a file are in its `dataset_info.json`."""
    return StageFacts(
        layouts=(),
        limit=2048,
        fates=_FATES,
        side_fates=_SIDE_FATES,
        order=Order(),
        drops_calls="calls are messages of their own in LLaMA-Factory's ShareGPT form",
        tools="text",
        arguments="any",
        renders="own template",
    )


FACTS: Final = TrainerFacts(
    package="llamafactory",
    release="0.9.5",
    setting="cutoff_len",
    stages={"sft": _stage(), "dpo": _stage(), "kto": _stage()},
    description_file="dataset_info.json",
)


def _sft(row: TrainerRow) -> TrainerRow:
    return _conversation(row["messages"], row)


def _turn(row: TrainerRow) -> TrainerRow:
    return _conversation(row["prompt"] + row["completion"], row)


def _pair(row: TrainerRow) -> TrainerRow:
    return {
        **_conversation(row["prompt"], row),
        "chosen": _tagged(row["chosen"][0]),
        "rejected": _tagged(row["rejected"][0]),
    }


def _conversation(messages: Sequence[Wire], row: TrainerRow) -> TrainerRow:
    """Return the columns `conversations`, `system` and `tools`; a first system message becomes the column."""
    has_system = bool(messages) and messages[0]["role"] == "system"
    tagged = [_tagged(message) for message in messages[has_system:]]
    for number, message in enumerate(tagged):
        if message["from"] not in (_ANSWERS if number % 2 else _OPENS):
            raise Refused(
                "not_alternating",
                f"message {number + 1} is of '{message['from']}', where LLaMA-Factory wants "
                f"{' or '.join(_ANSWERS if number % 2 else _OPENS)}",
            )
    return {
        "conversations": tagged,
        "system": messages[0]["content"] if has_system else "",
        "tools": row.get("tools", ""),
    }


def _tagged(message: Wire) -> dict[str, str]:
    if "tool_calls" in message:
        return {"from": "function_call", "value": _call(message)}
    tag = {"user": "human", "assistant": "gpt", "tool": "observation"}.get(message["role"])
    return {"from": tag or message["role"], "value": thinking_and_text(message)}


def _call(message: Wire) -> str:
    """Return a message's call, or the list of them, as JSON, after thinking and text if there are any."""
    calls = _calls(message)
    value = dump(calls[0] if len(calls) == 1 else calls).decode()
    text = thinking_and_text(message)
    if any(word in text or word in value for word in _CALL_WORDS):
        raise Refused("marker_in_text", f"a message holds {_CALL_WORDS[0]!r} or its end")
    if not message["content"]:
        return text + value
    return f"{text}\n{_CALL_WORDS[0]}{value}{_CALL_WORDS[1]}"


def _calls(message: Wire) -> list[dict[str, Any]]:
    return [
        {key: call["function"][key] for key in ("name", "arguments")}
        for call in message["tool_calls"]
    ]


def _weighted(row: TrainerRow) -> TrainerRow:
    """Return a row for the v1 engine: each message with its parts of content and its loss weight."""
    return {
        "messages": [
            {
                "role": message["role"],
                "content": _parts(message),
                "loss_weight": 1.0 if message["train"] else 0.0,
            }
            for message in row["messages"]
        ],
        "tools": row.get("tools", ""),
    }


def _parts(message: Wire) -> list[dict[str, str]]:
    text = thinking_and_text(message)
    calls = _calls(message) if "tool_calls" in message else []
    parts = [{"type": "text", "value": text}] if text or not calls else []
    return parts + [{"type": "tool_call", "value": dump(call).decode()} for call in calls]


_SFT: Final[Columns] = {
    "conversations": "messages",
    "system": "text",
    "tools": "text",
}
_PAIR: Final[Columns] = {**_SFT, "chosen": "message", "rejected": "message"}
_V1: Final[Columns] = {"messages": "messages", "tools": "text"}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, _sft),
    TrainingFile("sft_salvaged", "sft", "masked_turns", _SFT, _turn),
    TrainingFile("sft_salvaged_v1", "sft", "masked", _V1, _weighted),
    TrainingFile("dpo", "dpo", "pairs", _PAIR, _pair),
    TrainingFile("dpo_natural", "dpo", "natural", _PAIR, _pair),
)


def side_files(written: Mapping[str, Sequence[str]]) -> Mapping[str, bytes]:
    """Return `dataset_info.json`: a dataset `curate_<file>` for each file with rows, or one for each shard."""
    info: dict[str, Any] = {}
    for file in FILES:
        if file.columns is _V1:
            continue  # the v1 engine is given the file itself
        names = {name: "messages" if name == "conversations" else name for name in file.columns}
        for shard in written.get(file.name, ()):
            stem = shard.partition(".")[0]
            info[f"curate_{stem}"] = {
                "file_name": shard,
                "formatting": "sharegpt",
                **({"ranking": True} if "chosen" in file.columns else {}),
                "columns": {reads: column for column, reads in names.items()},
                "tags": TAGS,
            }
    return {FACTS.description_file: orjson.dumps(info, option=orjson.OPT_INDENT_2) + b"\n"}
