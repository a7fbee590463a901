"""Duplicates: of dialogues that say the same, one is kept, and each removal names it.

Dialogues are taken in the order in which they are to be preferred. One that equals a kept dialogue, or is
nearer to one than the threshold allows, is removed and says to which and how near; any other is kept. So no
two kept dialogues are duplicates of each other, every removal points at a dialogue that is there, and a
chain of small changes does not pull in what is far away, as clusters would.

Dialogues stream through in batches and are not held: what stays is 16 bytes for exact duplicates and, with
the defaults, 84 bytes a compared text for near ones (see `selection.minhash`).
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from curate.dialogue import Dialogue
from curate.selection.config import DedupConfig, NearConfig, Removal, View
from curate.selection.minhash import Bands, NearTexts, ShingleStore
from curate.selection.shingles import TokenBatch, tokenise, worth

Read = Callable[[], Iterable[Dialogue]]
"""Reads the same dialogues in the same order whenever it is called."""

Earlier = Mapping[int, Sequence[tuple[int, float]]]
"""Of a row: the rows before it in the order of preference that are too similar, each with the similarity."""

BATCH = 256
NEAR_REASONS: dict[View, Removal] = {
    "dialogue": "near_duplicate",
    "first_user": "near_duplicate_prompt",
}


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Why a dialogue is a duplicate. `other` is the row of the one that is kept."""

    reason: Removal
    other: int
    similarity: float


def view_text(dialogue: Dialogue, view: View) -> str:
    """Return the text of a dialogue that is compared.

    `dialogue` is every message but system ones, with the names and arguments of tool calls; a system
    message is often the same for all. `first_user` is the first user message, empty where there is none.
    """
    if view == "first_user":
        return next((m.content for m in dialogue.messages if m.role == "user"), "")
    parts = []
    for message in dialogue.messages:
        if message.role == "system":
            continue
        parts.append(message.content)
        for call in message.tool_calls:
            written = call.arguments
            parts.append(call.name)
            parts.append(written if isinstance(written, str) else orjson.dumps(written).decode())
    return "\n".join(part for part in parts if part)


