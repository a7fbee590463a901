"""`curate review`: take people's answers in a report's page into the run, and apply them without a model call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from curate.errors import UsageError
from curate.recipe import parse_recipe
from curate.records import SCORING, Manifest, ReviewAnswer, ReviewReport
from curate.run.export import export_run
from curate.run.ingest import read_index
from curate.run.labels.populations import UNIT, read_drawn, read_draws
from curate.run.outputs import (
    DROPPED_PAIRS,
    NATURAL_PAIRS,
    PAIRS,
    SCORES,
    read_selection,
    rejections,
    scores_path,
    set_fingerprint,
    stored_pairs,
    write_selection,
)
from curate.run.read_back import read_manifest
from curate.run.review_answers import (
    Reviews,
    by_rules,
    kept_answers,
    latest_answers,
    parse_answers,
    passed_pairs,
    read_answers,
    review_report,
    reviews_of,
    with_reviews,
    write_answers,
)
from curate.run.scoring import ScoreRows
from curate.run.staging import scored_rows
from curate.run.trust_reports import trust_sentences
from curate.storage.run_folder import RunFolder
from curate.trust.bad_rule import BETTER
from curate.trust.label_rows import read_label_rows
from curate.wording import first_of

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The result of taking in a review file.

    Attributes:
        answers: number of answers in the file, by dimension.
        kept: number of answers that the run has now, those of earlier files too.
        report: what people decided, in figures.
        disagreed: ids of the dialogues that as many accept as reject.
        manifest: of the run, as it is now.
    """

    answers: dict[str, int]
    kept: int
    report: ReviewReport
    disagreed: tuple[str, ...]
    manifest: Manifest


def review_run(run: Path, file: Path) -> Reviewed:
    """Take a review file into a run, and make its sets and exports again by it; no model calls.

    Args:
        run: a run folder with scores.
        file: the export of the report's page, or of Label Studio or Argilla for a project that `curate sample` wrote.
            The same file may be taken again: of two answers of one person to the same question the later counts.

    Raises:
        UsageError: the file is missing, is not a review or is cut off, or is about dialogues or pairs that the run does
            not have as they were reviewed; nothing is changed then.
        RunLockedError: another process writes the folder.
    """
    manifest = read_manifest(run)
    scores_path(run)
    new = _answers_of_tool(run, file) if file.suffix.lower() == ".json" else read_answers(file)
    if not new:
        raise UsageError(
            "the review file has no answers",
            got=file,
            fix="export it from the report's page after deciding about a dialogue or pair",
        )
    index = read_index(run, "id", "content_hash")
    _check_members(run, file, new, index)
    with RunFolder(run) as folder:
        answers = latest_answers(kept_answers(run), new)
        reviews = reviews_of(answers)
        write_answers(run, answers)
        update = _apply(run, manifest, reviews)
        manifest = manifest.model_copy(update=update)
        folder.write_manifest(manifest.model_dump(mode="json"))
    assert manifest.review is not None  # there is an answer
    names = dict(zip(index["content_hash"], index["id"], strict=True))
    return Reviewed(
        answers=dict(Counter(answer.dimension for answer in new)),
        kept=len(answers),
        report=manifest.review,
        disagreed=tuple(sorted(names[key] for key in reviews.disagreed if key in names)),
        manifest=manifest,
    )


def _answers_of_tool(run: Path, file: Path) -> list[ReviewAnswer]:
    """Return the answers of a tool's export; one without a time gets the time when the file was written."""
    rows = read_label_rows(file)
    draw_ids = {row.get("draw") for row in rows if row.get("pair_id")}
    swapped = {
        (draw.id, unit)
        for draw in read_draws(run)
        if draw.id in draw_ids
        for unit, is_swapped in read_drawn(run, draw).select(UNIT, "swapped").iter_rows()
        if is_swapped
    }
    written = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="milliseconds")
    for row in rows:
        row["id"] = row.pop("dialogue_id", None)
        row["time"] = row.get("time") or written.replace("+00:00", "Z")
        if row["dimension"] == BETTER:
            if not row.get("draw"):
                raise UsageError(
                    "an answer about a pair does not name its draw",
                    got=f"{file}: pair {row.get('pair_id')}",
                    expected="`draw` in the metadata, as `curate sample --tool` wrote it: it says which side was shown as a",
                )
            sides = ("b", "a") if (row["draw"], row["pair_id"]) in swapped else ("a", "b")
            side_of = dict(zip(sides, ("chosen", "rejected"), strict=True))
            row["value"] = row["better"] = side_of.get(row["value"], row["value"])
    return parse_answers(file, map(orjson.dumps, rows))


def _check_members(
    run: Path, file: Path, answers: Sequence[ReviewAnswer], index: pl.DataFrame
) -> None:
    """Raise a UsageError where answers are about dialogues or pairs that the run does not have as they were reviewed."""
    hashes, ids = set(index["content_hash"]), set(index["id"])
    unknown = {answer.id for answer in answers if answer.content not in hashes}
    if changed := unknown & ids:
        raise UsageError(
            f"{file} reviews dialogues whose content has changed since",
            got=_listed(changed),
            expected="the dialogues as they were shown",
            fix="write the report again, import the review there, and look at these once more; nothing was changed",
        )
    if unknown:
        raise UsageError(
            f"{file} is a review of another run",
            got=f"dialogues that {run} does not have: {_listed(unknown)}",
            fix="name the run whose report it is of; nothing was changed",
        )
    pair_ids = {answer.pair_id for answer in answers if answer.pair_id is not None}
    kinds = (PAIRS, NATURAL_PAIRS, DROPPED_PAIRS) if pair_ids else ()
    stored_ids = {pair["pair_id"] for pair in stored_pairs(run, *kinds)}
    if missing := pair_ids - stored_ids:
        raise UsageError(
            f"{file} reviews pairs that the run does not have",
            got=_listed(missing),
            fix="write the report again and review its pairs; nothing was changed",
        )


def _listed(ids: Iterable[str]) -> str:
    return first_of(sorted(ids), _SHOWN)


def _apply(run: Path, manifest: Manifest, reviews: Reviews) -> dict[str, Any]:
    """Write sets and exports by the rules and the reviews; return what changes in the manifest."""
    recipe = parse_recipe(manifest.recipe)
    decided = read_selection(run) if recipe.select else None
    update: dict[str, Any] = {}
    if decided is not None:
        decided = with_reviews(by_rules(decided), reviews)
        sets = write_selection(run, decided)
        first, every = rejections(decided)
        update |= {
            "selected": sets.get("sft", 0),
            "sets": sets,
            "rejections": first,
            "rejection_reasons": every,
        }
        # A certificate of the set before does not hold for this one.
        selected = decided["content_hash"].filter(decided["reasons"].list.len() == 0)
        fingerprints = manifest.fingerprints | {"select": set_fingerprint(selected)}
        update["fingerprints"] = fingerprints
        update["trust"] = trust_sentences(run, fingerprints)
    if recipe.export:
        scores = _scores(run, manifest)
        table = pl.scan_parquet(run / SCORES)
        exports = export_run(run, recipe.export, table, decided, scores, reviews)
        update["exports"] = manifest.exports | exports
    update["review"] = review_report(decided, reviews, passed_pairs(run))
    return update


def _scores(run: Path, manifest: Manifest) -> ScoreRows:
    """Return the rows of the run's stages, as they are stored."""
    fingerprints = manifest.fingerprints
    rows: list[Any] = [
        scored_rows(run, stage, fingerprints[stage]) if stage in fingerprints else None
        for stage in SCORING
    ]
    return ScoreRows(*rows)
