"""How far a run's scores can be trusted: the commands of that purpose as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.recipe import Recipe, as_recipe
from curate.records import Agreement, AuditReport, Certificate, ProbeReport
from curate.run.audit import audit_run, plan_second_judging
from curate.run.labels.agreement import measure_agreement
from curate.run.labels.certify import certify_run, keep_certificate
from curate.run.labels.given_labels import given_labels
from curate.run.labels.question import Question
from curate.run.probe import plan_probe, probe_judge, write_probe
from curate.run.probe_plan import CASES
from curate.run.trust_reports import write_trust_report
from curate.storage.run_folder import REPLIES
from curate.storage.whole_files import write_record
from curate.trust.scales import parse_scales


def agreement(
    run: str | Path,
    gold: str | Path | None = None,
    *,
    dimension: str | None = None,
    label: str = "label",
    scales: Sequence[str] = (),
    raters: str = "skilled",
    hold_out: float = 0.0,
) -> Agreement:
    """Compare a run's scores with people's labels, as `curate agreement`; the report is saved with the run.

    Args:
        run: run folder.
        gold: CSV, JSONL or Parquet file of labels; None: the labels in the data.
        dimension: the dimension that the data's own labels are about.
        label: the name of those labels.
        scales: scales of the labels, such as `0-2`, `helpfulness=0-2` or `bad,fair,good`.
        raters: `experts`, `skilled` or `crowd`, for the alternative annotator test.
        hold_out: share (0-1) of the labelled dialogues to leave out, always the same ones: labels that prompts were
            chosen by cannot certify; `certify` given the same share uses those left out.

    Raises:
        UsageError: no run, no label about it, or labels that contradict each other.
    """
    labels = given_labels(Path(run), None if gold is None else Path(gold), dimension, label)
    measured = measure_agreement(
        run, labels, scales=parse_scales(scales), raters=raters, hold_out=hold_out
    )
    return measured.report


def certify(
    run: str | Path,
    gold: str | Path | None = None,
    *,
    dimension: str | None = None,
    label: str = "label",
    bad: str | None = None,
    risk: float = 0.1,
    confidence: float = 0.9,
    of: str | None = None,
    column: str | None = None,
    may_stop: bool = False,
    hold_out: float = 0.0,
    out: str | Path | None = None,
) -> Certificate:
    """Test what people's labels prove about a set of a run, as `curate certify`; the answer is saved with the run.

    Args:
        run, gold, dimension, label: as in `agreement`.
        bad, risk, confidence, of, column, may_stop, hold_out: as `curate.run.labels.question.Question`.
        out: file to write an issued certificate to, for `select.certificate`.

    Returns:
        A certificate, or one that is not `issued` and says why.

    Raises:
        UsageError: a question that labels cannot answer, or labels that do not fit the run.
    """
    question = Question(bad, risk, confidence, of, column, may_stop, hold_out)
    question.check()
    labels = given_labels(Path(run), None if gold is None else Path(gold), dimension, label)
    certificate = keep_certificate(Path(run), certify_run(run, labels, question), labels)
    if out is not None and certificate.issued:
        write_record(Path(out), certificate)
    return certificate


def probe(
    recipe: str | Path | Recipe | Mapping[str, Any],
    *,
    data: str | None = None,
    limit: int = CASES,
    seed: int = 42,
    by_policy: int = 0,
    out: str | Path | None = None,
) -> ProbeReport:
    """Test a recipe's judge on planted flaws, as `curate probe`; card and replies are saved in the run folder.

    Args:
        recipe: path, mapping or Recipe.
        data, limit, seed, by_policy: as `curate.run.probe.plan_probe`.
        out: run folder; None: `runs/<name>`.

    Raises:
        UsageError, EngineError, BudgetReached: as `judge_dialogues`.
    """
    named = as_recipe(recipe)
    run = Path("runs") / named.name if out is None else Path(out)
    plan = plan_probe(named, data, limit, seed, by_policy)
    probed = probe_judge(named, plan, run / REPLIES)
    write_probe(run, probed)
    return probed.report


def audit(run: str | Path, again: float | None = None) -> AuditReport:
    """Look for problems of a run without labels, as `curate audit`; the report is saved with the run.

    Args:
        run: run folder.
        again: share of the dialogues (0-1) to judge a second time; None makes no model calls.

    Raises:
        UsageError: no run, or one without scores; or the judge is not the one of the run.
    """
    run = Path(run)
    report = audit_run(run, None if again is None else plan_second_judging(run, again))
    write_trust_report(run, report)
    return report
