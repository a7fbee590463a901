"""Each certificate that a test of a run issues or refuses is compared, whole, with a file in `tests/run/certificates`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curate.records import Certificate
from curate.run.labels import certify
from tests.transcript import check, kept

FOLDER = Path(__file__).parent / "certificates"


@pytest.fixture(autouse=True)
def certificates_as_stored(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Compare what a test's certificates say with its file; `CURATE_REWRITE=1 pytest TEST` writes it anew."""
    written: list[Any] = []
    folders: set[Path] = set()
    write = certify.write_trust_report

    def recording(run: Path, report: Certificate) -> None:
        folders.add(run.parent)
        written.append(report.model_dump(mode="json", exclude_defaults=True))
        write(run, report)

    monkeypatch.setattr(certify, "write_trust_report", recording)
    yield
    if written:
        file = FOLDER / f"{request.node.path.stem}.{request.node.name}.json"
        check(kept(written, *folders), file)
