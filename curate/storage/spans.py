"""Parts of a file copied as they are: what lies in it as JSON already is not parsed to be written again.

A file is read in blocks into one buffer, and the rows of a block go out in one write, slices of it joined by the
few bytes that frame them. Memory is a few blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import polars as pl

from curate.errors import CurateError

_BLOCK = 1 << 19  # bytes; fits a processor's second cache, where all copies of a block meet
_ROWS = 5_000  # places that are Python numbers at once

Buffer = bytes | memoryview


def read_spans(
    path: Path, starts: pl.Series, stops: pl.Series
) -> Iterator[tuple[int, list[memoryview]]]:
    """Spans of a file, a block of neighbours at a time.

    Args:
        path: the file.
        starts: where each span begins, in bytes, ascending.
        stops: where each ends; it begins nowhere before the one before it ends.

    Raises:
        CurateError: the file ends before its last span does.

    Yields:
        The number of a block's first span, and the bytes of its spans. They are valid until the next block is
        asked for, which is read into the same buffer.
    """
    buffer = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        for first in range(0, len(starts), _ROWS):
            begins = starts.slice(first, _ROWS).to_list()
            ends = stops.slice(first, _ROWS).to_list()
            at = 0
            while at < len(begins):
                origin = begins[at]
                # a span that is larger than a block makes a block of its own
                after = max(at + 1, bisect_right(ends, origin + _BLOCK, at))
                size = ends[after - 1] - origin
                if size > len(buffer):
                    buffer = memoryview(bytearray(size))
                file.seek(origin)
                _fill(file, buffer[:size])
                yield (
                    first + at,
                    [
                        buffer[begin - origin : end - origin]
                        for begin, end in zip(begins[at:after], ends[at:after], strict=True)
                    ],
                )
                at = after


def write_framed(
    file: IO[bytes], heads: bytes | Sequence[bytes], parts: Sequence[Buffer], end: bytes
) -> None:
    """Write rows of a head, a part and an end each; the heads may be all the same.

    Raises:
        OSError: the disk is full, or anything else that a write may meet.
    """
    rows: list[Buffer] = [end] * (3 * len(parts))
    rows[0::3] = [heads] * len(parts) if isinstance(heads, bytes) else heads
    rows[1::3] = parts
    file.write(b"".join(rows))


def _fill(file: IO[bytes], room: memoryview) -> None:
    while room:
        read = file.readinto(room)  # type: ignore[attr-defined]
        if not read:
            raise CurateError(
                f"{file.name} is shorter than its index says",
                expected="the file as it was when it was read in",
                fix="run the same command again, and leave the run folder alone meanwhile",
            )
        room = room[read:]
