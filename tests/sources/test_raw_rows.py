"""Bytes to rows: what cannot be read is a row with the reason, the place and the text as it came."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from curate.errors import SourceError
from curate.sources.raw_rows import is_message_list, read_rows

Fault = tuple[int, str | None, str, Any]


def faults(path: Path, encoding: str | None = None) -> list[Fault]:
    return [(row.number, row.fault, row.detail, row.value) for row in read_rows(path, encoding)]


def good(number: int, value: Any) -> Fault:
    return (number, None, "", value)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", b'[{"a": 1}] tail',
         [good(1, {"a": 1}), (2, "broken_json", "text after the end of the array", " tail")]),
        ("a.json", b'[{"a": 1},\n{"b": 2}',
         [good(1, {"a": 1}), good(2, {"b": 2}), (3, "broken_json", "the array is not closed: the file is cut", "")]),
        ("a.json", b'[{"a": 1},\n {"b": oops}\n]',
         [good(1, {"a": 1}), (2, "broken_json", "not JSON from here to the file's end", '{"b": oops}\n]')]),
        ("a.json", b'[\n{"a": "\xff"},\n{"b": 1}]',
         [(1, "bad_encoding", "bytes that cannot be decoded", '{"a": "\\udcff"}'), good(2, {"b": 1})]),
        ("a.json", b'{"a":\n 1}\n{"b":\n 2}', [good(1, {"a": 1}), good(2, {"b": 2})]),
        ("a.json", b" \n [1, [2], \"x\"]\n", [good(1, 1), good(2, [2]), good(3, "x")]),
        ("a.jsonl", b'{"a": 1}\n\n{"b": "\xff"}\n',
         [good(1, {"a": 1}), (3, "bad_encoding", "byte 7: invalid start byte", '{"b": "\\xff"}')]),
        ("a.jsonl", b'\xef\xbb\xbf{"a": 1}\r\n [1]\n', [good(1, {"a": 1}), good(2, [1])]),
        ("a.json", b'{"a": 1\n{"b": 2}\n', [(1, "broken_json", "unexpected end of data: line 1 column 8 (char 7)", '{"a": 1'), good(2, {"b": 2})]),
        ("a.csv", b"x,y\n1,\xff\n\n2,3\n4\n",
         [(1, "bad_encoding", "bytes that cannot be decoded", ["1", "\\udcff"]), good(2, {"x": "2", "y": "3"}),
          (3, "shape_mismatch", "1 cell under 2 column names", ["4"])]),
        ("a.csv", b"\n\nx;y\n1;\n", [good(1, {"x": "1", "y": None})]),
        ("a.tsv", b"x\ty\n1,5\t2\n", [good(1, {"x": "1,5", "y": "2"})]),
        ("a.csv", b"x,y\n", []),
        ("a.jsonl", b" \n\n", []),
    ],
)  # fmt: skip
def test_each_break_is_told_with_its_place(
    tmp_path: Path, name: str, content: bytes, expected: list[Fault]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert faults(path) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NaN", None), ("-Infinity", None), ("1e300", 1e300), ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", "18446744073709551616"), ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", "-9223372036854775809"), ("1" * 5000, "1" * 5000), ("9.5e18", 9.5e18),
    ],
)  # fmt: skip
def test_numbers_that_64_bits_do_not_hold_keep_their_digits(
    tmp_path: Path, text: str, value: object
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"n": {text}}}\n')
    assert faults(path) == [good(1, {"n": value})]


def test_the_largest_numbers_stay_numbers_beside_one_that_does_not(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 18446744073709551615, "b": -9223372036854775808, "c": NaN}\n')
    assert faults(path) == [good(1, {"a": 2**64 - 1, "b": -(2**63), "c": None})]


def test_what_is_nested_too_deep_to_be_kept_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join('{"a": ' + "[" * deep + "]" * deep + "}" for deep in (190, 260)))
    (_, fine, _, _), (number, fault, detail, _) = faults(path)
    assert (fine, number, fault) == (None, 2, "broken_json")
    assert detail


def test_a_lone_surrogate_is_an_encoding_that_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": "\\ud800"}\n')
    [(_, fault, _, value)] = faults(path)
    assert (fault, value) == ("bad_encoding", '{"a": "\\ud800"}')


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252"])
def test_other_encodings_are_read_where_they_are_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"a": "é"}\n{"a": "ü"}\n'.encode(encoding))
    assert faults(path, encoding) == [good(1, {"a": "é"}), good(2, {"a": "ü"})]
    array = tmp_path / "a.json"
    array.write_bytes('[{"a": "é"},\n{"a": "ü"}]'.encode(encoding))
    assert faults(array, encoding) == [good(1, {"a": "é"}), good(2, {"a": "ü"})]
    table = tmp_path / "a.csv"
    table.write_bytes("x,y\né,ü\n".encode(encoding))
    assert faults(table, encoding) == [good(1, {"x": "é", "y": "ü"})]


def refusal(path: Path) -> str:
    with pytest.raises(SourceError) as raised:
        faults(path)
    return str(raised.value)


def test_a_file_that_cannot_be_read_at_all_is_an_error_with_a_fix(tmp_path: Path) -> None:
    missing = tmp_path / "no.jsonl"
    assert f"{missing} cannot be opened" in refusal(missing)
    assert "check the file" in refusal(missing)
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(b"no archive")
    assert f"{packed} cannot be read" in refusal(packed)
    assert "check the file" in refusal(packed)
    for name in ("a.parquet", "a.feather", "a.ipc"):
        path = tmp_path / name
        path.write_bytes(b"no table")
        assert f"{path} cannot be read as {name[2:]}" in refusal(path)
        assert "check the file" in refusal(path)
    for mark in (b"\xff\xfe", b"\xfe\xff"):
        wide = tmp_path / "wide.jsonl"
        wide.write_bytes(mark + b"{\x00")
        assert f"{wide} is UTF-16, UTF-8 was expected" in refusal(wide)
        assert "set source.encoding: utf-16" in refusal(wide)


def test_where_an_archive_breaks_off_is_a_row_behind_the_last(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    whole = gzip.compress(b"".join(b'{"a": "%d"}\n' % (n * 7919) for n in range(2000)))
    path.write_bytes(whole[: len(whole) // 2])
    *rows, last = faults(path)
    assert rows
    assert all(fault is None for _, fault, _, _ in rows[:-1])
    assert last[:2] == (rows[-1][0] + 1, "broken_file")
    assert last[2].startswith("the file cannot be read on: ")


@pytest.mark.parametrize(
    ("value", "is_list"),
    [
        ([{"role": "a", "content": "b"}], True),
        ([{"from": "a", "value": "b"}], True),
        ([{"role": "a", "content": "b", "tool_call_id": "c"}], True),
        ([{"role": "a", "content": "b", "message_id": "c"}], False),
        ([{"role": "a", "content": "b", "dialogue": []}], False),
        ([{"role": "a"}], False),
        ([{"content": "b"}], False),
        ([3], False),
        ([], False),
        ({"role": "a", "content": "b"}, False),
    ],
)
def test_a_list_of_messages_is_one_conversation(value: object, is_list: bool) -> None:
    assert is_message_list(value) is is_list
