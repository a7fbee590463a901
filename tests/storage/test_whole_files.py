"""Whole files: what a kill, a failure or a full disk leaves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from curate.errors import CurateError
from curate.storage.whole_files import atomic_file, write_atomically


def test_an_atomic_write_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(CurateError):
        write_atomically(tmp_path / "taken", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_folder_that_becomes_read_only_in_a_write_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CurateError, match=r"cannot write .*table"):
        write_atomically(tmp_path / "table", b"x")


def test_what_a_killed_process_left_of_a_file_goes_with_the_next_write(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = tmp_path / f".table.{gone.pid}"
    kept = [tmp_path / f".table.{os.getppid()}", tmp_path / f".other.{gone.pid}"]
    for path in (left, *kept):
        path.write_bytes(b"half")
    write_atomically(tmp_path / "table", b"whole")
    assert set(tmp_path.iterdir()) == {tmp_path / "table", *kept}


def test_a_file_that_is_not_finished_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"old")

    def fail() -> None:
        with atomic_file(path) as out:
            out.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["lines"]
