"""What any trainer's reading asks of a row first: is it messages, whose, and is anything said in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import orjson

from curate.export.checking.findings import Effect, Problem
from curate.export.checking.reading import shown

Shape = Literal["messages", "text", "none", "empty", "other"]

CHAT_ROLES: Final = ("system", "developer", "user", "assistant", "tool")

# What several trainers do, in the words of a finding.
SEVERAL: Final = "train on every token after the prompt, the user's and the headers among them"
EMPTY: Final = "train on the end of the turn alone"
NOT_OPEN: Final = "add a second assistant header after the assistant's own message"
ENDS_OPEN: Final = "keep what follows the last answer, untrained"
NOT_ASSISTANT: Final = "train on another's words as if they were the assistant's"
UNTRIMMED: Final = "train on the white space too"


class Outcome(NamedTuple):
    """What a trainer's reading makes of a row.

    Attributes:
        problems: what is wrong with it, in any order.
        prompt: what is asked in it, for finding the same prompt again; None where it has none.
        needed: the limit in tokens under which it loses nothing; None where that was not counted.
    """

    problems: list[Problem]
    prompt: object = None
    needed: int | None = None


def shape_of(value: object) -> Shape:
    """Whether a column of a row holds messages or text."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        if not value:
            return "empty"
        if isinstance(value[0], Mapping) and "role" in value[0]:
            return "messages"
    return "other"


def message_problems(
    messages: object,
    where: str,
    *,
    roles: Collection[str] = CHAT_ROLES,
    unknown: Effect = "corrupted",
    unknown_does: str = "learn the role's name as it stands: its template knows no such role",
    null: Effect = "noted",
) -> list[Problem]:
    """What is wrong with a list of messages by itself, whatever they are for.

    Args:
        messages: the value found.
        where: the column, for the reader of the finding.
        roles: those the trainer knows.
        unknown: what becomes of a row with another role, and
        unknown_does: what the trainer does with it.
        null: what becomes of a row with a message without content; with a tool call it is only noted.
    """
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        does = "stop: it expects a list of messages"
        return [Problem("not_messages", "stops", does, f"{where}: {shown(messages)}")]
    problems: list[Problem] = []
    for at, message in enumerate(messages):
        place = f"{where}[{at}]"
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str):
            does = "stop: a message without a role"
            problems.append(Problem("not_messages", "stops", does, f"{place}: {shown(message)}"))
        elif role not in roles:
            problems.append(Problem("unknown_role", unknown, unknown_does, f"{place}: {role}"))
        if content is None:
            effect: Effect = "noted" if message.get("tool_calls") else null
            does = "hand a null to the template; some write it out as the word None"
            problems.append(Problem("null_content", effect, does, place))
        elif not isinstance(content, str):
            does = "hand the parts to the template; one for plain text writes out their code"
            problems.append(
                Problem("content_not_text", "corrupted", does, f"{place}: {shown(content)}")
            )
        problems += call_problems(message.get("tool_calls"), place)
    return problems


def empty_user_problems(row: Mapping[str, Any]) -> list[Problem]:
    """Whether a user's message anywhere in a row has no text; every trainer takes it as it stands.

    Looked for under the names that messages go by in any trainer's format, whatever the column, and in
    Alpaca's two columns and its history of questions and answers.
    """
    places = list(_empty_users(row))
    asked = [row[name] for name in ("instruction", "input") if isinstance(row.get(name), str)]
    if isinstance(row.get("instruction"), str) and not any(map(str.strip, asked)):
        places.append("instruction")
    history = row.get("history")
    for at, pair in enumerate(history if isinstance(history, list) else ()):
        if isinstance(pair, list) and pair and isinstance(pair[0], str) and not pair[0].strip():
            places.append(f"history[{at}]")
    if not places:
        return []
    does = "train on an answer to nothing"
    return [Problem("empty_user", "corrupted", does, ", ".join(dict.fromkeys(places)))]


def _empty_users(row: Mapping[str, Any]) -> Iterator[str]:
    """The places of users' empty messages, in the row's columns and in columns within a column."""
    columns = list(row.items())
    for name, value in row.items():
        if isinstance(value, Mapping):
            columns += [(f"{name}.{inner}", held) for inner, held in value.items()]
    for name, value in columns:
        for at, message in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(message, Mapping) and _is_empty_user(message):
                yield f"{name}[{at}]" if isinstance(value, list) else name


