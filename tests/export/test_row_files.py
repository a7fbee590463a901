"""Shards hold every row once and in order, and Parquet says what JSON Lines says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.export.row_files import RowFile, Shard, copy_shard, cut, shard_names, write_parquet

MESSAGES = {"messages": "messages", "tools": "optional"}


def plain(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def called(text: str) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": text}}}
    return {
        "messages": [{"role": "assistant", "content": "", "tool_calls": [call]}],
        "tools": "[]",
    }


def row_file(folder: Path, rows: list[dict[str, Any]], columns: Any = MESSAGES) -> RowFile:
    with RowFile(folder / "rows", columns) as file:
        for row in rows:
            file.append(row)
    return file


def read(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@given(
    st.lists(st.tuples(st.booleans(), st.text(max_size=30)), max_size=30),
    st.none() | st.integers(1, 10),
    st.none() | st.integers(1, 400),
)
def test_shards_are_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    given_rows: list[tuple[bool, str]],
    rows: int | None,
    size: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    file = row_file(folder, [(called if calls else plain)(text) for calls, text in given_rows])
    shards = cut(file, rows, size)
    names = shard_names("sft", "jsonl", len(shards))
    for shard, name in zip(shards, names, strict=True):
        copy_shard(file.path, shard, folder / name)
    parts = [read(folder / name) for name in names]
    assert b"".join((folder / name).read_bytes() for name in names) == file.path.read_bytes()
    assert [len(part) for part in parts] == [shard.rows for shard in shards]
    assert len(parts) == 1 or all(parts)
    for number, (part, shard) in enumerate(zip(parts, shards, strict=True)):
        held = file.head_rows if number == 0 else 0  # the head of a file is not divided
        assert rows is None or len(part) <= max(rows, held)
        assert size is None or shard.stop - shard.start <= size or len(part) <= max(1, held)
    names = shard_names("sft", "parquet", len(shards))
    write_parquet(file, shards, [folder / name for name in names])
    for name, part in zip(names, parts, strict=True):
        table = pq.read_table(folder / name)
        assert [as_written(row) for row in table.to_pylist()] == part


def as_written(row: dict[str, Any]) -> dict[str, Any]:
    """A row of Parquet: JSON text where messages are that, columns it does not have left out."""
    messages = [orjson.loads(m) if isinstance(m, str) else m for m in row.pop("messages")]
    return {"messages": messages} | {key: value for key, value in row.items() if value is not None}


def test_names_of_shards_say_how_many_there_are() -> None:
    assert shard_names("sft", "jsonl", 1) == ["sft.jsonl"]
    assert shard_names("dpo", "parquet", 2) == [
        "dpo-00000-of-00002.parquet",
        "dpo-00001-of-00002.parquet",
    ]


def test_the_first_shard_shows_every_kind_of_message(tmp_path: Path) -> None:
    rows = [*(plain(f"{n}") for n in range(5)), called("late"), *(plain(f"{n}") for n in range(4))]
    file = row_file(tmp_path, rows)
    shards = cut(file, 1, None)
    assert (file.head_rows, shards[0].rows) == (2, 2)
    copy_shard(file.path, shards[0], tmp_path / "first")
    assert ["tools" in row for row in read(tmp_path / "first")] == [False, True]


def test_a_file_without_rows_is_one_empty_shard(tmp_path: Path) -> None:
    file = row_file(tmp_path, [])
    assert cut(file, 1, 1) == [Shard(0, 0, 0)]
    write_parquet(file, cut(file, 1, 1), [tmp_path / "empty.parquet"])
    assert pq.read_table(tmp_path / "empty.parquet").column_names == ["messages"]
