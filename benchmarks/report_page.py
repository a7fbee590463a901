"""How large the report of a run is, how fast it opens, and what the browser needs for it.

    python benchmarks/report_page.py DATA.jsonl [--dialogues 10000] [--turns 10] [--keep FOLDER]

A run of that many dialogues is written by the run folder's own writers, without a model: turns are drawn (seeded) from
the chats of DATA (rows with `history: [{user, bot}]`, as MT-Bench-101 has them), scores at random. Then `curate report`
writes it, and Chromium (CURATE_CHROMIUM, playwright) opens it from disk three times: seconds from the start of
navigation until the overview stands, until a dialogue in the middle is shown, for a search through all texts, the
longest frame while the list is scrolled, and the memory of the renderer.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.records import (
    AdherenceScore,
    AdherenceTurn,
    ConversationLevel,
    ConversationScore,
    JudgeIdentity,
    Judgment,
    RubricScores,
    TurnScores,
)
from curate.run.ingest import DIALOGUES, INDEX, DialogueFile, read_index
from curate.run.outputs import write_scores
from curate.run.report import write_report
from curate.storage.run_folder import RunFolder
from curate.storage.stage_rows import StageRows

SEED = 7
IDENTITY = JudgeIdentity(engine="scripted", model="random")


def dialogues(data: Path, count: int, turns: int) -> Iterator[Dialogue]:
    """Dialogues of turns that are drawn from the chats."""
    with data.open() as lines:
        pool = [turn for line in lines for turn in json.loads(line)["history"]]
    draw = random.Random(SEED)
    for number in range(count):
        messages = []
        for turn in draw.choices(pool, k=turns):
            messages += [
                Message(role="user", content=turn["user"]),
                Message(role="assistant", content=turn["bot"]),
            ]
        language = draw.choice(["en", "de", "fr"])
        yield Dialogue(
            id=f"chat-{number}",
            messages=tuple(messages),
            role_definition="A patient assistant who explains what it does.",
            metadata={"language": language},
        )


def judged(dialogue: Dialogue, draw: random.Random) -> tuple[Judgment, AdherenceScore]:
    """Scores at random, an issue for each turn of a low one."""
    numbers = [turn.number for turn in dialogue.turns]
    levels = [draw.choices(range(1, 6), [2, 4, 10, 34, 50])[0] for _ in numbers]
    scored = tuple(
        TurnScores(
            turn=turn,
            scores=RubricScores(context_use=level, helpfulness=level, safety=5),
            issues=("Does not say what happens next.",) if level < 3 else (),
        )
        for turn, level in zip(numbers, levels, strict=True)
    )
    whole = ConversationScore(score=draw.choice([3, 4, 5]), note="Holds together.")
    judgment = Judgment(
        dialogue_id=dialogue.id,
        content_hash=dialogue.content_hash,
        identity=IDENTITY,
        per_turn=scored,
        conversation_level=ConversationLevel(
            coherence=whole, task_completion=whole, repair_handling=whole
        ),
        verdict="poor" if min(levels) == 1 else "borderline" if min(levels) == 2 else "good",
        decision_basis="The scores of its turns.",
        weakest_turn=numbers[levels.index(min(levels))],
    )
    roles = [round(draw.random() ** 0.3, 3) for _ in numbers]
    mean = sum(roles) / len(roles)
    adherence = AdherenceScore(
        dialogue_id=dialogue.id,
        content_hash=dialogue.content_hash,
        identity=IDENTITY,
        scoring_method="llm_judge",
        output_mode="continuous",
        evaluation_granularity="turn",
        definition="constructive",
        per_turn=tuple(
            AdherenceTurn(turn=turn, score=role, adherent=role >= 0.5)
            for turn, role in zip(numbers, roles, strict=True)
        ),
        session_score=mean,
        interval=(max(0.0, mean - 0.2), min(1.0, mean + 0.2)),
        interval_method="drawn",
        adherent=mean >= 0.5,
    )
    return judgment, adherence


def write_run(run: Path, data: Path, count: int, turns: int) -> None:
    """A finished run without a selection."""
    draw = random.Random(SEED)

    def rows(stage: str, model: type[Any]) -> StageRows[Any]:
        return StageRows(
            run / stage / "drawn",
            dump=lambda record: record.model_dump_json().encode(),
            load=model.model_validate_json,
        )

    with RunFolder(run) as folder:
        stages = rows("judge", Judgment), rows("adherence", AdherenceScore)
        with DialogueFile(run / DIALOGUES, run / INDEX) as file:
            for dialogue in dialogues(data, count, turns):
                file.append(dialogue)
                for stage, record in zip(stages, judged(dialogue, draw), strict=True):
                    stage.append(dialogue.content_hash, record)
        keys = read_index(run).select("content_hash").collect().to_series()
        for stage in stages:
            stage.compact(keys)
        write_scores(run, stages[0], stages[1])
        folder.write_manifest(
            {
                "format": 3,
                "name": f"drawn-{count}",
                "status": "done",
                "started": "2026-11-23T00:00:00",
                "rows_in": count,
                "rows_used": count,
                "dialogues": count,
                "fingerprints": {"judge": "drawn", "adherence": "drawn"},
            }
        )


SCROLL = """async () => {
  const box = document.querySelector(".list");
  let longest = 0, last = performance.now();
  for (let step = 0; step < 120; step++) {
    box.scrollTop = (box.scrollHeight * step) / 120;
    await new Promise(requestAnimationFrame);
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }
  return longest;
}"""


def resident(pid: int) -> float:
    """Megabytes of the processes that render pages, of a browser's children."""
    listed = subprocess.run(
        ["ps", "-eo", "pid,ppid,rss,args"], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 3) for line in listed.stdout.splitlines()[1:]]
    own, grown = {pid}, True
    while grown:
        more = {int(row[0]) for row in rows if int(row[1]) in own} - own
        own, grown = own | more, bool(more)
    sizes = [int(r[2]) for r in rows if int(r[0]) in own and "--type=renderer" in r[3]]
    return max(sizes, default=0) / 1000


