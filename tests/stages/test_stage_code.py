"""Changed code makes a stage's rows again: which code a fingerprint covers."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import curate
from curate.adherence.config import AdherenceConfig
from curate.engines.model_pool import ModelPool
from curate.engines.scripted import ScriptedEngine
from curate.judging.config import RubricConfig
from curate.judging.factuality import FactualityConfig
from curate.judging.metrics import MetricsConfig
from curate.pairs.config import ForkConfig, NaturalConfig
from curate.stages import adherence_stage, judge_stage, stage
from curate.stages.pair_stages import fork_stage, natural_stage
from curate.stages.scoring_stages import factuality_stage, metrics_stage, reference_stage
from curate.stages.stage import Stage, code_version

ROOT = Path(curate.__file__).parent
JUDGE = ScriptedEngine([])
POOL = ModelPool(JUDGE, ScriptedEngine([], model="policy"))
WORDS = AdherenceConfig(scoring_method="kl")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A room `a_room` of a package, with a subfolder that is none."""
    folder = tmp_path / "a_package" / "a_room"
    (folder / "inner/deep").mkdir(parents=True)
    for name in ("__init__.py", "one.py", "inner/two.py", "inner/deep/three.py"):
        (folder / name).write_text(f"# {name}\n")
    (folder.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    sys.modules.pop("a_package", None)
    code_version.cache_clear()


@pytest.mark.parametrize("name", ["one.py", "inner/two.py", "inner/deep/three.py"])
def test_changed_code_in_a_room_or_below_changes_its_version(package: Path, name: str) -> None:
    before = code_version("a_room", "a_package")
    code_version.cache_clear()
    assert code_version("a_room", "a_package") == before
    (package / name).write_text("# changed\n")
    code_version.cache_clear()
    assert code_version("a_room", "a_package") != before


def test_a_moved_file_changes_the_version_and_a_cached_one_does_not(package: Path) -> None:
    before = code_version("a_room", "a_package")
    (package / "inner/__pycache__").mkdir()
    (package / "inner/__pycache__/two.pyc").write_bytes(b"compiled")
    code_version.cache_clear()
    assert code_version("a_room", "a_package") == before
    (package / "inner/two.py").rename(package / "two.py")
    code_version.cache_clear()
    assert code_version("a_room", "a_package") != before


def imported_rooms(room: str) -> set[str]:
    """The rooms and top-level modules of the package that a room's modules import."""
    names: set[str] = set()
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("curate."):
                names.add(node.module.split(".")[1])
    return {name if (ROOT / name).is_dir() else f"{name}.py" for name in names}


# Texts of errors, and how rows are kept: neither says what is in a row.
NOT_IN_ROWS = {"errors.py", "storage", "untrusted.py", "notebook.py"}


@pytest.mark.parametrize(
    ("make", "rooms"),
    [
        (lambda: judge_stage(RubricConfig(), JUDGE), {"judging"}),
        (lambda: metrics_stage(MetricsConfig(), JUDGE), {"judging"}),
        (lambda: factuality_stage(FactualityConfig(), JUDGE), {"judging"}),
        (lambda: adherence_stage(AdherenceConfig(), JUDGE), {"adherence"}),
        (lambda: reference_stage(WORDS, list), {"adherence"}),
        (
            lambda: fork_stage(
                ForkConfig(), RubricConfig(), judge_stage(RubricConfig(), JUDGE), POOL.facts
            ),
            {"pairs", "judging", "adherence"},
        ),
        (
            lambda: natural_stage(NaturalConfig(verify=True), RubricConfig(), POOL.facts),
            {"pairs", "judging", "adherence"},
        ),
    ],
    ids=["judge", "metrics", "factuality", "adherence", "reference", "fork", "natural"],
)
def test_the_fingerprint_of_a_stage_covers_all_code_that_makes_its_rows(
    make: Callable[[], Stage[Any]], rooms: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {"dialogue.py", "engines", "records", "stages", "statistics.py", "wording.py"}
    for room in rooms:
        assert imported_rooms(room) <= rooms | shared | NOT_IN_ROWS
    before = make().fingerprint
    real = stage.code_version
    for changed in rooms | shared:
        with monkeypatch.context() as patch:
            patch.setattr(
                stage, "code_version", lambda name, one=changed: real(name) + "*" * (name == one)
            )
            assert make().fingerprint != before, changed
    assert make().fingerprint == before
