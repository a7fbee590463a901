"""Which files a path stands for.

Only data files are read; every other file met on the way is named with the reason it was skipped, so that
a folder never looks more complete than it is.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from curate.errors import SourceError
from curate.sources.config import DATA_SUFFIXES, TABLE_SUFFIXES, TEXT_SUFFIXES, SourceConfig, stem
from curate.wording import first_of

COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read. `label` names it in lineage and messages; `prefix` opens ids made for its rows."""

    path: Path
    label: str
    prefix: str


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is not read, and why."""

    file: str
    reason: str


def list_files(config: SourceConfig) -> tuple[tuple[SourceFile, ...], tuple[SkippedFile, ...]]:
    """Expand files, folders (recursive, hidden files left out) and globs, sorted within each path.

    Ids made for rows open with the source's name, and with the file's too unless the path is one file.

    Raises:
        SourceError: a path is missing, a glob matches nothing, a folder or glob has no data file.
    """
    data: dict[Path, SourceFile] = {}
    skipped: dict[Path, SkippedFile] = {}
    for given in config.paths:
        root, found = _expand(given)
        inner = root.resolve()
        single = len(config.paths) == 1 and found == [root]
        for path in found:
            inside = path.relative_to(root) if path != root else Path(path.name)
            label = str(path)
            why = None if path == root else _why_skipped(path, inner)
            if why is not None:
                skipped.setdefault(path, SkippedFile(label, why))
                continue
            own = "-".join((*inside.parts[:-1], stem(inside.name)))
            prefix = config.source_name if single else f"{config.source_name}-{own}"
            data.setdefault(path, SourceFile(path, label, prefix))
    if not data:
        raise SourceError(
            f"there is no data file under {_listed(config.paths)}",
            got=_listed(item.file for item in skipped.values()) or "no files at all",
            expected=f"files ending in {', '.join(DATA_SUFFIXES)}, text ones also .gz or .zst",
            fix="point source.path at the data",
        )
    return tuple(data.values()), tuple(skipped.values())


def _expand(given: str) -> tuple[Path, list[Path]]:
    path = Path(given).expanduser()
    if path.is_file():
        return path, [path]
    if path.is_dir():
        return path, _below(path)
    if any(sign in given for sign in "*?["):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        found = [file for match in matches for file in ([match] if match.is_file() else [])]
        if not found and matches:
            found = [file for match in matches for file in _below(match)]
        if not found:
            raise SourceError(f"no file matches {given}", fix="fix the pattern in source.path")
        return _fixed_part(path), found
    raise SourceError(
        f"there is no file or folder {given}",
        expected="a file, a folder, a glob, or a Hub dataset id such as owner/name",
        fix="fix the path; a recipe's is looked for beside the recipe, then in the folder you run in",
    )


def _below(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(
        path
        for path in found
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _fixed_part(pattern: Path) -> Path:
    """The folders of a glob before its first wildcard."""
    parts = []
    for part in pattern.parts[:-1]:
        if any(sign in part for sign in "*?["):
            break
        parts.append(part)
    return Path(*parts)


def _why_skipped(path: Path, root: Path) -> str | None:
    file = path.resolve()
    if not any(file.is_relative_to(folder) for folder in (root, *_blobs_of_a_snapshot(root))):
        return "a link that leads out of the folder"
    if kind_of(path) is None:
        return "not a data file"
    return "empty file" if path.stat().st_size == 0 else None


def _blobs_of_a_snapshot(root: Path) -> Iterator[Path]:
    """Where the files of a snapshot in the Hub's cache lie: each file there is a link to one of `blobs`."""
    for folder in (root, *root.parents):
        if folder.name == "snapshots":
            yield folder.parent / "blobs"


def kind_of(path: Path) -> str | None:
    """The data suffix of a file without its compression, or None for what is no data file."""
    name = path.name.lower()
    packed = next((suffix for suffix in COMPRESSED if name.endswith(suffix)), "")
    name = name.removesuffix(packed)
    suffixes = TEXT_SUFFIXES if packed else (*TEXT_SUFFIXES, *TABLE_SUFFIXES)
    return next((suffix for suffix in suffixes if name.endswith(suffix)), None)


def _listed(names: Iterable[str]) -> str:
    return first_of(list(names), 8)
