"""curate: raw multi-turn chat logs in, audited training sets out.

The Python API's names load when they are first used, so that `import curate` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curate.api import (
        AdherenceConfig,
        AdherenceScore,
        BudgetReached,
        Calibration,
        CurateError,
        Decision,
        Dialogue,
        EngineError,
        ExportConfig,
        FactualityConfig,
        FactualityScore,
        ForkConfig,
        Judgment,
        Labels,
        LlamaCppConfig,
        LoadedDialogues,
        Message,
        MetricsConfig,
        MetricsScore,
        NaturalConfig,
        OpenAIConfig,
        OwnMetric,
        PreferencePair,
        QuarantinedRow,
        Recipe,
        RubricConfig,
        RunLockedError,
        RunResult,
        ScriptedConfig,
        SelectConfig,
        SourceConfig,
        SourceError,
        TransformersConfig,
        Unscored,
        UsageError,
        VllmConfig,
        agreement,
        audit,
        calibrate,
        calibrate_with_gold,
        certify,
        diff_runs,
        draft_metric,
        fork_pairs,
        judge_dialogues,
        load_dialogues,
        load_recipe,
        probe,
        read_gold,
        run_recipe,
        sample,
        score_adherence,
        score_factuality,
        score_metrics,
        select,
        verify_run,
    )

    __version__: str

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


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("curate-dialogues")
    if name in __all__:
        return getattr(import_module("curate.api"), name)
    raise AttributeError(f"module 'curate' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
