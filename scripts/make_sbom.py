"""Write the bill of materials of the Python dependencies (CycloneDX), which the wheel carries beside the page's.

    python scripts/make_sbom.py            # .ci/pin runs it, with the Python of the test environment

It lists what `pyproject.toml` asks for, with its ranges, and all that comes with it, in the releases of `.ci/constraints`
that the tests run with. What comes with a package is read from the environment that this runs in; a package that
is not in it is listed without.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / ".ci/constraints"
BILL = CONSTRAINTS / "dependencies.cdx.json"


def pinned() -> dict[str, str]:
    """Return release by canonical name; the test environment's where two files have one."""
    releases: dict[str, str] = {}
    for name in ("vllm", "test"):
        lines = (CONSTRAINTS / f"{name}.txt").read_text("utf-8").splitlines()
        pairs = (re.fullmatch(r"([\w.-]+)==(\S+)", line) for line in lines)
        releases |= {canonicalize_name(pair[1]): pair[2] for pair in pairs if pair}
    return releases


def needed(name: str, extras: set[str]) -> set[str]:
    """Return the canonical names that an installed package asks for here; none of one that is not installed."""
    try:
        lines = requires(name) or ()
    except PackageNotFoundError:
        return set()
    found = set()
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            found.add(canonicalize_name(requirement.name))
    return found


def bill() -> dict[str, Any]:
    """Return the bill as CycloneDX 1.6 has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked: dict[str, list[tuple[str, Requirement]]] = defaultdict(list)
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra, lines in groups.items():
        for requirement in map(Requirement, lines):
            asked[canonicalize_name(requirement.name)].append((extra, requirement))
    releases, edges, queue = pinned(), {}, list(asked)
    while queue:
        name = queue.pop()
        if name not in edges:
            extras = {extra for _, one in asked.get(name, ()) for extra in one.extras}
            edges[name] = needed(name, extras)
            queue += edges[name]
    always = {name for name, ways in asked.items() if any(extra == "" for extra, _ in ways)}
    queue = list(always)
    while queue:
        new = edges[queue.pop()] - always
        always |= new
        queue += new

    def reference(name: str) -> str:
        return f"pkg:pypi/{name}@{releases[name]}" if name in releases else f"pkg:pypi/{name}"

    components = []
    for name in sorted(edges):
        component: dict[str, Any] = {"type": "library", "bom-ref": reference(name), "name": name}
        if name in releases:
            component["version"] = releases[name]
        component |= {
            "scope": "required" if name in always else "optional",
            "purl": reference(name),
            "properties": [
                {
                    "name": f"curate:requires[{extra}]" if extra else "curate:requires",
                    "value": str(requirement),
                }
                for extra, requirement in asked.get(name, ())
            ],
        }
        components.append(component)
    root = f"pkg:pypi/{project['name']}@{project['version']}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "purl": root,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": root, "dependsOn": sorted(map(reference, asked))},
            *(
                {"ref": reference(name), "dependsOn": sorted(map(reference, edges[name]))}
                for name in sorted(edges)
            ),
        ],
    }


if __name__ == "__main__":
    BILL.write_text(json.dumps(bill(), indent=2) + "\n", "utf-8")
    print(f"{len(bill()['components'])} packages in {BILL.relative_to(ROOT)}")
