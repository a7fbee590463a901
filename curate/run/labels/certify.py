"""`curate certify`: make a certificate about a set of a run from people's labels.

The tests are in `trust.guarantee`. This module joins labels with the members of a set (`populations`) and with the draw
that they are of (`sample`). A drawn member without a label counts as bad: why it was left out is not known. Members
whose labels fitted the judge's calibration are set apart, and nothing is promised of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson
import polars as pl

from curate.errors import UsageError
from curate.records import (
    Certificate,
    CertifiedSet,
    LabelCounts,
    Manifest,
    ThresholdStep,
    TrustKind,
)
from curate.run.labels.certificate_sentence import sentence_of
from curate.run.labels.certificates import write_certificate_marks
from curate.run.labels.drawn_labels import DrawnLabels, one_a_group, read_labels
from curate.run.labels.given_labels import given_labels, keep_labels, labels_as_kept
from curate.run.labels.hold_out import check_hold_out, is_held_out
from curate.run.labels.populations import (
    SCORED,
    SFT,
    UNIT,
    identities_of,
    is_condition,
    is_of_pairs,
    named_set,
    read_members,
    source_fingerprint,
    used_to_fit,
    without_units,
)
from curate.run.labels.question import (
    QUESTIONS,
    Question,
    asked_question,
    other_questions,
    read_questions,
)
from curate.run.outputs import set_fingerprint
from curate.run.read_back import read_manifest
from curate.run.trust_reports import write_trust_report
from curate.storage.line_files import LineFile
from curate.storage.stage_rows import fingerprint
from curate.trust.guarantee import (
    Stratum,
    Tally,
    anytime,
    anytime_bound,
    anytime_missing,
    certified_threshold,
    labels_missing,
    least_labels,
    p_value,
    simple,
    threshold_grid,
    upper_bound,
)
from curate.trust.label_rows import GivenLabels
from curate.wording import plural


def certify_run(run: str | Path, gold: str | Path | GivenLabels, question: Question) -> Certificate:
    """Return what labels prove about a set of a run.

    Args:
        run: run folder.
        gold: CSV, JSONL or Parquet of labels, as `curate sample` wrote it to be filled in or as
            `curate calibrate` takes it, of pairs with `pair_id` and `better`; or labels as `given_labels` reads them.
        question: what is to be certified.

    Returns:
        A certificate, or one that is not `issued` and says why.

    Raises:
        UsageError: a question that no labels answer, labels that do not fit the run, fewer than any guarantee needs.
    """
    run = Path(run)
    question.check()
    gold = gold if isinstance(gold, GivenLabels) else given_labels(run, Path(gold))
    manifest = read_manifest(run)
    labels = read_labels(run, gold, question.bad, question.of)
    draw = labels.draw
    if draw is not None and len(draw.sizes) > 1 and question.test != "anytime":
        raise UsageError(
            "the draw was enlarged after its first labels may have been seen",
            got=f"{' then '.join(map(str, draw.sizes))} labels",
            expected="a number of labels that was fixed in advance",
            fix="use --anytime, which is valid whenever you stop, or draw with another --seed",
        )
    of = question.of or _default_set(question, labels)
    if of == "natural_pairs" and question.column is not None:
        raise UsageError(
            "no recipe could apply a threshold on pairs of the data",
            got=f"--of natural_pairs --column {question.column}",
            expected="--of pairs, whose threshold `fork.certificate` applies",
            fix="certify the pairs of the data as they are: leave out --column",
        )
    members = read_members(run, of, question.column)
    apart = used_to_fit(manifest, labels.pairs) | _chosen_by(labels, question.hold_out)
    promised = without_units(members, apart)
    if not promised.height:
        raise UsageError(
            "all labels of that set were used to fit the judge's calibration or to choose its prompts, and cannot certify it",
            got=f"{members.height} {named_set(of)}, all of them used",
            fix="certify dialogues that the calibration has not seen, or calibrate again with --hold-out 0.5, run again, and "
            "certify with the labels it held out",
        )
    return _Certifying(run, manifest, question, of, members, promised, labels, gold).certificate()


def _chosen_by(labels: DrawnLabels, hold_out: float) -> frozenset[str]:
    """Return the labelled dialogues that prompts may have been chosen by: those neither held out nor drawn to certify."""
    check_hold_out(hold_out)
    if not hold_out or (labels.draw is not None and labels.draw.purpose == "certify"):
        return frozenset()
    if labels.pairs:
        raise UsageError("--hold-out is of dialogues", got="labels of pairs", fix="leave it out")
    return frozenset(unit for unit in labels.bad if not is_held_out(unit, hold_out))


def _default_set(question: Question, labels: DrawnLabels) -> str:
    draw = labels.draw
    if draw and (labels.pairs or question.column or draw.purpose == "certify"):
        return draw.of
    return "pairs" if labels.pairs else SCORED if question.column else SFT


def keep_certificate(run: Path, certificate: Certificate, labels: GivenLabels) -> Certificate:
    """Write a certificate and its labels into the run folder, its sentence into the manifest, and return it.

    Other questions about the same kind of bad ones, each with a chance of a wrong answer, lower its confidence.
    """
    question, earlier = asked_question(certificate), read_questions(run)
    certificate = after_questions(certificate, other_questions(earlier, certificate))
    keep_labels(run, certificate.kind, labels)
    write_trust_report(run, certificate)
    write_certificate_marks(run, read_manifest(run).fingerprints)
    if question not in earlier:
        with LineFile(run / QUESTIONS) as lines:
            lines.append(orjson.dumps(question))
    return certificate


def after_questions(certificate: Certificate, others: int) -> Certificate:
    """Return the certificate after so many other questions; it is not issued once its joint confidence is 0.5 or less."""
    lowered = certificate.model_copy(update={"earlier_attempts": others})
    issued = certificate.issued and not lowered.is_spent
    lowered = lowered.model_copy(update={"issued": issued})
    return lowered.model_copy(update={"sentence": sentence_of(lowered)})


# ---- what they prove


@dataclass(slots=True)
class _Certifying:
    """Answers one question about one set from its labels."""

    run: Path
    manifest: Manifest
    question: Question
    of: str
    members: pl.DataFrame
    promised: pl.DataFrame
    labels: DrawnLabels
    gold: GivenLabels

    def certificate(self) -> Certificate:
        """Return the answer."""
        question = self.question
        bad = self.labels.bad
        if self.labels.draw is None and not all(unit in bad for unit in self.promised[UNIT]):
            self.labels = one_a_group(self.labels, self.promised)
        if question.test == "threshold":
            return self._threshold()
        if question.test == "anytime":
            return self._anytime()
        tally, missing = self._tally(self.promised)
        self._refuse_few(tally)
        p = p_value(tally, question.risk)
        return self._build(self.members, tally, missing, p <= question.error, p_value=p)

    def _tally(self, members: pl.DataFrame) -> tuple[Tally, int]:
        """Return the labels of members, and the number of drawn members without a label."""
        bad = self.labels.bad
        if self.labels.drawn is None:
            labelled = [unit for unit in members[UNIT] if unit in bad]
            size = members.height if len(labelled) == members.height else None
            return simple(sum(bad[unit] for unit in labelled), len(labelled), size), 0
        joined = members.select(UNIT).join(self.labels.drawn, on=UNIT, how="left")
        strata, missing = [], 0
        for stratum, part in joined.group_by("stratum"):
            drawn = part.filter(pl.col("drawn").fill_null(False))[UNIT].to_list()
            unlabelled = sum(unit not in bad for unit in drawn)
            missing += unlabelled
            if stratum[0] is None and part.height:  # none of these could have been drawn
                strata.append(Stratum(part.height, 0, 0))
                continue
            are_bad = unlabelled + sum(bad.get(unit, False) for unit in drawn)
            strata.append(Stratum(part.height, len(drawn), are_bad))
        return Tally(tuple(strata)), missing

    def _refuse_few(self, tally: Tally) -> None:
        question = self.question
        least = least_labels(0, question.risk, question.error, tally.size)
        if tally.labelled < least:
            raise UsageError(
                "fewer labels than any guarantee needs",
                got=f"{plural(tally.labelled, 'label')} of the set",
                expected=f"{least}, if not one of them is bad, for a risk of {question.risk:g} with a confidence of "
                f"{question.confidence:g}",
                fix=f"label more (`curate sample {self.run} -n ...`; `curate certify --plan` says how many), or accept "
                "more risk",
            )

    def _anytime(self) -> Certificate:
        question, draw, drawn = self.question, self.labels.draw, self.labels.drawn
        if draw is None or drawn is None or len(draw.strata) > 1:
            raise UsageError(
                "an audit that may stop at any time needs labels in a random order that is recorded",
                got="labels of unknown origin"
                if draw is None
                else f"a draw stratified by {draw.by}",
                fix=f"curate sample {self.run} -n ...",
            )
        inside = self.promised.select(UNIT).join(drawn, on=UNIT, how="left")
        if outside := inside["stratum"].null_count():
            raise UsageError(
                "the set has members that were not drawn from",
                got=f"{outside} of {inside.height}",
                expected=f"members of what draw {draw.id} was drawn from: {draw.of}",
            )
        order = inside.filter("drawn").sort("order")[UNIT].to_list()
        last = max((at for at, unit in enumerate(order) if unit in self.labels.bad), default=-1)
        looked_at = order[: last + 1]
        bad = [self.labels.bad.get(unit, True) for unit in looked_at]
        missing = sum(unit not in self.labels.bad for unit in looked_at)
        size = self.promised.height
        result = anytime(bad, question.risk, question.error, size)
        return self._build(
            self.members,
            simple(sum(bad), len(bad), size),
            missing,
            result.evidence >= 1 / question.error,
            evidence=min(result.evidence, 1e12),
            bound=anytime_bound(bad, question.confidence, size),
        )

    def _threshold(self) -> Certificate:
        question = self.question
        whole, _ = self._tally(self.promised)
        self._refuse_few(whole)
        kept: dict[float, int] = {}
        tallies: dict[float, Tally] = {}
        missing: dict[float, int] = {}
        for threshold in threshold_grid(self.promised["score"].to_list()):
            members = self.promised.filter(pl.col("score") >= threshold)
            kept[threshold] = members.height
            tallies[threshold], missing[threshold] = self._tally(members)
        walked = certified_threshold(tallies.items(), question.risk, question.error)
        passed = [step for step in walked if step.passed]
        step = passed[-1] if passed else walked[0]
        steps = tuple(
            ThresholdStep(
                threshold=other.threshold,
                kept=kept[other.threshold],
                labelled=other.tally.labelled,
                bad=other.tally.bad,
                p_value=other.p_value,
                passed=other.passed,
            )
            for other in walked
        )
        return self._build(
            self.members.filter(pl.col("score") >= step.threshold),
            step.tally,
            missing[step.threshold],
            bool(passed),
            p_value=step.p_value,
            steps=steps,
            threshold=step.threshold,
        )

    def _build(
        self,
        members: pl.DataFrame,
        tally: Tally,
        missing: int,
        issued: bool,
        *,
        p_value: float | None = None,
        evidence: float | None = None,
        bound: float | None = None,
        steps: tuple[ThresholdStep, ...] = (),
        threshold: float | None = None,
    ) -> Certificate:
        question, manifest = self.question, self.manifest
        apart = members.height - members.join(self.promised, on=UNIT, how="semi").height
        certified = CertifiedSet(
            of=self.of,
            rule=_rule(self.of, question.column, threshold),
            column=question.column,
            threshold=threshold,
            size=members.height - apart,
            apart=apart,
            fingerprint=set_fingerprint(members[UNIT]),
        )
        identities = identities_of(manifest, question.column, self.of)
        pairs = is_of_pairs(self.of)
        certificate = Certificate(
            kind=TrustKind.PAIR_CERTIFICATE if pairs else TrustKind.CERTIFICATE,
            sentence="-",
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            fingerprints=self._fingerprints(identities),
            issued=issued,
            run=manifest.name,
            test=question.test,
            bad=self.labels.rule,
            risk=question.risk,
            confidence=question.confidence,
            certified=certified,
            labels=self._counts(tally, missing),
            p_value=p_value,
            evidence=evidence,
            bound=upper_bound(tally, question.confidence) if bound is None else bound,
            steps=steps,
            more_labels=None if issued else _more_labels(question, tally, certified.size),
            earlier_attempts=0,
            identities=identities,
            source=source_fingerprint(self.run),
        )
        return certificate.model_copy(update={"sentence": sentence_of(certificate)})

    def _counts(self, tally: Tally, missing: int) -> LabelCounts:
        question, labels = self.question, self.labels
        return LabelCounts(
            origin="draw" if labels.draw else "unknown" if tally.size is None else "all",
            draw=labels.draw.id if labels.draw else None,
            drawn=tally.labelled,
            labelled=tally.labelled - missing,
            missing=missing,
            bad=tally.bad,
            unused=labels.unused.counts,
            hold_out=question.hold_out,
            rule=question.bad,
            fingerprint=fingerprint(labels_as_kept(self.gold).decode()),
        )

    def _fingerprints(self, identities: Mapping[str, object]) -> dict[str, str]:
        """Return the fingerprints of the stages whose scores it uses, and of the set, if the run made it."""
        fingerprints = self.manifest.fingerprints
        names = [*identities, "select" if self.of == SFT else self.of]
        return {name: fingerprints[name] for name in names if name in fingerprints}


def _more_labels(question: Question, tally: Tally, size: int) -> int | None:
    if question.test == "anytime":
        more = anytime_missing(tally.bad, tally.labelled, question.risk, question.error)
        return None if more is None else min(more, size - tally.labelled)
    if tally.size is None:  # a draw that would be made is of this set
        tally = simple(tally.bad, tally.labelled, size)
    return labels_missing(tally, question.risk, question.error)


def _rule(of: str, column: str | None, threshold: float | None) -> str:
    """Return the SQL condition that selects a certified set from its run."""
    parts = [f"({of})"] if is_condition(of) else []
    if threshold is not None:
        parts.append(f"{column} >= {threshold!r}")
    return " AND ".join(parts)
