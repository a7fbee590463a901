"""The folders that are listed as runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.errors import UsageError
from curate.run.run_list import list_runs


def put(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{broken")
    return folder


def test_runs_are_looked_for_three_levels_down_and_not_in_runs_or_hidden_folders(
    tmp_path: Path,
) -> None:
    near, far = put(tmp_path / "b"), put(tmp_path / "a" / "x" / "y")
    put(near / "within")
    put(tmp_path / ".hidden")
    put(tmp_path / "a" / "x" / "z" / "too-far")
    (tmp_path / "a-file").write_text("")
    listed = list_runs(tmp_path)
    assert [run.folder for run in listed] == [far, near]
    assert all(run.manifest is None and "manifest.json" in run.problem for run in listed)
    assert [run.folder for run in list_runs(near)] == [near]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        list_runs(tmp_path / "gone")
    assert "no such folder" in str(caught.value)
    assert "expected: a folder with runs in it" in str(caught.value)
    with pytest.raises(UsageError) as caught:
        list_runs(tmp_path)
    assert "no run in this folder" in str(caught.value)
    assert "expected: folders with a manifest.json, at most 3 levels down" in str(caught.value)