def exact_key(dialogue: Dialogue) -> bytes:
    """16 bytes, equal where messages (system ones too) and tools are, up to NFC and spaces at the ends."""
    messages = [
        [
            message.role,
            unicodedata.normalize("NFC", message.content.strip()),
            [[call.name, call.arguments] for call in message.tool_calls],
        ]
        for message in dialogue.messages
    ]
    dumped = orjson.dumps([messages, dialogue.tools], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(dumped, digest_size=16).digest()


class ExactKeys:
    """The exact keys of many dialogues, 16 bytes each."""

    def __init__(self) -> None:
        self._keys = bytearray()

    def add(self, dialogues: Iterable[Dialogue]) -> None:
        """Take dialogues in."""
        for dialogue in dialogues:
            self._keys += exact_key(dialogue)

    def groups(self) -> npt.NDArray[np.int64]:
        """A number for every dialogue, the same for those that are the same."""
        keys = np.frombuffer(bytes(self._keys), dtype=np.dtype("V16"))
        return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def batches(dialogues: Iterable[Dialogue]) -> Iterator[list[Dialogue]]:
    """Dialogues in lists of `BATCH`, the last one shorter."""
    dialogues = iter(dialogues)
    while batch := list(islice(dialogues, BATCH)):
        yield batch


class TextBatch:
    """A batch of dialogues, each of its views tokenised and hashed once however many ask for it."""

    def __init__(self, dialogues: Sequence[Dialogue]) -> None:
        self.dialogues = dialogues
        self._tokens: dict[View, list[list[str]]] = {}
        self._hashed: dict[View, TokenBatch] = {}

    def tokens(self, view: View) -> list[list[str]]:
        """The tokens of a view of every dialogue."""
        if view not in self._tokens:
            self._tokens[view] = [tokenise(view_text(d, view)) for d in self.dialogues]
        return self._tokens[view]

    def hashed(self, view: View) -> TokenBatch:
        """The same, hashed."""
        if view not in self._hashed:
            self._hashed[view] = TokenBatch(self.tokens(view))
        return self._hashed[view]


class Sketches:
    """What is held of the dialogues read, to tell later which of them are near each other.

    Args:
        threshold: the lowest similarity that will be asked for.
    """

    def __init__(self, config: NearConfig, views: Iterable[View], threshold: float) -> None:
        self._config = config
        self._threshold = threshold
        self._bands = {
            view: Bands(threshold, config.permutations, config.seed)
            for view in dict.fromkeys(views)
        }

    def add(self, texts: TextBatch) -> None:
        """Take the next batch in."""
        for view, bands in self._bands.items():
            runs = texts.hashed(view).runs(self._config.shingle, short=True)
            # "hello" opens many dialogues that have nothing else in common
            least = self._config.min_words if view == "first_user" else 0
            compared = [len(tokens) > 0 and worth(tokens) >= least for tokens in texts.tokens(view)]
            bands.add(runs, compared)

    def open(
        self, among: npt.NDArray[np.int64], read: Read, folder: Path | None, stack: ExitStack
    ) -> dict[View, NearTexts]:
        """Collect the shingles of the candidates `among` some rows (ascending) in a second reading.

        Args:
            among: rows to compare.
            folder: where the shingles' file is made; None for the system's own place.
        """
        found = {view: bands.buckets(among) for view, bands in self._bands.items()}
        stores = {
            view: stack.enter_context(ShingleStore(buckets, folder))
            for view, buckets in found.items()
        }
        wanted = {view: set(buckets.items.tolist()) for view, buckets in found.items()}
        if any(wanted.values()):
            self._collect(wanted, stores, read)
        return {view: NearTexts(found[view], stores[view]) for view in found}

    def _collect(
        self, wanted: Mapping[View, set[int]], stores: Mapping[View, ShingleStore], read: Read
    ) -> None:
        for view, rows in wanted.items():
            chosen = (dialogue for row, dialogue in enumerate(read()) if row in rows)
            for batch in batches(chosen):
                runs = TextBatch(batch).hashed(view).runs(self._config.shingle, short=True)
                for place in range(len(batch)):
                    stores[view].add(runs.of(place))


def find_duplicates(
    order: Iterable[int],
    exact: npt.NDArray[np.int64] | None,
    near: Mapping[View, NearTexts],
    threshold: float,
    embedded: Earlier | None = None,
) -> dict[int, tuple[Duplicate, ...]]:
    """The rows that are removed when rows are preferred in this order, each with what it collides with.

    Args:
        order: rows, the most preferred first.
        exact: by row, as `ExactKeys.groups`; None where exact duplicates may stay.
        near: candidates among the rows, by what of them is compared.
        threshold: Jaccard similarity from which on two are near-duplicates; not below the one the
            candidates were made for.

    Returns:
        By row: an exact duplicate's one collision, else its nearest kept neighbour by each measure.
    """
    keepers = {view: texts.keeper(threshold) for view, texts in near.items()}
    first = None if exact is None else np.full(len(exact), -1, np.int64)
    removed: dict[int, tuple[Duplicate, ...]] = {}
    for row in order:
        if exact is not None and first is not None and (same := int(first[exact[row]])) >= 0:
            removed[row] = (Duplicate("duplicate_exact", same, 1.0),)
            continue
        collisions = []
        for view, keeper in keepers.items():
            if (nearest := keeper.nearest(row)) is not None:
                collisions.append(Duplicate(NEAR_REASONS[view], *nearest))
        similar = [pair for pair in (embedded or {}).get(row, ()) if pair[0] not in removed]
        if similar:
            best = max(similar, key=lambda pair: pair[1])
            collisions.append(Duplicate("embedding_duplicate", *best))
        if collisions:
            removed[row] = tuple(collisions)
            continue
        if exact is not None and first is not None:
            first[exact[row]] = row
        for keeper in keepers.values():
            keeper.add(row)
    return removed


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """Dialogues with duplicates taken out.

    Attributes:
        kept: rows, in the order given.
        removed: by row, what it collided with.
        threshold: Jaccard similarity it was decided by.
    """

    kept: tuple[int, ...]
    removed: dict[int, tuple[Duplicate, ...]]
    threshold: float


class Deduplication:
    """Near and exact duplicates among dialogues at any threshold from the config's upwards.

    What was read is sketched once; `at` decides anew without reading again.

        with Deduplication(lambda: dialogues, DedupConfig()) as found:
            strict, loose = found.at(0.8), found.at(0.95)

    Args:
        read: gives the same dialogues in the same order each time; called two times and once more for
            each further view.
        config: `embedding` and `keep` are not looked at.
    """

    def __init__(self, read: Read, config: DedupConfig) -> None:
        self._config = config
        self._stack = ExitStack()
        near = config.near
        sketches = Sketches(near, near.of, near.threshold) if near is not None else None
        keys = ExactKeys()
        count = 0
        for batch in batches(read()):
            count += len(batch)
            keys.add(batch)
            if sketches is not None:
                sketches.add(TextBatch(batch))
        self._exact = keys.groups() if config.exact else None
        self._order = range(count)
        rows = np.arange(count, dtype=np.int64)
        self._near = sketches.open(rows, read, None, self._stack) if sketches else {}

    def __enter__(self) -> Deduplication:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def at(self, threshold: float | None = None) -> Deduplicated:
        """Who stays at a threshold of Jaccard similarity; the config's by default.

        Raises:
            ValueError: a threshold below the config's, for which no candidates were looked for.
        """
        lowest = self._config.near.threshold if self._config.near is not None else 1.0
        threshold = lowest if threshold is None else threshold
        if threshold < lowest:
            raise ValueError(
                f"candidates were looked for from {lowest} upwards (got: {threshold}); "
                "make a Deduplication with a lower near.threshold"
            )
        removed = find_duplicates(self._order, self._exact, self._near, threshold)
        kept = tuple(row for row in self._order if row not in removed)
        return Deduplicated(kept, removed, threshold)
