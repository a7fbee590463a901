"""`curate report`: what a run folder holds, as one HTML file or several.

One pass over the dialogues and the rows that lie in the same order; in memory are the columns, and where each pair lies.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.records import Manifest, StageName
from curate.report.packed_columns import CONTENT_SIGNS, encoded, kind_of
from curate.report.page import chunks, page
from curate.run.outputs import SCORES, read_scores
from curate.run.read_back import read_decisions, read_manifest
from curate.run.report_dialogues import RunPairs, dialogue_bodies
from curate.run.report_figures import LengthTable, figures_of
from curate.selection.columns import COLUMNS, LABEL_PREFIX, METRIC_PREFIX
from curate.storage.whole_files import atomic_file

MAX_BYTES = 50_000_000
"""Size of a file from which browsers are slow to open it."""
_FIRST_WORDS = 80
_CHUNK_TEXT = 4_000
_NOT_SHOWN = frozenset({"content_hash"})
_ABOUT = {
    "sets": "Sets that selection put the dialogue in.",
    "reasons": "Why it is not in the SFT set: names of failed conditions, or reason codes.",
    "first_reason": "The first of its reasons, which the funnel counts it under.",
    "split": "Side of the split.",
    "failure_codes": "Metrics with a poor score, and what went wrong.",
    "pairs": "Pairs made of it or held by it that passed.",
    "dropped_pairs": "Pairs of it that were dropped.",
}


@dataclass(slots=True)
class WrittenReport:
    """What `write_report` wrote.

    Attributes:
        files: in order; several only where they were asked for.
        bytes: of each.
        dialogues: of the run.
        left_out: dialogues whose text is in no file, since it would be larger than was allowed.
        pairs: pairs that are shown, dropped ones among them.
    """

    files: list[Path] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    dialogues: int = 0
    left_out: int = 0
    pairs: int = 0


@dataclass(slots=True)
class ReportPart:
    """A file to be written: its chunks (sizes in `counts`), and which dialogues it has."""

    first: int
    store: IO[bytes]
    counts: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    failures: list[list[str]] = field(default_factory=list)
    turn_scores: list[str] = field(default_factory=list)
    turn_roles: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Dialogues of the part, those without text too."""
        return len(self.texts)

    def bodies(self) -> Iterator[bytes]:
        """The chunks, in order."""
        self.store.seek(0)
        for size in self.sizes:
            yield self.store.read(size)


