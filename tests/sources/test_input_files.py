"""Every file kind is read, and no bad file or row is lost without a word."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pyarrow import feather

from curate.errors import SourceError, UsageError
from curate.sources import SourceConfig
from curate.sources.config import DATA_SUFFIXES
from curate.sources.raw_rows import read_rows
from curate.sources.text_lines import CHUNK
from curate.sources.unit_result import RawRow
from tests.growth import lines_run
from tests.sources.conftest import Loaded, load, said

ROW: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "你好"}]
}
EXCHANGE = [("user", "Grüße"), ("assistant", "你好")]
LINES = "".join(json.dumps(ROW, ensure_ascii=False) + "\n" for _ in range(3)).encode()
ARRAY = json.dumps([ROW] * 3, ensure_ascii=False).encode()
PRETTY = json.dumps([ROW] * 3, ensure_ascii=False, indent=2).encode()

WRITTEN = {
    "a.jsonl": LINES,
    "a.ndjson": LINES,
    "lines-named.json": LINES,
    "one-line-array.json": ARRAY,
    "pretty.json": PRETTY,
    "array-named.jsonl": PRETTY,
    "bom.jsonl": b"\xef\xbb\xbf" + LINES,
    "bom.json": b"\xef\xbb\xbf" + PRETTY,
    "crlf.jsonl": LINES.replace(b"\n", b"\r\n\r\n"),
    "no-last-newline.jsonl": LINES.rstrip(),
    "objects-after-each-other.json": b"\n".join(
        json.dumps(ROW, ensure_ascii=False, indent=1).encode() for _ in range(3)
    ),
    "lists.jsonl": b"\n".join([json.dumps(ROW["messages"]).encode()] * 3),
    "a.jsonl.gz": gzip.compress(LINES),
    "a.json.gz": gzip.compress(PRETTY),
    "a.jsonl.zst": zstandard.compress(LINES),
    "two-frames.jsonl.zst": zstandard.compress(LINES[: len(LINES) // 3])
    + zstandard.compress(LINES[len(LINES) // 3 :]),
}


def at(path: Path, **config: Any) -> Loaded:
    return load(SourceConfig(path=str(path), **config))


@pytest.mark.parametrize("name", WRITTEN)
def test_json_in_all_its_forms(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(WRITTEN[name])
    loaded = at(tmp_path / name)
    assert loaded.shape == "messages"
    assert [said(dialogue) for dialogue in loaded.dialogues] == [EXCHANGE] * 3


def test_a_single_object_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(ROW, indent=2))
    assert at(path).tally.rows_in == 1


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather"])
def test_tables_with_nulls_where_fields_are_missing(tmp_path: Path, suffix: str) -> None:
    calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    rows = [
        ROW,
        {
            "messages": [
                *ROW["messages"],
                {"role": "assistant", "content": None, "tool_calls": calls},
            ]
        },
    ]
    path = tmp_path / f"a.{suffix}"
    frame = pl.DataFrame(rows, strict=False, infer_schema_length=None)
    frame.write_parquet(path) if suffix == "parquet" else frame.write_ipc(path)
    loaded = at(path)
    assert said(loaded.dialogues[0]) == EXCHANGE
    assert loaded.dialogues[1].messages[2].tool_calls[0].name == "f"
    assert loaded.dialogues[0].metadata == {}


def test_arrow_streams_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    pl.DataFrame([ROW] * 3).write_ipc_stream(path)
    assert at(path).tally.dialogues == 3


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_map_of_a_table_is_an_object(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    meta = pa.array(
        [[{"of": [("k", 1)]}], None], pa.list_(pa.struct([("of", pa.map_("str", "i8"))]))
    )
    write_table(pa.table({"meta": meta}), path)
    assert [row.value for row in read_rows(path)] == [
        {"meta": [{"of": {"k": 1}}]},
        {"meta": None},
    ]


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table whose texts lie in the file as they are."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, use_dictionary=False, compression="none")
    else:
        feather.write_feather(table, path, compression="uncompressed")


def test_a_damaged_text_of_a_parquet_file_costs_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [{"instruction": f"ask {n:06d}", "output": f"say {n:06d}"} for n in range(3000)]
    write_table(pa.Table.from_pylist(rows), path)
    path.write_bytes(path.read_bytes().replace(b"say 002017", b"say \xff02017"))
    loaded = at(path)
    assert loaded.tally.dialogues == 2999
    [bad] = loaded.quarantined
    assert (bad.row, bad.reason) == (2018, "bad_encoding")
    assert bad.detail.startswith("column output: ")
    assert bad.raw == {"instruction": "ask 002017", "output": None}


@pytest.mark.parametrize("stream", [True, False])
def test_a_damaged_arrow_file_is_refused(tmp_path: Path, stream: bool) -> None:
    """A damaged offset would read other memory, so nothing of a batch is read that is not valid."""
    path = tmp_path / "a.arrow"
    rows = [{"instruction": f"ask {n:03d}", "output": f"say {n:03d}"} for n in range(300)]
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as file:
        new = pa.ipc.new_stream if stream else pa.ipc.new_file
        with new(file, table.schema) as writer:
            writer.write_table(table)
    whole = path.read_bytes()
    for old, new_bytes in (
        (b"say 170", b"say \xff70"),
        (b"\x07\x00\x00\x00\x0e\x00\x00\x00", b"\x07\x00\x00\x7f\x0e\x00\x00\x00"),
    ):
        assert old in whole
        path.write_bytes(whole.replace(old, new_bytes))
        with pytest.raises(SourceError, match=r"a\.arrow cannot be read as arrow"):
            at(path)


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.date64(), pa.timestamp("us"), pa.time64("us")], ids=str
)
def test_a_time_that_is_none_costs_its_row(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "a.parquet"
    far = 2**31 - 1 if kind == pa.date32() else 2**62
    times = pa.array([0, far, 0], kind)
    words = pa.array(["a", "b", "c"])
    write_table(pa.table({"instruction": words, "output": words, "time": times}), path)
    loaded = at(path)
    assert [said(dialogue)[0][1] for dialogue in loaded.dialogues] == ["a", "c"]
    [bad] = loaded.quarantined
    assert (bad.row, bad.reason) == (2, "unreadable")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_table_with_times_of_an_unknown_zone_loses_no_row(tmp_path: Path, suffix: str) -> None:
    """In polars 1.43 a thread of its own failed on such a zone, and the table had no rows."""
    path = tmp_path / f"a.{suffix}"
    times = pa.array([0, 0], pa.timestamp("us", "No/Where"))
    words = pa.array(["a", "b"])
    write_table(pa.table({"instruction": words, "output": words, "time": times}), path)
    with pytest.raises(UsageError, match="none of 2 rows can be parsed: unreadable, column time"):
        at(path)


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_csv_with_line_breaks_and_json_cells(tmp_path: Path, suffix: str, delimiter: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_text(
        delimiter.join(["instruction", "output"])
        + f'\n"a\nb"{delimiter}c\n\nonly one cell\n'
        + f"x{delimiter}y\n"
    )
    loaded = at(path)
    assert said(loaded.dialogues[0]) == [("user", "a\nb"), ("assistant", "c")]
    assert [(row.row, row.reason) for row in loaded.quarantined] == [(2, "shape_mismatch")]
    json_cell = json.dumps(ROW["messages"]).replace('"', '""')
    path.write_text(f'messages\n"{json_cell}"\n')
    assert said(at(path).dialogues[0]) == EXCHANGE


def test_a_semicolon_in_a_cell_parts_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("instruction,output\na;b,c;d\n")
    assert said(at(path).dialogues[0]) == [("user", "a;b"), ("assistant", "c;d")]
    path.write_text('\ufeff\n"instruction";output\r\na,b;"c;""d"""\r\n')
    assert said(at(path).dialogues[0]) == [("user", "a,b"), ("assistant", 'c;"d"')]
    path.write_text('"messages;"\n"a"\n"b"\n')
    with pytest.raises(UsageError, match="have: messages;"):
        at(path)


