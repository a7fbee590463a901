"""Fits to labels, compared whole with a file in `tests/run/fits`; `CURATE_REWRITE=1 pytest TEST` writes it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from curate.run.labels.calibrate import Fitted
from curate.trust.label_rows import Unused
from tests.transcript import check, kept

FOLDER = Path(__file__).parent / "fits"


def check_fit(
    name: str, fitted: BaseModel | Fitted, *folders: Path, unused: Unused | None = None
) -> None:
    """Compare a curve, a calibration or a cascade's fit, and the labels that were not used."""
    found: dict[str, Any] = {}
    record = fitted
    if isinstance(fitted, Fitted):
        record, unused = fitted.calibration, fitted.unused
        found = {
            "rows": fitted.rows,
            "not_fitted": fitted.not_fitted,
            "assumed_scales": fitted.assumed_scales,
        }
    assert isinstance(record, BaseModel)
    content = record.model_dump(mode="json")
    labelled = content.get("labelled") or []
    content["labelled"] = [len(labelled), *labelled[:1], *labelled[-1:]]
    found["unused"] = [] if unused is None else [unused.counts, unused.first]
    check(kept(found | content, *folders), FOLDER / f"{name}.json")
