"""Row files that `datasets` reads back without changes, in shards if requested.

`datasets` infers the type of a JSON Lines column from the first 10 MB of the first file. A tool call that comes
later makes the whole file unreadable, and a column whose messages all have the same keys is typed down
to the leaves, where the text "1" can come back as the number 1. So a row that shows a kind of message
for the first time goes to the head of its file; with every kind in the head `datasets` keeps messages as
JSON. The first shard holds the whole head for the same reason. A Parquet file has a schema and needs no such order:
messages that all have the same keys with plain values are structs; otherwise they have the type `arrow.json`, since as
structs every message would get the keys of every other.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson

from curate.export.template_messages import dump
from curate.export.trainer_module import Columns
from curate.storage.parquet_files import is_json, json_array

_COPY = 1 << 20  # bytes written at once

ValueShape = type | tuple[object, ...]
"""The type of a plain value; `("list", item)`; or `("struct", (key, shape), …)`."""

_TEXT = {str}
PLAIN: ValueShape = ("struct", ("role", str), ("content", str))
"""Messages of role and content, as most are."""


class RowFile:
    """Write one JSON Lines file; a context manager.

    `append` returns True for a row that goes to the head of the file; its row number (from 0) is its place among the rows
    of the head. The number of any other row is `head_rows` plus its place among the others.

    Args:
        path: path of the file.
        columns: type of each column.

    Attributes:
        shapes: shape of all messages in each column of messages; None if they differ or are not plain.
        present: columns that some row has.
    """

    def __init__(self, path: Path, columns: Columns) -> None:
        self.path = path
        self.columns = columns
        self.shapes: dict[str, ValueShape | None] = {}
        self.present: set[str] = set()
        self.head_rows = 0
        self._message_columns = [
            name for name, holds in columns.items() if holds in ("messages", "message")
        ]
        self._others = [name for name in columns if name not in self._message_columns]
        self._known: dict[str, set[tuple[str, ...]]] = {
            name: set() for name in self._message_columns
        }
        self._rows = 0
        self._seen: set[tuple[object, ...]] = set()
        # The head and then the others, in one file, until a row of the head comes after one of the others.
        self._whole_path, self._late_path = path.with_suffix(".whole"), path.with_suffix(".late")
        self._whole = self._whole_path.open("wb", buffering=_COPY)
        self._late = self._late_path.open("wb")
        self._head_bytes = 0

    def append(self, row: Mapping[str, Any]) -> bool:
        """Add a row; return True if it went to the head of the file.

        Raises:
            Refused: `not_json`; then nothing is written.
        """
        line = dump(row) + b"\n"
        kinds: set[tuple[object, ...]] = {(name, name in row) for name in self._others}
        for name in self._message_columns:
            known = self._known[name]
            messages = _messages(row[name])
            values = chain.from_iterable(map(dict.values, messages))
            if {*map(type, values)} == _TEXT and {*map(tuple, messages)} <= known:
                continue  # as most are: kind and shape are known already
            for message in messages:
                kinds.add(_kind(name, message))
                shape = _shape(message)
                if self.shapes.setdefault(name, shape) != shape:
                    self.shapes[name] = None
                if {*map(type, message.values())} == _TEXT:
                    known.add(tuple(message))
        self.present |= row.keys()
        is_head = not kinds <= self._seen
        self._seen |= kinds
        is_late = is_head and self._rows > self.head_rows
        (self._late if is_late else self._whole).write(line)
        if is_head and not is_late:
            self._head_bytes += len(line)
        self.head_rows += is_head
        self._rows += 1
        return is_head

    def __len__(self) -> int:
        return self._rows

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._whole.close()
        self._late.close()
        if error[1] is None and self._late_path.stat().st_size:
            with (
                self._whole_path.open("rb") as whole,
                self._late_path.open("rb") as late,
                self.path.open("wb") as file,
            ):
                file.write(whole.read(self._head_bytes))
                shutil.copyfileobj(late, file, _COPY)
                shutil.copyfileobj(whole, file, _COPY)
            self._whole_path.unlink()
        elif error[1] is None:
            self._whole_path.replace(self.path)
        self._late_path.unlink()


class Shard(NamedTuple):
    """A part of a row file: its number of rows, and its bytes from `start` to `stop`."""

    rows: int
    start: int
    stop: int


def cut(file: RowFile, rows: int | None, size: int | None) -> list[Shard]:
    """Return the shards of a finished file; a single one if it is small enough or has no rows.

    Args:
        file: the file, with all its rows.
        rows: maximum number of rows in a shard; None for any number.
        size: maximum size of a shard in bytes; a larger row makes a shard of its own.

    Returns:
        The shards in order. The head of the file is not divided, so the first shard may be larger.
    """
    whole = Shard(len(file), 0, file.path.stat().st_size)
    too_many = rows is not None and whole.rows > rows
    too_large = size is not None and whole.stop > size
    if not (too_many or too_large):
        return [whole]
    shards, count, start, stop = [], 0, 0, 0
    with file.path.open("rb") as lines:
        for number, line in enumerate(lines):
            has_all_rows = rows is not None and count >= rows
            has_all_bytes = size is not None and stop + len(line) - start > size
            if count and (has_all_rows or has_all_bytes) and number >= file.head_rows:
                shards.append(Shard(count, start, stop))
                count, start = 0, stop
            count, stop = count + 1, stop + len(line)
    return [*shards, Shard(count, start, stop)]


def shard_names(name: str, suffix: str, count: int) -> list[str]:
    """Return `sft.jsonl`, or `sft-00000-of-00003.jsonl` and so on for several shards."""
    if count == 1:
        return [f"{name}.{suffix}"]
    return [f"{name}-{number:05d}-of-{count:05d}.{suffix}" for number in range(count)]


def copy_shard(source: Path, shard: Shard, target: Path) -> None:
    """Write the bytes of one shard to a file of its own."""
    with source.open("rb") as lines, target.open("wb") as file:
        lines.seek(shard.start)
        left = shard.stop - shard.start
        while left:
            block = lines.read(min(left, _COPY))
            file.write(block)
            left -= len(block)


def _messages(value: Any) -> Sequence[dict[str, Any]]:
    return value if isinstance(value, list) else [value]


def _kind(column: str, message: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the keys that `datasets` would infer a type from: the message's, and those of each call's arguments."""
    calls = tuple(
        tuple(sorted(call["function"]["arguments"])) for call in message.get("tool_calls", ())
    )
    return (column, tuple(message), calls)


