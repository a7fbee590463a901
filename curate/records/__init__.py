"""Everything that stages write, one model per record; `schemas/` is generated from these models.

In the order of a run: the rubric judge's scores, role adherence and its calibration, decisions, pairs and the checks
over them, and last the run's description of itself (`Manifest`). They are one room because a record is little more
than its fields and their meaning, and readers of a run folder need all of them.

A score that could not be obtained is `Unscored` with a reason: a state, never a number.
"""

from curate.records.adherence import (
    AdherenceDecay,
    AdherencePosition,
    AdherenceReason,
    AdherenceScore,
    AdherenceTrend,
    AdherenceTurn,
    ConversationAdherence,
    TurnReading,
    ViolationKind,
)
from curate.records.agreement import Agreement, DimensionAgreement, Figure
from curate.records.audit import AuditCheck, AuditPart, AuditReport
from curate.records.calibration import (
    Calibration,
    CalibrationFigures,
    CutMethod,
    CutPoints,
    GoodModel,
    JudgeCalibration,
    Kappa,
)
from curate.records.certificate import (
    Certificate,
    CertificateTest,
    CertifiedSet,
    Draw,
    DrawPurpose,
    DrawStratum,
    LabelCounts,
    ThresholdStep,
)
from curate.records.factuality import (
    ClaimLabel,
    Evidence,
    FactualClaim,
    FactualityReport,
    FactualityScore,
    TurnClaims,
)
from curate.records.judge_checks import (
    CheckStatus,
    FailureMode,
    FailureModeName,
    JudgeChecks,
    Rate,
    WindowSeams,
)
from curate.records.judgment import (
    CONVERSATION_DIMENSIONS,
    GOOD_VERDICTS,
    SCORING,
    TURN_DIMENSIONS,
    VERDICTS,
    ConversationLevel,
    ConversationScore,
    ConversationScoreValue,
    JudgeIdentity,
    JudgeOpinion,
    Judgment,
    LabelReading,
    RubricScores,
    ScoringMode,
    ScoringStage,
    StageName,
    TurnScores,
    Unscored,
    UnscoredTurn,
    Verdict,
    WindowOpinion,
)
from curate.records.manifest import (
    RUN_FORMAT,
    EngineRecord,
    Estimate,
    FunnelStage,
    Manifest,
    PairsReport,
    QuarantinedRow,
    Rates,
    SelectionReport,
    SourcesReport,
    StageCounts,
    StageEstimate,
)
from curate.records.metrics import (
    CallComparison,
    CallMatch,
    MetricFigures,
    MetricScale,
    MetricScore,
    MetricsReport,
    MetricsScore,
    MetricTier,
)
from curate.records.pair import (
    Change,
    ChangeKind,
    KindFigures,
    LabelAgreement,
    PairCheck,
    PairCurve,
    PairSetReport,
    PairSource,
    PreferencePair,
    SetCheck,
)
from curate.records.probe import (
    ComparedLine,
    ProbeComparison,
    ProbeLine,
    ProbeOutcome,
    ProbeReport,
)
from curate.records.reasons import DropReason, QuarantineReason, UnscoredReason
from curate.records.review import Collision, Decision, ReviewAnswer, ReviewedDecision, ReviewReport
from curate.records.several_judges import CascadeFit, CascadeReport, Doubt, JuryMember, JuryReport
from curate.records.trust_report import NOT_TAKEN, TrustKind, TrustReport
