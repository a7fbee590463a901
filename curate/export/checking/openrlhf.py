"""How OpenRLHF reads a row, with `--data.apply_chat_template`, restated.

Stated after OpenRLHF 0.11 (`datasets/reward_dataset.py`, `datasets/sft_dataset.py`). It cuts what follows the
prompt out of the whole by counting characters, so a template that renders the prompt otherwise alone than
with its answer shifts the cut. `tools` is never handed to the template; tool calls in messages are.
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
    ENDS_OPEN,
    Outcome,
    identical_sides,
    message_problems,
    open_prompt_problems,
    said,
    shape_of,
    side_problems,
    stops,
)

Stage = Literal["sft", "dpo", "reward"]

SETTING: Final = "data.max_len"


@dataclass(slots=True)
class OpenRlhfReading:
    """One file as OpenRLHF reads it; `prompt` is its prompt key where the file has that column.

    Args:
        stage: `sft` (multi-turn, the input key being `messages`), `dpo` or `reward`.
        columns: all columns of the file.
        tokenizer: None leaves out what needs one.
        limit: `data.max_len`.
    """

    stage: Stage
    columns: tuple[str, ...]
    tokenizer: ChatTokenizer | None
    limit: int

    def file_problems(self) -> list[Problem]:
        """What concerns the file as a whole."""
        if self.stage == "sft":
            wanted = ["input", "output"] if "messages" not in self.columns else ["messages"]
        else:
            wanted = ["chosen", "rejected"]
        missing = [name for name in wanted if name not in self.columns]
        if missing:
            does = "stop: it needs " + " and ".join(f"`{name}`" for name in wanted)
            return [Problem("unknown_columns", "stops", does, ", ".join(self.columns))]
        return []

    def read(self, row: Row) -> Outcome:
        """What OpenRLHF does with a row."""
        problems: list[Problem] = []
        if row.get("tools"):
            does = "leave the tools out: it hands none to the template"
            problems.append(Problem("tools_not_carried", "corrupted", does, "tools"))
        if self.stage == "sft" and "messages" in self.columns:
            return self._dialogue(row.get("messages"), problems)
        if self.stage == "sft":
            prompt, answers = row.get("input"), {"output": row.get("output")}
            if shape_of(prompt) == shape_of(answers["output"]) == "text":
                prompt = [{"role": "user", "content": prompt}]
                answers = {"output": [{"role": "assistant", "content": row["output"]}]}
            return self._answers(prompt, answers, problems)
        sides = {name: row.get(name) for name in ("chosen", "rejected")}
        if "prompt" in self.columns:
            return self._answers(row.get("prompt"), sides, problems)
        if any(shape_of(side) != "messages" for side in sides.values()):
            does = "stop: without a prompt column each side is to be a whole conversation"
            detail = ", ".join(f"{name}: {shape_of(side)}" for name, side in sides.items())
            return Outcome([*problems, Problem("mixed_shapes", "stops", does, detail)])
        chosen, rejected = row["chosen"], row["rejected"]
        if chosen[:-1] != rejected[:-1]:
            does = "cut the rejected side at the length of the chosen side's prompt"
            problems.append(Problem("prefix_differs", "corrupted", does))
        last = {name: side[-1:] for name, side in (("chosen", chosen), ("rejected", rejected))}
        return self._answers(chosen[:-1], last, problems)

    def _dialogue(self, messages: object, problems: list[Problem]) -> Outcome:
        if shape_of(messages) != "messages" or not isinstance(messages, list):
            does = "stop: the row has no messages"
            return Outcome([*problems, Problem("missing_column", "stops", does, shown(messages))])
        problems += message_problems(messages, "messages")
        if stops(problems):
            return Outcome(problems)
        roles = [message["role"] for message in messages]
        if "assistant" not in roles:
            does = "train on the last message as if it were the assistant's"
            problems.append(Problem("no_assistant", "mis_masked", does))
        elif roles[-1] != "assistant":
            problems.append(Problem("ends_open", "noted", ENDS_OPEN, roles[-1]))
        return self._answers(messages[:-1], {"messages": messages[-1:]}, problems, is_whole=True)

    def _answers(
        self,
        prompt: Any,
        sides: Mapping[str, Any],
        problems: list[Problem],
        *,
        is_whole: bool = False,
    ) -> Outcome:
        """Prompt and sides, cut apart.

        Args:
            is_whole: whether they are one dialogue, whose last message need not be an answer.
        """
        shapes = {
            "prompt": shape_of(prompt),
            **{name: shape_of(side) for name, side in sides.items()},
        }
        if any(shape != "messages" for shape in shapes.values()):
            detail = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
            code = "missing_column" if "none" in shapes.values() else "mixed_shapes"
            if shapes["prompt"] == "empty":
                code = "empty_prompt"
            elif "empty" in shapes.values():
                code = "empty_side"
            does = "stop: with a chat template it expects lists of messages"
            return Outcome([*problems, Problem(code, "stops", does, detail)])
        for name, part in {} if is_whole else {"prompt": prompt, **sides}.items():
            problems += message_problems(part, name)
        if stops(problems):
            return Outcome(problems)
        if not is_whole:
            problems += open_prompt_problems(prompt)
            for name, side in sides.items():
                problems += side_problems(side, name)
        if len(sides) == 2 and len({repr(said(side)) for side in sides.values()}) == 1:
            problems.append(identical_sides())
        asked = said(prompt)
        if self.tokenizer is None:
            return Outcome(problems, asked)
        try:
            opening = self.tokenizer.render(prompt, opens=True)
            wholes = [self.tokenizer.render([*prompt, *side]) for side in sides.values()]
            for side in sides.values():
                problems += carried(self.tokenizer, [*prompt, *side], None)
        except TemplateError as error:
            return Outcome([*problems, template_fails(error)], asked)
        if not all(whole.startswith(opening) for whole in wholes):
            does = "cut the answer at the wrong place: the prompt alone renders otherwise"
            problems.append(Problem("prompt_not_prefix", "corrupted", does))
        needed = max(len(self._ids(self._ended(whole))) for whole in wholes)
        if self.stage != "reward" and len(self._ids(opening)) >= self.limit - 2:
            does = "drop the row without a word: the prompt fills max_len"
            problems.append(Problem("prompt_too_long", "dropped", does, f"{needed} tokens"))
        elif needed > self.limit:
            does = "cut off the end, which is where the answer is"
            problems.append(Problem("too_long", "truncated", does, f"{needed} tokens"))
        return Outcome(problems, asked, needed)

    def _ids(self, text: str) -> list[int]:
        assert self.tokenizer is not None
        return self.tokenizer.ids(text, special=False)

    def _ended(self, text: str) -> str:
        assert self.tokenizer is not None
        text = text.rstrip("\n")
        return text if text.endswith(self.tokenizer.eos) else f"{text} {self.tokenizer.eos}"


def stage_of(columns: Sequence[str]) -> Stage:
    """What columns are made for."""
    return "dpo" if "chosen" in columns and "rejected" in columns else "sft"


def default_limit(stage: Stage) -> int:
    """`data.max_len` where nothing is said."""
    return 2048 if stage == "sft" else 512
