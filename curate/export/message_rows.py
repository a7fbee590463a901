"""Rows of messages from dialogues and pairs, or the reason why there is no row.

Trainers' modules get these rows; `export.trainer_module` lists their streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.export.config import ExportConfig
from curate.export.template_messages import Refused, wire_message, wire_target, wire_tools
from curate.records import PreferencePair


def sft_row(dialogue: Dialogue, config: ExportConfig) -> tuple[dict[str, Any], int, bool]:
    """Return a dialogue as `{"messages", "tools"?}`.

    Returns:
        The row, the number of messages cut from the dialogue's end, and whether its role definition
        was added as a system message.

    Raises:
        Refused: `no_assistant`, `no_user`, or as `wire_target` and `wire_tools`.
    """
    answers = [at for at, message in enumerate(dialogue.messages) if message.role == "assistant"]
    if not answers:
        raise Refused("no_assistant", "the dialogue has no assistant message to train on")
    trained = dialogue.messages[: answers[-1] + 1]
    _require_user(trained)
    messages = [
        _wired(message, config, is_target=message.role == "assistant") for message in trained
    ]
    role = _added_role(dialogue, config)
    return (
        _with_tools({"messages": [*role, *messages]}, dialogue.tools),
        len(dialogue.messages) - len(trained),
        bool(role),
    )


def masked_row(dialogue: Dialogue, trained: Set[int], config: ExportConfig) -> dict[str, Any]:
    """Return a dialogue as `{"messages", "tools"?}` up to the last message to train on, each message with `train`.

    Args:
        dialogue: the dialogue.
        trained: indices of the assistant messages to train on; at least one.
        config: options.

    Raises:
        Refused: `no_user`, or as `wire_target` (for messages to train on), `wire_message` and `wire_tools`.
    """
    messages_up_to_last = dialogue.messages[: max(trained) + 1]
    _require_user(messages_up_to_last)
    messages = [
        _wired(message, config, is_target=index in trained) | {"train": index in trained}
        for index, message in enumerate(messages_up_to_last)
    ]
    role = [message | {"train": False} for message in _added_role(dialogue, config)]
    return _with_tools({"messages": [*role, *messages]}, dialogue.tools)


def turn_row(dialogue: Dialogue, index: int, config: ExportConfig) -> dict[str, Any]:
    """Return one assistant message as `{"prompt", "completion", "tools"?}`; the prompt is what precedes it, verbatim.

    Args:
        dialogue: the dialogue.
        index: index of the message.
        config: options.

    Raises:
        Refused: `prompt_not_open`, `no_user`, or as `wire_target`, `wire_message` and `wire_tools`.
    """
    before = dialogue.messages[:index]
    _require_open(before)
    prompt = [
        *_added_role(dialogue, config),
        *(_wired(message, config, is_target=False) for message in before),
    ]
    completion = [_wired(dialogue.messages[index], config, is_target=True)]
    return _with_tools({"prompt": prompt, "completion": completion}, dialogue.tools)


def pair_row(pair: PreferencePair, config: ExportConfig) -> dict[str, Any]:
    """Return a pair as `{"prompt", "chosen", "rejected", "tools"?}`, with one assistant message a side.

    The prompt is the one the policy was shown, verbatim.

    Raises:
        Refused: `not_verified`, `no_chosen`, `side_not_assistant`, `prompt_not_open`, `no_user`,
            `identical_sides`, or as `wire_target` and `wire_tools`.
    """
    if pair.drop_reason is not None:
        raise Refused("not_verified", f"the pair was dropped before: {pair.drop_reason}")
    if pair.chosen is None:
        raise Refused("no_chosen", "the pair has no chosen side")
    for name, side in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        if side.role != "assistant":
            raise Refused("side_not_assistant", f"the {name} side is a message of '{side.role}'")
    _require_open(pair.prompt)
    chosen = _wired(pair.chosen, config, is_target=True)
    rejected = _wired(pair.rejected, config, is_target=True)
    if _visible_parts(chosen) == _visible_parts(rejected):
        raise Refused("identical_sides", "as exported, chosen and rejected say the same")
    row = {
        "prompt": [_wired(message, config, is_target=False) for message in pair.prompt],
        "chosen": [chosen],
        "rejected": [rejected],
    }
    return _with_tools(row, pair.tools)


def labelled_rows(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield both sides of a pair's row as `{"prompt", "completion", "label", "tools"?}`, the chosen one first."""
    tools = {"tools": row["tools"]} if "tools" in row else {}
    for side, label in (("chosen", True), ("rejected", False)):
        yield {"prompt": row["prompt"], "completion": row[side], **tools, "label": label}


def _with_tools(row: dict[str, Any], tools: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    text = wire_tools(tools)
    return row if text is None else {**row, "tools": text}


def _added_role(dialogue: Dialogue, config: ExportConfig) -> list[dict[str, Any]]:
    """Return the role definition as a system message if the config asks for it and the dialogue has none; else `[]`."""
    has_own = bool(dialogue.messages) and dialogue.messages[0].role == "system"
    if not config.role_as_system or not dialogue.role_definition or has_own:
        return []
    return [{"role": "system", "content": dialogue.role_definition}]


def _wired(message: Message, config: ExportConfig, *, is_target: bool) -> dict[str, Any]:
    wire = wire_target if is_target else wire_message
    return wire(message, keep_reasoning=config.keep_reasoning)


def _visible_parts(side: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a template can show of a side; call ids are random and carry no meaning."""
    calls = [call["function"] for call in side.get("tool_calls", ())]
    return (side["content"], side.get("reasoning_content"), calls)


def _require_user(messages: tuple[Message, ...]) -> None:
    if all(message.role != "user" for message in messages):
        raise Refused("no_user", "there is no user message, and chat templates ask for one")


def _require_open(prompt: tuple[Message, ...]) -> None:
    if not prompt or prompt[-1].role not in ("user", "tool"):
        ends = f"with '{prompt[-1].role}'" if prompt else "before it begins"
        raise Refused("prompt_not_open", f"the prompt ends {ends}, not with the user or a tool")
    _require_user(prompt)
