"""`curate report`: the contents of a run folder as one HTML file or several.

One pass over the dialogues and the rows, which lie in the same order; in memory are the columns, and where each pair lies.
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
from curate.records import Manifest, StageName
from curate.report.packed_columns import CONTENT_SIGNS, column_kind, encoded
from curate.report.page import packed_chunks, page
from curate.run.outputs import read_scores, scores_path
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
    "first_reason": "The first of its reasons; the funnel counts the dialogue under it.",
    "split": "Side of the split.",
    "failure_codes": "Metrics with a poor score, and what went wrong.",
    "pairs": "Its pairs that passed, forked or natural.",
    "dropped_pairs": "Its pairs that were dropped.",
}


@dataclass(slots=True)
class WrittenReport:
    """The files that `write_report` wrote.

    Attributes:
        files: in order; several only with `split`.
        bytes: size of each file.
        dialogues: number of dialogues of the run.
        left_out: dialogues whose text is in no file, because it would be larger than allowed.
        pairs: pairs that are shown, dropped ones among them.
    """

    files: list[Path] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    dialogues: int = 0
    left_out: int = 0
    pairs: int = 0


@dataclass(slots=True)
class ReportPart:
    """A file to write: its chunks (dialogues of each in `counts`, bytes in `sizes`), and which dialogues it has."""

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
        """Number of dialogues of the part, those without text too."""
        return len(self.texts)

    def bodies(self) -> Iterator[bytes]:
        """Yield the chunks, in order."""
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
        out: the file; `report.html` in the run folder where none is given. With `split`, further files beside it are
            named `name-2.html` and so on.
        max_bytes: largest size of the dialogues in a file. Dialogues beyond it keep their row and scores, without
            text, or with `split` go to a further file.
        on_dialogue: called with how many dialogues are done, of how many.
        edit: takes the overview's figures and returns those to show.

    Raises:
        UsageError: the run has no scores yet.
        CurateError: its files are damaged.
    """
    manifest = read_manifest(run)
    scores_path(run)
    out = run / "report.html" if out is None else out
    pairs = RunPairs.of(run)
    table = _table(run, manifest, pairs)
    lengths = LengthTable()
    with ExitStack() as stack:
        bodies = _add_lengths(dialogue_bodies(run, manifest, pairs), lengths)
        parts = pack_parts(bodies, table.height, max_bytes, split, stack, on_dialogue)
        figures = edit(figures_of(run, manifest, table, lengths))
        report = WrittenReport(dialogues=table.height, pairs=len(pairs.rows))
        paths = [_numbered(out, number) for number in range(len(parts))]
        for number, (part, path) in enumerate(zip(parts, paths, strict=True)):
            part_table = table.slice(part.first, part.rows)
            left_out = part.rows - sum(part.counts)
            more = {
                "columns": described_columns(part_table),
                "chunks": part.counts,
                "first": part.first,
                "left_out": left_out,
                "max_mb": max_bytes // 1_000_000,
                "parts": [path.name for path in paths] if len(paths) > 1 else [],
                "part": number,
            }
            title = f"{manifest.name}: report"
            write_page(path, title, figures | more, _columns(part_table, part, pairs), part)
            report.files.append(path)
            report.bytes.append(path.stat().st_size)
            report.left_out += left_out
    return report


def write_page(
    path: Path, title: str, figures: Mapping[str, Any], columns: Mapping[str, Any], part: ReportPart
) -> None:
    """Write one HTML file; see `curate.report.page.page`."""
    with atomic_file(path) as file:
        for piece in page(title, figures, columns, part.bodies()):
            file.write(piece)


