"""The Python API: the command line's steps as synchronous functions.

    loaded = load_dialogues("chats.jsonl")
    judgments = judge_dialogues(loaded.dialogues, {"engine": "openai", "model": …, "base_url": …})

A model is an open engine, or the content of a recipe's `models.judge`; a config is the content of the recipe's
section for that stage. Both may be a mapping, the config's own class, or the path of a recipe, of which that part is
read. Redaction, prices and the budget apply as in a run. Nothing is written to disk unless a `replies` folder is
named; use `run_recipe` for run folders and resuming.
"""

from curate.adherence.config import AdherenceConfig
from curate.api.asking import (
    draft_metric,
    fork_pairs,
    judge_dialogues,
    score_adherence,
    score_factuality,
    score_metrics,
)
from curate.api.dialogues import LoadedDialogues, load_dialogues, select
from curate.api.trust import agreement, audit, certify, probe
from curate.dialogue import Dialogue, Message
from curate.engines.config import (
    LlamaCppConfig,
    OpenAIConfig,
    ScriptedConfig,
    TransformersConfig,
    VllmConfig,
)
from curate.errors import (
    BudgetReached,
    CurateError,
    EngineError,
    RunLockedError,
    SourceError,
    UsageError,
)
from curate.export.config import ExportConfig
from curate.judging.config import RubricConfig
from curate.judging.factuality import FactualityConfig
from curate.judging.metrics import MetricsConfig, OwnMetric
from curate.pairs.config import ForkConfig, NaturalConfig
from curate.recipe import Recipe, load_recipe
from curate.records import (
    AdherenceScore,
    Calibration,
    Decision,
    FactualityScore,
    Judgment,
    MetricsScore,
    PreferencePair,
    QuarantinedRow,
    Unscored,
)
from curate.run.diff import diff_runs
from curate.run.labels.adherence_fit import Labels, calibrate
from curate.run.labels.calibrate import calibrate_with_gold
from curate.run.labels.sample import sample
from curate.run.pipeline import run_recipe
from curate.run.result import RunResult
from curate.run.verify import verify_run
from curate.selection.config import SelectConfig
from curate.sources import SourceConfig
from curate.trust.label_rows import read_gold

__all__ = [
    "AdherenceConfig",
    "AdherenceScore",
    "BudgetReached",
    "Calibration",
    "CurateError",
    "Decision",
    "Dialogue",
    "EngineError",
    "ExportConfig",
    "FactualityConfig",
    "FactualityScore",
    "ForkConfig",
    "Judgment",
    "Labels",
    "LlamaCppConfig",
    "LoadedDialogues",
    "Message",
    "MetricsConfig",
    "MetricsScore",
    "NaturalConfig",
    "OpenAIConfig",
    "OwnMetric",
    "PreferencePair",
    "QuarantinedRow",
    "Recipe",
    "RubricConfig",
    "RunLockedError",
    "RunResult",
    "ScriptedConfig",
    "SelectConfig",
    "SourceConfig",
    "SourceError",
    "TransformersConfig",
    "Unscored",
    "UsageError",
    "VllmConfig",
    "agreement",
    "audit",
    "calibrate",
    "calibrate_with_gold",
    "certify",
    "diff_runs",
    "draft_metric",
    "fork_pairs",
    "judge_dialogues",
    "load_dialogues",
    "load_recipe",
    "probe",
    "read_gold",
    "run_recipe",
    "sample",
    "score_adherence",
    "score_factuality",
    "score_metrics",
    "select",
    "verify_run",
]
