"""Raw rows of one file, in order, without holding the file.

Text is decoded row by row so that one bad line costs one row. JSON comes as lines, as one array, as one
object or as objects one after the other, whatever the file is called; which of these is decided by the
bytes. An array is read piece by piece: what stands before a break in it is used.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

import orjson
import zstandard

from curate.errors import SourceError
from curate.sources.input_files import kind_of
from curate.sources.tabular import arrow_rows
from curate.sources.unit_result import RawRow
from curate.storage.csv_text import csv_delimiter
from curate.wording import plural

CHUNK = 1 << 20
# orjson writes at most 254 levels; deeper rows could be read but never be kept.
DEEP = 200
# The whole numbers that orjson keeps as such.
LEAST_WHOLE, MOST_WHOLE = -(2**63), 2**64 - 1
TRUNCATED = (EOFError, OSError, zlib.error, zstandard.ZstdError)
# A megabyte of gzip can unpack to a gigabyte of line breaks, so blank lines in a row count as one piece, found
# by a pattern that never looks twice at a sign, rather than one by one.
_PIECE = re.compile(rb"(?:[ \t\r\v\f]*+\n)++|[^\n]*+\n|[^\n]++")
_BLANKS = re.compile(r"[ \t\r\n]*+")


def read_rows(path: Path, encoding: str | None = None) -> Iterator[RawRow]:
    """The rows of a file of any kind.

    Raises:
        SourceError: the file cannot be opened, is of no known kind, or is UTF-16 without `encoding`.
    """
    kind = kind_of(path) or ".json"
    if kind in (".parquet", ".arrow", ".feather", ".ipc"):
        yield from arrow_rows(path, kind)
        return
    try:
        stream = _opened(path)
    except OSError as problem:
        raise SourceError(f"{path} cannot be opened", got=problem, fix="check the file") from None
    with stream:
        if kind in (".csv", ".tsv"):
            rows = _csv_rows(stream, "\t" if kind == ".tsv" else None, encoding)
        else:
            rows = _json_rows(stream, encoding, path)
        number = 0
        try:
            for row in rows:
                number = row.number
                yield row
        except TRUNCATED as problem:
            if number == 0:
                raise SourceError(
                    f"{path} cannot be read", got=problem, fix="check the file"
                ) from None
            yield RawRow(number + 1, "", "broken_file", f"the file cannot be read on: {problem}")


def _opened(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if path.name.lower().endswith(".zst"):
        reader = zstandard.ZstdDecompressor().stream_reader(
            path.open("rb"), read_across_frames=True, closefd=True
        )
        return io.BufferedReader(reader, CHUNK)
    return path.open("rb")


# ---- JSON ---------------------------------------------------------------------------------------


def _json_rows(stream: IO[bytes], encoding: str | None, path: Path) -> Iterator[RawRow]:
    lines = _lines(stream, encoding, path)
    head = [next((item for item in lines if item[1].strip()), (0, b""))]
    if not head[0][1]:
        return
    first = head[0][1].strip()
    if first[:1] == b"[" and len(first) > CHUNK:
        yield from _value_rows(_decoded_pieces(chain(head, lines), encoding))
        return
    said_lines = kind_of(path) in (".jsonl", ".ndjson") and len(first) > 1
    if first[:1] in (b"[", b"{") and not said_lines and not _is_json(first):
        # An array or an object over several lines; or else lines of which the first is broken.
        following = [item for _, item in zip(range(20), lines, strict=False)]
        head += following
        whole = not any(_is_row(line) for _, line in following)
        if first[:1] == b"[" or whole:
            text = _decoded_pieces(chain(head, lines), encoding)
            yield from _value_rows(text)
            return
    elif first[:1] == b"[" and not _is_message_list(first):
        following = [item for _, item in zip(range(20), lines, strict=False)]
        head += following
        if not any(line.strip() for _, line in following):
            yield from _value_rows(_decoded_pieces(chain(head, lines), encoding))
            return
    for number, line in chain(head, lines):
        if line.strip():
            yield _line_row(number, line, encoding)


def _lines(stream: IO[bytes], encoding: str | None, path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines of bytes with their numbers, from 1; blank lines in a row may come as one, with the first's number.

    What is in an encoding wider than a byte comes in UTF-8.
    """
    number = 1
    pending: list[bytes] = []
    for block in _blocks(stream, encoding, path):
        for piece in _PIECE.findall(block):
            if piece[-1:] != b"\n" and (pending or not piece.isspace()):
                pending.append(piece)
                continue
            if pending:
                # The end of a line that began in an earlier block, and blank lines that follow it.
                end = piece.index(b"\n") + 1
                yield number, b"".join([*pending, piece[:end]])
                number, pending, piece = number + 1, [], piece[end:]
            if piece:
                yield number, piece
                number += piece.count(b"\n")
    if pending:
        yield number, b"".join(pending)


