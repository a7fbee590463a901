"""CSV to rows: records under a header. All values are text; an empty cell is null."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from curate.sources.text_lines import MAX_ROW, CutLine, Lines, block_codec, read_blocks
from curate.sources.unit_result import RawRow, has_surrogate, shown_bytes
from curate.storage.csv_text import csv_delimiter
from curate.wording import plural

_LINE = re.compile(r"[^\r\n]*+(?:\r\n?|\n)|[^\r\n]++")


def csv_rows(
    stream: IO[bytes], delimiter: str | None, encoding: str | None, path: Path
) -> Iterator[RawRow]:
    """Yield records under a header; without `delimiter`, the header decides it.

    From a record that is too long on, the rest of the file is one row with a fault: the record may have opened a quote,
    so no later line is known to begin a record.
    """
    csv.field_size_limit(sys.maxsize)  # the default of 128 KiB would refuse a long turn
    lines = _RecordLines(Lines(read_blocks(stream, encoding, path)), encoding)
    texts = iter(lines)
    number = 0
    try:
        first = next(filter(str.strip, texts), "")
        sign = delimiter or csv_delimiter(first)
        records = filter(None, csv.reader(chain([first], texts), delimiter=sign))
        header = next(records, None)
        if header is None:
            return
        while True:
            number += 1
            lines.record_size = 0
            try:
                cells = next(records, None)
            except csv.Error as problem:
                yield RawRow(number, "", "shape_mismatch", f"CSV: {problem}")
                continue
            if cells is None:
                return
            yield _row(number, header, cells)
    except _TooLongError as problem:
        detail = f"the record has more than {MAX_ROW >> 20} MiB; the file is not read from here on"
        yield RawRow(max(number, 1), problem.start, "too_long", detail)


def _row(number: int, header: list[str], cells: list[str]) -> RawRow:
    texts = [shown_bytes(cell) for cell in cells]
    if any(map(has_surrogate, cells)):
        return RawRow(number, texts, "bad_encoding", "bytes that cannot be decoded")
    if len(cells) != len(header):
        detail = f"{plural(len(cells), 'cell')} under {plural(len(header), 'column name')}"
        return RawRow(number, texts, "shape_mismatch", detail)
    return RawRow(number, {name: cell or None for name, cell in zip(header, cells, strict=True)})


class _TooLongError(Exception):
    def __init__(self, start: str) -> None:
        self.start = start
        super().__init__(start)


class _RecordLines:
    """Lines of text, without blank lines before a record.

    Attributes:
        record_size: characters of the record so far; the reader of records sets it to 0 between them.
    """

    def __init__(self, lines: Lines, encoding: str | None) -> None:
        self.record_size = 0
        self._lines = lines
        self._codec = block_codec(encoding)

    def __iter__(self) -> Iterator[str]:
        """Yield lines with their line endings.

        Raises:
            _TooLongError: the record is longer than `MAX_ROW`.
        """
        for _, line in self._lines:
            if not self.record_size and not line.strip(b"\r\n"):
                continue
            for text in _LINE.findall(line.decode(self._codec, "surrogateescape")):
                self.record_size += len(text)
                if isinstance(line, CutLine) or self.record_size > MAX_ROW:
                    raise _TooLongError(shown_bytes(text[:1_000]))
                yield text
