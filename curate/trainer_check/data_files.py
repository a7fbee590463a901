"""Rows of a data file as a trainer's loader gets them: JSON Lines, a JSON list, or Parquet.

A check reads data of any origin, so a line that is not JSON is a finding and not an error. Row numbers start at 0 and
count what `datasets` counts: blank lines are not rows.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from curate.errors import SourceError
from curate.storage.parquet_files import readable
from curate.trainer_check.findings import Problem

FileRow = Mapping[str, Any]

KINDS: Final = {".jsonl": "json", ".json": "json", ".ndjson": "json", ".parquet": "parquet"}
_BATCH: Final = 500  # rows of a Parquet file in memory
_BLOCK: Final = 1 << 16  # bytes read at once to skip blanks before the first row
_ENDS: Final = "stop: `datasets` cannot load the file"


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file to check.

    Attributes:
        path: path of the file.
        name: name in the report.
        kind: `json` or `parquet`.
    """

    path: Path
    name: str
    kind: str

    def rows(self) -> Iterator[FileRow | Problem]:
        """Yield rows in order, with a problem in place of each line that is not a row.

        Raises:
            SourceError: the file cannot be read.
        """
        try:
            yield from _parquet_rows(self.path) if self.kind == "parquet" else _json_rows(self.path)
        except OSError as error:
            raise SourceError(
                "a file cannot be read", got=f"{self.path}: {error}", fix="fix its permissions"
            ) from error

    def columns(self) -> tuple[str, ...]:
        """Return the names of all columns in order of appearance, including those of later rows."""
        if self.kind == "parquet":
            import pyarrow.parquet as pq

            with readable(self.path, _not_parquet):
                return tuple(pq.read_schema(self.path).names)
        names: dict[str, None] = {}
        for row in self.rows():
            if not isinstance(row, Problem):
                names.update(dict.fromkeys(row))
        return tuple(names)


def find_files(path: Path) -> tuple[tuple[CheckedFile, ...], tuple[tuple[str, str], ...]]:
    """Return the data files of a path: the file itself, or those directly in the folder.

    Returns:
        The files, and name and reason of each file that is skipped.

    Raises:
        SourceError: there is nothing to read.
    """
    if path.is_file():
        kind = KINDS.get(path.suffix.lower())
        if kind is None:
            raise SourceError(
                "a file of an unknown kind", got=path, expected=", ".join(sorted(KINDS))
            )
        return (CheckedFile(path, path.name, kind),), ()
    if not path.is_dir():
        raise SourceError(
            "there is no such file or folder",
            got=path,
            expected="a JSONL, JSON or Parquet file, or a folder of them",
        )
    files: list[CheckedFile] = []
    skipped: list[tuple[str, str]] = []
    for file in sorted(path.iterdir()):
        if file.name.startswith("."):
            continue
        if file.is_dir():
            skipped.append((f"{file.name}/", "a folder; name it to check it"))
            continue
        kind = KINDS.get(file.suffix.lower())
        if kind is None:
            skipped.append((file.name, "not a data file"))
        elif file.name == "refused.jsonl" or file.stem.endswith("provenance"):
            skipped.append((file.name, "a sidecar"))
        elif file.name == "dataset_info.json":
            skipped.append((file.name, "describes the others"))
        elif _is_empty(file, kind):
            skipped.append((file.name, "empty"))
        else:
            files.append(CheckedFile(file, file.name, kind))
    if not files:
        raise SourceError(
            "the folder has no file to check",
            got=", ".join(f"{name} ({why})" for name, why in skipped) or f"no files in {path}",
            expected=", ".join(sorted(KINDS)),
        )
    return tuple(files), tuple(skipped)


def _is_empty(path: Path, kind: str) -> bool:
    if kind != "parquet" or path.stat().st_size == 0:
        return path.stat().st_size == 0
    import pyarrow.parquet as pq

    with readable(path, _not_parquet):
        return bool(pq.read_metadata(path).num_rows == 0)


def _json_rows(path: Path) -> Iterator[FileRow | Problem]:
    with path.open("rb") as file:
        start = len(codecs.BOM_UTF8) if file.read(3) == codecs.BOM_UTF8 else 0  # passed over
        file.seek(start)
        block = file.read(_BLOCK)
        while block.isspace():
            block = file.read(_BLOCK)
        file.seek(start)
        if block.lstrip().startswith(b"["):
            yield from _listed(path, file.read())
            return
        for line in file:
            if line.strip():
                yield _row_of(line)


def _listed(path: Path, text: bytes) -> Iterator[FileRow | Problem]:
    try:
        rows = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SourceError(
            "a file is not valid JSON",
            got=f"{path}: {error}",
            fix="correct it at that place",
        ) from error
    yield from map(_row_or_problem, rows)


def _row_of(line: bytes) -> FileRow | Problem:
    try:
        return _row_or_problem(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        text = shown(line.decode(errors="replace"))
        return Problem("not_json", "stops", _ENDS, f"{error}: {text}")


def _row_or_problem(row: object) -> FileRow | Problem:
    return row if isinstance(row, dict) else Problem("not_a_row", "stops", _ENDS, shown(row))


def _parquet_rows(path: Path) -> Iterator[FileRow]:
    import pyarrow.parquet as pq

    with readable(path, _not_parquet), pq.ParquetFile(path) as file:
        decoders = {field.name: _decoder(field.type) for field in file.schema_arrow}
        for batch in file.iter_batches(_BATCH):
            for row in batch.to_pylist():
                yield {
                    name: value if (decode := decoders[name]) is None else decode(value)
                    for name, value in row.items()
                }


def _not_parquet(path: Path, error: BaseException) -> SourceError:
    return SourceError(
        "not a Parquet file",
        got=f"{path}: {error}",
        fix="write it again, or give the JSONL file",
    )


def _decoder(kind: Any) -> Callable[[Any], Any] | None:
    """Return the decoder of an Arrow type that holds JSON as text; None for any other type."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json":
        return lambda text: None if text is None else orjson.loads(text)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _decoder(kind.value_type)
        if inner is not None:
            return lambda items: None if items is None else [inner(item) for item in items]
    return None


def shown(value: object, width: int = 60) -> str:
    """Return a value as text for a finding, shortened to `width` characters."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
