"""Duplicates: removal of dialogues that equal or resemble a kept one.

Dialogues are compared in order of preference. One that equals a kept dialogue, or is at least as similar to it as the
threshold, is removed, and its removal names the kept dialogue and the similarity; any other is kept. So no two kept
dialogues are duplicates, every removal points at a dialogue that stays, and a chain of small changes does not remove
dialogues that are far apart, as clustering would.

Dialogues are streamed in batches and not kept in memory: 16 bytes a dialogue remain for exact duplicates and, with the
defaults, 84 bytes a compared text for near ones (see `selection.minhash`).
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from curate.dialogue import Dialogue
from curate.selection.config import DedupConfig, NearConfig, Removal, View
from curate.selection.minhash import Bands, KeptTexts, NearTexts
from curate.selection.shingles import TokenBatch, tokenise, worth

Read = Callable[[], Iterable[Dialogue]]
"""Reads the dialogues: the same ones in the same order at every call."""

Earlier = Mapping[int, Sequence[tuple[int, float]]]
"""For each row, the preferred rows that are too similar to it, each with the similarity."""

Item = TypeVar("Item")
BATCH = 256
NEAR_REASONS: dict[View, Removal] = {
    "dialogue": "near_duplicate",
    "first_user": "near_duplicate_prompt",
}


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The reason a dialogue is a duplicate, and the row of the kept one (`other`)."""

    reason: Removal
    other: int
    similarity: float


def view_text(dialogue: Dialogue, view: View) -> str:
    """Return the text of a dialogue that is compared.

    View `dialogue` is all messages with the names and arguments of tool calls, except system messages, which are often
    the same for all dialogues. View `first_user` is the first user message; empty where there is none.
    """
    if view == "first_user":
        return next((m.content for m in dialogue.messages if m.role == "user"), "")
    parts = []
    for message in dialogue.messages:
        if message.role == "system":
            continue
        parts.append(message.content)
        for call in message.tool_calls:
            arguments = call.arguments
            parts.append(call.name)
            parts.append(
                arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
            )
    return "\n".join(part for part in parts if part)


