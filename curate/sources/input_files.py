"""The data files of a source's paths: files, folders and globs.

Only data files are read. Every other file is listed with the reason it was skipped, so that a folder never looks more
complete than it is.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from curate.errors import SourceError
from curate.sources.config import DATA_SUFFIXES, TABLE_SUFFIXES, TEXT_SUFFIXES, SourceConfig, stem
from curate.wording import first_of

COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read; `label` is its name in lineage and messages, `prefix` the prefix of ids made for its rows."""

    path: Path
    label: str
    prefix: str


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is not read, with the reason."""

    file: str
    reason: str


def list_files(config: SourceConfig) -> tuple[tuple[SourceFile, ...], tuple[SkippedFile, ...]]:
    """List the files of a source and the files it skips: files, folders (recursive, without hidden files) and globs.

    Files are sorted within each path. Ids made for rows begin with the source's name, followed by the file's unless the
    path is a single file.

    Raises:
        SourceError: a path is missing, a glob matches nothing, a folder or glob has no data file.
    """
    data: dict[Path, SourceFile] = {}
    skipped: dict[Path, SkippedFile] = {}
    for source_path in config.paths:
        root, matches = _expand(source_path)
        inner = root.resolve()
        single = len(config.paths) == 1 and matches == [root]
        for path in matches:
            inside = path.relative_to(root) if path != root else Path(path.name)
            label = str(path)
            reason = None if path == root else _why_skipped(path, inner)
            if reason is not None:
                skipped.setdefault(path, SkippedFile(label, reason))
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


def _expand(source_path: str) -> tuple[Path, list[Path]]:
    path = Path(source_path).expanduser()
    if path.is_file():
        return path, [path]
    if path.is_dir():
        return path, _below(path)
    if glob.has_magic(source_path):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        files = [match for match in matches if match.is_file()]
        if not files and matches:
            files = [file for match in matches for file in _below(match)]
        if not files:
            raise SourceError(
                f"no file matches {source_path}", fix="fix the pattern in source.path"
            )
        # The folders before the first wildcard.
        return Path(*takewhile(lambda part: not glob.has_magic(part), path.parts[:-1])), files
    raise SourceError(
        f"there is no file or folder {source_path}",
        expected="a file, a folder, a glob, or a Hub dataset id such as owner/name",
        fix="fix the path; a path in a recipe is looked up beside the recipe, then in the current folder",
    )


def _below(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(
        path
        for path in files
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _why_skipped(path: Path, root: Path) -> str | None:
    file = path.resolve()
    if not any(file.is_relative_to(folder) for folder in (root, *_blobs_of_a_snapshot(root))):
        return "a link that leads out of the folder"
    if data_suffix(path) is None:
        return "not a data file"
    return "empty file" if path.stat().st_size == 0 else None


def _blobs_of_a_snapshot(root: Path) -> Iterator[Path]:
    """Yield the `blobs` folders of the Hub's cache for a folder in it, whose files are links to them."""
    for folder in (root, *root.parents):
        if folder.name == "snapshots":
            yield folder.parent / "blobs"


def data_suffix(path: Path) -> str | None:
    """Return the data suffix of a file without its compression suffix; None for a file that is not a data file."""
    name = path.name.lower()
    compression = next((suffix for suffix in COMPRESSED if name.endswith(suffix)), "")
    name = name.removesuffix(compression)
    suffixes = TEXT_SUFFIXES if compression else (*TEXT_SUFFIXES, *TABLE_SUFFIXES)
    return next((suffix for suffix in suffixes if name.endswith(suffix)), None)


def _listed(names: Iterable[str]) -> str:
    return first_of(list(names), 8)
