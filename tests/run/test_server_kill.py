"""The judge's server is killed (`kill -9`) in the middle of a run: started again meanwhile, or only for the next run.

It is a process of its own whose log outlives it, so calls are counted over all of its lives.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
import time
from argparse import Namespace
from asyncio import run as run_loop
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from curate.engines.retrying import Retrying
from curate.errors import EngineError
from curate.recipe import Recipe
from curate.run.pipeline import run_recipe
from curate.run.verify import verify_run
from tests import servers
from tests.live import live_server
from tests.run.test_determinism import OF_THE_PROCESS
from tests.run.test_kill import KILLS
from tests.run.test_verify import contents, every_stage, is_accounted_for
from tests.servers import CountingServer, body_hash

IN_FLIGHT = 4
MOMENTS = max(1, KILLS // 50)  # `make soak` takes more
_FORKS = multiprocessing.get_context("forkserver")


@dataclass
class Server:
    """A server in a process of its own, always at one port."""

    folder: Path
    port: int = 0
    process: BaseProcess | None = field(default=None, init=False)

    def start(self) -> None:
        at = self.folder / "port"
        at.unlink(missing_ok=True)
        options = Namespace(
            min_delay=0.002, max_delay=0.02, owned_by="llamacpp", context=None, key=None,
            log=self.folder / "log", port=self.port, port_file=at,
        )  # fmt: skip
        self.process = _FORKS.Process(target=_serve, args=(options,), daemon=True)
        self.process.start()
        while not at.exists():
            assert self.process.is_alive()
            time.sleep(0.01)
        self.port = int(at.read_text())

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def seen(self) -> list[tuple[str, str]]:
        """Hash and event (`request`, or `reply` when it was sent), in order."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        events = []
        for line in lines:
            with suppress(ValueError):  # the last may be half a line
                event = json.loads(line)
                events.append((event["hash"], event["event"]))
        return events


def _serve(options: Namespace) -> None:
    run_loop(servers._serve(options))


def planned(folder: Path, base_url: str, **fields: int) -> Recipe:
    model = {
        "engine": "openai", "model": "fake-judge", "revision": "1", "base_url": base_url,
        "in_flight": IN_FLIGHT, **fields,
    }  # fmt: skip
    return every_stage(CountingServer(), folder, chats=4, models={"judge": model, "policy": model})


@pytest.mark.parametrize("is_back_at_once", [True, False])
def test_a_server_that_is_killed_costs_its_calls_in_flight_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_back_at_once: bool
) -> None:
    monkeypatch.setattr(Retrying, "_pause", lambda *_: 0.1)
    with live_server() as quiet:
        assert run_recipe(planned(tmp_path, quiet.base_url), out=tmp_path / "quiet").exit_code == 0
        about = {body_hash(body) for body in quiet.requests if "chat " in json.dumps(body)}
    calm = contents(tmp_path / "quiet")
    for number in range(MOMENTS):
        draw = random.Random(f"{is_back_at_once} {number}")
        moment = draw.randrange(len(about) * 9 // 10)
        folder = tmp_path / str(number)
        folder.mkdir()
        server = Server(folder)
        server.start()
        to_run = planned(tmp_path, server.base_url, retries=600 if is_back_at_once else 0)

        def end(server: Server = server, moment: int = moment) -> None:
            while len({key for key, _ in server.seen()} & about) < moment:
                time.sleep(0.005)
            server.kill()
            if is_back_at_once:
                server.start()

        killer = threading.Thread(target=end)
        killer.start()
        if is_back_at_once:
            result = run_recipe(to_run, out=folder / "run")
            killer.join()
        else:
            with pytest.raises(EngineError, match="cannot be used any more"):
                run_recipe(to_run, out=folder / "run")
            killer.join()
            server.start()
            result = run_recipe(to_run, out=folder / "run")
        assert result.exit_code == 0
        events = [(key, event) for key, event in server.seen() if key in about]
        answered, asked = set(), Counter[str]()
        for key, event in events:
            if event == "reply":
                answered.add(key)
            else:
                asked[key] += 1
                assert key not in answered, f"a reply was asked for again, killed at {moment}"
        assert asked.keys() == about
        assert asked.total() - len(about) <= IN_FLIGHT
        assert is_accounted_for(folder / "run")
        assert verify_run(folder / "run").differences == ()
        files = contents(folder / "run")
        different = [name for name in calm if calm[name] != files.get(name)]
        assert different == [name for name in different if name.endswith(OF_THE_PROCESS)]
        assert calm.keys() == files.keys()
        before = len(server.seen())
        assert run_recipe(to_run, out=folder / "run").exit_code == 0
        assert [key for key, _ in server.seen()[before:] if key in about] == []
        server.kill()
