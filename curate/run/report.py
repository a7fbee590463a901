"""`curate report`: what a run folder holds, as one HTML file or several.

One pass over the dialogues and the rows that lie in the same order; in memory are the columns, and where each pair lies.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.records import SCORING, Manifest, StageName
from curate.report.columns import encoded, kind_of
from curate.report.page import chunks, page
from curate.run.ingest import read_dialogues, read_index
from curate.run.outputs import DROPPED_PAIRS, NATURAL_PAIRS, PAIRS, SCORES
from curate.run.read_back import read_decisions, read_manifest, stage_records
from curate.run.report_figures import LengthTable, figures_of
from curate.selection.columns import COLUMNS, LABEL_PREFIX, METRIC_PREFIX
from curate.storage.files import atomic_file, damaged, readable

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
class _Part:
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
) -> WrittenReport:
    """Write the report of a run.

    Args:
        run: the run folder.
        out: the file; `report.html` in the run folder where none is given. With `split` `name-2.html` and so on
            stand beside it, where one is not enough.
        max_bytes: size of the dialogues in a file at most. Dialogues beyond it keep their row and scores, without
            text, or with `split` go to a further file.
        on_dialogue: told how many dialogues are done, of how many.

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
    pairs = _Pairs.of(run)
    table = _table(run, manifest, pairs)
    lengths = LengthTable()
    with ExitStack() as opened:
        parts = _parts(run, manifest, table, pairs, lengths, max_bytes, split, opened, on_dialogue)
        figures = figures_of(run, manifest, table, lengths)
        report = WrittenReport(dialogues=table.height, pairs=len(pairs.rows))
        names = [_numbered(out, number) for number in range(len(parts))]
        for number, (part, name) in enumerate(zip(parts, names, strict=True)):
            shown = table.slice(part.first, part.rows)
            left_out = part.rows - sum(part.counts)
            more = {
                "columns": _described(shown),
                "chunks": part.counts,
                "first": part.first,
                "left_out": left_out,
                "max_mb": max_bytes // 1_000_000,
                "parts": [path.name for path in names] if len(names) > 1 else [],
                "part": number,
            }
            with atomic_file(name) as file:
                for piece in page(
                    f"{manifest.name}: report",
                    figures | more,
                    _columns(shown, part, pairs),
                    part.bodies(),
                ):
                    file.write(piece)
            report.files.append(name)
            report.bytes.append(name.stat().st_size)
            report.left_out += left_out
    return report


def _numbered(out: Path, number: int) -> Path:
    return out if not number else out.with_name(f"{out.stem}-{number + 1}{out.suffix}")


def _parts(
    run: Path,
    manifest: Manifest,
    table: pl.DataFrame,
    pairs: _Pairs,
    lengths: LengthTable,
    max_bytes: int,
    split: bool,
    opened: ExitStack,
    on_dialogue: Callable[[int, int], None] | None,
) -> list[_Part]:
    """Pack all dialogues; one part, or as many as are needed."""

    def new_part(first: int) -> _Part:
        return _Part(first, opened.enter_context(tempfile.TemporaryFile()))

    parts = [new_part(0)]
    done = 0
    waiting: list[tuple[Dialogue, dict[str, Any]]] = []

    def lines() -> Iterator[bytes]:
        for dialogue, body in _bodies(run, manifest, pairs, lengths):
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
            on_dialogue(done, table.height)
    return parts


def _add_row(part: _Part, dialogue: Dialogue, body: Mapping[str, Any]) -> None:
    """What the table of the page says of a dialogue beside its scores."""
    texts = (m.content for m in dialogue.messages if m.role == "user" and m.content.strip())
    part.texts.append(" ".join(next(texts, "")[:_CHUNK_TEXT].split())[:_FIRST_WORDS])
    judgment, adherence, metrics = (body.get(name) for name in ("judge", "adherence", "metrics"))
    part.turn_scores.append(
        _strip(
            {turn["turn"]: str(min(turn["scores"].values())) for turn in _turns(judgment)}, dialogue
        )
    )
    part.turn_roles.append(
        _strip(
            {
                turn["turn"]: "-" if turn["score"] is None else str(min(int(turn["score"] * 10), 9))
                for turn in _turns(adherence)
            },
            dialogue,
        )
    )
    poor = (metric for metric in (metrics or {}).get("metrics", ()) if metric.get("failure_code"))
    part.failures.append([f"{metric['name']}: {metric['failure_code']}" for metric in poor])


