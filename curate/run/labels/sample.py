"""Draw what people should label from a set of a run, record the draw with the run, and write it for them to answer.

A draw records with what probability each member was drawn, so a certificate from its labels is valid; a certificate from
labels of any other origin says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polars as pl

from curate.errors import CurateError, UsageError
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    Draw,
    DrawPurpose,
    DrawStratum,
)
from curate.records.readings import METRIC
from curate.run.labels.populations import (
    SCORED,
    SFT,
    UNIT,
    draw_folder,
    is_of_pairs,
    named_set,
    read_draws,
    read_members,
    used_to_fit,
    without_units,
)
from curate.run.labels.question import Question
from curate.run.labels.run_scores import highest_levels, metrics_of
from curate.run.labels.sample_files import check_out, write_sample
from curate.run.labels.sample_page import write_sample_page
from curate.run.outputs import set_fingerprint
from curate.run.read_back import read_manifest
from curate.storage.parquet_files import write_table
from curate.storage.run_folder import RunFolder
from curate.storage.stage_rows import fingerprint
from curate.storage.whole_files import make_folder, write_record
from curate.trust.bad_rule import BETTER
from curate.trust.draws import draw, score_strata, word_strata
from curate.trust.label_rows import DIMENSIONS
from curate.trust.labelling_tools import questions_about

_DIMENSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "certify": ("accept",),
    "agreement": (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS),
    "calibrate": ("accept", *TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS),
}
"""Dimensions to ask about by default, by purpose."""
_TABLE: Final = pl.Schema(
    {
        UNIT: pl.String(),
        "stratum": pl.Int32(),
        "order": pl.Int64(),
        "drawn": pl.Boolean(),
        "swapped": pl.Boolean(),
    }
)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A draw, and what was written for people to answer.

    Attributes:
        draw: as it is recorded.
        rows: number of rows of the file to fill in, or of items of a page or a tool's project.
        named: the set it was drawn from, in words.
        size: of that set.
        used_to_fit: members of the set that fitted the judge's calibration: they are not drawn to certify.
    """

    draw: Draw
    rows: int
    named: str
    size: int
    used_to_fit: int


def sample(
    run: str | Path,
    labels: int,
    *,
    out: str | Path,
    purpose: DrawPurpose = "certify",
    of: str | None = None,
    by: str | None = None,
    seed: int = 42,
    dimensions: Sequence[str] = (),
    tool: str | None = None,
    risk: float = 0.1,
    confidence: float = 0.9,
) -> Sampled:
    """Draw what to label from a run, record the draw with it, and write it for people to answer.

    The same set, purpose, strata and seed give the same draw; with more labels it becomes larger.

    Args:
        run: run folder.
        labels: how many dialogues or pairs.
        out: a CSV or JSONL file to fill in, an HTML page to answer in, or for a tool a folder. It must not exist yet, so
            that no labels are overwritten.
        purpose: what the labels are for.
        of: the set to draw from, see `populations.read_members`; by default sft to certify, scored for other purposes.
        by: column whose fifths are the strata, of words each word; None draws from the whole set.
        seed: of the draw.
        dimensions: questions about each dialogue, or about each turn for a dimension of turns; metrics of the run as
            `metric_<name>`. By default those that the purpose needs.
        tool: label-studio or argilla, to write what that tool imports.
        risk: share of bad ones that a certificate allows; the page counts how far the answers go towards it.
        confidence: of that certificate.

    Raises:
        UsageError: no such run, set, column or dimension; a file that exists already; something that a tool cannot ask or
            show; a set to certify all of which fitted the judge's calibration; a risk or confidence that no certificate
            can have.
        RunLockedError: another process writes the folder.
    """
    run, out = Path(run), Path(out)
    of = of or (SFT if purpose == "certify" else SCORED)
    questions = _questions(run, of, purpose, dimensions)
    question = Question(risk=risk, confidence=confidence, of=of)
    question.check()
    check_out(out, tool, questions)
    members, apart = _drawable(run, of, by, purpose)
    record, table = _recorded_draw(run, members, labels, purpose, of, by, seed)
    with RunFolder(run):
        if tool is None and out.suffix.lower() == ".html":
            rows = write_sample_page(run, record, table, questions, question, out)
        else:
            rows = write_sample(run, record, table, questions, out, tool)
        folder = draw_folder(run)
        make_folder(folder)
        write_table(table, folder / f"{record.id}.parquet")
        write_record(folder / f"{record.id}.json", record)
    return Sampled(record, rows, named_set(of), members.height, apart)


