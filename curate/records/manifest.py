"""Records of a run about itself: counts, rates, estimate, manifest, and the rows it could not read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.adherence import AdherenceDecay
from curate.records.factuality import FactualityReport
from curate.records.judge_checks import JudgeChecks
from curate.records.judgment import JudgeIdentity
from curate.records.metrics import MetricsReport
from curate.records.pair import LabelAgreement, PairSetReport
from curate.records.reasons import QuarantineReason
from curate.records.review import ReviewReport
from curate.records.several_judges import CascadeReport, JuryReport
from curate.records.trust_report import TrustKind


class FunnelStage(Frozen):
    """One stage of the funnel from dialogues to pairs: `entered` is the sum of `dropped` and `passed`."""

    name: str = Field(description="Name of the stage: what is true of everything that passed it.")
    unit: str = Field(description="What is counted: dialogues, turns or candidates.")
    entered: int = Field(description="Number that entered the stage.")
    dropped: dict[str, int] = Field(
        default_factory=dict, description="Number dropped by reason code, the most frequent first."
    )
    passed: int = Field(description="Number that passed.")


class QuarantinedRow(Frozen):
    """A row of a source that could not be read, with the reason."""

    source: str = Field(description="Name of the source in the recipe.")
    file: str = Field(description="File within the source.")
    row: int = Field(description="Number of the row in the file, counted from 1.")
    part: str | None = Field(
        None, description="Part of the row, if the row gives several dialogues."
    )
    reason: str = Field(
        description=" ".join(f"`{reason}`: {reason.meaning}." for reason in QuarantineReason)
    )
    detail: str = Field("", description="Details for people, such as the error.")
    raw: Any = Field(None, description="The row itself.")


class EngineRecord(Frozen):
    """A model that a run used: its identity, by which cached replies are found, and its capabilities."""

    engine: str = Field(description="Name of the engine.")
    model: str = Field(description="Name of the model.")
    revision: str = Field("", description="Revision of the model.")
    quantisation: str = Field("", description="Quantisation of the weights.")
    detail: tuple[tuple[str, str], ...] = Field(
        (), description="Other facts that determine its replies, as names and values."
    )
    capabilities: tuple[str, ...] = Field((), description="What the engine can do.")


class StageCounts(Frozen):
    """What one stage did in one run."""

    rows: int = Field(0, description="Rows of the stage.")
    reused: int = Field(0, description="Rows of an earlier run that were still valid.")
    unscored: int = Field(0, description="Rows without a score.")
    reasons: dict[str, int] = Field(
        default_factory=dict, description="Unscored rows by reason code."
    )
    requests: int = Field(0, description="Requests, including those answered from the cache.")
    requests_sent: int = Field(0, description="Requests sent to a model.")
    prompt_tokens: int = Field(0, description="Prompt tokens.")
    cached_tokens: int = Field(0, description="Prompt tokens found in the engine's prefix cache.")
    completion_tokens: int = Field(0, description="Tokens generated.")


class Rates(Frozen):
    """Speed of a model in tokens per second, over all calls open at the same time."""

    prefill: float = Field(
        gt=0, description="Prompt tokens per second that are not in the prefix cache."
    )
    decode: float = Field(gt=0, description="Generated tokens per second.")
    source: str = Field("", description="Where the rates come from.")

    def seconds(self, prefilled: float, generated: float) -> float:
        """Return how many seconds this many tokens take."""
        return prefilled / self.prefill + generated / self.decode


class StageEstimate(Frozen):
    """Expected load of a stage over the whole source."""

    requests: int = Field(description="Requests.")
    prompt_tokens: int = Field(description="Prompt tokens.")
    prefilled_tokens: int = Field(
        description="Prompt tokens without the beginnings that successive requests share."
    )
    completion_tokens: int = Field(description="Tokens generated.")
    intervals: dict[str, tuple[int, int]] = Field(
        default_factory=dict,
        description="95 % interval of each of the four figures, from the spread of the sample.",
    )


class Estimate(Frozen):
    """Expected load and cost of a run, estimated before it started."""

    dialogues: int = Field(description="Number of dialogues.")
    sampled: int = Field(description="Dialogues in the sample that the figures are scaled up from.")
    stages: dict[str, StageEstimate] = Field(description="Expected load by stage.")
    total: StageEstimate = Field(description="Expected load of all stages.")
    rates: Rates | None = Field(
        None, description="Rates that the time is computed from; null if not known."
    )
    seconds: float | None = Field(
        None, description="Expected time in seconds; null if no rates are known."
    )
    seconds_interval: tuple[float, float] | None = Field(
        None, description="95 % interval of `seconds`."
    )
    cost: float | None = Field(
        None,
        description="Expected cost in the currency of the recipe's prices, shared prompt tokens at the "
        "price of cached input; null if no model has prices.",
    )
    cost_interval: tuple[float, float] | None = Field(None, description="95 % interval of `cost`.")
    cost_without_cache: float | None = Field(
        None, description="Expected cost if no prompt token were cached."
    )
    unpriced: tuple[str, ...] = Field(
        (), description="Roles that `cost` leaves out because their models have no prices."
    )
    assumptions: tuple[str, ...] = Field(
        (), description="Assumptions of the estimate, in sentences."
    )


class SourcesReport(Frozen):
    """Counts from reading the sources."""

    rows_in: int = Field(0, description="Rows read: always rows_used + quarantined.")
    rows_used: int = Field(0, description="Rows that gave dialogues.")
    quarantined: int = Field(0, description="Rows that could not be read.")
    dialogues: int = Field(0, description="Dialogues.")
    not_sampled: int = Field(
        0,
        description="Dialogues left out to keep the weights of the sources; not counted in `dialogues`.",
    )
    roles: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues by where their role definition comes from: `field`, `system` (message), "
        "`recipe`, or `none`.",
    )
    sources: list[dict[str, Any]] = Field(
        default_factory=list, description="Counts and settings of each source."
    )
    hashes: dict[str, str] = Field(
        default_factory=dict, description="SHA-256 of each file that was written, by name."
    )


class SelectionReport(Frozen):
    """Counts from selection."""

    selected: int = Field(0, description="Dialogues in the SFT set.")
    sets: dict[str, int] = Field(default_factory=dict, description="Dialogues by set.")
    rejections: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues not selected, each counted once by its first reason; with `selected` they "
        "sum to all dialogues.",
    )
    rejection_reasons: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues not selected by reason, each counted for every reason it has.",
    )


class PairsReport(Frozen):
    """Counts of all pairs, forked and natural."""

    pairs: int = Field(0, description="Forked pairs that the judge verified.")
    natural_pairs: int = Field(
        0,
        description="Pairs found in the data; verified by the judge if `natural.verify` asks for it.",
    )
    dropped: int = Field(0, description="Pairs that were dropped.")
    drop_reasons: dict[str, int] = Field(
        default_factory=dict, description="Dropped pairs by reason code."
    )
    funnels: dict[str, tuple[FunnelStage, ...]] = Field(
        default_factory=dict,
        description="Funnels from dialogues to pairs (`fork`) and from candidates in the data to pairs "
        "(`natural`).",
    )
    natural_drop_reasons: dict[str, int] = Field(
        default_factory=dict,
        description="Dropped natural pairs by reason code; with `natural_pairs` they sum to all that were "
        "found.",
    )
    label_agreement: LabelAgreement | None = Field(
        None,
        description="How often the judge prefers the side that the data calls better, over the natural "
        "pairs it compared. If the interval is not above 0.5, natural pairs are kept as in the"
        " data.",
    )
    pair_decisions: dict[str, str] = Field(
        default_factory=dict,
        description="What decided about the pairs that passed, in a sentence with figures, for `fork` and "
        "`natural`.",
    )
    position_spread: float | None = Field(
        None,
        description="Standard deviation of the position effect on the log-odds of a comparison; without a "
        "curve the preference must exceed it.",
    )
    pair_checks: dict[str, PairSetReport] = Field(
        default_factory=dict,
        description="Checks over all forked pairs (`judge`), all natural pairs (`natural`) and both "
        "together (`all`).",
    )


RUN_FORMAT = 3
"""Version of the run folder's format: its files, how replies and rows are stored, and their keys."""


