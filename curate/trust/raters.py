"""Agreement between people, and whether the judge could stand for one of them.

A judge cannot agree more with people than they do with each other, so every figure of agreement is read beside these.
numpy and scipy are imported where they are used, so that the command line starts fast.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING

from curate.records.agreement import AlternativeRater, AlternativeTest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEAST_ITEMS = 30
"""Items that a person must share with others to be in the alternative annotator test."""
LEAST_RATERS = 3
FALSE_DISCOVERIES = 0.05
EPSILONS = {"experts": 0.2, "skilled": 0.15, "crowd": 0.1}
"""epsilon by kind of rater: how much less often the judge may be the nearer one (Calderon et al. 2025, section 3)."""


def coincidences(units: Sequence[Sequence[int]], levels: int) -> npt.NDArray[np.float64]:
    """Return Krippendorff's coincidence table of items rated 1 to `levels`; tables of several items add up.

    Args:
        units: of each item the levels its raters gave; an item with one says nothing.
        levels: how many there are.

    Returns:
        Shape (levels, levels), symmetric.
    """
    import numpy as np

    table = np.zeros((levels, levels))
    for unit in units:
        for first, second in permutations(unit, 2):
            table[first - 1, second - 1] += 1 / (len(unit) - 1)
    return table


def ordinal_alphas(tables: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return Krippendorff's alpha with the ordinal metric, of each of several coincidence tables.

    Formula: Krippendorff, Content Analysis (2013), 12.3. NaN where all values of a table are one level.

    Args:
        tables: of shape (tables, levels, levels).
    """
    import numpy as np

    counts = tables.sum(axis=2)
    total = counts.sum(axis=1)
    # Levels from one to another, both ends counted half: half of both is what lies between their middles.
    middle = np.cumsum(counts, axis=1) - counts / 2
    distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    observed = (tables * distance).sum(axis=(1, 2))
    expected = (counts[:, :, None] * counts[:, None, :] * distance).sum(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        alphas = 1 - (total - 1) * observed / expected
    return np.where(expected > 0, alphas, np.nan)


def krippendorff_alpha(units: Sequence[Sequence[int]]) -> float | None:
    """Return Krippendorff's alpha for ordinal values: the agreement between raters, at most 1, 0 by chance.

    Args:
        units: of each item the values its raters gave, any number of them; those with one value do not
            count.

    Returns:
        None where no item has two values, or all values are the same.
    """
    import numpy as np

    rated = [unit for unit in units if len(unit) > 1]
    ordered = sorted({value for unit in rated for value in unit})
    if len(ordered) < 2:
        return None
    place = {value: number for number, value in enumerate(ordered, 1)}
    table = coincidences([[place[value] for value in unit] for unit in rated], len(ordered))
    return float(ordinal_alphas(table[np.newaxis])[0])


def alternative_annotator_test(
    judge: Sequence[float],
    people: Sequence[Mapping[str, float]],
    groups: Sequence[str],
    epsilon: float,
) -> AlternativeTest | None:
    """Test whether the judge could stand for one of the people (Calderon, Reichart and Dror 2025, arXiv 2501.10970).

    Each person is left out in turn. On every item that others rated, too, judge and person are compared with the
    others by root mean squared distance; the nearer one wins, or both where they are as near. The person's share
    minus the judge's is tested to be less than epsilon: by a t-test over dialogues (each with the mean of its items,
    where the paper has one item each), with Benjamini and Yekutieli's correction over the people.

    Args:
        judge: of each item the judge's level.
        people: of each item the level that each named person gave.
        groups: of each item its dialogue.
        epsilon: see `EPSILONS`.

    Returns:
        None where fewer than three people share 30 items with others.
    """
    import numpy as np
    from scipy.stats import false_discovery_control, ttest_1samp

    shares: dict[str, list[tuple[str, bool, bool]]] = defaultdict(list)
    for judge_level, rated, group in zip(judge, people, groups, strict=True):
        for rater, level in rated.items():
            others = np.array([own for name, own in rated.items() if name != rater])
            if len(others):
                ours, theirs = ((others - judge_level) ** 2).mean(), ((others - level) ** 2).mean()
                shares[rater].append((group, bool(ours <= theirs), bool(theirs <= ours)))
    tested = {rater: won for rater, won in sorted(shares.items()) if len(won) >= LEAST_ITEMS}
    if len(tested) < LEAST_RATERS:
        return None
    p_values = []
    for won in tested.values():
        by_group: dict[str, list[int]] = defaultdict(list)
        for group, judge_won, rater_won in won:
            by_group[group].append(int(rater_won) - int(judge_won))
        means = np.array([np.mean(differences) for differences in by_group.values()])
        if np.ptp(means) == 0:  # all differences are equal, so there is no spread to test by
            p_values.append(0.0 if means[0] < epsilon else 1.0)
        else:
            p_values.append(float(ttest_1samp(means, epsilon, alternative="less").pvalue))
    wins = false_discovery_control(p_values, method="by") <= FALSE_DISCOVERIES
    raters = tuple(
        AlternativeRater(
            rater=rater,
            items=len(won),
            judge_share=float(np.mean([judge_won for _, judge_won, _ in won])),
            rater_share=float(np.mean([rater_won for *_, rater_won in won])),
            p_value=p_value,
            judge_wins=bool(is_won),
        )
        for (rater, won), p_value, is_won in zip(tested.items(), p_values, wins, strict=True)
    )
    rate = float(np.mean(wins))
    return AlternativeTest(epsilon=epsilon, raters=raters, winning_rate=rate, passed=rate >= 0.5)
