import errno
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines import cache as cache_module
from curate.engines.base import Completion, Fault, Usage
from curate.engines.cache import ReplyCache, replies_since
from curate.engines.replies import (
    completion_from_json,
    completion_to_json,
    from_line,
    to_line,
)
from curate.errors import CurateError

COMPLETIONS = st.builds(
    Completion,
    text=st.text(st.characters(exclude_categories=["Cs"])),
    finish=st.sampled_from(["stop", "length"]),
    first_token=st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.floats(-100, 0, width=64))
    ).map(tuple),
    exact_labels=st.booleans(),
    tool_calls=st.just(({"id": "a", "function": {"name": "f", "arguments": "{}"}},)),
    usage=st.builds(Usage, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    fault=st.none() | st.just(Fault("refused", "no")),
)


def make_key(number: int) -> str:
    return f"{number:032x}"


@given(COMPLETIONS)
def test_a_reply_comes_back_as_it_was_received(completion):
    line = to_line(make_key(1), cache_module.orjson.dumps(completion_to_json(completion)))
    key, reply = from_line(line)
    assert key == make_key(1)
    assert completion_from_json(cache_module.orjson.loads(reply)) == completion


@given(st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_a_damaged_line_is_never_read_as_another_reply(position, noise):
    line = to_line(make_key(1), b'{"text":"yes, by all means"}')
    damaged = line[: position % len(line)] + noise + line[position % len(line) + len(noise) :]
    assert damaged == line or from_line(damaged) is None


def test_replies_are_found_at_once_and_after_reopening(tmp_path):
    path = tmp_path / "replies.sqlite"
    with ReplyCache(path) as cache:
        for number in range(2500):
            cache.put(make_key(number), Completion(text=str(number)))
        assert cache.get_many([make_key(7), make_key(9999)]) == {make_key(7): Completion(text="7")}
    with ReplyCache(path) as cache:
        found = cache.get_many([make_key(number) for number in range(3000)])
        assert {key: reply.text for key, reply in found.items()} == {
            make_key(number): str(number) for number in range(2500)
        }


def test_memory_holds_only_what_is_not_in_sqlite_yet(tmp_path):
    with ReplyCache(tmp_path / "r.sqlite") as cache:
        for number in range(100):
            cache.put(make_key(number), Completion(text="x"))
        deadline = time.monotonic() + 60
        while cache._pending and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not cache._pending
        assert len(cache.get_many([make_key(number) for number in range(100)])) == 100


def test_the_newest_reply_under_a_key_wins(tmp_path):
    path = tmp_path / "r.sqlite"
    with ReplyCache(path) as cache:
        cache.put(make_key(1), Completion(text="old"))
        cache.put(make_key(1), Completion(text="new"))
        assert cache.get_many([make_key(1)])[make_key(1)].text == "new"
    with ReplyCache(path) as cache:
        assert cache.get_many([make_key(1)])[make_key(1)].text == "new"


def test_closing_leaves_one_file_and_no_logs(tmp_path):
    cache = ReplyCache(tmp_path / "r.sqlite")
    cache.put(make_key(1), Completion(text="x"))
    cache.close()
    cache.close()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["r.sqlite"]
    with pytest.raises(ValueError, match="closed"):
        cache.put(make_key(2), Completion(text="x"))


def test_full_logs_are_left_behind_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "_SEGMENT_BYTES", 2000)
    monkeypatch.setattr(cache_module, "_SECONDS", 0.01)
    path = tmp_path / "r.sqlite"
    cache = ReplyCache(path)
    for number in range(300):
        cache.put(make_key(number), Completion(text="x" * 50))
        if number % 50 == 0:
            time.sleep(0.05)
    assert cache._segment > 5
    deadline = time.monotonic() + 60
    while len(list(tmp_path.rglob("*.log"))) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    # What waits in the last log is at most one segment.
    assert len(list(tmp_path.rglob("*.log"))) <= 2
    cache.close()
    with ReplyCache(path) as again:
        assert len(again.get_many([make_key(number) for number in range(300)])) == 300


def test_no_reply_that_was_kept_is_lost_to_kill_9(tmp_path):
    path = tmp_path / "replies.sqlite"
    kept: dict[str, str] = {}
    for number in range(6):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.engines.log_writer", str(path), str(number)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        first = child.stdout.readline()
        time.sleep(random.uniform(0.0, 0.5))
        child.send_signal(signal.SIGKILL)
        said = first + child.stdout.read()
        child.wait()
        child.stdout.close()
        # The last line may be half written: the reply it speaks of was kept, so leaving it out is fair.
        for index in map(int, said.split(b"\n")[:-1]):
            kept[f"{number:016x}{index:016x}"] = f"reply {number} {index} é\n"
    with ReplyCache(path) as cache:
        found = cache.get_many(list(kept))
        assert len(kept) > 100
        assert {key: reply.text for key, reply in found.items()} == kept
    assert not list(tmp_path.rglob("*.log"))


