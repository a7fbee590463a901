"""Write a draw as a file to fill in, or as what a labelling tool imports. The judge's scores are in neither."""

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
from curate.run.labels.populations import PAIR_SETS, UNIT, is_of_pairs
from curate.run.outputs import read_pairs
from curate.storage.whole_files import atomic_file, make_folder
from curate.trust.labelling_tools import TOOLS, LabellingItem, check_one_kind, tool_files
from curate.untrusted import spreadsheet_cell


def check_out(out: Path, tool: str | None, dimensions: Collection[str]) -> None:
    """Raise a UsageError where a draw cannot be written to `out` in the format of `tool`."""
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
            "the file or folder to write exists already, and may have labels in it",
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
    """Write what was drawn, in the order in which people answer it.

    Args:
        run: run folder.
        draw: as it is recorded.
        table: a row for each member of the set: `unit`, `stratum`, `order`, `drawn`, `swapped`.
        questions: about each drawn member, with the possible answers.
        out, tool: as for `sample`, and checked.

    Returns:
        The number of rows or items written.
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
    """Return the drawn units in the order in which people label them, each with `swapped`."""
    drawn = table.filter("drawn").sort("order", "stratum")
    return list(drawn.select(UNIT, "swapped").iter_rows())


def drawn_dialogues(run: Path, table: pl.DataFrame) -> Iterator[Dialogue]:
    """Return the dialogues that were drawn, in the order of the draw."""
    order = [unit for unit, _ in in_order(table)]
    hashes = read_index(run, "content_hash").to_series()
    places = hashes.is_first_distinct() & hashes.is_in(pl.Series(order).implode())
    by_content = {dialogue.content_hash: dialogue for dialogue in read_dialogues(run, places)}
    return (by_content[unit] for unit in order)


def drawn_pairs(
    run: Path, draw: Draw, table: pl.DataFrame
) -> Iterator[tuple[PreferencePair, bool]]:
    """Return the pairs that were drawn, in the order of the draw, with whether the rejected side comes first."""
    order = in_order(table)
    units = {unit for unit, _ in order}
    pairs = read_pairs(run, PAIR_SETS[draw.of])
    by_id = {pair.pair_id: pair for pair in pairs if pair.pair_id in units}
    return ((by_id[unit], swapped) for unit, swapped in order)


def _dialogues(
    run: Path, draw: Draw, table: pl.DataFrame, dimensions: Iterable[str]
) -> Iterator[LabellingItem]:
    """Yield an item for each dialogue, and one for each of its turns where a dimension of turns is asked."""
    for dialogue in drawn_dialogues(run, table):
        about = {"draw": draw.id, "content": dialogue.content_hash, "dialogue_id": dialogue.id}
        if any(name in TURN_DIMENSIONS for name in dimensions):
            for turn in dialogue.turns:
                if turn.in_rubric:
                    messages = dialogue.messages[: turn.stop]
                    yield LabellingItem(about | {"turn": turn.number}, _as_text(messages))
        if any(name not in TURN_DIMENSIONS for name in dimensions):
            yield LabellingItem(about | {"turn": None}, _as_text(dialogue.messages))


def _pairs(run: Path, draw: Draw, table: pl.DataFrame) -> Iterator[LabellingItem]:
    """Yield an item for each pair, its sides as a and b in an order that gives nothing away."""
    for pair, swapped in drawn_pairs(run, draw, table):
        about = {
            "draw": draw.id,
            "content": pair.content_hash,
            "dialogue_id": pair.dialogue_id,
            "pair_id": pair.pair_id,
        }
        sides = _side_text(pair.chosen), _side_text(pair.rejected)
        if swapped:
            sides = sides[1], sides[0]
        yield LabellingItem(about, _as_text(pair.prompt), sides)


def _rows(item: LabellingItem, dimensions: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file to fill in: one for each question about an item."""
    text = "\n\n".join(f"[{one['role']}] {one['content']}".rstrip() for one in item.messages)
    about = item.about
    if item.sides is not None:
        yield {
            "draw": about["draw"],
            "pair_id": about["pair_id"],
            "better": None,
            "rater": None,
            "prompt": text,
            "a": item.sides[0],
            "b": item.sides[1],
        }
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


def _as_text(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return messages as roles and texts; tool calls are part of the text."""
    return [{"role": message.role, "content": _content(message)} for message in messages]


def _content(message: Message) -> str:
    calls = [
        f"[calls {call.name} {orjson.dumps(call.arguments).decode()}]"
        for call in message.tool_calls
    ]
    return "\n".join(filter(None, (message.content.rstrip(), *calls)))


def _side_text(message: Message | None) -> str:
    return "" if message is None else f"[{message.role}] {_content(message)}"


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows({name: spreadsheet_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _jsonl(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)
