"""The trust reports in `curate verify`: each is made again from the labels, outcomes and draws that are kept with it.

A report that nothing kept can make again, and one of rows that the run no longer has, is named as not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from curate.errors import CurateError
from curate.records import (
    Agreement,
    AuditReport,
    Certificate,
    Manifest,
    ProbeReport,
    TrustKind,
    TrustReport,
)
from curate.run.audit import audit_run
from curate.run.file_differences import Difference, RowDifferences, value_difference
from curate.run.labels.agreement import agreement_of
from curate.run.labels.certify import after_questions, certify_run
from curate.run.labels.given_labels import labels_path, read_kept_labels
from curate.run.labels.populations import draw_folder, read_drawn, read_draws
from curate.run.labels.question import (
    QUESTIONS,
    asked_question,
    other_questions,
    question_of,
    read_questions,
)
from curate.run.labels.sample import draw_again
from curate.run.probe import outcomes_path, read_probe
from curate.run.trust_reports import is_current, read_trust_report, report_path
from curate.trust.probe_card import card_lines, card_sentence
from curate.trust.scales import parse_scales

_MODELS: Final[dict[TrustKind, type[TrustReport]]] = {
    TrustKind.AGREEMENT: Agreement,
    TrustKind.CERTIFICATE: Certificate,
    TrustKind.PAIR_CERTIFICATE: Certificate,
    TrustKind.PROBE: ProbeReport,
    TrustKind.AUDIT: AuditReport,
}

_OF_A_DRAW: Final = "differs from what its seed and members give"


@dataclass(slots=True)
class TrustCheck:
    """Makes the trust reports of a run again, and compares.

    Attributes:
        run: the run folder.
        remade: the folder in which the run was made again; it holds a copy of the run's `trust/`.
        manifest: of the run.
        checked: files that were made again, or that others were made again from; relative to the run folder.
        certificates: number of certificates that were made again from their labels.
        not_checked: what could not be made again, and why.
    """

    run: Path
    remade: Path
    manifest: Manifest
    checked: set[str] = field(default_factory=set)
    certificates: int = 0
    not_checked: list[str] = field(default_factory=list)

    def differences(self) -> Iterator[Difference]:
        """Yield what differs; afterwards the other attributes are complete."""
        for kind in TrustKind:
            if report_path(self.run, kind).is_file():
                yield from self._report_differences(kind)
        yield from self._question_differences()
        yield from self._draw_differences()
        for path in sorted((self.run / "trust").rglob("*")):
            place = self._place(path)
            if path.is_file() and place not in self.checked:
                self.not_checked.append(f"{place}: the run keeps nothing to make it from")

    def _place(self, path: Path) -> str:
        return path.relative_to(self.run).as_posix()

    def _report_differences(self, kind: TrustKind) -> Iterator[Difference]:
        place = self._place(report_path(self.run, kind))
        self.checked.add(place)
        report = read_trust_report(self.run, _MODELS[kind], kind)
        assert report is not None
        if not is_current(report.fingerprints, self.manifest.fingerprints):
            self.not_checked.append(f"{place}: it is of rows that the run no longer has")
            return
        try:
            remade = self._remade(report)
        except CurateError as error:
            yield Difference(place=place, problem=f"cannot be made again: {error.problem}")
            return
        if isinstance(remade, str):
            self.not_checked.append(f"{place}: {remade}")
            return
        if isinstance(remade, Certificate):
            self.certificates += 1
        remade = remade.model_copy(update={"made": report.made})
        if remade != report:
            then, now = report.model_dump(mode="json"), remade.model_dump(mode="json")
            yield value_difference(then, now, place)

    def _remade(self, report: TrustReport) -> TrustReport | str:
        """Return a report as it comes out now, or why it cannot be made again."""
        match report:
            case Agreement():
                return self._agreement(report)
            case Certificate():
                return self._certificate(report)
            case ProbeReport():
                return self._probe(report)
            case AuditReport():
                return self._audit(report)
        raise TypeError(f"no such report: {report.kind}")

    def _agreement(self, report: Agreement) -> TrustReport | str:
        labels = self._labels(report.kind)
        if labels is None:
            return "its labels are not kept with this run"
        if report.hold_out and any(draw.made > report.made for draw in read_draws(self.run)):
            return "draws made later hold out other labels"
        scales = [
            scale if name == "*" else f"{name}={scale}" for name, scale in report.scales.items()
        ]
        return agreement_of(
            self.remade,
            read_kept_labels(labels),
            scales=parse_scales(scales),
            raters=report.raters,
            hold_out=report.hold_out,
        ).report

    def _certificate(self, report: Certificate) -> TrustReport | str:
        # One that the recipe names is written by the run itself.
        settled = read_trust_report(self.remade, Certificate, report.kind)
        select, fork = self.manifest.recipe.get("select"), self.manifest.recipe.get("fork")
        section = fork if report.kind is TrustKind.PAIR_CERTIFICATE else select
        if settled == report and isinstance(section, dict) and section.get("certificate"):
            return settled
        labels = self._labels(report.kind)
        if labels is None:
            return "its labels are not kept with this run"
        draws = {draw.id: draw for draw in read_draws(self.run)}
        own = draws.get(report.labels.draw or "")
        if own is not None and len(own.sizes) > 1 and report.test != "anytime":
            return "its draw was enlarged after it"
        remade = certify_run(self.remade, read_kept_labels(labels), question_of(report))
        taken_for = draws.get(remade.labels.draw or "")
        if taken_for is not None and taken_for.made > report.made:
            return "a draw made later has all of its labels"
        return after_questions(remade, report.earlier_attempts)

    def _labels(self, kind: TrustKind) -> Path | None:
        path = labels_path(self.run, kind)
        self.checked.add(self._place(path))
        return path if path.is_file() else None

    def _probe(self, report: ProbeReport) -> TrustReport | str:
        """Make the card again from its outcomes."""
        probed = read_probe(self.run)
        path = outcomes_path(self.run)
        if probed is None:
            return f"{path.name} is not there"
        self.checked.add(self._place(path))
        self.not_checked.append(
            f"{self._place(path)}: the dialogues that flaws were planted in are not kept"
        )
        lines = card_lines(probed.outcomes)
        sentence = card_sentence(lines, report.cases)
        return report.model_copy(update={"lines": tuple(lines), "sentence": sentence})

    def _audit(self, report: AuditReport) -> TrustReport | str:
        if report.asked_again:
            return "it rests on a second judging, which is not made again"
        return audit_run(self.remade)

    def _question_differences(self) -> Iterator[Difference]:
        """Compare the questions with the certificates: each has its own, and counts the others of its kind."""
        certificates = [
            report
            for kind in (TrustKind.CERTIFICATE, TrustKind.PAIR_CERTIFICATE)
            if labels_path(self.run, kind).is_file()
            and (report := read_trust_report(self.run, Certificate, kind)) is not None
        ]
        questions = read_questions(self.run)
        self.checked.add(QUESTIONS)
        own = [asked_question(certificate) for certificate in certificates]
        for certificate, asked in zip(certificates, own, strict=True):
            others = other_questions(questions, certificate)
            if asked not in questions or others != certificate.earlier_attempts:
                problem = (
                    f"does not fit trust/{certificate.kind}.json, which is about another question or counts "
                    "another number of questions before it"
                )
                yield Difference(place=QUESTIONS, problem=problem)
        if replaced := sum(asked not in own for asked in questions):
            self.not_checked.append(
                f"{QUESTIONS}: certificates that answered other questions ({replaced}) are not kept"
            )

    def _draw_differences(self) -> Iterator[Difference]:
        folder = draw_folder(self.run)
        for record in read_draws(self.run):
            places = [self._place(folder / f"{record.id}.{kind}") for kind in ("json", "parquet")]
            self.checked.update(places)
            table = read_drawn(self.run, record)
            try:
                again, table_again = draw_again(record, table)
            except CurateError as error:
                yield Difference(place=places[1], problem=f"cannot be made again: {error.problem}")
                continue
            if record != again:
                then, now = record.model_dump(mode="json"), again.model_dump(mode="json")
                difference = value_difference(then, now, places[0])
                yield difference.model_copy(update={"problem": _OF_A_DRAW})
            rows = RowDifferences(places[1], _OF_A_DRAW)
            for old, new in zip(table.iter_rows(), table_again.iter_rows(), strict=True):
                if old != new:
                    rows.add(str(new[0]))
            yield from rows.differences()
