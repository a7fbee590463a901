"""Tables made of frames: one table in the end, the old one where it fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.errors import CurateError
from curate.storage.parquet_files import FrameFile, read_frames, readable, write_table


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


def test_a_disk_that_refuses_to_remove_once_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, unlink, refused = tmp_path / "table.parquet", os.unlink, []

    def refuse_once(place: Any, **given: Any) -> None:
        if not refused and str(place).endswith("000001.parquet"):
            refused.append(place)
            raise PermissionError(13, "Permission denied", str(place))
        unlink(place, **given)

    with FrameFile(path) as table:
        table.append(pl.DataFrame({"a": [1]}))
        table.append(pl.DataFrame({"a": [2]}))
        monkeypatch.setattr(os, "unlink", refuse_once)
    assert refused
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


def test_a_disk_that_refuses_a_table_is_an_error_with_a_name(tmp_path: Path) -> None:
    """polars has an error of its own for it, which is no OSError."""
    frame = pl.DataFrame({"a": range(10)})
    with pytest.raises(OSError, match="No space left"):
        write_table(frame, Path("/dev/full"))
    table = FrameFile(tmp_path / "t.parquet")
    table._parts = Path("/dev/null")
    with pytest.raises(CurateError, match="cannot write"):
        table.append(frame)


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.date64(), pa.timestamp("us"), pa.time64("us"), pa.timestamp("us", "No/Where")]
)  # fmt: skip
@pytest.mark.parametrize("reader", ["polars", "arrow"])
def test_a_time_that_is_none_is_damage_that_is_named(
    tmp_path: Path, kind: pa.DataType, reader: str
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"a": pa.array([2**31 - 1 if kind == pa.date32() else 2**62], kind)}), path
    )
    refused = False
    try:
        with readable(path):
            rows = pq.read_table(path) if reader == "arrow" else pl.scan_parquet(path).collect()
            rows.to_pylist() if reader == "arrow" else list(rows.iter_rows())
    except CurateError as error:
        refused = "a.parquet is damaged" in str(error)
    # polars reads such a time of day as null, and pyarrow a zone that it does not know as one that it cannot find
    assert refused or (reader, kind) == ("polars", pa.time64("us"))