def leave_a_log(path: Path, content: bytes) -> None:
    folder = path.with_name(path.name + ".logs")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1-dead.lock").touch()
    (folder / "1-dead.0.log").write_bytes(content)


def test_a_torn_last_line_is_owed_again_and_the_rest_is_kept(tmp_path):
    path = tmp_path / "r.sqlite"
    whole, torn = (
        to_line(make_key(1), b'{"text":"whole"}') + b"\n",
        to_line(make_key(2), b'{"text":"torn"}')[:-4],
    )
    leave_a_log(path, whole + torn)
    with ReplyCache(path) as cache:
        found = cache.get_many([make_key(1), make_key(2)])
        assert found == {make_key(1): Completion(text="whole")}
        assert cache.torn == 1


def test_a_damaged_line_in_the_middle_costs_only_itself(tmp_path):
    path = tmp_path / "r.sqlite"
    good = to_line(make_key(1), b'{"text":"a"}'), to_line(make_key(3), b'{"text":"c"}')
    leave_a_log(path, good[0] + b"\n\xff\xfe garbage\n" + good[1] + b"\n")
    with ReplyCache(path) as cache:
        assert set(cache.get_many([make_key(1), make_key(3)])) == {make_key(1), make_key(3)}
        assert cache.damaged == 1


def keep(path: Path, count: int) -> list[str]:
    """A cache file of some replies, all of them in SQLite; returns their keys."""
    keys = [make_key(number) for number in range(count)]
    with ReplyCache(path) as cache:
        for number, key in enumerate(keys):
            cache.put(key, Completion(text=f"the score is 4{number}", first_token=(("4", -0.25),)))
    return keys


@pytest.mark.parametrize(
    ("column", "found", "instead"),
    [
        ("reply", b"score is 47", b"score is 17"),
        ("reply", b"-0.25", b"-9.25"),
        ("reply", b"{", b"["),
        ("key", bytes.fromhex(make_key(7)), bytes.fromhex(make_key(77))),
    ],
)
def test_a_flipped_byte_costs_one_kept_reply_and_no_other(tmp_path, column, found, instead):
    path = tmp_path / "r.sqlite"
    keys = keep(path, 9)
    with sqlite3.connect(path) as connection:
        [row] = connection.execute(
            "SELECT rowid, key, reply FROM replies WHERE key = ?", [bytes.fromhex(keys[7])]
        ).fetchall()
        value = row[1] if column == "key" else row[2]
        assert found in value
        connection.execute(
            f"UPDATE replies SET {column} = ? WHERE rowid = ?",
            [value.replace(found, instead, 1), row[0]],
        )
    connection.close()
    with ReplyCache(path) as cache:
        assert set(cache.get_many([*keys, make_key(77)])) == {*keys} - {keys[7]}
        cache.get_many(keys)
        assert cache.damaged == 1
        assert len(replies_since(path, 1, 100)) == 8
        cache.put(keys[7], Completion(text="asked again"))
        assert cache.get_many(keys)[keys[7]].text == "asked again"
    with ReplyCache(path) as cache:
        assert len(cache.get_many(keys)) == 9
        assert cache.damaged == 0


def test_a_reply_of_another_type_costs_only_itself(tmp_path):
    path = tmp_path / "r.sqlite"
    keys = keep(path, 3)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE replies SET reply = 17 WHERE rowid = 2")
        connection.execute("UPDATE replies SET reply = CAST(x'ff' AS TEXT) WHERE rowid = 3")
    connection.close()
    with ReplyCache(path) as cache:
        assert set(cache.get_many(keys)) == {keys[0]}
        assert cache.damaged == 2


@pytest.mark.parametrize(
    "reply",
    [
        {"text": None},
        {"text": "x", "first_token": [["4", None]]},
        {"text": "x", "first_token": [["4", "nan"]]},
        {"text": "x", "first_token": [["4", 710.0]]},
        {"text": "x", "usage": [1e20, 0, 0]},
        {"text": "x", "usage": [1, 2]},
        {"text": "x", "tool_calls": [None]},
        {"text": "x", "fault": ["no such kind", ""]},
        {"text": "x", "score": 4},
        [],
    ],
)
def test_a_kept_reply_that_is_none_costs_only_itself(tmp_path, reply):
    # As versions kept them that did not look at replies closely.
    path = tmp_path / "r.sqlite"
    good = to_line(make_key(1), b'{"text":"good"}'), to_line(make_key(2), orjson.dumps(reply))
    leave_a_log(path, b"\n".join(good) + b"\n")
    with ReplyCache(path) as cache:
        assert cache.get_many([make_key(1), make_key(2)]) == {make_key(1): Completion(text="good")}
        assert cache.damaged == 1


