"""Duplicates by meaning: pairs of dialogues whose sentence embeddings point the same way.

Every pair is compared, in blocks of a matrix product, so none is missed. The work grows with the square of the
number of dialogues; the embeddings (4 bytes a dimension) are kept in a temporary file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from curate.errors import missing_extra
from curate.selection.config import EmbeddingConfig
from curate.selection.dedup import Earlier, Read, batches, view_text

F32 = npt.NDArray[np.float32]
Embed = Callable[[Sequence[str]], F32]
"""Turns texts into embeddings: one row a text, of any length; a zero row is similar to nothing."""

_BLOCK = 2048


def open_embedder(config: EmbeddingConfig) -> Embed:
    """Load the sentence-transformers model of the config and return its `encode` as an `Embed`.

    Raises:
        UsageError: the package is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError:
        raise missing_extra("sentence-transformers", "scorers") from None
    model = SentenceTransformer(config.model, trust_remote_code=False)

    def embed(texts: Sequence[str]) -> F32:
        vectors: Any = model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return cast("F32", vectors)

    return embed


def similar_pairs(
    read: Read, order: Sequence[int], config: EmbeddingConfig, embed: Embed, folder: Path | None
) -> Earlier:
    """Find the pairs of rows with a cosine similarity of at least the threshold.

    Args:
        order: the rows to compare, the most preferred first.

    Returns:
        For each row, the rows before it in `order` that are too similar, each with the cosine (at most 1).
    """
    if not order:
        return {}
    rank = {row: place for place, row in enumerate(order)}
    chosen = (dialogue for row, dialogue in enumerate(read()) if row in rank)
    similar: dict[int, list[tuple[int, float]]] = defaultdict(list)
    with TemporaryFile(dir=folder) as file:
        for batch in batches(chosen):
            vectors = _normalised(embed([view_text(dialogue, config.of) for dialogue in batch]))
            file.write(vectors.tobytes())
        file.flush()
        matrix = np.memmap(file, np.float32, mode="r").reshape(len(order), -1)
        places = np.argsort([rank[row] for row in sorted(rank)])
        for start in range(0, len(order), _BLOCK):
            mine = matrix[places[start : start + _BLOCK]]
            for other in range(0, start + len(mine), _BLOCK):
                cosines = mine @ matrix[places[other : other + _BLOCK]].T
                for i, j in np.argwhere(cosines >= config.threshold).tolist():
                    if other + j < start + i:
                        near = order[other + j], min(float(cosines[i, j]), 1.0)
                        similar[order[start + i]].append(near)
    return similar


def _normalised(vectors: F32) -> F32:
    """Scale vectors to length 1; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(lengths == 0, 1, lengths), dtype=np.float32)
