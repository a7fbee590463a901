"""What people are asked to label: drawn from a set of a run, recorded with it, and written as a file to fill in.

A draw says with what chance each member was drawn, so a certificate that rests on its labels is honest; labels of
any other origin give one that says so.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson
import polars as pl

from curate.dialogue import Dialogue, Message
from curate.errors import UsageError
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    Draw,
    DrawPurpose,
    DrawStratum,
    PreferencePair,
)
from curate.run.ingest import read_dialogues, read_index
from curate.run.outputs import read_pairs, set_fingerprint
from curate.run.populations import (
    PAIR_SETS,
    UNIT,
    draw_folder,
    is_of_pairs,
    named_set,
    read_draws,
    read_members,
)
from curate.run.read_back import read_manifest
from curate.storage.files import atomic_file, make_folder, write_atomically, write_table
from curate.storage.run_folder import RunFolder
from curate.storage.stage_rows import fingerprint
from curate.trust.draws import draw, score_strata
from curate.trust.gold import DIMENSIONS

PURPOSES: Final[tuple[DrawPurpose, ...]] = ("certify", "agreement", "calibrate")
_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    "certify": ("accept",),
    "agreement": (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS),
    "calibrate": ("accept", *TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS),
}
"""Dimensions of the file to fill in, by purpose."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A draw and the file to fill in.

    Attributes:
        rows: of the file.
        named: the set it was drawn from, in words.
        size: of that set.
    """

    draw: Draw
    rows: int
    named: str
    size: int


def sample_run(
    run: str | Path,
    labels: int,
    *,
    out: str | Path,
    purpose: DrawPurpose = "certify",
    of: str | None = None,
    by: str | None = None,
    seed: int = 42,
    dimensions: Sequence[str] = (),
) -> Sampled:
    """Draw what to label from a run, record the draw with it, and write the file to fill in.

    The same set, purpose, strata and seed give the same draw; with more labels it is made larger.

    Args:
        run: run folder.
        labels: how many dialogues or pairs.
        out: a CSV or JSONL file, replaced; what was filled in is not to be lost, so one that is there is refused.
        purpose: what the labels are for.
        of: what is drawn from, see `populations.read_members`; sft for a certificate, scored for the others.
        by: column whose fifths are the strata; None draws from the whole set.
        seed: of the draw.
        dimensions: asked of each dialogue, of a turn's dimension for each turn; as the purpose needs by default.

    Raises:
        UsageError: no such run, set, column or dimension; a file that is there.
        RunLockedError: another process writes the folder.
    """
    run, out = Path(run), Path(out)
    of = of or ("sft" if purpose == "certify" else "scored")
    asked = _dimensions(of, purpose, dimensions)
    if out.suffix.lower() not in (".csv", ".jsonl"):
        raise UsageError("a file to fill in is CSV or JSONL", got=out, expected=".csv or .jsonl")
    if out.exists():
        raise UsageError(
            "the file to fill in is there, perhaps with labels in it",
            got=out,
            fix="name another with --out, or remove it",
        )
    manifest = read_manifest(run)
    members = read_members(run, of, by)
    strata, names = (None, ["all"]) if by is None else score_strata(members["score"].to_list())
    key = fingerprint(purpose, of, by, seed, set_fingerprint(members[UNIT]))
    earlier = {held.id: held for held in read_draws(run)}.get(key)
    sizes = () if earlier is None else earlier.sizes
    labels = max(min(labels, members.height), *sizes, 0)
    places = draw(members[UNIT].to_list(), labels, seed, strata)
    table = members.select(
        UNIT,
        pl.Series("stratum", [place.stratum for place in places], dtype=pl.Int32),
        pl.Series("order", [place.order for place in places], dtype=pl.Int64),
        pl.Series("drawn", [place.drawn for place in places], dtype=pl.Boolean),
        pl.Series("swapped", [_is_swapped(unit, seed) for unit in members[UNIT]]),
    )
    counts = table.group_by("stratum").agg(pl.len(), pl.col("drawn").sum()).sort("stratum")
    record = Draw(
        id=key,
        made=datetime.now(UTC).isoformat(timespec="seconds") if earlier is None else earlier.made,
        run=manifest.name,
        purpose=purpose,
        of=of,
        by=by,
        seed=seed,
        strata=tuple(
            DrawStratum(name=names[number], size=size, drawn=drawn)
            for number, size, drawn in counts.iter_rows()
        ),
        sizes=sizes if sizes and sizes[-1] == labels else (*sizes, labels),
    )
    rows = list(
        _pair_rows(run, record, table) if is_of_pairs(of) else _rows(run, record, table, asked)
    )
    with RunFolder(run):
        folder = draw_folder(run)
        make_folder(folder)
        write_table(table, folder / f"{key}.parquet")
        data = orjson.dumps(record.model_dump(mode="json"), option=orjson.OPT_INDENT_2)
        write_atomically(folder / f"{key}.json", data + b"\n")
    with atomic_file(out) as file:
        file.write(_csv(rows) if out.suffix.lower() == ".csv" else _jsonl(rows))
    return Sampled(record, len(rows), named_set(of), members.height)


def _dimensions(of: str, purpose: DrawPurpose, given: Sequence[str]) -> tuple[str, ...]:
    if is_of_pairs(of):
        if given or purpose == "agreement":
            raise UsageError(
                "of a pair people say which side is better",
                got=f"--dimension {given[0]}" if given else "--for agreement",
                fix="leave it out, or draw dialogues",
            )
        return ()
    if unknown := [name for name in given if name not in DIMENSIONS]:
        raise UsageError("no such dimension", got=unknown[0], expected=", ".join(DIMENSIONS))
    return tuple(dict.fromkeys(given)) or _ASKED[purpose]


def _is_swapped(unit: str, seed: int) -> bool:
    """Whether a pair's rejected side is shown first: as good as random, and the same each time."""
    return hashlib.blake2b(f"side\x1f{seed}\x1f{unit}".encode(), digest_size=1).digest()[0] % 2 == 1


