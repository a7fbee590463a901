"""The command line. The only place that prints and sets exit codes; a module holds one command or a few.

Exit codes: 0 done, 1 the run failed or stopped, 2 bad usage or recipe, 3 finished but over the allowed
share of unscored dialogues.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from curate import __version__
from curate.cli import calibrate, check, running
from curate.cli.benchmark import benchmark
from curate.cli.console import ERR, OUT, command_line, end_as_by_ctrl_c
from curate.cli.push import push
from curate.errors import CurateError, SourceError, UsageError

__all__ = ["app", "main"]

_INTERRUPTED = 130
"""What typer ends with on Ctrl-C or SIGTERM, outside of what `resumable` covers."""

app = typer.Typer(
    name="curate",
    help="Turn raw multi-turn chat logs into audited training sets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command()(running.ingest)
app.command()(running.run)
app.command()(running.estimate)
app.command()(running.doctor)
app.command()(running.show)
app.command()(running.schema)
app.command()(calibrate.calibrate)
app.command()(check.check)
app.command()(benchmark)
app.command()(push)


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if show_version:
        OUT.print(f"curate {__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point: expected errors without a traceback, exit codes as in the module's docstring."""
    end_as_by_ctrl_c()
    try:
        app()
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            ERR.print(f"interrupted; to start again:\n  {escape(command_line())}", soft_wrap=True)
            ended.code = 1
        raise
    except (UsageError, SourceError) as error:
        _fail(error, 2)
    except CurateError as error:
        _fail(error, 1)
    except OSError as error:
        # Whatever cannot be read or written has a name, and mending it is the user's.
        said = "a file or folder cannot be read or written"
        _fail(CurateError(said, got=error, fix="mend its permissions or free some room"), 1)


def _fail(error: CurateError, code: int) -> None:
    ERR.print(f"[bold red]error:[/bold red] {escape(str(error))}", soft_wrap=True)
    sys.exit(code)
