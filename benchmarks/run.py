"""Run the benchmarks one after the other and write benchmarks/RESULTS.md.

    python benchmarks/run.py                 # all but the long one (`make bench`)
    python benchmarks/run.py --full          # the long one too
    python benchmarks/run.py --only minhash  # one section again, the others stay as they are

Each script measures one target and stands on its own: run without arguments it prints a table, with `--json`
one JSON object on standard output:

    {"target": row number, "name": str, "how": str,
     "rows": [{"metric": str, "value": number, "unit": str, "target": str, "met": bool or null, "beside": str}]}

`beside` is the best known alternative and its figure in the same run. Code of peers runs in a virtualenv of its
own: the script runs itself with `--peer` by the interpreter in CURATE_PEERS_PYTHON.

What the scripts print is kept in benchmarks/results.json, with machine, versions and date of each, and the page
is written from it. A script that fails has a section that says so, and makes the exit code 1. Nothing runs in
parallel, and the load of the machine before each script is recorded: a figure taken on a busy one says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results.json"
PAGE = HERE / "RESULTS.md"


class Script(NamedTuple):
    """One script and the target it measures."""

    name: str
    target: int
    long: bool = False
    """Takes half an hour; left out unless asked for."""
    file: str = ""
    """The script's file without its ending; the name where empty."""
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """What is run, from the project's root."""
        return [f"benchmarks/{self.file or self.name}.py", *self.arguments]


SCRIPTS = (
    Script("trunk_sharing", 1),
    Script("slot_reads", 2),
    Script("exact_labels", 3),
    Script("tokenise_once", 5),
    Script("reply_log", 6),
    Script("columnar", 7),
    Script("minhash", 7),
    Script("scorers", 8),
    Script("scale", 9),
    Script("million", 9, True, "scale", ("--dialogues", "1000000", "--once")),
    Script("overhead", 10),
)
TARGETS = {
    1: (
        "Trunk-shared prompts",
        "Tokens prefilled (prompt minus cached) at most 1.05 of the bound R + nL + nq at block 16; wall time "
        "against unshared prompts at least 5x at n = 10. R is rubric and role, n the turns, L a turn, q a question.",
    ),
    2: (
        "Slot reads instead of JSON decoding",
        "At least 5x fewer tokens generated a dialogue than in mode `json`, and never slower, on a CPU too; agreement "
        "reported.",
    ),
    3: (
        "Exact label log-probabilities",
        "The label is found in 100 % of calls, beside top-10 and top-20 of the same run; error against the full "
        "softmax not above the model's own error of fp32 against fp64.",
    ),
    5: ("Tokenise once", "CPU milliseconds a dialogue, naive over ours, n = 10: at least 8x."),
    6: (
        "Reply log and resume",
        "Records a second at least 20x commit-per-row sqlite; after kill -9, calls re-issued over calls lost "
        "exactly 1.0.",
    ),
    7: (
        "Columnar stages",
        "Filter again and export never slower than a plain orjson loop that writes the same files; MinHash documents "
        "a second at least 10x datasketch.",
    ),
    8: (
        "Scorers",
        "Embedding calls over unique texts 1.0; BERTScore as `bert-score` gives it, with the pairs a second of both.",
    ),
    9: (
        "Memory",
        "Peak memory at 1,000,000 dialogues with the scripted engine, by stage: under 2 GiB, flat in streaming "
        "stages, indexes within a stated allowance a dialogue.",
    ),
    10: (
        "Our overhead",
        "CPU milliseconds a 1,000 requests, client, store and prompts included, on loopback: at most 150.",
    ),
}
OURS = ("curate-dialogues", "aiohttp", "orjson", "polars", "torch", "transformers", "xllamacpp")
PEERS = ("openai", "deepeval", "gaussia", "datasketch", "bert-score")
TIMEOUT, LONG_TIMEOUT = 900, 3600

Result = dict[str, Any]


def run_script(script: Script, peers: str | None) -> Result:
    """Run one script; its object, or `failed` with what it said last."""
    base: Result = {
        "target": script.target,
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": machine(),
        "versions": versions(OURS, sys.executable) | versions(PEERS, peers),
        "load": round(os.getloadavg()[0], 2),
    }
    environment = dict(os.environ) | ({"CURATE_PEERS_PYTHON": peers} if peers else {})
    started = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *script.command, "--json"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONG_TIMEOUT if script.long else TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        return base | {"failed": f"not done after {error.timeout:.0f} seconds"}
    base["seconds"] = round(time.monotonic() - started, 1)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return base | {"failed": last[-1].replace(str(ROOT), ".")[:300]}
    try:
        return base | checked(json.loads(done.stdout), script)
    except ValueError as error:
        return base | {"failed": f"its output does not keep the contract: {error}"}


def checked(printed: Any, script: Script) -> Result:
    """What a script printed, or a ValueError that says what it lacks."""
    if not isinstance(printed, dict) or printed.get("target") != script.target:
        raise ValueError(f"not an object with target {script.target}")
    for key in ("name", "rows", "how"):
        if not printed.get(key):
            raise ValueError(f"no {key!r}")
    for row in printed["rows"]:
        missing = {"metric", "value", "unit", "target", "met", "beside"} - row.keys()
        if missing:
            raise ValueError(f"a row lacks {', '.join(sorted(missing))}")
        if row["met"] not in (True, False, None):
            raise ValueError("'met' is true, false or null")
    return printed


