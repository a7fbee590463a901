"""The figures of a report's overview, from the manifest, the score table and the reports of trust."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.planning.estimate_beside_actual import compare
from curate.records import (
    DropReason,
    Manifest,
    QuarantineReason,
    StageName,
    TrustKind,
    UnscoredReason,
)
from curate.report.packed_columns import rounded
from curate.run.labels.populations import named_set
from curate.run.trust_reports import (
    current_certificates,
    report_path,
    trust_sentences,
)
from curate.selection.columns import NOT_SCORED, REJECTED_SIDES, UNSCORED_OF
from curate.storage.stage_rows import fingerprint
from curate.trust.failure_modes import mode_rows
from curate.trust.judge_checks import checks_in_words

LENGTHS: Final = (0, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800)
"""Lower bounds of the bins of a turn's reply length, in characters."""
_LEVELS = 5


class LengthTable:
    """A table of turns by the length of their replies and by the helpfulness that the judge gives them."""

    def __init__(self) -> None:
        self._lengths, self._levels = array("l"), array("d")

    def add(self, dialogue: Dialogue, judgment: Mapping[str, Any] | None) -> None:
        """Count the scored turns of a dialogue."""
        scores = {
            turn["turn"]: turn["scores"]["helpfulness"]
            for turn in (judgment or {}).get("per_turn", ())
        }
        for turn in dialogue.turns:
            if turn.number in scores:
                replies = (m.content for m in turn.messages if m.role == "assistant")
                self._lengths.append(sum(map(len, replies)))
                self._levels.append(scores[turn.number])

    def figures(self) -> dict[str, Any] | None:
        """Return turns by bin of length and level, and Spearman's rank correlation; None without turns.

        The correlation is None where all lengths or all levels are the same.
        """
        import numpy as np

        if not self._lengths:
            return None
        lengths, levels = np.array(self._lengths), np.array(self._levels)
        counts, _, _ = np.histogram2d(
            lengths, levels, bins=([*LENGTHS, np.inf], np.arange(0.5, _LEVELS + 1))
        )
        return {
            "lengths": LENGTHS,
            "counts": counts.astype(int).tolist(),
            "turns": len(lengths),
            "correlation": _rank_correlation(lengths, levels),
        }


def _rank_correlation(one: Any, other: Any) -> float | None:
    from scipy.stats import spearmanr

    if len(set(one.tolist())) < 2 or len(set(other.tolist())) < 2:
        return None
    return float(spearmanr(one, other).statistic)


def figures_of(
    run: Path, manifest: Manifest, table: pl.DataFrame, lengths: LengthTable
) -> dict[str, Any]:
    """Return all figures of the overview, except those that the page counts itself in the columns.

    Args:
        run: the run folder.
        manifest: its manifest.
        table: a row a dialogue, scores and decisions.
        lengths: with all dialogues added.
    """
    return {
        "run": {
            "key": fingerprint(manifest.name, manifest.recipe.get("source")),
            "name": manifest.name,
            "status": manifest.status,
            "started": manifest.started,
            "finished": manifest.finished,
            "seconds": manifest.seconds,
            "curate": manifest.versions.get("curate", ""),
            "warnings": manifest.warnings,
            "verdicts": manifest.verdicts,
            "identities": {
                name: identity.model_dump(mode="json")
                for name, identity in manifest.identities.items()
            },
            "recipe": orjson.dumps(manifest.recipe, option=orjson.OPT_INDENT_2).decode(),
        },
        "funnel": funnel_steps(manifest, table),
        "meanings": reason_meanings(manifest),
        "trust": _trust(run, manifest),
        "threshold": _threshold(run, manifest),
        "judge_checks": _judge_checks(manifest),
        "adherence": None if manifest.adherence is None else manifest.adherence.model_dump(),
        "metrics": None if manifest.metrics is None else manifest.metrics.model_dump(),
        "factuality": None if manifest.factuality is None else manifest.factuality.model_dump(),
        "lengths": lengths.figures(),
        "cost": _cost(manifest),
        "exports": manifest.exports,
        "pairs": {
            "checks": {name: report.model_dump() for name, report in manifest.pair_checks.items()},
            "decisions": manifest.pair_decisions,
            "agreement": None
            if manifest.label_agreement is None
            else manifest.label_agreement.described,
        },
    }


