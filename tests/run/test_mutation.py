"""Whatever curate reads, changed at random: a named error or a sound reading, never a traceback, never a hang.

A few seeds each in every run of the tests; `make soak` takes `CURATE_MUTATIONS` of them. `tests/corpus` holds inputs that
a search by coverage found (`scripts/fuzz.py`).
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from typer.testing import CliRunner

from curate.cli import app
from curate.errors import CurateError
from curate.recipe import load_recipe
from curate.run.diff import diff_runs
from curate.run.ingest import read_sources
from curate.run.pipeline import open_sources, run_recipe
from curate.run.read_back import read_judged, read_manifest, read_table
from curate.run.trust_reports import trust_sentences
from curate.run.verify import verify_run
from tests.inputs import Kind, kinds
from tests.mutation import mutate
from tests.run.test_damage import complaint
from tests.run.test_determinism import OF_THE_PROCESS
from tests.run.test_verify import contents, every_stage, finished, server  # noqa: F401 (fixtures)
from tests.servers import CountingServer

MUTATIONS = int(os.environ.get("CURATE_MUTATIONS", "24"))
ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
KINDS = kinds()
SECONDS = 2  # of processor time that an input may take
RUN_SECONDS = 30  # and a command over a whole run; a hang takes for ever
MEBIBYTES = 256  # that an input of some kilobytes may add to what the process holds


@contextmanager
def no_hang(what: str, seconds: float = RUN_SECONDS) -> Iterator[None]:
    """Fail on what takes more processor time, in whatever thread, or a hundred times as long on the clock."""

    def stop(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"hangs on {what}")

    before = [(one, signal.signal(one, stop)) for one in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 100 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for one, handler in before:
            signal.signal(one, handler)


@contextmanager
def small(what: str) -> Iterator[None]:
    """Fail on what adds more than so much to the process's memory, even for a moment."""
    status = Path("/proc/self/status")
    if not status.exists():
        yield
        return
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is held now
    before = _held(status, "VmRSS")
    yield
    assert (more := _held(status, "VmHWM") - before) < MEBIBYTES, f"{more} MiB for {what}"