class Manifest(SourcesReport, SelectionReport, PairsReport):
    """Description of a run and its results.

    Counts are for the whole run; requests and tokens are for its last process, since a resumed run only asks for what
    is missing.
    """

    format: int = Field(
        RUN_FORMAT,
        description="Version of the run folder's format; a folder of another format is refused.",
    )
    name: str = Field(description="Name of the run.")
    status: Literal["running", "done", "failed", "budget", "unscored"] = Field(
        description="`done`; `running` or `failed`: not finished; `budget`: stopped at its budget; "
        "`unscored`: finished with too many unscored rows."
    )
    started: str = Field(description="Start time in UTC, ISO 8601.")
    finished: str | None = Field(None, description="End time in UTC, ISO 8601.")
    seconds: float = Field(0.0, description="Wall time in seconds.")
    seconds_by_stage: dict[str, float] = Field(
        default_factory=dict, description="Wall time in seconds of each part of the run, in order."
    )
    unscored: int = Field(0, description="Dialogues without a score in at least one judging stage.")
    unscored_shares: dict[str, float] = Field(
        default_factory=dict,
        description="Share of unscored rows by stage (0-1); for `fork` and `natural` the rows that gave no"
        " pair because the judge could not answer. Rows unscored because of the data are not "
        "counted.",
    )
    levels: str = Field(
        "",
        description="Whether verdicts are based on calibrated levels, in a sentence; empty without a judge.",
    )
    role_threshold: str = Field(
        "",
        description="Whether role adherence uses a threshold fitted to labels, in a sentence; empty "
        "without such scores.",
    )
    verdicts: dict[str, int] = Field(default_factory=dict, description="Dialogues by verdict.")
    requests: int = Field(0, description="Calls sent to models; cached replies are not counted.")
    tokens_in: int = Field(0, description="Prompt tokens.")
    tokens_cached: int = Field(0, description="Prompt tokens found in the engine's prefix cache.")
    tokens_out: int = Field(0, description="Tokens generated.")
    cost: float | None = Field(None, description="Cost in the currency of the recipe's prices.")
    unpriced: tuple[str, ...] = Field(
        (), description="Roles that `cost` leaves out because their models have no prices."
    )
    estimate: Estimate | None = Field(
        None, description="Estimate made at the start, for all dialogues of the run."
    )
    adherence: AdherenceDecay | None = Field(
        None, description="Role adherence by turn over all dialogues, if turns were scored."
    )
    judge_checks: JudgeChecks | None = Field(
        None,
        description="Checks of the rubric judge from its own scores; null if it scored nothing.",
    )
    jury: JuryReport | None = Field(
        None, description="How far the judges of a jury agree, if the recipe has one."
    )
    cascade: CascadeReport | None = Field(
        None, description="What a cascade saved and lost, if the recipe has one."
    )
    metrics: MetricsReport | None = Field(
        None, description="Results of the weighted metrics, if the recipe has them."
    )
    factuality: FactualityReport | None = Field(
        None, description="Results of the check of facts, if the recipe has it."
    )
    trust: dict[TrustKind, str] = Field(
        default_factory=dict,
        description="For each kind of check of the judge after the run: its finding in a sentence, or that"
        " it was not made.",
    )
    review: ReviewReport | None = Field(
        None, description="Decisions of people about dialogues and pairs (`curate review`)."
    )
    stages: dict[str, StageCounts] = Field(default_factory=dict, description="Counts by stage.")
    exports: dict[str, dict[str, int]] = Field(
        default_factory=dict, description="Rows by trainer and file."
    )
    identities: dict[str, JudgeIdentity] = Field(
        default_factory=dict, description="The judge or method of each stage."
    )
    engines: dict[str, EngineRecord] = Field(
        default_factory=dict, description="The models that were used, by role."
    )
    fingerprints: dict[str, str] = Field(
        default_factory=dict,
        description="Fingerprint of each stage's rows, and hashes of the resulting sets: `select` (content"
        " of the SFT set), `pairs` and `natural_pairs` (their ids).",
    )
    versions: dict[str, str] = Field(
        default_factory=dict, description="Versions of curate and of the packages it used."
    )
    recipe: dict[str, Any] = Field(
        default_factory=dict, description="The resolved recipe; never contains a key."
    )
    warnings: list[str] = Field(default_factory=list, description="Warnings of the run.")
