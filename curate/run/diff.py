"""Compare two run folders: their recipes and models, scores, sets and pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from pydantic import Field

from curate.dialogue import Frozen
from curate.errors import UsageError
from curate.records import Manifest
from curate.run.outputs import NATURAL_PAIRS, PAIRS, read_scores, stored_pairs
from curate.run.read_back import read_decisions, read_manifest
from curate.trust.run_comparison import SetChange, TableDiff, changed_keys, compare_tables
from curate.wording import plural

_OF_A_RUN = ("name", "out", "resume")
"""Keys of a recipe that make no run another one."""


class RunChange(Frozen):
    """A key whose value differs in the second run; null for a run that does not have it."""

    key: str
    before: Any = None
    after: Any = None


class RunDiff(Frozen):
    """Differences of the second of two runs from the first."""

    first: str
    second: str
    sentence: str
    dialogues: TableDiff
    judges: dict[str, tuple[RunChange, ...]] = Field(
        description="By stage, what is different about who scored and how; empty of a stage scored alike."
    )
    recipe: tuple[RunChange, ...] = ()
    versions: tuple[RunChange, ...] = ()
    figures: tuple[RunChange, ...] = Field(
        (), description="Rows that could not be read, unscored shares by stage, cost."
    )
    trust: tuple[RunChange, ...] = Field(
        (), description="What was measured of the judge after each run, a sentence a kind."
    )
    pairs: dict[str, SetChange] = Field(default_factory=dict)
    drop_reasons: tuple[RunChange, ...] = Field(
        (), description="Pairs dropped by reason, where their number changed."
    )


def diff_runs(first: Path, second: Path) -> RunDiff:
    """Compare two runs.

    Args:
        first: the folder of the run that is compared with.
        second: the folder of the other.

    Raises:
        UsageError: one is no run, has no scores yet, or the two have no dialogue in common.
        CurateError: a file is damaged.
    """
    before, after = read_manifest(first), read_manifest(second)
    dialogues = compare_tables(score_table_of(first), score_table_of(second))
    if not dialogues.both:
        raise UsageError(
            "the runs have no dialogue in common",
            got=f"{plural(len(dialogues.only_first), 'dialogue')} in the first, {len(dialogues.only_second)} in the second",
            expected="dialogues with the same id, or the same content",
        )
    pairs = {
        kind: _pair_change(_pair_ids(first, kind), _pair_ids(second, kind))
        for kind in (PAIRS, NATURAL_PAIRS)
    }
    judges = {
        stage: _changes(*(_identity(manifest, stage) for manifest in (before, after)))
        for stage in dict.fromkeys([*before.identities, *after.identities])
    }
    pairs = {kind: change for kind, change in pairs.items() if change.before or change.after}
    return RunDiff(
        first=str(first),
        second=str(second),
        sentence=_sentence(dialogues, judges, pairs),
        dialogues=dialogues,
        judges=judges,
        recipe=tuple(
            change
            for change in _changes(before.recipe, after.recipe)
            if change.key not in _OF_A_RUN
        ),
        versions=_changes(before.versions, after.versions),
        figures=_changes(_figures(before), _figures(after)),
        trust=_changes(_trust(before), _trust(after)),
        pairs=pairs,
        drop_reasons=_changes(before.drop_reasons, after.drop_reasons),
    )


def score_table_of(run: Path) -> pl.DataFrame:
    """Return the score table of a run with the column `sets`, its verdicts as text.

    Raises:
        UsageError: the run has no scores yet.
        CurateError: it is damaged.
    """
    # Decisions stand in the order of the table; a run without a selection has none.
    decided = [(row["dialogue_id"], row["sets"]) for row in read_decisions(run)]
    schema: dict[str, Any] = {"id": pl.String, "sets": pl.List(pl.String)}
    sets = pl.DataFrame(decided, schema=schema, orient="row").unique("id", keep="first")
    return (
        read_scores(run)
        .join(sets, on="id", how="left")
        .with_columns(
            pl.col("sets").fill_null(pl.lit([], dtype=pl.List(pl.String))),
            pl.col("verdict").cast(pl.String),
        )
    )


def _pair_ids(run: Path, kind: str) -> dict[str, None]:
    return dict.fromkeys(pair["pair_id"] for pair in stored_pairs(run, kind))


def _pair_change(before: dict[str, None], after: dict[str, None]) -> SetChange:
    return SetChange(
        before=len(before),
        after=len(after),
        gained=tuple(pair for pair in after if pair not in before),
        lost=tuple(pair for pair in before if pair not in after),
    )


def _figures(manifest: Manifest) -> dict[str, Any]:
    shares = {f"unscored ({name})": share for name, share in manifest.unscored_shares.items()}
    return {"quarantined": manifest.quarantined, **shares, "cost": manifest.cost}


def _trust(manifest: Manifest) -> dict[str, Any]:
    return {kind.value: sentence for kind, sentence in manifest.trust.items()}


def _identity(manifest: Manifest, stage: str) -> dict[str, Any]:
    identity = manifest.identities.get(stage)
    return {} if identity is None else identity.model_dump(mode="json")


def _changes(before: dict[str, Any], after: dict[str, Any]) -> tuple[RunChange, ...]:
    return tuple(
        RunChange(key=key, before=old, after=new)
        for key, (old, new) in changed_keys(before, after).items()
    )


def _sentence(
    dialogues: TableDiff,
    judges: dict[str, tuple[RunChange, ...]],
    pairs: dict[str, SetChange],
) -> str:
    rate = dialogues.same_verdict
    if rate.of:
        verdicts = (
            f"{rate.of - rate.count:,} of {plural(rate.of, 'dialogue')} have another verdict ({dialogues.better:,} a better "
            f"one, {dialogues.worse:,} a worse one)"
        )
    else:
        verdicts = f"No rubric judge scored any of the {plural(dialogues.both, 'dialogue')} in both"
    parts = [verdicts]
    sft = dialogues.sets.get("sft")
    if sft is not None:
        parts.append(
            f"the sft set gained {len(sft.gained):,} and lost {len(sft.lost):,} of the dialogues in both"
        )
    for kind, change in pairs.items():
        parts.append(
            f"{kind.replace('_', ' ')} gained {len(change.gained):,} and lost {len(change.lost):,}"
        )
    other = [stage for stage, changes in judges.items() if changes]
    scorers = f" Another judge, or another way to ask it: {', '.join(other)}." if other else ""
    return f"{'; '.join(parts)}.{scorers}"
