"""Run folders at a URL: resumed on this machine and on others, with one writer and no reply lost."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import orjson
import polars as pl
import pytest

from curate.engines.cache import ReplyCache
from curate.errors import CurateError, RunLockedError, UsageError
from curate.records import RUN_FORMAT
from curate.run.pipeline import run_recipe
from curate.storage.remote import RemoteFolder, open_run_folder, working_copy
from tests.run.test_pipeline import chat, recipe, write_rows
from tests.servers import CountingServer


@pytest.fixture(params=["memory", "file", "local"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        fs = fsspec.filesystem("memory")
        fs.store.clear()
        yield "memory://bucket/team/run"
        fs.store.clear()
    else:
        yield f"{request.param}://{tmp_path}/bucket/team/run"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`machine(name)`: from now on working copies are that machine's."""

    def use(name: str) -> None:
        monkeypatch.setenv("CURATE_CACHE", str(tmp_path / "machines" / name))

    use("one")
    return use


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "chats.jsonl", [chat(n, turns=1 + n % 3) for n in range(6)])


def questions(server: CountingServer) -> int:
    """Questions about a dialogue that were asked so far (probes hold none)."""
    return sum("chat " in json.dumps(body) for body in server.requests)


def there(url: str) -> dict[str, bytes]:
    """The files at a URL, by name."""
    fs, root = fsspec.core.url_to_fs(url)
    return {path[len(root) :].lstrip("/"): fs.cat_file(path) for path in sorted(fs.find(root))}


def contents(folder: Path) -> dict[str, object]:
    return {
        path.relative_to(folder).as_posix(): (
            pl.read_parquet(path).to_dicts() if path.suffix == ".parquet" else path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".parquet", ".jsonl")
    }


KEYS = [f"{number:032x}" for number in range(100)]
MANIFEST = orjson.dumps({"format": RUN_FORMAT})


def keep(folder: Path, *keys: str, text: str = "") -> None:
    with ReplyCache(folder / "replies.sqlite") as cache:
        cache.store.put((key, orjson.dumps({"text": text or key})) for key in keys)


def kept(folder: Path) -> set[str]:
    with ReplyCache(folder / "replies.sqlite") as cache:
        return set(cache.get_many(KEYS))


def test_a_run_ends_up_at_its_url_and_goes_on_from_another_machine(
    url: str, machine: Any, server: CountingServer, data: Path, tmp_path: Path
) -> None:
    result = run_recipe(recipe(server, data, budget={"calls": 20}), out=url)
    assert result.manifest.status == "budget"
    assert questions(server) == 20
    machine("two")
    done = run_recipe(recipe(server, data), out=url)
    assert done.manifest.status == "done"
    asked = [json.dumps(b, sort_keys=True) for b in server.requests if "chat " in json.dumps(b)]
    assert len(asked) == len(set(asked)), "what one machine was told, the other does not ask"
    before = questions(server)
    plain = run_recipe(recipe(server, data), out=tmp_path / "plain")
    assert questions(server) == 2 * before
    assert contents(done.folder) == contents(plain.folder)
    files = there(url)
    assert json.loads(files["manifest.json"])["status"] == "done"
    for name in contents(plain.folder):
        assert name in files
    assert not any(name.endswith((".sqlite", ".lock.json")) for name in files)


def test_the_first_machine_takes_up_what_the_second_did(
    url: str, machine: Any, server: CountingServer, data: Path
) -> None:
    run_recipe(recipe(server, data, budget={"calls": 10}), out=url)
    machine("two")
    run_recipe(recipe(server, data), out=url)
    before = questions(server)
    machine("one")
    again = run_recipe(recipe(server, data), out=url)
    assert questions(server) == before
    assert again.manifest.stages["judge"].reused == 6


