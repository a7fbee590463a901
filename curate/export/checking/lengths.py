"""Tokens as a trainer counts them: a tokenizer with its chat template, asked as trainers ask it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.errors import UsageError, first_line, missing_extra

Message = Mapping[str, Any]


class TemplateError(Exception):
    """The chat template does not take these messages; the message is the template's own."""


class ChatTokenizer:
    """A tokenizer and its chat template.

    Args:
        tokenizer: a `transformers` tokenizer.
        name: what the report calls it.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.tokenizer = tokenizer
        self.name = name

    @property
    def has_template(self) -> bool:
        """Whether it can render messages at all."""
        return bool(self.tokenizer.chat_template)

    @property
    def template(self) -> str:
        """Its chat template, of several the one named `default`; empty where it has none."""
        template = self.tokenizer.chat_template or ""
        return str(template.get("default", "") if isinstance(template, dict) else template)

    @property
    def eos(self) -> str:
        """Its end-of-text token, or nothing."""
        return self.tokenizer.eos_token or ""

    def render(
        self, messages: Sequence[Message], *, tools: object = None, opens: bool = False
    ) -> str:
        """Messages as text.

        Args:
            messages: as in the file; templates may change them, so each call gets its own.
            tools: as the trainer passes them.
            opens: whether the header of the assistant's next message follows.

        Raises:
            TemplateError: the template refuses, whatever its reason.
        """
        try:
            rendered = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=tools or None,
                add_generation_prompt=opens,
                tokenize=False,
            )
        # A template is somebody's program: what it can raise has no end, and all of it ends a training run.
        except Exception as error:
            raise TemplateError(f"{type(error).__name__}: {error}") from error
        return str(rendered)

    def chat(
        self, messages: Sequence[Message], *, tools: object = None, opens: bool = False
    ) -> list[int]:
        """Messages as tokens, as `apply_chat_template(tokenize=True)` gives them.

        Raises:
            TemplateError: as `render`.
        """
        return self.ids(self.render(messages, tools=tools, opens=opens), special=False)

    def ids(self, text: str, *, special: bool = True) -> list[int]:
        """A text as tokens; with `special`, those the tokenizer adds to every text."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=special)["input_ids"]
        return ids


def load_chat_tokenizer(name: str) -> ChatTokenizer:
    """A tokenizer from a folder, a `tokenizer.json`, or the Hub by its id.

    A file is read with what lies beside it, `chat_template.jinja` among that.

    Raises:
        UsageError: `transformers` is not installed, or there is no such tokenizer.
    """
    try:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast
    except ModuleNotFoundError as error:
        raise missing_extra("transformers", "check") from error
    path = Path(name).expanduser()
    try:
        if path.is_file():
            template = path.parent / "chat_template.jinja"
            if (path.parent / "tokenizer_config.json").is_file():
                tokenizer = AutoTokenizer.from_pretrained(str(path.parent))
            else:
                fast: Any = PreTrainedTokenizerFast
                tokenizer = fast(
                    tokenizer_file=str(path),
                    chat_template=template.read_text("utf-8") if template.is_file() else None,
                )
        else:
            tokenizer = AutoTokenizer.from_pretrained(str(path) if path.is_dir() else name)
    # transformers and the Hub client raise types from half a dozen libraries, all to the same effect.
    except Exception as error:
        raise UsageError(
            f"the tokenizer {name} cannot be loaded",
            got=first_line(error),
            expected="a folder, a tokenizer.json, or a Hub id such as owner/name",
        ) from error
    return ChatTokenizer(tokenizer, name)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences share at their start."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))
