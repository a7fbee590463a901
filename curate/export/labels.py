"""KTO rows from pairs: both sides of each pair, in an order the trainer can use, no answer labelled twice.

TRL estimates KTO's KL term from mismatched rows: as it prepares the file, each prompt is given the answer of the
row before it in its batch. Two sides of one pair next to each other would not be a mismatch, and all desirable
rows before all others would leave batches of one label. So labels alternate, and the two sides of a pair are
half the file apart (except for the few rows that go to its head). An answer that is chosen in one pair and rejected in
another, as with ranked siblings, has no label and is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from curate.export.template_messages import Refused, dump
from curate.export.trainer_module import TrainerRow


class LabelSpool:
    """Spool of rows of both labels on disk until all are added; a context manager.

    Args:
        path: path of a temporary file, removed at the end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._starts: list[int] = []
        self._labels: dict[bytes, set[bool]] = {}

    def add(self, chosen: TrainerRow, rejected: TrainerRow, provenance: Mapping[str, Any]) -> None:
        """Add both sides of a pair, and the pair's provenance.

        Raises:
            Refused: `not_json`; then neither side is added.
        """
        line = dump([chosen, rejected, provenance])
        for row in (chosen, rejected):
            self._labels.setdefault(_digest(row), set()).add(row["label"])
        self._starts.append(self._file.tell())
        self._file.write(line + b"\n")

    def rows(self) -> Iterator[tuple[TrainerRow, dict[str, Any], Refused | None]]:
        """Yield each row, its provenance, and the refusal if it is not to be written.

        Labels alternate; the two sides of a pair are half of all pairs apart.
        """
        self._file.flush()
        count, seen = len(self._starts), set[bytes]()
        with self._path.open("rb") as file:
            for number in range(count):
                for at, side in ((number, 0), ((number + (count + 1) // 2) % count, 1)):
                    file.seek(self._starts[at])
                    *sides, provenance = orjson.loads(file.readline())
                    provenance["side"] = ("chosen", "rejected")[side]
                    digest, refusal = _digest(sides[side]), None
                    if len(self._labels[digest]) > 1:
                        detail = "another pair labels the same answer to the same prompt otherwise"
                        refusal = Refused("label_contradicted", detail)
                    elif digest in seen:
                        refusal = Refused("label_repeated", "another pair gives the same row")
                    seen.add(digest)
                    yield sides[side], provenance, refusal

    def __enter__(self) -> LabelSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink()


def _digest(row: TrainerRow) -> bytes:
    parts = [row["prompt"], row["completion"], row.get("tools")]
    return hashlib.blake2b(orjson.dumps(parts), digest_size=16).digest()
