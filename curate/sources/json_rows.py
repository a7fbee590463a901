"""JSON to rows: lines, one array, one object, or a sequence of objects, whatever the file's name.

The bytes decide which of these a file is. An array is read in pieces, so the entries before a syntax error are used.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import orjson

from curate.sources.input_files import data_suffix
from curate.sources.text_lines import CHUNK, MAX_ROW, CutLine, Lines, block_codec, read_blocks
from curate.sources.unit_result import RawRow, has_surrogate, shown_bytes

_BLANKS = re.compile(r"[ \t\r\n]*+")
# orjson writes at most 254 levels; deeper rows could be read but not written.
DEEP = 200
# The whole numbers that orjson keeps as such.
LEAST_WHOLE, MOST_WHOLE = -(2**63), 2**64 - 1
MAX_WHOLE = 4 * MAX_ROW
"""Bytes of the largest file that is one object, which a mapping may take many rows from."""
_SHOWN = 1_000  # characters of a row that is too long to be kept


def json_rows(stream: IO[bytes], encoding: str | None, path: Path) -> Iterator[RawRow]:
    """Yield the rows of a JSON stream; text that is not a row becomes a row with a fault."""
    blocks = read_blocks(stream, encoding, path)
    blank_lines, opening = _opening(blocks)
    first = opening.partition(b"\n")[0].strip()
    if first[:1] == b"[" and len(first) > CHUNK:
        yield from _value_rows(_decoded(chain([opening], blocks), encoding), MAX_ROW)
        return
    as_lines = data_suffix(path) in (".jsonl", ".ndjson") and len(first) > 1
    largest = MAX_ROW if as_lines else MAX_WHOLE
    lines = Lines(chain([opening], blocks), blank_lines + 1)
    lines.bound = largest
    head = list(islice(lines, 1))
    first = head[0][1].strip() if head else b""
    opens_array = first[:1] == b"["
    opens_object = first[:1] == b"{" and not as_lines
    value = _loaded(first) if opens_array or opens_object else first
    is_cut = value is None and not as_lines
    is_array_of_rows = opens_array and not is_message_list(value)
    del value  # it may be large, and the line is parsed again below
    if is_cut or is_array_of_rows:
        following = _following(lines)
        if is_cut:  # an array or an object over several lines, or lines whose first is broken
            is_long = isinstance(head[0][1], CutLine)
            has_rows = any(_is_row(line) for _, line in following)
            is_one_value = opens_array or not (is_long or has_rows)
        else:
            is_one_value = not any(line.strip() for _, line in following)
        head += following
        if is_one_value:
            text = chain((line for _, line in head), lines.unread())
            yield from _value_rows(_decoded(text, encoding), largest)
            return
    lines.bound = MAX_ROW
    for number, line in chain(head, lines):
        if line.strip():
            yield _line_row(number, line, encoding)


def _opening(blocks: Iterator[bytes]) -> tuple[int, bytes]:
    """Read the first line that is not blank, or a megabyte of it.

    Returns:
        The number of blank lines before it, and its bytes, followed by the rest of the block.
    """
    blank_lines = 0
    opening = b""
    for block in blocks:
        if not opening:
            text = block.lstrip()
            blank_lines += block.count(b"\n", 0, len(block) - len(text))
            block = text
        opening += block
        if len(opening) > CHUNK or b"\n" in block:
            break
    return blank_lines, opening


def _following(lines: Lines) -> list[tuple[int, bytes]]:
    """Read the next 20 lines, or fewer once they exceed `MAX_ROW` bytes together."""
    following: list[tuple[int, bytes]] = []
    size = 0
    for item in lines:
        following.append(item)
        size += len(item[1])
        if len(following) == 20 or size > MAX_ROW:
            break
    return following


def _line_row(number: int, line: bytes, encoding: str | None) -> RawRow:
    if isinstance(line, CutLine):
        start = line[:_SHOWN].decode("utf-8", "backslashreplace").lstrip()
        return RawRow(number, start, "too_long", f"the line has more than {_size(len(line) - 1)}")
    try:
        text = line.decode(block_codec(encoding))
    except UnicodeDecodeError as problem:
        escaped = line.decode("utf-8", "backslashreplace").strip()
        return RawRow(number, escaped, "bad_encoding", f"byte {problem.start}: {problem.reason}")
    return _parsed(number, text.strip())


def _parsed(number: int, text: str) -> RawRow:
    """Return one JSON text as a row. NaN and Infinity, which Python's json writes, become null.

    A top-level whole number that does not fit in 64 bits, such as a long id, becomes text, because as a number it would
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
    """Read JSON that orjson cannot read, or not without loss."""
    return json.loads(text, parse_int=_whole, parse_constant=lambda _: None)


