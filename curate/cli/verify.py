"""`curate verify`: check that a run is what its kept replies give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from curate.cli.console import ERR, OUT, AsJson, print_json, print_line
from curate.run import exit_codes
from curate.wording import plural

if TYPE_CHECKING:
    from curate.run.file_differences import Difference

_NAMED = 5


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    as_json: AsJson = False,
) -> None:
    """Make a run again from its kept replies and print what differs; no model calls.

    Scores, verdicts, levels, sets, pairs, exports, hashes and certificates are made again in a temporary folder, by
    the same code as in a run. Exit code 1 if something differs.
    """
    from curate.cli.progress import RunProgress
    from curate.run.verify import verify_run

    with RunProgress(ERR) as progress:
        result = verify_run(run, progress=progress)
    if as_json:
        print_json(result)
    else:
        for difference in result.differences:
            print_line(_line(difference))
        for stage, count in result.no_reply.items():
            OUT.print(
                f"{stage}: {plural(count, 'row')} of failed calls: no reply to make them again from"
            )
        for text in result.not_verified:
            print_line(f"not checked: {escape(text)}")
        print_line(escape(result.sentence))
    if result.differences:
        raise typer.Exit(exit_codes.FAILED)


def _line(difference: Difference) -> str:
    rows = f" in {plural(difference.rows, 'row')}" if difference.rows > 1 else ""
    parts = [f"[red]{escape(difference.place)}[/red] {escape(difference.problem)}{rows}"]
    for names, most in ((difference.units, _NAMED), (difference.fields, _NAMED)):
        if names:
            more = ", …" if len(names) > most else ""
            parts.append(escape(", ".join(names[:most])) + more)
    return ": ".join(parts)
