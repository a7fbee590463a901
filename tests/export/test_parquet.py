"""Parquet holds the rows of the lines, structs where it can, whichever way it is made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.export.row_files import cut, write_parquet
from tests.export.test_row_files import as_written, called, plain, read, row_file


def test_messages_with_a_mark_each_stay_structs(tmp_path: Path) -> None:
    columns = {"messages": "messages", "chosen": "message", "margin": "real", "label": "truth"}
    row = {
        "messages": [{"role": "user", "content": "a", "train": False}],
        "chosen": {"from": "gpt", "value": "b"},
        "margin": 1.0,
        "label": True,
    }
    file = row_file(tmp_path, [row, row], columns)
    write_parquet(file, cut(file, None, None), [tmp_path / "x.parquet"])
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.to_pylist() == [row, row]
    assert str(table.schema.field("messages").type.value_type) == (
        "struct<role: string, content: string, train: bool>"
    )


def test_parts_of_content_and_weights_stay_structs(tmp_path: Path) -> None:
    message = {
        "role": "user",
        "content": [{"type": "text", "value": "a"}, {"type": "text", "value": "b"}],
        "loss_weight": 0.0,
    }
    file = row_file(tmp_path, [{"messages": [message]}])
    write_parquet(file, cut(file, None, None), [tmp_path / "x.parquet"])
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == [{"messages": [message]}]


def test_every_character_comes_through(tmp_path: Path) -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    rows = [plain(every[:0xD800] + every[0xE000:]), plain(""), plain('{"role": 1}')]
    file = row_file(tmp_path, rows)
    write_parquet(file, cut(file, None, None), [tmp_path / "x.parquet"])
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == rows


def test_numbers_come_through_to_the_last_bit(tmp_path: Path) -> None:
    numbers = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 2.0, 1e22, 1 / 3]
    columns = {"chosen": "messages", "margin": "real", "tools": "optional"}
    rows = [{"chosen": [{"content": "a"}], "margin": number} for number in numbers]
    rows[0]["tools"] = "[1, 2]"
    file = row_file(tmp_path, rows, columns)
    write_parquet(file, cut(file, None, None), [tmp_path / "x.parquet"])
    table = pq.read_table(tmp_path / "x.parquet")
    assert [number.hex() for number in table["margin"].to_pylist()] == [n.hex() for n in numbers]
    assert table["tools"].to_pylist() == ["[1, 2]", *[None] * 6]


@pytest.mark.parametrize("make", [plain, called])
def test_a_block_of_lines_is_held_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    monkeypatch.setattr("curate.export.row_files._BLOCK", 1000)
    file = row_file(tmp_path, [make("a" * (n % 7) * 400) for n in range(40)])
    shards = cut(file, 25, None)
    paths = [tmp_path / f"{number}.parquet" for number in range(len(shards))]
    write_parquet(file, shards, paths)
    groups = [pq.ParquetFile(path).metadata for path in paths]
    assert [group.num_rows for group in groups] == [shard.rows for shard in shards] == [25, 15]
    longest = 2_600
    for path, group in zip(paths, groups, strict=True):
        assert group.num_row_groups > 5
        for number in range(group.num_row_groups):
            held = pq.ParquetFile(path).read_row_group(number).to_pylist()
            assert len(orjson.dumps(held)) < 1000 + longest
    rows = [as_written(row) for path in paths for row in pq.read_table(path).to_pylist()]
    assert rows == read(file.path)


def test_only_messages_that_differ_are_json(tmp_path: Path) -> None:
    columns = {"prompt": "messages", "completion": "messages", "tools": "optional"}
    completion = called("x")["messages"]
    rows = [
        {"prompt": [{"role": "user", "content": "a"}], "completion": completion, "tools": "[]"},
        {"prompt": [{"role": "user", "content": "b"}], "completion": plain("c")["messages"]},
    ]
    file = row_file(tmp_path, rows, columns)
    write_parquet(file, cut(file, None, None), [tmp_path / "x.parquet"])
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.schema.field("completion").type.value_type == pa.json_()
    assert table["prompt"].to_pylist() == [row["prompt"] for row in rows]
    assert [[orjson.loads(said) for said in each] for each in table["completion"].to_pylist()] == [
        row["completion"] for row in rows
    ]
