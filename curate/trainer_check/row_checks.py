"""Checks of a single row, the same for every trainer, by the facts of each.

Nothing is rendered here and no trainer is run. What a trainer does with a defect is a fact of its module in `export`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from curate.export.trainer_facts import CHAT_ROLES, USUAL, Layout, Order, StageFacts
from curate.trainer_check.data_files import shown
from curate.trainer_check.examples import ANSWERS, ChatMessage, Example, comparable
from curate.trainer_check.findings import Problem
from curate.wording import plural


class Problems(list[Problem]):
    """Problems of one row, each with the effect that the facts of a stage give it."""

    def __init__(self, facts: StageFacts, layout: Layout | None = None) -> None:
        super().__init__()
        self._fates = [facts.fates, USUAL] if layout is None else [layout.fates, facts.fates, USUAL]
        self._side_fates = [facts.side_fates, *self._fates]

    def note(self, code: str, detail: str = "", *, in_side: bool = False) -> None:
        """Add a problem, unless this trainer has no problem with it."""
        for fates in self._side_fates if in_side else self._fates:
            if code in fates:
                if (fate := fates[code]) is not None:
                    self.append(Problem(code, fate.effect, fate.does, detail))
                return

    @property
    def stops(self) -> bool:
        """True if one of the problems ends the training run."""
        return any(problem.effect == "stops" for problem in self)


def check_example(
    example: Example, facts: StageFacts, problems: Problems, *, labelled: bool
) -> None:
    """Add the problems of a row.

    Args:
        example: content of the row.
        facts: facts of the stage.
        problems: problems of this row, which are added to.
        labelled: True if the row needs a label.
    """
    for name, messages in example.lists.items():
        _check_messages(messages, name, facts, problems, in_side=name in example.sides)
    if labelled and not isinstance(example.label, bool):
        problems.note("label_not_bool", shown(example.label))
    _check_tools(example, facts, problems)
    if not example.sides:
        _check_dialogue(example, facts, problems)
        return
    if not example.prompt:
        problems.note("empty_prompt")
    elif isinstance(example.prompt, str):
        if not example.prompt.strip() and facts.renders == "text":
            problems.note("empty_prompt")
    else:
        if example.prompt[-1]["role"] not in ("user", "tool"):
            problems.note("prompt_not_open", f"it ends with '{example.prompt[-1]['role']}'")
        _check_order(example.prompt, facts.order, problems)
        for side in example.sides.values():
            if isinstance(side, list) and len(side) > 1:
                _check_order([*example.prompt, *side], facts.order, problems)
    for name, side in example.sides.items():
        _check_side(side, name, problems)
    if example.differs:
        problems.note("prefix_differs")
    sides = [side if isinstance(side, str) else comparable(side) for side in example.sides.values()]
    if len(sides) == 2 and sides[0] == sides[1]:
        problems.note("identical_sides")


def _check_dialogue(example: Example, facts: StageFacts, problems: Problems) -> None:
    if isinstance(example.prompt, str):
        return
    answers, last = example.answers, example.prompt[-1]["role"]
    _check_order(example.prompt, facts.order, problems)
    if not answers:
        problems.note("no_assistant")
    if last not in ANSWERS and (answers or facts.order is not None):
        problems.note("ends_open", f"it ends with '{last}'")
    if any(is_empty(answer) for answer in answers):
        problems.note("empty_side", "messages")
    if any(_is_untrimmed(answer) for answer in answers):
        problems.note("untrimmed", "messages")


def _check_side(side: list[ChatMessage] | str, name: str, problems: Problems) -> None:
    if isinstance(side, str):
        if not side.strip():
            problems.note("empty_side", name)
        return
    if len(side) > 1:
        problems.note("several_messages", f"{name}: {plural(len(side), 'message')}")
    if side[-1]["role"] not in ANSWERS:
        problems.note("side_not_assistant", f"{name}: a message of '{side[-1]['role']}'")
    if is_empty(side[-1]):
        problems.note("empty_side", name)
    if any(_is_untrimmed(message) for message in side):
        problems.note("untrimmed", name)


def _check_order(messages: Sequence[ChatMessage], order: Order | None, problems: Problems) -> None:
    """Check that questions and answers alternate, after a system message."""
    if order is None:
        return
    turns: list[str] = []
    for at, message in enumerate(messages):
        role = message["role"]
        if role not in CHAT_ROLES and role != "call":
            return  # an unknown role is a problem of its own
        if role == "system" and at == 0:
            continue
        turn = "assistant" if role == "call" else role
        if not turns or turns[-1] != turn or role not in order.merges:
            turns.append(turn)
    if order.answers_may_open and turns[:1] == ["assistant"]:
        turns.insert(0, "user")
    for at, turn in enumerate(turns):
        if turn not in (("assistant",) if at % 2 else ("user", "tool")):
            problems.note(
                "role_order", f"'{turn}' where {'an answer' if at % 2 else 'a question'} is read"
            )
            return


def _check_messages(
    messages: Sequence[ChatMessage],
    where: str,
    facts: StageFacts,
    problems: Problems,
    *,
    in_side: bool,
) -> None:
    for at, message in enumerate(messages):
        place = f"{where}[{at}]"
        role, content = message["role"], message["content"]
        if role not in facts.roles.values():
            problems.note("unknown_role", f"{place}: {role}", in_side=in_side)
        if content is None and message.get("tool_calls"):
            if facts.fates.get("null_content", USUAL["null_content"]) is not None:
                does = USUAL["null_content"].does
                problems.append(Problem("null_content", "noted", does, place))
        elif content is None:
            problems.note("null_content", place, in_side=in_side)
        elif not isinstance(content, str):
            problems.note("content_not_text", f"{place}: {shown(content)}", in_side=in_side)
        elif role == "call" and not _is_call_text(content):
            problems.note("call_not_json", f"{place}: {shown(content)}")
        if facts.message_keys is not None and (
            extra := sorted(message.keys() - facts.message_keys)
        ):
            problems.note("extra_columns", f"{place}: {', '.join(extra)}")
        _check_calls(message.get("tool_calls"), place, facts, problems)


def _check_calls(calls: object, place: str, facts: StageFacts, problems: Problems) -> None:
    if not calls:
        return
    if facts.drops_calls:
        problems.note("tools_not_carried", f"{place}: {facts.drops_calls}")
        return
    if not isinstance(calls, list):
        problems.note("call_not_json", f"{place}: {shown(calls)}")
        return
    for call in calls:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            problems.note("call_not_json", f"{place}: {shown(call)}")
            continue
        arguments = function.get("arguments")
        is_json_text = isinstance(arguments, str) and _json(arguments) is not None
        if (facts.arguments == "text" and not is_json_text) or (
            facts.arguments == "any" and isinstance(arguments, str) and not is_json_text
        ):
            problems.note("call_not_json", f"{place}: {shown(arguments)}")
        elif facts.arguments == "object" and not isinstance(arguments, Mapping):
            problems.note("arguments_not_object", f"{place}: {shown(arguments)}")


def _check_tools(example: Example, facts: StageFacts, problems: Problems) -> None:
    tools = example.tools
    if not tools:
        return
    if facts.drops_tools:
        problems.note("tools_not_carried", facts.drops_tools)
        return
    decoded = _json(tools) if isinstance(tools, str) else tools
    if (facts.tools == "list") == isinstance(tools, str) and facts.tools != "list or text":
        problems.note(
            "tools_not_json", f"{'text' if isinstance(tools, str) else 'a list'}: {shown(tools)}"
        )
    elif not isinstance(decoded, list):
        problems.note("tools_not_json", shown(tools))


def tools_of(example: Example) -> list[Any] | None:
    """Return a row's tool definitions as a chat template gets them."""
    tools = _json(example.tools) if isinstance(example.tools, str) else example.tools
    return tools if isinstance(tools, list) and tools else None