def test_a_cache_from_before_checksums_is_taken_as_it_stands_and_sealed(tmp_path):
    path = tmp_path / "r.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE replies (key BLOB PRIMARY KEY, reply BLOB NOT NULL)")
        rows = [(bytes.fromhex(make_key(n)), b'{"text":"old %d"}' % n) for n in range(3)]
        connection.executemany("INSERT INTO replies VALUES (?, ?)", rows)
        connection.execute("PRAGMA user_version=1")
    connection.close()
    with ReplyCache(path) as cache:
        cache.put(make_key(3), Completion(text="new"))
        found = cache.get_many([make_key(number) for number in range(4)])
        assert [reply.text for reply in found.values()].count("new") == 1
        assert len(found) == 4
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE replies SET reply = replace(reply, 'old 1', 'old 2')")
    connection.close()
    with ReplyCache(path) as cache:
        assert make_key(1) not in cache.get_many([make_key(1)])
        assert cache.damaged == 1


def test_another_living_process_keeps_its_logs(tmp_path):
    path = tmp_path / "r.sqlite"
    with ReplyCache(path) as mine:
        mine.put(make_key(1), Completion(text="mine"))
        with ReplyCache(path) as other:
            other.put(make_key(2), Completion(text="other"))
        assert list(tmp_path.rglob("*.log"))
        mine.put(make_key(3), Completion(text="mine"))
    with ReplyCache(path) as cache:
        assert len(cache.get_many([make_key(number) for number in (1, 2, 3)])) == 3


def test_a_full_disk_is_named_and_nothing_is_torn(tmp_path, monkeypatch):
    path = tmp_path / "r.sqlite"
    cache = ReplyCache(path)
    cache.put(make_key(1), Completion(text="before"))
    real = os.write

    def write_half(descriptor, data):
        return real(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(cache_module.os, "write", write_half)
    with pytest.raises(CurateError, match="disk is full"):
        cache.put(make_key(2), Completion(text="during"))

    def refuse(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_module.os, "write", refuse)
    with pytest.raises(CurateError, match="disk is full"):
        cache.put(make_key(2), Completion(text="during"))
    monkeypatch.setattr(cache_module.os, "write", real)
    cache.put(make_key(3), Completion(text="after"))
    log = next(tmp_path.rglob("*.log")).read_bytes()
    assert [from_line(line)[0] for line in log.splitlines(keepends=True)] == [
        make_key(1),
        make_key(3),
    ]
    cache.close()


def test_when_sqlite_cannot_take_more_the_next_put_says_so_and_the_log_keeps_it(
    tmp_path, monkeypatch
):
    path = tmp_path / "r.sqlite"

    def fail(connection, records):
        raise sqlite3.OperationalError("database or disk is full")

    cache = ReplyCache(path)
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "_insert", fail)
        cache.put(make_key(1), Completion(text="kept"))
        cache._writer.join(timeout=10)
        assert cache.get_many([make_key(1)])[make_key(1)].text == "kept"
        with pytest.raises(CurateError, match="disk is full"):
            cache.put(make_key(2), Completion(text="x"))
        with pytest.raises(CurateError, match="disk is full"):
            cache.close()
    with ReplyCache(path) as again:
        assert again.get_many([make_key(1)])[make_key(1)].text == "kept"


@pytest.mark.parametrize("content", [b"this is no database, but text " * 100, b"SQLite format 3\0"])
def test_a_file_that_is_no_cache_is_refused(tmp_path, content):
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)
    with pytest.raises(CurateError, match="damaged or is another kind"):
        ReplyCache(path)


def test_a_damaged_page_is_an_error_and_not_a_missing_reply(tmp_path):
    path = tmp_path / "r.sqlite"
    with ReplyCache(path) as cache:
        for number in range(2000):
            cache.put(make_key(number), Completion(text="x" * 200))
    data = bytearray(path.read_bytes())
    data[8192 : len(data) - 4096] = os.urandom(len(data) - 4096 - 8192)
    path.write_bytes(data)
    with pytest.raises(CurateError, match="damaged"):
        ReplyCache(path).get_many([make_key(number) for number in range(2000)])


def test_a_cache_of_a_later_format_is_refused(tmp_path):
    path = tmp_path / "r.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(CurateError, match="format"):
        ReplyCache(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CurateError, match="cannot be used"):
        ReplyCache(tmp_path / "file" / "r.sqlite")
