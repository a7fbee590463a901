"""Bytes to rows: what cannot be read is a row with the reason, the place and the text as it came."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from curate.errors import SourceError
from curate.records.reasons import QuarantineReason
from curate.sources import csv_rows, json_rows, text_lines
from curate.sources.json_rows import is_message_list
from curate.sources.raw_rows import read_rows
from curate.sources.text_lines import CHUNK

Fault = tuple[int, str | None, str, Any]
SHORT_ROW = b'{"n":1}'


def faults(path: Path, encoding: str | None = None) -> list[Fault]:
    return [(row.number, row.fault, row.detail, row.value) for row in read_rows(path, encoding)]


def good(number: int, value: Any) -> Fault:
    return (number, None, "", value)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", b'[{"a": 1}] tail',
         [good(1, {"a": 1}), (2, "broken_json", "text after the end of the array", "tail")]),
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


TALK = b'[{"role": "user", "content": "Hi"}]'
SPREAD = b'{"a":\n'
MANY = b"".join(b'"k%d": 1,\n' % n for n in range(19))


@pytest.mark.parametrize(
    ("name", "content", "values"),
    [
        ("a.jsonl", b"[1, 2]\n", [1, 2]),
        ("a.jsonl", b"[1, 2]\n \n", [1, 2]),
        ("a.jsonl", b"[1, 2]\n3\n", [[1, 2], 3]),
        ("a.json", b"[1, 2]\n3\n", [[1, 2], 3]),
        ("a.json", TALK, [[{"role": "user", "content": "Hi"}]]),
        ("a.json", TALK + b"\n" + TALK, [[{"role": "user", "content": "Hi"}]] * 2),
        ("a.jsonl", b"[1,\n2]\n", ["[1,", "2]"]),
        ("a.ndjson", b"[1,\n2]\n", ["[1,", "2]"]),
        ("a.json", b"[1,\n2]\n", [1, 2]),
        ("a.json", b"[1,\n" + SHORT_ROW + b",2]\n", [1, {"n": 1}, 2]),
        ("a.jsonl", b"[\n1,\n2]\n", [1, 2]),
        ("a.jsonl", b"{\n" + b'"a": 1}\n', [{"a": 1}]),
        ("a.jsonl", SPREAD + b"1}\n", ['{"a":', "1}"]),
        ("a.json", SPREAD + b"1}\n", [{"a": 1}]),
        ("a.json", SPREAD + SHORT_ROW + b"}\n", [{"a": {"n": 1}}]),
        ("a.json", SPREAD + b" " + SHORT_ROW + b" \n}\n", ['{"a":', {"n": 1}, "}"]),
        ("a.json", b"{\n" + MANY + b'"a":\n' + SHORT_ROW + b"\n}", [{f"k{n}": 1 for n in range(19)} | {"a": {"n": 1}}]),
        ("a.json", b"\n\n3\n4\n", [3, 4]),
        ("a.json", b'"x"\n', ["x"]),
    ],
)  # fmt: skip
def test_lines_one_array_or_one_object(
    tmp_path: Path, name: str, content: bytes, values: list[Any]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert [row.value for row in read_rows(path)] == values


def test_bytes_that_are_not_in_the_encoding_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    with pytest.raises(SourceError, match=r"cannot be read[^!]*check source\.encoding"):
        faults(path, "utf-16")
    rows = "".join(f'{{"a": {n}}}\n' for n in range(CHUNK // 16)).encode("utf-16")
    path.write_bytes(rows + b"\x00\xd8")  # half a character
    *_, before, last = faults(path, "utf-16")
    assert (before[1], last[:2]) == (None, (before[0] + 1, "bad_encoding"))
    assert last[2].startswith("the file cannot be read on: ")


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
        assert f"{path} cannot be opened" in refusal(path)
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


BOUND = 2 * CHUNK
SHORT = SHORT_ROW + b"\n"


BOUNDS = [(text_lines, "MAX_ROW"), (json_rows, "MAX_ROW"), (csv_rows, "MAX_ROW"), (json_rows, "MAX_WHOLE")]  # fmt: skip


@pytest.fixture
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in BOUNDS:
        monkeypatch.setattr(module, name, BOUND if name == "MAX_ROW" else 2 * BOUND)


def pieces(*parts: bytes, long: bytes = b"a") -> Iterator[bytes]:
    """Yield the parts with a text that is longer than a row between them, a megabyte at a time."""
    for at, part in enumerate(parts):
        yield part
        if at < len(parts) - 1:
            yield from repeat(long * (CHUNK // len(long)), 16 * BOUND // CHUNK)


@pytest.mark.parametrize(
    ("name", "parts", "long", "expected"),
    [
        ("a.jsonl", [SHORT + b'{"t":"', b'"}\n' + SHORT], b"a", [(1, None), (2, "too_long"), (3, None)]),
        ("a.jsonl", [b'{"t":"', b'"}\n' + SHORT], b"a", [(1, "too_long"), (2, None)]),
        ("a.jsonl", [b'[{"role":"user","content":"', b'"}]'], b"a", [(1, "too_long")]),
        ("a.json", [b'[{"n":1},\n{"t":"', b'"},{"n":2}]'], b"a", [(1, None), (2, "too_long")]),
        ("a.json", [b'[{"n":1},{"t":"', b'"},{"n":2}]'], b"a", [(1, None), (2, "too_long")]),
        ("a.json", [b"[" + SHORT, b'"}]'], b"[", [(1, None), (2, "too_long")]),
        ("a.json", [b"[", b"]"], b"[", [(1, "too_long")]),
        ("a.json", [SHORT + b'{"t":"', b'"}\n' + SHORT], b"a", [(1, None), (2, "too_long"), (3, None)]),
        ("a.json", [b"[1] ", b""], b"x", [(1, None), (2, "broken_json")]),
        ("a.csv", [b'x,y\na,b\nc,"', b'"\ne,f\n'], b"a", [(1, None), (2, "too_long")]),
        ("a.csv", [b'x,y\na,b\nc,"', b'"\ne,f\n'], b"a" * 1023 + b"\n", [(1, None), (2, "too_long")]),
        ("a.csv", [b"x,y\na,b\n", b"\ne,f\n"], b"a", [(1, None), (2, "too_long")]),
        ("a.csv", [b"", b",y\na,b\n"], b"a", [(1, "too_long")]),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("_small_bounds")
def test_a_small_archive_with_an_endless_row_is_not_held(
    tmp_path: Path, name: str, parts: list[bytes], long: bytes, expected: list[tuple[int, str]]
) -> None:
    path = tmp_path / f"{name}.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for piece in pieces(*parts, long=long):
            file.write(piece)
    assert path.stat().st_size < BOUND / 10
    tracemalloc.start()
    try:
        rows = [(row.number, row.fault, row.value) for row in read_rows(path)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [row[:2] for row in rows] == expected
    assert all(len(value) <= BOUND for _, fault, value in rows if fault)
    assert all(len(value) <= 1_000 for _, fault, value in rows if fault == "too_long")
    assert peak < 10 * BOUND  # of 16 that the row has, most of them several times


@pytest.mark.usefixtures("_small_bounds")
def test_what_no_row_needs_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an array's entry without an end no more is read than a row may have."""
    path = tmp_path / "a.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for piece in pieces(b'[{"t":"', b"", b"", b'"}]'):
            file.write(piece)
    pulled = 0
    read1 = gzip.GzipFile.read1

    def counted(self: gzip.GzipFile, size: int = -1) -> bytes:
        nonlocal pulled
        block = read1(self, size)
        pulled += len(block)
        return block

    monkeypatch.setattr(gzip.GzipFile, "read1", counted)
    [row] = read_rows(path)
    assert row.fault == "too_long"
    assert BOUND < pulled < BOUND + 3 * CHUNK


