"""Parts of a file copied as they are: what lies in it as JSON already is not parsed to be written again.

A file is read in blocks into one buffer, and rows go out by `writev` as slices of it between the few bytes that
frame them, so that each byte is moved once in and once out, whatever the rows are. Memory is one block.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import polars as pl

from curate.errors import CurateError

_BLOCK = 1 << 19  # bytes; fits a processor's second cache, where both copies of a block meet
_ROWS = 5_000  # places that are Python numbers at once
_VECTOR = 1_000  # buffers of one system call; Linux and macOS take 1024

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
    if not parts:
        return
    buffers: list[Buffer] = [b""] * (2 * len(parts) + 1)
    # one buffer less a row: what ends a row begins the next
    if isinstance(heads, bytes):
        buffers[0:-1:2] = [end + heads] * len(parts)
        buffers[0] = heads
    else:
        buffers[0:-1:2] = [end + head for head in heads]
        buffers[0] = heads[0]
    buffers[1::2] = parts
    buffers[-1] = end
    file.flush()
    for at in range(0, len(buffers), _VECTOR):
        some = buffers[at : at + _VECTOR]
        left = sum(map(len, some)) - os.writev(file.fileno(), some)
        if left:  # a short write: what remains is written again, and that says what is wrong
            file.write(b"".join(some)[-left:])
            file.flush()


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