def funnel_steps(manifest: Manifest, table: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the steps from rows in to rows out, each with how many passed it, and how many did not, by reason.

    `column` names the column of the table that has the reasons of a step, where there is one.
    """
    quarantined: Counter[str] = Counter()
    for source in manifest.sources:
        quarantined.update(source.get("reasons", {}))
    steps = [
        _step("rows read", "rows", manifest.rows_in, manifest.rows_used, dict(quarantined)),
    ]
    if manifest.not_sampled:
        total = manifest.dialogues + manifest.not_sampled
        reasons = {"left out to keep to the sources' weights": manifest.not_sampled}
        steps.append(_step("dialogues sampled", "dialogues", total, manifest.dialogues, reasons))
    for stage, title in _SCORED.items():
        if stage not in manifest.fingerprints:
            continue
        column = UNSCORED_OF[stage.value]  # type: ignore[index]
        unscored = {
            str(reason): count
            for reason, count in table[column].drop_nulls().value_counts(sort=True).iter_rows()
        }
        scored = table[column].null_count()
        steps.append(_step(title, "dialogues", table.height, scored, unscored, column))
    if manifest.recipe.get("select"):
        steps.append(
            _step(
                "selected",
                "dialogues",
                table.height,
                manifest.selected,
                manifest.rejections,
                "first_reason" if "first_reason" in table.columns else None,
            )
        )
    for kind, stages in manifest.funnels.items():
        origin = "forks" if kind == "fork" else "natural pairs"
        steps += [
            _step(f"{origin}: {stage.name}", stage.unit, stage.entered, stage.passed, stage.dropped)
            for stage in stages
            if stage.entered
        ]
    return steps


def _step(
    name: str,
    unit: str,
    total: int,
    passed: int,
    reasons: Mapping[str, int],
    column: str | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "unit": unit,
        "whole": total,
        "passed": passed,
        "reasons": dict(reasons),
        "column": column,
    }


_SCORED = {
    StageName.JUDGE: "judged",
    StageName.ADHERENCE: "scored for role adherence",
    StageName.METRICS: "scored by metrics",
    StageName.FACTUALITY: "with their claims checked",
}


def reason_meanings(manifest: Manifest) -> dict[str, str]:
    """Return the meaning of every reason code; of the recipe's own conditions the condition as written."""
    where = (manifest.recipe.get("select") or {}).get("where")
    conditions = where if isinstance(where, Mapping) else {}  # else the defaults, by name
    return {
        **{str(reason): reason.meaning for reason in QuarantineReason},
        **{str(name): f"not: {condition}" for name, condition in conditions.items()},
        **REJECTED_SIDES,
        **{str(reason): reason.meaning for reason in UnscoredReason},
        **{str(reason): reason.meaning for reason in DropReason},
        NOT_SCORED: "the stage has not reached it",
    }


def _trust(run: Path, manifest: Manifest) -> list[dict[str, Any]]:
    """Return a sentence for each kind of trust report, and the figures of the report where there is one."""
    entries: list[dict[str, Any]] = []
    for kind, sentence in trust_sentences(run, manifest.fingerprints).items():
        path = report_path(run, kind)
        # trust_sentences has read the file already, so it is not damaged.
        value = orjson.loads(path.read_bytes()) if path.is_file() else None
        hidden = ("kind", "sentence", "fingerprints")
        figures = value and {name: field for name, field in value.items() if name not in hidden}
        entries.append({"kind": _TITLES[kind], "sentence": sentence, "figures": figures})
    reviewed = manifest.review
    entries.append(
        {
            "kind": "review by people",
            "sentence": "Nobody has reviewed the run (`curate review`)."
            if reviewed is None
            else reviewed.described,
            "figures": None,
        }
    )
    for title, sentence in (
        ("calibrated levels", manifest.levels),
        ("threshold of role adherence", manifest.role_threshold),
    ):
        if sentence:
            entries.append({"kind": title, "sentence": sentence, "figures": None})
    return entries


def _threshold(run: Path, manifest: Manifest) -> dict[str, Any] | None:
    """Return the thresholds that the certificate of the selection holds at, strict ones first; None where there are none."""
    certificate = current_certificates(run, manifest.fingerprints).get(TrustKind.CERTIFICATE)
    if certificate is None or not certificate.issued:
        return None
    steps = [
        {"threshold": step.threshold, "at": rounded(step.threshold), "kept": step.kept}
        for step in certificate.steps
        if step.passed
    ]
    if not steps:
        return None
    return {
        "column": certificate.certified.column,
        "steps": steps,
        "risk": certificate.risk,
        "confidence": certificate.confidence,
        "named": named_set(certificate.certified.of),
        "bad": certificate.bad,
    }


_TITLES = {
    TrustKind.AGREEMENT: "agreement with people",
    TrustKind.CERTIFICATE: "certificate of the selection",
    TrustKind.PAIR_CERTIFICATE: "certificate of the pairs",
    TrustKind.PROBE: "probe with planted flaws",
    TrustKind.AUDIT: "audit",
}


def _judge_checks(manifest: Manifest) -> dict[str, Any] | None:
    checks = manifest.judge_checks
    if checks is None:
        return None
    rows = zip(mode_rows(checks.failure_modes), checks.failure_modes, strict=True)
    return {
        "sentences": checks_in_words(checks),
        "modes": [
            {
                "name": name,
                "figure": figure,
                "threshold": threshold,
                "status": status,
                "detail": mode.detail,
                "dialogues": mode.dialogues,
            }
            for (name, figure, threshold, status, _), mode in rows
        ],
    }


def _cost(manifest: Manifest) -> dict[str, Any]:
    comparison = compare(manifest)
    return {
        "rows": []
        if comparison is None
        else [
            {
                "name": row.name.strip(),
                "expected": row.shown(row.expected),
                "actual": row.shown(row.actual),
            }
            for row in comparison.rows
        ],
        "notes": [] if comparison is None else comparison.notes,
        "stages": {name: counts.model_dump() for name, counts in manifest.stages.items()},
        "seconds": manifest.seconds_by_stage,
        "requests": manifest.requests,
        "tokens_in": manifest.tokens_in,
        "tokens_cached": manifest.tokens_cached,
        "tokens_out": manifest.tokens_out,
        "cost": manifest.cost,
        "unpriced": manifest.unpriced,
    }
