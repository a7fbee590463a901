"""The run folder: rows survive, the newest wins, one writer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import CurateError, RunLockedError
from curate.store import LineFile, RunFolder, StageRows, fingerprint, read_lines, write_atomically


def open_rows(folder: Path) -> StageRows[dict[str, int]]:
    return StageRows(folder, dump=orjson.dumps, load=orjson.loads)


def test_rows_are_read_back_by_another_process_before_and_after_compaction(tmp_path: Path) -> None:
    rows = open_rows(tmp_path)
    rows.append("b", {"x": 1})
    rows.append("a", {"x": 2})
    assert dict(open_rows(tmp_path).read()) == {"b": {"x": 1}, "a": {"x": 2}}
    rows.compact(order=["b", "a"])
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
    assert list(open_rows(tmp_path).read()) == [("b", {"x": 1}), ("a", {"x": 2})]


def test_a_torn_last_line_is_owed_again(tmp_path: Path) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    rows.append("b", {"x": 2})
    rows.close()
    part = next(tmp_path.glob("part-*.jsonl"))
    part.write_bytes(part.read_bytes()[:-5])
    again = open_rows(tmp_path)
    assert again.keys == {"a"}
    again.append("b", {"x": 3})
    assert dict(open_rows(tmp_path).read()) == {"a": {"x": 1}, "b": {"x": 3}}


def test_a_forgotten_row_stays_until_it_is_replaced(tmp_path: Path) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    rows.compact()
    rows.forget(["a"])
    assert "a" not in rows.keys
    assert dict(rows.read()) == {"a": {"x": 1}}
    rows.append("a", {"x": 2})
    rows.compact()
    assert dict(open_rows(tmp_path).read()) == {"a": {"x": 2}}


def test_a_row_that_is_not_ours_is_named_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "part-0001.jsonl").write_text('{"key": "a"}\n')
    with pytest.raises(CurateError, match=r"part-0001\.jsonl:1"):
        open_rows(tmp_path)


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcd"), st.integers(0, 99)),
            st.just("compact"),
            st.just("reopen"),
        ),
        max_size=20,
    )
)
def test_whatever_happens_the_newest_row_of_each_key_is_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int] | str]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    rows, expected = open_rows(folder), {}
    for step in steps:
        if step == "compact":
            rows.compact()
        elif step == "reopen":
            rows.close()
            rows = open_rows(folder)
        else:
            key, value = step
            rows.append(key, {"x": value})
            expected[key] = {"x": value}
    assert dict(rows.read()) == expected
    assert rows.keys == expected.keys()
    rows.close()


def test_a_second_writer_is_refused_and_told_so(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from curate.errors import RunLockedError
from curate.store import RunFolder
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


def test_a_full_disk_is_an_error_with_a_name() -> None:
    with pytest.raises(CurateError, match="No space left"), LineFile(Path("/dev/full")) as lines:
        lines.append(b"{}")


def test_an_atomic_write_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(CurateError):
        write_atomically(tmp_path / "taken", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_read_lines_leaves_out_the_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"1\n\n2\n3")
    assert list(read_lines(path)) == [b"1\n", b"2\n"]


def test_a_fingerprint_depends_on_values_not_on_key_order() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
