"""`curate runs`: list the runs in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from curate.cli.console import OUT, AsJson, print_json
from curate.cli.printing import number_cell

if TYPE_CHECKING:
    from curate.records import Manifest
    from curate.run.run_list import ListedRun


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder with runs in it.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder, latest first: judge, verdicts, selected rows, pairs, cost."""
    from curate.run.run_list import list_runs

    listed = list_runs(folder)
    if as_json:
        print_json([_row(run) for run in listed])
    else:
        _show(listed, folder)


def _show(listed: Sequence[ListedRun], folder: Path) -> None:
    """Print a table of runs, and the runs that could not be read."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    texts = ("run", "begun", "status", "judge")
    for column in (*texts, "dialogues", "good", "sft", "pairs", "unsc.", "cost"):
        table.add_column(column, justify="left" if column in texts else "right", overflow="fold")
    for run in listed:
        if run.manifest is None:
            continue
        row = _row(run)
        table.add_row(
            escape(_name(run.folder, folder)),
            row["started"][:10],
            row["status"],
            escape(Path(row["judge"] or "-").name),
            f"{row['dialogues']:,}",
            number_cell(row["good_share"], ".0%"),
            f"{row['selected']:,}",
            f"{row['pairs'] + row['natural_pairs']:,}",
            f"{row['unscored']:,}",
            number_cell(row["cost"]),
        )
    OUT.print(table)
    OUT.print(
        "[dim]good: share of the verdicts that are good or excellent; unsc.: dialogues without a score.[/dim]"
    )
    for run in listed:
        if run.manifest is None:
            OUT.print(
                f"[yellow]cannot be read:[/yellow] {escape(str(run.folder))}: {escape(run.problem)}"
            )


def _name(run: Path, folder: Path) -> str:
    return run.name if run == folder else str(run.relative_to(folder))


def _row(run: ListedRun) -> dict[str, Any]:
    manifest = run.manifest
    if manifest is None:
        return {"folder": str(run.folder), "problem": run.problem}
    return {
        "folder": str(run.folder),
        "name": manifest.name,
        "status": manifest.status,
        "started": manifest.started,
        "seconds": manifest.seconds,
        "dialogues": manifest.dialogues,
        "judge": _judge(manifest),
        "verdicts": manifest.verdicts,
        "good_share": _good_share(manifest),
        "selected": manifest.selected,
        "pairs": manifest.pairs,
        "natural_pairs": manifest.natural_pairs,
        "unscored": manifest.unscored,
        "requests": manifest.requests,
        "cost": manifest.cost,
        "trust": {kind.value: sentence for kind, sentence in manifest.trust.items()},
    }


def _judge(manifest: Manifest) -> str | None:
    for stage in ("judge", "adherence", "metrics", "factuality"):
        if stage in manifest.identities:
            return manifest.identities[stage].model
    return None


def _good_share(manifest: Manifest) -> float | None:
    from curate.records import GOOD_VERDICTS

    total = sum(manifest.verdicts.values())
    good = sum(manifest.verdicts.get(verdict, 0) for verdict in GOOD_VERDICTS)
    return good / total if total else None
