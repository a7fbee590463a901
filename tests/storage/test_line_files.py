"""Lines that outlive a kill: the torn last one is left out, and a full disk is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.errors import CurateError
from curate.storage.line_files import LineFile, read_lines


def test_a_full_disk_is_an_error_with_a_name() -> None:
    with pytest.raises(CurateError, match="No space left"), LineFile(Path("/dev/full")) as lines:
        lines.append(b"{}")


def test_read_lines_leaves_out_the_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"1\n\n2\n3")
    assert list(read_lines(path)) == [b"1\n", b"2\n"]
