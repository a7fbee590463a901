"""How ms-swift reads a row: its preprocessor, which deletes what it cannot read, and its template's first steps.

Stated after ms-swift 4.6 (`dataset/preprocessor/core.py`, `template/template_inputs.py`, `template/base.py`).
Rows it cannot preprocess are deleted; rows it cannot encode are replaced by others drawn at random, so that
they are never seen. Lengths are counted with the tokenizer's chat template, ms-swift has templates of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from curate.export.checking.findings import Problem
from curate.export.checking.lengths import ChatTokenizer, TemplateError
from curate.export.checking.reading import Row, shown
from curate.export.checking.shapes import (
    EMPTY,
    UNTRIMMED,
    Outcome,
    calls_of,
    identical_sides,
    is_untrimmed,
)

Stage = Literal["sft", "dpo", "kto"]

SETTING: Final = "max_length"

_ROLES: Final = {
    "human": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "function_call": "tool_call",
    "function_response": "tool_response",
    "observation": "tool_response",
    "observations": "tool_response",
}
_KNOWN: Final = ("system", "user", "tool_call", "tool_response", "tool", "assistant")
_MESSAGES: Final = ("messages", "conversation", "conversations")
_QUERY: Final = ("query", "prompt", "input", "instruction", "question", "problem")
_RESPONSE: Final = ("response", "answer", "output", "targets", "target", "text", "completion")
_DELETES: Final = "delete the row"
_REPLACES: Final = "skip the row and draw another at random"


class _Bad(Exception):
    """The row is lost; carries the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


def _bad(code: str, does: str, detail: str = "") -> _Bad:
    return _Bad(Problem(code, "dropped", does, detail))


@dataclass(slots=True)
class SwiftReading:
    """One file as ms-swift reads it.

    Args:
        stage: `dpo` for all of `swift rlhf` that reads pairs.
        columns: all columns of the file.
        tokenizer: None leaves lengths out.
        limit: `max_length`; None is the model's own.
    """

    stage: Stage
    columns: tuple[str, ...]
    tokenizer: ChatTokenizer | None
    limit: int | None

    def file_problems(self) -> list[Problem]:
        """What concerns the file as a whole."""
        has = {name.lower() for name in self.columns}
        detail = ", ".join(self.columns)
        if not has & {*_MESSAGES, *_QUERY, *_RESPONSE}:
            does = "delete every row: it finds no messages"
            return [Problem("unknown_columns", "stops", does, detail)]
        if self.stage == "dpo" and not has & {"rejected_response", "rejected_messages"}:
            does = "fail on every row: it reads `rejected_messages` or `rejected_response`"
            return [Problem("unknown_columns", "stops", does, detail)]
        if self.stage == "kto" and "label" not in has:
            does = "take every row for an undesired one: there is no `label`"
            return [Problem("unknown_columns", "stops", does, detail)]
        return []

    def read(self, row: Row) -> Outcome:
        """What ms-swift does with a row."""
        problems: list[Problem] = []
        try:
            messages = _standard(self._messages(row), row.get("system"))
            rejected = None
            if row.get("rejected_messages"):
                rejected = _standard(row["rejected_messages"], None)
            elif "rejected_messages" in self.columns:
                does = "compare the answer with itself: it fills the null with the chosen messages"
                problems.append(Problem("missing_column", "corrupted", does, "rejected_messages"))
            elif "rejected_response" in self.columns:
                rejected = _with_response(messages, row.get("rejected_response"))
            elif self.stage == "dpo":
                raise _bad("missing_column", _REPLACES, "rejected_messages")
            problems += self._sides(messages, rejected)
            for part in (messages, rejected or ()):
                _pairs_of_turns(part)
        except _Bad as bad:
            return Outcome([*problems, bad.problem])
        if self.stage == "kto" and not isinstance(row.get("label"), bool):
            does = "take the row for one of the label its value counts as"
            label = Problem("label_not_bool", "corrupted", does, shown(row.get("label")))
            problems.append(label)
        asked = [(m["role"], m["content"]) for m in messages[:-1]]
        return self._measured(messages, rejected, problems, asked)

    def _messages(self, row: Row) -> Any:
        by_name = {name.lower(): name for name in self.columns}
        for name in _MESSAGES:
            if name in by_name:
                return row.get(by_name[name])
        query = next((row.get(by_name[name]) for name in _QUERY if name in by_name), None)
        response = next((row.get(by_name[name]) for name in _RESPONSE if name in by_name), None)
        response = response[0] if isinstance(response, list) and response else response
        if query is None or response is None:
            raise _bad("missing_column", _DELETES, "query or response")
        return [{"role": "user", "content": query}, {"role": "assistant", "content": response}]

    def _sides(
        self, messages: Sequence[Mapping[str, Any]], rejected: Sequence[Mapping[str, Any]] | None
    ) -> list[Problem]:
        problems = []
        ends = messages[-1]["role"]
        if ends not in ("assistant", "tool_call"):
            does = "train on no answer: the messages end before one"
            code = "ends_open" if self.stage == "sft" else "side_not_assistant"
            problems.append(Problem(code, "mis_masked", does, f"ends with '{ends}'"))
        for name, part in (("messages", messages), ("rejected", rejected or ())):
            answer = part[-1] if part else None
            if answer is None or answer["role"] != "assistant":
                continue
            if isinstance(answer["content"], str) and not answer["content"].strip():
                problems.append(Problem("empty_side", "corrupted", EMPTY, name))
            elif is_untrimmed(answer):
                problems.append(Problem("untrimmed", "noted", UNTRIMMED, name))
        if rejected is None:
            return problems
        if list(messages) == list(rejected):
            problems.append(identical_sides())
        elif messages[-1]["role"] == rejected[-1]["role"] == "assistant":
            before = [part[:-1] for part in (messages, rejected)]
            if _after_user(messages) > 1 or _after_user(rejected) > 1:
                tail = messages[len(messages) - _after_user(messages) :]
                if list(before[0]) != list(before[1]) and any(
                    m["role"] == "assistant" for m in tail[:-1]
                ):
                    does = "train on every answer after the user's last message"
                    problems.append(Problem("several_messages", "mis_masked", does))
            elif list(before[0]) != list(before[1]):
                does = "compare answers to different questions"
                problems.append(Problem("prefix_differs", "corrupted", does))
        return problems

    def _measured(
        self,
        messages: Sequence[Mapping[str, Any]],
        rejected: Sequence[Mapping[str, Any]] | None,
        problems: list[Problem],
        asked: object,
    ) -> Outcome:
        if self.tokenizer is None:
            return Outcome(problems, asked)
        try:
            needed = max(
                len(self.tokenizer.chat(_plain(part))) for part in (messages, rejected) if part
            )
        except TemplateError:
            return Outcome(problems, asked)  # its own templates take what this one does not
        if self.limit is not None and needed > self.limit:
            does = f"{_REPLACES}: it is longer than max_length"
            problems.append(Problem("too_long", "dropped", does, f"{needed} tokens"))
        return Outcome(problems, asked, needed)


