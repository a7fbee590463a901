"""The two consoles, the options that several commands share, and how a command ends when it is interrupted."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TextIO

import orjson
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from curate.run import exit_codes
from curate.untrusted import visible


class _Console(Console):
    """A console that shows text as it is: terminal escapes are made visible, and `:100:` is not turned into an emoji.

    Tables and styled texts go through here too, so no printing can forget it.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


OUT = _Console(highlight=False, emoji=False)
ERR = _Console(stderr=True, highlight=False, emoji=False)

_RECIPE = typer.Argument(
    metavar="RECIPE", help="Recipe file (YAML), or hf://OWNER/NAME, a dataset that curate pushed."
)
RecipeFile = Annotated[str, _RECIPE]
OptionalRecipe = Annotated[str | None, _RECIPE]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override: key.path=value. Repeatable.")
]
Scales = Annotated[
    list[str] | None,
    typer.Option(
        help="The labels' scale: 0-2, or helpfulness=0-2 for one dimension, or its words from worst to best. Repeatable."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def _hush(is_quiet: bool) -> bool:
    OUT.quiet = is_quiet
    return is_quiet


Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print only warnings and errors.", callback=_hush, is_eager=True
    ),
]
"""For commands that write something: nothing goes to standard output, but `run` still prints how it ended."""
DataDimension = Annotated[
    str | None,
    typer.Option(
        "--dimension", help="Without GOLD: the dimension that the data's own labels (--label) rate."
    ),
]
DataLabel = Annotated[str, typer.Option("--label", help="Name of the label in the data.")]
RateOption = Annotated[
    str | None, typer.Option("--rate", help="prefill=…,decode=… in tokens per second.")
]
RateFrom = Annotated[
    Path | None,
    typer.Option("--rate-from", metavar="RUN", help="Take the rates from an earlier run."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Read only the first rows of each source.")]


@contextmanager
def resumable() -> Iterator[None]:
    """End a command on Ctrl-C or SIGTERM with exit code 1, and print the command that resumes it."""
    try:
        yield
    except KeyboardInterrupt:
        message = f"\ninterrupted; what was done is kept. To go on:\n  {command_line()}"
        ERR.print(escape(message), soft_wrap=True)
        if not OUT.is_terminal and not _is_one_file(sys.stdout, sys.stderr):
            print_line(escape(message))
        raise typer.Exit(exit_codes.FAILED) from None


def command_line() -> str:
    """Return the command as it was typed, quoted for a shell."""
    return shlex.join(["curate", *sys.argv[1:]])


def _is_one_file(*streams: TextIO) -> bool:
    try:
        first, second = (os.fstat(stream.fileno()) for stream in streams)
    except (OSError, ValueError):  # no file at all: it is captured
        return True
    return os.path.samestat(first, second)


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM, which schedulers and `kill` send, end a command as Ctrl-C does."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        # An event loop that runs has a handler of its own, which lets it close what it holds. A command that
        # a script put into the background ignores Ctrl-C, and has none.
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    signal.signal(signal.SIGTERM, interrupt)


def print_line(text: str) -> None:
    """Print a text to standard output without breaking its lines, so that paths and commands can be copied."""
    OUT.print(text, soft_wrap=True)


def print_json(value: Any) -> None:
    """Write one JSON object to standard output; records in it are written as they are stored."""
    text = orjson.dumps(value, lambda record: record.model_dump(mode="json"), orjson.OPT_INDENT_2)
    sys.stdout.write(text.decode() + "\n")
