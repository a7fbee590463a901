"""curate: raw multi-turn chat logs in, audited training sets out.

The names of the Python API (`curate.api`) load when they are first used, so that `import curate` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curate.api import *  # noqa: F403

    __version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("curate-dialogues")
    if name == "__all__" or not name.startswith("_"):
        api = import_module("curate.api")
        if name == "__all__":
            return api.__all__
        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module 'curate' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*import_module("curate.api").__all__, "__version__"]
