"""Exactly once, seen from the wire: kill -9 at any moment, run again, count what the server was asked.

The server is a process of its own and lives on. A reply that was received must never be asked for again;
only calls that were in flight when the kill came may repeat; and what comes out must equal what an
undisturbed run gives, byte for byte.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from tests.processes import Running, start

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("CURATE_KILLS", "50"))
IN_FLIGHT = 4
DELAYS = ("--min-delay", "0.002", "--max-delay", "0.02")

RECIPE = """
name: killed
source: {{path: {data}}}
scenario: A person asks for help with an order.
role: A patient shop assistant.
models:
  judge: &server {{engine: openai, model: fake-judge, base_url: "http://127.0.0.1:{port}/v1", in_flight: {in_flight}}}
  policy: *server
judge: {{mode: {mode}}}
adherence: {{output_mode: continuous}}
select: {{where: {{helpful: mean_helpfulness >= 3}}}}
fork: {{where: weakest_turn IS NOT NULL, resamples: 1}}
max_unscored: 1.0
"""


@dataclass(frozen=True)
class Server:
    """The counting server's port and log."""

    port: int
    log: Path

    def events(self, since: int = 0) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_bytes().splitlines()[since:]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    port_file, log = folder / "port", folder / "log"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.servers", "--port-file", port_file, "--log", log, *DELAYS],
        cwd=ROOT,
    )
    try:
        while not port_file.exists():
            assert process.poll() is None, "the server did not start"
            time.sleep(0.02)
        yield Server(int(port_file.read_text()), log)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten dialogues of one to four turns, and a long one that needs windows and a ledger."""
    path = tmp_path_factory.mktemp("data") / "chats.jsonl"
    rows = []
    for number, turns in enumerate([1, 2, 3, 4, 1, 2, 3, 2, 1, 12]):
        messages = []
        for turn in range(turns):
            messages.append({"role": "user", "content": f"Order {number}, question {turn}?"})
            messages.append(
                {"role": "assistant", "content": f"Answer {turn} about order {number}."}
            )
        rows.append(json.dumps({"id": f"chat-{number}", "messages": messages}))
    path.write_text("\n".join(rows) + "\n")
    return path


def finish(run: Running) -> None:
    done = run.wait()
    assert done.returncode == 0, done.stdout + done.stderr


def contents(run: Path) -> dict[str, object]:
    """All that a run leaves for its user, manifest and reply log aside (they tell of the way there)."""
    found: dict[str, object] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.suffix == ".parquet":
            found[name] = pl.read_parquet(path).to_dicts()
        elif path.suffix == ".jsonl":
            found[name] = path.read_bytes()
    return found


@pytest.mark.parametrize("mode", ["tokens", "json"])
def test_a_received_reply_is_never_asked_for_again(
    server: Server, data: Path, tmp_path: Path, mode: str
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(data=data, port=server.port, mode=mode, in_flight=IN_FLIGHT))

    finish(start("run", recipe, "--out", tmp_path / "plan", "--dry-run"))
    probes = {
        event["hash"] for event in server.events()
    }  # asked anew by every process that opens the engine

    before, began = len(server.events()), time.monotonic()
    finish(start("run", recipe, "--out", tmp_path / "undisturbed"))
    lasted = time.monotonic() - began
    expected = contents(tmp_path / "undisturbed")
    asked = [e for e in server.events(before) if e["hash"] not in probes]
    once = Counter(e["hash"] for e in asked if e["event"] == "request")
    assert set(once.values()) == {1}
    first = min(float(str(e["time"])) for e in asked)
    working = max(float(str(e["time"])) for e in asked) - first
    starting = lasted - working

    rng = random.Random(20)
    for round_ in range(KILLS // 2):
        before, out = len(server.events()), tmp_path / f"killed-{round_}"
        killed = start("run", recipe, "--out", out)
        time.sleep(rng.uniform(0.5 * starting, starting + working))
        killed.process.kill()
        killed.wait()
        finish(start("run", recipe, "--out", out))

        events = [e for e in server.events(before) if e["hash"] not in probes]
        counts = Counter(e["hash"] for e in events if e["event"] == "request")
        repeated = {key for key, number in counts.items() if number > 1}
        assert set(counts) == set(once), f"round {round_}: other questions than undisturbed"
        assert max(counts.values()) <= 2
        # The client never has more calls open than this, so of all that the server was asked it had
        # received all but these. One more repeat would be a received reply that was asked for again.
        assert len(repeated) <= IN_FLIGHT, f"round {round_}: {len(repeated)} calls repeated"
        assert contents(out) == expected, f"round {round_}: rows differ from an undisturbed run"