def test_an_array_on_one_line_is_read_entry_by_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    entry = b'{"t":"' + b"a" * CHUNK + b'"}'
    path.write_bytes(b"[" + b",".join([entry] * 40) + b"]")
    tracemalloc.start()
    try:
        assert sum(row.fault is None for row in read_rows(path)) == 40
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * CHUNK


@pytest.mark.parametrize(("size", "fault"), [(2 * BOUND, None), (2 * BOUND + 1, "too_long")])
@pytest.mark.parametrize("sign", ["", "\n"])
@pytest.mark.usefixtures("_small_bounds")
def test_a_file_that_is_one_object_may_be_longer(
    tmp_path: Path, size: int, fault: str | None, sign: str
) -> None:
    path = tmp_path / "a.json"
    start, end = f'{{{sign}"t":"', f'"{sign}}}'
    path.write_text(start + "a" * (size - len(start + end)) + end)
    assert [row.fault for row in read_rows(path)] == [fault]
    path.rename(lines := tmp_path / "a.jsonl")
    if not sign:
        assert [row.fault for row in read_rows(lines)] == ["too_long"]


@pytest.mark.parametrize(("more", "faults"), [(0, [None, None]), (1, ["too_long"])])
@pytest.mark.parametrize(
    ("name", "before", "row", "after"),
    [
        ("a.json", "[", '{"t":""}', ',{"n":1}]'),
        ("a.json", "[\n", '{"t":""}', ',{"n":1}]'),
        ("a.csv", "x,y\n", ",b\n", "e,f\n"),
        ("a.csv", "x,y\n", '"\n",b\n', "e,f\n"),
    ],
)
@pytest.mark.usefixtures("_small_bounds")
def test_a_row_of_exactly_the_bound_is_read_and_one_character_more_is_too_much(
    tmp_path: Path,
    name: str,
    before: str,
    row: str,
    after: str,
    more: int,
    faults: list[str | None],
) -> None:
    path = tmp_path / name
    at = row.index('""') + 1 if '""' in row else row.index(",") - row.count('"') // 2
    filled = row[:at] + "a" * (BOUND + more - len(row)) + row[at:]
    path.write_text(before + filled + after)
    assert [each.fault for each in read_rows(path)] == faults


def test_the_bounds_are_those_that_the_reason_states() -> None:
    meaning = QuarantineReason.TOO_LONG.meaning
    for module, bound in BOUNDS:
        assert f"{getattr(module, bound) >> 20} MiB" in meaning


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
