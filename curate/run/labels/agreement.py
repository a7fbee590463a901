"""`curate agreement`: measure how far a run's scores agree with people's labels, and keep the report in the run folder.

`score_comparison` compares them dimension by dimension. No model calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from curate.errors import UsageError
from curate.records import MetricsScore, TrustKind
from curate.records.agreement import Agreement, agreement_sentence
from curate.run.ingest import read_dialogues
from curate.run.labels.agreement_marks import write_marks
from curate.run.labels.given_labels import given_labels, keep_labels
from curate.run.labels.hold_out import check_hold_out, without_kept
from curate.run.labels.run_scores import highest_levels, metrics_of
from curate.run.labels.score_comparison import ScoreComparison
from curate.run.read_back import read_manifest
from curate.run.trust_reports import write_trust_report
from curate.trust.gold import Gold, match_gold
from curate.trust.label_rows import GivenLabels, Unused, split_labels
from curate.trust.raters import EPSILONS
from curate.trust.scales import Scale


@dataclass(frozen=True, slots=True)
class MeasuredAgreement:
    """A report of agreement, and the labels that could not be used."""

    report: Agreement
    unused: Unused


def measure_agreement(
    run: str | Path,
    gold: str | Path | GivenLabels,
    *,
    scales: Mapping[str, Scale] | None = None,
    raters: str = "skilled",
    hold_out: float = 0.0,
) -> MeasuredAgreement:
    """Measure how far a run's scores agree with people's labels; the report is kept in the run folder. No model calls.

    Args:
        run: folder of a run.
        gold: file of labels of dialogues and pairs, see `trust.label_rows.split_labels`; or labels as `given_labels` reads them.
        scales: as `trust.scales.parse_scales` gives them.
        raters: kind of people who gave the labels, for the alternative annotator test: experts, skilled or crowd.
        hold_out: share of the labelled dialogues to leave out, so that they can certify what the others chose; with
            them go the dialogues that were drawn to certify. 0 leaves out none.

    Raises:
        UsageError: no run, no label about it, labels that contradict themselves, or no score to compare them with.
        RunLockedError: another process is writing the folder.
    """
    run = Path(run)
    labels = gold if isinstance(gold, GivenLabels) else given_labels(run, Path(gold))
    measured = agreement_of(run, labels, scales=scales, raters=raters, hold_out=hold_out)
    keep_labels(run, TrustKind.AGREEMENT, labels)
    write_trust_report(run, measured.report)
    write_marks(run, measured.report)
    return measured


def agreement_of(
    run: Path,
    labels: GivenLabels,
    *,
    scales: Mapping[str, Scale] | None,
    raters: str,
    hold_out: float,
) -> MeasuredAgreement:
    """Return the agreement of a run's scores with people's labels; arguments and errors as of `measure_agreement`."""
    if raters not in EPSILONS:
        raise UsageError("no such kind of rater", got=raters, expected=", ".join(EPSILONS))
    check_hold_out(hold_out)
    rows, pairs, unused = split_labels(labels)
    manifest = read_manifest(run)
    if hold_out and rows:
        rows, held_out = without_kept(run, rows, hold_out)
        unused.merge(held_out)
    dialogues = {dialogue.content_hash: dialogue for dialogue in read_dialogues(run)}
    matched = Gold(unused=unused)
    metrics: Mapping[str, MetricsScore] = {}
    if rows or not pairs:
        metrics = metrics_of(run)
        matched = match_gold(rows, dialogues.values(), scales, unused, highest_levels(metrics))
    comparison = ScoreComparison(run, manifest, dialogues, matched, EPSILONS[raters])
    comparison.add_rubric()
    comparison.add_metrics(metrics)
    comparison.add_adherence()
    comparison.add_pairs(pairs)
    if not comparison.dimensions:
        reasons = [f"{name}: {why}" for name, why in comparison.not_measured.items()]
        raise UsageError(
            "no label can be compared with a score",
            got="; ".join([*unused.reasons(), *reasons]),
            expected="labels of dialogues, turns or pairs that the judge scored",
        )
    report = Agreement(
        sentence=agreement_sentence(comparison.dimensions, comparison.shares),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprints={stage: manifest.fingerprints[stage] for stage in comparison.judges},
        gold=labels.origin,
        rows=len(labels.rows),
        raters=raters,
        scales={name: str(scale) for name, scale in (scales or {}).items()},
        hold_out=hold_out,
        unused=unused.counts,
        judges=comparison.judges,
        dimensions=comparison.dimensions,
        not_measured=comparison.not_measured,
        assumed_scales=matched.assumed_scales,
        shares=tuple(comparison.shares),
    )
    return MeasuredAgreement(report, unused)