def _held(status: Path, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", status.read_text())
    assert found is not None
    return int(found[1]) >> 10


def read_input(kind: Kind, path: Path, what: str) -> CurateError | None:
    """Read an input within its bounds; return what is said against it."""
    with small(what), no_hang(what, SECONDS):
        refusal = complaint(lambda: kind.read(path))
    if refusal is not None:
        assert refusal.fix or refusal.expected or refusal.got, f"{what}: {refusal}"
    return refusal


@pytest.mark.parametrize("name", KINDS)
def test_mutated_inputs(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    path = tmp_path / kind.name
    readable = []
    for (
        example
    ) in kind.examples:  # unchanged first: modules and libraries are loaded with the first input
        path.write_bytes(example)
        readable.append(complaint(lambda: kind.read(path)) is None)
    assert any(readable)
    refused = 0
    for seed in range(MUTATIONS):
        draw = random.Random(f"{name} {seed}")
        path.write_bytes(mutate(draw.choice(kind.examples), draw))
        refused += read_input(kind, path, f"seed {seed} of {name}") is not None
    if name not in ("replies", "wire", "training rows"):  # where a fault is data
        assert refused


@pytest.mark.parametrize("name", [name for name in KINDS if (CORPUS / name).is_dir()])
def test_inputs_that_a_search_by_coverage_found(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    path = tmp_path / kind.name
    path.write_bytes(kind.examples[0])
    complaint(lambda: kind.read(path))
    for found in sorted((CORPUS / name).iterdir()):
        path.write_bytes(found.read_bytes())
        read_input(kind, path, f"{name}/{found.name}")


def test_every_row_of_a_mutated_source_is_accounted_for(tmp_path: Path) -> None:
    sample = (ROOT / "recipes/sample/support.jsonl").read_bytes()
    path = tmp_path / "chats.jsonl"
    read = 0
    for seed in range(MUTATIONS):
        path.write_bytes(mutate(sample, random.Random(f"source {seed}")))
        with no_hang(f"seed {seed}"):
            try:
                sources = open_sources(
                    load_recipe(ROOT / "recipes/quickstart.yaml", [f"source={{path: {path}}}"])
                )
                reports = read_sources(sources, tmp_path / "run", role=None, scenario=None)
            except CurateError:
                continue
        read += 1
        tally = reports[0].tally
        assert tally.rows_in == tally.rows_used + tally.quarantined
        lines = (tmp_path / "run/quarantine.jsonl").read_bytes().splitlines()
        assert len(lines) == tally.quarantined
    assert read > MUTATIONS / 4


def shuffled_files(run: Path) -> list[str]:
    """Whatever files a run of every stage has, in an order that mixes them."""
    files = (path for path in sorted(run.rglob("*")) if path.is_file() and path.stat().st_size)
    names = [str(path.relative_to(run)) for path in files if path.name != ".lock"]
    random.Random("files").shuffle(names)
    return names


def test_every_file_of_a_run_corrupted_at_random(finished: Path, tmp_path: Path) -> None:  # noqa: F811
    """Each reader either reads it or names it; nothing is repaired behind the reader's back."""
    names = [
        str(path.relative_to(finished))
        for path in sorted(finished.rglob("*"))
        if path.is_file() and path.name != ".lock" and path.stat().st_size
    ]
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    for seed in range(MUTATIONS):
        draw = random.Random(f"run {seed}")
        name = draw.choice(names)
        whole = (run / name).read_bytes()
        (run / name).write_bytes(mutate(whole, draw))
        readers: list[Callable[[], object]] = [
            lambda: list(read_table(run)),
            lambda: read_judged(run, "chat-2"),
            lambda: diff_runs(finished, run),
            lambda: trust_sentences(run, read_manifest(run).fingerprints),
        ]
        if seed % 4 == 0:
            readers.append(lambda: verify_run(run))
        for reader in readers:
            with no_hang(f"seed {seed} of {name}"):
                said = complaint(reader)
            if said is not None:
                assert said.fix or said.expected or said.got, f"{name}: {said}"
        for beside in run.glob("replies.sqlite-*"):
            beside.unlink()
        (run / name).write_bytes(whole)


def reading_commands(run: Path, gold: Path, out: Path) -> list[list[str]]:
    """Every command that reads a run and asks no model."""
    commands: list[list[object]] = [
        ["show", run],
        ["show", run, "chat-2"],
        ["show", run, "--json"],
        ["report", run, "--out", out / "page.html"],
        ["show", run, "--where", "mean_score > 2", "--verbose"],
        ["agreement", run, gold],
        ["certify", run, gold, "--bad", "human < 3", "--out", out / "certificate.json"],
        ["calibrate", run, gold, "--out", out / "calibration.json"],
        ["audit", run],
        ["sample", run, "--of", "all", "-n", "5", "--out", out / "label.csv"],
        ["sample", run, "--of", "pairs", "-n", "5", "--out", out / "label.csv"],
        ["push", run, "me/set", "--license", "mit", "--dry-run"],
        ["verify", run],
        ["runs", run.parent],
        ["diff", run, run],
        ["check", run / "export" / "trl" / "sft.jsonl", "--for", "trl"],
    ]
    return [list(map(str, command)) for command in commands]


def test_commands_that_read_a_run_with_a_corrupted_file(
    finished: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Each ends by itself: with what it found, or with an error that says what to do."""
    gold, out = tmp_path / "gold.csv", tmp_path / "out"
    out.mkdir()
    dialogues = range(8)
    gold.write_text(
        "id,turn,dimension,value\n"
        + "".join(f"chat-{n},1,helpfulness,{1 + n % 5}\n" for n in dialogues)
        + "".join(f"chat-{n},,human,{1 + n % 5}\n" for n in dialogues)
    )
    names, runner = shuffled_files(finished), CliRunner()
    for seed in range(MUTATIONS):
        name = names[seed % len(names)]
        run = Path(shutil.copytree(finished, tmp_path / "runs" / "run"))
        (run / name).write_bytes(
            mutate((run / name).read_bytes(), random.Random(f"commands {seed}"))
        )
        # Two at a time; the others when the files come round again.
        first = (seed + seed // len(names)) % 8
        for command in reading_commands(run, gold, out)[first::8]:
            with no_hang(f"{command[0]}, seed {seed} of {name}"):
                said = runner.invoke(app, command)
            error = said.exception
            assert isinstance(error, CurateError | SystemExit | None), (command, name, seed, error)
            if isinstance(error, CurateError):
                assert error.fix or error.expected or error.got, (command, name, seed, error)
        shutil.rmtree(run)


def test_a_run_goes_on_whatever_file_of_it_is_corrupted(
    server: CountingServer,  # noqa: F811
    finished: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """What a run makes is made again as it was, and nobody is asked; what is people's alone is named, or left as it is."""
    planned = every_stage(server, finished.parent)
    names, whole = shuffled_files(finished), contents(finished)
    for seed in range(MUTATIONS // 4):
        name = names[seed % len(names)]
        run = Path(shutil.copytree(finished, tmp_path / str(seed)))
        (run / name).write_bytes(mutate(whole[name], random.Random(f"again {seed}")))
        before = len(server.requests)
        with no_hang(f"seed {seed} of {name}"):
            said = complaint(lambda: run_recipe(planned, out=run))  # noqa: B023 (called at once)
        if said is not None:
            assert said.fix, f"seed {seed} of {name}: {said}"
            assert name == "manifest.json" or name.startswith(PEOPLES), f"seed {seed}: {said}"
            continue
        assert read_manifest(run).status == "done", f"seed {seed} of {name}"
        asked = sum("chat " in json.dumps(body) for body in server.requests[before:])
        assert asked == 0 or name == "replies.sqlite", f"seed {seed} of {name}"
        now = contents(run)
        different = {other for other in whole if now.get(other) != whole[other]}
        assert {other for other in different if not other.endswith(OF_THE_PROCESS)} <= (
            {name} if name.startswith(PEOPLES) else set()
        ), f"seed {seed} of {name}"
        shutil.rmtree(run)


PEOPLES = ("trust/", "replies.sqlite")
"""What no run can make: people's labels with what they certify, and models' replies."""
