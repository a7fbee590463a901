"""Checks of a row as its chat template renders it: its length, refusals of the template, and what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curate.errors import UsageError, first_line, missing_extra
from curate.export.trainer_facts import StageFacts
from curate.trainer_check.data_files import shown
from curate.trainer_check.examples import ChatMessage, Example, first_difference
from curate.trainer_check.findings import Problem
from curate.trainer_check.row_checks import Problems, tools_of
from curate.trainer_check.runner import load_tokenizer

_NULL = "train on the word None: its template writes a null out"


class TemplateError(Exception):
    """Raised for messages that the chat template refuses; the message is the template's own."""


class ChatTokenizer:
    """A `transformers` tokenizer and its chat template, used as trainers use them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.eos: str = tokenizer.eos_token or ""

    @property
    def template(self) -> str:
        """The chat template, of several the one named `default`; empty if there is none."""
        template = self._tokenizer.chat_template or ""
        return str(template.get("default", "") if isinstance(template, dict) else template)

    def render(
        self, messages: Sequence[ChatMessage], *, tools: object = None, opens: bool = False
    ) -> str:
        """Return messages as text.

        Args:
            messages: messages of the file; copied, since templates may change them.
            tools: tools as the trainer passes them.
            opens: add the header of the assistant's next message.

        Raises:
            TemplateError: the template raised an error.
        """
        try:
            rendered = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=tools or None,
                add_generation_prompt=opens,
                tokenize=False,
            )
        # A template is a program of any origin: it can raise any error, and each ends a training run.
        except Exception as error:
            raise TemplateError(f"{type(error).__name__}: {error}") from error
        return str(rendered)

    def ids(self, text: str, *, special: bool = True) -> list[int]:
        """Return the token ids of a text; with `special`, including those the tokenizer adds to every text."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=special)["input_ids"]
        return ids

    def ended(self, text: str) -> str:
        """Return a text with the end-of-text token at its end."""
        return text if text.endswith(self.eos) else text + self.eos


def open_tokenizer(name: str) -> ChatTokenizer:
    """Return a tokenizer from a folder, a `tokenizer.json` (with the files beside it), or the Hub by its id.

    Raises:
        UsageError: `transformers` is not installed, or there is no such tokenizer.
    """
    try:
        return ChatTokenizer(load_tokenizer(str(Path(name).expanduser())))
    except ModuleNotFoundError as error:
        raise missing_extra("transformers", "check") from error
    # transformers and the Hub client raise types from half a dozen libraries, all to the same effect.
    except Exception as error:
        raise UsageError(
            f"the tokenizer {name} cannot be loaded",
            got=first_line(error),
            expected="a folder, a tokenizer.json, or a Hub id such as owner/name",
        ) from error


def check_rendered(
    example: Example,
    tokenizer: ChatTokenizer,
    facts: StageFacts,
    limit: int | None,
    problems: Problems,
) -> int | None:
    """Add the problems of a row when it is rendered.

    Returns:
        The smallest limit in tokens under which the row loses nothing; None if it cannot be rendered.
    """
    if problems.stops:
        return None
    try:
        alone, wholes = _tokens(example, tokenizer, facts)
        if facts.renders == "template" and not example.is_text:
            _check_carried(example, tokenizer, facts, problems)
    except TemplateError as error:
        # A template of the trainer's own may take what this one does not.
        if facts.renders == "template":
            problems.note("template_fails", shown(str(error), 120))
        return None
    needed = max(map(len, wholes))
    has_two = len(wholes) == 2 and all(problem.code != "identical_sides" for problem in problems)
    if has_two and wholes[0] == wholes[1]:
        problems.note("same_tokens")
    shared = min(first_difference(alone, whole) for whole in wholes)
    if facts.prompt_is_prefix and shared < len(alone):
        detail = f"{len(alone) - shared} of {len(alone)} tokens of the prompt"
        problems.note("prompt_not_prefix", detail)
    if limit is not None and needed > limit:
        fills = bool(example.sides) and shared >= limit and "prompt_too_long" in facts.fates
        problems.note(
            "prompt_too_long" if fills else "too_long", f"{shared if fills else needed} tokens"
        )
    return needed


