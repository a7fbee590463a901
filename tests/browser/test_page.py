"""The page in headless Chromium: driven by clicks and keys, with hostile dialogues in it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from curate.records.adherence import AdherenceReason
from curate.records.metrics import MetricScore
from curate.report.page import packed_chunks
from curate.report.page import page as page_of
from tests.browser.conftest import HOSTILE, check_accessible_place, open_at
from tests.report.reading import ReadPage

PLACES = ("overview", "dialogues", "dialogue/chat-3", "dialogue/chat-3/2", "pairs", "threshold")


def place_of(name: str) -> str:
    return f"dialogue/{quote(name, safe='')}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing_serious(
    context: BrowserContext, page: Page, file: Path, place: str, width: int, scheme: str
) -> None:
    check_accessible_place(page, file, place, width, scheme)


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


def test_the_map_of_turns_begins_with_the_first_turn_that_is_scored(page: Page, file: Path) -> None:
    open_at(page, file)
    canvas = page.locator(".turn-map canvas")
    # A column of pixels in the middle of the first cells; they are drawn after the page is open.
    filled = """(canvas) => {
        const column = canvas.getContext("2d").getImageData(3, 0, 1, canvas.height).data;
        return column.some((value, at) => at % 4 === 3 && value);
    }"""
    page.wait_for_function(filled, arg=canvas.element_handle())
    expect(page.locator(".turn-map")).to_contain_text("one column for each turn, from turn 1.")
    canvas.hover(position={"x": 3, "y": 3})
    expect(page.locator(".turn-map .under")).to_contain_text(", turn 1")


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
    key = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'n', bubbles: true}))"
    page.evaluate(f"{key}, {key}")  # faster than the browser tells of a new address
    expect(page).to_have_url(re.compile("/chat-2/2$"))
    page.keyboard.press("p")
    expect(page).to_have_url(re.compile("/chat-2/1$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    focused = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true})), document.activeElement.id"
    assert (
        page.evaluate(focused) == "search"
    )  # at once: the next key may follow before anything is drawn
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    closed = "document.querySelector('dialog').close()"
    assert (
        page.evaluate(f"{closed}, {focused}") == "search"
    )  # before the browser tells that the dialog is closed
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


def found_wrong(file: Path, out: Path) -> Path:
    """The page of a report whose dialogue chat-3 has a finding of every kind in its second turn."""
    read = ReadPage.of(file)
    body = next(body for body in read.dialogues if body["id"] == "chat-3")
    body["messages"][3]["tool_calls"] = [{"name": "track", "arguments": {"parcel": "BP-7"}}]
    body["judge"]["weakest_turn"] = 2
    reason = AdherenceReason(text="It is curt.", violation="tone", role_words="patient shop")
    body["adherence"]["per_turn"][1]["reason"] = reason.model_dump(mode="json")
    metric = MetricScore(
        name="tool_routing", tier="execution", scale="scored", weight=1, share=1, score=1,
        failure_code="wrong_tool", turns=(2,),
    )  # fmt: skip
    body["metrics"] = {
        "overall_score": 20, "overall_range": [20, 20], "pass_threshold": 75, "passed": False,
        "metrics": [metric.model_dump(mode="json")],
    }  # fmt: skip
    packed = list(packed_chunks(orjson.dumps(body) for body in read.dialogues))
    figures = read.figures | {"chunks": [count for count, _ in packed]}
    out.write_bytes(b"".join(page_of("found", figures, read.columns, (held for _, held in packed))))
    return out


def test_what_was_found_wrong_stands_beside_its_turn(
    page: Page, file: Path, tmp_path: Path
) -> None:
    open_at(page, found_wrong(file, tmp_path / "found.html"), "dialogue/chat-3")
    turn = page.locator("#turn-2")
    expect(turn.locator(".found")).to_contain_text("refund ticket garden")  # the judge's issue
    expect(turn.locator(".found")).to_contain_text("role, tone: It is curt.")
    expect(turn.locator(".found")).to_contain_text("tool routing: wrong tool")
    expect(page.get_by_text("weakest turn", exact=True)).to_have_count(1)
    expect(turn.get_by_text("weakest turn", exact=True)).to_be_visible()
    assert re.search(r"\bedge-1\b", turn.get_attribute("class") or "")  # its lowest score
    expect(page.locator("mark.violated")).to_have_text("patient shop")
    metric = page.locator(".metrics tbody tr")
    expect(metric).to_contain_text("wrong tool")
    expect(metric.get_by_role("link", name="2")).to_have_attribute("href", re.compile("/chat-3/2$"))
    expect(turn.get_by_text("BP-7")).to_be_hidden()
    turn.locator("summary", has_text="track").click()
    expect(turn.get_by_text("BP-7")).to_be_visible()


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


def test_on_a_phone_no_field_sticks_out_and_no_figure_is_broken(page: Page, file: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_at(page, file)
    right = "fields => fields.map(field => field.getBoundingClientRect().right)"
    fields = page.locator("select").evaluate_all(right)
    assert fields
    assert max(fields) <= 390 - 10
    rows = page.locator(".counts tr")
    heights = rows.evaluate_all("rows => rows.map(row => row.getBoundingClientRect().height)")
    assert max(heights) < 40  # one line each
    assert any(
        rows.last.locator("td").all_inner_texts()
    )  # no class that is longer than all replies


def test_a_click_in_a_distribution_shows_its_dialogues(page: Page, file: Path) -> None:
    open_at(page, file)
    bar = page.locator(".histogram .column[aria-label^='coherence 5: ']")
    count = (bar.get_attribute("aria-label") or "").split(": ")[1]
    bar.click()
    expect(page.locator(".status")).to_have_text(f"{count} of 316")