def _whole(digits: str) -> int | str:
    if len(digits) > len(str(MOST_WHOLE)):
        return digits  # Python itself refuses to read some thousand digits
    return value if LEAST_WHOLE <= (value := int(digits)) <= MOST_WHOLE else digits


def _loaded(line: bytes) -> Any:
    """Return the list or object that a line is; None where it is not JSON."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _is_row(line: bytes) -> bool:
    """Return whether a line is a whole object by itself, as in JSON lines."""
    line = line.strip()
    return line[:1] == b"{" and line[-1:] == b"}" and _loaded(line) is not None


def is_message_list(value: Any) -> bool:
    """Return whether a value is a non-empty list of objects with a role and a content under the usual names."""
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


def _decoded(blocks: Iterator[bytes], encoding: str | None) -> Iterator[str]:
    """Yield text in pieces; bytes that cannot be decoded become lone surrogates."""
    decoder = codecs.getincrementaldecoder(block_codec(encoding))("surrogateescape")
    yield from map(decoder.decode, blocks)
    yield decoder.decode(b"", final=True)


def _value_rows(pieces: Iterator[str], largest: int) -> Iterator[RawRow]:
    """Yield the entries of an array, or a sequence of objects, with one entry in memory at a time.

    From a syntax error or an entry that is too long on, the rest of the text is one row with a fault.

    Args:
        largest: most characters of an object outside an array.
    """
    buffer = _Buffer(pieces)
    array = buffer.peek() == "["
    if array:
        buffer.skip()
    bound = MAX_ROW if array else largest
    number = 1
    while sign := buffer.peek():
        if array and sign in (",", "]"):
            buffer.skip()
            if sign == ",":
                continue
            if buffer.peek():
                detail = "text after the end of the array"
                yield RawRow(number, shown_bytes(buffer.rest(MAX_ROW)), "broken_json", detail)
            return
        text = buffer.value(bound)
        if text is None:
            yield _unread(number, buffer, bound)
            return
        if has_surrogate(text):
            yield RawRow(number, shown_bytes(text), "bad_encoding", "bytes that cannot be decoded")
        else:
            yield _parsed(number, text)
        number += 1
    if array:
        yield RawRow(number, "", "broken_json", "the array is not closed: the file is cut")


def _unread(number: int, buffer: _Buffer, bound: int) -> RawRow:
    """Return the row with a fault that stands for the rest of the text."""
    if buffer.held > bound:
        detail = f"the entry has more than {_size(bound)}; the file is not read from here on"
        return RawRow(number, shown_bytes(buffer.rest(_SHOWN)), "too_long", detail)
    text = shown_bytes(buffer.rest(MAX_ROW))
    return RawRow(number, text, "broken_json", "not JSON from here to the file's end")


def _size(count: int) -> str:
    return f"{count >> 20} MiB"


class _Buffer:
    """Text read as needed: the next character, or the next whole JSON value."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._text = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def _more(self, least: int = 1) -> bool:
        """Read at least `least` more characters if there are any; return whether there were.

        `value` doubles the buffer each time, so that a long value takes a logarithmic number of attempts.
        """
        pieces: list[str] = []
        size = 0
        for piece in self._pieces:
            pieces.append(piece)
            size += len(piece)
            if size >= least:
                break
        self._text = self._text[self._at :] + "".join(pieces)
        self._at = 0
        return size > 0

    def peek(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def skip(self) -> None:
        """Step over one character."""
        self._at += 1

    @property
    def held(self) -> int:
        """Return the number of characters read but not consumed."""
        return len(self._text) - self._at

    def value(self, bound: int) -> str | None:
        """Return the text of the next JSON value; None where none ends within `bound` characters or before the file does."""
        while True:
            try:
                _, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError):
                end = -1
            # a number at the very end of the buffer may continue in the next piece
            if 0 <= end < min(len(self._text), self._at + bound + 1):
                text = self._text[self._at : end]
                self._at = end
                return text
            if self.held > bound:
                return None
            if not self._more(least=max(CHUNK, min(self.held, bound - self.held))):
                text = self._text[self._at :]
                if end < 0:
                    return None
                self._at = len(self._text)
                return text

    def rest(self, most: int) -> str:
        """Return the remaining text, up to `most` characters."""
        while self.held < most and self._more(CHUNK):
            pass
        return self._text[self._at : self._at + most]
