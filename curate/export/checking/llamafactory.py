"""How LLaMA-Factory reads a row: what `dataset_info.json` says of the file, its converters, its processors.

Stated after LLaMA-Factory 0.9.5 (`data/parser.py`, `data/converter.py`, `data/processor`). A row that does
not convert is not an error there: it becomes an empty one and is dropped with a line in the log. Lengths are
counted with the tokenizer's chat template, LLaMA-Factory has templates of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from curate.export.checking.dataset_info import COLUMNS, DatasetInfo
from curate.export.checking.findings import Effect, Problem
from curate.export.checking.lengths import ChatTokenizer, TemplateError
from curate.export.checking.reading import Row, shown
from curate.export.checking.shapes import (
    EMPTY,
    NOT_ASSISTANT,
    UNTRIMMED,
    Outcome,
    calls_of,
    identical_sides,
    is_untrimmed,
    stops,
)

SETTING: Final = "cutoff_len"
DEFAULT_LIMIT: Final = 2048

_SKIPS: Final = "drop the row with a line in the log"


class _Skip(Exception):
    """The row becomes something else than an example; carries the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


def _skip(code: str, effect: Effect, does: str, detail: str = "") -> _Skip:
    return _Skip(Problem(code, effect, does, detail))


@dataclass(slots=True)
class LlamaFactoryReading:
    """One file as LLaMA-Factory reads it.

    Args:
        info: what it knows of the file.
        columns: all columns of the file.
        tokenizer: None leaves lengths out.
        limit: `cutoff_len`.
    """

    info: DatasetInfo
    columns: tuple[str, ...]
    tokenizer: ChatTokenizer | None
    limit: int

    def file_problems(self) -> list[Problem]:
        """What concerns the file as a whole: above all, what its description leaves out."""
        info, problems = self.info, []
        if not info.is_listed:
            does = "not find the file: it reads what dataset_info.json names"
            problems.append(Problem("no_dataset_info", "stops", does))
        if info.missing_tags:
            fatal = [tag for tag in ("role_tag", "content_tag") if tag in info.missing_tags]
            does = (
                "stop: a message is read by these keys"
                if fatal and info.formatting != "alpaca"
                else "take the missing tags for unset, not for their defaults"
            )
            effect: Effect = "stops" if fatal and info.formatting != "alpaca" else "noted"
            problems.append(Problem("partial_tags", effect, does, ", ".join(info.missing_tags)))
        wanted = [] if info.formatting == "alpaca" else ["messages"]
        wanted += ["chosen", "rejected"] if info.ranking else []
        unset = [name for name in wanted if info.columns[name] is None]
        if unset:
            does = "stop: it has no column for what it needs"
            problems.append(Problem("partial_columns", "stops", does, ", ".join(unset)))
        named = [column for column in info.columns.values() if column is not None]
        if info.formatting == "alpaca":
            named = [
                c for c in named if c not in ("conversations", "instruction", "input", "output")
            ]
            named += [c for c in (info.columns["prompt"], info.columns["query"]) if c]
        elif not any(name in info.missing_columns for name in COLUMNS):
            named = [c for c in named if c not in ("instruction", "input", "output")]
        absent = sorted({column for column in named if column not in self.columns})
        if absent:
            does = "stop: the description names columns that the file does not have"
            problems.append(Problem("unknown_columns", "stops", does, ", ".join(absent)))
        return problems

    def read(self, row: Row) -> Outcome:
        """What LLaMA-Factory does with a row."""
        try:
            prompt, response, system, tools = self._converted(row)
            if len(prompt) % 2 == 0:
                raise _skip("message_count", "dropped", _SKIPS, "no message to answer")
            problems = self._unread(row) + self._examined(prompt, response, tools, row)
        except _Skip as skip:
            return Outcome([*self._unread(row), skip.problem])
        needed = None
        if self.tokenizer is not None and not stops(problems):
            cut, needed = self._cut(prompt, response, f"{system or ''}{tools or ''}")
            problems += cut
        return Outcome(problems, [(m["role"], m["content"]) for m in prompt], needed)

    @property
    def _role_key(self) -> str:
        return self.info.tags["role_tag"] or ""

    def _value(self, row: Row, name: str) -> Any:
        """The value of a column by its meaning; None where it is unset or the row does not have it."""
        column = self.info.columns[name]
        return None if column is None else row.get(column)

    def _converted(
        self, row: Row
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], object, object]:
        """Prompt, response, system and tools, as its converters make them."""
        tools = self._value(row, "tools")
        if self.info.formatting == "alpaca":
            return *self._alpaca(row), self._value(row, "system"), tools
        messages = self._value(row, "messages")
        if not isinstance(messages, list):
            raise _skip("not_messages", "stops", "stop: no list of messages", shown(messages))
        role, tags = self._role_key, self.info.tags
        if not all(isinstance(m, Mapping) and role in m for m in messages):
            detail = f"no key '{role}': {shown(messages)}"
            raise _skip("not_messages", "stops", "stop: a message without its keys", detail)
        system = self._value(row, "system")
        if tags["system_tag"] and messages and messages[0][role] == tags["system_tag"]:
            system, messages = self._content(messages[0]), messages[1:]
        aligned = (
            self._openai(messages) if self.info.formatting == "openai" else self._aligned(messages)
        )
        if len(aligned) % 2 != (1 if self.info.ranking else 0):
            wanted = "an odd number before the sides" if self.info.ranking else "an even number"
            detail = f"{len(aligned)} messages; {wanted} is read"
            raise _skip("message_count", "dropped", _SKIPS, detail)
        if isinstance(self._value(row, "kto_tag"), bool):
            blank = {"role": "assistant", "content": ""}
            last = aligned[-1:]
            response = [*last, blank] if self._value(row, "kto_tag") else [blank, *last]
            return aligned[:-1], response, system, tools
        sides = [self._value(row, name) for name in ("chosen", "rejected")]
        if self.info.ranking and all(isinstance(side, Mapping) for side in sides):
            return aligned, [self._side(side) for side in sides], system, tools
        if self.info.ranking:
            detail = f"chosen: {shown(sides[0], 30)}, rejected: {shown(sides[1], 30)}"
            code = "missing_column" if None in sides else "mixed_shapes"
            does = f"{_SKIPS}: chosen and rejected are each to be one message"
            raise _skip(code, "dropped", does, detail)
        return aligned[:-1], aligned[-1:], system, tools

    def _alpaca(self, row: Row) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        prompt = []
        history = self._value(row, "history")
        history = history if isinstance(history, list) else []
        if not all(isinstance(turn, list) and len(turn) == 2 for turn in history):
            does = "stop: the history is to be pairs of question and answer"
            raise _skip("not_messages", "stops", does, shown(history))
        for asked, answered in history:
            prompt.append({"role": "user", "content": asked})
            prompt.append({"role": "assistant", "content": answered})
        query = [text for name in ("prompt", "query") if (text := self._value(row, name))]
        if not all(isinstance(text, str) for text in query):
            raise _skip("content_not_text", "stops", "stop: the prompt is no text", shown(query))
        prompt.append({"role": "user", "content": "\n".join(query)})
        if self.info.ranking:
            sides = [self._value(row, name) for name in ("chosen", "rejected")]
        else:
            sides = [self._value(row, "response")]
        if not all(isinstance(side, str) for side in sides):
            code = "missing_column" if None in sides else "mixed_shapes"
            raise _skip(code, "dropped", f"{_SKIPS}: an answer is to be a text", shown(sides))
        answers = [{"role": "assistant", "content": side} for side in sides]
        label = self._value(row, "kto_tag")
        if isinstance(label, bool):
            blank = {"role": "assistant", "content": ""}
            answers = [*answers, blank] if label else [blank, *answers]
        return prompt, answers

    def _aligned(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """ShareGPT: user or tool result, assistant or call, and so on in turn."""
        tags = self.info.tags
        turns = (("user_tag", "observation_tag"), ("assistant_tag", "function_tag"))
        aligned = []
        for at, message in enumerate(messages):
            role = message[self._role_key]
            name = next((name for name in turns[at % 2] if tags[name] == role), None)
            if name is None:
                known = role in tags.values()
                if not known and "observation_tag" in self.info.missing_tags:
                    code = "tool_result_unread"
                else:
                    code = "role_order" if known else "unknown_role"
                detail = f"message {at} of '{role}'"
                raise _skip(code, "dropped", f"{_SKIPS}: it has its turn with other roles", detail)
            aligned.append({"role": name.removesuffix("_tag"), "content": self._content(message)})
        return aligned

    def _openai(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """OpenAI's form: calls become JSON text, results in a row become one."""
        tags = self.info.tags
        by_tag = {
            tag: name for name, tag in tags.items() if name not in ("role_tag", "content_tag")
        }
        aligned: list[dict[str, Any]] = []
        results: list[str] = []
        for message in messages:
            role, content = message[self._role_key], self._content(message)
            calls = calls_of(message)
            if role in (tags["assistant_tag"], tags["function_tag"]) and calls:
                if not all(isinstance(call, Mapping) and "function" in call for call in calls):
                    does = "stop: a call without its function"
                    raise _skip("call_not_json", "stops", does, shown(calls))
                content = orjson.dumps([call["function"] for call in calls]).decode()
                role = tags["function_tag"]
            if role == tags["observation_tag"]:
                if not isinstance(content, str):
                    does = "stop: a tool's result is to be a text"
                    raise _skip("content_not_text", "stops", does, shown(content))
                results.append(content)
                continue
            if results:
                joined = "\n</tool_response>\n<tool_response>\n".join(results)
                aligned.append({"role": "observation", "content": joined})
                results = []
            if role not in by_tag:
                raise _skip("unknown_role", "stops", "stop: it has no such role", str(role))
            aligned.append({"role": by_tag[role].removesuffix("_tag"), "content": content})
        for at, entry in enumerate(aligned):
            turn = ("user", "observation") if at % 2 == 0 else ("assistant", "function")
            if entry["role"] not in turn:
                detail = f"message {at} of '{entry['role']}'"
                raise _skip("role_order", "dropped", f"{_SKIPS}: not its turn", detail)
        return aligned

    def _side(self, side: Mapping[str, Any]) -> dict[str, Any]:
        tags = self.info.tags
        role = side.get(tags["role_tag"] or "")
        name = next((name for name, tag in tags.items() if tag == role and role is not None), None)
        if name is None or tags["content_tag"] not in side:
            raise _skip("unknown_role", "stops", "stop: a side of no role it knows", shown(side))
        return {"role": name.removesuffix("_tag"), "content": self._content(side)}

    def _content(self, message: Mapping[str, Any]) -> Any:
        key = self.info.tags["content_tag"] or ""
        if key not in message:
            raise _skip(
                "not_messages", "stops", "stop: a message without its content", shown(message)
            )
        return message[key]

    def _unread(self, row: Row) -> list[Problem]:
        """What the row has and the description does not name."""
        unread = [
            name
            for name in ("system", "tools")
            if self.info.columns[name] is None and row.get(name)
        ]
        problems = []
        if unread:
            does = f"leave {' and '.join(unread)} out: the description names no column for them"
            problems.append(Problem("partial_columns", "corrupted", does))
        messages = self._value(row, "messages")
        if self.info.formatting == "sharegpt" and isinstance(messages, list):
            said = [messages, self._value(row, "chosen"), self._value(row, "rejected")]
            flat = [m for part in said for m in (part if isinstance(part, list) else [part])]
            if any(isinstance(m, Mapping) and m.get("tool_calls") for m in flat):
                does = "leave `tool_calls` out: calls are messages of their own here"
                problems.append(Problem("tools_not_carried", "corrupted", does))
        return problems

    def _examined(
        self,
        prompt: Sequence[Mapping[str, Any]],
        response: Sequence[Mapping[str, Any]],
        tools: object,
        row: Row,
    ) -> list[Problem]:
        """What its processors and templates make of a converted row."""
        problems = []
        for at, message in enumerate([*prompt, *response]):
            problems += _content_problems(message, at)
        if tools and not isinstance(tools, str):
            does = "stop: tools are to be JSON text"
            problems.append(Problem("tools_not_json", "stops", does, shown(tools)))
        elif tools and isinstance(tools, str):
            try:
                orjson.loads(tools)
            except orjson.JSONDecodeError as error:
                does = "stop: tools are text that is no JSON"
                problems.append(Problem("tools_not_json", "stops", does, str(error)))
        answers = response if self.info.stage != "kto" else [m for m in response if m["content"]]
        if self.info.stage == "kto" and not isinstance(self._value(row, "kto_tag"), bool):
            does = f"{_SKIPS}: the label is to be true or false"
            shows = shown(self._value(row, "kto_tag"))
            problems.append(Problem("label_not_bool", "dropped", does, shows))
        if self.info.stage == "kto" and not answers:
            does = "take the row for an undesired one: it tells by which answer is empty"
            problems.append(Problem("empty_side", "corrupted", does))
        for answer in answers:
            content = answer["content"]
            if answer["role"] not in ("assistant", "function"):
                role = answer["role"]
                problems.append(Problem("side_not_assistant", "mis_masked", NOT_ASSISTANT, role))
            if isinstance(content, str) and not content.strip():
                problems.append(Problem("empty_side", "corrupted", EMPTY))
            elif is_untrimmed(answer):
                problems.append(Problem("untrimmed", "noted", UNTRIMMED))
        if self.info.ranking and response[0]["content"] == response[1]["content"]:
            problems.append(identical_sides())
        return problems

    def _cut(
        self,
        prompt: Sequence[Mapping[str, Any]],
        response: Sequence[Mapping[str, Any]],
        system: str,
    ) -> tuple[list[Problem], int | None]:
        """What `cutoff_len` takes away, and the limit under which it takes nothing."""
        assert self.tokenizer is not None
        answers = [m for m in response if m["content"]] or list(response)
        try:
            source = self._counted(prompt, system)
            totals = [self._counted([*prompt, answer], system) for answer in answers]
        except TemplateError:
            return [], None  # its own templates take what this one does not
        needed = max(totals)
        if needed <= self.limit:
            return [], needed
        if self.info.stage == "sft":
            does = "cut off the end; turns beyond the limit are left out without a word"
            return [Problem("too_long", "truncated", does, f"{needed} tokens")], needed
        target = needed - source
        kept = _kept(source, target, self.limit)
        if kept[0] < source:
            does = "cut off the end of the prompt, which is where the question is"
            detail = f"{source - kept[0]} of {source} tokens of the prompt"
            return [Problem("prompt_too_long", "truncated", does, detail)], needed
        does = "cut off the end of the answers"
        return [Problem("too_long", "truncated", does, f"{needed} tokens")], needed

    def _counted(self, messages: Sequence[Mapping[str, Any]], system: str) -> int:
        assert self.tokenizer is not None
        names = {"user": "user", "observation": "user", "system": "system"}
        chat = [
            {"role": names.get(m["role"], "assistant"), "content": m["content"] or ""}
            for m in messages
        ]
        if system:
            chat.insert(0, {"role": "system", "content": system})
        return len(self.tokenizer.chat(chat, opens=chat[-1]["role"] != "assistant"))


def _content_problems(message: Mapping[str, Any], at: int) -> list[Problem]:
    content = message["content"]
    if content is None:
        return [Problem("null_content", "stops", "stop: it expects a text", f"message {at}")]
    if not isinstance(content, str):
        detail = f"message {at}: {shown(content)}"
        return [Problem("content_not_text", "stops", "stop: it expects a text", detail)]
    if message["role"] != "function":
        return []
    # A text may stand beside a call, which is then marked; thinking may stand before one.
    marked = re.search("<tool_call>(.*?)</tool_call>", content, re.DOTALL)
    if marked is not None:
        content = marked.group(1)
    else:
        content = re.sub("<think>.*?</think>", "", content, count=1, flags=re.DOTALL)
    try:
        calls = orjson.loads(content)
        calls = calls if isinstance(calls, list) else [calls]
        whole = all(isinstance(c, Mapping) and {"name", "arguments"} <= c.keys() for c in calls)
    except orjson.JSONDecodeError:
        whole = False
    if whole:
        return []
    does = "stop: a call is to be JSON with name and arguments"
    return [Problem("call_not_json", "stops", does, f"message {at}: {shown(content)}")]


def _kept(source: int, target: int, limit: int) -> tuple[int, int]:
    """Tokens kept of prompt and answer (`infer_seqlen`): a short side is spared, two long ones share."""
    if target * 2 < limit:
        room = limit
    elif source * 2 < limit:
        room = limit - source
    else:
        room = int(limit * (target / (source + target)))
    kept = min(room, target)
    return min(max(limit - kept, 0), source), kept