def _tokens(
    example: Example, tokenizer: ChatTokenizer, facts: StageFacts
) -> tuple[list[int], list[list[int]]]:
    """Return the tokens of the prompt alone, and of the prompt with each side."""
    prompt = example.prompt
    if isinstance(prompt, str):
        sides = [side for side in example.sides.values() if isinstance(side, str)] or [""]
        alone = tokenizer.ids(prompt) if prompt and example.sides else []
        if facts.renders == "text":  # prompt and side are tokens by themselves, joined
            end = len(tokenizer.ids(tokenizer.eos, special=False))
            return alone, [alone + tokenizer.ids(side) + [-1] * end for side in sides]
        return alone, [tokenizer.ids(tokenizer.ended(prompt + side)) for side in sides]
    tools = None if facts.drops_tools else tools_of(example)
    is_own = facts.renders == "own template"
    wholes = [[*prompt, *_listed(side)] for side in example.sides.values()] or [prompt]
    read = _plain if is_own else list

    def rendered(messages: Sequence[ChatMessage], *, opens: bool = False) -> list[int]:
        text = tokenizer.render(read(messages), tools=None if is_own else tools, opens=opens)
        return tokenizer.ids(text, special=False)

    alone = rendered(prompt, opens=True) if prompt and example.sides else []
    return alone, [rendered(messages) for messages in wholes]


def expected_answers(example: Example, tokenizer: ChatTokenizer) -> list[str]:
    """Return the text that the tokenizer's template writes after the prompt, for each side.

    Raises:
        TemplateError: the template refuses the messages.
    """
    assert not isinstance(example.prompt, str)
    opening = tokenizer.render(example.prompt, opens=True)
    wholes = [
        tokenizer.render([*example.prompt, *_listed(side)]) for side in example.sides.values()
    ]
    return [whole[len(opening) :] for whole in wholes if whole.startswith(opening)]


def _check_carried(
    example: Example, tokenizer: ChatTokenizer, facts: StageFacts, problems: Problems
) -> None:
    """Check that a template shows tools and tool calls, and no null as the word None."""
    tools = None if facts.drops_tools else tools_of(example)
    assert not isinstance(example.prompt, str)
    sides = [[*example.prompt, *_listed(side)] for side in example.sides.values()]
    for messages in sides or [example.prompt]:
        calls = any(message.get("tool_calls") for message in messages) and not facts.drops_calls
        has_null = any(message["content"] is None for message in messages)
        if not (tools or calls or has_null):
            continue
        rendered = tokenizer.render(messages, tools=tools)
        filled = [{**m, "content": "" if m["content"] is None else m["content"]} for m in messages]
        if has_null and tokenizer.render(filled, tools=tools).count("None") < rendered.count(
            "None"
        ):
            problems.append(Problem("null_content", "corrupted", _NULL))
        without_calls = [{k: v for k, v in m.items() if k != "tool_calls"} for m in messages]
        if calls and _makes_no_difference(tokenizer, without_calls, tools, rendered):
            problems.note("tools_not_carried", "the chat template shows no tool_calls")
        if tools and _makes_no_difference(tokenizer, messages, None, rendered):
            problems.note("tools_not_carried", "the chat template shows no tools")


def _makes_no_difference(
    tokenizer: ChatTokenizer, messages: Sequence[ChatMessage], tools: object, rendered: str
) -> bool:
    """Return True if messages still render to the same text; False if the template refuses them."""
    try:
        return tokenizer.render(messages, tools=tools) == rendered
    except TemplateError:
        return False


def _listed(side: list[ChatMessage] | str) -> list[ChatMessage]:
    return [{"role": "assistant", "content": side}] if isinstance(side, str) else side


def _plain(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return messages that any chat template accepts, for counting."""
    names = {"call": "assistant", "tool": "user"}
    return [
        {
            "role": names.get(message["role"], message["role"]),
            "content": message["content"]
            if isinstance(message["content"], str)
            else str(message["content"] or ""),
        }
        for message in messages
    ]
