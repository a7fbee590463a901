"""The page of `curate diff --html` in a browser: from what changed as a whole to a dialogue with both scorings."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from curate.run.diff import diff_runs
from curate.run.diff_page import write_diff_page
from curate.run.pipeline import run_recipe
from tests.browser.conftest import HOSTILE, SCRIPT, check_accessible_place, open_at
from tests.live import live_server
from tests.run.test_pipeline import chat, recipe, write_rows


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two runs over the same dialogues, hostile ones among them, judged in other words."""
    folder = tmp_path_factory.mktemp("diff")
    data = write_rows(
        folder / "chats.jsonl", [*(chat(n, turns=3) for n in range(20)), *HOSTILE[:2]]
    )
    with live_server() as server:
        shared = recipe(server, data, name="one", scenario=f"{SCRIPT} asks.", fork={"resamples": 1})
        run_recipe(shared, out=folder / "first")
        where = {"where": {"helpful": "mean_helpfulness > 3"}}
        other = recipe(server, data, name="other", judge={"paraphrases": 2}, select=where)
        run_recipe(other, out=folder / "second")
    out = folder / "diff.html"
    write_diff_page(diff_runs(folder / "first", folder / "second"), out)
    return out


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("place", ["overview", "dialogues", "dialogue/chat-3"])
def test_axe_finds_nothing_serious(
    page: Page, file: Path, place: str, width: int, scheme: str
) -> None:
    check_accessible_place(page, file, place, width, scheme)


def test_a_count_leads_to_its_dialogues_and_each_shows_both_scorings(
    page: Page, file: Path
) -> None:
    open_at(page, file)
    lost = page.get_by_role("button", name="sft lost")
    count = lost.inner_text()
    lost.click()
    expect(page.locator(".status")).to_contain_text(f"{count} dialogue")
    page.locator(".list-row").first.click()
    table = page.get_by_role("region", name="what both runs say")
    expect(table.locator("thead")).to_have_text("firstsecond")
    turn = page.locator(".turn").first
    expect(turn.locator(".side-scores")).to_have_count(2)
    expect(turn.locator(".side-scores").first).to_contain_text("helpfulness")
    assert page.locator("img").count() == 0
