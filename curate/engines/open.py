"""Opening an engine by its settings.

Opening checks everything that can be checked before the first question is asked. An engine's module, and the
packages it needs, are imported here and nowhere else, when it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.engines.base import Engine
from curate.engines.config import (
    LlamaCppConfig,
    OpenAIConfig,
    ScriptedConfig,
    TransformersConfig,
    VllmConfig,
)
from curate.errors import missing_extra


async def open_engine(
    config: LlamaCppConfig | OpenAIConfig | VllmConfig | TransformersConfig | ScriptedConfig,
) -> Engine:
    """Open an engine and check that it can answer.

    Raises:
        UsageError: a file, a package, a variable or a model name is wrong.
        EngineError: the model cannot be loaded, the server cannot be reached or refuses the key.
    """
    if isinstance(config, LlamaCppConfig):
        _need("xllamacpp", "llamacpp")
        from curate.engines.llamacpp import open_llamacpp

        return await open_llamacpp(config)
    if isinstance(config, OpenAIConfig):
        _need("aiohttp", "openai")
        from curate.engines.openai_probe import open_openai

        return await open_openai(config)
    if isinstance(config, VllmConfig):
        _need("vllm", "vllm")
        from curate.engines.vllm import open_vllm

        return await open_vllm(config)
    if isinstance(config, TransformersConfig):
        for package in ("torch", "transformers", "jinja2", "llguidance"):
            _need(package, "transformers")
        from curate.engines.transformers_loading import open_transformers

        return await open_transformers(config)
    from curate.engines.scripted import ScriptedEngine

    options: Mapping[str, Any] = (
        {} if config.capabilities is None else {"capabilities": config.capabilities}
    )
    replies = config.replies if isinstance(config.replies, Path) else list(config.replies)
    return ScriptedEngine(replies, model=config.model, context_tokens=config.context, **options)


def _need(package: str, extra: str) -> None:
    try:
        __import__(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise missing_extra(package, extra) from error
