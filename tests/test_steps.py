"""What binds stages to models: every request says which dialogue it is about."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from curate.adherence.config import AdherenceConfig
from curate.dialogue import Dialogue, Message
from curate.engines.accounting import Accounting
from curate.engines.client import Client
from curate.engines.scripted import ScriptedEngine
from curate.judging.config import RubricConfig
from curate.steps import adherence_step, code_version, judge_step


def make_dialogue(name: str) -> Dialogue:
    return Dialogue(
        id=name,
        role_definition="A patient shop assistant.",
        scenario="Help with an order.",
        messages=(
            Message(role="user", content=f"Where is {name}?"),
            Message(role="assistant", content="On its way."),
            Message(role="user", content="Since when?"),
            Message(role="assistant", content="Since Monday."),
        ),
    )


async def test_all_requests_about_a_dialogue_share_an_affinity_of_its_own():
    engine = ScriptedEngine(lambda request: "yes")
    ask = Client(engine, None, accounting=Accounting())
    homes = []
    for dialogue in (make_dialogue("one"), make_dialogue("two")):
        engine.requests.clear()
        await judge_step(RubricConfig(mode="json"), engine).work(dialogue, ask)
        await adherence_step(AdherenceConfig(output_mode="binary"), engine).work(dialogue, ask)
        purposes = {request.purpose.partition(".")[0] for request in engine.requests}
        assert purposes == {"judge", "adherence"}
        [affinity] = {request.affinity for request in engine.requests}
        assert affinity == dialogue.content_hash
        homes.append(affinity)
    assert homes[0] != homes[1]


async def test_the_affinity_is_no_part_of_the_key():
    engine = ScriptedEngine(lambda request: "yes")
    await adherence_step(AdherenceConfig(output_mode="binary"), engine).work(
        make_dialogue("one"), Client(engine, None, accounting=Accounting())
    )
    request = engine.requests[0]
    assert request.affinity
    assert request.key(engine.identity) == replace(request, affinity="").key(engine.identity)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `a_room` with a subfolder that is none."""
    folder = tmp_path / "a_room"
    (folder / "inner/deep").mkdir(parents=True)
    for name in ("__init__.py", "one.py", "inner/two.py", "inner/deep/three.py"):
        (folder / name).write_text(f"# {name}\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    sys.modules.pop("a_room", None)
    code_version.cache_clear()


@pytest.mark.parametrize("name", ["one.py", "inner/two.py", "inner/deep/three.py"])
def test_changed_code_in_a_room_or_below_changes_its_version(package: Path, name: str) -> None:
    before = code_version("a_room")
    code_version.cache_clear()
    assert code_version("a_room") == before
    (package / name).write_text("# changed\n")
    code_version.cache_clear()
    assert code_version("a_room") != before


def test_a_moved_file_changes_the_version_and_a_cached_one_does_not(package: Path) -> None:
    before = code_version("a_room")
    (package / "inner/__pycache__").mkdir()
    (package / "inner/__pycache__/two.pyc").write_bytes(b"compiled")
    code_version.cache_clear()
    assert code_version("a_room") == before
    (package / "inner/two.py").rename(package / "two.py")
    code_version.cache_clear()
    assert code_version("a_room") != before
