"""What a draw is written as: a file to fill in, or what a labelling tool imports. The judge's scores are in none."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from curate.dialogue import Dialogue, Message
from curate.errors import UsageError
from curate.records import TURN_DIMENSIONS, Draw, PreferencePair
from curate.run.ingest import read_dialogues, read_index
from curate.run.outputs import read_pairs
from curate.run.populations import PAIR_SETS, UNIT, is_of_pairs
from curate.storage.whole_files import atomic_file, make_folder
from curate.trust.labelling_tools import TOOLS, LabellingItem, check_one_kind, tool_files
from curate.untrusted import cell


def check_out(out: Path, tool: str | None, dimensions: Collection[str]) -> None:
    """Raise a UsageError where a draw cannot be written so."""
    if tool is None:
        if out.suffix.lower() not in (".csv", ".jsonl", ".html"):
            raise UsageError(
                "a draw is written as a file to fill in or as a page to answer in",
                got=out,
                expected=".csv, .jsonl or .html",
            )
    elif tool not in TOOLS:
        raise UsageError("unknown value of --tool", got=tool, expected=", ".join(TOOLS))
    else:
        check_one_kind(dimensions)
    if out.exists():
        raise UsageError(
            "what is to be written is there, perhaps with labels in it",
            got=out,
            fix="name another with --out, or remove it",
        )


def write_sample(
    run: Path,
    draw: Draw,
    table: pl.DataFrame,
    questions: Mapping[str, Sequence[str]],
    out: Path,
    tool: str | None,
) -> int:
    """Write what was drawn, in the order in which it is to be answered.

    Args:
        run: run folder.
        draw: as it is recorded.
        table: a row for each that could have been drawn: `unit`, `stratum`, `order`, `drawn`, `swapped`.
        questions: asked of each, with what may be answered.
        out, tool: as in `sample`, and checked.

    Returns:
        How many rows or items were written.
    """
    items = list(
        _pairs(run, draw, table)
        if is_of_pairs(draw.of)
        else _dialogues(run, draw, table, questions)
    )
    if tool is not None:
        files = tool_files(tool, items, questions, f"curate-{draw.id}")
        make_folder(out)
        for name, data in files.items():
            with atomic_file(out / name) as file:
                file.write(data)
        return len(items)
    rows = [row for item in items for row in _rows(item, questions)]
    with atomic_file(out) as file:
        file.write(_csv(rows) if out.suffix.lower() == ".csv" else _jsonl(rows))
    return len(rows)


def in_order(table: pl.DataFrame) -> list[tuple[str, bool]]:
    """What was drawn, in the order in which it is to be labelled, with `swapped`."""
    drawn = table.filter("drawn").sort("order", "stratum")
    return list(drawn.select(UNIT, "swapped").iter_rows())


def drawn_dialogues(run: Path, table: pl.DataFrame) -> Iterator[Dialogue]:
    """The dialogues that were drawn, in the order of the draw."""
    order = [unit for unit, _ in in_order(table)]
    hashes = read_index(run, "content_hash").to_series()
    places = hashes.is_first_distinct() & hashes.is_in(pl.Series(order).implode())
    by_content = {dialogue.content_hash: dialogue for dialogue in read_dialogues(run, places)}
    return (by_content[unit] for unit in order)


def drawn_pairs(
    run: Path, draw: Draw, table: pl.DataFrame
) -> Iterator[tuple[PreferencePair, bool]]:
    """The pairs that were drawn, in the order of the draw, with whether the rejected side comes first."""
    order = in_order(table)
    units = {unit for unit, _ in order}
    pairs = read_pairs(run, PAIR_SETS[draw.of])
    by_id = {pair.pair_id: pair for pair in pairs if pair.pair_id in units}
    return ((by_id[unit], swapped) for unit, swapped in order)


def _dialogues(
    run: Path, draw: Draw, table: pl.DataFrame, dimensions: Iterable[str]
) -> Iterator[LabellingItem]:
    """An item for each dialogue, where a dimension of turns is asked for each turn, too."""
    for dialogue in drawn_dialogues(run, table):
        about = {"draw": draw.id, "content": dialogue.content_hash, "dialogue_id": dialogue.id}
        if any(name in TURN_DIMENSIONS for name in dimensions):
            for turn in dialogue.turns:
                if turn.in_rubric:
                    before = dialogue.messages[: turn.stop]
                    yield LabellingItem(about | {"turn": turn.number}, _shown(before))
        if any(name not in TURN_DIMENSIONS for name in dimensions):
            yield LabellingItem(about | {"turn": None}, _shown(dialogue.messages))


def _pairs(run: Path, draw: Draw, table: pl.DataFrame) -> Iterator[LabellingItem]:
    """An item for each pair, its sides as a and b in an order that says nothing."""
    for pair, swapped in drawn_pairs(run, draw, table):
        about = {
            "draw": draw.id,
            "content": pair.content_hash,
            "dialogue_id": pair.dialogue_id,
            "pair_id": pair.pair_id,
        }
        sides = _said(pair.chosen), _said(pair.rejected)
        yield LabellingItem(about, _shown(pair.prompt), (sides[1], sides[0]) if swapped else sides)


def _rows(item: LabellingItem, dimensions: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The rows of a file to fill in: one for each question about an item."""
    text = "\n\n".join(f"[{one['role']}] {one['content']}".rstrip() for one in item.messages)
    about = item.about
    if item.sides is not None:
        empty: dict[str, Any] = {"better": None, "rater": None}
        row = {"draw": about["draw"], "pair_id": about["pair_id"], **empty, "prompt": text}
        yield row | dict(zip("ab", item.sides, strict=True))
        return
    for name in dimensions:
        if (name in TURN_DIMENSIONS) == (about["turn"] is not None):
            yield {
                "draw": about["draw"],
                "content": about["content"],
                "id": about["dialogue_id"],
                "dimension": name,
                "turn": about["turn"],
                "value": None,
                "rater": None,
                "text": text,
            }


def _shown(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as text; a call of a tool stands in it."""
    return [{"role": message.role, "content": _content(message)} for message in messages]


def _content(message: Message) -> str:
    calls = [
        f"[calls {call.name} {orjson.dumps(call.arguments).decode()}]"
        for call in message.tool_calls
    ]
    return "\n".join(filter(None, (message.content.rstrip(), *calls)))


def _said(message: Message | None) -> str:
    return "" if message is None else f"[{message.role}] {_content(message)}"


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _jsonl(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)