def _blocks(stream: IO[bytes], encoding: str | None, path: Path) -> Iterator[bytes]:
    """A stream without its byte order mark; of encodings wider than a byte, in UTF-8."""
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


def _is_wide(encoding: str) -> bool:
    return "\n".encode(encoding) != b"\n"


def _text(line: bytes, encoding: str | None) -> str:
    return line.decode("utf-8" if encoding is None or _is_wide(encoding) else encoding)


def _line_row(number: int, line: bytes, encoding: str | None) -> RawRow:
    try:
        text = _text(line, encoding)
    except UnicodeDecodeError as problem:
        shown = line.decode("utf-8", "backslashreplace").strip()
        return RawRow(number, shown, "bad_encoding", f"byte {problem.start}: {problem.reason}")
    return _parsed(number, text.strip())


def _parsed(number: int, text: str) -> RawRow:
    """One JSON text. NaN and Infinity, which Python's json writes, are read as null.

    A whole number of a row's own that 64 bits do not hold, such as a long id, is text: as a number it would
    lose digits.
    """
    try:
        value = orjson.loads(text)
        if text.count("[") + text.count("{") > DEEP:
            orjson.dumps(value)
        if isinstance(value, dict) and any(map(_may_have_lost_digits, value.values())):
            value = _read_slowly(text)
        return RawRow(number, value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, TypeError) as problem:
        first = str(problem)
    try:
        value = _read_slowly(text)
        orjson.dumps(value)
    except (ValueError, TypeError, RecursionError):
        reason = "bad_encoding" if "surrogate" in first else "broken_json"
        return RawRow(number, text, reason, first)
    return RawRow(number, value)


def _may_have_lost_digits(value: Any) -> bool:
    return isinstance(value, float) and abs(value) >= -LEAST_WHOLE


def _read_slowly(text: str) -> Any:
    """Read what orjson cannot read, or not without loss."""
    return json.loads(text, parse_int=_whole, parse_constant=lambda _: None)


def _whole(digits: str) -> int | str:
    if len(digits) > len(str(MOST_WHOLE)):
        return digits  # Python itself refuses to read some thousand digits
    return value if LEAST_WHOLE <= (value := int(digits)) <= MOST_WHOLE else digits


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _is_row(line: bytes) -> bool:
    """True for a line that is a whole object by itself, as only JSON lines have them."""
    line = line.strip()
    return line[:1] == b"{" and line[-1:] == b"}" and _is_json(line)


def _is_message_list(line: bytes) -> bool:
    """True for a line that is one conversation: a list of objects with a role."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return is_message_list(value)


def is_message_list(value: Any) -> bool:
    """True for a non-empty list of objects that have a role and a content under the usual names."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(item, dict)
            and ("role" in item or "from" in item)
            and ("content" in item or "value" in item)
            and not any(key.endswith("_id") and key != "tool_call_id" for key in item)
            and not any(key in item for key in ("conversation", "dialogue", "dialog"))
            for item in value[:3]
        )
    )


def _decoded_pieces(lines: Iterator[tuple[int, bytes]], encoding: str | None) -> Iterator[str]:
    """Text in pieces of about a megabyte; bytes that cannot be decoded become lone surrogates."""
    codec = "utf-8" if encoding is None or _is_wide(encoding) else encoding
    pending: list[bytes] = []
    size = 0
    for _, line in lines:
        pending.append(line)
        size += len(line)
        if size >= CHUNK:
            yield b"".join(pending).decode(codec, "surrogateescape")
            pending, size = [], 0
    if pending:
        yield b"".join(pending).decode(codec, "surrogateescape")