def _add_lengths(
    bodies: Iterable[tuple[Dialogue, dict[str, Any]]], lengths: LengthTable
) -> Iterator[tuple[Dialogue, dict[str, Any]]]:
    """Yield the dialogues, and add each to the length table."""
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
    stack: ExitStack,
    on_dialogue: Callable[[int, int], None] | None,
) -> list[ReportPart]:
    """Pack dialogues in one part, or with `split` in as many as are needed.

    Args:
        bodies: the dialogues, as `dialogue_bodies` gives them.
        total: how many they are.
        max_bytes, split, on_dialogue: as for `write_report`.
        stack: closes the temporary files of the parts.
    """

    def new_part(first: int) -> ReportPart:
        return ReportPart(first, stack.enter_context(tempfile.TemporaryFile()))

    parts = [new_part(0)]
    done = 0
    waiting: list[tuple[Dialogue, dict[str, Any]]] = []

    def lines() -> Iterator[bytes]:
        for dialogue, body in bodies:
            waiting.append((dialogue, body))
            yield orjson.dumps(body)

    for count, chunk in packed_chunks(lines()):
        is_full = sum(parts[-1].sizes) + len(chunk) > max_bytes
        if is_full and split and parts[-1].rows:
            parts.append(new_part(done))
        part = parts[-1]
        if split or not is_full:
            part.store.write(chunk)
            part.counts.append(count)
            part.sizes.append(len(chunk))
        else:
            # No later chunk may fit, so that what is left out is always the end of the run.
            max_bytes = 0
        for dialogue, body in waiting:
            _add_row(part, dialogue, body)
        waiting.clear()
        done += count
        if on_dialogue is not None:
            on_dialogue(done, total)
    return parts


def _add_row(part: ReportPart, dialogue: Dialogue, body: Mapping[str, Any]) -> None:
    """Add what the table of the page shows of a dialogue besides its scores."""
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
    """Return a character a turn, from turn 0 on; `-` for a turn without a score, blank where there is nothing to score."""
    signs = (
        marks.get(n, "-" if n in scorable else " ") for n in range(max(scorable, default=-1) + 1)
    )
    return "".join(signs).rstrip()


def _table(run: Path, manifest: Manifest, pairs: RunPairs) -> pl.DataFrame:
    """Return a row a dialogue: scores, decisions, and how many pairs there are."""
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
    # Decisions are in the order of the table; ids show which are of an earlier table.
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
    """Return the columns that are not empty, and the table of pairs."""
    ids = set(table["id"])
    rows = [row for row in pairs.rows if row["dialogue"] in ids]
    return {
        "dialogues": dialogue_columns(table, part)
        | {"content": encoded([content[:CONTENT_SIGNS] for content in table["content_hash"]])},
        "pairs": {name: encoded([row[name] for row in rows]) for name in rows[0]} if rows else {},
    }


def dialogue_columns(table: pl.DataFrame, part: ReportPart) -> dict[str, Any]:
    """Return the columns of the table that are not empty, and those that packing its dialogues gave."""
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
    """Return name, meaning and kind of each column that can be filtered and sorted by.

    Args:
        table: a row a dialogue.
        more: meanings of further columns, by name.
    """
    about = {column.name: column.about for column in COLUMNS} | _ABOUT | dict(more or {})
    described = [
        {
            "name": name,
            "about": about.get(name) or _metric_or_label_about(name),
            "kind": column_kind(table.schema[name]),
            # The values of an enumeration from worst to best.
            "order": _order(table.schema[name]),
        }
        for name in _shown(table)
    ]
    return [
        *described,
        {"name": "failure_codes", "about": _ABOUT["failure_codes"], "kind": "list", "order": []},
    ]


def _metric_or_label_about(name: str) -> str:
    if name.startswith(METRIC_PREFIX):
        metric = name.removeprefix(METRIC_PREFIX)
        if metric.endswith("_expected"):
            return f"Expectation of the metric {metric.removesuffix('_expected')}."
        return f"Score of the metric {metric}."
    return f"Label of the data: {name.removeprefix(LABEL_PREFIX)}."


def _order(dtype: pl.DataType) -> list[str]:
    return dtype.categories.to_list() if isinstance(dtype, pl.Enum) else []
