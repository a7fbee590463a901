"""ms-swift: `messages` with its roles for tools, `rejected_messages` for pairs, `loss` by message.

A call is a message of `tool_call` that holds name and arguments as JSON text, a result one of `tool_response`.
The rejected side is a whole conversation and not `rejected_response`, since that replaces all that follows the
last user message, calls and results included. What a file's row is missing comes as null, and ms-swift drops
rows where it does not expect one; so every row of a pair file has both conversations. Left to itself ms-swift also
trains on calls that stand in the prompt after the last user message, or on every answer in it; so each message
of a pair says whether it is trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from curate.export.template_messages import Wire, dump, thinking_and_text
from curate.export.trainer_facts import (
    CHAT_ROLES,
    Fate,
    Layout,
    Order,
    StageFacts,
    TrainerFacts,
    TrainerRole,
    pairs_in,
    whole_pairs_in,
)
from curate.export.trainer_module import Columns, TrainerRow, TrainingFile

_MESSAGES = ("messages", "conversation", "conversations")
_QUERY = ("query", "prompt", "input", "instruction", "question", "problem")
_RESPONSE = ("response", "answer", "output", "targets", "target", "text", "completion")
_ROLES: Final[Mapping[str, TrainerRole]] = {
    **{role: CHAT_ROLES[role] for role in ("system", "user", "assistant", "tool")},
    "human": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "tool_call": "call",
    "function_call": "call",
    "tool_response": "tool",
    "function_response": "tool",
    "observation": "tool",
    "observations": "tool",
}
_DELETES = Fate("dropped", "delete the row")
_REPLACES = "skip the row and draw another at random"
_DIALOGUES = (
    *(Layout((name,)) for name in _MESSAGES),
    *(
        pairs_in(query, response, holds="text message messages")
        for query in _QUERY
        for response in _RESPONSE
    ),
)
_ONE_SIDE = {
    "identical_sides": _DELETES,
    "missing_column": Fate("dropped", f"{_REPLACES}: there is no other side"),
}
_NO_MESSAGES = Fate("stops", "delete every row: it finds no messages")
_FATES: Final = {
    "missing_column": _DELETES,
    "mixed_shapes": _DELETES,
    "not_messages": _DELETES,
    "no_messages": _DELETES,
    "unknown_role": _DELETES,
    "null_content": _DELETES,
    "call_not_json": _DELETES,
    "unknown_columns": _NO_MESSAGES,
    "content_not_text": None,
    "several_messages": None,
    "empty_prompt": None,
    "prompt_not_open": None,
    "role_order": Fate("dropped", f"{_REPLACES}: questions and answers must alternate"),
    "no_assistant": Fate("mis_masked", "train on no answer: there is none"),
    "ends_open": Fate("mis_masked", "train on no answer: the messages end before one"),
    "side_not_assistant": Fate("mis_masked", "train on no answer: the messages end before one"),
    "prefix_differs": Fate("corrupted", "compare answers to different questions"),
    "too_long": Fate("dropped", f"{_REPLACES}: it is longer than max_length"),
}
_ORDER = Order(frozenset({"user", "assistant", "call", "tool"}), answers_may_open=True)


def _stage(
    layouts: tuple[Layout, ...], *marker_columns: str, fates: Mapping[str, Fate]
) -> StageFacts:
    return StageFacts(
        layouts=layouts,
        marker_columns=tuple(frozenset({name}) for name in marker_columns),
        fates={**_FATES, **fates},
        roles=_ROLES,
        order=_ORDER,
        arguments="any",
        renders="own template",
    )


FACTS: Final = TrainerFacts(
    package="ms-swift",
    release="4.6.0",
    setting="max_length",
    stages={
        "dpo": _stage(
            (
                *(whole_pairs_in(name, "rejected_messages") for name in _MESSAGES),
                *(
                    whole_pairs_in(
                        name, "rejected_response", holds="messages text", fates=_ONE_SIDE
                    )
                    for name in _MESSAGES
                ),
            ),
            "rejected_messages",
            "rejected_response",
            fates={
                "unknown_columns": Fate(
                    "stops",
                    "fail on every row: it reads `rejected_messages` or `rejected_response`",
                ),
                "missing_column": Fate(
                    "corrupted",
                    "compare the answer with itself: it fills the null with the chosen messages",
                ),
            },
        ),
        "kto": _stage(
            tuple(
                Layout((*each.columns, "label"), each.sides, each.has_prompt, each.holds)
                for each in _DIALOGUES
            ),
            "label",
            fates={
                "unknown_columns": Fate(
                    "stops", "take every row for an undesired one: there is no `label`"
                ),
                "label_not_bool": Fate(
                    "corrupted", "take the row for one of the label its value counts as"
                ),
            },
        ),
        "sft": _stage(_DIALOGUES, fates={}),
    },
)


def _sft(row: TrainerRow) -> TrainerRow:
    return _with_tools({"messages": list(chain.from_iterable(map(_swift, row["messages"])))}, row)


def _pair(row: TrainerRow) -> TrainerRow:
    prompt = [part for message in row["prompt"] for part in _swift({**message, "train": False})]
    chosen, rejected = (
        [*prompt, *_swift({**row[side][0], "train": True})] for side in ("chosen", "rejected")
    )
    pair = _with_tools({"messages": chosen, "rejected_messages": rejected}, row)
    return {**pair, "rejected_tools": row["tools"]} if "tools" in row else pair


def _reward(row: TrainerRow) -> TrainerRow:
    return {**_pair(row), "margin": row["margin"]}


def _with_tools(columns: TrainerRow, row: TrainerRow) -> TrainerRow:
    return {**columns, "tools": row["tools"]} if "tools" in row else columns


def _swift(message: Wire) -> Iterator[dict[str, Any]]:
    """Yield a message in ms-swift's roles: one message for its text, one for each call."""
    loss = {"loss": message["train"]} if "train" in message else {}
    calls = message.get("tool_calls", ())
    role = "tool_response" if message["role"] == "tool" else message["role"]
    text = thinking_and_text(message)
    if text or not calls:
        yield {"role": role, "content": text, **loss}
    for call in calls:
        function = {key: call["function"][key] for key in ("name", "arguments")}
        yield {"role": "tool_call", "content": dump(function).decode(), **loss}


_SFT: Final[Columns] = {"messages": "messages", "tools": "optional"}
_PAIR: Final[Columns] = {
    "messages": "messages",
    "rejected_messages": "messages",
    "tools": "optional",
    "rejected_tools": "optional",
}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, _sft),
    TrainingFile("sft_salvaged", "sft", "masked", _SFT, _sft),
    TrainingFile("dpo", "dpo", "pairs", _PAIR, _pair),
    TrainingFile("dpo_natural", "dpo", "natural", _PAIR, _pair),
    TrainingFile("reward", "reward", "margins", {**_PAIR, "margin": "real"}, _reward),
)
