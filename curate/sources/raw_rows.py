"""Raw rows of one file, decompressed and parsed by its kind, as a stream.

Text is decoded row by row, so that one bad line costs one row; rows longer than a bound are never held in memory.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import zstandard

from curate.errors import SourceError
from curate.sources.csv_rows import csv_rows
from curate.sources.input_files import data_suffix
from curate.sources.json_rows import json_rows
from curate.sources.tabular import arrow_rows
from curate.sources.text_lines import CHUNK
from curate.sources.unit_result import RawRow

_BROKEN = (EOFError, OSError, UnicodeError, zlib.error, zstandard.ZstdError)


def read_rows(path: Path, encoding: str | None = None) -> Iterator[RawRow]:
    """Yield the rows of a file of any kind.

    Raises:
        SourceError: the file cannot be opened, is of no known kind, or is UTF-16 without `encoding`.
    """
    kind = data_suffix(path) or ".json"
    if kind in (".parquet", ".arrow", ".feather", ".ipc"):
        try:
            yield from arrow_rows(path, kind)
        except OSError as problem:
            raise _unopened(path, problem) from None
        return
    try:
        stream = _opened(path)
    except OSError as problem:
        raise _unopened(path, problem) from None
    with stream:
        if kind in (".csv", ".tsv"):
            rows = csv_rows(stream, "\t" if kind == ".tsv" else None, encoding, path)
        else:
            rows = json_rows(stream, encoding, path)
        number = 0
        try:
            for row in rows:
                number = row.number
                yield row
        except _BROKEN as problem:
            is_text = isinstance(problem, UnicodeError)
            if number == 0:
                fix = "check source.encoding" if is_text else "check the file"
                raise SourceError(f"{path} cannot be read", got=problem, fix=fix) from None
            reason = "bad_encoding" if is_text else "broken_file"
            yield RawRow(number + 1, "", reason, f"the file cannot be read on: {problem}")


def _unopened(path: Path, problem: OSError) -> SourceError:
    return SourceError(f"{path} cannot be opened", got=problem, fix="check the file")


def _opened(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if path.name.lower().endswith(".zst"):
        reader = zstandard.ZstdDecompressor().stream_reader(
            path.open("rb"), read_across_frames=True, closefd=True
        )
        return io.BufferedReader(reader, CHUNK)
    return path.open("rb")
