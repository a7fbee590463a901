"""Each report about trust that a test of a run writes is compared, whole, with a file in `tests/run/trust`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curate.run import trust_reports
from tests.stored_errors import AT_RANDOM
from tests.transcript import check, kept

FOLDER = Path(__file__).parent / "trust"


@pytest.fixture(autouse=True)
def reports_as_stored(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Compare what a test's reports say with its file; `CURATE_REWRITE=1 pytest TEST` writes it anew."""
    written: list[Any] = []
    folders: set[Path] = set()
    write = trust_reports.write_record

    def recording(path: Path, report: Any) -> None:
        folders.add(path.parents[2])
        written.append(report.model_dump(mode="json", exclude_defaults=True))
        write(path, report)

    monkeypatch.setattr(trust_reports, "write_record", recording)
    yield
    if written and request.node.path.stem not in AT_RANDOM:
        file = FOLDER / f"{request.node.path.stem}.{request.node.name}.json"
        check(kept(written, *folders), file)