@contextmanager
def fresh_page(patience: float) -> Iterator[Any]:
    """A page in a browser of its own, which is waited for that many seconds."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CURATE_CHROMIUM", "/usr/bin/chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(1000 * patience)
        yield page
        browser.close()


def opened(file: Path, middle: int) -> dict[str, float]:
    """One opening in a browser of its own; `middle`: a dialogue whose text is there."""
    from playwright.sync_api import expect

    with fresh_page(120) as page:
        began = time.perf_counter()
        page.goto(f"{file.as_uri()}#/overview", wait_until="commit")
        page.wait_for_selector("html[data-open]", state="attached")
        page.evaluate("() => new Promise(requestAnimationFrame)")
        found = {"open_s": time.perf_counter() - began}
        found["renderer_mb"] = resident(os.getpid())
        began = time.perf_counter()
        page.evaluate(f"location.hash = '#/dialogue/chat-{middle}'")
        page.wait_for_selector(".turn")
        found["dialogue_s"] = time.perf_counter() - began
        found["longest_frame_ms"] = page.evaluate(SCROLL)
        began = time.perf_counter()
        page.fill("#search", "zz no such words zz")
        expect(page.locator(".status")).to_have_text(
            re.compile(r"^0 dialogues of [\d,]+$"), timeout=120_000
        )
        found["search_s"] = time.perf_counter() - began
        found["renderer_after_mb"] = resident(os.getpid())
    return found


def show(dialogues: int, figures: dict[str, float], times: list[dict[str, float]]) -> None:
    """Print the figures with the median of each time."""
    medians = {name: statistics.median(time[name] for time in times) for name in times[0]}
    said = {"dialogues": dialogues, "load": os.getloadavg()[0]} | figures | medians
    print(json.dumps(said, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--dialogues", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = given.keep or Path(temporary) / "run"
        if not (run / "manifest.json").is_file():
            write_run(run, given.data, given.dialogues, given.turns)
        began = time.perf_counter()
        written = write_report(run)
        figures: dict[str, float] = {
            "write_s": time.perf_counter() - began,
            "file_mb": written.bytes[0] / 1e6,
            "raw_mb": (run / DIALOGUES).stat().st_size / 1e6,
            "left_out": written.left_out,
        }
        shown = given.dialogues - written.left_out
        times = [opened(written.files[0], shown // 2) for _ in range(3)]
    show(given.dialogues, figures, times)


if __name__ == "__main__":
    main()
