"""Tables of counts, the figures of agreement that they give, and resamples of them by dialogue.

The counts of a resample are the dialogues' own tables, each as often as its dialogue was drawn; so a thousand resamples
are one product of matrices, and every figure takes all their tables at once. numpy and scipy are imported where they
are used, so that the command line starts fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from curate.records.agreement import Figure
from curate.statistics import RESAMPLES, SEED

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEAST_DRAWN = 10
"""Dialogues below which no interval is given: a bootstrap of fewer is far too narrow."""
_CELLS = 4_000_000
"""Counts that are held at once: tens of MB."""


def quadratic_kappas(tables: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the quadratic-weighted kappa of each table (people by judge), of shape (tables, levels, levels); NaN undefined."""
    import numpy as np

    levels = np.arange(tables.shape[1])
    weights = (levels[:, None] - levels[None, :]) ** 2
    total = tables.sum(axis=(1, 2))
    rows, columns = tables.sum(axis=2), tables.sum(axis=1)
    chance = np.einsum("tr,tc,rc->t", rows, columns, weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        kappas = 1 - total * np.einsum("trc,rc->t", tables, weights) / chance
    defined: npt.NDArray[np.float64] = np.where(chance > 0, kappas, np.nan)
    return defined


def spearmans(tables: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return Spearman's rank correlation of each table of counts, rows and columns in rising order; ties share a rank."""
    import numpy as np

    rows, columns = tables.sum(axis=2), tables.sum(axis=1)
    left = np.cumsum(rows, axis=1) - rows / 2
    right = np.cumsum(columns, axis=1) - columns / 2
    middle = tables.sum(axis=(1, 2))[:, None] / 2
    left, right = left - middle, right - middle
    covariance = np.einsum("trc,tr,tc->t", tables, left, right)
    spread = (rows * left**2).sum(axis=1) * (columns * right**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 0, covariance / np.sqrt(spread), np.nan)


def kendall_tau_bs(tables: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return Kendall's tau-b of each table of counts (Kendall 1945), rows and columns in rising order."""
    import numpy as np

    # For each cell, how many items lie below in both, and how many below in columns and above in rows.
    lower = np.cumsum(tables, axis=2) - tables
    under = np.cumsum(lower, axis=1) - lower
    over = lower.sum(axis=1, keepdims=True) - under - lower
    score = (tables * (under - over)).sum(axis=(1, 2))
    total = tables.sum(axis=(1, 2))

    def untied(margin: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        pairs: npt.NDArray[np.float64] = (total**2 - (margin**2).sum(axis=1)) / 2
        return pairs

    product = untied(tables.sum(axis=2)) * untied(tables.sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(product > 0, score / np.sqrt(product), np.nan)


def bounds_of(kappas: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the one-sided 95 % bounds, lower and upper, of resampled values; None where none is defined."""
    import numpy as np

    known = kappas[~np.isnan(kappas)]
    if not len(known):
        return None
    low, high = np.quantile(known, (0.05, 0.95))
    return float(low), float(high)


class Draws:
    """Dialogues drawn again, 1,000 times; the first draw is all of them once, and the only one of fewer than `least`."""

    def __init__(self, groups: Sequence[str], least: int = LEAST_DRAWN) -> None:
        import numpy as np

        place: dict[str, int] = {}
        self._group = np.array([place.setdefault(group, len(place)) for group in groups], int)
        self.groups = len(place)
        rng = np.random.default_rng(SEED)
        drawn = np.ones((1, self.groups))
        if self.groups >= least:
            even = np.full(self.groups, 1 / self.groups)
            drawn = np.vstack([drawn, rng.multinomial(self.groups, even, size=RESAMPLES)])
        self._drawn = drawn

    def tables(
        self, people: Sequence[int], judge: Sequence[int], levels: int
    ) -> npt.NDArray[np.float64]:
        """Return how often each level of people, from 1, met each of the judge, of every draw: shape (draws, levels, levels)."""
        import numpy as np

        rows, columns = np.asarray(people, int) - 1, np.asarray(judge, int) - 1
        return np.concatenate([*self._batches(rows, columns, levels, levels)])

    def figures(
        self,
        rows: npt.ArrayLike,
        columns: npt.ArrayLike,
        shape: tuple[int, int],
        *measures: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    ) -> list[Figure]:
        """Return the figures of tables that are too large to hold all at once."""
        import numpy as np

        parts = [
            [measure(batch) for measure in measures]
            for batch in self._batches(rows, columns, *shape)
        ]
        return [self.figure(np.concatenate(values)) for values in zip(*parts, strict=True)]

    def summed(self, by_group: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the tables of the groups, in the order in which groups first come, added up for every draw."""
        import numpy as np

        return np.tensordot(self._drawn, by_group, axes=1)

    def figure(self, values: npt.NDArray[np.float64]) -> Figure:
        """Return the value of the sample, and the middle 95 % of the draws'."""
        import numpy as np

        if not len(values) or np.isnan(values[0]):
            return Figure()
        drawn = values[1:][~np.isnan(values[1:])]
        if not len(drawn):
            return Figure(value=float(values[0]))
        low, high = np.quantile(drawn, (0.025, 0.975))
        return Figure(value=float(values[0]), interval=(float(low), float(high)))

    def _batches(
        self, rows: npt.ArrayLike, columns: npt.ArrayLike, n_rows: int, n_columns: int
    ) -> Iterator[npt.NDArray[np.float64]]:
        import numpy as np
        from scipy.sparse import csr_matrix

        cells = n_rows * n_columns
        flat = np.asarray(rows, int) * n_columns + np.asarray(columns, int)
        of_group = csr_matrix((np.ones(len(flat)), (flat, self._group)), (cells, self.groups))
        step = max(1, _CELLS // max(cells, 1))
        for start in range(0, len(self._drawn), step):
            batch: npt.NDArray[np.float64] = of_group @ self._drawn[start : start + step].T
            yield np.asarray(batch.T).reshape(-1, n_rows, n_columns)