def write_report(
    run: Path,
    out: Path | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    split: bool = False,
    on_dialogue: Callable[[int, int], None] | None = None,
    edit: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> WrittenReport:
    """Write the report of a run.

    Args:
        run: the run folder.
        out: the file; `report.html` in the run folder where none is given. With `split` `name-2.html` and so on
            stand beside it, where one is not enough.
        max_bytes: size of the dialogues in a file at most. Dialogues beyond it keep their row and scores, without
            text, or with `split` go to a further file.
        on_dialogue: told how many dialogues are done, of how many.
        edit: given the overview's figures, gives those that are shown.

    Raises:
        UsageError: the run has no scores yet.
        CurateError: its files are damaged.
    """
    manifest = read_manifest(run)
    if not (run / SCORES).is_file():
        raise UsageError(
            "the run has no scores yet", got=run, fix="run its recipe to the end: it resumes"
        )
    out = run / "report.html" if out is None else out
    pairs = RunPairs.of(run)
    table = _table(run, manifest, pairs)
    lengths = LengthTable()
    with ExitStack() as opened:
        bodies = _counted(dialogue_bodies(run, manifest, pairs), lengths)
        parts = pack_parts(bodies, table.height, max_bytes, split, opened, on_dialogue)
        figures = edit(figures_of(run, manifest, table, lengths))
        report = WrittenReport(dialogues=table.height, pairs=len(pairs.rows))
        names = [_numbered(out, number) for number in range(len(parts))]
        for number, (part, name) in enumerate(zip(parts, names, strict=True)):
            shown = table.slice(part.first, part.rows)
            left_out = part.rows - sum(part.counts)
            more = {
                "columns": described_columns(shown),
                "chunks": part.counts,
                "first": part.first,
                "left_out": left_out,
                "max_mb": max_bytes // 1_000_000,
                "parts": [path.name for path in names] if len(names) > 1 else [],
                "part": number,
            }
            title = f"{manifest.name}: report"
            write_page(name, title, figures | more, _columns(shown, part, pairs), part)
            report.files.append(name)
            report.bytes.append(name.stat().st_size)
            report.left_out += left_out
    return report


def write_page(
    path: Path, title: str, figures: Mapping[str, Any], columns: Mapping[str, Any], part: ReportPart
) -> None:
    """Write one HTML file; see `curate.report.page.page`."""
    with atomic_file(path) as file:
        for piece in page(title, figures, columns, part.bodies()):
            file.write(piece)


def _counted(
    bodies: Iterable[tuple[Dialogue, dict[str, Any]]], lengths: LengthTable
) -> Iterator[tuple[Dialogue, dict[str, Any]]]:
    for dialogue, body in bodies:
        lengths.add(dialogue, body.get(StageName.JUDGE.value))
        yield dialogue, body


def _numbered(out: Path, number: int) -> Path:
    return out if not number else out.with_name(f"{out.stem}-{number + 1}{out.suffix}")


def pack_parts(
    bodies: Iterable[tuple[Dialogue, dict[str, Any]]],
    total: int,
    max_bytes: int,
    split: bool,
    opened: ExitStack,
    on_dialogue: Callable[[int, int], None] | None,
) -> list[ReportPart]:
    """Pack dialogues; one part, or as many as are needed."""

    def new_part(first: int) -> ReportPart:
        return ReportPart(first, opened.enter_context(tempfile.TemporaryFile()))

    parts = [new_part(0)]
    done = 0
    waiting: list[tuple[Dialogue, dict[str, Any]]] = []

    def lines() -> Iterator[bytes]:
        for dialogue, body in bodies:
            waiting.append((dialogue, body))
            yield orjson.dumps(body)

    for count, chunk in chunks(lines()):
        is_full = sum(parts[-1].sizes) + len(chunk) > max_bytes
        if is_full and split and parts[-1].rows:
            parts.append(new_part(done))
        part = parts[-1]
        if split or not is_full:
            part.store.write(chunk)
            part.counts.append(count)
            part.sizes.append(len(chunk))
        else:
            # Nothing follows what did not fit, so that what is left out is the end of the run.
            max_bytes = 0
        for dialogue, body in waiting:
            _add_row(part, dialogue, body)
        waiting.clear()
        done += count
        if on_dialogue is not None:
            on_dialogue(done, total)
    return parts


def _add_row(part: ReportPart, dialogue: Dialogue, body: Mapping[str, Any]) -> None:
    """What the table of the page says of a dialogue beside its scores."""
    texts = (m.content for m in dialogue.messages if m.role == "user" and m.content.strip())
    part.texts.append(" ".join(next(texts, "")[:_CHUNK_TEXT].split())[:_FIRST_WORDS])
    judgment, adherence, metrics = (body.get(name) for name in ("judge", "adherence", "metrics"))
    part.turn_scores.append(
        _strip(
            {turn["turn"]: str(min(turn["scores"].values())) for turn in _turns(judgment)},
            {turn.number for turn in dialogue.turns if turn.in_rubric},
        )
    )
    part.turn_roles.append(
        _strip(
            {
                turn["turn"]: "-" if turn["score"] is None else str(min(int(turn["score"] * 10), 9))
                for turn in _turns(adherence)
            },
            {turn.number for turn in dialogue.turns if turn.has_assistant},
        )
    )
    poor = (metric for metric in (metrics or {}).get("metrics", ()) if metric.get("failure_code"))
    part.failures.append([f"{metric['name']}: {metric['failure_code']}" for metric in poor])


def _turns(record: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return list((record or {}).get("per_turn", ()))


def _strip(marks: Mapping[int, str], scorable: Set[int]) -> str:
    """A sign a turn, from turn 0 on; `-` for a turn without a score, blank where there is nothing to score."""
    signs = (
        marks.get(n, "-" if n in scorable else " ") for n in range(max(scorable, default=-1) + 1)
    )
    return "".join(signs).rstrip()


def _table(run: Path, manifest: Manifest, pairs: RunPairs) -> pl.DataFrame:
    """A row a dialogue: scores, decisions, and how many pairs there are."""
    table = read_scores(run)
    decisions = pl.DataFrame(
        [
            (row["dialogue_id"], row["sets"], row.get("reasons") or [], row.get("split"))
            for row in read_decisions(run)
        ],
        schema={
            "id": pl.String,
            "sets": pl.List(pl.String),
            "reasons": pl.List(pl.String),
            "split": pl.String,
        },
        orient="row",
    )
    # Decisions stand in the order of the table; those of an earlier table are told by their ids.
    if manifest.recipe.get("select") and decisions["id"].equals(table["id"]):
        table = table.hstack(decisions.drop("id")).with_columns(
            first_reason=pl.col("reasons").list.first()
        )
    passed, dropped = Counter[str](), Counter[str]()
    for row in pairs.rows:
        (passed if row["dropped"] is None else dropped)[row["dialogue"]] += 1
    if pairs.rows:
        table = table.with_columns(
            pl.Series("pairs", [passed[name] for name in table["id"]], dtype=pl.Int32),
            pl.Series("dropped_pairs", [dropped[name] for name in table["id"]], dtype=pl.Int32),
        )
    return table


def _columns(table: pl.DataFrame, part: ReportPart, pairs: RunPairs) -> dict[str, Any]:
    """The columns that say something, and the table of pairs."""
    ids = set(table["id"])
    rows = [row for row in pairs.rows if row["dialogue"] in ids]
    return {
        "dialogues": dialogue_columns(table, part)
        | {"content": encoded([content[:CONTENT_SIGNS] for content in table["content_hash"]])},
        "pairs": {name: encoded([row[name] for row in rows]) for name in rows[0]} if rows else {},
    }


def dialogue_columns(table: pl.DataFrame, part: ReportPart) -> dict[str, Any]:
    """The columns of the table that say something, and those that packing its dialogues gave."""
    return {name: encoded(table[name].to_list()) for name in _shown(table)} | {
        "first_words": encoded(part.texts),
        "failure_codes": encoded(part.failures),
        "turn_scores": encoded(part.turn_scores),
        "turn_roles": encoded(part.turn_roles),
    }


def _shown(table: pl.DataFrame) -> list[str]:
    return [
        name
        for name in table.columns
        if name not in _NOT_SHOWN and (name == "id" or table[name].null_count() < table.height)
    ]


def described_columns(
    table: pl.DataFrame, more: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Name, meaning and kind of each column that can be filtered and sorted by; `more` has meanings of its own."""
    about = {column.name: column.about for column in COLUMNS} | _ABOUT | dict(more or {})
    described = [
        {
            "name": name,
            "about": about.get(name) or _about_own(name),
            "kind": kind_of(table.schema[name]),
            # Of an enumeration its values from worst to best.
            "order": _order(table.schema[name]),
        }
        for name in _shown(table)
    ]
    return [
        *described,
        {"name": "failure_codes", "about": _ABOUT["failure_codes"], "kind": "list", "order": []},
    ]


def _about_own(name: str) -> str:
    if name.startswith(METRIC_PREFIX):
        metric = name.removeprefix(METRIC_PREFIX)
        if metric.endswith("_expected"):
            return f"Expectation of the metric {metric.removesuffix('_expected')}."
        return f"Score of the metric {metric}."
    return f"Label of the data: {name.removeprefix(LABEL_PREFIX)}."


def _order(dtype: pl.DataType) -> list[str]:
    return dtype.categories.to_list() if isinstance(dtype, pl.Enum) else []
