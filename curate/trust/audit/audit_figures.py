"""The kinds of figures that an audit compares with a threshold, each with its interval.

A figure that rests on too little is `not_enough_data`, and no pass. Where a share is compared with what chance or
another group gives, a warning needs both: a difference above the threshold, and an interval that leaves 0 out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt

import polars as pl

from curate.records import AuditCheck, AuditPart, FailureMode, SetCheck
from curate.statistics import Ends, clustered_variance, student_t, wilson
from curate.wording import first_of, plural

LEAST = 20
"""Fewer rows, or fewer of a group, tell nothing."""
LEAST_DIALOGUES = 10
"""Fewer dialogues give no mean over their comparisons."""
SHOWN = 20
"""Ids kept of each check."""


@dataclass(slots=True)
class Behind:
    """The rows behind a figure: how many, and ids of the first."""

    count: int = 0
    ids: list[str] = field(default_factory=list)

    def add(self, row_id: str) -> None:
        """Count a row."""
        self.count += 1
        if len(self.ids) < SHOWN:
            self.ids.append(row_id)


def share_check(
    part: AuditPart,
    name: str,
    behind: Behind,
    n: int,
    *,
    threshold: float,
    of: str,
    detail: str,
    chance: float | None = None,
    least: int = LEAST,
) -> AuditCheck:
    """Return a share of n rows, or its excess over chance, that may not be above the threshold; interval: Wilson's.

    Args:
        part, name: see `AuditCheck`.
        behind: the rows that show it.
        n: rows that could.
        threshold: of the share, 0-1, or of the excess.
        of: what the rows are, in words.
        detail: what those that show it have in common.
        chance: share that chance gives; a warning then needs an interval above it, too. None: the share itself counts.
        least: fewer rows tell nothing.
    """
    if n < least:
        return too_little(part, name, threshold, n, f"{n:,} {of}, {least} needed")
    share, base = behind.count / n, chance or 0.0
    low, high = wilson(share, n)
    counts = f"{behind.count:,} of {n:,} {of}"
    if chance is not None:
        counts = f"{share:.0%} of {n:,} {of}, {chance:.0%} by chance"
    return AuditCheck(
        part=part,
        name=name,
        status="warn" if share - base > threshold and low > base else "pass",
        figure=share - base,
        interval=(low - base, high - base),
        threshold=threshold,
        n=n,
        detail=f"{detail}: {counts}",
        behind=behind.count,
        ids=tuple(behind.ids),
    )


def gap_check(
    part: AuditPart,
    name: str,
    rows: pl.DataFrame,
    *,
    threshold: float,
    of: str,
    detail: str,
) -> AuditCheck:
    """Return the largest difference between the share of a group's rows that show something and that of all others.

    Args:
        part, name, threshold, of, detail: as for `share_check`.
        rows: `id`, `group` (text, null where it is not known; those rows are left out and counted) and `shows`
            (boolean). Groups with fewer than `LEAST` rows, or all but so many, are part of the others only.

    Returns:
        A check whose figure is the size of the gap; behind it are the group's rows that show it, or where the
        group has less of it those that do not. Its interval is Newcombe's (1998, method 10) from two of
        Wilson's, each wider the more groups are compared (Bonferroni), so that 95 % holds for all of them at once.
    """
    known = rows.drop_nulls("group")
    n, shown = known.height, int(known["shows"].sum())
    note = f"; {name} unknown for {rows.height - n:,}" if n < rows.height else ""
    sizes = known.group_by("group").agg(n=pl.len(), shown=pl.col("shows").sum()).sort("group")
    if sizes.height < 2:
        if not n:
            return not_run(part, name, threshold, n, f"the data names no {name}")
        why = f"only one {name}: {sizes['group'].item()}{note}"
        return not_run(part, name, threshold, n, why)
    large = sizes.filter((pl.col("n") >= LEAST) & (n - pl.col("n") >= LEAST))
    if large.is_empty():
        why = f"no {name} has {LEAST} of {n:,} {of}, and as many others{note}"
        return too_little(part, name, threshold, n, why)
    gaps = [
        _Gap.between(group, count, size, shown - count, n - size, large.height)
        for group, size, count in large.iter_rows()
    ]
    gap = max(gaps, key=lambda one: (one.is_certain, abs(one.size)))
    size, ends = abs(gap.size), gap.ends if gap.size >= 0 else (-gap.ends[1], -gap.ends[0])
    at_fault = known.filter((pl.col("group") == gap.group) & (pl.col("shows") == (gap.size >= 0)))
    return AuditCheck(
        part=part,
        name=name,
        status="warn" if size > threshold and gap.is_certain else "pass",
        figure=size,
        interval=ends,
        threshold=threshold,
        n=n,
        detail=f"{detail}: {gap.described}; the largest gap of {large.height} groups{note}",
        behind=at_fault.height,
        ids=tuple(at_fault["id"].head(SHOWN)),
    )


@dataclass(frozen=True, slots=True)
class _Gap:
    group: str
    n: int
    share: float
    others: float
    ends: Ends

    @property
    def size(self) -> float:
        return self.share - self.others

    @property
    def is_certain(self) -> bool:
        return not self.ends[0] <= 0 <= self.ends[1]

    @property
    def described(self) -> str:
        return f"{self.share:.0%} of {self.n:,} with {self.group}, {self.others:.0%} of the others"

    @classmethod
    def between(cls, group: str, shown: int, n: int, others: int, rest: int, groups: int) -> _Gap:
        from scipy.stats import norm

        z = float(norm.ppf(1 - 0.025 / groups))
        one, two = shown / n, others / rest
        (low, high), (under, over) = wilson(one, n, z), wilson(two, rest, z)
        down = sqrt((one - low) ** 2 + (over - two) ** 2)
        up = sqrt((high - one) ** 2 + (two - under) ** 2)
        return cls(group, n, one, two, (one - two - down, one - two + up))


def mean_check(
    part: AuditPart,
    name: str,
    totals: Sequence[float],
    weights: Sequence[float],
    ids: Sequence[str],
    *,
    threshold: float,
    of: str,
    detail: str,
) -> AuditCheck:
    """Return a mean over the comparisons of several dialogues that may not be above the threshold.

    The interval takes a dialogue as the unit (ratio estimator, Cochran 1977, section 6.4, with Student's t).

    Args:
        part, name, threshold, of, detail: as for `share_check`.
        totals: of each dialogue the sum of what its comparisons gave.
        weights: how many comparisons each has, above 0.
        ids: of the dialogues.
    """
    import numpy as np

    n = len(totals)
    if n < LEAST_DIALOGUES:
        return too_little(part, name, threshold, n, f"{n:,} {of}, {LEAST_DIALOGUES} needed")
    sums, counts = np.asarray(totals, float), np.asarray(weights, float)
    mean = float(sums.sum() / counts.sum())
    variance = clustered_variance(sums - mean * counts, float(counts.sum()))
    half = student_t(n - 1) * sqrt(variance)
    own = sums / counts
    above = [int(at) for at in np.argsort(-own, kind="stable") if own[at] > threshold]
    return AuditCheck(
        part=part,
        name=name,
        status="warn" if mean > threshold else "pass",
        figure=mean,
        interval=(mean - half, mean + half),
        threshold=threshold,
        n=n,
        detail=f"{detail}, over {n:,} {of}",
        behind=len(above),
        ids=tuple(ids[at] for at in above[:SHOWN]),
    )


def too_little(part: AuditPart, name: str, threshold: float, n: int, why: str) -> AuditCheck:
    """Return a check that rests on too little."""
    return AuditCheck(
        part=part, name=name, status="not_enough_data", threshold=threshold, n=n, detail=why
    )


def not_run(part: AuditPart, name: str, threshold: float, n: int, why: str) -> AuditCheck:
    """Return a check that has nothing to look at."""
    return AuditCheck(part=part, name=name, status="not_run", threshold=threshold, n=n, detail=why)


def of_failure_mode(mode: FailureMode) -> AuditCheck:
    """Return the check of a known failure mode, from the run's own figure."""
    is_share = mode.figure is not None and mode.name != "length_favouritism"
    return AuditCheck(
        part="known failures",
        name=mode.name.replace("_na", " n/a").replace("_", " "),
        status=mode.status,
        figure=mode.figure,
        interval=wilson(mode.figure, mode.n) if is_share and mode.figure is not None else None,
        threshold=mode.threshold,
        n=mode.n,
        detail=mode.detail,
        behind=mode.behind,
        ids=mode.dialogues,
    )


def no_failure_modes() -> AuditCheck:
    """Return a check that was not run, for a run whose manifest has no checks of its judgments."""
    why = "the manifest has no checks of the judge: run the recipe again (no model calls)"
    return not_run("known failures", "all", 0.0, 0, why)


def of_set_check(kind: str, check: SetCheck, behind: Behind) -> AuditCheck:
    """Return the check of a set of pairs, from the run's own figure, with the pairs behind it."""
    figure, is_share = check.figure, check.name == "longer_wins"
    return AuditCheck(
        part="pairs",
        name=f"{kind}: {check.name.replace('_', ' ')}",
        status=check.status,
        figure=figure,
        interval=wilson(figure, check.n) if is_share and figure is not None and check.n else None,
        threshold=0.5 if check.threshold is None else check.threshold,
        n=check.n,
        detail=check.detail,
        behind=behind.count,
        ids=tuple(behind.ids),
    )


def audit_sentence(checks: Sequence[AuditCheck]) -> str:
    """Return the result of an audit in one sentence."""
    decided = [check for check in checks if check.status in ("pass", "warn")]
    warned = [check for check in decided if check.status == "warn"]
    short = sum(check.status == "not_enough_data" for check in checks)
    rest = f" {short} had too little to tell." if short else ""
    if not decided:
        return f"The audit had too little to look at: none of {plural(len(checks), 'check')} could be made."
    if not warned:
        return f"The audit found nothing: all {plural(len(decided), 'check')} that could be made pass.{rest}"
    names = first_of([f"{check.part} ({check.name})" for check in warned], 5)
    verb = "warns" if len(warned) == 1 else "warn"
    return f"The audit: {len(warned)} of {plural(len(decided), 'check')} {verb}: {names}.{rest}"
