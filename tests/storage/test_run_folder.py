"""The run folder: one writer, and one format."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from curate.errors import CurateError, RunLockedError
from curate.records import RUN_FORMAT
from curate.run.pipeline import run_recipe
from curate.run.read_back import last_manifest, read_manifest
from curate.storage.run_folder import RunFolder
from tests.live import live_server
from tests.run.test_pipeline import chat, recipe, write_rows


def test_a_second_writer_is_refused_and_told_so(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from curate.errors import RunLockedError
from curate.storage.run_folder import RunFolder
try:
    with RunFolder(Path({str(tmp_path)!r})):
        print("open")
except RunLockedError as error:
    print("refused")
"""
    with RunFolder(tmp_path):
        held = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    freed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (held.stdout.strip(), freed.stdout.strip()) == ("refused", "open")


def test_the_same_process_cannot_hold_it_twice(tmp_path: Path) -> None:
    with RunFolder(tmp_path), pytest.raises(RunLockedError), RunFolder(tmp_path):
        pass


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"name": "old", "status": "done"}, "an older version of curate"),
        ({"format": RUN_FORMAT - 1}, "an older version of curate"),
        ({"format": RUN_FORMAT + 1}, "another version of curate"),
        ({"format": "x"}, "another version of curate"),
    ],
)
def test_a_folder_of_another_format_is_refused_and_says_what_to_do(
    tmp_path: Path, manifest: dict[str, object], said: str
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for use in (lambda: RunFolder(tmp_path).__enter__(), lambda: read_manifest(tmp_path)):
        with pytest.raises(CurateError, match=rf"(?s){said}.*new folder \(--out\)"):
            use()
    with pytest.raises(CurateError, match=said):
        last_manifest(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with RunFolder(tmp_path):
        pass  # what was refused holds no lock


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_a_damaged_manifest_is_no_other_format(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with RunFolder(tmp_path):
        pass


def test_a_run_says_its_format_and_is_taken_up_again(tmp_path: Path) -> None:
    write_rows(tmp_path / "chats.jsonl", [chat(1)])
    with live_server() as server:
        made = recipe(server, tmp_path / "chats.jsonl")
        run_recipe(made, out=tmp_path / "run")
        manifest = json.loads((tmp_path / "run/manifest.json").read_text())
        assert manifest["format"] == RUN_FORMAT
        before = len(server.requests)
        assert run_recipe(made, out=tmp_path / "run").manifest.status == "done"
        del manifest["format"]
        (tmp_path / "run/manifest.json").write_text(json.dumps(manifest))
        asked = len(server.requests)
        with pytest.raises(CurateError, match="an older version"):
            run_recipe(made, out=tmp_path / "run")
        assert len(server.requests) == asked
        assert asked >= before


@pytest.mark.parametrize("below", ["", "runs/one"])
def test_a_file_in_the_way_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(CurateError, match="cannot write") as told, RunFolder(file / below):
        pass
    assert "--out" in str(told.value)
    assert file.read_text() == "mine"
