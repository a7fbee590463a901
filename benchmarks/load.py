"""A million replies through client and store: does anything grow with what was asked?

    python benchmarks/load.py [--json] [--replies 1000000] [--width 256] [--faults 0.02] [--folder DIR]

A process of its own asks the server of `fault_server.py` for one-token label reads with twenty log-probabilities
back, ten about each dialogue, so many in flight: `OpenAIEngine`, retries, response cache and budget, as a run has them. A share
of the calls meets a fault first. Resident memory, open file descriptors, CPU and wall time are taken at every hundredth
of the way. Then a second process asks the same again from the same store, which must not reach the server.

Exit code 1 where a reply was lost or asked for again, memory grew by more than 8 bytes a reply after the first tenth,
descriptors passed the calls in flight by more than 32, or the last tenth took half as much CPU again as the first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fault_server
import loopback as shared

from curate.executors.loop import run as run_in_loop

TRUNK = shared.TRUNK[:2000]
ABOUT = "Dialogue "
SAMPLES = 100
MOST_GROWTH = 8.0  # bytes a reply
MOST_SLOWDOWN = 1.5


async def ask_all(url: str, store: Path, replies: int, width: int) -> list[dict[str, float]]:
    """Ask for the replies; return what the process held and had used at every hundredth of them."""
    from curate.engines.accounting import Accounting, Budget
    from curate.engines.cache import ReplyCache
    from curate.engines.client import Client
    from curate.engines.config import OpenAIConfig
    from curate.engines.open import open_engine
    from curate.executors.local import for_each

    config = OpenAIConfig(model=shared.MODEL, base_url=url, in_flight=width, revision="1")
    engine = await open_engine(config)
    dialogues, samples = replies // shared.SIBLINGS, []
    step = max(1, dialogues // SAMPLES)
    done = missing = 0

    def note(_: int, labels: int) -> None:
        nonlocal done, missing
        done += 1
        missing += shared.SIBLINGS - labels
        if done % step == 0:
            samples.append({"replies": done * shared.SIBLINGS, "missing": missing, **held_now()})

    with ReplyCache(store) as cache:
        ask = Client(engine, cache, accounting=Accounting(), budget=Budget(), base_delay=0.1)

        async def work(dialogue: int) -> int:
            found = await ask(shared.make_requests(dialogue, TRUNK))
            return sum(bool(reply.first_token) for reply in found)

        await for_each(range(dialogues), work, note, open_at_once=engine.open_dialogues)
    await engine.close()
    return samples


def held_now() -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "cpu": time.process_time(),
        "wall": time.monotonic(),
    }


def measure(replies: int, width: int, faults: float, folder: Path) -> dict[str, Any]:
    """Two rounds over one store: the samples of both, and what the server counted after each."""
    with fault_server.running(ABOUT, faults) as server:
        command = [sys.executable, __file__, "--ask", server.url, "--folder", str(folder)]
        command += ["--replies", str(replies), "--width", str(width)]
        rounds = []
        for _ in range(2):
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            samples = json.loads(done.stdout.splitlines()[-1])
            rounds.append({"samples": samples, **server.counts._asdict()})
    return {"replies": replies, "width": width, "first": rounds[0], "again": rounds[1]}


def tenth(samples: list[dict[str, float]], number: int) -> list[dict[str, float]]:
    """The samples of one tenth of the way, 0 to 9, with the one before it where there is one."""
    size = len(samples) // 10
    return samples[max(0, number * size - 1) : (number + 1) * size]


def cpu_of(samples: list[dict[str, float]], number: int) -> float:
    """Microseconds of CPU a reply in one tenth: the median of its hundredths."""
    some = tenth(samples, number)
    return statistics.median(
        1e6 * (after["cpu"] - before["cpu"]) / (after["replies"] - before["replies"])
        for before, after in itertools.pairwise(some)
    )


def growth_of(samples: list[dict[str, float]]) -> float:
    """Bytes of resident memory a reply, from the end of the first tenth to the end."""
    early, late = tenth(samples, 1), tenth(samples, 9)
    grown = statistics.median(one["rss"] for one in late) - statistics.median(
        one["rss"] for one in early
    )
    return grown / (late[0]["replies"] - early[0]["replies"])


def problems(measured: dict[str, Any], most_growth: float = MOST_GROWTH) -> list[str]:
    """Return what did not hold, in words; `most_growth` is in bytes a reply."""
    first, again, count = measured["first"], measured["again"], measured["replies"]
    samples = first["samples"]
    said = []
    if not (first["answers"] == first["bodies"] == count and first["again"] == 0):
        said.append(f"{count} replies were to be asked for once each: {first['answers']} were")
    if samples[-1]["missing"] or again["samples"][-1]["missing"]:
        said.append("replies came without their log-probabilities")
    if again["requests"] != first["requests"]:
        said.append(f"{again['requests'] - first['requests']} kept replies were asked for again")
    if growth_of(samples) > most_growth:
        said.append(f"memory grew by {growth_of(samples):.1f} bytes a reply")
    most = max(one["descriptors"] for one in samples)
    if most > measured["width"] + 32:
        said.append(f"{most:.0f} descriptors were open, with {measured['width']} calls in flight")
    if cpu_of(samples, 9) > MOST_SLOWDOWN * cpu_of(samples, 0):
        said.append("the last tenth took half as much CPU again as the first")
    return said


def row(metric: str, value: float, unit: str, target: str = "", beside: str = "") -> Any:
    return shared.row(metric, value, unit, target, None, beside)


def report(measured: dict[str, Any]) -> dict[str, Any]:
    first, again = measured["first"], measured["again"]
    samples, later = first["samples"], again["samples"]
    early, late = tenth(samples, 0), tenth(samples, 9)
    rates = [
        (some[-1]["replies"] - some[0]["replies"]) / (some[-1]["wall"] - some[0]["wall"])
        for some in (early, late)
    ]
    rss = [statistics.median(one["rss"] for one in tenth(samples, n)) / 2**20 for n in (0, 1, 9)]
    most = [max(int(one["descriptors"]) for one in some) for some in (early, late)]
    lasted = samples[-1]["wall"] - samples[0]["wall"]
    faults = f"{first['faults']:,} faults before them; {first['again']} given twice"
    rows = [
        row("right answers at the server", first["answers"], "", beside=faults),
        row(
            "asked by a second process",
            again["requests"] - first["requests"],
            "requests",
            "0",
            f"{later[-1]['wall'] - later[0]['wall']:.0f} s for all of them",
        ),
        row("resident memory, last tenth", rss[2], "MiB", beside=f"first tenth {rss[0]:.1f}"),
        row(
            "growth after the first tenth",
            growth_of(samples),
            "bytes a reply",
            f"<= {MOST_GROWTH:g}",
        ),
        row("descriptors, last tenth", most[1], "at most", beside=f"first tenth {most[0]}"),
        row("CPU, last tenth", cpu_of(samples, 9), "us a reply", beside=cpu_beside(samples)),
        row("rate, last tenth", rates[1], "replies/s", beside=f"first tenth {rates[0]:.0f}"),
        row("all", lasted, "s", beside=f"{measured['replies'] / lasted:.0f} replies/s"),
    ]
    how = (
        f"{measured['replies']:,} label reads, {measured['width']} in flight, ten a dialogue; prompts of "
        f"{len(shared.question(0, TRUNK))} bytes, replies of {len(shared.CHAT)}; loopback"
    )
    return {"target": 7, "name": "Load", "rows": rows, "how": how}


def cpu_beside(samples: list[dict[str, float]]) -> str:
    return "by tenths " + " ".join(f"{cpu_of(samples, number):.0f}" for number in range(10))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--replies", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=256, help="calls in flight")
    parser.add_argument("--faults", type=float, default=0.02, help="the share of calls that fail")
    parser.add_argument("--folder", type=Path, help="where the store is made; a temporary one else")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask is not None:
        asked = ask_all(given.ask, given.folder / "replies.sqlite", given.replies, given.width)
        print(json.dumps(run_in_loop(asked)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        measured = measure(given.replies, given.width, given.faults, folder)
    result = report(measured)
    shared.show(result, as_json=given.json)
    said = problems(measured)
    sys.exit("\n".join(said) or 0)


if __name__ == "__main__":
    main()
