"""Lines, tables and whole files: what a kill, a failure or a full disk leaves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import polars as pl
import pytest

from curate.errors import CurateError
from curate.storage.files import (
    FrameFile,
    LineFile,
    atomic_file,
    read_frames,
    read_lines,
    write_atomically,
    write_table,
)


def test_a_full_disk_is_an_error_with_a_name() -> None:
    with pytest.raises(CurateError, match="No space left"), LineFile(Path("/dev/full")) as lines:
        lines.append(b"{}")


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


def test_read_lines_leaves_out_the_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"1\n\n2\n3")
    assert list(read_lines(path)) == [b"1\n", b"2\n"]


def test_frames_become_one_table_with_the_types_that_hold_them_all(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    with FrameFile(path, first=("z",)) as table:
        table.append(pl.DataFrame({"z": [1], "label_a": [1]}))
        table.append(pl.DataFrame({"z": [2], "label_b": ["x"]}))
        table.append(pl.DataFrame({"z": [3], "label_a": [0.5]}))
    whole = pl.concat(read_frames(path, 2))
    assert whole.columns == ["z", "label_a", "label_b"]
    assert whole["label_a"].to_list() == [1.0, None, 0.5]
    assert [frame.height for frame in read_frames(path, 2)] == [2, 1]
    assert [found.name for found in tmp_path.iterdir()] == ["table.parquet"]


def test_a_table_that_is_not_finished_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    with FrameFile(path) as table:
        table.append(pl.DataFrame({"a": [1]}))

    def fail() -> None:
        with FrameFile(path) as table:
            table.append(pl.DataFrame({"a": [2]}))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert pl.read_parquet(path)["a"].to_list() == [1]
    assert [found.name for found in tmp_path.iterdir()] == ["table.parquet"]


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


def test_a_disk_that_refuses_a_table_is_an_error_with_a_name(tmp_path: Path) -> None:
    """polars has an error of its own for it, which is no OSError."""
    frame = pl.DataFrame({"a": range(10)})
    with pytest.raises(OSError, match="No space left"):
        write_table(frame, Path("/dev/full"))
    table = FrameFile(tmp_path / "t.parquet")
    table._parts = Path("/dev/null")
    with pytest.raises(CurateError, match="cannot write"):
        table.append(frame)
