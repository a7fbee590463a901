"""Lines of bytes with their numbers, cut at a bound."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from curate.errors import SourceError
from curate.sources.text_lines import CutLine, Lines, block_codec, read_blocks


def lines_of(*blocks: bytes, bound: int = 5, number: int = 1) -> list[tuple[int, bytes, bool]]:
    lines = Lines(iter(blocks), number)
    lines.bound = bound
    return [(at, bytes(line), isinstance(line, CutLine)) for at, line in lines]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([b"a\nb\n"], [(1, b"a\n", False), (2, b"b\n", False)]),
        ([b"a\n", b"b"], [(1, b"a\n", False), (2, b"b", False)]),
        ([b"a", b"b", b"c\nd"], [(1, b"abc\n", False), (2, b"d", False)]),
        ([b"a", b"\n"], [(1, b"a\n", False)]),
        ([b"a", b"\n \n\nb"], [(1, b"a\n", False), (2, b" \n\n", False), (4, b"b", False)]),
        ([b"\n\r\n\nb\n"], [(1, b"\n\r\n\n", False), (4, b"b\n", False)]),
        ([b"\n", b"\n", b"b"], [(1, b"\n", False), (2, b"\n", False), (3, b"b", False)]),
        ([b"  ", b"\nb"], [(1, b"  ", False), (1, b"\n", False), (2, b"b", False)]),
        ([b"ab", b"cde"], [(1, b"abcde", False)]),
        ([b"ab", b"cdef"], [(1, b"abcdef", True)]),
        ([b"ab", b"cdefgh", b"ij\nb\n"], [(1, b"abcdef", True), (2, b"b\n", False)]),
        ([b"abc", b"d\ne"], [(1, b"abcd\n", False), (2, b"e", False)]),
        ([b"abc", b"de\ne"], [(1, b"abcde\n", True), (2, b"e", False)]),
        ([], []),
    ],
)
def test_lines_and_their_numbers(
    blocks: list[bytes], expected: list[tuple[int, bytes, bool]]
) -> None:
    assert lines_of(*blocks) == expected
    later = [(at + 6, line, is_cut) for at, line, is_cut in expected]
    assert lines_of(*blocks, number=7) == later


def test_what_comes_after_the_lines_read_so_far() -> None:
    lines = Lines(iter([b"a\nb\nc", b"d\n", b"e"]))
    assert next(iter(lines)) == (1, b"a\n")
    assert b"".join(lines.unread()) == b"b\ncd\ne"


def blocks_of(content: bytes, encoding: str | None = None) -> bytes:
    return b"".join(read_blocks(io.BytesIO(content), encoding, Path("a.jsonl")))


def test_blocks_are_without_a_mark_and_of_wide_encodings_in_utf_8() -> None:
    assert blocks_of(b"\xef\xbb\xbfa") == b"a"
    assert blocks_of(b"\xef\xbb\xbfa", "latin-1") == b"\xef\xbb\xbfa"
    assert blocks_of("\u00e9".encode("utf-16"), "utf-16") == "\u00e9".encode()
    assert blocks_of(b"\xff\xfe", "latin-1") == b"\xff\xfe"
    assert blocks_of(b"") == b""
    with pytest.raises(SourceError, match=r"a\.jsonl is UTF-16"):
        blocks_of(b"\xfe\xff\x00")


def test_the_encoding_of_blocks() -> None:
    assert block_codec(None) == block_codec("utf-16") == block_codec("utf-32") == "utf-8"
    assert block_codec("latin-1") == "latin-1"
