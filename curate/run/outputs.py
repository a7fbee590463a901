"""The files that a run writes between and after its stages: score table, decisions, sets, pairs.

Each is one pass over files that lie in the same order (dialogues, their index, the rows of the stages), and
each file is replaced whole when it is done. Only a chunk of dialogues or rows is in memory at a time; what
grows with the run are columns.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.pairs.funnel import Funnel
from curate.records import (
    AdherenceScore,
    FactualityScore,
    GoodModel,
    Judgment,
    MetricsScore,
    PreferencePair,
    StageName,
    Unscored,
    UnscoredReason,
)
from curate.run.ingest import INDEX, OFFSET, dialogue_lines, read_dialogues_at, read_index
from curate.selection.columns import SCHEMA
from curate.selection.rules import DECISION_SCHEMA, decided_columns, decision_columns
from curate.selection.table import CHUNK, with_scores
from curate.storage.line_files import read_records
from curate.storage.parquet_files import FrameFile, read_frames, readable
from curate.storage.stage_rows import StageRows
from curate.storage.whole_files import atomic_file

S = TypeVar("S", Judgment, AdherenceScore)

SCORES = "scores.parquet"
DECISIONS = "select/decisions.jsonl"
SETS = ("sft", "rejected", "review", "active")
VALIDATION = "validation"
PAIRS, NATURAL_PAIRS, DROPPED_PAIRS = "pairs", "natural_pairs", "dropped_pairs"
_DECISIONS = 50_000  # decisions that are text in memory at once: about 10 MB


def write_scores(
    run: Path,
    judgments: StageRows[Judgment | Unscored] | None,
    adherence: StageRows[AdherenceScore | Unscored] | None,
    metrics: StageRows[MetricsScore | Unscored] | None = None,
    factuality: StageRows[FactualityScore | Unscored] | None = None,
    *,
    judged_share: float | None = None,
    adherence_share: float | None = None,
    good: GoodModel | None = None,
    metric_names: Sequence[str] = (),
) -> pl.LazyFrame:
    """Write `scores.parquet` and return it as a lazy frame.

    Args:
        run: the run folder, its dialogues read.
        judgments: rows compacted in the order of the dialogues; None where the stage is not part of the run.
        adherence, metrics, factuality: likewise.
        judged_share: least share of turns that must be scored for the judge's scores of a dialogue to count; None:
            all. A row of another run, which allowed a smaller share, is unscored here (`unscored_turns`).
        adherence_share: likewise.
        good: the model that gives the column `p_good`.
        metric_names: the metrics that the recipe has.
    """
    keys = read_index(run, "content_hash").to_series()
    judged = None if judgments is None else _admitted(judgments.aligned(keys), judged_share)
    scored = None if adherence is None else _admitted(adherence.aligned(keys), adherence_share)
    measured = None if metrics is None else metrics.aligned(keys)
    checked = None if factuality is None else factuality.aligned(keys)
    with FrameFile(run / SCORES, first=tuple(SCHEMA)) as table:
        for facts in read_frames(run / INDEX, CHUNK):
            table.append(
                with_scores(
                    facts.drop(OFFSET),
                    None if judged is None else list(islice(judged, facts.height)),
                    None if scored is None else list(islice(scored, facts.height)),
                    good,
                    metrics=None if measured is None else list(islice(measured, facts.height)),
                    metric_names=metric_names,
                    factuality=None if checked is None else list(islice(checked, facts.height)),
                )
            )
    return pl.scan_parquet(run / SCORES)


def scores_path(run: Path) -> Path:
    """Return the path of a run's score table.

    Raises:
        UsageError: it has none yet.
    """
    path = run / SCORES
    if not path.is_file():
        raise UsageError("the run has no scores yet", got=run, fix="run its recipe to the end")
    return path


def read_scores(run: Path) -> pl.DataFrame:
    """Return the score table of a run.

    Raises:
        UsageError: it has none yet.
        CurateError: it is damaged.
    """
    path = scores_path(run)
    with readable(path):
        return pl.read_parquet(path)


def _admitted(
    rows: Iterable[S | Unscored | None], least_share: float | None
) -> Iterator[S | Unscored | None]:
    """Yield the rows; one with too few scored turns becomes an unscored one."""
    for row in rows:
        if (
            row is None
            or isinstance(row, Unscored)
            or not row.missing_turns
            or (least_share is not None and row.scored_share >= least_share)
        ):
            yield row
        else:
            yield Unscored(
                dialogue_id=row.dialogue_id,
                content_hash=row.content_hash,
                stage=StageName.JUDGE if isinstance(row, Judgment) else StageName.ADHERENCE,
                reason=UnscoredReason.UNSCORED_TURNS,
            )


def write_selection(run: Path, decided: pl.DataFrame) -> dict[str, int]:
    """Write decisions and sets; return the size of each set that is not empty.

    Args:
        run: the run folder.
        decided: as `selection.rules.decide` gives it, one row a dialogue, in their order.
    """
    folder = run / "select"
    decisions = decision_columns(decided)
    with atomic_file(run / DECISIONS) as out:
        for part in decisions.iter_slices(_DECISIONS):
            part.write_ndjson(out)
    sizes = {name: int(decisions["sets"].list.contains(name).sum()) for name in SETS}
    with ExitStack() as stack:
        files = {name: stack.enter_context(atomic_file(folder / f"{name}.jsonl")) for name in SETS}
        decided_rows = decisions.select("reasons", "sets").iter_rows()
        for line, (reasons, sets) in zip(dialogue_lines(run), decided_rows, strict=True):
            # The line already is the dialogue's JSON: nothing is parsed.
            row = b'{"reasons":%b,"dialogue":%b}\n' % (orjson.dumps(reasons), line[:-1])
            for name in sets:
                files[name].write(row)
    return {name: size for name, size in sizes.items() if size}


def read_selection(run: Path) -> pl.DataFrame | None:
    """Return the decisions that `write_selection` wrote, as `selection.rules.decide` gives them; None without any."""
    path = run / DECISIONS
    if not path.is_file():
        return None
    with readable(path):
        return decided_columns(pl.read_ndjson(path, schema=DECISION_SCHEMA))


def rejections(decided: pl.DataFrame) -> tuple[dict[str, int], dict[str, int]]:
    """Count the rejected dialogues by reason.

    Args:
        decided: as `decide` gives it.

    Returns:
        The counts by each dialogue's first reason, and the counts by all of its reasons.
    """
    reasons = pl.col("reasons")
    first, every = (
        decided.select(reason=column).drop_nulls().group_by("reason", maintain_order=True).len()
        for column in (reasons.list.first(), reasons.explode())
    )
    return dict(first.iter_rows()), dict(every.iter_rows())


def grouped_dialogues(run: Path) -> Iterator[Dialogue]:
    """Yield the dialogues that have a group, those of one group together, groups in order of appearance."""
    members = read_index(run, "source", "group", OFFSET).filter(pl.col("group").is_not_null())
    first = pl.col(OFFSET).min().over("source", "group")
    return read_dialogues_at(run, members.sort(first, OFFSET)[OFFSET])


def set_fingerprint(units: Iterable[str] | pl.Series) -> str:
    """Return a hash of a set's members, whatever their order; equal ones count once."""
    series = units if isinstance(units, pl.Series) else pl.Series(list(units), dtype=pl.String)
    digest = hashlib.blake2b(digest_size=8)
    for unit in series.unique().sort():
        digest.update(unit.encode() + b"\n")
    return digest.hexdigest()


