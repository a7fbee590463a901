"""The parts of the card on measurements of the judge: agreement, calibration, probe, certificates, audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from curate.notebook import spoken
from curate.records import (
    SCORING,
    Agreement,
    Calibration,
    Certificate,
    CutPoints,
    Figure,
    Kappa,
    Manifest,
    ProbeReport,
    TrustKind,
)
from curate.report.charts import FigureBar, intervals
from curate.run.labels.agreement_marks import current_agreement
from curate.run.trust_reports import current_certificates, current_report
from curate.wording import plural

_TITLES = {
    TrustKind.AGREEMENT: "Agreement with people",
    TrustKind.CERTIFICATE: "Certificate of the selection",
    TrustKind.PAIR_CERTIFICATE: "Certificate of the pairs",
    TrustKind.PROBE: "Planted flaws",
    TrustKind.AUDIT: "Audit, without labels",
}


@dataclass(frozen=True, slots=True)
class MeasuredTrust:
    """The reports of a run about its current rows; None if there is none."""

    agreement: Agreement | None = None
    probe: ProbeReport | None = None
    certificates: Mapping[TrustKind, Certificate] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Path, manifest: Manifest) -> Self:
        """Read the reports of a run.

        Raises:
            CurateError: a report is damaged.
        """
        return cls(
            current_agreement(run, manifest.fingerprints),
            current_report(run, ProbeReport, TrustKind.PROBE, manifest.fingerprints),
            current_certificates(run, manifest.fingerprints),
        )


@dataclass(frozen=True, slots=True)
class CardPart:
    """A part of the card: sentences, a table if there are figures, and the path of a picture."""

    title: str
    sentences: tuple[str, ...]
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    plot: str = ""


def measured_parts(manifest: Manifest, measured: MeasuredTrust) -> Iterator[CardPart]:
    """Yield one part per kind of measurement, including those that were not made."""
    for kind, sentence in manifest.trust.items():
        title = _TITLES[kind]
        if kind is TrustKind.AGREEMENT:
            yield _agreement_part(title, sentence, measured.agreement)
            yield _calibration_part(manifest)
        elif kind is TrustKind.PROBE and measured.probe is not None:
            yield _probe_part(title, measured.probe)
        elif kind in measured.certificates:
            yield CardPart(title, (sentence,), *_certificate_table(measured.certificates[kind]))
        else:
            yield CardPart(title, (sentence,))


_CHANCE = "broken line: what chance gives"
_PLOT = {TrustKind.AGREEMENT: "plots/agreement.svg", TrustKind.PROBE: "plots/probe.svg"}


def measured_plots(measured: MeasuredTrust) -> dict[str, str]:
    """Return the pictures of the reports as SVG, by path in the repository."""
    plots = {}
    kappas = [
        FigureBar(name, figures.levels.kappa.value, figures.levels.kappa.interval, 0.0)
        for name, figures in (measured.agreement.dimensions if measured.agreement else {}).items()
        if figures.levels.kappa.value is not None
    ]
    if kappas:
        title = "Kappa of the judge with people, 95 %"
        plots[_PLOT[TrustKind.AGREEMENT]] = intervals(title, kappas, 0.0, 1.0, _CHANCE)
    shares = [
        FigureBar(line.meaning, line.value, line.interval, line.against)
        for line in (measured.probe.lines if measured.probe else ())
        if line.section == "finding" and line.unit == "share" and line.value is not None
    ]
    if shares:
        title = "Planted flaws that the judge finds, share and 95 %"
        plots[_PLOT[TrustKind.PROBE]] = intervals(title, shares, 0.0, 1.0, _CHANCE)
    return plots


def _agreement_part(title: str, sentence: str, report: Agreement | None) -> CardPart:
    if report is None:
        return CardPart(title, (sentence,))
    rows = tuple(
        (
            name,
            f"{figures.labels:,} of {plural(figures.dialogues, 'dialogue')}",
            _figure(figures.levels.kappa),
            _figure(figures.spearman),
            _figure(figures.levels.bias),
            _figure(figures.alpha),
            f"not for use: {report.not_for_use[name]}" if name in report.not_for_use else "yes",
        )
        for name, figures in report.dimensions.items()
    )
    about = "Kappa is quadratic-weighted; people: Krippendorff's alpha between them."
    return CardPart(
        title,
        (sentence, about, *(f"{share.described}." for share in report.shares)),
        ("dimension", "labels", "kappa", "Spearman", "bias", "people", "for use"),
        rows,
        _PLOT[TrustKind.AGREEMENT],
    )


def _levels(manifest: Manifest) -> dict[str, CutPoints]:
    judge = manifest.recipe.get("judge")
    calibration = judge.get("calibration") if isinstance(judge, dict) else None
    if not calibration:
        return {}
    levels = Calibration.model_validate(calibration).levels or {}
    return {name: cuts for name, cuts in levels.items() if cuts.labels}


def _calibration_part(manifest: Manifest) -> CardPart:
    sentences = tuple(filter(None, (manifest.levels, manifest.role_threshold)))
    rows = tuple(
        (
            name,
            f"{cuts.labels:,} of {plural(cuts.dialogues, 'dialogue')}",
            _figure(cuts.before),
            _figure(cuts.after),
        )
        for name, cuts in _levels(manifest).items()
    )
    if not rows and not sentences:
        sentences = ("The judge's scores are its own; they are calibrated to no labels.",)
    heads = ("dimension", "labels", "kappa of the judge's digits", "kappa of its levels")
    return CardPart("Calibration", sentences, heads if rows else (), rows)


def _probe_part(title: str, report: ProbeReport) -> CardPart:
    figures = [(line, line.value) for line in report.lines if line.value is not None]
    rows = tuple(
        (
            f"{spoken(line.name)}: {line.meaning}" if line.section == "kinds" else line.meaning,
            str(line.n),
            _with_interval(value, line.interval),
            "-" if line.against is None else f"{line.against:.2f}",
            spoken(line.state),
        )
        for line, value in figures
    )
    few = len(report.lines) - len(figures)
    more = (f"Too few cases for {few:,} of its {len(report.lines):,} figures.",) if few else ()
    heads = ("planted", "cases", "figure", "chance or 0", "state")
    return CardPart(title, (report.sentence, *more), heads, rows, _PLOT[TrustKind.PROBE])


def _certificate_table(
    certificate: Certificate,
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    heads = ("of", "issued", "bad", "at most", "confidence", "labelled", "bad ones", "bound")
    row = (
        " ".join(filter(None, (certificate.certified.of, certificate.certified.rule))),
        "yes" if certificate.issued else "no",
        certificate.bad,
        f"{certificate.risk:.0%}",
        f"{certificate.confidence:.0%}",
        f"{certificate.labels.labelled:,}",
        f"{certificate.labels.bad:,}",
        f"{certificate.bound:.1%}",
    )
    return heads, (row,)


def first_sentence(manifest: Manifest, agreement: Agreement | None) -> str:
    """Return a sentence on how far the judge agrees with people, by its report or calibration, or that it was never measured."""
    if not any(stage in manifest.fingerprints for stage in SCORING):
        return "No judge scored this data."
    if agreement is not None:
        marked = ", ".join(agreement.not_for_use)
        not_for_use = f" Not for filtering by: {marked}." if marked else ""
        of_levels = f"{manifest.levels} {manifest.role_threshold}".rstrip()
        return f"{agreement.sentence}{not_for_use} {of_levels}".rstrip()
    if levels := _levels(manifest):
        kappas = (
            f"{name} {_figure(cuts.after) if cuts.after.value is not None else 'not defined'}, "
            f"{plural(cuts.labels, 'label')} of {plural(cuts.dialogues, 'dialogue')}"
            for name, cuts in levels.items()
        )
        return (
            "Quadratic-weighted kappa of the judge with people, each by levels fitted to other dialogues than "
            f"those it is measured on: {'; '.join(kappas)}. {manifest.levels} {manifest.role_threshold}"
        ).rstrip()
    return (
        "The judge of this data was never measured against human ratings. Its scores, verdicts and the pairs it "
        "preferred are one model's opinion; nothing in this run says how far people would agree. "
        f"{manifest.role_threshold}"
    ).rstrip()


def _figure(figure: Figure | Kappa) -> str:
    return "-" if figure.value is None else _with_interval(figure.value, figure.interval)


def _with_interval(value: float, interval: tuple[float, float] | None) -> str:
    return f"{value:.2f}" + ("" if interval is None else " ({:.2f} to {:.2f})".format(*interval))