def _value_rows(pieces: Iterator[str]) -> Iterator[RawRow]:
    """Entries of an array, or objects one after the other, with one entry in memory at a time.

    A break in the text makes everything from there on one broken row.
    """
    buffer = _Buffer(pieces)
    number = 0
    array = buffer.peek() == "["
    if array:
        buffer.skip()
    while True:
        sign = buffer.peek()
        if array and sign in (",", "]"):
            buffer.skip()
            if sign == "]":
                rest = buffer.rest()
                if rest.strip():
                    yield RawRow(number + 1, rest, "broken_json", "text after the end of the array")
                return
            continue
        if sign == "":
            if array:
                yield RawRow(
                    number + 1, "", "broken_json", "the array is not closed: the file is cut"
                )
            return
        number += 1
        text = buffer.value()
        if text is None:
            rest = buffer.rest()
            yield RawRow(
                number, _shown(rest), "broken_json", "not JSON from here to the file's end"
            )
            return
        if _has_surrogate(text):
            yield RawRow(number, _shown(text), "bad_encoding", "bytes that cannot be decoded")
        else:
            yield _parsed(number, text)


class _Buffer:
    """Text that is read as needed: the next sign, or the next whole JSON value."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._text = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def _more(self, least: int = 1) -> bool:
        """Read on by at least `least` characters, so that a long value costs a logarithm of attempts."""
        got: list[str] = []
        size = 0
        for piece in self._pieces:
            got.append(piece)
            size += len(piece)
            if size >= least:
                break
        self._text = self._text[self._at :] + "".join(got)
        self._at = 0
        return size > 0

    def peek(self) -> str:
        """The next sign that is not white space; empty at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def skip(self) -> None:
        """Step over one sign."""
        self._at += 1

    def value(self) -> str | None:
        """The text of the next JSON value; None where there is none up to the file's end."""
        while True:
            try:
                _, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError):
                end = -1
            # A number at the very end of the buffer may go on in the next piece.
            if 0 <= end < len(self._text):
                text = self._text[self._at : end]
                self._at = end
                return text
            if not self._more(least=max(CHUNK, len(self._text) - self._at)):
                text = self._text[self._at :]
                if end < 0:
                    return None
                self._at = len(self._text)
                return text

    def rest(self) -> str:
        """Everything that is left."""
        text = self._text[self._at :] + "".join(self._pieces)
        self._text, self._at = "", 0
        return text


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _shown(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


# ---- CSV ----------------------------------------------------------------------------------------


def _csv_rows(stream: IO[bytes], delimiter: str | None, encoding: str | None) -> Iterator[RawRow]:
    """Records under a header, which tells the delimiter where none is given. All values are text; an empty cell is null."""
    csv.field_size_limit(sys.maxsize)  # the default of 128 KiB would refuse a long turn
    text = io.TextIOWrapper(
        stream, encoding=encoding or "utf-8-sig", errors="surrogateescape", newline=""
    )
    first = next(filter(str.strip, text), "")
    cells_of = csv.reader(chain([first], text), delimiter=delimiter or csv_delimiter(first))
    records = filter(None, cells_of)  # no blank lines
    header = next(records, None)
    if header is None:
        return
    number = 0
    while True:
        number += 1
        try:
            cells = next(records, None)
        except csv.Error as problem:
            yield RawRow(number, "", "shape_mismatch", f"CSV: {problem}")
            continue
        if cells is None:
            return
        shown = [_shown(cell) for cell in cells]
        if any(_has_surrogate(cell) for cell in cells):
            yield RawRow(number, shown, "bad_encoding", "bytes that cannot be decoded")
        elif len(cells) != len(header):
            detail = f"{plural(len(cells), 'cell')} under {plural(len(header), 'column name')}"
            yield RawRow(number, shown, "shape_mismatch", detail)
        else:
            yield RawRow(
                number, {name: cell or None for name, cell in zip(header, cells, strict=True)}
            )
