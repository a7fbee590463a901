"""Exactly once, seen from the wire: a process killed at any moment of any stage, run again, what the servers were asked counted.

A reply that was stored must never be asked for again; only calls that were in flight when the kill came may
repeat; and what comes out must equal what undisturbed commands give, byte for byte.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import pytest

from curate.run.verify import verify_run
from tests.hub_server import HubServer, hub_server
from tests.live import live_server
from tests.moments import Durations, Killed
from tests.processes import Running, start
from tests.run.test_determinism import OF_THE_PROCESS
from tests.run.test_verify import contents, is_accounted_for, preference
from tests.servers import CountingServer, body_hash

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("CURATE_KILLS", "15"))  # each stage once; `make soak` takes more
IN_FLIGHT = 4
REPO = "me/killed"
NAME = "runs/killed"
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", "recipe.yaml"),
    "calibrate": ("calibrate", NAME, "gold.csv", "--out", "calibration.json"),
    "push": ("push", NAME, REPO, "--license", "mit"),
}
STAGES = {
    "ingest": "run",
    "judge": "run",
    "adherence": "run",
    "metrics": "run",
    "factuality": "run",
    "table": "run",
    "fork": "run",
    "natural": "run",
    "select": "run",
    "pairs": "run",
    "export": "run",
    "calibrate": "calibrate",
    "write_calibration": "calibrate",
    "prepare_push": "push",
    "send": "push",
}
"""The stages that are killed, and their commands."""
ASKING = ("judge", "adherence", "metrics", "factuality", "fork", "natural")
"""Those that ask a model, which do so in two modes; the others are the same in both."""
STAGES_OF = {"tokens": tuple(STAGES)} | ({"json": ASKING} if len(STAGES) < KILLS else {})

RECIPE = """
name: killed
source: [{{path: {data}/chats.jsonl}}, {{path: {data}/pairs.jsonl}}]
scenario: A person asks for help with an order.
role: A patient shop assistant.
models:
  judge: &server {{engine: openai, model: fake-judge, base_url: "{url}", in_flight: {in_flight}}}
  policy: *server
judge: {{mode: {mode}, max_turns: 4, window_turns: 4}}
metrics: {{}}
factuality: {{}}
adherence: {{output_mode: continuous}}
fork: {{where: 1 = 1, resamples: 1}}
natural: {{verify: true}}
select: {{where: {{any: 1 = 1}}, split: {{validation: 0.2}}}}
export: {{trainers: [trl, verl]}}
max_unscored: 1.0
"""


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    with live_server(delay=(0.002, 0.02)) as running:
        yield running


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    with hub_server() as running:
        yield running


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short dialogues, and one that needs windows and a running summary; natural pairs; labels of turns."""
    folder = tmp_path_factory.mktemp("data")
    rows, labels = [], ["id,turn,dimension,value"]
    for number, turns in enumerate([1, 2, 3, 3, 6]):
        messages = []
        for turn in range(1, turns + 1):
            messages.append({"role": "user", "content": f"chat {number}, question {turn}?"})
            messages.append({"role": "assistant", "content": f"Answer {turn} about {number}."})
            labels.append(f"chat-{number},{turn},helpfulness,{1 + (number + turn) % 5}")
        rows.append(json.dumps({"id": f"chat-{number}", "messages": messages}))
    (folder / "chats.jsonl").write_text("\n".join(rows) + "\n")
    pairs = [json.dumps(preference(number)) for number in range(2)]
    (folder / "pairs.jsonl").write_text("\n".join(pairs) + "\n")
    (folder / "gold.csv").write_text("\n".join(labels) + "\n")
    return folder


@dataclass
class Commands:
    """The commands in a folder of their own, against the two servers."""

    folder: Path
    server: CountingServer
    hub: HubServer
    began: int = field(init=False)

    def __post_init__(self) -> None:
        self.began = len(self.server.requests)

    def start(self, command: str, before: Callable[[], None] | None = None) -> Running:
        env = os.environ | {
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.folder.parent / "hf"),
            "HF_TOKEN": self.hub.token,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
        }
        return start(*COMMANDS[command], env=env, cwd=self.folder, before=before)

    def finish(self, command: str, before: Durations | None = None) -> None:
        done = self.start(command, before).wait()
        assert done.returncode == 0, done.stdout + done.stderr

    def asked(self) -> Counter[str]:
        """How often each question about a dialogue was asked (probes hold none)."""
        bodies = self.server.requests[self.began :]
        return Counter(body_hash(body) for body in bodies if "chat " in json.dumps(body))

    def kept(self) -> dict[bytes, bytes]:
        """The replies that are kept; read of a copy, since opening a store tidies it."""
        copy = self.folder.with_name("copy")
        copy.mkdir()
        try:
            for file in (self.folder / NAME).glob("replies.sqlite*"):
                shutil.copy(file, copy)
            if not (copy / "replies.sqlite").exists():
                return {}
            with sqlite3.connect(copy / "replies.sqlite") as base:
                return dict(base.execute("SELECT key, value FROM kept").fetchall())
        finally:
            shutil.rmtree(copy)


