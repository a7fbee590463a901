"""How axolotl reads a row: `chat_template` for SFT and `chat_template.default` for preference data, restated.

Stated after axolotl 0.19 (`prompt_strategies/dpo/chat_template.py`, `prompt_strategies/chat_template.py`,
`utils/data/rl.py`). For pairs it renders each side behind a dummy question and then looks for the side's
content in what the template wrote; where the search fails or hits the wrong place, the side is cut there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from curate.export.checking.findings import Problem
from curate.export.checking.lengths import ChatTokenizer, TemplateError
from curate.export.checking.reading import Row, shown
from curate.export.checking.rendering import carried, template_fails
from curate.export.checking.shapes import (
    ENDS_OPEN,
    NOT_ASSISTANT,
    UNTRIMMED,
    Outcome,
    calls_of,
    identical_sides,
    is_untrimmed,
    message_problems,
    open_prompt_problems,
    read_tools,
    said,
    says_nothing,
    stops,
)

Stage = Literal["sft", "dpo"]

SETTING: Final = "sequence_len"
DEFAULT_LIMIT: Final = 512

_DPO_ROLES: Final = ("system", "user", "assistant", "tool")
_SFT_ROLES: Final = {"human": "user", "gpt": "assistant"} | {role: role for role in _DPO_ROLES}
_DUMMY: Final = {"role": "user", "content": "[[dummy_message]]"}
_TOO_LONG: Final = "drop the row: it is longer than sequence_len"


@dataclass(slots=True)
class AxolotlReading:
    """One file as axolotl reads it.

    Args:
        stage: `sft` for `type: chat_template`, `dpo` for `type: chat_template.default`.
        columns: all columns of the file.
        tokenizer: None leaves out what needs one.
        limit: `sequence_len`.
    """

    stage: Stage
    columns: tuple[str, ...]
    tokenizer: ChatTokenizer | None
    limit: int

    def file_problems(self) -> list[Problem]:
        """What concerns the file as a whole."""
        wanted = ("messages",) if self.stage == "sft" else ("messages", "chosen", "rejected")
        missing = [name for name in wanted if name not in self.columns]
        if missing:
            does = "stop: it reads " + ", ".join(f"`{name}`" for name in wanted)
            return [Problem("unknown_columns", "stops", does, "without " + ", ".join(missing))]
        read = {*wanted, *(("tools", "system", "images") if self.stage == "sft" else ("prompt",))}
        extra = [name for name in self.columns if name not in read]
        if not extra or self.stage == "sft":
            return []
        images = [name for name in extra if name in ("image", "images")]
        if images:
            does = "stop unless the model takes pictures: a column of them is there"
            return [Problem("extra_columns", "stops", does, ", ".join(images))]
        does = "keep the columns beside what it makes, unread"
        return [Problem("extra_columns", "noted", does, ", ".join(extra))]

    def read(self, row: Row) -> Outcome:
        """What axolotl does with a row."""
        return self._dialogue(row) if self.stage == "sft" else self._pair(row)

    def _dialogue(self, row: Row) -> Outcome:
        messages = row.get("messages")
        if isinstance(messages, str):
            try:
                messages = orjson.loads(messages)
            except orjson.JSONDecodeError as error:
                does = "stop: messages are text that is no JSON"
                return Outcome([Problem("not_messages", "stops", does, str(error))])
        if not isinstance(messages, list) or not messages:
            does = "stop: the row has no messages"
            return Outcome([Problem("missing_column", "stops", does, shown(messages))])
        does = "render the role as it stands and train on none of its words"
        problems = message_problems(
            messages, "messages", roles=tuple(_SFT_ROLES), unknown="mis_masked", unknown_does=does
        )
        problems = [
            p for p in problems if p.code not in ("arguments_not_object", "content_not_text")
        ]
        if stops(problems):
            return Outcome(problems)
        turns = [_turn(message) for message in messages]
        problems += _argument_problems(turns)
        if turns[0]["role"] != "system" and "system" in self.columns:
            system = row.get("system")
            turns.insert(0, {"role": "system", "content": system})
            if system is None:
                does = "put a system message without text before the dialogue"
                problems.append(Problem("system_null", "corrupted", does))
        answers = [turn for turn in turns if turn["role"] == "assistant"]
        if not answers:
            does = "drop the row: no token of it would be trained on"
            problems.append(Problem("no_assistant", "dropped", does))
        elif turns[-1]["role"] != "assistant":
            problems.append(Problem("ends_open", "noted", ENDS_OPEN, turns[-1]["role"]))
        if any(says_nothing(turn) for turn in answers):
            does = "train on nothing of an empty answer"
            problems.append(Problem("empty_side", "mis_masked", does))
        if any(is_untrimmed(turn) for turn in answers):
            does = f"{UNTRIMMED}, unless its template trims"
            problems.append(Problem("untrimmed", "noted", does))
        tools, bad = read_tools(row.get("tools"))
        problems += bad
        asked = said(turns[:-1])
        if self.tokenizer is None or stops(problems):
            return Outcome(problems, asked)
        try:
            needed = len(self.tokenizer.chat(turns, tools=tools))
            problems += carried(self.tokenizer, turns, tools)
        except TemplateError as error:
            return Outcome([*problems, template_fails(error)], asked)
        if needed > self.limit:
            problems.append(Problem("too_long", "dropped", _TOO_LONG, f"{needed} tokens"))
        return Outcome(problems, asked, needed)

    def _pair(self, row: Row) -> Outcome:
        prompt = row.get("messages")
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        sides = {name: row.get(name) for name in ("chosen", "rejected")}
        missing = [n for n, value in {"messages": prompt, **sides}.items() if value is None]
        if missing:
            does = "stop: a column it reads is null"
            return Outcome([Problem("missing_column", "stops", does, ", ".join(missing))])
        problems: list[Problem] = []
        answers: dict[str, Mapping[str, Any]] = {}
        for name, side in sides.items():
            answer, bad = _answer(side, name)
            problems += bad
            if answer is not None:
                answers[name] = answer
        if not isinstance(prompt, list) or not prompt:
            does = "stop or render no prompt: there are no messages before the sides"
            problems.append(Problem("empty_prompt", "stops", does, shown(prompt)))
            return Outcome(problems)
        does = "stop: it maps roles and knows only system, user, assistant and tool"
        problems += message_problems(
            prompt, "messages", roles=_DPO_ROLES, unknown="stops", unknown_does=does
        )
        problems = [problem for problem in problems if problem.code != "arguments_not_object"]
        if len(answers) < len(sides) or any(p.code == "not_messages" for p in problems):
            return Outcome(problems)
        problems += open_prompt_problems(prompt)
        if row.get("tools") or any(m.get("tool_calls") for m in [*prompt, *answers.values()]):
            does = "leave tools and tool calls out, and train on what is left"
            problems.append(Problem("tools_not_carried", "corrupted", does))
        if answers["chosen"].get("content") == answers["rejected"].get("content"):
            problems.append(identical_sides())
        asked = [(m["role"], m.get("content")) for m in prompt]
        if self.tokenizer is None or stops(problems):
            return Outcome(problems, asked)
        return self._rendered(prompt, answers, problems, asked)

    def _rendered(
        self,
        prompt: Sequence[Mapping[str, Any]],
        answers: Mapping[str, Mapping[str, Any]],
        problems: list[Problem],
        asked: object,
    ) -> Outcome:
        assert self.tokenizer is not None
        bare = [{"role": m["role"], "content": m.get("content")} for m in prompt]
        texts = []
        try:
            opening = self.tokenizer.render(bare, opens=True)
            for name, answer in answers.items():
                content = answer["content"]
                said = {"role": answer["role"], "content": content}
                whole = self.tokenizer.render([_DUMMY, said])
                at = whole.find(content)
                texts.append(whole[at:].rstrip())
                problems += _search_problems(whole, content, at, name)
        except TemplateError as error:
            return Outcome([*problems, template_fails(error)], asked)
        before = len(self.tokenizer.ids(opening, special=False))
        after = [len(self.tokenizer.ids(text, special=False)) for text in texts]
        needed = before + max(after)
        if needed > self.limit:
            code = "prompt_too_long" if before >= self.limit else "too_long"
            problems.append(Problem(code, "dropped", _TOO_LONG, f"{needed} tokens"))
        return Outcome(problems, asked, needed)


def stage_of(columns: Sequence[str]) -> Stage:
    """What columns are made for."""
    return "dpo" if "chosen" in columns and "rejected" in columns else "sft"


def _answer(side: object, name: str) -> tuple[Mapping[str, Any] | None, list[Problem]]:
    """The message that axolotl takes for a side, and what it passes over."""
    problems = []
    if isinstance(side, str):
        side = {"role": "assistant", "content": side}
    if isinstance(side, list):
        if not side:
            does = "stop: a side without messages"
            return None, [Problem("empty_side", "stops", does, name)]
        if len(side) > 1:
            does = "take the last message of the side and forget the others"
            problems.append(Problem("several_messages", "corrupted", does, name))
        side = side[-1]
    if not isinstance(side, Mapping) or "role" not in side or "content" not in side:
        does = "stop: a side is to be a text or a message"
        return None, [*problems, Problem("not_messages", "stops", does, f"{name}: {shown(side)}")]
    content = side["content"]
    if side["role"] not in _DPO_ROLES:
        does = "stop: it maps roles and knows only system, user, assistant and tool"
        problems.append(Problem("unknown_role", "stops", does, f"{name}: {shown(side['role'])}"))
    elif side["role"] != "assistant":
        problems.append(Problem("side_not_assistant", "mis_masked", NOT_ASSISTANT, name))
    if content is None:
        does = "stop: it looks for the content in what the template wrote"
        problems.append(Problem("null_content", "stops", does, name))
    elif not isinstance(content, str):
        does = "stop: it looks for a text in what the template wrote"
        problems.append(Problem("content_not_text", "stops", does, name))
    elif not content.strip():
        does = "take the dummy question for the answer: an empty text is found at once"
        problems.append(Problem("empty_side", "corrupted", does, name))
    elif content != content.strip():
        does = "lose the answer wherever the template trims it"
        problems.append(Problem("untrimmed", "noted", does, name))
    return side, problems


def _search_problems(whole: str, content: str, at: int, name: str) -> list[Problem]:
    """Whether the content was found, and found where it stands: after everything the template puts before."""
    if not content.strip():
        return []
    if at == -1 and not whole[-1:].strip():
        does = "stop: its template changed the answer, so it is not found and none of it is left"
        return [Problem("search_fails", "stops", does, name)]
    if at == -1:
        does = "keep one character of the answer: the template changed it, so it is not found"
        return [Problem("search_fails", "corrupted", does, name)]
    if at != whole.rfind(content):
        does = "take the dummy question into the answer: its words stand there as well"
        return [Problem("search_fails", "corrupted", does, f"{name}: {shown(content, 30)}")]
    return []


def _turn(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as axolotl hands it to the template: roles mapped, keys with null gone, parts joined."""
    turn = {key: value for key, value in message.items() if value is not None}
    turn["role"] = _SFT_ROLES.get(turn["role"], turn["role"])
    content = turn.get("content")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, Mapping)]
        turn["content"] = "".join(
            part.get("text") or part.get("content") or part.get("value") or "" for part in parts
        )
    return turn


def _argument_problems(turns: Sequence[dict[str, Any]]) -> list[Problem]:
    """Arguments that are text are decoded, as axolotl does; those that are no JSON end the run."""
    for turn in turns:
        turn_calls = []
        for call in calls_of(turn):
            given = call.get("function") if isinstance(call, Mapping) else None
            if not isinstance(given, Mapping):
                continue
            function = dict(given)
            if isinstance(function.get("arguments"), str):
                try:
                    function["arguments"] = orjson.loads(function["arguments"])
                except orjson.JSONDecodeError as error:
                    does = "stop: a call's arguments are text that is no JSON"
                    return [Problem("call_not_json", "stops", does, str(error))]
            turn_calls.append({**call, "function": function})
        if turn_calls:
            turn["tool_calls"] = turn_calls
    return []
