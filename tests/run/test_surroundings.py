"""The surroundings of a run fail at some moment: the disk, the clock.

A disk that is full, read-only or broken ends a command with one plain sentence, and the same command goes on. Where a
process may mount a file system for itself, the disk is a real one of a few KiB, full for every library. Folders become
read-only under a process that is at work. And any one opening, renaming or removing of a file is refused.
"""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from curate.run.read_back import read_manifest
from tests.hub_server import HubServer
from tests.moments import Jumping, ReadOnly, Refused, SmallDisk, may_mount, set_writable
from tests.run.test_kill import (  # noqa: F401 (fixtures)
    NAME,
    STAGES,
    Commands,
    Undisturbed,
    data,
    hub,
    server,
    undisturbed,
)
from tests.servers import CountingServer

FAULTS = int(os.environ.get("CURATE_DISK_FAULTS", "3"))  # of each kind; `make soak` takes more
Fault = Callable[[], None]


@pytest.fixture(scope="module")
def quiet(
    server: CountingServer,  # noqa: F811
    hub: HubServer,  # noqa: F811
    data: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Undisturbed:
    return undisturbed(tmp_path_factory.mktemp("quiet"), data, server, hub, "json")


def small_disk(again: Commands, stage: str, quiet: Undisturbed, draw: random.Random) -> Fault:
    """Room for what is there, and for a part of what the command writes."""
    before = sum(path.stat().st_size for path in again.folder.rglob("*")) // 1024
    after = sum(map(len, quiet.made[STAGES[stage]].values())) // 1024
    return SmallDisk(again.folder, before + 64 + draw.randrange(max(after - before, 64)))


def read_only(again: Commands, stage: str, quiet: Undisturbed, draw: random.Random) -> Fault:
    return ReadOnly(again.folder, stage, draw.uniform(0, quiet.seconds[stage]))


def refused(again: Commands, stage: str, quiet: Undisturbed, draw: random.Random) -> Fault:
    kind = draw.choice((errno.EIO, errno.EROFS, errno.ENOSPC, errno.EACCES, errno.EDQUOT))
    at = draw.randrange(1, 150 if STAGES[stage] == "run" else 30)
    return Refused(NAME, at, kind, lasts=draw.random() < 0.5)


@pytest.mark.parametrize("make_fault", [small_disk, read_only, refused])
def test_a_disk_that_refuses(
    quiet: Undisturbed, tmp_path: Path, make_fault: Callable[..., Fault]
) -> None:
    if make_fault is small_disk and not may_mount():
        pytest.skip("a process may not mount a file system for itself here")
    ended: Counter[str] = Counter()
    for number in range(FAULTS):
        draw = random.Random(f"{make_fault.__name__} {number}")
        stage = list(STAGES)[(number * 4 + number // len(STAGES)) % len(STAGES)]
        command = STAGES[stage]
        again = quiet.again(command, tmp_path / str(number))
        fault = make_fault(again, stage, quiet, draw)
        print(f"{stage}: {fault}", flush=True)  # shown where it fails
        done = again.start(command, fault).wait()
        set_writable(again.folder, True)
        in_flight = quiet.in_flight(again)
        if done.returncode:
            output = done.stdout + done.stderr
            assert done.returncode == 1, output
            assert "Traceback" not in output
            assert re.search(r"error: .+\n(.+\n)*.*do: ", done.stderr), output
            assert re.search(r"runs/killed|calibration\.json", " ".join(done.stderr.split())), (
                output
            )
            ended[stage] += 1
            again.finish(command)
        quiet.check(again, command, in_flight)
        shutil.rmtree(again.folder)
    print(f"{ended.total()} ended: " + ", ".join(f"{stage} {n}" for stage, n in ended.items()))
    assert ended.total() > FAULTS // 4


@pytest.mark.parametrize("hours", [(5.0, -9.0, 26.0, -30.0), (-7.5,), (11.0,)])
def test_a_clock_that_jumps_in_every_stage(
    quiet: Undisturbed, tmp_path: Path, hours: tuple[float, ...]
) -> None:
    again, began = quiet.again("run", tmp_path / "jumped"), time.monotonic()
    done = again.start("run", Jumping(hours)).wait()
    lasted = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = read_manifest(again.folder / NAME)
    assert manifest.finished is not None
    assert manifest.started <= manifest.finished
    assert 0 <= manifest.seconds <= lasted
    assert all(0 <= spent <= lasted for spent in manifest.seconds_by_stage.values())
    assert not re.search(r"-\d[\d.,]*(/s| s| min| h)\b", done.stdout + done.stderr)
    quiet.check(again, "run", 0)