def exact_key(dialogue: Dialogue) -> bytes:
    """Return 16 bytes that are equal for dialogues with the same messages and tools.

    System messages count; Unicode normalisation (NFC) and spaces at the ends of messages do not.
    """
    messages = [
        [
            message.role,
            unicodedata.normalize("NFC", message.content.strip()),
            [[call.name, call.arguments] for call in message.tool_calls],
        ]
        for message in dialogue.messages
    ]
    content = orjson.dumps([messages, dialogue.tools], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(content, digest_size=16).digest()


def equal_groups(keys: bytearray) -> npt.NDArray[np.int64]:
    """Return a group number for every dialogue, shape (dialogues,), from their exact keys; equal ones have equal numbers."""
    rows = np.frombuffer(bytes(keys), dtype=np.dtype("V16"))
    return np.unique(rows, return_inverse=True)[1].astype(np.int64)


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield items in lists of `BATCH`; the last one may be shorter."""
    items = iter(items)
    while batch := list(islice(items, BATCH)):
        yield batch


class TextBatch:
    """A batch of dialogues whose views are tokenised and hashed once each, at first use."""

    def __init__(self, dialogues: Sequence[Dialogue]) -> None:
        self.dialogues = dialogues
        self._tokens: dict[View, list[list[str]]] = {}
        self._hashed: dict[View, TokenBatch] = {}

    def tokens(self, view: View) -> list[list[str]]:
        """Return the tokens of one view of every dialogue."""
        if view not in self._tokens:
            self._tokens[view] = [tokenise(view_text(d, view)) for d in self.dialogues]
        return self._tokens[view]

    def hashed(self, view: View) -> TokenBatch:
        """Return the hashed tokens of one view of every dialogue."""
        if view not in self._hashed:
            self._hashed[view] = TokenBatch(self.tokens(view))
        return self._hashed[view]


class Sketches:
    """MinHash bands of every dialogue's views, from which near-duplicate candidates are found.

    Args:
        threshold: lowest similarity at which candidates will be needed.
    """

    def __init__(self, config: NearConfig, views: Iterable[View], threshold: float) -> None:
        self._config = config
        self._threshold = threshold
        self._bands = {
            view: Bands(threshold, config.permutations, config.seed)
            for view in dict.fromkeys(views)
        }

    def add(self, texts: TextBatch) -> None:
        """Add the next batch."""
        for view, bands in self._bands.items():
            runs = texts.hashed(view).runs(self._config.shingle, short=True)
            # "hello" opens many dialogues that have nothing else in common
            least = self._config.min_words if view == "first_user" else 0
            is_long_enough = [
                len(tokens) > 0 and worth(tokens) >= least for tokens in texts.tokens(view)
            ]
            bands.add(runs, is_long_enough)

    def open(
        self, among: npt.NDArray[np.int64], read: Read, folder: Path | None, stack: ExitStack
    ) -> dict[View, NearTexts]:
        """Read the dialogues again and collect the shingles of near-duplicate candidates.

        Args:
            among: rows to compare, ascending.
            read: returns the dialogues that were added, in the same order.
            folder: folder of the temporary files; None for the system's default.
            stack: closes the files.

        Returns:
            The candidates of each view.
        """
        near = {
            view: stack.enter_context(NearTexts(bands.buckets(among), folder))
            for view, bands in self._bands.items()
        }
        for view, texts in near.items():
            candidates = set(texts.candidates)
            chosen = (dialogue for row, dialogue in enumerate(read()) if row in candidates)
            for batch in batches(chosen) if candidates else ():
                runs = TextBatch(batch).hashed(view).runs(self._config.shingle, short=True)
                for place in range(len(batch)):
                    texts.add(runs.of(place))
        return near


def find_duplicates(
    order: Iterable[int],
    exact: npt.NDArray[np.int64] | None,
    near: Mapping[View, NearTexts],
    threshold: float,
    embedded: Earlier | None = None,
) -> dict[int, tuple[Duplicate, ...]]:
    """Return the rows to remove so that no duplicates remain, each with its collisions.

    Args:
        order: rows, the most preferred first.
        exact: group of each row (see `equal_groups`); None where exact duplicates may stay.
        near: near-duplicate candidates among the rows, by view.
        threshold: Jaccard similarity (0-1) from which on two texts are near-duplicates; not below the threshold that
            the candidates were collected for.
        embedded: pairs of rows that are similar by embedding.

    Returns:
        For each removed row: one collision for an exact duplicate, else the nearest kept row by each measure.
    """
    keepers = {view: KeptTexts(texts, threshold) for view, texts in near.items()}
    first = np.full(0 if exact is None else len(exact), -1, np.int64)
    removed: dict[int, tuple[Duplicate, ...]] = {}
    for row in order:
        if exact is not None and (same := int(first[exact[row]])) >= 0:
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
        if exact is not None:
            first[exact[row]] = row
        for keeper in keepers.values():
            keeper.add(row)
    return removed


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """Dialogues with duplicates taken out.

    Attributes:
        kept: rows that stay, in reading order.
        removed: collisions of each removed row.
        threshold: Jaccard similarity (0-1) from which on texts counted as near-duplicates.
    """

    kept: tuple[int, ...]
    removed: dict[int, tuple[Duplicate, ...]]
    threshold: float


class Deduplication:
    """Near and exact duplicates among dialogues, at the config's threshold or any higher one.

    The dialogues are read when it is made; `at` does not read them again.

        with Deduplication(lambda: dialogues, DedupConfig()) as deduplication:
            strict, loose = deduplication.at(0.8), deduplication.at(0.95)

    Args:
        read: returns the same dialogues in the same order at every call; called twice, and once more for
            each further view.
        config: `embedding` and `keep` are ignored.
    """

    def __init__(self, read: Read, config: DedupConfig) -> None:
        self._config = config
        self._stack = ExitStack()
        near = config.near
        sketches = Sketches(near, near.of, near.threshold) if near is not None else None
        keys = bytearray()
        for batch in batches(read()):
            keys += b"".join(map(exact_key, batch))
            if sketches is not None:
                sketches.add(TextBatch(batch))
        exact = equal_groups(keys)
        self._exact = exact if config.exact else None
        self._order = range(len(exact))
        rows = np.arange(len(exact), dtype=np.int64)
        self._near = sketches.open(rows, read, None, self._stack) if sketches else {}

    def __enter__(self) -> Deduplication:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def at(self, threshold: float | None = None) -> Deduplicated:
        """Return the rows kept and removed at a threshold of Jaccard similarity; the config's by default.

        Raises:
            ValueError: the threshold is below the config's, for which no candidates were collected.
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
