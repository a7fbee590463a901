"""A review made in the page by clicks and keys, exported, applied, and seen in what is exported to trainers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from curate.run.read_back import read_manifest
from tests.browser.conftest import check_accessible, open_at


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def begin(page: Page, file: Path, place: str = "dialogue/chat-0") -> None:
    open_at(page, file, place)
    page.get_by_role("button", name="Review", exact=True).click()
    page.get_by_label("Reviewer").fill("Ann")
    page.get_by_label("Reviewer").press("Escape")
    # A dialogue is read after the page is open, and no key decides before.
    if place.startswith("dialogue/"):
        expect(page.locator(".decision")).to_be_visible()


def export(page: Page, to: Path) -> list[dict[str, Any]]:
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Export").click()
    waiting.value.save_as(to)
    return rows(to)


def test_scores_are_hidden_until_it_is_decided(page: Page, file: Path) -> None:
    open_at(page, file, "dialogue/chat-2")
    expect(page.locator(".dialogue .level").first).to_be_visible()
    begin(page, file, "dialogue/chat-2")
    assert (
        page.locator(".dialogue .level, .dialogue .issue, .dialogue [class*=verdict-]").count() == 0
    )
    assert page.locator(".turn").count() == 3
    assert (
        page.locator(".list-row.current [class*=verdict-], .list-row.current .strip").count() == 0
    )
    page.keyboard.press("1")
    expect(page.locator(".dialogue .level").first).to_be_visible()
    page.get_by_role("button", name="Accept").click()
    assert page.locator(".dialogue .level").count() == 0


def test_answers_stay_in_the_browser_and_come_out_as_a_file(
    page: Page, file: Path, tmp_path: Path
) -> None:
    begin(page, file)
    page.keyboard.press("2")
    page.locator(".decision").get_by_label("coherence").select_option("3")
    page.locator(".decision").get_by_label("Note").fill('She says "no" </script>')
    page.locator("#turn-1").get_by_label("helpfulness").select_option("2")
    page.locator(".decision").get_by_label("Weakest turn").select_option("1")
    page.reload()
    page.wait_for_selector("html[data-open]")
    page.get_by_role("button", name="Review", exact=True).click()
    expect(page.get_by_label("Reviewer")).to_have_value("Ann")
    answers = export(page, tmp_path / "r.jsonl")
    assert {(row["dimension"], row["turn"], row["value"]) for row in answers} == {
        ("accept", None, "reject"),
        ("coherence", None, 3),
        ("note", None, 'She says "no" </script>'),
        ("helpfulness", 1, 2),
        ("weakest_turn", None, 1),
    }
    assert {(row["id"], row["rater"], row["blind"]) for row in answers} == {("chat-0", "Ann", True)}
    expect(page.locator(".review-bar")).to_contain_text("Everything is exported.")


def test_a_pair_is_compared_without_knowing_the_sides(
    page: Page, file: Path, run: Path, tmp_path: Path
) -> None:
    pair = rows(run / "pairs" / "natural_pairs.jsonl")[0]
    begin(page, file, "pairs")
    page.get_by_label("Show").select_option("passed")
    page.locator(".list-row").first.click()
    blind = page.locator("section[aria-label='pair, sides hidden']")
    expect(blind).to_have_count(1)
    # Nothing tells the sides: neither the dialogue's own reply nor what became of the pair.
    assert page.locator(".turn, .message.assistant").count() == 0
    assert page.locator(".list-row .badge").count() == 0
    shown = blind.locator("h5").all_inner_texts()
    assert shown == ["A", "B"]
    assert page.locator("del, ins").count() == 0
    texts = blind.locator(".side .text").all_inner_texts()
    blind.get_by_role("button", name="A is better").click()
    expect(page.locator(".side.chosen").first).to_be_visible()
    (answer,) = export(page, tmp_path / "r.jsonl")
    held = next(
        row
        for row in rows(run / "pairs" / "natural_pairs.jsonl") + rows(run / "pairs" / "pairs.jsonl")
        if row["pair_id"] == answer["pair_id"]
    )
    assert held[answer["better"]]["content"] == texts[0]
    assert pair["kind"] == "preference_pair"
    # Now that the sides are known the chosen one can be written anew.
    page.get_by_role("button", name="Edit the chosen text").first.click()
    page.get_by_label("Chosen text").fill("It comes on Friday.")
    edited = export(page, tmp_path / "edited.jsonl")[-1]
    assert (edited["dimension"], edited["value"]) == ("chosen_text", "It comes on Friday.")
    assert (edited["pair_id"], edited["old"]) == (answer["pair_id"], held["chosen"]["content"])


def test_ten_dialogues_are_reviewed_and_change_what_is_exported(
    page: Page, file: Path, run: Path, tmp_path: Path
) -> None:
    begin(page, file, "dialogues")
    for number in range(10):
        page.keyboard.press("Control+Enter")
        expect(page.locator(".dialogue h2")).to_have_text(f"chat-{number}")
        page.keyboard.press("2")
        expect(page.locator(".decision .on.bad")).to_be_visible()
    review = tmp_path / "review.jsonl"
    assert len(export(page, review)) == 10
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    before = read_manifest(copy)
    # In a process of its own: the browser's event loop runs in this one.
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from curate.cli import main; main()",
            "review",
            str(copy),
            str(review),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 person reviewed: 0 dialogues accepted, 10 rejected" in done.stdout
    after = read_manifest(copy)
    chosen = {row["dialogue"]["id"] for row in rows(run / "select" / "sft.jsonl")}
    turned = len(chosen & {f"chat-{number}" for number in range(10)})
    assert turned > 0
    assert after.selected == before.selected - turned
    assert after.exports["trl"]["sft"] == before.exports["trl"]["sft"] - turned


@pytest.mark.parametrize("text", ['{"id": "chat-1"', '{"id": "chat-1"}'])
def test_a_file_that_is_no_review_is_not_taken(
    page: Page, file: Path, tmp_path: Path, text: str
) -> None:
    begin(page, file)
    (tmp_path / "bad.jsonl").write_text(text)
    page.get_by_label("Import").set_input_files(tmp_path / "bad.jsonl")
    expect(page.locator(".review-bar")).to_contain_text("Nothing was taken: line 1")


def test_a_review_is_imported_by_another_browser(page: Page, file: Path, tmp_path: Path) -> None:
    begin(page, file)
    page.keyboard.press("1")
    expect(page.locator(".decision .on.good")).to_be_visible()
    export(page, tmp_path / "r.jsonl")
    page.evaluate("localStorage.clear()")
    page.reload()
    page.wait_for_selector("html[data-open]")
    page.get_by_role("button", name="Review", exact=True).click()
    page.get_by_label("Reviewer").fill("Ann")
    page.get_by_label("Import").set_input_files(tmp_path / "r.jsonl")
    expect(page.locator(".review-bar")).to_contain_text("1 of 1 answers taken")
    expect(page.locator(".decision .on.good")).to_be_visible()


def test_a_review_of_something_else_is_not_taken(page: Page, file: Path, tmp_path: Path) -> None:
    begin(page, file)
    page.keyboard.press("1")
    expect(page.locator(".decision .on.good")).to_be_visible()
    (answer,) = export(page, tmp_path / "r.jsonl")
    for other in ({"id": "elsewhere"}, {"content": "0" * 32}):
        (tmp_path / "other.jsonl").write_text(
            json.dumps(answer) + "\n" + json.dumps(answer | other)
        )
        page.get_by_label("Import").set_input_files(tmp_path / "other.jsonl")
        expect(page.locator(".review-bar")).to_contain_text("Nothing was taken: 1 of 2 answers")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("is_decided", [False, True])
def test_axe_finds_nothing_serious_in_a_review(
    page: Page, file: Path, width: int, is_decided: bool
) -> None:
    begin(page, file, "dialogue/chat-1")
    if is_decided:
        page.keyboard.press("2")
        expect(page.locator(".decision .on.bad")).to_be_visible()
    check_accessible(page, width)
