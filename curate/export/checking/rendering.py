"""What only shows when a chat template has written a row: refusals, and what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curate.export.checking.findings import Problem
from curate.export.checking.lengths import ChatTokenizer, TemplateError
from curate.export.checking.reading import shown
from curate.export.checking.shapes import uses_tools


def carried(
    tokenizer: ChatTokenizer, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None
) -> list[Problem]:
    """Whether a template shows tools and tool calls, and no null as the word None.

    Raises:
        TemplateError: it does not take the messages.
    """
    problems = []
    rendered: str | None = None
    if any(message.get("content") is None for message in messages):
        rendered = tokenizer.render(messages, tools=tools)
        filled = [
            {**m, "content": "" if m.get("content") is None else m["content"]} for m in messages
        ]
        if tokenizer.render(filled, tools=tools).count("None") < rendered.count("None"):
            does = "train on the word None: its template writes a null out"
            problems.append(Problem("null_content", "corrupted", does))
    if tools or uses_tools(messages):
        rendered = tokenizer.render(messages, tools=tools) if rendered is None else rendered
        bare = [{k: v for k, v in m.items() if k != "tool_calls"} for m in messages]
        calls = any(message.get("tool_calls") for message in messages)
        if calls and _unseen(tokenizer, bare, tools, rendered):
            does = "leave the tool calls out: its template shows none"
            problems.append(Problem("tools_not_carried", "corrupted", does, "tool_calls"))
        if tools and _unseen(tokenizer, messages, None, rendered):
            does = "leave the tools out: its template shows none"
            problems.append(Problem("tools_not_carried", "corrupted", does, "tools"))
    return problems


def _unseen(
    tokenizer: ChatTokenizer,
    messages: Sequence[Mapping[str, Any]],
    tools: list[Any] | None,
    rendered: str,
) -> bool:
    """Whether it makes no difference to what is rendered; a template that refuses makes one."""
    try:
        return tokenizer.render(messages, tools=tools) == rendered
    except TemplateError:
        return False


def template_fails(error: TemplateError) -> Problem:
    """The problem of a row that the chat template does not take."""
    return Problem(
        "template_fails",
        "stops",
        "stop: its chat template refuses the messages",
        shown(str(error), 120),
    )
