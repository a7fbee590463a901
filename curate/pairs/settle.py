"""Decisions about pairs that need all pairs of a run. Pure; no model calls.

Two things cannot be known of one pair by itself:

- without a curve, how much evidence is enough. A judge's position bias moves its log-odds by a pull h (half the
  difference between both orders). The mean of both orders is free of it, as far as it is the same everywhere;
  how far it is not, the spread of h over the run's pairs tells, and the preference of a pair must exceed that.
- whether the judge agrees with the data at all. Natural pairs say themselves which side is better. Where the lower
  end of the interval of the judge's agreement with them is not above .5, its verification is worth nothing on this
  data: it drops no natural pair and vouches for none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import pstdev

from curate.pairs.config import VerifyConfig
from curate.pairs.verification import CheckOutcome, hold
from curate.records import Certificate, DropReason, LabelAgreement, PairCheck, PreferencePair
from curate.statistics import effective_size, wilson

UNCALIBRATED = (
    "Pairs are decided without a curve: the judge's preference alone, held against the spread of its "
    "position bias. Fit one with `curate calibrate RECIPE --twins 60`, or to labelled pairs with --pairs."
)
BY_LETTERS = (
    "The judge gives letters without log-probabilities: pairs are decided by its choice in both orders, which no "
    "curve can calibrate."
)

LEAST_COMPARISONS = 10
"""Pairs below which a spread says nothing; then the preference must hold in both orders."""

_BY_THE_JUDGE = frozenset(
    {
        DropReason.BELOW_MARGIN,
        DropReason.LENGTH_ONLY,
        DropReason.ORDER_FLIP,
        DropReason.OTHER_DIMENSION_FELL,
        DropReason.ORIGINAL_WAS_FINE,
        DropReason.REJECTED_PREFERRED,
        DropReason.UNGROUNDED_SPECIFICS,
        DropReason.UNSCORED,
    }
)
"""Drop reasons that are the judge's word."""


@dataclass(slots=True)
class Survey:
    """Figures of the judge over all pairs of a run, passed and dropped ones alike.

    Attributes:
        pulls: how far the position moved each comparison.
        compared: natural pairs that the judge compared, by dialogue.
        agreed: those whose better side by the data it prefers; letters that hang on the order are half a one.
        decided_by: what decided the pairs that were compared.
    """

    pulls: list[float] = field(default_factory=list)
    compared: Counter[str] = field(default_factory=Counter)
    agreed: float = 0.0
    decided_by: set[str] = field(default_factory=set)

    def add(self, pair: PreferencePair) -> None:
        """Take in a pair as the judge left it."""
        check = pair.check
        if check is None:
            return
        if check.decided_by is not None:
            self.decided_by.add(check.decided_by)
        if (pull := pull_of(check)) is not None:
            self.pulls.append(pull)
        agreed = _agreed(check)
        if pair.basis != "judge" and agreed is not None:
            self.compared[pair.content_hash] += 1
            self.agreed += agreed

    @property
    def spread(self) -> float | None:
        """Standard deviation of the pulls; None where nothing was compared by log-odds."""
        return pstdev(self.pulls) if self.pulls else None

    @property
    def agreement(self) -> LabelAgreement | None:
        """Share in which the judge prefers the side that the data calls better; None where nothing was compared."""
        if not self.compared:
            return None
        pairs = self.compared.total()
        share = self.agreed / pairs
        # Pairs of one dialogue are alike, so many of them count as few.
        interval = wilson(share, effective_size(list(self.compared.values())))
        return LabelAgreement(pairs=pairs, share=share, interval=interval)

    def required(self, check: PairCheck) -> float:
        """Return the preference that a pair without a curve needs: more than the position makes by itself."""
        if self.spread is not None and len(self.pulls) >= LEAST_COMPARISONS:
            return self.spread
        return abs(pull_of(check) or 0.0)


