"""`curate report`: write a run as one HTML file that opens from disk."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from curate.cli.console import ERR, OUT, AsJson, Quiet, print_json, print_line
from curate.wording import plural

if TYPE_CHECKING:
    from curate.run.report import WrittenReport


def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write (default RUN/report.html).")
    ] = None,
    max_mb: Annotated[
        int, typer.Option(min=1, help="Most megabytes of dialogues in one file.")
    ] = 50,
    split: Annotated[
        bool,
        typer.Option("--split", help="Write several files if one would be larger than that."),
    ] = False,
    open_page: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Open it in the browser if there is a desktop; never if CI or CURATE_NO_BROWSER is set.",
        ),
    ] = False,
    as_json: AsJson = False,
    _quiet: Quiet = False,
) -> None:
    """Write a run as one HTML page: figures, scores, every dialogue and pair. No model calls, no network."""
    from curate.cli.progress import one_bar
    from curate.run.report import write_report

    with one_bar("dialogues", hidden=not ERR.is_terminal) as progress:
        written = write_report(
            run_folder, out, max_bytes=max_mb * 1_000_000, split=split, on_dialogue=progress
        )
    if open_page and has_desktop(os.environ, sys.platform, is_terminal=sys.stdout.isatty()):
        webbrowser.open(written.files[0].resolve().as_uri())
    if as_json:
        print_json(
            {
                "files": [str(path) for path in written.files],
                "bytes": written.bytes,
                "dialogues": written.dialogues,
                "left_out": written.left_out,
                "pairs": written.pairs,
            }
        )
        return
    show_written(written, f"dialogues, {plural(written.pairs, 'pair')}, dropped ones included")


def has_desktop(environment: Mapping[str, str], platform: str, *, is_terminal: bool) -> bool:
    """Return whether a browser can open on the user's screen.

    Args:
        platform: as `sys.platform`.
        is_terminal: standard output is a terminal.
    """
    if not is_terminal or environment.get("CI") or environment.get("CURATE_NO_BROWSER"):
        return False
    if platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def show_written(written: WrittenReport, what: str) -> None:
    """Print which files were written, what is in them and what is left out.

    Args:
        what: what the number of dialogues counts, with anything else that is in the files.
    """
    for path, size in zip(written.files, written.bytes, strict=True):
        print_line(f"{escape(str(path))}  {size / 1e6:.1f} MB")
    OUT.print(f"{written.dialogues:,} {what}")
    if written.left_out:
        ERR.print(
            f"[yellow]The text of {plural(written.left_out, 'dialogue')} is left out, because a larger file is slow to open; their "
            "scores are there.[/yellow] `curate report --split` writes several files, --max-mb allows a larger one.",
            soft_wrap=True,
        )
    print_line(
        "The page holds the dialogues themselves. Open it in a browser; it makes no network requests."
    )
