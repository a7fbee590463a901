"""The command line, the only place that prints and exits. A module holds one command: its options and what it prints.

What several commands print is in `printing`, exit codes are in `curate.run.exit_codes`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape

from curate.cli.agreement import agreement
from curate.cli.audit import audit
from curate.cli.benchmark import benchmark
from curate.cli.calibrate import calibrate
from curate.cli.certify import certify
from curate.cli.check import check
from curate.cli.console import ERR, OUT, command_line, end_as_by_ctrl_c
from curate.cli.diff import diff
from curate.cli.doctor import doctor
from curate.cli.estimate import estimate
from curate.cli.ingest import ingest
from curate.cli.init import init
from curate.cli.metrics import metrics
from curate.cli.probe import probe
from curate.cli.push import push
from curate.cli.recipes import recipes
from curate.cli.report import report
from curate.cli.review import review
from curate.cli.run import run
from curate.cli.runs import runs
from curate.cli.sample import sample
from curate.cli.schema import schema
from curate.cli.show import show
from curate.cli.verify import verify
from curate.errors import CurateError, SourceError, UsageError
from curate.run import exit_codes

__all__ = ["app", "main"]

COMMANDS: dict[str, dict[Callable[..., None] | typer.Typer, tuple[str, ...]]] = {
    "Start": {
        init: ("init chats.jsonl", "init hub:allenai/WildChat-1M", "init --example"),
        ingest: ("ingest chats.jsonl", "ingest 'logs/*.jsonl.gz' --accept"),
        recipes: ("recipes",),
        doctor: ("doctor my-recipe.yaml",),
        schema: ("schema recipe", "schema list"),
    },
    "Run": {
        estimate: ("estimate my-recipe.yaml --measure",),
        run: (
            "run my-recipe.yaml --limit 20",
            "run my-recipe.yaml --set models.judge.model=my-judge",
            "run my-recipe.yaml --retry unscored",
        ),
        push: (
            "push runs/my-recipe me/my-set --dry-run",
            "push runs/my-recipe me/my-set --license mit",
        ),
        check: ("check runs/my-recipe/export/trl --for trl --tokenizer my-model",),
    },
    "Look": {
        show: (
            "show runs/my-recipe --where \"verdict = 'poor'\" --sort adherence --limit 20",
            "show runs/my-recipe chat-17",
        ),
        report: ("report runs/my-recipe",),
        review: ("review runs/my-recipe review-my-recipe.jsonl",),
        runs: ("runs runs",),
        diff: ("diff runs/old runs/my-recipe",),
        verify: ("verify runs/my-recipe",),
    },
    "Trust": {
        probe: ("probe my-recipe.yaml --dry-run", "probe my-recipe.yaml --limit 60"),
        audit: ("audit runs/my-recipe",),
        sample: ("sample runs/my-recipe -n 120 --out labels.csv",),
        agreement: ("agreement runs/my-recipe labels.csv",),
        calibrate: (
            "calibrate runs/my-recipe labels.csv",
            "calibrate my-recipe.yaml --twins 60",
        ),
        certify: ("certify runs/my-recipe labels.csv", "certify --plan --risk 0.1"),
        metrics: ("metrics --recipe my-recipe.yaml",),
        benchmark: ("benchmark labelled.jsonl --methods cosine,bertscore",),
    },
}
"""The commands by purpose, each with the examples that its help shows."""


def _name_of(command: Callable[..., None] | typer.Typer) -> str:
    return "metrics" if isinstance(command, typer.Typer) else command.__name__


def make_app(only: str | None = None) -> typer.Typer:
    """Build the app with all commands, or with `only` one: building all takes longer than most commands run."""
    built = typer.Typer(
        name="curate",
        help="Turn raw multi-turn chat logs into audited training sets.",
        epilog="curate --install-completion lets your shell complete commands, options and paths.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    for panel, commands in COMMANDS.items():
        for command, examples in commands.items():
            name = _name_of(command)
            if only not in (None, name):
                continue
            settings: dict[str, Any] = {
                "name": name,
                "rich_help_panel": panel,
                "epilog": "\n\n".join(
                    ["For example:", *(escape(f"curate {example}") for example in examples)]
                ),
            }
            if isinstance(command, typer.Typer):
                built.add_typer(command, **settings)
            else:
                built.command(**settings)(command)
    built.callback(invoke_without_command=True)(_root)
    return built


def _root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if show_version:
        from curate import __version__

        OUT.print(f"curate {__version__}")
        raise typer.Exit
    OUT.quiet = False


app = make_app()


def main() -> None:
    """Run the command line: expected errors without a traceback, exit codes as in `curate.run.exit_codes`."""
    end_as_by_ctrl_c()
    try:
        make_app(_command_in(sys.argv[1:]))()
    except SystemExit as ended:
        if ended.code == exit_codes.INTERRUPTED:
            ERR.print(f"interrupted; to start again:\n  {escape(command_line())}", soft_wrap=True)
            ended.code = exit_codes.FAILED
        raise
    except (UsageError, SourceError) as error:
        _fail(error, exit_codes.BAD_USAGE)
    except CurateError as error:
        _fail(error, exit_codes.FAILED)
    except OSError as error:
        # The error names the file or folder, and only the user can fix it.
        problem = "a file or folder cannot be read or written"
        _fail(
            CurateError(problem, got=error, fix="fix its permissions or free some space"),
            exit_codes.FAILED,
        )


def _command_in(arguments: list[str]) -> str | None:
    """Return the command that the arguments begin with; None if there is none, or a shell asks for completions."""
    names = {_name_of(command) for commands in COMMANDS.values() for command in commands}
    is_command = bool(arguments) and arguments[0] in names and "_CURATE_COMPLETE" not in os.environ
    return arguments[0] if is_command else None


def _fail(error: CurateError, code: int) -> None:
    ERR.print(f"[bold red]error:[/bold red] {escape(str(error))}", soft_wrap=True)
    sys.exit(code)
