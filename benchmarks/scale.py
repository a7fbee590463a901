"""The whole pipeline on many dialogues: seconds, CPU and peak memory of every stage.

    python benchmarks/scale.py [--json] [--dialogues 40000] [--folder DIR] [--keep]
    python benchmarks/scale.py --dialogues 1000000        # the target; needs about 10 GB of disk
    python benchmarks/scale.py --dialogues 1000000 --once # that size alone, run once: no growth, no resuming

Dialogues of 2 to 8 turns (about 1 KB) are written to a temporary folder: one in 50 repeats the content of an
earlier one, one in 20 belongs to a pair of trials of one task with different rewards. A process of its own then
runs the recipe on them: source, rubric judge (mode json), role adherence (binary, one question a turn), selection,
natural pairs, export. The judge is the scripted engine with a function that answers by what is asked, so all
that is measured is ours. Then the same command runs again, which must ask nothing: that is what resuming costs.

Peak memory is the kernel's: each stage resets the process's high-water mark (`/proc/self/clear_refs`) and reads it
when it ends. It holds file pages mapped by the reader of Parquet, too. A quarter of the dialogues is run first; a
stage that streams needs the same memory for both, and what grows a dialogue is printed as bytes a dialogue. With fewer
than these the blocks of 8 MB that an export holds are not full yet, and their filling looks like growth.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GIB = 2**30
LIMIT_GIB = 2.0
RECIPE: dict[str, Any] = {
    "name": "scale",
    "scenario": "A customer writes to a shop.",
    "role": "A patient shop assistant who never leaves the subject of the shop.",
    "models": {"judge": {"engine": "scripted", "replies": []}},
    "judge": {"mode": "json", "text": "off"},
    "adherence": {"output_mode": "binary"},
    "select": {"where": {"good": "verdict >= 'good'", "in_role": "adherent"}},
    "max_unscored": 0.0,
}
WORDS = (
    "order", "parcel", "refund", "invoice", "delivery", "tracking", "number", "address", "shop",
    "lamp", "table", "cushion", "colour", "size", "return", "label", "courier", "Monday", "Friday",
    "morning", "please", "could", "you", "check", "when", "where", "already", "again", "still",
    "thanks", "kindly", "found", "nothing", "inside", "the", "box", "was", "broken", "missing",
    "late", "early", "exactly", "sorry", "of", "course",
)  # fmt: skip


# ---- data ---------------------------------------------------------------------------------------


def write_dialogues(path: Path, count: int) -> None:
    """The input; the same `count` gives the same file."""
    with path.open("w") as out:
        for number in range(count):
            row = dialogue(number if number % 50 != 49 else number - 25, number)
            out.write(json.dumps(row) + "\n")


def dialogue(seed: int, number: int) -> dict[str, Any]:
    rng = random.Random(seed)
    turns, said = rng.randint(2, 8), " ".join(rng.choices(WORDS, k=400))
    messages, at = [], 0
    for turn in range(turns):
        for role, longest in (("user", 80), ("assistant", 160)):
            size = rng.randint(longest // 4, longest)
            messages.append({"role": role, "content": f"{turn} {said[at : at + size].strip()}."})
            at = (at + size) % 1200
    row: dict[str, Any] = {"id": f"chat-{number}", "messages": messages}
    if number % 20 < 2 and number % 50 != 49:
        row |= {"group": f"task-{number // 20}", "reward": float(number % 20)}
        first = {"role": "user", "content": f"Task {number // 20}: find my parcel."}
        row["messages"] = [first, *messages[1:]]
    return row


# ---- the process that is measured ---------------------------------------------------------------


def answer(request: Any) -> str:
    """A valid reply to whatever a stage asks; its scores follow from a checksum of the prompt."""
    prompt = request.messages[0]["content"]
    drawn = random.Random(zlib.crc32(prompt.encode()))
    if request.schema is None:
        return "NO" if drawn.random() < 0.03 else "YES"
    reply: dict[str, Any] = {}
    for key in request.schema["properties"]:
        if key.startswith("turn_"):
            reply[key] = {
                "context_use": drawn.randint(3, 5),
                "helpfulness": drawn.randint(3, 5),
                "safety": 5,
            }
        elif key == "verdict":
            reply[key] = "good"
        elif key == "weakest_turn":
            reply[key] = None
        elif key == "repair_handling":
            reply[key] = "n/a"
        else:
            reply[key] = drawn.randint(3, 5)
    return json.dumps(reply)


def peak_bytes() -> int:
    """The process's high-water mark of resident memory since it was last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM: this needs Linux")


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run_here(data: Path, out: Path) -> dict[str, Any]:
    """One run of the recipe, each of its stages measured."""
    import curate.engines.model_pool
    from curate.engines.scripted import ScriptedEngine
    from curate.recipe import parse_recipe
    from curate.run.pipeline import run_recipe
    from curate.run.runlog import RunLog

    async def scripted(_: object) -> ScriptedEngine:
        return ScriptedEngine(answer, keep_requests=False, open_dialogues=16)

    stages: dict[str, dict[str, float]] = {}
    timed = RunLog.timed

    @contextmanager
    def measured(log: RunLog, stage: str) -> Iterator[None]:
        Path("/proc/self/clear_refs").write_text("5")
        began, cpu = time.monotonic(), cpu_seconds()
        with timed(log, stage):
            yield
        held = stages.setdefault(stage, {"seconds": 0.0, "cpu": 0.0, "peak": 0})
        held["seconds"] += time.monotonic() - began
        held["cpu"] += cpu_seconds() - cpu
        held["peak"] = max(held["peak"], peak_bytes())

    curate.engines.model_pool.open_engine = scripted  # type: ignore[assignment]
    RunLog.timed = measured  # type: ignore[assignment, method-assign]
    began, start_bytes = time.monotonic(), peak_bytes()
    result = run_recipe(parse_recipe({**RECIPE, "source": {"path": str(data)}}), out=out)
    manifest = result.manifest
    return {
        "stages": stages,
        "seconds": time.monotonic() - began,
        "cpu": cpu_seconds(),
        "start": start_bytes,
        "dialogues": manifest.dialogues,
        "judged": manifest.stages["judge"].rows,
        "requests": manifest.requests,
        "selected": manifest.selected,
        "natural_pairs": manifest.natural_pairs,
        "exported": manifest.exports["trl"]["sft"],
        "exit_code": result.exit_code,
    }


