"""The sets of a run that people's labels are about: dialogues by a condition, the selected ones, pairs.

A member is a dialogue, by its content hash (equal dialogues count once), or a pair, by its id. Each draw from a set is
recorded with the run (`trust/draws`), so that a certificate counts only labels of a random draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import polars as pl
from pydantic import ValidationError

from curate.errors import UsageError
from curate.records import Draw, JudgeIdentity, Manifest
from curate.run.ingest import read_index
from curate.run.outputs import (
    NATURAL_PAIRS,
    PAIRS,
    pair_file,
    read_pairs,
    read_scores,
    set_fingerprint,
)
from curate.run.read_back import read_decisions, read_manifest
from curate.selection.columns import SCORE_OF, stages_of_column
from curate.selection.expressions import (
    check_columns,
    check_condition,
    check_truth,
    columns_of,
    evaluate,
    parse,
)
from curate.selection.rules import matching, stages_run
from curate.storage.parquet_files import readable
from curate.storage.whole_files import damaged

SFT, SCORED, ALL = "sft", "scored", "all"
PAIR_SETS: Final = {"pairs": PAIRS, "natural_pairs": NATURAL_PAIRS}
PAIR_SCORES: Final = ("evidence", "probability", "preference", "margin")
"""Fields of `PairCheck` that a threshold on pairs may be set on."""
UNIT = "unit"


def is_of_pairs(of: str) -> bool:
    """Return whether the members of a set are pairs."""
    return of in PAIR_SETS


def is_condition(of: str) -> bool:
    """Return whether a set is given as an SQL condition."""
    return of not in (SFT, SCORED, ALL, *PAIR_SETS)


def named_set(of: str) -> str:
    """Return the name of a set in words, to follow a number."""
    return {
        SFT: "dialogues of the SFT set",
        SCORED: "scored dialogues",
        ALL: "dialogues",
        "pairs": "pairs made by forks",
        "natural_pairs": "pairs of the data",
    }.get(of, f"dialogues with {of}")


def check_set(of: str, column: str | None, option: str = "--column") -> None:
    """Raise a UsageError where no run can have that set, or that column (named by `option`)."""
    if is_of_pairs(of):
        if column is not None and column not in PAIR_SCORES:
            raise UsageError(
                "pairs have no such score", got=column, expected=f"one of {', '.join(PAIR_SCORES)}"
            )
        return
    if is_condition(of):
        check_condition(of, "--of")
    if column is not None:
        check_columns([column], option)


def read_members(
    run: Path, of: str, column: str | None = None, *, any_type: bool = False
) -> pl.DataFrame:
    """Return the members of a set: `unit`, `id`, `group` (null for none), and `score` where a column is named.

    Args:
        run: a finished run.
        of: sft (as the rules select it), scored (by all stages that ran, and not the worse side of the data), all, pairs,
            natural_pairs, or an SQL condition over the score table.
        column: of the score table, or for pairs one of `PAIR_SCORES`. Members without a number are left out.
        any_type: the column may hold words, truth values or whatever else, which are then `score` as text, `(none)` for none.

    Raises:
        UsageError: no such run, set or column; a column without numbers; a set without members.
    """
    read_manifest(run)
    check_set(of, column, "--by" if any_type else "--column")
    if is_of_pairs(of):
        members = _pair_members(run, of, column)
    else:
        members = _dialogues(run, of, column, any_type=any_type)
    if column is not None and members.schema["score"] == pl.Float64():
        members = members.filter(pl.col("score").is_not_null() & pl.col("score").is_not_nan())
    if not members.height:
        raise UsageError(
            "there is nothing to draw from or to certify",
            got=f"no {named_set(of)}{f' with {column}' if column else ''} in {run}",
            fix="name another set with --of: sft, scored, all, pairs, natural_pairs or an SQL condition",
        )
    return members


def _dialogues(run: Path, of: str, column: str | None, *, any_type: bool) -> pl.DataFrame:
    table = read_scores(run)
    if column is not None:
        _check_score(table, column, any_type=any_type)
    if of == SFT:
        keep = pl.Series([_selected_by_rules(decision) for decision in read_decisions(run)])
        if len(keep) != table.height:
            raise UsageError(
                "the run selected nothing", got=run, expected="a run with a section `select`"
            )
    elif of == SCORED:
        scored = [pl.col(SCORE_OF[stage]).is_not_null() for stage in stages_run(table)]
        keep = table.select(
            pl.all_horizontal(pl.lit(True), pl.col("rejected_as").is_null(), *scored)
        ).to_series()
    elif of == ALL:
        keep = pl.repeat(True, table.height, eager=True)
    else:
        # stricter than `matching`: a certificate joins it with a threshold by AND, which takes no numbers
        check_truth(evaluate(table.head(0), of, "--of").dtype, of, "--of")
        keep = matching(table, of, "--of")
    score: list[pl.Expr] = []
    if column is not None and table.schema[column].is_numeric():
        score = [pl.col(column).cast(pl.Float64).alias("score")]
    elif column is not None:
        score = [pl.col(column).cast(pl.String).fill_null("(none)").alias("score")]
    members = table.filter(keep).select(pl.col("content_hash").alias(UNIT), "id", "group", *score)
    return members.unique(UNIT, keep="first", maintain_order=True)


def _selected_by_rules(decision: dict[str, Any]) -> bool:
    """Return whether the rules select a dialogue, whatever reviewers then decided.

    Labels cannot certify a set that they have changed: the bad dialogues that reviewers saw are gone, those that they
    did not see are still there. Taking bad dialogues out of the rules' set only lowers its share of bad ones.
    """
    reviewed = decision.get("reviewed")
    return SFT in decision["sets"] if reviewed is None else not reviewed["rule_reasons"]


def _check_score(table: pl.DataFrame, column: str, *, any_type: bool) -> None:
    check_columns([column], "--by" if any_type else "--column", table.schema, labels_known=True)
    dtype = table.schema[column]
    if not any_type and not dtype.is_numeric():
        raise UsageError(
            "no threshold can be set on that column",
            got=f"{column}, which holds {dtype}",
            expected="numbers that are higher for better dialogues, such as mean_score, adherence, overall_score or p_good",
        )


def _pair_members(run: Path, of: str, column: str | None) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for pair in read_pairs(run, PAIR_SETS[of]) if pair_file(run, PAIR_SETS[of]).is_file() else ():
        row: dict[str, Any] = {UNIT: pair.pair_id, "id": pair.dialogue_id, "group": None}
        if column is not None:
            row["score"] = None if pair.check is None else getattr(pair.check, column)
        rows.append(row)
    schema = {UNIT: pl.String, "id": pl.String, "group": pl.String, "score": pl.Float64}
    if column is None:
        del schema["score"]
    return pl.DataFrame(rows, schema=schema).unique(UNIT, keep="first", maintain_order=True)


def promised_members(run: Path, of: str, column: str | None) -> pl.DataFrame:
    """Return the members of a set that a certificate can speak of, as `read_members`: without those that fitted the judge."""
    members = read_members(run, of, column)
    return without_units(members, used_to_fit(read_manifest(run), is_of_pairs(of)))


def without_units(members: pl.DataFrame, units: frozenset[str]) -> pl.DataFrame:
    """Return the members but those of these ids or content hashes."""
    return members.filter(~pl.col(UNIT).is_in(pl.Series(list(units), dtype=pl.String).implode()))


def source_fingerprint(run: Path) -> str:
    """Return a hash of the content of all dialogues of a run."""
    return set_fingerprint(read_index(run, "content_hash").to_series())


def identities_of(manifest: Manifest, column: str | None, of: str) -> dict[str, JudgeIdentity]:
    """Return by stage the judges whose scores a set depends on.

    Of a condition or all dialogues these are the stages that the condition and the score column read, of any other set
    all stages.
    """
    identities = {str(stage): identity for stage, identity in manifest.identities.items()}
    if of != ALL and not is_condition(of):
        return identities
    names = {column or "", *(columns_of(parse(of, "--of")) if is_condition(of) else ())}
    stages = {stage for name in names for stage in stages_of_column(name)}
    return {stage: identity for stage, identity in identities.items() if stage in stages}


def used_to_fit(manifest: Manifest, pairs: bool) -> frozenset[str]:
    """Return the members whose labels fitted a file that the run's recipe names: a calibration, a curve or a cascade."""
    files = fitted_files(manifest, _FITTED_TO_PAIRS if pairs else _FITTED_TO_DIALOGUES)
    return frozenset(unit for file in files.values() for unit in file.get("labelled", ()))