def test_a_killed_run_loses_nothing_here_and_what_was_copied_nothing_there(
    url: str, machine: Any
) -> None:
    with open_run_folder(url) as folder:
        (folder.path / "manifest.json").write_bytes(MANIFEST)
    # A kill: neither the last copy nor the lock's removal takes place.
    remote = RemoteFolder(url, working_copy(url))
    remote.lock.take()
    keep(remote.path, *KEYS[:10])
    (remote.path / "judge").mkdir()
    (remote.path / "judge" / "rows.sqlite").write_bytes(b"rows")
    remote.copy_out()
    keep(remote.path, *KEYS[10:15])
    machine("two")
    with pytest.raises(RunLockedError, match="another process is writing"), open_run_folder(url):
        pass
    fs, root = fsspec.core.url_to_fs(url)
    fs.rm_file(f"{root}/.lock.json")
    with open_run_folder(url) as folder:
        assert kept(folder.path) == set(KEYS[:10])
        assert not list(folder.path.rglob("rows.sqlite")), "open rows are made again from replies"
        keep(folder.path, *KEYS[20:22])
    machine("one")
    with open_run_folder(url) as folder:
        assert kept(folder.path) == {*KEYS[:15], *KEYS[20:22]}
        assert (folder.path / "judge" / "rows.sqlite").exists()
    machine("three")
    with open_run_folder(url) as folder:
        assert kept(folder.path) == {*KEYS[:15], *KEYS[20:22]}


def test_the_same_machine_takes_its_own_lock_over_after_a_kill(url: str) -> None:
    dead = RemoteFolder(url, working_copy(url))
    dead.lock.take()
    dead.restore()
    with open_run_folder(url):
        pass


def test_a_silent_holder_is_taken_for_dead(url: str, machine: Any) -> None:
    RemoteFolder(url, working_copy(url), interval=0.01).lock.take()
    machine("two")
    time.sleep(0.05)
    with open_run_folder(url):
        pass


