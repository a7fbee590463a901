"""The run folder: rows survive, the newest wins, one writer."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import CurateError, RunLockedError
from curate.storage import store
from curate.storage.store import RunFolder, StageRows, fingerprint, stored_record


def open_rows(folder: Path) -> StageRows[dict[str, int]]:
    return StageRows(folder, dump=orjson.dumps, load=orjson.loads, check=orjson.loads)


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


def test_rows_are_forgotten_by_what_they_hold(tmp_path: Path) -> None:
    rows = open_rows(tmp_path)
    for key, x in (("a", 1), ("b", 2), ("c", 2)):
        rows.append(key, {"x": x})
    rows.compact()
    assert rows.forget_where(lambda row: row["x"] == 2) == {"b", "c"}
    assert [key in rows.keys for key in "abc"] == [True, False, False]


def test_a_damaged_table_of_rows_is_owed_again_and_named(tmp_path: Path) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    rows.compact()
    whole = tmp_path / "rows.parquet"
    for cut in (40, 0):
        whole.write_bytes(whole.read_bytes()[:cut])
        with pytest.raises(
            CurateError, match=r"rows.parquet is damaged[^:]*got:[^$]*do: move it away"
        ):
            stored_record(tmp_path, "a")
        again = open_rows(tmp_path)
        assert again.keys == set()
        assert "rows.parquet" in str(again.damage_note)
    again.append("a", {"x": 1})
    again.compact()
    assert open_rows(tmp_path).damage_note is None
    assert stored_record(tmp_path, "a") == b'{"x":1}'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"key": "b"}', "record"),
        ('{"key": "b", "record": 3}', "text"),
        ("[]", "list indices"),
        ('{"key": "b", "record": "{}", "crc": 1}', "checksum"),
        ('{"key": "b", "rec', "part-0001"),
        ('{"key": "b", "record": "{"}', "row b"),
    ],
)
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_damaged_row_is_owed_again_and_named_with_file_and_line(
    tmp_path: Path, line: str, said: str, is_compacted: bool
) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    if is_compacted:
        rows.compact()
    rows.close()
    part = tmp_path / "part-0001.jsonl"
    with part.open("a") as file:
        file.write(f"{line}\n")
    again = open_rows(tmp_path)
    assert again.keys == {"a"}
    assert said in str(again.damage_note)
    assert "row b" in said or f"part-0001.jsonl:{1 + (not is_compacted)}" in str(again.damage_note)
    again.append("c", {"x": 3})
    keys = pl.Series(["c", "b", "a"])
    again.compact(keys)
    assert list(again.aligned(keys)) == [{"x": 3}, None, {"x": 1}]
    assert dict(open_rows(tmp_path).read()) == {"a": {"x": 1}, "c": {"x": 3}}
    assert open_rows(tmp_path).damage_note is None


def test_a_row_with_another_digit_does_not_pass_for_the_one_that_was_written(
    tmp_path: Path,
) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    rows.close()
    part = tmp_path / "part-0001.jsonl"
    part.write_bytes(part.read_bytes().replace(b"1}", b"2}"))
    assert open_rows(tmp_path).keys == set()


def test_rows_without_checksums_are_read(tmp_path: Path) -> None:
    """Older runs have none."""
    (tmp_path / "part-0001.jsonl").write_text('{"key": "a", "record": "{\\"x\\": 1}"}\n')
    assert dict(open_rows(tmp_path).read()) == {"a": {"x": 1}}


def test_a_table_that_may_not_be_read_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    rows.compact()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", refuse)
    with pytest.raises(PermissionError):
        open_rows(tmp_path)


@settings(deadline=None, max_examples=50)
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
from curate.storage.store import RunFolder
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


def test_a_fingerprint_depends_on_values_not_on_key_order() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


# ---- rows in the order of the dialogues


KEYS = st.lists(st.sampled_from("abcdef"), max_size=12)


@settings(deadline=None, max_examples=50)
@given(stored=KEYS, order=KEYS, wanted=st.lists(st.booleans(), min_size=12, max_size=12))
def test_rows_come_aligned_with_the_dialogues(
    tmp_path_factory: pytest.TempPathFactory,
    stored: list[str],
    order: list[str],
    wanted: list[bool],
) -> None:
    rows, expected = open_rows(tmp_path_factory.mktemp("rows")), {}
    for place, key in enumerate(stored):
        rows.append(key, {"x": place})
        expected[key] = {"x": place}
    rows.compact(order)
    keys = pl.Series(order, dtype=pl.String)
    assert list(rows.aligned(keys)) == [expected.get(key) for key in order]
    mask = wanted[: len(order)]
    some = list(rows.aligned(keys, pl.Series(mask, dtype=pl.Boolean)))
    assert some == [
        expected.get(key) for key, is_wanted in zip(order, mask, strict=True) if is_wanted
    ]
    # Another order of the dialogues, no new row: the next run has its rows in that one.
    rows.compact(list(reversed(order)))
    assert list(rows.aligned(keys.reverse())) == [expected.get(key) for key in reversed(order)]


def test_rows_out_of_order_are_refused_rather_than_mixed_up(tmp_path: Path) -> None:
    rows = open_rows(tmp_path)
    for place, key in enumerate("ab"):
        rows.append(key, {"x": place})
    rows.compact(["a", "b"])
    with pytest.raises(ValueError, match="another order"):
        list(rows.aligned(pl.Series(["b", "a"])))


def test_rows_of_another_folder_are_taken_over_where_there_is_none(tmp_path: Path) -> None:
    theirs, ours = open_rows(tmp_path / "theirs"), open_rows(tmp_path / "ours")
    for key in "abc":
        theirs.append(key, {"x": 1})
    ours.append("a", {"x": 2})
    ours.adopt(theirs, pl.Series(["a", "b"]))
    assert dict(ours.read()) == {"a": {"x": 2}, "b": {"x": 1}}
    assert stored_record(tmp_path / "ours", "b") == b'{"x":1}'
    ours.compact()
    assert stored_record(tmp_path / "ours", "a") == b'{"x":2}'
    assert stored_record(tmp_path / "ours", "c") is None


class Held:
    """A record that knows how many of its kind are alive."""

    alive = most = 0

    def __init__(self, data: bytes) -> None:
        Held.alive += 1
        Held.most = max(Held.most, Held.alive)

    def __del__(self) -> None:
        Held.alive -= 1


def test_reading_rows_holds_one_at_a_time(tmp_path: Path) -> None:
    rows: StageRows[Held] = StageRows(tmp_path, dump=lambda _: b"{}", load=Held)
    keys = [str(number) for number in range(500)]
    for key in keys:
        rows.append(key, Held(b""))
    rows.compact(keys)
    for read in (rows.read, lambda: rows.aligned(pl.Series(keys))):
        Held.most = 0
        for _ in read():
            pass
        assert Held.most <= 2


def test_compacting_sorts_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_SORTED", 20)
    monkeypatch.setattr(store, "_BATCH", 10)
    rows = open_rows(tmp_path)
    keys = [f"{number * 7919 % 400:04d}" for number in range(400)]
    for key in keys:
        rows.append(key, {key * 2_000: 1})  # 8 KB, 3.2 MB in all
    rows.close()
    tracemalloc.start()
    rows.compact(sorted(keys))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_500_000
    assert [key for key, _ in rows.read()] == sorted(keys)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


# ---- tables made of frames