def made(folder: Path) -> dict[str, bytes]:
    """All that the commands leave, byte by byte, but times, counts of calls and the order of kept replies."""
    return {
        name: data
        for name, data in contents(folder).items()
        if not name.endswith(OF_THE_PROCESS) and not name.startswith("runs/killed/push/")
    }


@dataclass
class Undisturbed:
    """What the commands do on a quiet day.

    Attributes:
        before: the folder before each command.
        made: what is in it after each.
        asked: the questions of all of them, each once.
        kept: the replies to these, and to what is asked when the models are opened.
        pushed: what the repository holds.
        seconds: by stage.
    """

    server: CountingServer
    hub: HubServer
    before: dict[str, Path]
    made: dict[str, dict[str, bytes]]
    asked: Counter[str]
    kept: dict[bytes, bytes]
    pushed: dict[str, bytes]
    seconds: dict[str, float]

    def again(self, command: str, folder: Path) -> Commands:
        """A folder in which the command is next; the Hub is empty."""
        empty(self.hub)
        shutil.copytree(self.before[command], folder)
        return Commands(folder, self.server, self.hub)

    def in_flight(self, again: Commands) -> int:
        """Calls that were made and whose replies are not kept."""
        for _ in range(
            2
        ):  # behind what the command had sent: when it is answered, the server has read that, too
            urlopen(f"{self.server.base_url}/models").close()
        asked, probes = again.asked(), len(self.kept) - len(self.asked)
        return len(asked) + probes - len(again.kept()) if asked else 0

    def check(self, again: Commands, command: str, in_flight: int) -> None:
        """Nothing differs after the command ended badly, and was given again, in that folder.

        Args:
            in_flight: as of the moment when it had ended.
        """
        if command == "run":
            counts = again.asked()
            assert counts.keys() == self.asked.keys(), "other questions than undisturbed"
            assert max(counts.values()) <= 2
            # What was asked and is not stored was in flight, and that alone is asked again.
            assert counts.total() - len(counts) == in_flight <= IN_FLIGHT
            assert is_accounted_for(again.folder / NAME)
            assert again.kept() == self.kept
        if command == "push":
            assert self.hub.files(REPO) == self.pushed
            assert len(self.hub.repos[REPO].history()) == 2
        now, then = made(again.folder), self.made[command]
        assert now.keys() == then.keys()
        assert [name for name in now if now[name] != then[name]] == []


def empty(hub: HubServer) -> None:
    hub.repos.clear()
    hub.objects.clear()


def undisturbed(
    folder: Path, data: Path, server: CountingServer, hub: HubServer, mode: str
) -> Undisturbed:
    """Give the commands one after the other."""
    empty(hub)
    commands = Commands(folder / "undisturbed", server, hub)
    commands.folder.mkdir()
    shutil.copy(data / "gold.csv", commands.folder)
    recipe = RECIPE.format(data=data, url=server.base_url, mode=mode, in_flight=IN_FLIGHT)
    (commands.folder / "recipe.yaml").write_text(recipe)
    before, after = {}, {}
    durations = Durations(folder / "durations")
    for command in COMMANDS:
        before[command] = folder / "before" / command
        shutil.copytree(commands.folder, before[command])
        commands.finish(command, durations)
        after[command] = made(commands.folder)
    asked = commands.asked()
    assert set(asked.values()) == {1}
    assert is_accounted_for(commands.folder / NAME)
    assert len(hub.repos[REPO].history()) == 2
    seconds = durations.read()
    assert seconds.keys() >= STAGES.keys()
    # Whatever has these rows and these replies is what its replies give.
    assert verify_run(commands.folder / NAME).differences == ()
    return Undisturbed(server, hub, before, after, asked, commands.kept(), hub.files(REPO), seconds)


@pytest.mark.parametrize("mode", STAGES_OF)
def test_killed_in_any_stage(
    server: CountingServer, hub: HubServer, data: Path, tmp_path: Path, mode: str
) -> None:
    quiet = undisturbed(tmp_path, data, server, hub, mode)
    stages = STAGES_OF[mode]
    moments = KILLS * len(stages) // sum(map(len, STAGES_OF.values()))
    assert moments >= len(stages)
    for number in range(moments):
        draw = random.Random(f"{mode} {number}")
        stage = stages[number % len(stages)]
        command = STAGES[stage]
        again = quiet.again(command, tmp_path / str(number))
        seconds = draw.uniform(0, quiet.seconds[stage])
        print(f"{mode}: {stage} after {seconds:.3f} s", flush=True)  # shown where it fails
        killed = again.start(command, Killed(stage, seconds)).wait()
        assert killed.returncode < 0, killed.stdout + killed.stderr
        in_flight = quiet.in_flight(again)
        again.finish(command)
        quiet.check(again, command, in_flight)
        shutil.rmtree(again.folder)
