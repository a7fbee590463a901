"""The one durable store: what was put is there after a kill, what is damaged counts as never put."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import CurateError
from curate.storage.store import Store, key_of


def make_key(number: int) -> str:
    return f"{number:032x}"


@settings(deadline=None, max_examples=50)
@given(
    puts=st.lists(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.binary(max_size=20)), max_size=4),
        max_size=8,
    )
)
def test_the_newest_value_of_each_key_is_there_in_the_order_it_came(
    tmp_path_factory: pytest.TempPathFactory, puts: list[list[tuple[str, bytes]]]
) -> None:
    path, expected = tmp_path_factory.mktemp("store") / "s.sqlite", dict[str, bytes]()
    with Store(path) as store:
        for entries in puts:
            store.put(entries)
            for key, value in entries:
                expected.pop(key, None)
                expected[key] = value
        assert store.get("abcdefg") == expected
        assert store.missing("abcdefg") == set("abcdefg") - expected.keys()
    with Store(path) as store:
        assert [row[1:] for row in store.items()] == list(expected.items())


def test_many_values_are_found_and_listed_in_parts(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.put((make_key(number), b"%d" % number) for number in range(2500))
        found = store.get(make_key(number) for number in range(3000))
        assert found == {make_key(number): b"%d" % number for number in range(2500)}
        first = list(store.items(most=1200))
        rest = list(store.items(after=first[-1][0]))
        assert [key for _, key, _ in first + rest] == [make_key(number) for number in range(2500)]
        assert len(first) == 1200


def test_a_value_that_replaces_the_last_has_a_new_number(tmp_path: Path) -> None:
    """Whoever copies what came since sees it again."""
    with Store(tmp_path / "s.sqlite") as store:
        store.put([("a", b"old")])
        [(number, _, _)] = store.items()
        store.put([("a", b"new")])
        assert [row[1:] for row in store.items(after=number)] == [("a", b"new")]


async def test_what_comes_in_one_round_of_the_loop_is_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts, put = list[int](), Store.put

    def counted(store: Store, entries: list[tuple[str, bytes]]) -> None:
        puts.append(len(entries))
        put(store, entries)

    monkeypatch.setattr(Store, "put", counted)
    with Store(tmp_path / "s.sqlite") as store, Store(tmp_path / "s.sqlite") as other:

        async def keep(key: str) -> None:
            await store.put_soon([(key, b"1"), (key * 2, b"2")])
            assert other.get([key, key * 2]) == {key: b"1", key * 2: b"2"}, "kept when awaited"

        await asyncio.gather(*map(keep, "abc"))
        await keep("d")
    assert puts == [6, 2]


async def test_what_nobody_waits_for_any_more_is_kept_all_the_same(tmp_path: Path) -> None:
    async def wait(store: Store) -> None:
        await store.put_soon([("a", b"1")])

    with Store(tmp_path / "s.sqlite") as store:
        waiting = asyncio.create_task(wait(store))
        await asyncio.sleep(0)
        waiting.cancel()
        await store.put_soon([("b", b"2")])
        assert waiting.cancelled()
        last = store.put_soon([("c", b"3")])
    assert last.done(), "closing puts what is left"
    with Store(tmp_path / "s.sqlite") as store:
        assert store.get("abc") == {"a": b"1", "b": b"2", "c": b"3"}


def test_without_a_path_all_is_in_memory() -> None:
    store = Store()
    store.put([("a", b"1")])
    assert store.get("a") == {"a": b"1"}


def test_closing_leaves_one_file_and_deleting_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.put([("a", b"1")])
    store.close()
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["s.sqlite"]
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        store.put([("b", b"2")])
    store = Store(tmp_path / "s.sqlite")
    store.put([("b", b"2")])
    store.delete()
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_was_put_is_lost_to_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    kept: dict[str, bytes] = {}
    for number in range(6):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.storage.store_writer", str(path), str(number)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert child.stdout is not None
        first = [child.stdout.readline() for _ in range(random.randrange(20, 500))]
        child.send_signal(signal.SIGKILL)
        said = b"".join(first) + child.stdout.read()
        child.wait()
        child.stdout.close()
        # The last line may be half written: the value it speaks of was put, so leaving it out is fair.
        for index in map(int, said.split(b"\n")[:-1]):
            kept[f"{number:016x}{index:016x}"] = f"value {number} {index} é\n".encode()
    with Store(path) as store:
        assert len(kept) > 100
        assert store.get(kept) == kept
        assert store.damaged == 0


def test_a_torn_end_of_the_log_costs_what_was_torn_and_no_more(tmp_path: Path) -> None:
    """As a kill in the middle of a write leaves it; copied, since closing would tidy it up."""
    store = Store(tmp_path / "s.sqlite")
    for number in range(5):
        store.put([(make_key(number), b"x" * 3000)])
    log = (tmp_path / "s.sqlite-wal").read_bytes()
    for name, data in (("s.sqlite", (tmp_path / "s.sqlite").read_bytes()), ("s.sqlite-wal", log)):
        copy = tmp_path / "copy" / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(data[:-100] if name.endswith("wal") else data)
    store.close()
    with Store(tmp_path / "copy/s.sqlite") as copied:
        assert [key for _, key, _ in copied.items()] == [make_key(number) for number in range(4)]
        copied.check()


@pytest.mark.parametrize(
    ("column", "found", "instead"),
    [
        ("value", b"score is 47", b"score is 17"),
        ("key", make_key(7).encode(), make_key(77).encode()),
    ],
)
def test_a_flipped_byte_costs_one_value_and_no_other(
    tmp_path: Path, column: str, found: bytes, instead: bytes
) -> None:
    path = tmp_path / "s.sqlite"
    keys = [make_key(number) for number in range(9)]
    with Store(path) as store:
        store.put((key, b"the score is 4%d" % number) for number, key in enumerate(keys))
    with sqlite3.connect(path) as connection:
        query = f"UPDATE kept SET {column} = CAST(replace({column}, ?, ?) AS BLOB) WHERE number = 8"
        connection.execute(query, (found, instead))
    connection.close()
    with Store(path) as store:
        assert set(store.get([*keys, make_key(77)])) == {*keys} - {keys[7]}
        store.get([*keys, make_key(77)])
        assert store.damaged == 1
        assert len(list(store.items())) == 8
        store.put([(keys[7], b"anew")])
        assert store.get(keys)[keys[7]] == b"anew"


def test_a_value_of_another_type_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.put([("a", b"1"), ("b", b"2"), ("c", b"3")])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE kept SET value = 17 WHERE number = 2")
        connection.execute("UPDATE kept SET value = CAST(x'ff' AS TEXT) WHERE number = 3")
    connection.close()
    with Store(path) as store:
        assert store.get("abc") == {"a": b"1"}
        assert store.damaged == 2


def test_two_processes_can_use_one(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    code = (
        "import sys; from pathlib import Path; from curate.storage.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "for number in range(200): store.put([(f'theirs {number}', b'1')])"
    )
    with Store(path) as mine:
        child = subprocess.Popen([sys.executable, "-c", code, str(path)])
        for number in range(200):
            mine.put([(f"mine {number}", b"1")])
        assert child.wait() == 0
        assert len(list(mine.items())) == 400


def test_what_another_thread_puts_is_read(tmp_path: Path) -> None:
    """As when a run folder is copied while the run goes on."""
    with Store(tmp_path / "s.sqlite") as mine, Store(tmp_path / "s.sqlite") as other:
        thread = threading.Thread(target=lambda: mine.put([("a", b"1")]))
        thread.start()
        thread.join()
        assert other.get("a") == {"a": b"1"}


def test_a_full_disk_is_named_and_nothing_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.put([("before", b"1")])
        [pages] = store._base.execute("PRAGMA page_count").fetchone()
        store._base.execute(f"PRAGMA max_page_count={pages + 1}")
        for entries in ([("large", b"x" * 50_000)], [("a", b"1"), ("large", b"x" * 50_000)]):
            with pytest.raises(CurateError, match="disk is full"):
                store.put(entries)
        store.put([("after", b"2")])
    with Store(path) as store:
        assert store.get(["before", "large", "a", "after"]) == {"before": b"1", "after": b"2"}


async def test_everybody_who_put_in_that_round_hears_of_a_full_disk(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        [pages] = store._base.execute("PRAGMA page_count").fetchone()
        store._base.execute(f"PRAGMA max_page_count={pages + 1}")
        kept = [store.put_soon([("large", b"x" * 50_000)]), store.put_soon([("a", b"1")])]
        outcomes = await asyncio.gather(*kept, return_exceptions=True)
        assert ["disk is full" in str(outcome) for outcome in outcomes] == [True, True]
        await store.put_soon([("after", b"2")])
        assert store.get(["large", "a", "after"]) == {"after": b"2"}


@pytest.mark.parametrize("content", [b"this is no database, but text " * 100, b"SQLite format 3\0"])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(content)
    with pytest.raises(CurateError, match="damaged or another kind"):
        Store(path)


def test_a_damaged_page_is_an_error_and_not_a_missing_value(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.put((make_key(number), b"x" * 200) for number in range(2000))
    data = bytearray(path.read_bytes())
    data[8192 : len(data) - 4096] = os.urandom(len(data) - 4096 - 8192)
    path.write_bytes(data)
    with pytest.raises(CurateError, match="damaged"):
        Store(path).get([make_key(number) for number in range(2000)])
    with pytest.raises(CurateError, match="damaged"):
        Store(path).check()


@pytest.mark.parametrize("version", [1, 2, 99])
def test_a_store_of_another_format_is_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "s.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    with pytest.raises(CurateError, match=r"(?s)format.*do: name another folder"):
        Store(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CurateError, match="cannot be used"):
        Store(tmp_path / "file" / "s.sqlite")


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Store(tmp_path / "folder/s.sqlite") as store:
            store.put([("a", b"1")])
            paths = [tmp_path / "folder", *(tmp_path / "folder").iterdir()]
            assert len(paths) == 4
            assert [path for path in paths if path.stat().st_mode & 0o077] == []
    finally:
        os.umask(before)


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    assert key_of("a", "bc") != key_of("ab", "c")
