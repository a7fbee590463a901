"""Write a draw as a page to answer in: the report's program with only the drawn dialogues or pairs, in their order.

Neither the judge's scores nor the data's own labels are in the file, so the people who label cannot see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.records import TURN_DIMENSIONS, Draw, PreferencePair
from curate.report.packed_columns import CONTENT_SIGNS, encoded
from curate.report.page import packed_chunks, page
from curate.run.labels.populations import is_of_pairs, named_set
from curate.run.labels.question import Question
from curate.run.labels.sample_files import drawn_dialogues, drawn_pairs, in_order
from curate.storage.whole_files import atomic_file
from curate.trust.bad_rule import BETTER
from curate.trust.label_rows import GOOD

_FIRST_WORDS = 80
_DIALOGUE = {
    *("id", "messages", "role_definition", "scenario", "tools", "evidence", "expected_outcomes")
}


def write_sample_page(
    run: Path,
    draw: Draw,
    table: pl.DataFrame,
    questions: Mapping[str, Sequence[str]],
    question: Question,
    out: Path,
) -> int:
    """Write the page.

    Args:
        run: run folder.
        draw: as it is recorded.
        table: a row for each member of the set, see `sample_files.write_sample`.
        questions: about each drawn member, with the possible answers.
        question: what the answers should certify.
        out: the file.

    Returns:
        The number of dialogues or pairs in it.
    """
    bodies = list(
        _pairs(run, draw, table) if is_of_pairs(draw.of) else _dialogues(run, table, questions)
    )
    packed = list(packed_chunks(orjson.dumps(body) for body, _ in bodies))
    units = [unit for unit, _ in in_order(table)]
    columns: dict[str, list[Any]] = {
        # not the dialogues' own ids, which may give away a pair's side or a source
        "id": units,
        "asked": [count for _, count in bodies],
        "content": [body["hash"][:CONTENT_SIGNS] for body, _ in bodies],
        "first_words": [_first_words(body["messages"]) for body, _ in bodies],
    }
    figures = {
        "run": {"key": draw.id, "name": draw.run},
        "draw": _described(draw, table, questions, question),
        "columns": [],
        "meanings": {},
        "chunks": [count for count, _ in packed],
        "parts": [],
        "left_out": 0,
    }
    with atomic_file(out) as file:
        for piece in page(
            f"{draw.run}: {len(bodies)} to answer",
            figures,
            {"dialogues": {name: encoded(values) for name, values in columns.items()}, "pairs": {}},
            (chunk for _, chunk in packed),
        ):
            file.write(piece)
    return len(bodies)


def _described(
    draw: Draw,
    table: pl.DataFrame,
    questions: Mapping[str, Sequence[str]],
    question: Question,
) -> dict[str, Any]:
    """Return what the page says of the draw; `audit` where its answers can certify while they come in."""
    of_pairs = is_of_pairs(draw.of)
    dimensions = [name for name in questions if name in (*GOOD, BETTER)]
    audit = {
        "dimensions": dimensions,
        "risk": question.risk,
        "confidence": question.confidence,
        "size": table.height,
    }
    return {
        "id": draw.id,
        "purpose": draw.purpose,
        "of_pairs": of_pairs,
        "named": named_set(draw.of),
        "by": draw.by,
        "questions": [
            {"name": name, "choices": choices, "of_turns": name in TURN_DIMENSIONS}
            for name, choices in questions.items()
        ],
        "audit": audit if draw.purpose == "certify" and draw.by is None and dimensions else None,
    }


def _dialogues(
    run: Path, table: pl.DataFrame, questions: Mapping[str, Sequence[str]]
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each dialogue, and how many questions are asked about it."""
    of_turns = sum(name in TURN_DIMENSIONS for name in questions)
    for dialogue in drawn_dialogues(run, table):
        turns = sum(turn.in_rubric for turn in dialogue.turns)
        yield _body(dialogue), of_turns * turns + len(questions) - of_turns


def _body(dialogue: Dialogue) -> dict[str, Any]:
    body = dialogue.model_dump(mode="json", exclude_defaults=True, include=_DIALOGUE)
    body["hash"] = dialogue.content_hash
    body["turns"] = [(turn.number, turn.start, turn.stop) for turn in dialogue.turns]
    return body


def _pairs(run: Path, draw: Draw, table: pl.DataFrame) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each pair as a dialogue that ends where its sides begin, and 1 for its one question."""
    for pair, swapped in drawn_pairs(run, draw, table):
        yield _pair_body(pair, swapped), 1


def _pair_body(pair: PreferencePair, swapped: bool) -> dict[str, Any]:
    sides = pair.model_dump(
        mode="json", exclude_defaults=True, include={"pair_id", "turn", "chosen", "rejected"}
    )
    shown = pair.model_dump(mode="json", exclude_defaults=True, include={"prompt", "tools"})
    return {
        "id": pair.dialogue_id,
        "hash": pair.content_hash,
        "messages": shown["prompt"],
        "tools": shown.get("tools", []),
        "turns": [],
        "pairs": [sides | {"swapped": swapped}],
    }


def _first_words(messages: Sequence[dict[str, Any]]) -> str:
    texts = (m.get("content", "") for m in messages if m["role"] == "user")
    return " ".join(next(filter(str.strip, texts), "").split())[:_FIRST_WORDS]