def survey(pairs: Iterable[PreferencePair]) -> Survey:
    """Summarise what these pairs show of their judge."""
    totals = Survey()
    for pair in pairs:
        totals.add(pair)
    return totals


def pull_of(check: PairCheck) -> float | None:
    """Measure how far the position moved a comparison: log-odds, towards the side shown first; None if unknown."""
    if check.log_odds_first is None or check.log_odds_second is None:
        return None
    return (check.log_odds_first - check.log_odds_second) / 2


def _agreed(check: PairCheck) -> float | None:
    """Return 1 where the judge prefers the chosen side, 0 where the other; None where it compared neither."""
    if check.preference is not None:
        return float(check.preference > 0)
    if check.preferred_first is None or check.preferred_second is None:
        return None
    return (check.preferred_first + check.preferred_second) / 2


def hold_by_itself(check: PairCheck, config: VerifyConfig) -> CheckOutcome:
    """Hold a pair without a curve against its own pull: the judge must prefer the chosen side in both orders.

    For who has to decide before all pairs of the run are there. Any other check is decided, and stays so.
    """
    if check.decided_by != "uncalibrated":
        return CheckOutcome(check)
    return hold(check, config, abs(pull_of(check) or 0.0))


def settle_pair(pair: PreferencePair, totals: Survey, config: VerifyConfig) -> PreferencePair:
    """Return the pair as decided: one that was left open, as there is no curve, passes or is dropped."""
    check = pair.check
    if pair.drop_reason is not None or check is None or check.decided_by != "uncalibrated":
        return pair
    finding = hold(check, config, totals.required(check))
    detail = "; ".join(part for part in (pair.detail, finding.detail) if part)
    return pair.model_copy(
        update={"check": finding.check, "drop_reason": finding.drop_reason, "detail": detail}
    )


def hold_to_certificate(pair: PreferencePair, certificate: Certificate) -> PreferencePair:
    """Drop a pair that passed if its score is missing or below the certified threshold; return the pair."""
    limit = certificate.certified
    if pair.drop_reason is not None or limit.column is None or limit.threshold is None:
        return pair
    score = None if pair.check is None else getattr(pair.check, limit.column)
    if score is not None and score >= limit.threshold:
        return pair
    detail = f"{limit.column} {'none' if score is None else f'{score:.4g}'}, certified from {limit.threshold:.4g} on"
    details = "; ".join(part for part in (pair.detail, detail) if part)
    return pair.model_copy(update={"drop_reason": DropReason.BELOW_CERTIFICATE, "detail": details})


def agreement_warning(agreement: LabelAgreement) -> str:
    """Warn of a judge that is not shown to agree with the labels of the data."""
    return (
        f"T{agreement.described[1:]}, which is not shown to be better than a coin: its verification is worth "
        "nothing on this data. Natural pairs are left as the data has them."
    )


def describe_decisions(
    decided: Mapping[str, int], config: VerifyConfig | None, totals: Survey
) -> str:
    """Describe what decided about pairs that passed, with its figures.

    Args:
        decided: pairs by `PairCheck.decided_by`.
    """
    curve = None if config is None else config.curve
    descriptions = {
        "uncalibrated": "the judge's preference alone, held against the spread of its position bias "
        f"({totals.spread or 0:.2f} in log-odds); not calibrated",
        "letters": "the judge's choice in both orders, without log-probabilities; not calibrated",
        "data": "the data alone, with which the judge is not shown to agree",
    }
    if curve is not None:
        descriptions[curve.fitted_on] = curve.described
    return "; ".join(f"{number} by {descriptions[by]}" for by, number in decided.items())


def leave_to_the_data(pair: PreferencePair) -> PreferencePair:
    """Return a natural pair as the data has it, where the judge is not shown to agree with the data's labels."""
    check = pair.check
    if check is None or (pair.drop_reason is not None and pair.drop_reason not in _BY_THE_JUDGE):
        return pair
    return pair.model_copy(
        update={
            "drop_reason": None,
            "check": check.model_copy(update={"decided_by": "data"}),
        }
    )
