"""The bill of materials of the Python dependencies says what `pyproject.toml` asks for and what the tests run with."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / ".ci/constraints"


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    value: dict[str, Any] = json.loads((CONSTRAINTS / "dependencies.cdx.json").read_text("utf-8"))
    return value


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_bill_has_every_requirement_with_its_range(bill: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = {
        (f"curate:requires[{extra}]" if extra else "curate:requires", re.sub(r"\s|'|\"", "", line))
        for extra, lines in {
            "": project["dependencies"],
            **project["optional-dependencies"],
        }.items()
        for line in lines
    }
    listed = {
        (entry["name"], re.sub(r"\s|'|\"", "", entry["value"]))
        for component in bill["components"]
        for entry in component["properties"]
    }
    assert listed == asked, "run scripts/make_sbom.py"
    described = bill["metadata"]["component"]
    assert (described["name"], described["version"]) == (project["name"], project["version"])


def test_the_bill_has_the_releases_that_the_tests_run_with(bill: dict[str, Any]) -> None:
    pins = {}
    for file in ("vllm", "test"):
        lines = (CONSTRAINTS / f"{file}.txt").read_text("utf-8").splitlines()
        pins |= {plain(name): release for name, _, release in (x.partition("==") for x in lines)}
    listed = {entry["name"]: entry.get("version") for entry in bill["components"]}
    assert {name: pins.get(name) for name in listed} == listed, "run scripts/make_sbom.py"
    assert (
        sum(release is None for release in listed.values()) <= 2
    )  # setuptools, and vLLM's own build


def test_every_component_is_needed_by_another(bill: dict[str, Any]) -> None:
    references = {entry["bom-ref"] for entry in bill["components"]}
    needed = {ref for entry in bill["dependencies"] for ref in entry["dependsOn"]}
    assert needed == references