def is_empty(message: ChatMessage) -> bool:
    """Return True if a message has neither text nor a tool call."""
    content = message.get("content")
    text = content.strip() if isinstance(content, str) else content
    return not text and not message.get("tool_calls")


def _is_untrimmed(message: ChatMessage) -> bool:
    content = message["content"]
    return isinstance(content, str) and bool(content.strip()) and content != content.strip()


def _json(text: str) -> Any:
    """Return the value of a JSON text; None if it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _is_call_text(content: str) -> bool:
    """Return True if a call's message is JSON with name and arguments, without thinking and text around a marked call."""
    # Not a regular expression: that would search for an end from each of many beginnings.
    call, is_marked, _ = content.partition("<tool_call>")[2].partition("</tool_call>")
    before, _, thought = content.partition("<think>")
    _, is_closed, after = thought.partition("</think>")
    bare = before + after if is_closed else content
    calls = _json(call if is_marked else bare)
    calls = calls if isinstance(calls, list) else [calls]
    return all(isinstance(call, Mapping) and {"name", "arguments"} <= call.keys() for call in calls)


def check_users(row: Mapping[str, Any], problems: Problems) -> None:
    """Check that every user message in a row has text; every trainer reads an empty one unchanged.

    Messages are recognised in any column by the keys of any trainer's format, and in Alpaca's two columns and its
    history of questions and answers.
    """
    places = list(_empty_users(row))
    texts = [row[name] for name in ("instruction", "input") if isinstance(row.get(name), str)]
    if isinstance(row.get("instruction"), str) and not any(map(str.strip, texts)):
        places.append("instruction")
    history = row.get("history")
    for at, pair in enumerate(history if isinstance(history, list) else ()):
        if isinstance(pair, list) and pair and isinstance(pair[0], str) and not pair[0].strip():
            places.append(f"history[{at}]")
    if places:
        problems.note("empty_user", ", ".join(dict.fromkeys(places)))


def _empty_users(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the places of empty user messages, in the row's columns and in columns within a column."""
    columns = list(row.items())
    for name, value in row.items():
        if isinstance(value, Mapping):
            columns += [(f"{name}.{inner}", item) for inner, item in value.items()]
    for name, value in columns:
        for at, message in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(message, Mapping) and _is_empty_user(message):
                yield f"{name}[{at}]" if isinstance(value, list) else name


def _is_empty_user(message: Mapping[str, Any]) -> bool:
    role = message.get("role", message.get("from"))
    content = message.get("content", message.get("value"))
    is_blank = content is None or (isinstance(content, str) and not content.strip())
    return isinstance(role, str) and role.lower() in ("user", "human") and is_blank
