"""Duplicates, contamination and the split of one run: the parts of selection that need the texts, not only scores.

One reading of the dialogues gives sketches, exact keys, n-grams shared with eval sets, and the keys by which a
split keeps dialogues together. Duplicates are searched later, because only dialogues that meet the conditions
are compared, and `selection.rules` knows those.

Import this module inside functions: numpy and rensa are slow to import.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl

from curate.errors import missing_extra
from curate.records import Collision
from curate.selection.config import DedupConfig, NearConfig, SelectConfig, View
from curate.selection.contamination import EvalIndex
from curate.selection.dedup import (
    Duplicate,
    Earlier,
    Read,
    Sketches,
    TextBatch,
    batches,
    equal_groups,
    exact_key,
    find_duplicates,
)
from curate.selection.expressions import evaluate
from curate.selection.minhash import Groups, NearTexts
from curate.selection.semantic_duplicates import Embed, similar_pairs
from curate.selection.splits import (
    Split,
    assign_splits,
    conversation_keys,
    group_key,
    prompt_keys,
)
from curate.wording import plural

_VIEWS: tuple[View, ...] = ("dialogue", "first_user")


class Cleaner:
    """Duplicates, contamination and splits of one reading of the dialogues.

    A context manager, because shingles are kept in a temporary file until it is closed.

    Args:
        config: only `dedup`, `decontaminate` and `split` are used.
        read: called several times; returns the dialogues of the score table in its order.
        evals: the indexed eval sets of `config.decontaminate`.
        folder: folder of temporary files; None for the system's default.
        embed: turns texts into embeddings; needed where `dedup.embedding` is set.

    Attributes:
        contaminated: collisions with eval sets by row, one for each set.
    """

    def __init__(
        self,
        config: SelectConfig,
        read: Read,
        evals: Sequence[EvalIndex] = (),
        folder: Path | None = None,
        embed: Embed | None = None,
    ) -> None:
        self._config = config
        self._read = read
        self._folder = folder
        self._embed = embed
        self._stack = ExitStack()
        self._near: dict[View, NearTexts] | None = None
        self.contaminated: dict[int, tuple[Collision, ...]] = {}
        self._rows = 0
        self._exact = bytearray()
        self._tied = array("Q")
        self._ties = array("Q")
        self._sketches = self._new_sketches()
        for batch in batches(read()):
            self._take(TextBatch(batch), evals)

    def __enter__(self) -> Cleaner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def duplicates(
        self, table: pl.DataFrame, rows: Iterable[int]
    ) -> dict[int, tuple[Collision, ...]]:
        """Return the duplicates among rows that would otherwise be kept.

        Args:
            rows: rows to compare, ascending.

        Returns:
            For each row to remove, its collisions with rows that stay.

        Raises:
            UsageError: `dedup.keep` does not fit the table.
        """
        self._check(table)
        config = self._config.dedup
        if config is None:
            return {}
        candidates = list(rows)
        order = _preferred(table, config, candidates)
        views = config.near.of if config.near is not None else ()
        threshold = config.near.threshold if config.near is not None else 1.0
        texts = self._near_texts(candidates) if views else {}
        duplicates = find_duplicates(
            order,
            equal_groups(self._exact) if config.exact else None,
            {view: texts[view] for view in views},
            threshold,
            self._similar(config, order),
        )
        ids = table["id"]
        return {
            row: tuple(_collision(duplicate, ids) for duplicate in row_duplicates)
            for row, row_duplicates in duplicates.items()
        }

    def splits(self, table: pl.DataFrame, selected: Sequence[bool]) -> list[Split] | None:
        """Return the split of every row (see `splits.assign_splits`); None where the recipe has no split."""
        self._check(table)
        config = self._config.split
        if config is None:
            return None
        groups = Groups(self._rows)
        groups.unite_equal(self._tied, self._ties)
        near = self._config.split_near
        if near is not None:
            groups.unite_equal(np.arange(self._rows), equal_groups(self._exact))
            for texts in self._near_texts(range(self._rows)).values():
                texts.join(groups, near.threshold)
        names = table.select(pl.concat_str("content_hash", "id", separator=" ")).to_series()
        return assign_splits(groups, names.to_list(), selected, config.validation, config.seed)

    def _new_sketches(self) -> Sketches | None:
        """Return sketches that serve both `dedup` and `split`; None where neither compares near-duplicates."""
        near = self._config.dedup.near if self._config.dedup is not None else None
        views: list[View] = list(near.of) if near is not None else []
        thresholds = [near.threshold] if near is not None else []
        if self._config.split_near is not None:
            views += _VIEWS
            thresholds.append(self._config.split_near.threshold)
        if not views:
            return None
        return Sketches(near or NearConfig(), views, min(thresholds))

    def _take(self, texts: TextBatch, evals: Sequence[EvalIndex]) -> None:
        for index in evals:
            for place, collision in index.collisions(texts).items():
                row = self._rows + place
                self.contaminated[row] = (*self.contaminated.get(row, ()), collision)
        self._exact += b"".join(map(exact_key, texts.dialogues))
        if self._sketches is not None:
            self._sketches.add(texts)
        ties = self._config.split.by if self._config.split is not None else ()
        for row, dialogue in enumerate(texts.dialogues, start=self._rows):
            keys = list(conversation_keys(dialogue)) if "conversation" in ties else []
            if "group" in ties and (key := group_key(dialogue)) is not None:
                keys.append(key)
            if "prompt" in ties:
                keys.extend(prompt_keys(dialogue))
            self._ties.extend(keys)
            self._tied.extend([row] * len(keys))
        self._rows += len(texts.dialogues)

    def _near_texts(self, rows: Iterable[int]) -> dict[View, NearTexts]:
        """Return the near-duplicate candidates among `rows`, or among all rows where the split needs them too.

        They are collected at the first call; later calls return the same ones.
        """
        if self._sketches is None:
            return {}
        if self._near is None:
            every = self._config.split_near is not None
            among = np.array(list(range(self._rows) if every else rows), dtype=np.int64)
            self._near = self._sketches.open(among, self._read, self._folder, self._stack)
        return self._near

    def _similar(self, config: DedupConfig, order: Sequence[int]) -> Earlier | None:
        if config.embedding is None:
            return None
        if self._embed is None:
            raise missing_extra("sentence-transformers", "scorers")
        return similar_pairs(self._read, order, config.embedding, self._embed, self._folder)

    def _check(self, table: pl.DataFrame) -> None:
        if table.height != self._rows:
            raise RuntimeError(
                f"{plural(self._rows, 'dialogue')} were read for {plural(table.height, 'row')} of the table"
            )


def _preferred(table: pl.DataFrame, config: DedupConfig, rows: Sequence[int]) -> list[int]:
    """Return `rows`, the most preferred first: in reading order, or by score with ties broken by content hash and id."""
    if config.ranking is None:
        return list(rows)
    by = evaluate(table, config.ranking, "select.dedup.keep")
    by = by.fill_nan(None) if by.dtype.is_float() else by
    by_score = table.select(
        "content_hash", "id", by.alias("by"), pl.int_range(pl.len()).alias("row")
    )[list(rows)].sort("by", "content_hash", "id", descending=[True, False, False], nulls_last=True)
    return by_score["row"].to_list()


def _collision(duplicate: Duplicate, ids: pl.Series) -> Collision:
    return Collision(
        reason=duplicate.reason,
        other=ids[duplicate.other],
        similarity=min(duplicate.similarity, 1.0),
    )
