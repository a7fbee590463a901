"""The trust reports in a run folder: written by the commands that measure, read by all that describe a run.

A report is about the rows that it was measured on. Once the run has other rows of a stage (another judge, other
prompts), its sentence is replaced by one that says so; the file stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from curate.records import NOT_TAKEN, Certificate, TrustKind, TrustReport
from curate.run.read_back import read_manifest
from curate.storage.run_folder import RunFolder
from curate.storage.whole_files import damaged, write_atomically, write_record

R = TypeVar("R", bound=TrustReport)


def report_path(run: Path, kind: TrustKind) -> Path:
    """Return the path of a run's report of the kind."""
    return run / "trust" / f"{kind}.json"


def write_trust_report(run: Path, report: TrustReport) -> Path:
    """Write a report to the run folder, and its sentence to the manifest.

    Raises:
        RunLockedError: another process is writing the folder.
    """
    with RunFolder(run) as folder:
        path = keep_trust_report(run, report)
        if folder.manifest_path.is_file():
            manifest = read_manifest(run)
            trust = trust_sentences(run, manifest.fingerprints)
            manifest = manifest.model_copy(update={"trust": trust})
            folder.write_manifest(manifest.model_dump(mode="json"))
    return path


def keep_trust_report(run: Path, report: TrustReport) -> Path:
    """Write a report to a run folder that this process has locked; return its path."""
    path = report_path(run, report.kind)
    write_record(path, report)
    return path


def read_trust_report(run: Path, model: type[R], kind: TrustKind) -> R | None:
    """Return the run's report of the kind; None where there is none.

    Raises:
        CurateError: it is damaged.
    """
    path = report_path(run, kind)
    value = _read(path)
    if value is None:
        return None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise damaged(path, error) from error


def current_report(
    run: Path, model: type[R], kind: TrustKind, fingerprints: Mapping[str, str]
) -> R | None:
    """Return the run's report of the kind where it is of rows and sets with these fingerprints; else None.

    Raises:
        CurateError: it is damaged.
    """
    report = read_trust_report(run, model, kind)
    return report if report is not None and is_current(report.fingerprints, fingerprints) else None


def current_certificates(
    run: Path, fingerprints: Mapping[str, str]
) -> dict[TrustKind, Certificate]:
    """Return the run's certificates that are of rows and sets with these fingerprints.

    Raises:
        CurateError: one is damaged.
    """
    kinds = (TrustKind.CERTIFICATE, TrustKind.PAIR_CERTIFICATE)
    reports = {kind: current_report(run, Certificate, kind, fingerprints) for kind in kinds}
    return {kind: report for kind, report in reports.items() if report is not None}


def write_mark(run: Path, name: str, content: object) -> None:
    """Write JSON beside a run's exports, where there are some; remove the file where the content is empty."""
    path = run / "export" / name
    if not content:
        path.unlink(missing_ok=True)
    elif path.parent.is_dir():
        write_atomically(path, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")


def trust_sentences(run: Path, fingerprints: Mapping[str, str]) -> dict[TrustKind, str]:
    """Return a sentence for each kind of report: what was measured on rows of these fingerprints, or that nothing was."""
    return {
        kind: _sentence(_read(report_path(run, kind)), kind, fingerprints) for kind in TrustKind
    }


def _sentence(value: Any, kind: TrustKind, fingerprints: Mapping[str, str]) -> str:
    if value is None:
        return NOT_TAKEN[kind]
    if is_current(value["fingerprints"], fingerprints):
        return str(value["sentence"])
    return f"{NOT_TAKEN[kind]} There is one of {value['made'][:10]}, of an earlier judge or other prompts."


def is_current(measured: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether rows of these fingerprints, by stage, are among those that the run has now."""
    return all(now.get(stage) == fingerprint for stage, fingerprint in measured.items())


def _read(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise damaged(path, error) from error
    if not isinstance(value, dict) or not TrustReport.model_fields.keys() <= value.keys():
        raise damaged(path, "not a report: kind, sentence, made and fingerprints are expected")
    return value