def held_out_ids(decided: pl.DataFrame) -> frozenset[str]:
    """Return the ids of the dialogues on the validation side; `decided` is as `decide` gives it."""
    return frozenset(decided["id"].filter((decided["split"] == VALIDATION).fill_null(False)))


@dataclass(frozen=True, slots=True)
class ExportPart:
    """One side of an export.

    Attributes:
        name: of its folder within the trainer's; empty where there is one side, and for train.
        selected: for each dialogue whether it is in the SFT set and on this side; None where nothing was
            selected.
        side: for each dialogue whether it is on this side, selected or not; None where there is one side.
        only: ids of the dialogues whose pairs belong here; None for all but `not_of`.
        not_of: ids of the dialogues whose pairs do not belong here.
    """

    name: str
    selected: pl.Series | None
    side: pl.Series | None = None
    only: frozenset[str] | None = None
    not_of: frozenset[str] = frozenset()

    def pairs(self, pairs: Iterable[PreferencePair]) -> Iterator[PreferencePair]:
        """Yield those of the pairs that are on this side."""
        for pair in pairs:
            inside = self.only is None or pair.dialogue_id in self.only
            if inside and pair.dialogue_id not in self.not_of:
                yield pair


def export_parts(decided: pl.DataFrame | None) -> list[ExportPart]:
    """Return the parts of an export: one with everything, or train and validation.

    Args:
        decided: as `selection.rules.decide` gives it; None without a selection.
    """
    if decided is None:
        return [ExportPart("", None)]
    selected = decided["reasons"].list.len() == 0
    held_out = (decided["split"] == VALIDATION).fill_null(False)
    if not decided["split"].is_not_null().any():
        return [ExportPart("", selected)]
    ids = held_out_ids(decided)
    return [
        ExportPart("", selected & ~held_out, ~held_out, not_of=ids),
        ExportPart(VALIDATION, selected & held_out, held_out, only=ids),
    ]