def _drawable(run: Path, of: str, by: str | None, purpose: DrawPurpose) -> tuple[pl.DataFrame, int]:
    """Return the members of a set to draw from, and how many others fitted the judge's calibration and cannot certify."""
    everyone = members = read_members(run, of, by, any_type=True)
    if purpose == "certify":
        members = without_units(members, used_to_fit(read_manifest(run), is_of_pairs(of)))
    if not members.height:
        raise UsageError(
            f"all {everyone.height} {named_set(of)} were used to fit the judge's calibration, and cannot certify it",
            fix="run more dialogues, or calibrate again with --hold-out 0.5, run again, and certify with the labels it held out",
        )
    return members, everyone.height - members.height


def _recorded_draw(
    run: Path,
    members: pl.DataFrame,
    labels: int,
    purpose: DrawPurpose,
    of: str,
    by: str | None,
    seed: int,
) -> tuple[Draw, pl.DataFrame]:
    """Return a draw and its table; one that the run has already is never made smaller."""
    strata: list[int] | None = None
    names = ["all"]
    if by is not None:
        values = members["score"].to_list()
        strata, names = (
            score_strata(values) if members.schema["score"].is_numeric() else word_strata(values)
        )
    key = _draw_id(purpose, of, by, seed, members[UNIT])
    earlier = next((one for one in read_draws(run) if one.id == key), None)
    sizes = () if earlier is None else earlier.sizes
    labels = max(min(labels, members.height), *sizes, 0)
    table = _drawn_table(members[UNIT], labels, seed, strata)
    record = Draw(
        id=key,
        made=datetime.now(UTC).isoformat(timespec="seconds") if earlier is None else earlier.made,
        run=read_manifest(run).name,
        purpose=purpose,
        of=of,
        by=by,
        seed=seed,
        strata=_counted_strata(table, names),
        sizes=sizes if sizes and sizes[-1] == labels else (*sizes, labels),
    )
    return record, table


def draw_again(record: Draw, table: pl.DataFrame) -> tuple[Draw, pl.DataFrame]:
    """Return a draw and its table as seed and members give them; which stratum a member is in is taken from the table.

    Raises:
        CurateError: it is not the table of a draw.
    """
    if table.schema != _TABLE or table.height != table.drop_nulls().height:
        raise CurateError(
            f"the table of the draw {record.id} is damaged",
            got=", ".join(f"{name} {kind}" for name, kind in table.schema.items()),
            expected=", ".join(_TABLE),
        )
    strata = None if record.by is None else table["stratum"].to_list()
    again = _drawn_table(table[UNIT], max(record.sizes, default=0), record.seed, strata)
    key = _draw_id(record.purpose, record.of, record.by, record.seed, table[UNIT])
    counted = _counted_strata(again, [stratum.name for stratum in record.strata])
    return record.model_copy(update={"id": key, "strata": counted}), again


def _draw_id(purpose: str, of: str, by: str | None, seed: int, units: pl.Series) -> str:
    return fingerprint(purpose, of, by, seed, set_fingerprint(units))


def _drawn_table(
    units: pl.Series, labels: int, seed: int, strata: Sequence[int] | None
) -> pl.DataFrame:
    """Return the table that is kept of a draw, as `populations.read_drawn` describes it."""
    places = draw(units.to_list(), labels, seed, strata)
    columns = {
        UNIT: units,
        "stratum": [place.stratum for place in places],
        "order": [place.order for place in places],
        "drawn": [place.drawn for place in places],
        "swapped": [_is_swapped(unit, seed) for unit in units],
    }
    return pl.DataFrame(columns, schema=_TABLE)


def _counted_strata(table: pl.DataFrame, names: Sequence[str]) -> tuple[DrawStratum, ...]:
    counts = table.group_by("stratum").agg(pl.len(), pl.col("drawn").sum()).sort("stratum")
    return tuple(
        DrawStratum(name=name, size=size, drawn=drawn)
        for name, (_, size, drawn) in zip(names, counts.iter_rows(), strict=False)
    )


def _questions(
    run: Path, of: str, purpose: DrawPurpose, dimensions: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the questions about each drawn member, with the possible answers."""
    if is_of_pairs(of):
        if dimensions or purpose == "agreement":
            raise UsageError(
                "people label only which side of a pair is better",
                got=f"--dimension {dimensions[0]}" if dimensions else "--for agreement",
                fix="leave it out, or draw dialogues",
            )
        return questions_about([BETTER])
    metrics = {}
    if any(name.startswith(METRIC) for name in dimensions):
        metrics = {METRIC + name: top for name, top in highest_levels(metrics_of(run)).items()}
    known = (*DIMENSIONS, *metrics)
    if unknown := [name for name in dimensions if name not in known]:
        raise UsageError("no such dimension", got=unknown[0], expected=", ".join(known))
    return questions_about(dimensions or _DIMENSIONS[purpose], metrics)


def _is_swapped(unit: str, seed: int) -> bool:
    """Return whether a pair's rejected side is shown first: as good as random, and the same each time."""
    return hashlib.blake2b(f"side\x1f{seed}\x1f{unit}".encode(), digest_size=1).digest()[0] % 2 == 1
