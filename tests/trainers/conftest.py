"""What the tests of all trainers share: tokenizers, and exports of real data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import shared_data
from tests.export.asking import PLAIN, WITH_TOOLS, tokenizer_folder

__all__ = ["shared_data"]


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer whose template is blind to tools."""
    return tokenizer_folder(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.fixture(scope="session")
def with_tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer whose template shows tools and calls."""
    return tokenizer_folder(tmp_path_factory.mktemp("tools"), WITH_TOOLS)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where exports of real data go."""
    return tmp_path_factory.mktemp("exports")
