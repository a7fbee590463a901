"""Methods on sentence vectors: cosine and nearest neighbours, Mahalanobis distance, its PCA variant.

Vectors have length 1, so a dot product is a cosine. Distances are fitted on the references of a role;
every reference counts as often as the data holds it.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from curate.adherence.reference.cases import (
    NO_REFERENCE,
    TOO_FEW,
    Case,
    CaseReading,
    ComparisonMethod,
)
from curate.adherence.reference_config import ReferenceConfig
from curate.adherence.sentence_encoder import Embedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[Any]


class Nearest(ComparisonMethod):
    """Mean cosine similarity to the k most similar references, of the turn or of its whole role.

    With k = 1 and the turn's own references this is the paper's equation for kNN, and with one reference
    cosine similarity. In [-1, 1]; fewer than k references are all taken.
    """

    def __init__(self, embedder: Embedder, k: int, pool: str) -> None:
        self._embedder, self._k, self._pool = embedder, k, pool
        self.models = (embedder.encoder,)
        self._texts: dict[str, dict[str, None]] = defaultdict(dict)
        self._digest = hashlib.blake2b(digest_size=8)
        self._pools: dict[str, Vectors] = {}

    def learn(self, cases: Sequence[Case]) -> None:
        """Embed the texts; with pool `role`, remember the role's references."""
        self._embedder.warm(_texts(cases))
        if self._pool == "role":
            for case in cases:
                for reference in case.references:
                    self._digest.update(f"{case.role}\0{reference}\0".encode())
                    self._texts[case.role][reference] = None

    def _score(self, case: Case) -> CaseReading:
        """Return a score in [-1, 1]."""
        pool = self._vectors_of(case)
        if pool is None:
            return NO_REFERENCE
        import torch

        [vector] = self._embedder.vectors([case.candidate])
        similar = torch.from_numpy(pool @ vector)
        return CaseReading(float(torch.topk(similar, min(self._k, len(similar))).values.mean()))

    def fitted_on(self) -> dict[str, int]:
        """Return how many distinct references each role's pool has; empty where turns have their own."""
        return {role: len(texts) for role, texts in self._texts.items()}

    def describe(self) -> dict[str, Any]:
        """Return what the identity records."""
        fit = {"fit": self._digest.hexdigest()} if self._pool == "role" else {}
        return {**self._embedder.encoder.identity, "k": self._k, "pool": self._pool, **fit}

    def _vectors_of(self, case: Case) -> Vectors | None:
        if self._pool == "turn":
            return self._embedder.vectors(case.references) if case.references else None
        if case.role not in self._texts:
            return None
        if case.role not in self._pools:
            self._pools[case.role] = self._embedder.vectors(list(self._texts[case.role]))
        return self._pools[case.role]


class Distance(ComparisonMethod):
    """exp(-alpha * d / scale), d the Mahalanobis distance from the mean of a role's references.

    The covariance is diagonal (population variance) plus `ridge`. With `components`, vectors are first
    centred and projected on the leading principal components of the references (at most their number
    minus one, which is all the directions they span).
    """

    def __init__(
        self, embedder: Embedder, config: ReferenceConfig, components: int | None = None
    ) -> None:
        self._embedder, self._config, self._components = embedder, config, components
        self.models = (embedder.encoder,)
        self.needs_second_pass = config.scale == "median"
        self._sums: dict[str, _Sums] = {}
        self._fitted: dict[str, _Fit] = {}
        self._distances: dict[str, list[float]] = defaultdict(list)
        self._medians: dict[str, float] = {}
        self._digest = hashlib.blake2b(digest_size=8)

    def learn(self, cases: Sequence[Case]) -> None:
        """Embed the texts and add the references to their roles' sums."""
        self._embedder.warm(_texts(cases))
        for case in cases:
            if not case.references:
                continue
            for reference in case.references:
                self._digest.update(f"{case.role}\0{reference}\0".encode())
            rows = self._embedder.vectors(case.references)
            sums = self._sums.setdefault(
                case.role, _Sums(rows.shape[1], full=self._components is not None)
            )
            sums.add(rows)

    def settle(self, cases: Sequence[Case]) -> None:
        """Make the second pass, scale `median`: the distances whose median is taken."""
        for case in cases:
            fit = self._fit(case.role)
            if case.candidate and fit is not None:
                self._digest.update(f"{case.role}\0{case.candidate}\0".encode())
                [vector] = self._embedder.vectors([case.candidate])
                self._distances[case.role].append(fit.distance(vector))

    def _score(self, case: Case) -> CaseReading:
        """Return a score in (0, 1]; a role with fewer than two references has no variance to go by."""
        fit = self._fit(case.role)
        if fit is None:
            return TOO_FEW
        [vector] = self._embedder.vectors([case.candidate])
        return CaseReading(
            math.exp(-self._config.alpha * fit.distance(vector) / self._scale(case.role))
        )

    def fitted_on(self) -> dict[str, int]:
        """Return how many references each role has."""
        return {role: sums.count for role, sums in self._sums.items()}

    def describe(self) -> dict[str, Any]:
        """Return what the identity records."""
        reduction = {} if self._components is None else {"components": self._components}
        config = self._config
        return {
            **self._embedder.encoder.identity,
            "alpha": config.alpha,
            "scale": config.scale,
            "ridge": config.ridge,
            **reduction,
            "fit": self._digest.hexdigest(),
        }

    def _fit(self, role: str) -> _Fit | None:
        if role not in self._sums or self._sums[role].count < 2:
            return None
        if role not in self._fitted:
            self._fitted[role] = self._sums[role].fit(self._config.ridge, self._components)
        return self._fitted[role]

    def _scale(self, role: str) -> float:
        if self._config.scale == "none":
            return 1.0
        if role not in self._medians:
            import statistics

            self._medians[role] = statistics.median(self._distances[role])
        # Every turn equal to the mean of the references: no scale, and none is needed.
        return self._medians[role] or 1.0


class _Sums:
    """Running sums of a role's vectors, from which mean, variance and principal components follow."""

    def __init__(self, size: int, *, full: bool) -> None:
        import numpy as np

        self.count, self.full = 0, full
        self.first = np.zeros(size)
        self.second = np.zeros((size, size) if full else size)

    def add(self, rows: Vectors) -> None:
        self.count += len(rows)
        self.first += rows.sum(axis=0)
        self.second += rows.T @ rows if self.full else (rows * rows).sum(axis=0)

    def fit(self, ridge: float, components: int | None) -> _Fit:
        import numpy as np

        mean = self.first / self.count
        if components is None:
            variance = np.maximum(self.second / self.count - mean * mean, 0)
            return _Fit(mean, variance + ridge)
        values, axes = np.linalg.eigh(self.second / self.count - np.outer(mean, mean))
        leading = min(components, self.count - 1, len(mean))
        return _Fit(mean, np.maximum(values[-leading:], 0) + ridge, axes[:, -leading:])


@dataclass(frozen=True, slots=True)
class _Fit:
    mean: Any
    variance: Any
    axes: Any = field(default=None)

    def distance(self, vector: Vectors) -> float:
        moved = vector - self.mean
        if self.axes is not None:
            moved = moved @ self.axes
        return math.sqrt(float((moved * moved / self.variance).sum()))


def _texts(cases: Sequence[Case]) -> list[str]:
    return [text for case in cases for text in (case.candidate, *case.references) if text]
