"""A finished row file as Parquet, in the same order, with a schema `datasets` understands.

Messages that all have the same keys with plain values are structs. Where any has more, they are of the type
`arrow.json`: as structs, every message would be given the keys of every other, filled with null.

Lines become columns a block at a time. Arrow's own reader makes structs of them, so that no row of a plain file is
ever a Python object; the type of JSON it does not know, and rows that hold some are parsed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from curate.export.row_files import PLAIN, RowFile, Shard

_BLOCK = 1 << 23  # bytes of lines that are held at once, and become a row group


def write_parquet(rows: RowFile, shards: Sequence[Shard], paths: Sequence[Path]) -> None:
    """Write the rows of a finished file as Parquet.

    Args:
        rows: the file.
        shards: as `files.cut` gave them.
        paths: of each shard its Parquet file.
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
    """The next bytes of a file in blocks of whole lines; a line that is larger makes a block of its own."""
    while size:
        block = lines.read(min(size, _BLOCK))
        if not block.endswith(b"\n"):
            block += lines.readline()
        size -= len(block)
        yield block


def _read(block: bytes, schema: Any) -> Any:
    """Lines as a table of plain values."""
    import pyarrow as pa
    from pyarrow import json

    return json.read_json(
        pa.BufferReader(block),
        read_options=json.ReadOptions(use_threads=False, block_size=len(block)),
        parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


def _parsed(block: bytes, schema: Any) -> Any:
    """Lines as a table where some messages are JSON text."""
    import pyarrow as pa

    rows = [orjson.loads(line) for line in block.splitlines()]
    arrays = [_array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: Any) -> Any:
    """Values as an array of a type; messages become JSON text where the type is that."""
    import pyarrow as pa

    if kind == pa.json_():
        texts = [orjson.dumps(message).decode() for message in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(texts, pa.string()))
    if kind != pa.list_(pa.json_()):
        return pa.array(values, kind)
    stops = [0]
    for messages in values:
        stops.append(stops[-1] + len(messages))
    flat = _array([message for messages in values for message in messages], pa.json_())
    return pa.ListArray.from_arrays(pa.array(stops, pa.int32()), flat, type=kind)


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