def _turns(record: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return list((record or {}).get("per_turn", ()))


def _strip(marks: Mapping[int, str], dialogue: Dialogue) -> str:
    """A sign a turn, from turn 0 on; `-` for a turn without a score, blank where there is no assistant."""
    has_assistant = {turn.number for turn in dialogue.turns if turn.has_assistant}
    last = max(has_assistant, default=-1)
    signs = (marks.get(n, "-" if n in has_assistant else " ") for n in range(last + 1))
    return "".join(signs).rstrip()


def _bodies(
    run: Path, manifest: Manifest, pairs: _Pairs, lengths: LengthTable
) -> Iterator[tuple[Dialogue, dict[str, Any]]]:
    """Each dialogue, and all that the page shows of it."""
    keys = read_index(run).select("content_hash").collect().to_series()
    records = {name.value: stage_records(run, manifest, name, keys) for name in SCORING}
    decisions = read_decisions(run)
    with pairs:
        for dialogue in read_dialogues(run):
            body: dict[str, Any] = _dialogue(dialogue)
            for name, stage in records.items():
                record = next(stage)
                if record is not None:
                    body[name] = _record(record)
            decision = next(decisions, {})
            if decision.get("dialogue_id") == dialogue.id and decision.get("collisions"):
                body["collisions"] = decision["collisions"]
            if found := pairs.read(dialogue.id):
                body["pairs"] = found
            lengths.add(dialogue, body.get(StageName.JUDGE.value))
            yield dialogue, body


def _dialogue(dialogue: Dialogue) -> dict[str, Any]:
    """Its data; what is empty is left out."""
    body = dialogue.model_dump(mode="json", exclude_defaults=True, exclude={"references"})
    body["hash"] = dialogue.content_hash
    body["turns"] = [(turn.number, turn.start, turn.stop) for turn in dialogue.turns]
    return body


def _record(record: dict[str, Any]) -> dict[str, Any]:
    """A stage's record without what every record of the stage has alike, or the dialogue itself."""
    kept = {
        name: value
        for name, value in record.items()
        if name not in ("dialogue_id", "content_hash", "identity", "requests", "neutralised")
        and value not in (None, [], {}, "")
    }
    if record["kind"] == "judgment":
        kept["per_turn"] = [_without_probabilities(turn) for turn in record["per_turn"]]
    return kept


def _without_probabilities(turn: dict[str, Any]) -> dict[str, Any]:
    readings = {
        name: {key: reading[key] for key in ("mean", "spread") if reading.get(key) is not None}
        for name, reading in turn.get("readings", {}).items()
    }
    return {**turn, "readings": readings}


@dataclass(slots=True)
class _Pairs:
    """All pairs of a run: a row for the page's table each, and by dialogue where they lie."""

    rows: list[dict[str, Any]]
    places: dict[str, list[tuple[Path, int]]]
    _files: dict[Path, IO[bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Path) -> _Pairs:
        """Read the places of all pairs.

        Raises:
            CurateError: a line is damaged.
        """
        rows, places = [], defaultdict(list)
        for name in (PAIRS, NATURAL_PAIRS, DROPPED_PAIRS):
            path = run / "pairs" / f"{name}.jsonl"
            if not path.is_file():
                continue
            offset = 0
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    try:
                        pair = orjson.loads(line)
                        rows.append(_pair_row(pair))
                    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                        raise damaged(f"{path}:{number}", error) from error
                    places[pair["dialogue_id"]].append((path, offset))
                    offset += len(line)
        return cls(rows, places)

    def read(self, dialogue_id: str) -> list[dict[str, Any]]:
        """The pairs of a dialogue, without the prompt, which is its beginning."""
        found = []
        for path, offset in self.places.get(dialogue_id, ()):
            file = self._files.get(path) or self._files.setdefault(path, path.open("rb"))
            file.seek(offset)
            pair = orjson.loads(file.readline())
            dropped = ("kind", "dialogue_id", "content_hash", "prompt", "tools", "lineage")
            found.append(
                {
                    name: value
                    for name, value in pair.items()
                    if name not in dropped and value not in (None, [], {}, "")
                }
            )
        return found

    def __enter__(self) -> _Pairs:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


def _pair_row(pair: Mapping[str, Any]) -> dict[str, Any]:
    check = pair.get("check") or {}
    return {
        "id": pair["pair_id"],
        "dialogue": pair["dialogue_id"],
        "turn": pair.get("turn"),
        "kind": "made" if pair["basis"] == "judge" else "in the data",
        "basis": pair["basis"],
        "source": pair["source"],
        "dropped": pair.get("drop_reason"),
        "decided_by": check.get("decided_by"),
        "probability": check.get("probability"),
        "preference": check.get("preference"),
        "margin": check.get("margin"),
    }


def _table(run: Path, manifest: Manifest, pairs: _Pairs) -> pl.DataFrame:
    """A row a dialogue: scores, decisions, and how many pairs there are."""
    path = run / SCORES
    with readable(path):
        table = pl.read_parquet(path)
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


def _columns(table: pl.DataFrame, part: _Part, pairs: _Pairs) -> dict[str, Any]:
    """The columns that say something, and the table of pairs."""
    own = {name: encoded(table[name].to_list()) for name in _shown(table)}
    ids = set(table["id"])
    rows = [row for row in pairs.rows if row["dialogue"] in ids]
    return {
        "dialogues": own
        | {
            "first_words": encoded(part.texts),
            "failure_codes": encoded(part.failures),
            "turn_scores": encoded(part.turn_scores),
            "turn_roles": encoded(part.turn_roles),
        },
        "pairs": {name: encoded([row[name] for row in rows]) for name in rows[0]} if rows else {},
    }


def _shown(table: pl.DataFrame) -> list[str]:
    return [
        name
        for name in table.columns
        if name not in _NOT_SHOWN and (name == "id" or table[name].null_count() < table.height)
    ]


def _described(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Name, meaning and kind of each column that can be filtered and sorted by."""
    about = {column.name: column.about for column in COLUMNS} | _ABOUT
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
