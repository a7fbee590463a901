"""The slider over a score, with a certificate of thresholds on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest
from playwright.sync_api import Page, expect

from curate.api import certify
from curate.records import Certificate
from curate.records.judgment import Verdict
from curate.run.labels.populations import read_members
from curate.run.labels.sample import sample
from curate.run.report import write_report
from tests.browser.conftest import open_at
from tests.browser.test_review import rows

COLUMN = "characters"


@pytest.fixture(scope="module")
def certified(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Certificate]:
    """A run of which people find bad what is below the median: thresholds hold above it, not below."""
    copy = Path(shutil.copytree(run, tmp_path_factory.mktemp("certified") / "run"))
    blank, gold = copy.parent / "blank.jsonl", copy.parent / "gold.jsonl"
    sample(copy, 250, out=blank, of="scored")
    members = read_members(copy, "scored", COLUMN)
    middle = members["score"].quantile(0.5)
    scores = dict(zip(members["unit"], members["score"], strict=True))
    with gold.open("w") as out:
        for row in rows(blank):
            good = scores[row["content"]] >= middle
            out.write(json.dumps(row | {"value": "accept" if good else "reject"}) + "\n")
    return copy, certify(copy, gold, column=COLUMN)


def test_it_says_what_is_certified_inside_its_range_and_no_more(
    page: Page, certified: tuple[Path, Certificate]
) -> None:
    run, certificate = certified
    assert certificate.issued
    passed = [step for step in certificate.steps if step.passed]
    assert len(passed) > 2
    open_at(page, write_report(run).files[0], "threshold")
    # It opens at the loosest threshold that holds.
    said = page.locator(".certified")
    expect(said).to_contain_text(f"at most 10 % of the {passed[-1].kept} scored dialogues")
    expect(page.locator("pre")).to_contain_text(f"{COLUMN} >= {passed[-1].threshold:g}")
    said.get_by_role("button").first.click()
    expect(said).to_contain_text(f"at most 10 % of the {passed[0].kept} scored dialogues")
    page.locator("#bound").focus()
    page.keyboard.press("Home")
    expect(said).to_contain_text("Nothing is certified below")
    # Stricter than all that was asked: no more can be bad than at the strictest that holds.
    page.keyboard.press("End")
    expect(said).to_contain_text("between certified thresholds")
    side = page.locator("label", has_text="keep").locator("select")
    side.select_option("below")
    page.get_by_role("button", name="Show it").click()
    side.select_option("above")
    expect(said).to_contain_text("at most 10 % of the")


def test_shares_are_told_by_verdict_language_and_source(page: Page, file: Path) -> None:
    open_at(page, file, "threshold")
    page.locator("label", has_text="Score").locator("select").select_option("n_turns")
    page.locator("#bound").focus()
    page.keyboard.press("Home")
    tables = page.locator("figure table")
    heads = [tables.nth(at).locator("th").first.inner_text() for at in range(tables.count())]
    assert set(heads) <= {"verdict", "role", "language", "source"}
    assert {"verdict", "source"} <= set(heads)
    verdicts = tables.nth(heads.index("verdict")).locator("tbody th").all_inner_texts()
    assert len(verdicts) > 1
    assert verdicts == [name for name in (*get_args(Verdict), "none") if name in verdicts]
    sources = tables.nth(heads.index("source")).locator("tbody tr")
    cells = [row.locator("td").all_inner_texts() for row in sources.all()]
    assert {kept for _, kept, _ in cells} == {"100 %"}
    shares = [share for _, _, share in cells]
    assert sum(float(share.rstrip(" %")) for share in shares) == pytest.approx(100, abs=1)