def _in_order(table: pl.DataFrame) -> list[tuple[str, bool]]:
    """What was drawn, in the order in which it is to be labelled, with `swapped`."""
    drawn = table.filter("drawn").sort("order", "stratum")
    return list(drawn.select(UNIT, "swapped").iter_rows())


def _rows(
    run: Path, record: Draw, table: pl.DataFrame, dimensions: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """A row for each dialogue and dimension, of a turn's dimension for each turn."""
    order = [unit for unit, _ in _in_order(table)]
    hashes = read_index(run).select("content_hash").collect().to_series()
    wanted = hashes.is_first_distinct() & hashes.is_in(pl.Series(order).implode())
    found = {dialogue.content_hash: dialogue for dialogue in read_dialogues(run, wanted)}
    for unit in order:
        dialogue = found[unit]
        for name in dimensions:
            row = {"draw": record.id, "content": unit, "id": dialogue.id, "dimension": name}
            empty: dict[str, Any] = {"value": None, "rater": None}
            if name not in TURN_DIMENSIONS:
                yield row | {"turn": None} | empty | {"text": _text(dialogue)}
                continue
            for turn in dialogue.turns:
                if turn.in_rubric:
                    yield (
                        row
                        | {"turn": turn.number}
                        | empty
                        | {"text": _text_until(dialogue, turn.number)}
                    )


def _pair_rows(run: Path, record: Draw, table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """A row for each pair, its sides as a and b in an order that says nothing."""
    order = _in_order(table)
    wanted = {unit for unit, _ in order}
    found: dict[str, PreferencePair] = {
        pair.pair_id: pair
        for pair in read_pairs(run, PAIR_SETS[record.of])
        if pair.pair_id in wanted
    }
    for unit, swapped in order:
        pair = found[unit]
        sides = [_said(pair.chosen), _said(pair.rejected)]
        first, second = reversed(sides) if swapped else sides
        yield {
            "draw": record.id,
            "pair_id": unit,
            "better": None,
            "rater": None,
            "prompt": "\n\n".join(map(_said, pair.prompt)),
            "a": first,
            "b": second,
        }


def _text(dialogue: Dialogue) -> str:
    return "\n\n".join(_said(message) for message in dialogue.messages)


def _text_until(dialogue: Dialogue, number: int) -> str:
    """The dialogue as far as a turn goes."""
    turns = [turn for turn in dialogue.turns if turn.number <= number]
    return "\n\n".join(_said(message) for turn in turns for message in turn.messages)


def _said(message: Message | None) -> str:
    if message is None:
        return ""
    calls = [
        f"[calls {call.name} {orjson.dumps(call.arguments).decode()}]"
        for call in message.tool_calls
    ]
    return "\n".join(filter(None, (f"[{message.role}] {message.content}".rstrip(), *calls)))


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _jsonl(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)
