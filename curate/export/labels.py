"""KTO rows from pairs: both sides of each, in an order the trainer can use, no answer labelled twice.

TRL estimates KTO's KL term from mismatched rows: as it prepares the file, each prompt is given the answer of the
row before it in its batch. Two sides of one pair beside each other would be no mismatch at all, and all desirable
rows before all others would leave batches of one label. So labels take turns, and the two sides of a pair lie
half the file apart (but for the few rows that go to its head). With siblings ranked against each other an answer
can be chosen in one pair and rejected in another: it has no label, and is refused.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson

from curate.export.template_messages import Refused, dump
from curate.export.trainer_module import Row


class Labelled(NamedTuple):
    """A row, what is known of it, and why it has no place in the file, if so."""

    row: Row
    known: dict[str, Any]
    refusal: Refused | None


class LabelSpool:
    """Rows of both labels, kept on disk until all are there; a context manager.

    Args:
        path: of a temporary file, removed at the end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._starts: list[int] = []
        self._labels: dict[bytes, set[bool]] = {}

    def add(self, chosen: Row, rejected: Row, known: Mapping[str, Any]) -> None:
        """Add both sides of a pair.

        Raises:
            Refused: `not_json`; neither is added then.
        """
        line = dump([chosen, rejected, known])
        for row in (chosen, rejected):
            self._labels.setdefault(_digest(row), set()).add(row["label"])
        self._starts.append(self._file.tell())
        self._file.write(line + b"\n")

    def rows(self) -> Iterator[Labelled]:
        """All rows, labels in turn; the two sides of a pair are half of all pairs apart."""
        self._file.flush()
        count, told = len(self._starts), Counter[bytes]()
        with self._path.open("rb") as file:
            for number in range(count):
                for at, side in ((number, 0), ((number + (count + 1) // 2) % count, 1)):
                    yield self._labelled(self._read(file, at), side, told)

    def _read(self, file: IO[bytes], number: int) -> Any:
        file.seek(self._starts[number])
        return orjson.loads(file.readline())

    def _labelled(self, pair: Any, side: int, told: Counter[bytes]) -> Labelled:
        row, known = pair[side], {**pair[2], "side": ("chosen", "rejected")[side]}
        digest = _digest(row)
        told[digest] += 1
        if len(self._labels[digest]) > 1:
            detail = "another pair labels the same answer to the same prompt otherwise"
            return Labelled(row, known, Refused("label_contradicted", detail))
        if told[digest] > 1:
            detail = "another pair gives the same row"
            return Labelled(row, known, Refused("label_repeated", detail))
        return Labelled(row, known, None)

    def __enter__(self) -> LabelSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink()


def _digest(row: Row) -> bytes:
    said = [row["prompt"], row["completion"], row.get("tools")]
    return hashlib.blake2b(orjson.dumps(said), digest_size=16).digest()
