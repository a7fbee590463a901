"""Agreement on role adherence: of turns or of whole dialogues, and in each part of the data."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from curate.run.labels.agreement import measure_agreement
from curate.run.pipeline import run_recipe
from curate.trust.label_rows import GivenLabels
from tests.live import live_server
from tests.run.test_agreement import recipe, serve
from tests.servers import Body

TURNS = (4, 5, 11)


def dialogue(number: int, is_last: bool) -> dict[str, Any]:
    """Of 4, 5 or 11 turns, with a language by its metadata, by its label, or not; the last cannot be scored."""
    quality = round(random.Random(number).uniform(0.05, 0.95), 2)
    messages = []
    for turn in range(TURNS[number % 3]):
        messages += [
            {"role": "user", "content": f"Question {turn} of {number}?"},
            {"role": "assistant", "content": f"Well, here it is. Q={quality}"},
        ]
    messages[-1]["content"] += " BROKEN" * is_last
    return {
        "id": f"chat-{number}",
        "role_definition": ("A clerk.", "A guide.")[number % 2],
        "metadata": {"language": "en"} if number % 4 == 0 else {},
        "labels": {"language": "de"} if number % 4 == 1 else {},
        "messages": messages,
    }


def answer(body: Body) -> Body | str:
    text = json.dumps(body["messages"])
    return "no idea" if "BROKEN" in text else serve(body)


def labels(size: int, turn: int | None) -> GivenLabels:
    """Two people's answers about each dialogue, one of whom is wrong about each seventh; every fourth has a language."""
    rows: list[dict[str, Any]] = []
    for number in range(size):
        keeps = random.Random(number).uniform(0.05, 0.95) > 0.5
        for rater in ("ann", None):
            value = keeps != (rater is None and number % 7 == 0)
            row = {"id": f"chat-{number}", "dimension": "adherence", "turn": turn, "rater": rater}
            language = "fr" if number % 4 == 2 else None
            rows.append(row | {"value": "yes" if value else "no", "language": language})
    rows.append({"id": "chat-1", "dimension": "adherence", "turn": turn and 99, "value": "no"})
    return GivenLabels("gold", [(f"gold:{number}", row) for number, row in enumerate(rows, 1)])


@pytest.mark.parametrize(
    ("granularity", "size", "turn"), [("turn", 30, 2), ("conversation", 132, None)]
)
def test_role_adherence_is_compared_by_turn_or_dialogue_and_in_each_slice(
    tmp_path: Path, granularity: str, size: int, turn: int | None
) -> None:
    data = tmp_path / "chats.jsonl"
    rows = (dialogue(number, number == size - 1) for number in range(size))
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with live_server(answer=answer) as server:
        adherence = {"output_mode": "continuous", "evaluation_granularity": granularity}
        sections = {"adherence": adherence, "judge": False, "select": False}
        run_recipe(recipe(server, data, **sections), out=tmp_path / "run")
    measured = measure_agreement(tmp_path / "run", labels(size, turn))
    [dimension] = measured.report.dimensions.values()
    if turn is None:
        slices = {(part.by, part.value) for part in dimension.slices}
        lengths = ("1-4 turns", "5-10 turns", "over 10 turns")
        assert slices >= {
            *(("language", language) for language in ("en", "de", "fr")),
            *(("role", role) for role in ("A clerk.", "A guide.")),
            *(("length", length) for length in lengths),
        }
    of = "turns" if turn else "dialogues"
    assert [share.name for share in measured.report.shares] == [f"adherent {of}"]
    assert sum(measured.unused.counts.values()) >= 2