# ---- what is printed ----------------------------------------------------------------------------


def measure(folder: Path, count: int, keep: bool, times: int = 2) -> list[dict[str, Any]]:
    """A fresh run of `count` dialogues, and where it runs twice one that finds everything done."""
    place = folder / str(count)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    write_dialogues(place / "chats.jsonl", count)
    runs = []
    try:
        for _ in range(times):
            command = [sys.executable, __file__, "--child", str(place)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        for run in runs:
            run["disk"] = {
                path.name: sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
                if path.is_dir()
                else path.stat().st_size
                for path in sorted((place / "run").iterdir())
            }
    finally:
        if not keep:
            shutil.rmtree(place)
    if any(run["exit_code"] for run in runs) or any(run["requests"] for run in runs[1:]):
        raise RuntimeError(f"the run is not what it should be: {runs}")
    return runs


def table(
    large: dict[str, Any], small: dict[str, Any] | None = None, again: dict[str, Any] | None = None
) -> str:
    """What is printed; `small` and `again` are columns of their own where they were run."""
    count = large["dialogues"]
    lines = [
        f"{count:,} dialogues, {large['requests']:,} requests, {large['selected']:,} selected, "
        f"{large['natural_pairs']:,} natural pairs; at the start {large['start'] / GIB:.2f} GiB",
        f"{'stage':<12}{'seconds':>9}{'CPU s':>9}{'dialogues/s':>13}{'peak GiB':>10}"
        + (f"{'at a quarter':>14}{'bytes/dialogue':>16}" if small else "")
        + (f"{'again, s':>10}" if again else ""),
    ]
    wholes = [run and {**run, "peak": peak_of(run)} for run in (large, small, again)]
    stages = [
        (name, [run and run["stages"].get(name) for run in (large, small, again)])
        for name in large["stages"]
    ]
    for name, (stage, before, repeated) in [*stages, ("whole run", wholes)]:
        line = (
            f"{name:<12}{stage['seconds']:>9.1f}{stage['cpu']:>9.1f}"
            f"{count / max(stage['seconds'], 1e-9):>13,.0f}{stage['peak'] / GIB:>10.2f}"
        )
        if small:
            growth = (stage["peak"] - before["peak"]) / (count - small["dialogues"])
            line += f"{before['peak'] / GIB:>14.2f}{growth:>16,.0f}"
        if again:
            line += f"{repeated['seconds'] if repeated else 0:>10.1f}"
        lines.append(line)
    sizes = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in large["disk"].items())
    return "\n".join([*lines, f"on disk: {sizes}"])


