"""The run folder: its lock and its format.

<run>/manifest.json                 the run and its results; `format` is the folder's
<run>/dialogues.jsonl               the normalised input of this run
<run>/quarantine.jsonl              rows that could not be read
<run>/<stage>/<fingerprint>/        rows of a stage, see `storage.stage_rows`
<run>/export/<trainer>/             training files
<run>/replies.sqlite                every reply, see `storage.store`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import filelock
import orjson

from curate.errors import CurateError, RunLockedError
from curate.records import RUN_FORMAT
from curate.storage.whole_files import disk_error, make_folder, write_atomically

MANIFEST: Final = "manifest.json"
REPLIES: Final = "replies.sqlite"


class RunFolder:
    """One run's folder, locked by one writing process.

    Raises:
        RunLockedError: on entering, when another process has locked it.
        CurateError: on entering, when it has another format or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path / ".lock", mode=0o600)

    def __enter__(self) -> RunFolder:
        try:
            make_folder(self.path)
            self._lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise RunLockedError(
                f"another process is writing {self.path}",
                expected="one writer per run folder",
                fix="wait for it to end, or name another folder with --out",
            ) from error
        except OSError as error:
            raise disk_error(self.path, error) from error
        try:
            check_format(self.path)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @property
    def manifest_path(self) -> Path:
        """Return the path of the manifest."""
        return self.path / MANIFEST

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest as a whole."""
        write_atomically(
            self.manifest_path,
            orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n",
        )


def check_format(run: Path) -> None:
    """Raise if another version of curate wrote the folder; a folder without a run, or with a damaged manifest, passes.

    Raises:
        CurateError: says what to do.
    """
    try:
        manifest = orjson.loads((run / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError, orjson.JSONDecodeError):
        return
    if isinstance(manifest, dict):
        refuse_format(run, manifest.get("format", 1))


def refuse_format(run: Path | str, stored: object) -> None:
    """Raise if a run's format differs from this version's.

    Raises:
        CurateError: says what to do.
    """
    if stored == RUN_FORMAT:
        return
    age = "an older" if isinstance(stored, int) and stored < RUN_FORMAT else "another"
    raise CurateError(
        f"the run in {run} was written by {age} version of curate",
        got=f"format {stored}",
        expected=f"format {RUN_FORMAT}",
        fix="run the recipe into a new folder (--out), or use the version of curate that wrote this one",
    )
