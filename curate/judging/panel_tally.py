"""Several judges over a run: counts as rows come, the report at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from curate.engines.accounting import cost_of
from curate.engines.base import Usage
from curate.engines.config import Prices
from curate.judging.opinions import short_name
from curate.records import CascadeFit, CascadeReport, JudgeOpinion, JuryMember, JuryReport
from curate.statistics import wilson


@dataclass(slots=True)
class JuryTally:
    """Counts a jury's judgments."""

    dialogues: int = 0
    same_verdict: int = 0
    disagreement: float = 0.0
    _apart: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))

    def add(self, record: Mapping[str, Any]) -> None:
        """Count a judgment, as it is stored."""
        opinions = record["opinions"]
        self.dialogues += 1
        self.same_verdict += len({opinion["verdict"] for opinion in opinions}) == 1
        self.disagreement += record["disagreement"]
        for one, other in combinations(opinions, 2):
            shared = one["scores"].keys() & other["scores"].keys()
            apart = sum(abs(one["scores"][name] - other["scores"][name]) for name in shared)
            for opinion in (one, other):
                total = self._apart[opinion["judge"]]
                total[0] += apart
                total[1] += len(shared)

    def report(self) -> JuryReport | None:
        """Return the figures of all judgments added; None where nothing was scored."""
        if not self.dialogues:
            return None
        members = tuple(
            JuryMember(judge=judge, apart=total / count if count else 0.0)
            for judge, (total, count) in self._apart.items()
        )
        disagreement = self.disagreement / self.dialogues
        farthest = max(members, key=lambda member: member.apart)
        sentence = (
            f"all judges give {self.same_verdict} of {self.dialogues} dialogues one verdict; they differ by "
            f"{disagreement:.2f} levels a score, {short_name(farthest.judge)} from the others by {farthest.apart:.2f}."
        )
        return JuryReport(
            dialogues=self.dialogues,
            disagreement=disagreement,
            same_verdict=self.same_verdict,
            members=members,
            sentence=sentence,
        )


@dataclass(slots=True)
class _Spent:
    tokens: int = 0
    cost: float = 0.0

    def add(self, opinion: JudgeOpinion, prices: Prices | None) -> None:
        usage = Usage(opinion.prompt_tokens, opinion.cached_tokens, opinion.completion_tokens)
        self.tokens += usage.prompt_tokens + usage.completion_tokens
        self.cost += 0.0 if prices is None else cost_of(usage, prices)


@dataclass(slots=True)
class CascadeTally:
    """Counts a cascade's judgments.

    Attributes:
        prices: of the first judge and of the second.
    """

    prices: tuple[Prices | None, Prices | None] = (None, None)
    judges: tuple[str, str] = ("", "")
    dialogues: int = 0
    escalated: int = 0
    checked: int = 0
    lost: int = 0
    _first_alone: _Spent = field(default_factory=_Spent)
    _first: _Spent = field(default_factory=_Spent)
    _second: _Spent = field(default_factory=_Spent)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count a judgment, as it is stored."""
        names = [judge["model"] for judge in record["identity"]["sampling"]["judges"]]
        self.judges = (names[0], names[1])
        first, *more = (JudgeOpinion.model_validate(opinion) for opinion in record["opinions"])
        self.dialogues += 1
        if not more:
            self._first_alone.add(first, self.prices[0])
            return
        second = more[0]
        self._first.add(first, self.prices[0])
        self._second.add(second, self.prices[1])
        if second.counts:
            self.escalated += 1
        elif second.verdict is not None:
            self.checked += 1
            self.lost += second.verdict != first.verdict

    def report(self) -> CascadeReport | None:
        """Return the figures of all judgments added; None where nothing was scored."""
        if not self.dialogues:
            return None
        share = self.escalated / self.dialogues
        lost_share, interval = None, None
        if share == 1:
            lost_share = 0.0
        elif self.checked:
            lost_share = (1 - share) * self.lost / self.checked
            low, high = wilson(self.lost / self.checked, self.checked)
            interval = ((1 - share) * low, (1 - share) * high)
        saved = None
        spent = self._first.cost + self._first_alone.cost + self._second.cost
        alone = None
        if self._first.tokens:
            ratio = self._first_alone.tokens / self._first.tokens
            saved = round(ratio * self._second.tokens)
            alone = self._second.cost * (1 + ratio)
        has_prices = None not in self.prices
        report = CascadeReport(
            judges=self.judges,
            dialogues=self.dialogues,
            escalated=self.escalated,
            share=share,
            checked=self.checked,
            lost=self.lost,
            lost_share=lost_share,
            lost_interval=interval,
            tokens=(self._first.tokens + self._first_alone.tokens, self._second.tokens),
            tokens_saved=saved,
            cost=spent if has_prices else None,
            cost_alone=alone if has_prices else None,
            sentence="",
        )
        return report.model_copy(update={"sentence": _sentence(report)})


def drift_warning(report: CascadeReport, fit: CascadeFit | None) -> str | None:
    """Warn that a cascade surely loses more than its fit allowed: judges or data are not those it was fitted to."""
    if fit is None or report.lost_interval is None or report.lost_interval[0] <= fit.risk:
        return None
    low, high = report.lost_interval
    return (
        f"The cascade loses {low:.1%} to {high:.1%} of all verdicts, and was fitted to lose at most {fit.risk:.1%}: these "
        "dialogues are unlike those it was fitted to. Fit it again: curate calibrate RUN --cascade"
    )


def _sentence(report: CascadeReport) -> str:
    if report.share == 1:
        return (
            f"the second judge decided all {report.dialogues} dialogues; `curate calibrate RUN --cascade` fits when it "
            "is to be asked."
        )
    clauses = [
        f"the second judge decided {report.escalated} of {report.dialogues} dialogues ({report.share:.0%})"
    ]
    if report.lost_share is None:
        clauses.append("what it would have changed of the others is not known, as none was checked")
    elif report.lost_interval is not None:
        low, high = report.lost_interval
        clauses.append(
            f"it gave {report.lost} of {report.checked} others that were checked another verdict, which is "
            f"{report.lost_share:.1%} of all ({low:.1%} to {high:.1%})"
        )
    if report.tokens_saved is not None and report.tokens_saved + report.tokens[1] > 0:
        of = report.tokens_saved + report.tokens[1]
        clauses.append(
            f"about {report.tokens_saved:,} of its {of:,} tokens ({report.tokens_saved / of:.0%}) were saved, for "
            f"{report.tokens[0]:,} of the first judge"
        )
    if report.cost is not None and report.cost_alone is not None:
        clauses.append(f"cost {report.cost:.4g} in place of about {report.cost_alone:.4g}")
    return "; ".join(clauses) + "."