def machine() -> str:
    """CPU model, cores this process may use, memory."""
    name = platform.processor() or platform.machine()
    details = Path("/proc/cpuinfo")
    if details.is_file():
        found: dict[str, str] = {}
        for line in details.read_text().splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
        name = found.get("model name", name)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{name}, {cores} cores, {memory:.0f} GiB, {platform.system()}"


def versions(packages: Sequence[str], python: str | None) -> dict[str, str]:
    """Installed versions of packages, in this interpreter's environment or another's."""
    if python is None:
        return {}
    if python == sys.executable:
        found = {"python": platform.python_version()}
        for package in packages:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found
    code = (
        "import json, sys\nfrom importlib.metadata import version, PackageNotFoundError\nfound = {}\n"
        "for name in sys.argv[1:]:\n    try: found[name] = version(name)\n"
        "    except PackageNotFoundError: pass\nprint(json.dumps(found))"
    )
    said = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True)
    return dict(json.loads(said.stdout)) if said.returncode == 0 else {}


def page(results: dict[str, Result]) -> str:
    """RESULTS.md: one section a target, in the order of the targets."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `benchmarks/run.py`; do not edit. `make bench` runs everything again, "
        "`python benchmarks/run.py --only NAME` one script. Each target is a ratio or a share taken within one run "
        "of one script, so that the machine cancels out as far as it can; the absolute figure and the best known "
        "alternative stand beside it.",
        "",
        "| # | target | met |",
        "|---|---|---|",
    ]
    lines += [
        f"| {number} | [{title}](#{anchor(number, title)}) | {standing(number, results)} |"
        for number, (title, _) in TARGETS.items()
    ]
    for number, (title, target) in TARGETS.items():
        lines += ["", f"## {number}. {title}", "", f"Target: {target}"]
        for script in SCRIPTS:
            if script.target == number:
                lines += ["", *section(script, results.get(script.name))]
    return "\n".join(lines) + "\n"


def anchor(number: int, title: str) -> str:
    """The name GitHub gives a section's heading."""
    return f"{number}-{title.lower().replace(' ', '-')}"


def standing(number: int, results: dict[str, Result]) -> str:
    """One word about a target: every measured claim met, some not, or what is missing."""
    of = [results.get(script.name) for script in SCRIPTS if script.target == number]
    if any(result is None or "failed" in result for result in of):
        return "not measured in full"
    met = [
        row["met"] for result in of if result for row in result["rows"] if row["met"] is not None
    ]
    if not met:
        return "measured, no claim"
    return "yes" if all(met) else f"no ({sum(met)} of {len(met)} figures)"


def section(script: Script, result: Result | None) -> list[str]:
    """The lines about one script."""
    command = " ".join(["python", *script.command])
    if result is None:
        return [f"`{command}`: not run yet."]
    taken = f"{result['date']}, {result['machine']}, load {result['load']} before the start"
    if "failed" in result:
        return [f"`{command}`: failed ({taken}): {result['failed']}"]
    lines = [
        f"### {result['name']}",
        "",
        "| figure | value | target | met | beside it |",
        "|---|---:|---|---|---|",
    ]
    for row in result["rows"]:
        met = {True: "yes", False: "**no**", None: ""}[row["met"]]
        value = f"{shown(row['value'])} {row['unit']}".strip()
        cells = [row["metric"], value, row["target"], met, row["beside"]]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    used = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return [
        *lines,
        "",
        result["how"],
        "",
        f"Repeat with `{command}`. Taken {taken}; {result['seconds']} seconds. Versions: {used}.",
    ]


def shown(value: float) -> str:
    """A figure with as many digits as mean something."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def main() -> int:
    """Run, keep, write the page; 1 when a script failed."""
    parser = argparse.ArgumentParser(description="Run the benchmarks and write RESULTS.md.")
    names = [script.name for script in SCRIPTS]
    parser.add_argument("--only", action="append", choices=names, help="repeatable")
    parser.add_argument("--full", action="store_true", help="the long ones too")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    peers = os.environ.get("CURATE_PEERS_PYTHON")
    if not peers and not arguments.page:
        print("CURATE_PEERS_PYTHON is not set: peers are not measured", file=sys.stderr)
    results: dict[str, Result] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    wanted = [
        script
        for script in SCRIPTS
        if (script.name in arguments.only if arguments.only else arguments.full or not script.long)
    ]
    failed = False
    for script in [] if arguments.page else wanted:
        print(f"{script.name} ...", file=sys.stderr, flush=True)
        result = results[script.name] = run_script(script, peers)
        failed |= "failed" in result
        print(f"  {result.get('failed') or summary(result)}", file=sys.stderr, flush=True)
        # After each one: a run that is stopped keeps what it measured.
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        PAGE.write_text(page(results))
    PAGE.write_text(page(results))
    return int(failed)


def summary(result: Result) -> str:
    """One line for the terminal."""
    return "; ".join(
        f"{row['metric']}: {shown(row['value'])} {row['unit']}".strip()
        + {True: " (met)", False: " (NOT met)", None: ""}[row["met"]]
        for row in result["rows"]
    )


if __name__ == "__main__":
    sys.exit(main())
