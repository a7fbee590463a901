"""How OpenAI's fine-tuning reads a row: the documented form of its files, for SFT and for preferences.

There is no loader to install; a file with a row of another form is rejected as a whole when it is uploaded.
Tokens are counted with the tokenizer given, whose template is not OpenAI's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from curate.export.checking.findings import Problem
from curate.export.checking.lengths import ChatTokenizer, TemplateError
from curate.export.checking.reading import Row, shown
from curate.export.checking.shapes import (
    UNTRIMMED,
    Outcome,
    calls_of,
    identical_sides,
    is_untrimmed,
    message_problems,
    read_tools,
    said,
    says_nothing,
    stops,
)

Stage = Literal["sft", "dpo"]

SETTING: Final = "the model's training context"

FEWEST_ROWS: Final = 10
_REJECTS: Final = "reject the file"
_SIDES: Final = {"preferred_output": "chosen", "non_preferred_output": "rejected"}
_KEYS: Final = {
    "sft": {"messages", "tools", "parallel_tool_calls", "functions"},
    "dpo": {"input", *_SIDES},
}
_MESSAGE_KEYS: Final = {
    "role",
    "content",
    "name",
    "weight",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "refusal",
}


@dataclass(slots=True)
class OpenAiReading:
    """One file as OpenAI's fine-tuning reads it.

    Args:
        stage: `sft`, or `dpo` for preferences.
        columns: all columns of the file.
        is_json_lines: it takes no other kind.
        tokenizer: None leaves lengths out.
        limit: tokens an example may have; None where it is not known.
    """

    stage: Stage
    columns: tuple[str, ...]
    is_json_lines: bool
    tokenizer: ChatTokenizer | None
    limit: int | None

    def file_problems(self) -> list[Problem]:
        """What concerns the file as a whole."""
        problems = []
        if not self.is_json_lines:
            does = f"{_REJECTS}: it takes JSON Lines alone"
            problems.append(Problem("not_a_row", "stops", does))
        wanted = ("messages",) if self.stage == "sft" else ("input", *_SIDES)
        missing = [name for name in wanted if name not in self.columns]
        extra = [name for name in self.columns if name not in _KEYS[self.stage]]
        if missing:
            does = f"{_REJECTS}: it needs " + ", ".join(f"`{name}`" for name in wanted)
            problems.append(Problem("unknown_columns", "stops", does, ", ".join(self.columns)))
        elif extra:
            does = f"{_REJECTS}: it knows no such keys"
            problems.append(Problem("extra_columns", "stops", does, ", ".join(extra)))
        return problems

    def read(self, row: Row) -> Outcome:
        """What OpenAI's fine-tuning does with a row."""
        return self._dialogue(row) if self.stage == "sft" else self._pair(row)

    def _dialogue(self, row: Row) -> Outcome:
        messages = row.get("messages")
        problems = self._messages(messages, "messages")
        if stops(problems):
            return Outcome(problems)
        assert isinstance(messages, list)
        problems += _tool_problems(row.get("tools"))
        answers = [message for message in messages if message["role"] == "assistant"]
        if not answers:
            does = f"{_REJECTS}: an example needs an assistant message"
            problems.append(Problem("no_assistant", "stops", does))
        if any(says_nothing(message) for message in answers):
            does = f"{_REJECTS}: an assistant message has neither text nor a call"
            problems.append(Problem("empty_side", "stops", does))
        return self._measured([messages], problems, said(messages[:-1]))

    def _pair(self, row: Row) -> Outcome:
        given = row.get("input")
        prompt = given.get("messages") if isinstance(given, Mapping) else None
        sides = [row.get(name) for name in _SIDES]
        problems = self._messages(prompt, "input.messages")
        for name, side in zip(_SIDES, sides, strict=True):
            problems += self._messages(side, name)
        if stops(problems):
            return Outcome(problems)
        assert isinstance(given, Mapping)
        assert isinstance(prompt, list)
        problems += _tool_problems(given.get("tools"))
        answers = [side for side in sides if isinstance(side, list)]
        for name, side in zip(_SIDES, answers, strict=True):
            if len(side) != 1:
                does = f"{_REJECTS}: an output is one assistant message"
                detail = f"{name}: {len(side)} messages"
                problems.append(Problem("several_messages", "stops", does, detail))
            elif side[0]["role"] != "assistant":
                does = f"{_REJECTS}: an output is one assistant message"
                problems.append(Problem("side_not_assistant", "stops", does, name))
            elif says_nothing(side[0]):
                does = f"{_REJECTS}: an output has neither text nor a call"
                problems.append(Problem("empty_side", "stops", does, name))
            elif is_untrimmed(side[0]):
                problems.append(Problem("untrimmed", "noted", UNTRIMMED, name))
        if prompt[-1]["role"] == "assistant":
            does = "compare second answers in a row"
            problems.append(Problem("prompt_not_open", "corrupted", does))
        if said(answers[0]) == said(answers[1]):
            problems.append(identical_sides())
        return self._measured([[*prompt, *side] for side in answers], problems, said(prompt))

    def _messages(self, messages: object, where: str) -> list[Problem]:
        if not isinstance(messages, list) or not messages:
            code = "missing_column" if messages is None else "not_messages"
            does = f"{_REJECTS}: it expects a list of messages"
            return [Problem(code, "stops", does, f"{where}: {shown(messages)}")]
        problems = message_problems(
            messages,
            where,
            unknown="stops",
            unknown_does=f"{_REJECTS}: it knows no such role",
            null="stops",
        )
        problems = [
            problem
            for problem in problems
            if problem.code not in ("arguments_not_object", "content_not_text")
        ]
        for at, message in enumerate(messages):
            if not isinstance(message, Mapping):
                continue
            extra = sorted(set(message) - _MESSAGE_KEYS)
            if extra:
                does = f"{_REJECTS}: a message has keys it does not know"
                detail = f"{where}[{at}]: {', '.join(extra)}"
                problems.append(Problem("extra_columns", "stops", does, detail))
            for call in calls_of(message):
                function = call.get("function") if isinstance(call, Mapping) else None
                arguments = function.get("arguments") if isinstance(function, Mapping) else None
                if not _is_json_text(arguments):
                    does = f"{_REJECTS}: a call's arguments are to be JSON text"
                    detail = f"{where}[{at}]: {shown(arguments)}"
                    problems.append(Problem("call_not_json", "stops", does, detail))
        return problems

    def _measured(
        self,
        dialogues: Sequence[Sequence[Mapping[str, Any]]],
        problems: list[Problem],
        asked: object,
    ) -> Outcome:
        if self.tokenizer is None or stops(problems):
            return Outcome(problems, asked)
        try:
            needed = max(len(self.tokenizer.chat(messages)) for messages in dialogues)
        except TemplateError:
            return Outcome(problems, asked)  # its own template takes what this one does not
        if self.limit is not None and needed > self.limit:
            does = "cut off the end"
            problems.append(Problem("too_long", "truncated", does, f"{needed} tokens"))
        return Outcome(problems, asked, needed)


def stage_of(columns: Sequence[str]) -> Stage:
    """What columns are made for."""
    return "dpo" if "input" in columns or "preferred_output" in columns else "sft"


def _is_json_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return True


def _tool_problems(tools: object) -> list[Problem]:
    if isinstance(tools, str):
        does = f"{_REJECTS}: tools are to be a list, not text"
        return [Problem("tools_not_json", "stops", does)]
    return read_tools(tools)[1]
