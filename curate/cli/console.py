"""What all commands share: the two consoles, options of the same meaning, and how a run is interrupted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.text import Text

_SHOWN = {code: chr(0x2400 + code) for code in range(32)} | {127: "␡"}
_SHOWN |= dict.fromkeys(range(128, 160), "�")
_SHOWN = {code: sign for code, sign in _SHOWN.items() if chr(code) not in "\n\t"}


class _Console(Console):
    """Shows text as it is: terminal escapes in a dialogue are seen, not obeyed, and `:100:` is no picture."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(text.translate(_SHOWN), **options)


OUT = _Console(highlight=False, emoji=False)
ERR = _Console(stderr=True, highlight=False, emoji=False)

Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override: key.path=value. Repeatable.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Read only the first rows of each source.")]


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C ends a command with exit code 1 and a word about what happens next."""
    try:
        yield
    except KeyboardInterrupt:
        ERR.print("\ninterrupted; what was done is kept, the same command resumes")
        raise typer.Exit(1) from None


def print_json(value: Any) -> None:
    """One JSON object on standard output, for a program to read."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
