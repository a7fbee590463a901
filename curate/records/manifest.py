"""A run about itself: counts, rates, estimate, manifest, and the rows it could not read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.adherence import AdherenceDecay
from curate.records.factuality import FactualityReport
from curate.records.judge_checks import JudgeChecks
from curate.records.judgment import JudgeIdentity
from curate.records.jury import CascadeReport, JuryReport
from curate.records.metrics import MetricsReport
from curate.records.pair import LabelAgreement, PairSetReport
from curate.records.review import ReviewReport
from curate.records.trust_report import TrustKind


class FunnelStage(Frozen):
    """One stage on the way to the pairs: `entered` is the sum of what is dropped and what passed."""

    name: str = Field(description="What is true of what passed.")
    unit: str = Field(description="What is counted: dialogues, turns, candidates.")
    entered: int
    dropped: dict[str, int] = Field(
        default_factory=dict, description="By reason code, the commonest first."
    )
    passed: int


class QuarantinedRow(Frozen):
    """A row that could not be read, whole, with the reason code it was put aside for."""

    source: str
    file: str
    row: int
    part: str | None = None
    reason: str
    detail: str = ""
    raw: Any = None


class EngineRecord(Frozen):
    """What a model was to its run: by its identity its kept replies are found, by what it could do it was asked."""

    engine: str
    model: str
    revision: str = ""
    quantisation: str = ""
    detail: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[str, ...] = ()


class StageCounts(Frozen):
    """What one stage did in one run."""

    rows: int = 0
    reused: int = Field(0, description="Rows of an earlier run that were still valid.")
    unscored: int = 0
    reasons: dict[str, int] = Field(default_factory=dict, description="Why rows are unscored.")
    requests: int = 0
    requests_sent: int = Field(0, description="Of these, not answered from the reply log.")
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Rates(Frozen):
    """Tokens a second over all calls that are open at once."""

    prefill: float = Field(gt=0, description="Prompt tokens that no cache holds.")
    decode: float = Field(gt=0, description="Generated tokens.")
    source: str = Field("", description="Where they are known from.")

    def seconds(self, prefilled: float, generated: float) -> float:
        """How long so many tokens take."""
        return prefilled / self.prefill + generated / self.decode


class StageEstimate(Frozen):
    """Expected load of a stage over the whole source."""

    requests: int
    prompt_tokens: int
    prefilled_tokens: int = Field(
        description="Prompt tokens left after each request shares its start with the one before it."
    )
    completion_tokens: int
    intervals: dict[str, tuple[int, int]] = Field(
        default_factory=dict, description="Of each of the four, 95 %, from the sample's spread."
    )


class Estimate(Frozen):
    """What a run was expected to ask of models, before it asked."""

    dialogues: int
    sampled: int = Field(description="Dialogues that the figures are scaled up from.")
    stages: dict[str, StageEstimate]
    total: StageEstimate
    rates: Rates | None = None
    seconds: float | None = Field(None, description="None where no rate is known.")
    seconds_interval: tuple[float, float] | None = None
    cost: float | None = Field(
        None,
        description="With what is shared at the price of cached input; None where no model has prices.",
    )
    cost_interval: tuple[float, float] | None = None
    cost_without_cache: float | None = Field(None, description="If no prompt token were cached.")
    unpriced: tuple[str, ...] = Field(
        (), description="Roles that `cost` leaves out, since no prices are given for their models."
    )
    assumptions: tuple[str, ...] = ()


class SourcesReport(Frozen):
    """What reading the sources came to."""

    rows_in: int = Field(0, description="Always rows_used + quarantined.")
    rows_used: int = 0
    quarantined: int = 0
    dialogues: int = 0
    not_sampled: int = Field(
        0,
        description="Dialogues that sources did not give, to keep to their weights; not in `dialogues`.",
    )
    roles: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues by where their role definition is from: `field`, `system` (message), "
        "`recipe`, or `none`.",
    )
    sources: list[dict[str, Any]] = Field(default_factory=list)


class SelectionReport(Frozen):
    """What selection came to."""

    selected: int = Field(0, description="Dialogues in the SFT set.")
    sets: dict[str, int] = Field(default_factory=dict)
    rejections: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues not selected, each by the first of its reasons: with those selected, all.",
    )
    rejection_reasons: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues not selected that have the reason at all: one counts for each it has.",
    )


class PairsReport(Frozen):
    """What became of all pairs, made and found."""

    pairs: int = Field(0, description="Made and verified by the judge.")
    natural_pairs: int = Field(
        0,
        description="Held by the data itself; verified by the judge where `natural.verify` asks for it.",
    )
    dropped: int = 0
    drop_reasons: dict[str, int] = Field(default_factory=dict)
    funnels: dict[str, tuple[FunnelStage, ...]] = Field(
        default_factory=dict,
        description="From dialogues (`fork`) and from candidates in the data (`natural`) to pairs.",
    )
    natural_drop_reasons: dict[str, int] = Field(
        default_factory=dict,
        description="Those of `drop_reasons` that are of natural pairs: with `natural_pairs`, all found.",
    )
    label_agreement: LabelAgreement | None = Field(
        None,
        description="How often the judge prefers the side that the data calls better, of the natural pairs "
        "that it compared. Where the interval is not above .5 natural pairs are left as the data has them.",
    )
    pair_decisions: dict[str, str] = Field(
        default_factory=dict,
        description="What decided about the pairs that passed, in words and with figures, of `fork` and `natural`.",
    )
    position_spread: float | None = Field(
        None,
        description="Standard deviation of the position's pull on the log-odds of a comparison; without a "
        "curve the preference must exceed it.",
    )
    pair_checks: dict[str, PairSetReport] = Field(
        default_factory=dict,
        description="Checks over all pairs made by the judge (`judge`), held by the data (`natural`), and "
        "both together (`all`), where there are any.",
    )


RUN_FORMAT = 3
"""Of the run folder as a whole: what lies where, how replies and rows are kept, and by which keys."""


class Manifest(SourcesReport, SelectionReport, PairsReport):
    """What a run was and what came of it. Counts are of the whole run, requests and tokens of its last
    process: a resumed run asks only for what is missing.
    """

    format: int = Field(
        RUN_FORMAT, description="Of the run folder; a folder of another format is refused."
    )
    name: str
    status: Literal["running", "done", "failed", "budget", "unscored"]
    started: str
    finished: str | None = None
    seconds: float = 0.0
    seconds_by_stage: dict[str, float] = Field(
        default_factory=dict, description="Wall time of each part of the run, in order."
    )
    unscored: int = Field(0, description="Dialogues without a score in some judging stage.")
    unscored_shares: dict[str, float] = Field(
        default_factory=dict,
        description="By stage; of `fork` and `natural` the rows that gave no pair since the judge could "
        "not answer. Errors of the data left out.",
    )
    levels: str = Field(
        "",
        description="Whether verdicts go by calibrated levels, in a sentence; empty without a judge.",
    )
    role_threshold: str = Field(
        "",
        description="Whether role adherence goes by a threshold fitted to labels, in a sentence; empty "
        "without such scores.",
    )
    verdicts: dict[str, int] = Field(default_factory=dict)
    requests: int = Field(0, description="Calls sent; kept replies are not counted.")
    tokens_in: int = 0
    tokens_cached: int = Field(0, description="Of tokens_in, found in the engine's prefix cache.")
    tokens_out: int = 0
    cost: float | None = Field(None, description="In the currency of the recipe's prices.")
    unpriced: tuple[str, ...] = Field(
        (), description="Roles that `cost` leaves out, since no prices are given for their models."
    )
    estimate: Estimate | None = Field(
        None, description="What was expected at the start, for all dialogues of the run."
    )
    adherence: AdherenceDecay | None = Field(
        None, description="Role adherence by turn over all dialogues, where turns were scored."
    )
    judge_checks: JudgeChecks | None = Field(
        None, description="The rubric judge held against itself; null where it scored nothing."
    )
    jury: JuryReport | None = Field(
        None, description="How far the judges of a jury agree, where the recipe has one."
    )
    cascade: CascadeReport | None = Field(
        None, description="What a cascade of two judges saved and lost, where the recipe has one."
    )
    metrics: MetricsReport | None = Field(
        None, description="What the weighted metrics came to, where the recipe has them."
    )
    factuality: FactualityReport | None = Field(
        None, description="What the facts came to, where the recipe looks at them."
    )
    trust: dict[TrustKind, str] = Field(
        default_factory=dict,
        description="What was measured of the judge after the run, a sentence a kind, or that nothing was.",
    )
    review: ReviewReport | None = Field(
        None, description="What people decided about dialogues and pairs (`curate review`)."
    )
    stages: dict[str, StageCounts] = Field(default_factory=dict)
    exports: dict[str, dict[str, int]] = Field(default_factory=dict)
    identities: dict[str, JudgeIdentity] = Field(default_factory=dict)
    engines: dict[str, EngineRecord] = Field(
        default_factory=dict, description="The models that were asked, by role."
    )
    fingerprints: dict[str, str] = Field(
        default_factory=dict,
        description="Of each stage's rows, and hashes of the sets that were made: `select` (of the SFT set's "
        "content), `pairs`, `natural_pairs` (of their ids).",
    )
    versions: dict[str, str] = Field(default_factory=dict)
    recipe: dict[str, Any] = Field(default_factory=dict, description="Resolved; never holds a key.")
    warnings: list[str] = Field(default_factory=list)
