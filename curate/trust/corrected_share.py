"""The true share behind a share that a judge reports, from its errors on labels of people.

The judge calls p of n good. Of what people call good it calls the sensitivity q1 good, of what they call bad the
specificity q0 bad; so p = theta q1 + (1 - theta)(1 - q0), solved for theta (Rogan and Gladen 1978). The interval
counts both samples, the run's and the labels' (Lee et al. 2025, arXiv 2511.21140).

It needs labels whose errors are those of the whole run: drawn from it at random, or at random among the good and among
the bad.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from curate.records.agreement import CorrectedShare
from curate.statistics import Z_95, clustered_variance, wilson
from curate.wording import plural

ShareName = Literal["good dialogues", "adherent turns", "adherent dialogues"]


@dataclass(frozen=True, slots=True)
class Trials:
    """A share over items of which several may be of one dialogue.

    Attributes:
        share: observed, 0-1.
        items: how many it is of.
        size: how many independent ones they are worth, at most `items`.
    """

    share: float
    items: int
    size: float


def counted(outcomes: Sequence[bool], groups: Sequence[str]) -> Trials:
    """Return the share of true outcomes, with the effective number of items by the spread between groups.

    The size is share (1 - share) / v with v the cluster-robust variance of the share (Kish's design effect, from the
    data); n where every group has one item, or where groups do not differ more than chance has it.
    """
    n = len(outcomes)
    share = sum(outcomes) / n
    residuals: dict[str, float] = defaultdict(float)
    for outcome, group in zip(outcomes, groups, strict=True):
        residuals[group] += outcome - share
    many = len(residuals)
    if many == n or many < 2 or share in (0, 1):
        # Without a spread to estimate it from, items of one dialogue count as one item.
        return Trials(share, n, float(many))
    variance = clustered_variance([*residuals.values()], n)
    return Trials(share, n, min(float(n), share * (1 - share) / variance))


def correct_share(
    name: ShareName, reported: Trials, people: Trials, yes: Trials | None, no: Trials | None
) -> CorrectedShare:
    """Return the share corrected for the judge's errors, or why it cannot be.

    Args:
        name: what it is a share of.
        reported: the share that the run reports.
        people: of the labelled items, the share that people call good.
        yes: of what people call good, the share that the judge calls good; None without such labels.
        no: of what people call bad, the share that the judge calls bad.
    """
    record = CorrectedShare(
        name=name,
        reported=reported.share,
        of=reported.items,
        sensitivity=yes and yes.share,
        people_yes=yes.items if yes else 0,
        specificity=no and no.share,
        people_no=no.items if no else 0,
        people_share=people.share,
        people_interval=wilson(people.share, people.size),
    )
    if yes is None or no is None:
        side = "good" if yes is None else "bad"
        return _refused(record, f"no label calls anything {side}: label some of both kinds")
    if yes.share + no.share <= 1:
        return _refused(
            record,
            f"sensitivity {yes.share:.2f} and specificity {no.share:.2f} are together not above 1: the judge says "
            "good of good and bad alike",
        )
    z2 = Z_95**2
    p = (reported.size * reported.share + z2 / 2) / (reported.size + z2)
    q1, m1 = (yes.size * yes.share + 1) / (yes.size + 2), yes.size + 2
    q0, m0 = (no.size * no.share + 1) / (no.size + 2), no.size + 2
    spread1, spread0 = q1 * (1 - q1) / m1, q0 * (1 - q0) / m0
    gain = q0 + q1 - 1
    if gain - Z_95 * math.sqrt(spread0 + spread1) <= 0:
        return _refused(
            record,
            f"sensitivity {yes.share:.2f} and specificity {no.share:.2f} are not shown to be together above 1 by "
            f"{yes.items} and {plural(no.items, 'label')}: label more",
        )
    theta = (p + q0 - 1) / gain
    variance = p * (1 - p) / (reported.size + z2)
    variance += (1 - theta) ** 2 * spread0 + theta**2 * spread1
    # Centres the interval on the quotient's distribution (the d of Lee et al.).
    centre = theta + 2 * z2 * (theta * spread1 - (1 - theta) * spread0)
    half = Z_95 * math.sqrt(variance) / gain
    plain = (reported.share + no.share - 1) / (yes.share + no.share - 1)
    return record.model_copy(
        update={
            "corrected": _within(plain),
            "interval": (_within(centre - half), _within(centre + half)),
            "beyond": not 0 <= plain <= 1,
        }
    )


def _refused(record: CorrectedShare, why: str) -> CorrectedShare:
    return record.model_copy(update={"refused": why})


def _within(share: float) -> float:
    """Return a share cut to 0-1; `beyond` says where an estimate lies outside."""
    return min(max(share, 0.0), 1.0)
