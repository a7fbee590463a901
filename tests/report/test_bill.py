"""The bill of materials that the wheel carries names what the page is bundled of, as its notice does."""

from __future__ import annotations

import json
import re
from importlib.resources import files


def test_the_bill_of_materials_names_what_the_notice_does() -> None:
    built = files("curate.report") / "built"
    notice = (built / "NOTICE.txt").read_text()
    bundled = dict(re.findall(r"^={70,}\n(\S+) (\S+) \(", notice, re.MULTILINE))
    bill = json.loads((built / "report.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bundled
    assert {one["name"]: one["version"] for one in bill["components"]} == bundled
    assert all(
        re.fullmatch("[0-9a-f]{128}", one["hashes"][0]["content"]) for one in bill["components"]
    )
