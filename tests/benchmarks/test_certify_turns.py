"""The agreement and the certificates on ConTurE that docs/trust.md shows, from the readings that are kept with the benchmarks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.test_certify import Done, call, held_certificate

ROOT = Path(__file__).parents[2]
READINGS = ROOT / "benchmarks" / "readings" / "conture-qwen2.5-coder-1.5b.jsonl"
DATA = ROOT.parent / "shared" / "data" / "conture" / "data.json"
pytestmark = pytest.mark.skipif(not DATA.is_file(), reason="ConTurE is not shipped")


def script(*arguments: object) -> None:
    command = [sys.executable, "certify_turns.py", *map(str, arguments), "--data", str(DATA)]
    subprocess.run(command, cwd=ROOT / "benchmarks", check=True)


@pytest.fixture(scope="module")
def conture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("conture") / "run"
    script("make", READINGS, "--out", run)
    return run


def shown(done: Done) -> str:
    return re.sub(r"\s+", " ", done.output)


def test_one_certificate_is_issued_and_one_refused(conture: Path) -> None:
    labels = conture.parent / "labels.csv"
    sampled = call(
        "sample", conture, "-n", 90, "--of", "scored", "--dimension", "helpfulness", "--out", labels
    )
    assert '--bad "helpfulness < 3"' in shown(sampled)
    script("fill", labels)
    out = ("--out", conture.parent / "certificate.json")
    issued = call(
        "certify", conture, labels, "--column", "mean_score", "--bad", "human < 0.75", *out
    )
    assert issued.exit_code == 0, issued.output
    certificate = held_certificate(conture)
    assert (certificate.certified.size, certificate.labels.drawn, certificate.labels.bad) == (
        66,
        53,
        3,
    )
    refused = call("certify", conture, labels, "--of", "scored", "--bad", "human < 0.75", *out)
    assert refused.exit_code == 1
    sentence = held_certificate(conture).sentence
    assert sentence in shown(refused)
    assert sentence in re.sub(r"\s+", " ", (ROOT / "docs" / "trust.md").read_text())


def test_the_agreement_is_what_the_docs_show(conture: Path) -> None:
    gold = conture.parent / "gold.csv"
    script("label", gold)
    scales = [
        f"--scale={scale}" for scale in ("context_use=0-2", "helpfulness=0-2", "coherence=1-3")
    ]
    done = call("agreement", conture, gold, *scales)
    assert done.exit_code == 0, done.output
    docs = (ROOT / "docs" / "trust.md").read_text().splitlines()
    rows = [line.rstrip() for line in done.output.splitlines()]
    named = ("context_use", "helpfulness", "coherence", "task_completion")
    for row in (row for row in rows if row.startswith(named) and ":" in row and ";" not in row):
        assert row in docs
    assert "assumed scales" not in done.output
    assert "coherence 1-5 for values from 1 to 3" in shown(call("agreement", conture, gold))
