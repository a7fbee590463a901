"""How TRL reads a row: the preparation of its DPO, Reward, KTO and SFT trainers, restated.

Stated after TRL 1.16 (`_prepare_dataset` of each trainer). What the columns are is decided for the whole
file: `datasets` fills a column that a row does not have with null, and one row's `prompt` makes it a column.
Whether rows are conversational is asked of one column picked at random among those there are, so columns
that disagree end in an error either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from curate.export.checking.findings import Problem
from curate.export.checking.lengths import ChatTokenizer, TemplateError, common_prefix
from curate.export.checking.reading import Row, shown
from curate.export.checking.rendering import carried, template_fails
from curate.export.checking.shapes import (
    EMPTY,
    Outcome,
    identical_sides,
    message_problems,
    open_prompt_problems,
    read_tools,
    said,
    says_nothing,
    shape_of,
    side_problems,
    stops,
)
from curate.export.checking.trl_templates import takes_assistant_only_loss

Stage = Literal["sft", "dpo", "kto", "reward"]

SETTING: Final = "max_length"
DEFAULT_LIMIT: Final = 1024

_COLUMNS: Final = ("prompt", "chosen", "rejected", "completion", "messages")
_LEFT_OUT: Final = "leave the end of the prompt out, where it renders otherwise with its answer"


@dataclass(slots=True)
class TrlReading:
    """One file as a trainer of TRL reads it.

    Args:
        stage: which trainer.
        columns: all columns of the file.
        tokenizer: None leaves out what needs one.
        limit: `max_length`; None truncates nothing.
    """

    stage: Stage
    columns: tuple[str, ...]
    tokenizer: ChatTokenizer | None
    limit: int | None

    def file_problems(self) -> list[Problem]:
        """What concerns the file as a whole."""
        has = self.columns.__contains__
        pictures = [name for name in ("image", "images") if has(name)]
        if pictures and self.stage != "reward":
            does = "stop unless the model takes pictures: a column of them is there"
            return [Problem("extra_columns", "stops", does, ", ".join(pictures))]
        if self.stage == "sft":
            if has("prompt") and not has("completion"):
                does = "stop: a column `prompt` makes it look for `completion` in every row"
                return [Problem("unknown_columns", "stops", does, ", ".join(self.columns))]
            if has("conversations") and not has("messages"):
                return []
            if not has("messages") and not has("prompt") and not has("text"):
                does = "stop: it reads `messages`, `prompt` with `completion`, or `text`"
                return [Problem("unknown_columns", "stops", does, ", ".join(self.columns))]
            if has("messages") and not has("prompt"):
                return [self._trains_on_all()]
            return []
        paired = has("chosen") and has("rejected")
        if self.stage == "kto" and not paired:
            missing = [name for name in ("prompt", "completion", "label") if not has(name)]
        else:
            missing = [name for name in ("chosen", "rejected") if not has(name)]
        if missing:
            does = f"stop: {self.stage} needs " + " and ".join(f"`{name}`" for name in missing)
            return [Problem("unknown_columns", "stops", does, ", ".join(self.columns))]
        return []

    def _trains_on_all(self) -> Problem:
        """What becomes of the user's words, and whether the chat template lets them be left out."""
        does = "train on every token, the user's too"
        if self.tokenizer is None:
            return Problem("trains_on_all_unclear", "noted", does + ", unless told otherwise")
        if takes_assistant_only_loss(self.tokenizer.template):
            return Problem("trains_on_all", "noted", does + ", unless told otherwise")
        does += (
            ", and stop at assistant_only_loss=True: the chat template marks no assistant tokens"
        )
        return Problem("trains_on_all_unmarked", "noted", does)

    def read(self, row: Row) -> Outcome:
        """What TRL does with a row."""
        if self.stage == "sft":
            if "prompt" in self.columns:
                return self._completion(row)
            return self._dialogue(row)
        if self.stage == "kto" and "chosen" not in self.columns:
            outcome = self._completion(row)
            if not isinstance(row.get("label"), bool):
                does = "stop when it counts the labels"
                label = Problem("label_not_bool", "stops", does, shown(row.get("label")))
                outcome.problems.append(label)
            return outcome
        return self._pair(row)

    def _dialogue(self, row: Row) -> Outcome:
        """SFT on `messages`, `conversations` or `text`."""
        messages = row.get("messages")
        if "messages" not in self.columns and "conversations" in self.columns:
            messages = _as_chat(row.get("conversations"))
        elif "messages" not in self.columns:
            return self._text(row.get("text"))
        if shape_of(messages) == "text":
            does = "stop: it expects messages in every row"
            return Outcome([Problem("mixed_shapes", "stops", does, shown(messages))])
        if not isinstance(messages, list) or not messages:
            does = "stop: the row has no messages"
            return Outcome([Problem("missing_column", "stops", does, shown(messages))])
        problems = message_problems(messages, "messages")
        if stops(problems):
            return Outcome(problems)
        roles = [message["role"] for message in messages]
        if "assistant" not in roles:
            does = "train on the user's words alone"
            problems.append(Problem("no_assistant", "corrupted", does))
        elif roles[-1] != "assistant":
            does = "train on what follows the last answer too"
            problems.append(Problem("ends_open", "noted", does, f"ends with '{roles[-1]}'"))
        if any(m["role"] == "assistant" and says_nothing(m) for m in messages):
            problems.append(Problem("empty_side", "corrupted", EMPTY, "messages"))
        tools, bad = read_tools(row.get("tools"))
        problems += bad
        needed = None
        if self.tokenizer is not None and not stops(problems):
            try:
                needed = len(self.tokenizer.chat(messages, tools=tools))
                problems += carried(self.tokenizer, messages, tools)
            except TemplateError as error:
                problems.append(template_fails(error))
        problems += self._truncated(needed)
        return Outcome(problems, said(messages[:-1]), needed)

    def _text(self, text: object) -> Outcome:
        if not isinstance(text, str):
            return Outcome([Problem("missing_column", "stops", "stop: no text", shown(text))])
        needed = None if self.tokenizer is None else len(self.tokenizer.ids(self._ended(text)))
        return Outcome(self._truncated(needed), None, needed)

    def _completion(self, row: Row) -> Outcome:
        """SFT on prompt and completion, and KTO."""
        shapes = {name: shape_of(row.get(name)) for name in ("prompt", "completion")}
        problems = _mixed(shapes)
        if problems:
            return Outcome(problems)
        prompt, completion = row["prompt"], row["completion"]
        if shapes["prompt"] == "text":
            if not completion.strip():
                problems.append(Problem("empty_side", "corrupted", EMPTY, "completion"))
            needed = None
            if self.tokenizer is not None:
                alone = self.tokenizer.ids(prompt)
                whole = self.tokenizer.ids(prompt + self._ended(completion))
                needed = len(whole)
                problems += self._cut(alone, [whole])
            return Outcome(problems, prompt, needed)
        problems += message_problems(prompt, "prompt") + message_problems(completion, "completion")
        if not stops(problems):
            problems += open_prompt_problems(prompt)
            problems += side_problems(completion, "completion")
        return self._rendered(row, prompt, {"completion": completion}, problems)

    def _pair(self, row: Row) -> Outcome:
        """DPO, Reward, and KTO on pairs."""
        names = ["chosen", "rejected"]
        explicit = "prompt" in self.columns
        shapes = {
            name: shape_of(row.get(name)) for name in (["prompt"] if explicit else []) + names
        }
        problems = _mixed(shapes)
        if problems:
            return Outcome(problems)
        chosen, rejected = row["chosen"], row["rejected"]
        if chosen == rejected:
            problems.append(identical_sides())
        prompt: Any = row.get("prompt")
        if not explicit:
            at = _parting(chosen, rejected)
            prompt, chosen, rejected = chosen[:at], chosen[at:], rejected[at:]
            if self.stage == "reward":
                prompt = prompt[:0] if isinstance(prompt, str) else prompt
        if shapes["chosen"] == "text":
            return self._text_pair(prompt, chosen, rejected, problems)
        if not prompt:
            does = "render no prompt at all, or stop where its template wants a message"
            problems.append(Problem("empty_prompt", "corrupted", does))
        for name, value in (("prompt", prompt), ("chosen", chosen), ("rejected", rejected)):
            problems += message_problems(value, name)
        if not stops(problems):
            if prompt:
                problems += open_prompt_problems(prompt)
            for name, side in (("chosen", chosen), ("rejected", rejected)):
                if not side:
                    problems.append(Problem("empty_side", "corrupted", EMPTY, name))
                    continue
                problems += side_problems(side, name)
            if row["chosen"] != row["rejected"] and said(chosen) == said(rejected):
                problems.append(identical_sides("but for call ids"))
        return self._rendered(row, prompt, {"chosen": chosen, "rejected": rejected}, problems)

    def _text_pair(
        self, prompt: str, chosen: str, rejected: str, problems: list[Problem]
    ) -> Outcome:
        for name, side in (("chosen", chosen), ("rejected", rejected)):
            if not side.strip():
                problems.append(Problem("empty_side", "corrupted", EMPTY, name))
        if not prompt and self.stage != "reward":
            does = "train without a prompt: the sides have no beginning in common"
            problems.append(Problem("empty_prompt", "corrupted", does))
        if self.tokenizer is None:
            return Outcome(problems, prompt)
        wholes = [self.tokenizer.ids(prompt + self._ended(side)) for side in (chosen, rejected)]
        alone = self.tokenizer.ids(prompt) if prompt else []
        problems += self._cut(alone, wholes)
        return Outcome(problems, prompt, max(map(len, wholes)))

    def _rendered(
        self,
        row: Row,
        prompt: Sequence[Mapping[str, Any]],
        sides: Mapping[str, Sequence[Mapping[str, Any]]],
        problems: list[Problem],
    ) -> Outcome:
        """What only shows when prompt and sides are rendered."""
        tools, bad = read_tools(row.get("tools"))
        problems += bad
        asked = [said(prompt)] if not any(p.code == "not_messages" for p in problems) else None
        if self.tokenizer is None or stops(problems):
            return Outcome(problems, asked)
        try:
            alone = self.tokenizer.chat(prompt, tools=tools, opens=True) if prompt else []
            wholes = [self.tokenizer.chat([*prompt, *side], tools=tools) for side in sides.values()]
            for side in sides.values():
                problems += carried(self.tokenizer, [*prompt, *side], tools)
        except TemplateError as error:
            problems.append(template_fails(error))
            return Outcome(problems, asked)
        if len(wholes) > 1 and wholes[0] == wholes[1] and not _has(problems, "identical_sides"):
            does = "train on it without a word; rendered, both sides are the same tokens"
            problems.append(Problem("same_tokens", "corrupted", does))
        problems += self._cut(alone, wholes)
        return Outcome(problems, asked, max(map(len, wholes)))

    def _cut(self, alone: Sequence[int], wholes: Sequence[Sequence[int]]) -> list[Problem]:
        """What becomes of the boundary between prompt and sides, and of the length."""
        longest = max(map(len, wholes))
        if self.stage == "reward":
            if self.limit is not None and longest > self.limit:
                does = "drop the row without a word: a side is longer than max_length"
                return [Problem("too_long", "dropped", does, f"{longest} tokens")]
            return []
        problems = []
        kept = min(common_prefix(alone, whole) for whole in wholes)
        if kept < len(alone):
            detail = f"{len(alone) - kept} of {len(alone)} tokens of the prompt"
            problems.append(Problem("prompt_not_prefix", "mis_masked", _LEFT_OUT, detail))
        if self.limit is not None and kept >= self.limit:
            does = "drop the row without a word: the prompt alone fills max_length"
            problems.append(Problem("prompt_too_long", "dropped", does, f"{kept} tokens"))
        else:
            problems += self._truncated(longest)
        return problems

    def _truncated(self, needed: int | None) -> list[Problem]:
        if needed is None or self.limit is None or needed <= self.limit:
            return []
        does = "cut off the end, which is where the answer is"
        return [Problem("too_long", "truncated", does, f"{needed} tokens")]

    def _ended(self, text: str) -> str:
        assert self.tokenizer is not None
        eos = self.tokenizer.eos
        return text if text.endswith(eos) else text + eos