def test_a_200k_character_turn_loads_from_every_kind(tmp_path: Path) -> None:
    long = "x" * 200_000
    row = {"instruction": long, "output": long}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    (tmp_path / "b.json").write_text(json.dumps([row] * 12, indent=1))
    (tmp_path / "c.csv").write_text(f"instruction,output\n{long},{long}\n")
    loaded = at(tmp_path)
    assert loaded.tally.dialogues == 14
    assert {len(dialogue.messages[0].content) for dialogue in loaded.dialogues} == {200_000}


# ---- bad input ----------------------------------------------------------------------------------


def test_a_broken_line_costs_one_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = LINES.splitlines()[0]
    path.write_bytes(
        b"\n".join(
            [b'{"messages": [', line, b"\xff\xfe bad", line, b'"text"', b"3", b'{"a": "\\ud800"}']
        )
    )
    loaded = at(path)
    assert loaded.tally.dialogues == 2
    assert [(row.row, row.reason) for row in loaded.quarantined] == [
        (1, "broken_json"),
        (3, "bad_encoding"),
        (5, "not_an_object"),
        (6, "not_an_object"),
        (7, "bad_encoding"),
    ]
    assert loaded.quarantined[0].raw == '{"messages": ['


def test_an_array_is_used_up_to_its_break(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(PRETTY[:-40] + b" oops")
    loaded = at(path)
    assert loaded.tally.dialogues == 2
    assert dict(loaded.tally.reasons) == {"broken_json": 1}
    path.write_bytes(PRETTY.rstrip()[:-1])
    loaded = at(path)
    assert (loaded.tally.dialogues, dict(loaded.tally.reasons)) == (3, {"broken_json": 1})


def test_bad_bytes_in_an_array_cost_one_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(PRETTY.replace("Grüße".encode(), "Grüße".encode("latin-1"), 1))
    loaded = at(path)
    assert (loaded.tally.dialogues, dict(loaded.tally.reasons)) == (2, {"bad_encoding": 1})


def test_nan_is_null(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({**ROW, "score": float("nan"), "other": float("inf")}))
    assert at(path).dialogues[0].metadata == {}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize(
    "number", [10**17 + 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 2, 10**30 + 7, 10**300]
)
def test_a_long_id_keeps_its_digits(tmp_path: Path, name: str, number: int) -> None:
    rows = [ROW | {"id": number, "at": 1.5}, ROW | {"id": number + 1, "at": 1e300}]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    text = "\n".join(lines) if name.endswith("l") else f"[{','.join(lines)}]"
    (tmp_path / name).write_text(text, "utf-8")
    found = at(tmp_path / name)
    assert [d.id for d in found.dialogues] == [str(number), str(number + 1)]
    assert [d.content_hash for d in found.dialogues] == [found.dialogues[0].content_hash] * 2


def test_a_long_id_beside_nan_keeps_its_digits(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({**ROW, "id": 10**30 + 7, "score": float("nan")}))
    assert at(path).dialogues[0].id == str(10**30 + 7)


def test_a_truncated_archive_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = b"".join(json.dumps({**ROW, "n": str(n)}).encode() + b"\n" for n in range(4000))
    packed = gzip.compress(lines)
    path.write_bytes(packed[: len(packed) // 2])
    loaded = at(path)
    assert loaded.tally.dialogues > 1000
    assert "broken_file" in loaded.tally.reasons
    assert loaded.tally.quarantined <= 2


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_has_to_be_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.jsonl"
    row = {"instruction": "Grüße", "output": "é"}
    path.write_bytes((json.dumps(row, ensure_ascii=False) + "\n").encode(encoding) * 1)
    assert said(at(path, encoding=encoding).dialogues[0])[0] == ("user", "Grüße")
    with pytest.raises(Exception, match=r"UTF-16|bad_encoding"):
        at(path)


def test_csv_with_bad_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"instruction,output\na,b\n\xe9,c\n")
    loaded = at(path)
    assert (loaded.tally.dialogues, dict(loaded.tally.reasons)) == (1, {"bad_encoding": 1})


@pytest.mark.parametrize("content", [b"", b"\n\n", b"[]", b" [ ] "])
def test_an_empty_file_is_an_error_that_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(SourceError, match="empty"):
        at(tmp_path / "a.json")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    def told(path: Path) -> tuple[str, str | None, str | None, str | None]:
        with pytest.raises(SourceError) as caught:
            at(path)
        error = caught.value
        return error.problem, error.got, error.expected, error.fix

    assert told(tmp_path / "missing.jsonl") == (
        f"there is no file or folder {tmp_path / 'missing.jsonl'}",
        None,
        "a file, a folder, a glob, or a Hub dataset id such as owner/name",
        "fix the path; a path in a recipe is looked up beside the recipe, then in the current folder",
    )
    for pattern in ("*.jsonl", "?.jsonl", "[ab].jsonl"):
        assert told(tmp_path / pattern) == (
            f"no file matches {tmp_path / pattern}",
            None,
            None,
            "fix the pattern in source.path",
        )
    no_data = f"there is no data file under {tmp_path}"
    suffixes = f"files ending in {', '.join(DATA_SUFFIXES)}, text ones also .gz or .zst"
    fix = "point source.path at the data"
    assert told(tmp_path) == (no_data, "no files at all", suffixes, fix)
    files = [tmp_path / f"{n}.md" for n in range(8)]
    for file in files:
        file.write_text("x")
    assert told(tmp_path) == (no_data, ", ".join(map(str, files)), suffixes, fix)
    (tmp_path / "8.md").write_text("x")
    (tmp_path / "9.md").write_text("x")
    assert told(tmp_path)[1] == f"{', '.join(map(str, files))} and 2 more"


def test_files_that_are_not_what_they_say(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.arrow", "a.jsonl.gz", "a.jsonl.zst"):
        path = tmp_path / name
        path.write_bytes(b"nonsense" * 10)
        with pytest.raises(SourceError, match="cannot be read"):
            at(path)


# ---- folders ------------------------------------------------------------------------------------


def test_a_folder_names_what_it_skips(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "sub" / "b.json").write_text(json.dumps({"data": ["Hi", "Hello"]}))
    (tmp_path / "info.json").write_text('{"a": {"file_name": "a.jsonl"}}')
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "none.json").write_text("[]")
    (tmp_path / "LICENSE").write_text("x")
    (tmp_path / ".hidden" / "c.jsonl").write_bytes(LINES)
    loaded = at(tmp_path)
    assert loaded.shape == "mixed"
    assert {Path(file).name: found.shape for file, found in loaded.source.detections.items()} == {
        "a.jsonl": "messages",
        "b.json": "ultrachat",
    }
    skipped = {Path(item.file).name: item.reason for item in loaded.source.skipped_files}
    assert skipped["LICENSE"] == "not a data file"
    assert skipped["empty.jsonl"] == "empty file"
    assert skipped["none.json"] == "holds no rows"
    assert "no known shape" in skipped["info.json"]
    assert {dialogue.id for dialogue in loaded.dialogues} >= {
        f"{tmp_path.name}-a-1",
        f"{tmp_path.name}-sub-b-1",
    }


def test_an_unparsable_file_among_others_is_quarantined_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "b.jsonl").write_text("{broken\n{broken\n")
    loaded = at(tmp_path)
    assert (loaded.tally.rows_in, dict(loaded.tally.reasons)) == (5, {"broken_json": 2})


def test_globs_and_lists_of_paths(tmp_path: Path) -> None:
    for name in ("x/a.jsonl", "x/y/b.jsonl", "z/c.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINES)
    assert len(at(tmp_path / "**" / "*.jsonl").source.files) == 3
    assert len(at(tmp_path / "x" / "*.jsonl").source.files) == 1
    config = SourceConfig(
        path=[str(tmp_path / "z"), str(tmp_path / "x"), str(tmp_path / "z")], name="n"
    )
    loaded = load(config)
    assert loaded.tally.dialogues == 9
    assert loaded.dialogues[0].id == "n-c-1"


def test_reading_twice_gives_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    source = at(path).source
    assert list(source.read()) == list(source.read())


def test_parquet_and_lines_are_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that asks for one unit takes one row more than the sample from the file, not all."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES * 2000)
    taken = 0

    from curate.sources import json_rows as module

    parsed = module._parsed

    def counting(number: int, text: str) -> Any:
        nonlocal taken
        taken += 1
        return parsed(number, text)

    monkeypatch.setattr(module, "_parsed", counting)
    from curate.sources import open_source

    units = open_source(SourceConfig(path=str(path))).read()
    next(units)
    assert taken <= 210


@pytest.mark.parametrize(
    ("name", "parts", "number", "blank"),
    [
        ("a.jsonl.gz", [LINES, LINES], 6, b"\n"),
        ("a.jsonl.gz", [LINES, LINES], 6, b" \r\n"),
        ("a.jsonl.gz", [LINES, LINES], 6, b" "),
        ("a.json.gz", [b"[", PRETTY[1:]], 3, b"\n"),
        ("a.json.gz", [b"[", PRETTY[1:]], 3, b" "),
        ("a.csv.gz", [b"instruction,output\na,b\n", b"a,b\n"], 2, b"\n"),
    ],
)
@pytest.mark.parametrize("place", ["before", "between"])
def test_a_small_archive_of_many_blanks_takes_few_steps(
    tmp_path: Path, name: str, parts: list[bytes], number: int, blank: bytes, place: str
) -> None:
    blanks = blank * 2_000_000
    text = blanks + b"".join(parts) if place == "before" else blanks.join(parts)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text))
    read: list[RawRow] = []
    steps = lines_run(lambda: read.extend(read_rows(path)))
    assert steps < 5_000
    assert [row.fault for row in read] == [None] * number