@dataclass(slots=True)
class PairCounts:
    """Counts of the pairs that were written: forked, natural, and dropped ones by reason.

    `drop_reasons` are of both kinds, `natural_drop_reasons` those of natural pairs among them; `decided_by` counts those
    that passed by `fork` or `natural` and by what decided; `funnel` has counted every pair.
    """

    pairs: int = 0
    natural: int = 0
    drop_reasons: Counter[str] = field(default_factory=Counter)
    natural_drop_reasons: Counter[str] = field(default_factory=Counter)
    decided_by: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    funnel: Funnel = field(default_factory=Funnel)

    def add(self, pair: PreferencePair, *, is_natural: bool) -> None:
        """Count a pair that passed or was dropped."""
        self.funnel.add(pair)
        if pair.drop_reason is not None:
            self.drop_reasons[pair.drop_reason.value] += 1
            if is_natural:
                self.natural_drop_reasons[pair.drop_reason.value] += 1
            return
        self.natural += is_natural
        self.pairs += not is_natural
        if pair.check is not None and pair.check.decided_by is not None:
            stage = StageName.FORK if pair.basis == "judge" else StageName.NATURAL
            self.decided_by[stage.value][pair.check.decided_by] += 1


def write_pairs(
    run: Path, forked: Iterable[PreferencePair], natural: Iterable[PreferencePair]
) -> PairCounts:
    """Write accepted and dropped pairs, each kind in the order it comes."""
    counts = PairCounts()
    with ExitStack() as stack:
        forked_file, natural_file, dropped_file = (
            stack.enter_context(atomic_file(pair_file(run, name)))
            for name in (PAIRS, NATURAL_PAIRS, DROPPED_PAIRS)
        )
        kinds = ((forked, forked_file, False), (natural, natural_file, True))
        for pairs, passed_file, is_natural in kinds:
            for pair in pairs:
                counts.add(pair, is_natural=is_natural)
                file = passed_file if pair.drop_reason is None else dropped_file
                file.write(pair.model_dump_json().encode() + b"\n")
    return counts


def read_pairs(run: Path, name: str) -> Iterator[PreferencePair]:
    """Yield the pairs of one of the files that `write_pairs` made."""
    return read_records(pair_file(run, name), PreferencePair.model_validate_json)


def pair_readers(run: Path) -> dict[str, Callable[[], Iterator[PreferencePair]]]:
    """Return by kind a function that reads the pairs that passed: forked by the judge, natural, and all."""
    forked, natural = partial(read_pairs, run, PAIRS), partial(read_pairs, run, NATURAL_PAIRS)
    return {"judge": forked, "natural": natural, "all": lambda: chain(forked(), natural())}


def stored_pairs(run: Path, *names: str) -> Iterator[dict[str, Any]]:
    """Yield the pairs of these files as they are stored; a missing file has none.

    Raises:
        CurateError: a line is damaged.
    """
    for name in names:
        path = pair_file(run, name)
        if path.is_file():
            yield from read_records(path, _stored_pair)


def _stored_pair(line: bytes) -> dict[str, Any]:
    value = orjson.loads(line)
    if not isinstance(value, dict) or "pair_id" not in value:
        raise ValueError("not a pair: pair_id is expected")
    return value


def pair_file(run: Path, name: str) -> Path:
    """Return the path of the file in which a run keeps the pairs of a kind."""
    return run / "pairs" / f"{name}.jsonl"
