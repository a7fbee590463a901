"""The certificates that a recipe names: compared with the run's source, its judges and the sets it makes.

A certificate is about one set. If source, judge or prompts differ, the run is refused before any model call; if the
recipe's other conditions leave other members in the set, the run says that nothing is promised of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.records import Certificate, JudgeIdentity, StageName, TrustKind
from curate.records.calibration_file import check_same_judge, identity_fields
from curate.run.labels.populations import named_set, source_fingerprint
from curate.run.outputs import PAIRS
from curate.run.staging import Job
from curate.run.trust_reports import current_certificates, keep_trust_report, write_mark
from curate.stages import Stage

MARKS = "certificates.json"
"""File beside the trainers' folders."""
_AGAIN = "certify a run of this recipe: curate sample RUN, then curate certify RUN GOLD"


def certificates(job: Job) -> Iterator[tuple[str, Certificate]]:
    """Yield the certificates of the recipe, each with the key that names it."""
    recipe = job.recipe
    if recipe.select and recipe.select.certificate is not None:
        yield "select.certificate", recipe.select.certificate
    if recipe.fork and recipe.fork.certificate is not None:
        yield "fork.certificate", recipe.fork.certificate


def check_source(job: Job) -> None:
    """Raise a UsageError if a certificate is about other dialogues than the run has read."""
    for key, certificate in certificates(job):
        if (here := source_fingerprint(job.path)) != certificate.source:
            raise UsageError(
                f"{key} was issued for another source",
                got=f"the dialogues of {job.recipe.name} (hash {here})",
                expected=f"those of the run {certificate.run} (hash {certificate.source})",
                fix=_AGAIN,
            )


def check_stages(job: Job, stages: Iterable[Stage[Any]]) -> None:
    """Raise a UsageError if a certificate is about scores of another judge, or of other prompts, than these."""
    bound = {
        stage.name: stage.calibrated.identity if stage.calibrated else stage.identity
        for stage in stages
    }
    _check(job, {name: identity for name, identity in bound.items() if identity is not None})


def check_scores(job: Job) -> None:
    """Raise a UsageError if the run's scores are not those of a certificate, or are missing; wherever they came from."""
    identities = {
        name: report.identity
        for name, report in job.log.stages.items()
        if report.identity is not None
    }
    _check(job, identities)
    for key, certificate in certificates(job):
        if missing := sorted(certificate.identities.keys() - {str(name) for name in identities}):
            raise UsageError(
                f"{key} uses scores that this run does not have",
                got=f"no {', '.join(missing)}",
                expected=f"the stages of the run {certificate.run}",
                fix=_AGAIN,
            )


def _check(job: Job, identities: Mapping[StageName, JudgeIdentity]) -> None:
    for key, certificate in certificates(job):
        for stage, certified in certificate.identities.items():
            here = identities.get(StageName(stage))
            if here is None:
                continue
            check_same_judge(
                identity_fields(certified),
                identity_fields(here),
                key,
                _AGAIN,
                made="issued for",
                scores=stage,
            )


def settle_certificates(job: Job) -> None:
    """Write each certificate to the run folder; say in it if the set is not the one that it was issued for."""
    for key, certificate in certificates(job):
        name = PAIRS if certificate.kind is TrustKind.PAIR_CERTIFICATE else "select"
        here = job.log.sets.get(name)
        fingerprints = {
            str(stage): report.fingerprint
            for stage, report in job.log.stages.items()
            if stage in certificate.identities
        }
        update: dict[str, object] = {"fingerprints": fingerprints | {name: here or ""}}
        certified = certificate.certified
        if here != certified.fingerprint:
            is_pairs = name == PAIRS
            members = "pairs" if is_pairs else "dialogues of the SFT set"
            at = f" by {certified.rule}" if certified.rule else ""
            sentence = (
                f"The {members} are not the {certified.size + certified.apart:,} {named_set(certified.of)}{at} that {key} was issued for: "
                "other conditions, removals or scores make them another set, and nothing is promised of it."
            )
            job.log.warn(sentence)
            update |= {"issued": False, "sentence": sentence}
        keep_trust_report(job.path, certificate.model_copy(update=update))


def write_certificate_marks(run: Path, fingerprints: Mapping[str, str]) -> None:
    """Write `certificates.json` beside the exports, if there are any: the certificates of these rows and sets.

    Args:
        run: run folder.
        fingerprints: of its stages and sets, as the manifest has them.
    """
    mark = {
        str(kind): {
            "sentence": report.sentence,
            "issued": report.issued,
            "made": report.made,
            "certified": report.certified.model_dump(mode="json"),
        }
        for kind, report in current_certificates(run, fingerprints).items()
    }
    write_mark(run, MARKS, mark)
