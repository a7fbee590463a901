"""Row files that `datasets` reads back as they were meant, and a folder replaced as a whole.

`datasets` infers the type of a JSON Lines column from the first 10 MB of the file. A tool call that comes
later makes the whole file unreadable, and a column whose messages all have the same keys is typed down
to the leaves, where the text "1" can come back as the number 1. So a row that shows a kind of message
for the first time goes to the head of its file; with every kind in sight `datasets` keeps messages as
JSON. The Parquet file says so in its schema and needs no such care.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import orjson

from curate.errors import CurateError
from curate.export.wire import dump
from curate.spans import write_framed

_BATCH = 2_000  # rows held at once while a Parquet file is made
_COPY = 1 << 20  # bytes copied at once
_PARTIAL = ".partial"


class RowFile:
    """One JSON Lines file in the making; a context manager.

    Args:
        path: where the file is made.
        columns: the columns that hold lists of messages.

    A row that goes to the head of the file is one for which `append` returns True; its row number (from 0) is
    its place among these. The others follow, so theirs is `head_rows` plus their place among the others.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        self.has_tools = False
        self.has_extra_keys = False
        self.head_rows = 0
        self._rows = 0
        self._seen: set[tuple[object, ...]] = set()
        # The head and then the others, in one file, until a row of the head comes after one of the others.
        self._whole_path, self._late_path = path.with_suffix(".whole"), path.with_suffix(".late")
        self._whole, self._late = self._whole_path.open("wb"), self._late_path.open("wb")
        self._head_bytes = 0

    def append(self, row: Mapping[str, Any]) -> bool:
        """Add a row; True where it went to the head of the file.

        Raises:
            Refused: `not_json`; nothing is written then.
        """
        line = dump(row) + b"\n"
        kinds = {_kind(column, message) for column in self.columns for message in row[column]} | {
            ("tools", "tools" in row)
        }
        self.has_tools |= "tools" in row
        self.has_extra_keys |= any(
            message.keys() != {"role", "content"}
            for column in self.columns
            for message in row[column]
        )
        is_head = self._is_head(kinds)
        self._file_for(is_head).write(line)
        self._count(is_head, len(line))
        return is_head

    def extend(self, heads: bytes | Sequence[bytes], messages: Sequence[memoryview]) -> bool:
        """Add rows whose messages are role and content, as JSON: each a head, its messages and `}`.

        Args:
            heads: of each row, or of all.
            messages: of each row; at least one.

        Returns:
            Whether the first of them went to the head of the file. No other does.
        """
        is_head = self._is_head(
            {*((column, ("role", "content"), ()) for column in self.columns), ("tools", False)}
        )
        if is_head:
            head = heads if isinstance(heads, bytes) else heads[0]
            row = head + bytes(messages[0]) + b"}\n"
            self._file_for(True).write(row)
            self._count(True, len(row))
            heads, messages = heads if isinstance(heads, bytes) else heads[1:], messages[1:]
        write_framed(self._whole, heads, messages, b"}\n")
        self._rows += len(messages)
        return is_head

    def _is_head(self, kinds: set[tuple[object, ...]]) -> bool:
        is_new = not kinds <= self._seen
        self._seen |= kinds
        return is_new

    def _file_for(self, is_head: bool) -> IO[bytes]:
        return self._late if is_head and self._rows > self.head_rows else self._whole

    def _count(self, is_head: bool, size: int) -> None:
        if is_head and self._rows == self.head_rows:
            self._head_bytes += size
        self.head_rows += is_head
        self._rows += 1

    def __len__(self) -> int:
        return self._rows

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._whole.close()
        self._late.close()
        if error is None and self._late_path.stat().st_size:
            with (
                self._whole_path.open("rb") as whole,
                self._late_path.open("rb") as late,
                self.path.open("wb") as file,
            ):
                file.write(whole.read(self._head_bytes))
                shutil.copyfileobj(late, file, _COPY)
                shutil.copyfileobj(whole, file, _COPY)
            self._whole_path.unlink()
        elif error is None:
            self._whole_path.replace(self.path)
        self._late_path.unlink()


def write_parquet(rows: RowFile, path: Path) -> None:
    """The rows of a finished file as Parquet, in the same order, with a schema `datasets` understands.

    Messages that are only role and content are structs. Where any message has more, they are of the
    type `arrow.json`: as structs, every message would be given the keys of every other, filled with null.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    plain = pa.struct([("role", pa.string()), ("content", pa.string())])
    item = pa.json_() if rows.has_extra_keys else plain
    fields = [pa.field(column, pa.list_(item)) for column in rows.columns]
    if rows.has_tools:
        fields.append(pa.field("tools", pa.string()))
    schema = pa.schema(fields)

    def messages(batch: list[dict[str, Any]], column: str) -> Any:
        if not rows.has_extra_keys:
            return pa.array([row[column] for row in batch], pa.list_(plain))
        texts = [orjson.dumps(message).decode() for row in batch for message in row[column]]
        stops = [0]
        for row in batch:
            stops.append(stops[-1] + len(row[column]))
        values = pa.ExtensionArray.from_storage(item, pa.array(texts, pa.string()))
        return pa.ListArray.from_arrays(pa.array(stops, pa.int32()), values, type=pa.list_(item))

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in _batches(rows.path):
            arrays = [messages(batch, column) for column in rows.columns]
            if rows.has_tools:
                arrays.append(pa.array([row.get("tools") for row in batch], pa.string()))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


@contextmanager
def replacing(folder: Path, owned: Sequence[str]) -> Iterator[Path]:
    """A fresh folder to write into; its files then take their places in `folder`, each one whole.

    Args:
        folder: the export folder; made if need be. Only one process may write it.
        owned: the names this export may write. Those it did not write this time are removed, so that
            no file of an earlier export stands beside the new ones.

    Raises:
        CurateError: the folder cannot be written; what was there before stands.
    """
    partial = folder / _PARTIAL
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            made = sorted(path.name for path in partial.iterdir())
            for name in made:
                (partial / name).replace(folder / name)
            for name in set(owned) - set(made):
                (folder / name).unlink(missing_ok=True)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise CurateError(
            f"cannot write the export in {folder}",
            got=error.strerror or str(error),
            fix="free some room or mend the permissions, then run the same command again: it resumes",
        ) from error


def _kind(column: str, message: Mapping[str, Any]) -> tuple[object, ...]:
    """What `datasets` would infer a type from: the keys, and those of each call's arguments."""
    calls = tuple(
        tuple(sorted(call["function"]["arguments"])) for call in message.get("tool_calls", ())
    )
    return (column, tuple(message), calls)


def _batches(path: Path) -> Iterator[list[dict[str, Any]]]:
    with path.open("rb") as lines:
        while batch := [orjson.loads(line) for line in islice(lines, _BATCH)]:
            yield batch
