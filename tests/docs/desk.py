"""What a page of the docs assumes its reader to have: chats, a judge, a recipe, a run, labels of people, a tokenizer.

The judge is a real server. It knows which replies are as they were written and finds all others bad, so that it is a
judge of use: planted flaws are noticed, and labels agree with it.
"""

from __future__ import annotations

import csv
import json
import math
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from curate.api import load_dialogues
from curate.run.ingest import read_dialogues
from curate.sources.shipped_files import sample_chats
from tests.cli.test_metrics import DRAFT
from tests.servers import Body, answer_by_hash

DIALOGUES = 60
"""More than the 22 labels that a certificate takes at the least, and few enough to be judged in seconds."""

WORDS = ["parcel", "depot", "driver", "street", "window", "letter", "counter", "ticket", "market"]
_MESSAGE = re.compile(r"^\[\d+\.(\w+) ?[^\]]*\]\n(.*?)(?=^\[\d+\.|^</dialogue>|\Z)", re.M | re.S)


def is_bad(number: int) -> bool:
    """A quarter of the dialogues end with a reply that is no answer."""
    return number % 4 == 3


def reply(number: int, turn: int) -> str:
    """A reply that no other dialogue has, with places for most flaws."""
    if is_bad(number) and turn:
        return f"No idea about case {number}, ask somebody else."
    draw = random.Random(f"{number} {turn}")
    one, two, three = draw.sample(WORDS, 3)
    return (
        f"The {one} of case {100 + number} is with the {two} since {draw.randint(2, 9)} o'clock. You will have it "
        f"before {draw.randint(10, 28)} May, and that is certain. It can be changed at the {three}, if you want to."
    )


def chat(number: int) -> dict[str, Any]:
    """A dialogue with people's labels in it; one in twelve of them is mistaken."""
    messages = []
    for turn in range(2):
        asked = f"Where is the thing of case {100 + number}, for the time {turn}?"
        messages += [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": reply(number, turn)},
        ]
    seems_bad = is_bad(number) != (number % 12 == 5)
    labels = {
        "stars": 2 if seems_bad else 5,
        "label": "tone_violation" if seems_bad else "adherent",
    }
    return {"id": f"chat-{number}", "messages": messages, "labels": labels}


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """A file of a JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


class Judge:
    """Answers as a model that knows the good replies."""

    def __init__(self) -> None:
        written = [reply(n, turn) for n in range(DIALOGUES) for turn in range(2)]
        self.good = {text for text in written if not text.startswith("No idea")}
        for path in sample_chats():
            for held in load_dialogues(path).dialogues:
                self.good |= {m.content.strip() for m in held.messages if m.role == "assistant"}

    def __call__(self, body: Body) -> Body | str:
        text = "\n".join(str(message["content"]) for message in body["messages"])
        if "What is asked for:" in text:
            return json.dumps(DRAFT)
        if not body.get("logprobs") or "<dialogue>" not in text:
            return answer_by_hash(body)
        dialogue = text[text.rindex("<dialogue>") :]
        question = dialogue.partition("</dialogue>")[2] or text
        replies = [said for role, said in _MESSAGE.findall(dialogue) if role == "assistant"]
        sides = re.findall(r"<candidate>\n(.*?)\n</candidate>", text, re.S)
        if sides:
            return likely("A" if self.is_good(sides[0]) else "B")
        if re.search(r"^A = ", question, re.MULTILINE):
            return likely("A")
        if "ONLY with YES" in text:
            return likely("YES" if self.is_good(replies[-1]) else "NO")
        asked = re.search(r"[Tt]urn (\d+)", question)
        if asked and 1 <= int(asked[1]) <= len(replies):
            replies = [replies[int(asked[1]) - 1]]
        return likely("5" if all(map(self.is_good, replies)) else "2")

    def is_good(self, said: str) -> bool:
        """Whether a reply stands as it was written."""
        return said.strip() in self.good


def likely(label: str) -> Body:
    """A reply with nine tenths of the probability on a label."""
    rest = {"5": "4", "2": "1", "YES": "NO", "NO": "YES", "A": "B", "B": "A"}[label]
    return {"text": label, "first_token": [(label, math.log(0.9)), (rest, math.log(0.09))]}


def fill_in(path: Path) -> None:
    """What people do with a file of `curate sample` about dialogues: they fill in its column `value`."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if "value" not in rows[0]:  # of pairs: the demo brings their labels
        return
    for row in rows:
        bad = is_bad(number_of(row["id"])) and row.get("turn") != "1"
        worst, best = ("reject", "accept") if row["dimension"] == "accept" else ("2", "5")
        row["value"] = worst if bad else best
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def number_of(name: str) -> int:
    """The number in a dialogue's id."""
    return int(name.rpartition("-")[2])


def review(run: Path) -> Iterator[dict[str, Any]]:
    """What the page of a run exports where somebody has accepted what is good and rejected the rest."""
    for dialogue in read_dialogues(run):
        bad = is_bad(number_of(dialogue.id))
        yield {
            "id": dialogue.id,
            "content": dialogue.content_hash,
            "turn": None,
            "dimension": "accept",
            "value": "reject" if bad else "accept",
            "rater": "ann",
            "time": "2026-11-23T10:00:00.000Z",
        }
