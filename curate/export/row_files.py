"""Row files that `datasets` reads back as they were meant, in shards where asked for.

`datasets` infers the type of a JSON Lines column from the first 10 MB of the first file. A tool call that comes
later makes the whole file unreadable, and a column whose messages all have the same keys is typed down
to the leaves, where the text "1" can come back as the number 1. So a row that shows a kind of message
for the first time goes to the head of its file; with every kind in sight `datasets` keeps messages as
JSON. The first shard holds the whole head for the same reason. A Parquet file (`export.parquet`) says so in its
schema and needs no such care.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

from curate.export.template_messages import dump
from curate.export.trainer_module import Column

_COPY = 1 << 20  # bytes written at once

Shape = type | tuple[object, ...]
"""The type of a plain value; `("list", item)`; or `("struct", (key, shape), …)`."""

_TEXT = {str}
PLAIN: Shape = ("struct", ("role", str), ("content", str))
"""Messages of role and content, which is what most are."""


class RowFile:
    """One JSON Lines file in the making; a context manager.

    Args:
        path: where the file is made.
        columns: what the columns hold.

    A row that goes to the head of the file is one for which `append` returns True; its row number (from 0) is
    its place among these. The others follow, so theirs is `head_rows` plus their place among the others.

    Attributes:
        shapes: of each column of messages, the one shape they all have; None where they differ or are not plain.
        present: columns that some row has.
    """

    def __init__(self, path: Path, columns: Mapping[str, Column]) -> None:
        self.path = path
        self.columns = columns
        self.shapes: dict[str, Shape | None] = {}
        self.present: set[str] = set()
        self.head_rows = 0
        self._spoken = [name for name, holds in columns.items() if holds in ("messages", "message")]
        self._others = [name for name in columns if name not in self._spoken]
        self._known: dict[str, set[tuple[str, ...]]] = {name: set() for name in self._spoken}
        self._rows = 0
        self._seen: set[tuple[object, ...]] = set()
        # The head and then the others, in one file, until a row of the head comes after one of the others.
        self._whole_path, self._late_path = path.with_suffix(".whole"), path.with_suffix(".late")
        self._whole = self._whole_path.open("wb", buffering=_COPY)
        self._late = self._late_path.open("wb")
        self._head_bytes = 0

    def append(self, row: Mapping[str, Any]) -> bool:
        """Add a row; True where it went to the head of the file.

        Raises:
            Refused: `not_json`; nothing is written then.
        """
        line = dump(row) + b"\n"
        kinds: set[tuple[object, ...]] = {(name, name in row) for name in self._others}
        for name in self._spoken:
            known = self._known[name]
            messages = _messages(row[name])
            values = chain.from_iterable(map(dict.values, messages))
            if {*map(type, values)} == _TEXT and {*map(tuple, messages)} <= known:
                continue  # as most are; of these kind and shape have been told
            for message in messages:
                kinds.add(_kind(name, message))
                self._note(name, _shape(message))
                if {*map(type, message.values())} == _TEXT:
                    known.add(tuple(message))
        self.present |= row.keys()
        is_head = self._is_head(kinds)
        self._file_for(is_head).write(line)
        self._count(is_head, len(line))
        return is_head

    def _note(self, name: str, shape: Shape | None) -> None:
        if self.shapes.setdefault(name, shape) != shape:
            self.shapes[name] = None

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


class Shard(NamedTuple):
    """A part of a row file: its rows, and where they lie."""

    rows: int
    start: int
    stop: int


def cut(file: RowFile, rows: int | None, size: int | None) -> list[Shard]:
    """Where a finished file is cut into shards; a single one where it need not be, or has no rows.

    Args:
        file: with all its rows.
        rows: of a shard at most; None for any number.
        size: of a shard at most, in bytes; a row that is larger makes a shard of its own.

    Returns:
        The shards in order. The head of the file is not divided: the first may be larger for it.
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
    """`sft.jsonl`, or `sft-00000-of-00003.jsonl` and so on."""
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
    """What `datasets` would infer a type from: the keys, and those of each call's arguments."""
    calls = tuple(
        tuple(sorted(call["function"]["arguments"])) for call in message.get("tool_calls", ())
    )
    return (column, tuple(message), calls)


def _shape(value: object) -> Shape | None:
    """None where the value is not plain, as are the arguments of a call."""
    if isinstance(value, (str, bool, float)):
        return type(value)
    if isinstance(value, list):
        items = {_shape(item) for item in value}
        return ("list", items.pop()) if len(items) == 1 and None not in items else None
    if isinstance(value, dict) and "tool_calls" not in value:
        fields = tuple((key, _shape(inner)) for key, inner in value.items())
        return ("struct", *fields) if all(shape is not None for _, shape in fields) else None
    return None