def test_a_holder_whose_clock_is_ahead_was_heard_of_just_now(
    url: str, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    RemoteFolder(url, working_copy(url)).lock.take()
    machine("two")
    monkeypatch.setattr(time, "time", lambda now=time.time: now() - 7200)
    with pytest.raises(RunLockedError, match=r"last heard from 0 s ago"), open_run_folder(url):
        pass


def test_whoever_lost_the_lock_copies_nothing_more(url: str, machine: Any) -> None:
    first = RemoteFolder(url, working_copy(url), interval=0.01)
    first.lock.take()
    first.restore()
    machine("two")
    time.sleep(0.05)
    with open_run_folder(url) as folder:
        (folder.path / "manifest.json").write_bytes(b'{"format": 2, "by": "two"}')
        (first.path / "manifest.json").write_bytes(b'{"format": 2, "by": "one"}')
        with pytest.raises(RunLockedError):
            first.copy_out(everything=True)
    assert there(url)["manifest.json"] == b'{"format": 2, "by": "two"}'


def test_copies_are_made_while_the_run_goes_on(url: str) -> None:
    with open_run_folder(url, interval=0.02) as folder:
        keep(folder.path, KEYS[0])
        (folder.path / "manifest.json").write_bytes(MANIFEST)
        (folder.path / "rows.sqlite").write_bytes(b"rows")
        until = time.monotonic() + 60
        while "manifest.json" not in (files := there(url)) and time.monotonic() < until:
            time.sleep(0.02)
        assert "manifest.json" in files
        assert any(name.startswith(".replies/") for name in files)
        assert "rows.sqlite" not in files
    assert "rows.sqlite" in there(url)


def test_only_what_changed_is_copied(url: str) -> None:
    with open_run_folder(url) as folder:
        keep(folder.path, *KEYS[:3])
        (folder.path / "manifest.json").write_bytes(MANIFEST)
    parts = {name for name in there(url) if name.startswith(".replies/")}
    sync = there(url)[".sync.json"]
    with open_run_folder(url) as folder:
        (folder.path / "manifest.json").write_bytes(MANIFEST)
    assert there(url)[".sync.json"] == sync, "an equal file written anew is no change"
    with open_run_folder(url) as folder:
        keep(folder.path, *KEYS[:4])
        (folder.path / "manifest.json").unlink()
    more = {name for name in there(url) if name.startswith(".replies/")}
    assert parts < more
    assert "manifest.json" not in there(url), "what is gone here is gone there"


def test_a_reply_that_was_replaced_is_copied_again(url: str, machine: Any) -> None:
    with open_run_folder(url) as folder:
        keep(folder.path, *KEYS[:2])
    with open_run_folder(url) as folder:
        keep(folder.path, KEYS[1], text="anew")
    machine("two")
    with open_run_folder(url) as folder, ReplyCache(folder.path / "replies.sqlite") as cache:
        assert cache.get_many(KEYS[:2])[KEYS[1]].text == "anew"


@pytest.mark.parametrize("damage", ["flipped", "cut", "not one"])
def test_a_damaged_part_of_the_reply_log_costs_only_its_own_replies(
    url: str, machine: Any, damage: str
) -> None:
    with open_run_folder(url) as folder:
        keep(folder.path, *KEYS[:2])
    with open_run_folder(url) as folder:
        keep(folder.path, *KEYS[2:4])
    fs, root = fsspec.core.url_to_fs(url)
    part = max(fs.ls(f"{root}/.replies", detail=False))
    if damage == "flipped":
        data = bytearray(fs.cat(part))
        data[data.index(b"PAR1") + 40] ^= 1
        data = bytes(data)
    else:
        data = fs.cat(part)[:-6] if damage == "cut" else b"nothing of the kind"
    fs.pipe(part, data)
    machine("two")
    with open_run_folder(url) as folder:
        assert {*KEYS[:2]} <= kept(folder.path) < {*KEYS[:4]}


def test_a_run_of_an_older_format_is_refused_before_anything_is_taken_from_it(url: str) -> None:
    fs, root = fsspec.core.url_to_fs(url)
    fs.makedirs(root, exist_ok=True)
    listed = {"format": 1, "generation": "x", "files": {"manifest.json": "0"}}
    fs.pipe_file(f"{root}/.sync.json", orjson.dumps(listed))
    with pytest.raises(CurateError, match="older version of curate"), open_run_folder(url):
        pass
    assert not (working_copy(url) / "manifest.json").exists()
    assert ".lock.json" not in there(url)


def test_an_emptied_url_is_filled_again_from_the_working_copy(url: str) -> None:
    with open_run_folder(url) as folder:
        keep(folder.path, KEYS[0])
        (folder.path / "manifest.json").write_bytes(MANIFEST)
    fs, root = fsspec.core.url_to_fs(url)
    fs.rm(root, recursive=True)
    with open_run_folder(url):
        pass
    assert "manifest.json" in there(url)
    shutil.rmtree(working_copy(url))
    with open_run_folder(url) as folder:
        assert kept(folder.path) == {KEYS[0]}


def test_an_error_of_the_run_is_the_one_that_is_raised(url: str) -> None:
    def run() -> None:
        with open_run_folder(url) as folder:
            (folder.path / "manifest.json").write_bytes(MANIFEST)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert "manifest.json" in there(url)
    assert ".lock.json" not in there(url)


def test_a_place_that_cannot_be_written_says_where_everything_is(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("access denied")

    def run() -> None:
        with open_run_folder(url) as folder:
            (folder.path / "manifest.json").write_bytes(MANIFEST)
            fs, _ = fsspec.core.url_to_fs(url)
            monkeypatch.setattr(type(fs), "put_file", refuse)

    with pytest.raises(CurateError, match="everything is kept in") as raised:
        run()
    assert str(working_copy(url)) in str(raised.value)


def test_a_list_of_files_that_leads_elsewhere_is_refused(url: str, tmp_path: Path) -> None:
    fs, root = fsspec.core.url_to_fs(url)
    fs.makedirs(root, exist_ok=True)
    listed = {"format": RUN_FORMAT, "generation": "x", "files": {"../../elsewhere": "0"}}
    fs.pipe_file(f"{root}/.sync.json", orjson.dumps(listed))
    with pytest.raises(CurateError, match="outside the run folder"), open_run_folder(url):
        pass


def test_two_urls_have_two_working_copies_and_a_slash_makes_no_difference() -> None:
    assert working_copy("s3://a/b/run") != working_copy("s3://a-b/run")
    assert working_copy("s3://a/b/run") == working_copy("s3://a/b/run/")


def test_an_unknown_kind_of_url_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be reached"), open_run_folder("nowhere://a/b"):
        pass


def test_a_plain_folder_stays_a_plain_folder(tmp_path: Path) -> None:
    with open_run_folder(tmp_path / "run") as folder:
        assert folder.path == tmp_path / "run"
