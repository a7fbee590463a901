"""Lines of bytes from a stream, in blocks: no line is held that is longer than its bound."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, cast

from curate.errors import SourceError

CHUNK = 1 << 20
MAX_ROW = 1 << 26
"""Bytes of the longest row that is read. 64 MiB of text are some ten million tokens, more than any model reads at once; a
row takes a few times its size while it is parsed, and a few kilobytes of gzip unpack to one of any length."""
# A megabyte of gzip can unpack to a gigabyte of line breaks, so blank lines in a row count as one piece, found
# by a pattern that never looks twice at a sign, rather than one by one.
_PIECE = re.compile(rb"(?:[ \t\r\v\f]*+\n)++|[^\n]*+\n|[^\n]++")


class CutLine(bytes):
    """The beginning of a line that is longer than its bound: one byte more than the bound."""


class Lines:
    """Lines of bytes with their numbers; blank lines in a row may come as one, with the first's number.

    Of a line that is longer than its bound a `CutLine` comes, and the rest of it is passed over.

    Args:
        blocks: see `read_blocks`.
        number: of the first line.

    Attributes:
        bound: bytes of the longest line from here on.
    """

    def __init__(self, blocks: Iterator[bytes], number: int = 1) -> None:
        self._blocks = blocks
        self._pieces: Iterator[bytes] = iter(())
        self._number = number
        self.bound = MAX_ROW
        self._lines = self._read()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self._lines

    def unread(self) -> Iterator[bytes]:
        """Yield what comes after the lines that were read so far, in blocks."""
        yield b"".join(self._pieces)
        yield from self._blocks

    def _read(self) -> Iterator[tuple[int, bytes]]:
        number, size = self._number, 0
        pending: list[bytes] = []
        for block in self._blocks:
            self._pieces = iter(_PIECE.findall(block))
            for piece in self._pieces:
                ends = piece[-1:] == b"\n"
                if not pending and (ends or piece.isspace()):
                    yield number, piece
                    number += piece.count(b"\n")
                    continue
                # A line that goes on in the next block; blank lines may follow its end.
                end = piece.index(b"\n") + 1 if ends else len(piece)
                if (room := self.bound + 1 - size) > 0:
                    pending.append(piece[: min(end, room)])
                    size += len(pending[-1])
                if not ends:
                    continue
                line = self._joined(pending, size)
                pending, size = [], 0
                yield number, line
                number += 1
                if blank := piece[end:]:
                    yield number, blank
                    number += blank.count(b"\n")
        if pending:
            yield number, self._joined(pending, size)

    def _joined(self, pending: list[bytes], size: int) -> bytes:
        line = b"".join(pending)
        return CutLine(line) if size > self.bound else line


def read_blocks(stream: IO[bytes], encoding: str | None, path: Path) -> Iterator[bytes]:
    """Yield a stream in blocks, without its byte order mark; of encodings wider than a byte, in UTF-8."""
    start = stream.read(3)
    if encoding is None and start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError(
            f"{path} is UTF-16, UTF-8 was expected", fix="set source.encoding: utf-16"
        )
    if encoding is None:
        start = start.removeprefix(b"\xef\xbb\xbf")
    # `read` would lose what came before a break in a packed file; `read1` hands over what it has.
    blocks = chain([start], iter(lambda: cast("io.BufferedReader", stream).read1(CHUNK), b""))
    if encoding is None or not _is_wide(encoding):
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


def block_codec(encoding: str | None) -> str:
    """Return the encoding of the blocks of `read_blocks`."""
    return "utf-8" if encoding is None or _is_wide(encoding) else encoding


def _is_wide(encoding: str) -> bool:
    """Return whether a line break of the encoding is no single byte, as in UTF-16."""
    return "\n".encode(encoding) != b"\n"
