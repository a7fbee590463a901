"""Search by coverage for inputs that break a reader, and keep those that reach new code: `python scripts/fuzz.py KIND SECONDS`.

Needs atheris (`pip install atheris`), which is no dependency. KIND is one of `tests/inputs.py`. What is found stands in
`fuzz/KIND/`; an input that is worth a test goes, made small, to `tests/corpus/KIND/`.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found, unused-ignore]

READERS = (
    *("curate.sources", "curate.judging", "curate.trust.gold", "curate.trust.scales", "curate.trust.label_rows", "curate.trust.labelling_tools", "curate.recipe"),
    *("curate.records.calibration_file", "curate.engines.structured", "curate.engines.chat_completions"),
    *("curate.pairs.candidates", "curate.storage.csv_text", "curate.storage.yaml_text"),
)  # fmt: skip

with atheris.instrument_imports(include=list(READERS), enable_loader_override=False):
    from tests.inputs import kinds

from curate.errors import CurateError  # noqa: E402 (instrumented first)


def main() -> None:
    """Search until the time is up, or until an input breaks the reader."""
    name, seconds = sys.argv[1:3]
    kind = kinds()[name]
    found = Path("fuzz") / name
    seeds = Path(tempfile.mkdtemp()) / "seeds"
    for folder in (found, seeds):
        folder.mkdir(parents=True, exist_ok=True)
    for number, example in enumerate(kind.examples):
        seeds.joinpath(str(number)).write_bytes(example)
    path = seeds.parent / kind.name

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(CurateError):
            kind.read(path)

    options = [f"-max_total_time={seconds}", "-timeout=5", "-rss_limit_mb=2000", "-max_len=4096"]
    options += [f"-artifact_prefix={found}-", str(found), str(seeds)]
    atheris.Setup([sys.argv[0], *options], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