def stage_of(columns: Sequence[str]) -> Stage:
    """What columns are made for."""
    if "rejected_response" in columns or "rejected_messages" in columns:
        return "dpo"
    return "kto" if "label" in columns else "sft"


def _standard(messages: Any, system: object) -> list[dict[str, Any]]:
    """Messages with ms-swift's roles; `loss` aside, other keys are forgotten."""
    if isinstance(messages, str):
        messages = _parsed(messages)
    if not isinstance(messages, list) or not messages:
        raise _bad("not_messages", _DELETES, shown(messages))
    made: list[dict[str, Any]] = []
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise _bad("not_messages", _DELETES, shown(message))
        content = message.get("content", message.get("value"))
        calls = message.get("tool_calls")
        role = message.get("role", message.get("from"))
        if not isinstance(role, str):
            raise _bad("not_messages", _DELETES, f"message {at}: no role")
        role = _ROLES.get(role.replace("-", "_"), role)
        if calls and role == "assistant":
            if content:
                made.append({"role": "assistant", "content": content})
            for call in calls_of(message):
                function = call.get("function", call) if isinstance(call, Mapping) else None
                if not isinstance(function, Mapping) or "name" not in function:
                    raise _bad("call_not_json", _DELETES, f"message {at}: {shown(call)}")
                said = {key: function.get(key) for key in ("name", "arguments")}
                made.append({"role": "tool_call", "content": said})
            continue
        if role not in _KNOWN:
            raise _bad("unknown_role", _DELETES, f"message {at}: {role}")
        if content is None:
            raise _bad("null_content", _DELETES, f"message {at}")
        role = "tool_response" if role == "tool" else role
        made.append({"role": role, "content": content})
    if system is not None and made[0]["role"] != "system":
        made.insert(0, {"role": "system", "content": system})
    return made


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise _bad("not_messages", _DELETES, shown(text)) from None


def _with_response(messages: list[dict[str, Any]], response: Any) -> list[dict[str, Any]]:
    """The rejected conversation: what follows the last user message is replaced."""
    if response is None:
        raise _bad("missing_column", _DELETES, "rejected_response")
    if isinstance(response, str) and response == messages[-1]["content"]:
        raise _bad("identical_sides", _DELETES)
    if isinstance(response, str):
        answers = [{"role": "assistant", "content": response}]
    else:
        answers = _standard(response, None)
        if any(message["role"] == "user" for message in answers):
            raise _bad("side_not_assistant", _REPLACES, "rejected_response: a user's message")
    at = len(messages) - _after_user(messages)
    if len(messages) - at == 1 and [m["content"] for m in messages[at:]] == [
        m["content"] for m in answers
    ]:
        raise _bad("identical_sides", _REPLACES)
    return [*messages[:at], *answers]


def _after_user(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many messages follow the user's last one."""
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    return len(messages) - 1 - users[-1] if users else len(messages)


def _pairs_of_turns(messages: Sequence[Mapping[str, Any]]) -> None:
    """That questions and answers take turns, once neighbours of one role are merged."""
    turns: list[str] = []
    for at, message in enumerate(messages):
        role = message["role"]
        if role == "system" and at == 0:
            continue
        turn = {"tool_call": "assistant", "tool_response": "tool"}.get(role, role)
        if not turns or turns[-1] != turn:
            turns.append(turn)
    if turns and turns[0] == "assistant":
        turns.insert(0, "user")
    for at, turn in enumerate(turns):
        expected = ("assistant",) if at % 2 else ("user", "tool")
        if turn not in expected:
            does = f"{_REPLACES}: questions and answers are to take turns"
            raise _bad("role_order", does, f"'{turn}' where {' or '.join(expected)} is read")


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Messages that any chat template takes, for counting."""
    names = {"tool_call": "assistant", "tool_response": "user"}
    return [
        {
            "role": names.get(message["role"], message["role"]),
            "content": message["content"]
            if isinstance(message["content"], str)
            else orjson.dumps(message["content"]).decode(),
        }
        for message in messages
    ]
