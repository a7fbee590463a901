"""The page in headless Chromium: driven by clicks and keys, with hostile dialogues in it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import HOSTILE, open_at, serious

PLACES = ("overview", "dialogues", "dialogue/chat-3", "dialogue/chat-3/2", "pairs", "threshold")


def place_of(name: str) -> str:
    return f"dialogue/{quote(name, safe='')}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing_serious(
    context: BrowserContext, page: Page, file: Path, place: str, width: int, scheme: str
) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 844})
    open_at(page, file, place)
    page.wait_for_timeout(200)
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("place", [place_of(row["id"]) for row in HOSTILE])
def test_hostile_text_is_shown_and_does_nothing(page: Page, file: Path, place: str) -> None:
    open_at(page, file, place)
    page.wait_for_selector(".turn")
    assert page.title() == "hostile: report"
    assert page.locator("img").count() == 0
    assert page.locator("main script").count() == 0


def test_signs_that_turn_text_are_seen(page: Page, file: Path) -> None:
    open_at(page, file, "dialogue/turned")
    said = page.locator(".message.user .text").first
    expect(said).to_have_text("pay U+202EEUR 100U+202C to U+2067AnnU+2069U+001B[31m")


def test_a_long_turn_is_cut_and_can_be_had_whole(page: Page, file: Path) -> None:
    open_at(page, file, "dialogue/long")
    page.get_by_role("button", name="Show all").click()
    text = page.locator(".message.assistant .text").first
    assert len(text.inner_text()) > 900_000


def test_five_hundred_turns_are_all_there(page: Page, file: Path) -> None:
    open_at(page, file, "dialogue/many/499")
    page.wait_for_selector("#turn-500")
    assert page.locator(".turn").count() == 500
    expect(page.locator("#turn-499")).to_be_in_viewport()


def test_a_link_opens_a_turn(page: Page, file: Path) -> None:
    open_at(page, file, "dialogue/chat-3/4")
    expect(page.locator("#turn-4")).to_be_in_viewport()
    expect(page.locator("#turn-4")).to_contain_text("Answer 4 in chat 3")


def test_keys_go_through_dialogues_and_turns(page: Page, file: Path) -> None:
    open_at(page, file, "dialogues")
    page.keyboard.press("j")
    expect(page.locator(".dialogue h2")).to_have_text("chat-0")
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    expect(page.locator(".dialogue h2")).to_have_text("chat-3")
    page.keyboard.press("k")
    expect(page.locator(".dialogue h2")).to_have_text("chat-2")
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile("/chat-2/2$"))
    page.keyboard.press("p")
    expect(page).to_have_url(re.compile("/chat-2/1$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("jk?")
    expect(page.locator("#search")).to_have_value("jk?")
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    expect(page.locator("h1")).to_have_text("hostile")


def test_search_finds_words_deep_in_a_turn(page: Page, file: Path) -> None:
    open_at(page, file, "dialogues")
    page.fill("#search", "ANSWER 4 in chat 11 about")
    expect(page.locator(".status")).to_have_text("1 dialogue of 316")
    page.locator(".list-row").first.click()
    expect(page.locator(".dialogue h2")).to_have_text("chat-11")
    page.fill("#search", "no such words")
    expect(page.locator(".status")).to_have_text("0 dialogues of 316")


def test_filters_hold_together_and_sorting_puts_what_has_no_value_last(
    page: Page, file: Path
) -> None:
    open_at(page, file, "dialogues")
    page.get_by_label("Filter by").select_option("n_turns")
    page.get_by_label("from").fill("2")
    page.get_by_label("to", exact=True).fill("3")
    expect(page.locator(".status")).to_have_text("150 dialogues of 316")
    page.get_by_label("Sort by").select_option("n_turns")
    page.get_by_label("highest first").check()
    page.locator(".list-row").first.click()
    expect(page.locator(".dialogue h2")).to_have_text("chat-2")
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".status")).to_have_text("316 dialogues of 316")


def test_a_reason_leads_to_its_dialogues(page: Page, file: Path) -> None:
    open_at(page, file)
    step = page.locator(".step", has_text="selected").locator(".bar-row").first
    count = step.locator(".bar-count").inner_text().split()[0]
    step.click()
    expect(page.locator(".status")).to_have_text(f"{count} dialogues of 316")


def test_a_pair_shows_both_sides_and_where_they_differ(page: Page, file: Path) -> None:
    open_at(page, file, "pairs")
    page.locator(".list-row").first.click()
    pair = page.locator(".pair").first
    expect(pair.locator(".side.rejected")).to_be_visible()
    expect(pair.locator(".side.chosen")).to_be_visible()
    assert pair.locator("del, ins").count() > 0


def test_the_threshold_prints_the_line_of_the_recipe(page: Page, file: Path) -> None:
    open_at(page, file, "threshold")
    page.locator("label", has_text="Score").locator("select").select_option("n_turns")
    slider = page.locator("#bound")
    slider.focus()
    page.keyboard.press("Home")
    expect(page.locator("main")).to_contain_text("316 dialogues of 316 (100 %)")
    expect(page.locator("pre")).to_have_text("select:\n  where:\n    n_turns: n_turns >= 1")


def test_a_click_in_a_distribution_shows_its_dialogues(page: Page, file: Path) -> None:
    open_at(page, file)
    bar = page.locator(".histogram .column[aria-label^='coherence 5: ']")
    count = (bar.get_attribute("aria-label") or "").split(": ")[1]
    bar.click()
    expect(page.locator(".status")).to_have_text(f"{count} of 316")
