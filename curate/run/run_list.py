"""The runs of a folder, each by its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from curate.errors import CurateError, UsageError
from curate.records import Manifest
from curate.run.read_back import read_manifest
from curate.storage.run_folder import MANIFEST

_DEPTH = 3


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a folder; `manifest` is None where it cannot be read, and `problem` says why."""

    folder: Path
    manifest: Manifest | None
    problem: str = ""


def list_runs(folder: Path) -> list[ListedRun]:
    """Return the runs below a folder, up to three levels down, the newest first; damaged ones at the end.

    Raises:
        UsageError: there is no such folder, or no run in it.
    """
    if not folder.is_dir():
        raise UsageError("no such folder", got=folder, expected="a folder with runs in it")
    runs = [_read(path) for path in _run_folders(folder, _DEPTH)]
    if not runs:
        raise UsageError(
            "no run in this folder",
            got=folder,
            expected=f"folders with a manifest.json, at most {_DEPTH} levels down",
        )
    readable = [run for run in runs if run.manifest is not None]
    readable.sort(key=lambda run: run.manifest.started if run.manifest else "", reverse=True)
    return [*readable, *(run for run in runs if run.manifest is None)]


def _read(folder: Path) -> ListedRun:
    try:
        return ListedRun(folder, read_manifest(folder))
    except CurateError as error:
        return ListedRun(folder, None, f"{error.problem}: {error.got}")


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / MANIFEST).is_file():
        yield folder
        return
    if depth:
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.name.startswith("."):
                yield from _run_folders(child, depth - 1)