def _mixed(shapes: Mapping[str, str]) -> list[Problem]:
    """Whether the columns of a row are there and agree on being text or messages."""
    detail = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
    if "none" in shapes.values():
        does = "stop: it joins prompt and side, and one of them is null"
        return [Problem("missing_column", "stops", does, detail)]
    if "other" in shapes.values():
        return [Problem("not_messages", "stops", "stop: it expects text or messages", detail)]
    kinds = {shape for shape in shapes.values() if shape != "empty"}
    if len(kinds) > 1:
        does = "stop: text and messages cannot be joined"
        return [Problem("mixed_shapes", "stops", does, detail)]
    if "empty" in shapes.values():
        name = next(name for name, shape in shapes.items() if shape == "empty")
        code = "empty_prompt" if name == "prompt" else "empty_side"
        does = "stop, or train on nothing: it looks at the first message of a list without any"
        return [Problem(code, "stops", does, detail)]
    return []


def _parting(chosen: Any, rejected: Any) -> int:
    """Where TRL splits sides that hold the whole dialogue: at their first difference, or before the last item."""
    shorter = min(len(chosen), len(rejected))
    at = next((i for i in range(shorter) if chosen[i] != rejected[i]), shorter - 1)
    if at < shorter and chosen[at] != rejected[at] and chosen[at - 1] == " ":
        at -= 1
    return max(at, 0)


def _as_chat(conversation: object) -> object:
    """ShareGPT's keys as TRL renames them; the roles stay."""
    if not isinstance(conversation, list):
        return conversation
    names = {"from": "role", "value": "content"}
    return [
        {names.get(key, key): value for key, value in message.items()}
        if isinstance(message, Mapping)
        else message
        for message in conversation
    ]


def _has(problems: Sequence[Problem], code: str) -> bool:
    return any(problem.code == code for problem in problems)


def stage_of(columns: Sequence[str]) -> Stage:
    """The trainer that columns are made for: SFT where they say nothing else, Reward where pairs have a margin."""
    if "chosen" in columns and "rejected" in columns:
        return "reward" if "margin" in columns else "dpo"
    if "completion" in columns and "label" in columns:
        return "kto"
    return "sft"