def _shape(value: object) -> ValueShape | None:
    """Return the shape of a value; None if it is not plain, like the arguments of a call."""
    if isinstance(value, (str, bool, float)):
        return type(value)
    if isinstance(value, list):
        items = {_shape(item) for item in value}
        return ("list", items.pop()) if len(items) == 1 and None not in items else None
    if isinstance(value, dict) and "tool_calls" not in value:
        fields = tuple((key, _shape(inner)) for key, inner in value.items())
        return ("struct", *fields) if all(shape is not None for _, shape in fields) else None
    return None


_BLOCK = 1 << 23  # bytes of lines in memory, which become a row group


def write_parquet(rows: RowFile, shards: Sequence[Shard], paths: Sequence[Path]) -> None:
    """Write the rows of a finished file as Parquet.

    Args:
        rows: the file.
        shards: its shards, from `cut`.
        paths: path of each shard's Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [
        name for name, holds in rows.columns.items() if holds != "optional" or name in rows.present
    ]
    schema = pa.schema([(name, _arrow_type(rows, name)) for name in columns])
    has_json = any(shape is None for shape in rows.shapes.values())
    table = _parsed if has_json else _read
    with rows.path.open("rb") as lines:
        for shard, path in zip(shards, paths, strict=True):
            with pq.ParquetWriter(path, schema, compression="zstd") as writer:
                for block in _blocks(lines, shard.stop - shard.start):
                    writer.write_table(table(block, schema))


def _blocks(lines: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the next bytes of a file in blocks of whole lines; a larger line makes a block of its own."""
    while size:
        block = lines.read(min(size, _BLOCK))
        if not block.endswith(b"\n"):
            block += lines.readline()
        size -= len(block)
        yield block


def _read(block: bytes, schema: Any) -> Any:
    """Return lines as a table of plain values."""
    import pyarrow as pa
    from pyarrow import json

    return json.read_json(
        pa.BufferReader(block),
        read_options=json.ReadOptions(use_threads=False, block_size=len(block)),
        parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


def _parsed(block: bytes, schema: Any) -> Any:
    """Return lines as a table in which some messages are JSON text."""
    import pyarrow as pa

    rows = [orjson.loads(line) for line in block.splitlines()]
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        to_array = json_array if is_json(field.type) else pa.array
        arrays.append(to_array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _arrow_type(rows: RowFile, name: str) -> Any:
    import pyarrow as pa

    holds = rows.columns[name]
    if holds == "real":
        return pa.float64()
    if holds == "truth":
        return pa.bool_()
    if holds not in ("messages", "message"):
        return pa.string()
    shape = rows.shapes.get(name, PLAIN)
    item = pa.json_() if shape is None else _arrow_shape(shape)
    return pa.list_(item) if holds == "messages" else item


def _arrow_shape(shape: Any) -> Any:
    import pyarrow as pa

    if isinstance(shape, tuple):
        if shape[0] == "list":
            return pa.list_(_arrow_shape(shape[1]))
        return pa.struct([(key, _arrow_shape(inner)) for key, inner in shape[1:]])
    return {str: pa.string(), bool: pa.bool_(), float: pa.float64()}[shape]
