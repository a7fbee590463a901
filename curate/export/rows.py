"""A dialogue and a pair as rows of messages, or the reason why they cannot be one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.export.config import ExportConfig
from curate.export.wire import Refused, wire_message, wire_target, wire_tools
from curate.records import PreferencePair


def sft_row(dialogue: Dialogue, config: ExportConfig) -> tuple[dict[str, Any], int, bool]:
    """A dialogue as `{"messages", "tools"?}`.

    Returns:
        The row, how many messages were cut from the dialogue's end, and whether its role definition
        was added as a system message.

    Raises:
        Refused: `no_assistant`, `no_user`, or as `wire_target` and `wire_tools`.
    """
    last = _last_assistant(dialogue.messages)
    if last is None:
        raise Refused("no_assistant", "the dialogue has no assistant message to train on")
    kept = dialogue.messages[: last + 1]
    _require_user(kept)
    messages = [
        (wire_target if message.role == "assistant" else wire_message)(
            message, keep_reasoning=config.keep_reasoning
        )
        for message in kept
    ]
    role = dialogue.role_definition
    adds_role = config.role_as_system and bool(role) and kept[0].role != "system"
    if adds_role:
        messages.insert(0, {"role": "system", "content": role})
    return (
        _with_tools({"messages": messages}, dialogue.tools),
        len(dialogue.messages) - len(kept),
        adds_role,
    )


def pair_row(pair: PreferencePair, config: ExportConfig) -> dict[str, Any]:
    """A pair as `{"prompt", "chosen", "rejected", "tools"?}`: one assistant message a side.

    The prompt is verbatim what the policy was shown.

    Raises:
        Refused: `not_verified`, `no_chosen`, `side_not_assistant`, `prompt_not_open`, `no_user`,
            `identical_sides`, or as `wire_target` and `wire_tools`.
    """
    if pair.refusal is not None:
        raise Refused("not_verified", f"the pair was refused before: {pair.refusal}")
    if pair.chosen is None:
        raise Refused("no_chosen", "the pair has no chosen side")
    for name, side in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        if side.role != "assistant":
            raise Refused("side_not_assistant", f"the {name} side is a message of '{side.role}'")
    if not pair.prompt or pair.prompt[-1].role not in ("user", "tool"):
        ends = f"with '{pair.prompt[-1].role}'" if pair.prompt else "before it begins"
        raise Refused("prompt_not_open", f"the prompt ends {ends}, not with the user or a tool")
    _require_user(pair.prompt)
    keep = config.keep_reasoning
    chosen = wire_target(pair.chosen, keep_reasoning=keep)
    rejected = wire_target(pair.rejected, keep_reasoning=keep)
    if _said(chosen) == _said(rejected):
        raise Refused("identical_sides", "as exported, chosen and rejected say the same")
    row = {
        "prompt": [wire_message(message, keep_reasoning=keep) for message in pair.prompt],
        "chosen": [chosen],
        "rejected": [rejected],
    }
    return _with_tools(row, pair.tools)


def _with_tools(row: dict[str, Any], tools: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    text = wire_tools(tools)
    return row if text is None else {**row, "tools": text}


def _said(side: Mapping[str, Any]) -> tuple[object, ...]:
    """What a template can show of a side; call ids are drawn by servers and mean nothing."""
    calls = [call["function"] for call in side.get("tool_calls", ())]
    return (side["content"], side.get("reasoning_content"), calls)


def _last_assistant(messages: tuple[Message, ...]) -> int | None:
    indices = [index for index, message in enumerate(messages) if message.role == "assistant"]
    return indices[-1] if indices else None


def _require_user(messages: tuple[Message, ...]) -> None:
    if all(message.role != "user" for message in messages):
        raise Refused("no_user", "there is no user message, and chat templates ask for one")