def _is_empty_user(message: Mapping[str, Any]) -> bool:
    role = message.get("role", message.get("from"))
    content = message.get("content", message.get("value"))
    is_blank = content is None or (isinstance(content, str) and not content.strip())
    return isinstance(role, str) and role.lower() in ("user", "human") and is_blank


def call_problems(calls: object, place: str) -> list[Problem]:
    """What is wrong with a message's tool calls in OpenAI's form."""
    if not calls:
        return []
    if not isinstance(calls, list):
        does = "stop: tool calls that are no list"
        return [Problem("call_not_json", "stops", does, f"{place}: {shown(calls)}")]
    problems = []
    for call in calls:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            does = "stop, or render a call without a name"
            problems.append(Problem("call_not_json", "stops", does, f"{place}: {shown(call)}"))
        elif not isinstance(function.get("arguments"), Mapping):
            does = "hand the text to the template; many templates fail on it or encode it twice"
            detail = f"{place}: {shown(function.get('arguments'))}"
            problems.append(Problem("arguments_not_object", "noted", does, detail))
    return problems


def calls_of(message: Mapping[str, Any]) -> list[Any]:
    """A message's tool calls; none where the key holds something else."""
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def says_nothing(message: Mapping[str, Any]) -> bool:
    """Whether a message has neither text nor a tool call."""
    content = message.get("content")
    text = content.strip() if isinstance(content, str) else content
    return not text and not message.get("tool_calls")


def is_untrimmed(message: Mapping[str, Any]) -> bool:
    """Whether white space stands at either end of a message's text."""
    content = message.get("content")
    return isinstance(content, str) and content != content.strip()


def said(messages: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """What messages say, call ids aside, for comparing two sides."""
    return [
        (
            message.get("role"),
            message.get("content") or "",
            [
                call.get("function", call) if isinstance(call, Mapping) else call
                for call in calls_of(message)
            ],
        )
        for message in messages
    ]


def uses_tools(messages: object) -> bool:
    """Whether any message calls a tool or is a tool's result."""
    return isinstance(messages, list) and any(
        isinstance(message, Mapping)
        and (message.get("tool_calls") or message.get("role") in ("tool", "function"))
        for message in messages
    )


def read_tools(tools: object) -> tuple[list[Any] | None, list[Problem]]:
    """Tool definitions of a row, decoded where they are JSON text as TRL and others do."""
    if tools is None or tools == "" or tools == []:
        return None, []
    if isinstance(tools, str):
        try:
            tools = orjson.loads(tools)
        except orjson.JSONDecodeError as error:
            does = "stop: tools are text that is no JSON"
            return None, [Problem("tools_not_json", "stops", does, str(error))]
    if not isinstance(tools, list):
        does = "hand something to the template that is no list of tools"
        return None, [Problem("tools_not_json", "corrupted", does, shown(tools))]
    return tools or None, []


def stops(problems: Iterable[Problem]) -> bool:
    """Whether a problem among these ends the run."""
    return any(problem.effect == "stops" for problem in problems)


def identical_sides(detail: str = "") -> Problem:
    """The problem of a pair whose sides are the same."""
    does = "train on it without a word; the row teaches nothing"
    return Problem("identical_sides", "corrupted", does, detail)


def open_prompt_problems(prompt: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Whether a prompt leaves the word to the assistant."""
    role = prompt[-1].get("role")
    if role in ("user", "tool"):
        return []
    return [Problem("prompt_not_open", "corrupted", NOT_OPEN, f"it ends with '{role}'")]


def side_problems(side: Sequence[Mapping[str, Any]], where: str) -> list[Problem]:
    """Whether a side, of at least one message, is one assistant message that says something."""
    problems = []
    if len(side) > 1:
        detail = f"{where}: {len(side)} messages"
        problems.append(Problem("several_messages", "mis_masked", SEVERAL, detail))
    elif side[0].get("role") != "assistant":
        detail = f"{where}: a message of '{side[0].get('role')}'"
        problems.append(Problem("side_not_assistant", "mis_masked", NOT_ASSISTANT, detail))
    if says_nothing(side[-1]):
        problems.append(Problem("empty_side", "corrupted", EMPTY, where))
    if any(is_untrimmed(message) for message in side):
        does = f"{UNTRIMMED}, unless its template trims"
        problems.append(Problem("untrimmed", "noted", does, where))
    return problems