_FITTED_TO_PAIRS = (("fork", "curve"), ("natural", "verify", "curve"))
_FITTED_TO_DIALOGUES = (
    ("judge", "calibration"),
    ("adherence", "calibration"),
    ("metrics", "calibration"),
    ("models", "judge", "fit"),
)


def fitted_files(
    manifest: Manifest,
    keys: Iterable[Sequence[str]] = (*_FITTED_TO_DIALOGUES, *_FITTED_TO_PAIRS),
) -> dict[str, Mapping[str, Any]]:
    """Return the content of the fitted files that the run's recipe names, by dotted key."""
    files = {".".join(path): _at(manifest.recipe, path) for path in keys}
    return {name: file for name, file in files.items() if file}


def _at(recipe: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    """The section of a resolved recipe under these keys; empty where it is off or absent."""
    section: Any = recipe
    for key in keys:
        section = section.get(key) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}


# ---- draws


def draw_folder(run: Path) -> Path:
    """Return the folder in which a run keeps its draws."""
    return run / "trust" / "draws"


def read_draws(run: Path) -> list[Draw]:
    """Return the draws that are recorded with a run, the newest last.

    Raises:
        CurateError: one is damaged.
    """
    draws = []
    for path in sorted(draw_folder(run).glob("*.json")):
        try:
            draw = Draw.model_validate(orjson.loads(path.read_bytes()))
        except (ValidationError, orjson.JSONDecodeError) as error:
            raise damaged(path, error) from error
        if draw.id != path.stem:  # the id also names the table beside the file
            raise damaged(path, f"it belongs to the draw {draw.id!r}")
        draws.append(draw)
    return sorted(draws, key=lambda draw: (draw.made, draw.id))


def read_drawn(run: Path, draw: Draw) -> pl.DataFrame:
    """Return everything that could have been drawn: `unit`, `stratum`, `order` within it, `drawn`, `swapped`.

    Raises:
        CurateError: the table is missing or damaged.
    """
    path = draw_folder(run) / f"{draw.id}.parquet"
    if not path.is_file():
        raise damaged(path, "it is not there")
    with readable(path):
        return pl.read_parquet(path)