def test_blank_lines_count_in_the_numbers_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n \n" + b'{"n":0}\n' + b"\n" * 3_000_000 + b'  {"n":1}\n\n{"n":2}')
    numbers = [(row.number, row.value) for row in read_rows(path)]
    assert numbers == [(3, {"n": 0}), (3_000_004, {"n": 1}), (3_000_006, {"n": 2})]


@pytest.mark.parametrize("encoding", [None, "utf-16", "utf-16-le", "latin-1"])
def test_lines_that_end_where_a_block_does(tmp_path: Path, encoding: str | None) -> None:
    path = tmp_path / "a.jsonl"
    for size in range(CHUNK - 12, CHUNK + 3):
        rows = [{"n": 0, "text": "x" * (size - 20)}, {"n": 1}, {"n": 2, "text": "ü"}]
        text = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        path.write_bytes(text.encode(encoding or "utf-8"))
        read = list(read_rows(path, encoding))
        assert [row.value for row in read] == rows
        assert [row.number for row in read] == [1, 3, 5]


def test_a_file_taken_for_flat_trees_like_the_others_is_read_as_flat(tmp_path: Path) -> None:
    tree = [
        {"message_id": "a", "parent_id": None, "role": "prompter", "text": "Hi"},
        {"message_id": "b", "parent_id": "a", "role": "assistant", "text": "Hello"},
        {"message_id": "c", "parent_id": "b", "role": "prompter", "text": "Bye"},
    ]
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]}
    for name, rows in {"all": tree, "most": [*tree, chat, chat]}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    loaded = load(SourceConfig(path=str(tmp_path)))
    assert [detection.flat for detection in loaded.source.detections.values()] == [True, True]
    assert [len(dialogue.messages) for dialogue in loaded.dialogues] == [2, 2]
    assert dict(loaded.tally.reasons) == {"no_assistant": 2, "missing_field": 2}
