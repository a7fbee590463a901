"""A run folder whose files a disk or an editor has damaged: rebuilt, or named with what to do; never a traceback."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from curate.errors import CurateError
from curate.publishing.push import PushOptions, prepare_push
from curate.recipe import Recipe
from curate.run.audit import audit_run
from curate.run.pipeline import run_recipe
from curate.run.plan import make_plan
from curate.run.read_back import read_judged, read_manifest, read_table, unscored_example
from curate.run.report import write_report
from curate.storage.stage_rows import StageRows
from tests.live import live_server
from tests.run.test_pipeline import chat, recipe, write_rows
from tests.servers import CountingServer

READ_BACK = (
    "manifest.json",
    "dialogues.jsonl",
    "dialogues.parquet",
    "scores.parquet",
    "judge/*/rows.parquet",
    "adherence/*/rows.parquet",
    "fork/*/rows.parquet",
    "select/decisions.jsonl",
    "select/sft.jsonl",
    "pairs/dropped_pairs.jsonl",
    "export/trl/sft.parquet",
    "export/trl/sft_provenance.parquet",
)


def flip(data: bytes, draw: random.Random) -> bytes:
    """Some bytes become others."""
    changed = bytearray(data)
    for _ in range(6):
        changed[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    return bytes(changed)


def cut(data: bytes, draw: random.Random) -> bytes:
    """The end is missing."""
    return data[: draw.randrange(len(data))]


def blank(data: bytes, draw: random.Random) -> bytes:
    """A block was never written."""
    start = draw.randrange(len(data))
    return data[:start] + bytes(len(data[start : start + 300])) + data[start + 300 :]


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    with live_server() as running:
        yield running


@pytest.fixture(scope="module")
def planned(server: CountingServer, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    data = tmp_path_factory.mktemp("data") / "chats.jsonl"
    write_rows(data, [chat(number, turns=1 + number % 3) for number in range(5)])
    return recipe(
        server,
        data,
        fork={"resamples": 1, "where": "1 = 1"},
        select={"where": {"any": "1 = 1"}},
        export={"trainers": ["trl"]},
    )


@pytest.fixture(scope="module")
def finished(planned: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run_recipe(planned, out=folder).exit_code == 0
    return folder


def results(run: Path) -> dict[str, object]:
    """What a run made, the order of its rows and what they say."""
    files = [*run.glob("export/trl/*.jsonl"), *run.glob("pairs/*.jsonl"), *run.glob("select/*")]
    assert files
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def dialogues_asked_about(server: CountingServer) -> int:
    return sum("chat " in json.dumps(body["messages"]) for body in server.requests)


def reads(run: Path, planned: Recipe) -> list[Callable[[], object]]:
    """Whatever reads a run folder back."""
    return [
        lambda: list(read_table(run)),
        lambda: read_judged(run, "chat-2"),
        lambda: unscored_example(run, read_manifest(run), "judge"),
        lambda: write_report(run, run.parent / "page.html"),
        lambda: audit_run(run),
        lambda: prepare_push(run, "me/set", PushOptions(licences=("cc0-1.0",))),
        lambda: asyncio.run(make_plan(planned, out=run)),
    ]


def complaint(read: Callable[[], object]) -> CurateError | None:
    try:
        read()
    except CurateError as error:
        return error
    return None


@pytest.mark.parametrize("damage", [flip, cut, blank])
@pytest.mark.parametrize("name", READ_BACK)
def test_a_damaged_file_of_a_finished_run(
    name: str,
    damage: Callable[[bytes, random.Random], bytes],
    planned: Recipe,
    finished: Path,
    server: CountingServer,
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    [path] = run.glob(name)
    path.write_bytes(damage(path.read_bytes(), random.Random(f"{name} {damage.__name__}")))
    for read in reads(run, planned):
        said = complaint(read)
        if said is not None:
            assert said.fix
            assert path.name in str(said) or path.parent.name in str(said)
    before = dialogues_asked_about(server)
    result = run_recipe(planned, out=run)
    assert result.exit_code == 0
    assert dialogues_asked_about(server) == before
    assert results(run) == results(finished)
    warnings = [said for said in result.manifest.warnings if "damaged" in said]
    if "rows.parquet" in name and damage is cut:  # the others may hit what nobody reads
        [warning] = warnings
        assert "rows.parquet" in warning
        assert "made again" in warning
    if warnings:  # once: what was damaged is whole again
        again = run_recipe(planned, out=run)
        assert not any("damaged" in said for said in again.manifest.warnings)


@pytest.mark.parametrize("damage", [flip, cut, blank])
@pytest.mark.parametrize("stage", ["judge", "adherence", "fork"])
def test_a_damaged_row_of_a_run_that_was_stopped(
    stage: str,
    damage: Callable[[bytes, random.Random], bytes],
    planned: Recipe,
    finished: Path,
    server: CountingServer,
    tmp_path: Path,
) -> None:
    """Its rows lie in a store."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    [table] = run.glob(f"{stage}/*/rows.parquet")
    rows = StageRows(table.parent, dump=bytes, load=bytes)
    held = list(rows.read())
    table.unlink()
    for key, record in held:
        rows.append(key, record)
    rows.close()
    [part] = table.parent.iterdir()
    part.write_bytes(damage(part.read_bytes(), random.Random(f"{stage} {damage.__name__}")))
    before = dialogues_asked_about(server)
    result = run_recipe(planned, out=run)
    assert result.exit_code == 0
    assert dialogues_asked_about(server) == before
    assert results(run) == results(finished)
    if damage is cut:  # the others may hit what nobody reads
        assert any(part.name in said for said in result.manifest.warnings)


def test_damaged_scores_do_not_stop_an_estimate(
    planned: Recipe, finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "scores.parquet").write_bytes(b"no table")
    plan = asyncio.run(make_plan(planned, out=run))
    assert plan.estimate is not None
    assert any("scores.parquet is damaged" in said for said in plan.estimate.assumptions)
