"""The worth of a jury by people's labels: how many independent votes its judges are, and whether to keep it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from curate.records.agreement import JuryFigures

ScoreArray = npt.NDArray[np.float64]

_DRAWS = 1000
LEAST_GROUPS = 10
"""Fewer dialogues tell nothing of how errors correlate."""


def jury_worth(
    members: Mapping[str, ScoreArray],
    jury: ScoreArray,
    gold: ScoreArray,
    groups: npt.NDArray[np.int64],
) -> JuryFigures | None:
    """Compare a jury's judges with people's labels of the same items.

    Args:
        members: scores of each judge, shape (items,); at least two judges.
        jury: what the jury made of them.
        gold: people's labels; of several raters their mean.
        groups: number of each item's dialogue; the bootstrap draws dialogues whole.

    Returns:
        None for fewer than 10 dialogues, and where scores, labels or errors of someone do not vary, so that nothing
        correlates.
    """
    if len(np.unique(groups)) < LEAST_GROUPS:
        return None
    scores = np.array(list(members.values()))
    errors = errors_of(scores, gold)
    # A judge that follows the labels exactly has errors by rounding alone, which correlate with nothing.
    varies = [gold, jury, *scores]
    if any(np.ptp(values) == 0 for values in varies) or (errors.std(axis=1) < 1e-9).any():
        return None
    correlation = mean_correlation(errors)
    rows = np.vstack([scores, jury])
    agreements = spearman(rows, gold)
    best = int(agreements[:-1].argmax())
    gains = _resampled_gains(rows[[best, -1]], gold, groups)
    if not gains:
        return None
    low, high = (float(end) for end in np.quantile(gains, (0.025, 0.975)))
    votes = effective_votes(len(scores), correlation)
    name = list(members)[best]
    of_best, of_jury = float(agreements[best]), float(agreements[-1])
    advice = (
        "the jury agrees with people better than its best judge"
        if low > 0
        else f"no gain over {name.rpartition('/')[2]} alone is shown, which costs less"
    )
    return JuryFigures(
        judges=len(scores),
        items=len(gold),
        correlation=correlation,
        votes=votes,
        best=name,
        best_spearman=of_best,
        spearman=of_jury,
        gain=(low, high),
        recommended=low > 0,
        sentence=f"{len(scores)} judges are {'more' if votes is None else f'{votes:.1f}'} votes (their errors correlate "
        f"{correlation:.2f}, on {len(gold)} labelled items); Spearman {of_jury:.2f}, of the best judge {of_best:.2f} "
        f"(difference {low:+.2f} to {high:+.2f}): {advice}.",
    )


def _resampled_gains(
    best_and_jury: ScoreArray, gold: ScoreArray, groups: npt.NDArray[np.int64]
) -> list[float]:
    """Return Spearman of the jury less that of its best judge, over resampled dialogues in which both are defined."""
    rng = np.random.default_rng(0)
    of_group = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    gains = []
    for _ in range(_DRAWS):
        drawn = np.concatenate(
            [of_group[at] for at in rng.integers(len(of_group), size=len(of_group))]
        )
        sample = best_and_jury[:, drawn]
        if min(np.ptp(sample, axis=1).min(), np.ptp(gold[drawn])) > 0:
            of_best, of_jury = spearman(sample, gold[drawn])
            gains.append(of_jury - of_best)
    return gains


def effective_votes(judges: int, correlation: float) -> float | None:
    """Return k / (1 + (k - 1) rho): so many judges with independent errors have a mean as exact as these.

    None where the errors cancel out, so that no number of such judges would.
    """
    shared = 1 + (judges - 1) * correlation
    return judges / shared if shared > 1e-9 else None


def errors_of(scores: ScoreArray, gold: ScoreArray) -> ScoreArray:
    """Return each judge's residuals from the straight line through people's labels, shape (judges, items).

    Not the plain difference: judges that use a narrow part of the scale would all be wrong in the same way by it,
    however independently they err.
    """
    centred = gold - gold.mean()
    slopes = (scores * centred).sum(axis=1) / max(float((centred**2).sum()), 1e-12)
    residuals: ScoreArray = scores - scores.mean(axis=1, keepdims=True) - slopes[:, None] * centred
    return residuals


def mean_correlation(errors: ScoreArray) -> float:
    """Return the mean Pearson correlation over all pairs of rows."""
    pairs = np.triu_indices(len(errors), k=1)
    return float(np.asarray(np.corrcoef(errors))[pairs].mean())


def spearman(rows: ScoreArray, gold: ScoreArray) -> ScoreArray:
    """Return Spearman's correlation of each row with the labels."""
    from scipy.stats import rankdata

    ranks = rankdata(np.vstack([rows, gold]), axis=1)
    correlations: ScoreArray = np.asarray(np.corrcoef(ranks))[-1, :-1]
    return correlations
