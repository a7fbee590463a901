"""How fast inspect_ai's viewer opens the dialogues that benchmarks/report_page.py writes a report of, beside it.

    python benchmarks/report_page.py DATA.jsonl --keep RUN
    python benchmarks/inspect_viewer.py RUN INSPECT_VENV [--keep LOGS]

The same dialogues, each with its scores, are written as a log (.eval) by inspect_ai's own functions, in its own venv. Its
own server (`inspect view start`) serves it on this machine, since the viewer does not open from disk, and the same Chromium
opens it three times, each in a browser of its own: seconds until the list of samples stands, until one in the middle is
shown, and the memory of the renderer.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from report_page import fresh_page, resident, show

from curate.run.ingest import DIALOGUES

WRITE = """
import json, sys
from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser
from inspect_ai.scorer import Score

KINDS = {"user": ChatMessageUser, "assistant": ChatMessageAssistant}
with open(sys.argv[1]) as lines:
    rows = [json.loads(line) for line in lines]
samples = []
for number, row in enumerate(rows):
    messages = [KINDS[one["role"]](content=one["content"]) for one in row["messages"]]
    scores = {"mean_score": Score(value=1 + number % 5), "adherence": Score(value=number % 100 / 100)}
    samples.append(EvalSample(id=row["id"], epoch=1, input=messages[:1], target="", messages=messages, scores=scores))
spec = EvalSpec(created="2026-11-23T00:00:00+00:00", task="drawn", dataset=EvalDataset(name="drawn", samples=len(samples)), model="none/none", config=EvalConfig())
write_eval_log(EvalLog(eval=spec, status="success", samples=samples), sys.argv[2])
"""


@contextmanager
def served(venv: Path, logs: Path) -> Iterator[str]:
    """The viewer's server on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [venv / "bin" / "inspect", "view", "start", "--log-dir", logs, "--port", port]
    server = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(120):
            try:
                with urlopen(f"http://127.0.0.1:{port}/"):
                    break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def opened(address: str, log: str, middle: str) -> dict[str, float]:
    """One opening in a browser of its own."""
    with fresh_page(240) as page:
        began = time.perf_counter()
        page.goto(f"{address}/#/logs/{log}", wait_until="commit")
        page.get_by_text("chat-0", exact=True).first.wait_for()
        found = {"open_s": time.perf_counter() - began, "renderer_mb": resident(os.getpid())}
        began = time.perf_counter()
        page.evaluate(f"location.hash = '#/logs/{log}/samples/sample/{middle}/1/'")
        page.get_by_text(re.compile("^assistant$", re.IGNORECASE)).first.wait_for()
        found["dialogue_s"] = time.perf_counter() - began
        found["renderer_after_mb"] = resident(os.getpid())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        logs = given.keep or Path(temporary)
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / "drawn.eval"
        dialogues = given.run / DIALOGUES
        count = sum(1 for _ in dialogues.open())
        began = time.perf_counter()
        if not log.is_file():
            python = given.venv / "bin" / "python"
            subprocess.run([python, "-c", WRITE, dialogues, log], check=True)
        figures: dict[str, float] = {
            "write_s": time.perf_counter() - began,
            "file_mb": log.stat().st_size / 1e6,
        }
        with served(given.venv, logs) as address:
            times = [opened(address, log.name, f"chat-{count // 2}") for _ in range(3)]
    show(count, figures, times)


if __name__ == "__main__":
    main()
