"""curate: raw multi-turn chat logs in, audited training sets out.

The Python API's names load when they are first used, so that `import curate` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curate.api import (
        Labels,
        LoadedDialogues,
        Recipe,
        RunResult,
        calibrate,
        fork_pairs,
        judge_dialogues,
        load_dialogues,
        load_recipe,
        run_recipe,
        score_adherence,
        select,
    )

__version__ = version("curate-dialogues")

__all__ = [
    "Labels",
    "LoadedDialogues",
    "Recipe",
    "RunResult",
    "calibrate",
    "fork_pairs",
    "judge_dialogues",
    "load_dialogues",
    "load_recipe",
    "run_recipe",
    "score_adherence",
    "select",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("curate.api"), name)
    raise AttributeError(f"module 'curate' has no attribute '{name}'")
