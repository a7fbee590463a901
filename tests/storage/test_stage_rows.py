"""The rows of a stage: they survive, the newest wins, and they come in the order of the dialogues."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import CurateError
from curate.storage import stage_rows as module
from curate.storage.stage_rows import StageRows, fingerprint, stored_record
from curate.storage.store import Store


def open_rows(folder: Path) -> StageRows[dict[str, int]]:
    return StageRows(folder, dump=orjson.dumps, load=orjson.loads, check=orjson.loads)


def test_rows_are_read_back_by_another_process_before_and_after_compaction(tmp_path: Path) -> None:
    rows = open_rows(tmp_path)
    rows.append("b", {"x": 1})
    rows.append("a", {"x": 2})
    rows.close()
    assert dict(open_rows(tmp_path).read()) == {"b": {"x": 1}, "a": {"x": 2}}
    rows.compact(order=["b", "a"])
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
    assert list(open_rows(tmp_path).read()) == [("b", {"x": 1}), ("a", {"x": 2})]


def test_rows_are_written_some_at_a_time_and_a_kill_costs_the_last_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH", 3)
    rows = open_rows(tmp_path)
    for place, key in enumerate("abcde"):
        rows.append(key, {"x": place})
    assert set(open_rows(tmp_path).done()) == {"a", "b", "c"}
    assert set(rows.done()) == {"a", "b", "c", "d", "e"}
    rows.close()
    assert set(open_rows(tmp_path).done()) == {"a", "b", "c", "d", "e"}


def test_a_row_is_written_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.5, 1.1])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    assert set(open_rows(tmp_path).done()) == set()
    rows.append("b", {"x": 2})
    assert set(open_rows(tmp_path).done()) == {"a", "b"}


def test_a_forgotten_row_stays_until_it_is_replaced(tmp_path: Path) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    rows.compact()
    rows.forget(["a"])
    assert "a" not in set(rows.done())
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
    assert [key in set(rows.done()) for key in "abc"] == [True, False, False]


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
        assert set(again.done()) == set()
        assert "rows.parquet" in str(again.damage_note)
    again.append("a", {"x": 1})
    again.compact()
    assert open_rows(tmp_path).damage_note is None
    assert stored_record(tmp_path, "a") == b'{"x":1}'


def put(folder: Path, key: str, record: bytes, *, is_flipped: bool = False) -> None:
    """A row as an earlier process left it."""
    with Store(folder / "rows.sqlite") as store:
        store.put([(key, record)])
        if is_flipped:
            query = "UPDATE kept SET value = ? WHERE key = ?"
            store._base.execute(query, (record.replace(b"1", b"2"), key.encode()))


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize(
    ("record", "is_flipped", "said"),
    [(b'{"x":1}', True, "1 rows do not match their checksums"), (b"{", False, "row b")],
)
def test_a_damaged_row_is_owed_again_and_named(
    tmp_path: Path, record: bytes, is_flipped: bool, said: str, is_compacted: bool
) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    if is_compacted:
        rows.compact()
    rows.close()
    put(tmp_path, "b", record, is_flipped=is_flipped)
    again = open_rows(tmp_path)
    assert set(again.done()) == {"a"}
    assert said in str(again.damage_note)
    again.append("c", {"x": 3})
    keys = pl.Series(["c", "b", "a"])
    assert dict(again.read()) == {"a": {"x": 1}, "c": {"x": 3}}
    again.compact(keys)
    assert list(again.aligned(keys)) == [{"x": 3}, None, {"x": 1}]
    assert dict(open_rows(tmp_path).read()) == {"a": {"x": 1}, "c": {"x": 3}}
    assert open_rows(tmp_path).damage_note is None


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_damaged_row_hides_no_older_one(tmp_path: Path, is_compacted: bool) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    rows.append("b", {"x": 2})
    if is_compacted:
        rows.compact()
    rows.close()
    put(tmp_path, "b", b"{")
    again = open_rows(tmp_path)
    expected = {"a": {"x": 1}} | ({"b": {"x": 2}} if is_compacted else {})
    assert dict(again.read()) == expected
    again.append("b", {"x": 3})
    assert dict(again.read()) == {"a": {"x": 1}, "b": {"x": 3}}
    again.compact()
    assert dict(open_rows(tmp_path).read()) == {"a": {"x": 1}, "b": {"x": 3}}


@pytest.mark.parametrize("content", [b"", b"no database", None])
def test_rows_of_a_store_that_cannot_be_read_are_owed_again_and_named(
    tmp_path: Path, content: bytes | None
) -> None:
    rows = open_rows(tmp_path)
    rows.append("a", {"x": 1})
    rows.compact()
    for number in range(300):
        rows.append(f"{number}", {"x": number})
    rows.close()
    path = tmp_path / "rows.sqlite"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if content is None else content)
    again = open_rows(tmp_path)
    assert set(again.done()) == {"a"}
    assert content == b"" or "rows.sqlite" in str(again.damage_note)
    assert dict(again.read()) == {"a": {"x": 1}}
    again.append("b", {"x": 2})
    again.close()
    assert dict(open_rows(tmp_path).read()) == {"a": {"x": 1}, "b": {"x": 2}}
    again.compact()
    assert dict(open_rows(tmp_path).read()) == {"a": {"x": 1}, "b": {"x": 2}}


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
    assert set(rows.done()) == expected.keys()
    rows.close()


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


def test_compacting_holds_a_few_rows_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GROUP", 20)
    monkeypatch.setattr(module, "_BATCH", 10)
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
