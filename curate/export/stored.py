"""Dialogues that lie in a file as JSON, and which of them are exported as they lie.

Most dialogues are texts that take turns. The messages of such a one are, in its line, what its row in a training
file says of them, byte for byte; so its row is a slice of the line, and nothing needs to be read, checked or
written as JSON. Which these are is found out when a dialogue is written, by making its row in the ordinary way and
comparing; where that is in the line goes into the index. All others are parsed when they are exported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.export.config import ExportConfig
from curate.export.rows import sft_row
from curate.export.wire import Refused
from curate.storage.spans import read_spans

STORED: Final[Mapping[str, pl.DataType]] = {
    "messages_start": pl.Int64(),
    "messages_stop": pl.Int64(),
    "role_stop": pl.Int64(),
    "lineage_rows": pl.List(pl.Int64()),
    "lineage_part": pl.String(),
}
"""Columns of the index, in bytes of the file: where the list of messages lies that is a row as it is, null where it is
none; where the role definition after it ends, null where there is none or the messages have a system message of
their own. And what of the lineage no other column holds."""

_MESSAGES, _ROLE = b',"messages":', b',"role_definition":'
_OPTIONS = ExportConfig()
_OPENS_WITH_SYSTEM = b'[{"role":"system"'

_ROW, _ROW_WITH_ROLE, _PARSED = 0, 1, 2
_HEAD, _ROLE_HEAD = b'{"messages":', b'{"messages":[{"role":"system","content":%b},'


def stored_row(dialogue: Dialogue, line: bytes, offset: int) -> dict[str, Any]:
    """The columns of `STORED` of one dialogue.

    Args:
        dialogue: the dialogue.
        line: as it is written: `id` comes first, then `messages`, then `role_definition` where there is one.
        offset: where the line begins in its file, in bytes.
    """
    start, stop, role_stop = _spans(dialogue, line)
    lineage = dialogue.lineage
    return {
        "messages_start": None if start is None else offset + start,
        "messages_stop": None if stop is None else offset + stop,
        "role_stop": None if role_stop is None else offset + role_stop,
        "lineage_rows": None if lineage is None else list(lineage.rows),
        "lineage_part": None if lineage is None else lineage.part,
    }


def _spans(dialogue: Dialogue, line: bytes) -> tuple[int | None, int | None, int | None]:
    """In the line: where messages that are a row begin and end, and the end of a role that may be added."""
    try:
        row, _, _ = sft_row(dialogue, _OPTIONS)
        messages = orjson.dumps(row["messages"])
    except (Refused, TypeError):  # TypeError: what JSON has no word for, in the arguments of a call
        return None, None, None
    # The quotes of an id are escaped, so the first bare ones that fit open the messages. What the row leaves out
    # or changes (thinking, calls, space, messages after the last answer) makes it differ from the line.
    # A message with more keys may stand in line and row alike, but is of another kind to the file.
    is_plain = "tools" not in row and all(len(message) == 2 for message in row["messages"])
    start = line.find(_MESSAGES) + len(_MESSAGES)
    stop = start + len(messages)
    if not is_plain or not line.startswith(messages, start):
        return None, None, None
    role = orjson.dumps(dialogue.role_definition or "")
    role_start = stop + len(_ROLE)
    has_own = not dialogue.role_definition or messages.startswith(_OPENS_WITH_SYSTEM)
    if has_own or not line.startswith(_ROLE + role, stop):
        return start, stop, None
    return start, stop, role_start + len(role)


@dataclass(frozen=True, slots=True)
class Copied:
    """Neighbouring rows that are slices of the file: each is its head, its messages and `}`.

    Attributes:
        at: number of the first among the wanted dialogues.
        heads: what comes before the messages of each, or of all.
        messages: of each the JSON list (but for its first bracket where the head has it). Valid until the next
            is asked for.
        has_role: whether the heads hold the dialogues' role definitions.
    """

    at: int
    heads: bytes | list[bytes]
    messages: list[memoryview]
    has_role: bool


@dataclass(frozen=True, slots=True)
class StoredDialogues:
    """Some of the dialogues in a file.

    Attributes:
        lines: JSON Lines, a dialogue each.
        index: Parquet, a row for each line: `offset` of the line, `id`, `content_hash`, `source`, `file`, and
            the columns of `STORED`.
        wanted: for each of them whether it is wanted.
    """

    lines: Path
    index: Path
    wanted: pl.Series

    def rows(self, *, role_as_system: bool) -> Iterator[Copied | tuple[int, Dialogue]]:
        """What is wanted in its order: rows to copy, or a dialogue's number and the dialogue."""
        places = self._places(role_as_system)
        for first, spans in read_spans(self.lines, places["start"], places["stop"]):
            block = places.slice(first, len(spans))
            sizes = block["size"]
            start = 0
            for kind, members in groupby(block["kind"].to_list()):
                run = spans[start : start + len(list(members))]
                at = first + start
                if kind == _PARSED:
                    for number, line in enumerate(run, at):
                        yield number, Dialogue.model_validate_json(bytes(line))
                elif kind == _ROW:
                    yield Copied(at, _HEAD, run, has_role=False)
                else:
                    said = list(zip(run, sizes.slice(start, len(run)).to_list(), strict=True))
                    heads = [_ROLE_HEAD % span[size + len(_ROLE) :] for span, size in said]
                    messages = [span[1:size] for span, size in said]
                    yield Copied(at, heads, messages, has_role=True)
                start += len(run)

    def _places(self, role_as_system: bool) -> pl.DataFrame:
        """Of each wanted dialogue: the span to read, its kind, and the size of its messages."""
        start, stop = pl.col("messages_start"), pl.col("messages_stop")
        with_role = pl.col("role_stop").is_not_null() & role_as_system
        kind = pl.when(start.is_null()).then(_PARSED).when(with_role).then(_ROW_WITH_ROLE)
        line_stop = pl.col("offset").shift(-1).fill_null(self.lines.stat().st_size)
        span_stop = pl.when(with_role).then(pl.col("role_stop")).otherwise(stop)
        places = (
            pl.scan_parquet(self.index)
            .select("offset", "messages_start", "messages_stop", "role_stop")
            .select(
                kind=kind.otherwise(_ROW),
                start=pl.coalesce(start, "offset"),
                stop=pl.coalesce(span_stop, line_stop),
                size=stop - start,
            )
            .collect()
        )
        return places.filter(self.wanted)
