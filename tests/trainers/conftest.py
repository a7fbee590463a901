"""What the tests of all trainers share: their interpreters, tokenizers, and exports of real data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from curate.export.trainers import Trainer
from tests.trainer_check.asking import PLAIN, WITH_TOOLS, exports, tokenizer_folder

KEPT = Path(os.environ.get("CURATE_TRAINERS") or Path.home() / ".cache/curate/trainers")


@pytest.fixture(scope="session")
def python_of() -> Callable[[str], str]:
    """The interpreter of a trainer's own venv, in which there is no curate."""

    def found(name: str) -> str:
        python = KEPT / name / "bin" / "python"
        if not python.exists():
            pytest.skip(f"there is no {python}: make test-trainers makes it")
        return str(python)

    return found


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer whose template is blind to tools."""
    return tokenizer_folder(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.fixture(scope="session")
def with_tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer whose template shows tools and calls."""
    return tokenizer_folder(tmp_path_factory.mktemp("tools"), WITH_TOOLS)


@pytest.fixture(scope="session")
def real(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exports of real data, by source."""
    trainers: list[Trainer] = ["axolotl", "llamafactory", "swift", "openrlhf", "verl"]
    return exports(shared_data, tmp_path_factory.mktemp("exports"), list(trainers))
