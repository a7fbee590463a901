"""Trust reports in a run folder, and their sentences in the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from curate.errors import CurateError
from curate.records import NOT_TAKEN, TrustKind, TrustReport
from curate.run.read_back import read_manifest
from curate.run.trust_reports import (
    is_current,
    read_trust_report,
    report_path,
    trust_sentences,
    write_trust_report,
)
from curate.storage.run_folder import RunFolder


class _Audit(TrustReport):
    kind: Literal[TrustKind.AUDIT] = TrustKind.AUDIT
    figure: float


def _audit(fingerprint: str = "f1") -> _Audit:
    return _Audit(
        sentence="Two of nine checks warn.",
        made="2026-11-20T10:00:00+00:00",
        fingerprints={"judge": fingerprint},
        figure=0.25,
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunFolder(tmp_path / "run") as folder:
        folder.write_manifest(
            {
                "format": 3,
                "name": "r",
                "status": "done",
                "started": "",
                "fingerprints": {"judge": "f1"},
            }
        )
    return tmp_path / "run"


def test_what_was_not_measured_is_said(run: Path) -> None:
    assert trust_sentences(run, {}) == NOT_TAKEN


def test_a_report_is_kept_and_its_sentence_stands_in_the_manifest(run: Path) -> None:
    write_trust_report(run, _audit())
    assert read_trust_report(run, _Audit, TrustKind.AUDIT) == _audit()
    sentences = read_manifest(run).trust
    assert sentences[TrustKind.AUDIT] == "Two of nine checks warn."
    assert sentences[TrustKind.PROBE] == NOT_TAKEN[TrustKind.PROBE]


def test_a_report_of_other_rows_is_not_taken_for_the_runs(run: Path) -> None:
    write_trust_report(run, _audit("f0"))
    sentence = read_manifest(run).trust[TrustKind.AUDIT]
    assert "Two of nine" not in sentence
    assert "2026-11-20, of an earlier judge" in sentence
    assert not is_current(_audit("f0").fingerprints, read_manifest(run).fingerprints)
    assert is_current(_audit("f1").fingerprints, read_manifest(run).fingerprints)


@pytest.mark.parametrize("text", ['{"kind": "audit"', "[]", '{"kind": "audit"}'])
def test_a_damaged_report_is_named(run: Path, text: str) -> None:
    path = report_path(run, TrustKind.AUDIT)
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(CurateError, match=r"audit\.json is damaged"):
        trust_sentences(run, {})