def peak_of(run: dict[str, Any]) -> float:
    return max(stage["peak"] for stage in run["stages"].values())


def row(metric: str, value: float, unit: str, target: str = "", **more: Any) -> dict[str, Any]:
    """One figure of `--json`."""
    figure = {"metric": metric, "value": round(value, 3), "unit": unit, "target": target}
    return {**figure, "met": None, "beside": "", **more}


def growth_row(large: dict[str, Any], small: dict[str, Any]) -> dict[str, Any]:
    """Return how the peak grows between two sizes; what first fills caches and blocks grows more than what follows."""
    growth = (peak_of(large) - peak_of(small)) / (large["dialogues"] - small["dialogues"])
    beside = "all indexes of a run together; less between larger sizes"
    return row("growth of the peak", growth, "bytes/dialogue", beside=beside)


def report(
    large: dict[str, Any], small: dict[str, Any] | None = None, again: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The one object of `--json`; `small` and `again` where they were run."""
    count = large["dialogues"]

    def at_small(peak: float) -> str:
        return f"{peak / GIB:.2f} GiB at {small['dialogues']:,}" if small else ""

    rows = [
        row(
            f"peak RSS at {count:,} dialogues",
            peak_of(large) / GIB,
            "GiB",
            "under 2 GiB at 1,000,000",
            met=peak_of(large) < LIMIT_GIB * GIB if count >= 1_000_000 else None,
            beside=at_small(peak_of(small)) if small else "",
        ),
        *([growth_row(large, small)] if small else []),
        row(
            "whole run",
            large["seconds"],
            "s",
            beside=f"{again['seconds']:.1f} s to run again" if again else "",
        ),
        row("CPU", large["cpu"] / count * 1000, "ms/dialogue"),
    ]
    for name, stage in large["stages"].items():
        speed = f"{stage['seconds']:.1f} s, {count / max(stage['seconds'], 1e-9):,.0f} dialogues/s"
        before = [at_small(small["stages"][name]["peak"])] if small else []
        beside = "; ".join([*before, speed])
        rows.append(row(f"{name}: peak RSS", stage["peak"] / GIB, "GiB", beside=beside))
    how = (
        f"{count:,} generated dialogues of about 1 KB and 2 to 8 turns; {large['requests']:,} requests to the "
        "scripted engine; kernel's high-water mark of resident memory, reset at each stage"
    )
    return {"target": 9, "name": "Memory at scale", "rows": rows, "how": how}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dialogues", type=int, default=40_000)
    parser.add_argument("--folder", type=Path, help="where data is made; a temporary folder else")
    parser.add_argument("--keep", action="store_true", help="leave the data there")
    parser.add_argument("--once", action="store_true", help="this size alone, and one run of it")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        print(json.dumps(run_here(given.child / "chats.jsonl", given.child / "run")))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        small = again = None
        if given.once:
            [large] = measure(folder, given.dialogues, given.keep, times=1)
        else:
            [small] = measure(folder, given.dialogues // 4, given.keep, times=1)
            large, again = measure(folder, given.dialogues, given.keep)
    shown = report if given.json else table
    found = shown(large, small, again)
    print(json.dumps(found) if given.json else found, flush=True)


if __name__ == "__main__":
    main()
