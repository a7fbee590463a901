"""A long run killed and resumed twenty times: every reply asked for once, every byte as if nothing had happened.

    python benchmarks/kill_and_resume.py [--json] [--dialogues 100000] [--kills 20] [--folder DIR]

Dialogues of one to three turns, judged in mode `json` and for adherence, one question a turn, then selected and exported, by
`curate run` in a process of its own. The server is that of `fault_server.py`, which counts. The first run is left alone.
The second is killed (`kill -9`) at moments drawn over the whole length of the first and started again each time. A moment is
told by how many answers the server had given by then in the first run, where none are given, by the seconds since.

What a kill may cost is its calls in flight. That is checked exactly: calls that the server saw again are those whose reply
had not reached the reply log when a kill came. Exit code 1 where more was asked again, or a file differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import fault_server
import loopback as shared
from scale import WORDS

IN_FLIGHT = 64
ABOUT = "the shop on the corner"
"""Stands in each question of a run, and in no probe."""
RECIPE: dict[str, Any] = {
    "name": "killed",
    "scenario": f"A customer writes to {ABOUT}.",
    "role": f"A patient assistant of {ABOUT} who never leaves the subject of the shop.",
    "judge": {"mode": "json", "text": "off"},
    "adherence": {"output_mode": "binary"},
    "select": {"where": {"good": "mean_score >= 3", "in_role": "adherent"}},
    "max_unscored": 0.0,
}
OF_THE_PROCESS = ("manifest.json", "replies.sqlite", ".lock")
"""Times and counts of calls; replies lie in the order in which they came."""


class Moment(NamedTuple):
    """When to kill: this many answers given, then this many seconds later."""

    answers: int
    seconds: float


def write_dialogues(path: Path, count: int) -> None:
    with path.open("w") as out:
        for number in range(count):
            drawn = random.Random(number)
            messages = []
            for turn in range(drawn.randint(1, 3)):
                for role in ("user", "assistant"):
                    text = " ".join(drawn.choices(WORDS, k=12))
                    messages.append({"role": role, "content": f"{number} {turn} {text}."})
            out.write(json.dumps({"id": f"chat-{number}", "messages": messages}) + "\n")


def start(recipe: Path, out: Path) -> subprocess.Popen[bytes]:
    said = (out.parent / f"{out.name}.log").open("ab")
    command = [sys.executable, "-c", "from curate.cli import main; main()"]
    with said:
        return subprocess.Popen(
            [*command, "run", str(recipe), "--out", str(out)], stdout=said, stderr=said
        )


def watch(run: subprocess.Popen[bytes], server: fault_server.Server) -> list[tuple[float, int]]:
    """Wait for a run; seconds since it began, and answers given, every fifth of a second."""
    began, before = time.monotonic(), server.counts.answers
    curve = []
    while run.poll() is None:
        curve.append((time.monotonic() - began, server.counts.answers - before))
        time.sleep(0.2)
    if run.returncode:
        raise RuntimeError(f"the run ended with exit code {run.returncode}")
    return curve


def draw_moments(curve: list[tuple[float, int]], kills: int) -> list[Moment]:
    """Moments over the whole length of a run, in order."""
    drawn, times = random.Random(7), [seconds for seconds, _ in curve]
    moments = []
    for wanted in sorted(drawn.uniform(0.0, times[-1]) for _ in range(kills)):
        answers = curve[max(0, bisect_right(times, wanted) - 1)][1]
        since = next(seconds for seconds, given in curve if given >= answers)
        moments.append(Moment(answers, max(0.0, wanted - since)))
    return moments


def wait_for(moment: Moment, run: subprocess.Popen[bytes], server: fault_server.Server) -> None:
    while server.counts.answers < moment.answers and run.poll() is None:
        time.sleep(0.01)
    until = time.monotonic() + moment.seconds
    while time.monotonic() < until and run.poll() is None:
        time.sleep(0.01)


def kept_replies(run: Path) -> int:
    """Replies in the reply log of a run that nobody writes."""
    stores = list(run.rglob("replies.sqlite"))
    if not stores:
        return 0
    with closing(sqlite3.connect(stores[0])) as base:
        if not base.execute("SELECT name FROM sqlite_master WHERE name = 'kept'").fetchall():
            return 0
        query = "SELECT count(*) FROM kept WHERE CAST(key AS TEXT) NOT LIKE 'served %'"
        return int(base.execute(query).fetchone()[0])


def digests(run: Path) -> dict[str, str]:
    return {
        str(path.relative_to(run)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in sorted(run.rglob("*"))
        if path.is_file() and not path.name.startswith(OF_THE_PROCESS)
    }


def killed_run(
    recipe: Path, out: Path, server: fault_server.Server, moments: list[Moment]
) -> Iterator[dict[str, int]]:
    """Kill a run at each moment and let it end; after each kill, what was asked and what is kept since the last."""
    kept = 0
    for moment in moments:
        before = server.counts
        run = start(recipe, out)
        wait_for(moment, run, server)
        was_at_work = run.poll() is None
        run.kill()
        run.wait()
        time.sleep(0.2)  # what was on the wire arrives
        asked = server.counts.requests - before.requests
        now = kept_replies(out)
        yield {"asked": asked, "kept": now - kept, "killed": was_at_work}
        kept = now
    before = server.counts
    watch(start(recipe, out), server)
    now = kept_replies(out)
    yield {"asked": server.counts.requests - before.requests, "kept": now - kept, "killed": 0}


def measure(dialogues: int, kills: int, folder: Path) -> dict[str, Any]:
    write_dialogues(folder / "chats.jsonl", dialogues)
    with fault_server.running(ABOUT) as server:
        model = {"engine": "openai", "model": shared.MODEL, "base_url": server.url}
        model |= {"in_flight": IN_FLIGHT, "revision": "1"}
        source = {"path": str(folder / "chats.jsonl")}
        recipe = folder / "recipe.json"
        recipe.write_text(json.dumps({**RECIPE, "source": source, "models": {"judge": model}}))
        began = time.monotonic()
        curve = watch(start(recipe, folder / "undisturbed"), server)
        undisturbed = server.counts
        lasted = time.monotonic() - began
        rounds = list(killed_run(recipe, folder / "killed", server, draw_moments(curve, kills)))
        after = server.counts
    expected, found = digests(folder / "undisturbed"), digests(folder / "killed")
    manifests = [
        json.loads((folder / name / "manifest.json").read_bytes())
        for name in ("undisturbed", "killed")
    ]
    return {
        "dialogues": dialogues,
        "undisturbed": lasted,
        "killed": time.monotonic() - began - lasted,
        "calls": undisturbed.requests,
        "other_calls": after.bodies - undisturbed.bodies,
        "calls_when_killed": after.requests - undisturbed.requests,
        "rounds": rounds,
        "files": len(expected),
        "different": sorted(
            name for name in {*expected, *found} if expected.get(name) != found.get(name)
        ),
        "counts": [
            {
                key: one[key]
                for key in ("rows_in", "rows_used", "quarantined", "dialogues", "selected")
            }
            for one in manifests
        ],
    }


def problems(measured: dict[str, Any]) -> list[str]:
    """Return what did not hold, in words."""
    rounds, said = measured["rounds"], []
    lost = sum(one["asked"] - one["kept"] for one in rounds)
    again = measured["calls_when_killed"] - measured["calls"]
    if measured["other_calls"]:
        said.append(f"{measured['other_calls']} calls that the undisturbed run did not make")
    if again != lost:
        said.append(f"{again} calls were made again, and the replies to {lost} were lost")
    most = max(one["asked"] - one["kept"] for one in rounds)
    if most > IN_FLIGHT:
        said.append(f"a kill cost {most} calls, with {IN_FLIGHT} in flight")
    if measured["different"]:
        said.append(f"files differ: {', '.join(measured['different'])}")
    if measured["counts"][0] != measured["counts"][1]:
        said.append(f"counts differ: {measured['counts']}")
    return said


def report(measured: dict[str, Any]) -> dict[str, Any]:
    rounds = measured["rounds"]
    lost = [one["asked"] - one["kept"] for one in rounds]
    kills = sum(one["killed"] for one in rounds)
    again = measured["calls_when_killed"] - measured["calls"]
    met = {True: measured["calls"] > 0, False: False}
    rows = [
        shared.row("kills that met a run", kills, "", "", None, f"of {len(rounds) - 1} moments"),
        shared.row(
            "calls made again",
            again,
            f"of {measured['calls']}",
            "",
            met[again == sum(lost)],
            f"{sum(lost)} replies lost with kills, at most {max(lost)} with one; {IN_FLIGHT} in flight",
        ),
        shared.row(
            "files that differ",
            len(measured["different"]),
            f"of {measured['files']}",
            "0",
            not measured["different"],
            "from the undisturbed run's, byte by byte; manifest and reply log aside",
        ),
        shared.row("undisturbed", measured["undisturbed"], "s", "", None, ""),
        shared.row("killed and resumed", measured["killed"], "s", "", None, ""),
    ]
    how = f"{measured['dialogues']:,} dialogues of one to three turns; counts: {measured['counts'][1]}"
    return {"target": 7, "name": "Killed and resumed", "rows": rows, "how": how}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--dialogues", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where it runs; a temporary folder else")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        for name in ("undisturbed", "killed"):
            shutil.rmtree(folder / name, ignore_errors=True)
        measured = measure(given.dialogues, given.kills, folder)
    result = report(measured)
    shared.show(result, as_json=given.json)
    said = problems(measured)
    sys.exit("\n".join(said) or 0)


if __name__ == "__main__":
    main()
