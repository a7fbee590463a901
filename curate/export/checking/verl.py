"""How verl reads a row: its multi-turn SFT and its reward-model data sets, restated.

Stated after verl 0.9 (`utils/dataset/multiturn_sft_dataset.py`, `utils/dataset/rm_dataset.py`). SFT rows are
rendered message by message and compared with the whole; where the two differ it stops. The reward model
joins texts and applies no template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from curate.export.checking.findings import Problem
from curate.export.checking.lengths import ChatTokenizer, TemplateError
from curate.export.checking.reading import Row, shown
from curate.export.checking.rendering import carried, template_fails
from curate.export.checking.shapes import (
    EMPTY,
    ENDS_OPEN,
    Outcome,
    identical_sides,
    message_problems,
    read_tools,
    says_nothing,
    shape_of,
    stops,
)

Stage = Literal["sft", "reward"]

SETTING: Final = "data.max_length"
DEFAULT_LIMIT: Final = 1024


@dataclass(slots=True)
class VerlReading:
    """One file as verl reads it.

    Args:
        stage: `sft` or `reward`.
        columns: all columns of the file.
        is_parquet: verl reads no other kind.
        tokenizer: None leaves out what needs one.
        limit: `data.max_length`.
    """

    stage: Stage
    columns: tuple[str, ...]
    is_parquet: bool
    tokenizer: ChatTokenizer | None
    limit: int

    def file_problems(self) -> list[Problem]:
        """What concerns the file as a whole."""
        problems = []
        if not self.is_parquet:
            problems.append(Problem("not_parquet", "stops", "stop: it reads Parquet alone"))
        wanted = ("messages",) if self.stage == "sft" else ("prompt", "chosen", "rejected")
        missing = [name for name in wanted if name not in self.columns]
        if missing:
            does = "stop: it needs " + ", ".join(f"`{name}`" for name in wanted)
            detail = ", ".join(self.columns)
            problems.append(Problem("unknown_columns", "stops", does, detail))
        return problems

    def read(self, row: Row) -> Outcome:
        """What verl does with a row."""
        return self._dialogue(row) if self.stage == "sft" else self._pair(row)

    def _dialogue(self, row: Row) -> Outcome:
        messages = row.get("messages")
        if not isinstance(messages, list) or not messages:
            does = "stop: the row has no messages"
            return Outcome([Problem("missing_column", "stops", does, shown(messages))])
        messages = [
            {key: value for key, value in message.items() if value is not None or key == "content"}
            if isinstance(message, Mapping)
            else message
            for message in messages
        ]
        problems = message_problems(messages, "messages")
        if stops(problems):
            return Outcome(problems)
        answers = [message for message in messages if message["role"] == "assistant"]
        if not answers:
            does = "train on nothing: no message is the assistant's"
            problems.append(Problem("no_assistant", "corrupted", does))
        elif messages[-1]["role"] != "assistant":
            problems.append(Problem("ends_open", "noted", ENDS_OPEN, messages[-1]["role"]))
        if any(says_nothing(message) for message in answers):
            problems.append(Problem("empty_side", "corrupted", EMPTY))
        tools, bad = read_tools(row.get("tools"))
        problems += bad
        asked = [message.get("content") for message in messages[:-1]]
        if self.tokenizer is None or stops(problems):
            return Outcome(problems, asked)
        try:
            whole = self.tokenizer.chat(messages, tools=tools)
            alone = self._one_by_one(messages, tools)
            problems += carried(self.tokenizer, messages, tools)
        except TemplateError as error:
            return Outcome([*problems, template_fails(error)], asked)
        if whole != alone:
            does = "stop: messages rendered one by one are not the dialogue rendered whole"
            problems.append(Problem("template_fails", "stops", does))
        if len(alone) > self.limit:
            does = "stop: a row is longer than max_length, and truncation is `error`"
            problems.append(Problem("too_long", "stops", does, f"{len(alone)} tokens"))
        return Outcome(problems, asked, len(alone))

    def _one_by_one(
        self, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None
    ) -> list[int]:
        """The messages rendered each for itself, the template's own system prompt taken off again."""
        assert self.tokenizer is not None
        once = self.tokenizer.chat([{"role": "user", "content": ""}])
        twice = self.tokenizer.chat([{"role": "user", "content": ""}] * 2)
        system = once[: len(once) - (len(twice) - len(once))]
        ids: list[int] = []
        for at, message in enumerate(messages):
            rendered = self.tokenizer.chat([message], tools=tools if at == 0 else None)
            ids += rendered if at == 0 or message["role"] == "system" else rendered[len(system) :]
        return ids

    def _pair(self, row: Row) -> Outcome:
        values = {name: row.get(name) for name in ("prompt", "chosen", "rejected")}
        shapes = {name: shape_of(value) for name, value in values.items()}
        if any(shape != "text" for shape in shapes.values()):
            code = "missing_column" if "none" in shapes.values() else "mixed_shapes"
            does = "stop: prompt and sides are to be texts"
            detail = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
            return Outcome([Problem(code, "stops", does, detail)])
        problems = []
        prompt, chosen, rejected = (str(values[name]) for name in values)
        if chosen == rejected:
            problems.append(identical_sides())
        for name, side in (("chosen", chosen), ("rejected", rejected)):
            if not side.strip():
                does = "score the prompt alone"
                problems.append(Problem("empty_side", "corrupted", does, name))
        if not prompt.strip():
            does = "score an answer to nothing"
            problems.append(Problem("empty_prompt", "corrupted", does))
        if self.tokenizer is None:
            return Outcome(problems, prompt)
        before = len(self.tokenizer.ids(prompt))
        needed = before + max(len(self.tokenizer.ids(side)) for side in (chosen, rejected)) + 1
        if before >= self.limit:
            does = "cut both answers off whole: the prompt alone fills max_length"
            problems.append(Problem("prompt_too_long", "corrupted", does, f"{before} tokens"))
        elif needed > self.limit:
            does = "cut off the end of the answer, and its end-of-text token"
            problems.append(Problem("too_long", "truncated", does, f"{needed} tokens"))
        return Outcome(problems, prompt, needed)


def stage_of(columns: Sequence[str]) -> Stage:
    """What columns are made for."""
    return "reward" if "chosen" in columns and "rejected" in columns else "sft"
