"""A finished run's scores by the content hash of their dialogue: what is held against labels of people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from curate.errors import UsageError
from curate.records import AdherenceScore, JudgeIdentity, Judgment, StageName, Unscored
from curate.run.read_back import read_manifest
from curate.run.staging import S, scored_rows
from curate.storage.files import damaged


def rows_of(run: Path, stage: StageName, kind: type[S]) -> list[tuple[str, S | Unscored]] | None:
    """The rows of a judging stage with their content hashes; None of a run without it.

    Raises:
        UsageError: no run folder.
        CurateError: a row is damaged: a fit without it would say nothing of that.
    """
    fingerprint = read_manifest(run).fingerprints.get(stage)
    if fingerprint is None:
        return None
    rows = scored_rows(run, stage, fingerprint, kind)
    if rows.damage:
        raise damaged(rows.folder, rows.damage[0])
    return list(rows.read())


def judgments_of(run: Path, *, needed: bool = True) -> dict[str, Judgment]:
    """The judgments of a run by content hash; those that were not scored are left out.

    Raises:
        UsageError: no run folder; they are needed and not there.
    """
    rows = rows_of(run, StageName.JUDGE, Judgment)
    if rows is None and needed:
        raise UsageError("the run has no judgments", got=run, expected="a run with a rubric judge")
    return {key: row for key, row in rows or () if isinstance(row, Judgment)}


def adherence_of(run: Path, *, needed: bool) -> dict[str, AdherenceScore]:
    """Role adherence by content hash, likewise; nothing of a run without it, unless it is needed.

    Raises:
        UsageError: no run folder; it is needed and not there.
    """
    rows = rows_of(run, StageName.ADHERENCE, AdherenceScore)
    if rows is None and needed:
        raise UsageError("the run has no adherence scores", got=run)
    return {key: row for key, row in rows or () if isinstance(row, AdherenceScore)}


def rubric_judge(judgments: Iterable[Judgment]) -> JudgeIdentity:
    """The one judge of all judgments, before any calibration.

    Raises:
        UsageError: there is none, or there are several.
    """
    identities = list(
        {j.identity.uncalibrated().model_dump_json(): j.identity for j in judgments}.values()
    )
    if not identities:
        raise UsageError("the run has no scored dialogue", expected="judgments to calibrate")
    if len(identities) > 1:
        raise UsageError(
            "the judgments are of several judges, or were asked for in several ways",
            got=", ".join(f"{one.model} {one.mode}" for one in identities[:3]),
            expected="scores of one judge: a calibration holds for no other",
        )
    return identities[0].uncalibrated()
