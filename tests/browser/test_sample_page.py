"""The page of a draw: answered blind in its order, what the answers prove counted as `curate certify` counts it."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from curate.publishing.push import PushOptions, prepare_push
from curate.run.labels.populations import read_drawn, read_draws
from curate.run.labels.sample import sample
from curate.run.read_back import read_manifest
from curate.trust.guarantee import anytime, anytime_bound
from curate.trust.label_rows import read_label_rows
from tests.browser.conftest import check_accessible, open_at
from tests.browser.test_review import export, rows
from tests.report.reading import ReadPage

SOURCE = Path(__file__).parents[2] / "curate/report/page/src/audit.js"


def curate(*arguments: object) -> str:
    """Run the command in a process of its own: the browser's event loop runs in this one."""
    said = subprocess.run(
        [sys.executable, "-c", "from curate.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.fixture(scope="module")
def sampled(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(run, tmp_path_factory.mktemp("sampled") / "run"))


def drawn(run: Path, out: Path, labels: int = 60, **options: Any) -> Path:
    sample(run, labels, out=out, **options)
    return out


def begin(page: Page, file: Path) -> None:
    open_at(page, file, "dialogues")
    page.get_by_label("Reviewer").fill("Ann")
    page.get_by_label("Reviewer").press("Escape")


def test_the_page_computes_what_python_computes() -> None:
    """On random labels, risks and sizes, those at the edge among them."""
    draw = random.Random(5)
    cases = []
    for _ in range(300):
        size = draw.choice([1, 7, 40, 400, 100_000])
        rate = draw.choice([0, 0.02, 0.1, 0.5, 1])
        bad = [draw.random() < rate for _ in range(draw.randrange(min(size, 150) + 1))]
        cases.append((bad, draw.choice([0.01, 0.1, 0.3]), draw.choice([0.05, 0.1]), size))
    program = f"""
        import {{ anytime, anytimeBound, goodToCome }} from {json.dumps(SOURCE.as_uri())};
        const cases = {json.dumps(cases)};
        const of = ([bad, risk, error, size]) => [String(anytime(bad, risk, error, size).evidence), anytimeBound(bad, error, size), goodToCome(bad, risk, error, size)];
        console.log(JSON.stringify(cases.map(of)));
    """
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program], capture_output=True, text=True, check=True
    )
    for (bad, risk, error, size), (evidence, bound, more) in zip(
        cases, json.loads(done.stdout), strict=True
    ):
        held = anytime(bad, risk, error, size)
        assert float(evidence.replace("Infinity", "inf")) == pytest.approx(held.evidence)
        assert bound == pytest.approx(anytime_bound(bad, 1 - error, size))
        to_come = range(size - len(bad) + 1)
        enough = (
            n
            for n in to_come
            if anytime([*bad, *[False] * n], risk, error, size).evidence >= 1 / error
        )
        if size <= 400:
            assert more == next(enough, None)


def test_a_draw_is_answered_in_order_until_it_certifies(
    page: Page, sampled: Path, tmp_path: Path
) -> None:
    file = drawn(sampled, tmp_path / "labels.html")
    ids = [dialogue["id"] for dialogue in ReadPage.of(file).dialogues]
    (draw,) = (one for one in read_draws(sampled) if one.of == "sft")
    (size,) = (stratum.size for stratum in draw.strata)
    begin(page, file)
    expect(page.locator(".status")).to_have_text("60 dialogues of 60")
    bad: list[bool] = []
    for number in range(60):
        page.keyboard.press("Control+Enter")
        expect(page.locator(".dialogue h2")).to_have_text(f"{number + 1} of 60")
        page.keyboard.press("2" if number == 3 else "1")
        bad.append(number == 3)
        held = anytime(bad, 0.1, 0.1, size)
        expect(page.locator(".progress")).to_contain_text(f"{number + 1} of 60 answered.")
        shown = f"{held.evidence:.2f}".rstrip("0").rstrip(".")
        expect(page.locator(".progress")).to_contain_text(
            f"evidence {shown} of 10 that at most 10 % of the {size}"
        )
        bound = f"{100 * anytime_bound(bad, 0.9, size):.1f}".removesuffix(".0")
        expect(page.locator(".progress")).to_contain_text(f"at most {bound} % are bad")
        if held.evidence >= 10:
            break
    expect(page.locator(".progress")).to_contain_text("Reached, with 90 % confidence")
    labels = tmp_path / "labels.jsonl"
    answers = export(page, labels)
    assert {row["draw"] for row in answers} == {draw.id}
    assert [row["id"] for row in answers] == ids[: len(bad)]
    # Applied: the one that was rejected is exported no more; what is certified is the set as the rules made it.
    before = read_manifest(sampled)
    curate("review", sampled, labels)
    said = curate("certify", sampled, labels, "--anytime", "--out", tmp_path / "c.json")
    assert f"1 bad of {len(bad)} (0 of them without a label)" in " ".join(said.split())
    assert f"e-value {held.evidence:.3g}" in said
    after = read_manifest(sampled)
    assert after.exports["trl"]["sft"] == before.exports["trl"]["sft"] - 1
    decisions = {row["dialogue_id"]: row for row in rows(sampled / "select" / "decisions.jsonl")}
    assert decisions[ids[3]]["reasons"] == ["reviewed"]
    prepare_push(sampled, "me/chats", PushOptions(licences=("cc0-1.0",)))
    card = " ".join((sampled / "push" / "files" / "README.md").read_text().split())
    accepted = len(bad) - 1
    assert (
        f"1 person reviewed: {accepted} dialogues accepted, 1 rejected, 1 of these against the rules"
        in card
    )
    assert (
        f"at most 10 % of the {size} dialogues of the SFT set are bad (reviewers reject it): 1 of {len(bad)} drawn"
        in card
    )


def test_it_counts_towards_the_risk_and_confidence_that_the_draw_names(
    page: Page, sampled: Path, tmp_path: Path
) -> None:
    begin(page, drawn(sampled, tmp_path / "labels.html", 9, seed=6, risk=0.4, confidence=0.6))
    said = page.locator(".progress")
    for answers in range(1, 4):
        page.keyboard.press("j")
        expect(page.locator(".dialogue h2")).to_have_text(f"{answers} of 9")
        expect(page.locator(".decision")).to_be_visible()
        page.keyboard.press("1")
        expect(said).to_contain_text(f"{answers} of 9 answered")
    expect(said).to_contain_text("of 2.5 that at most 40 % of the")
    expect(said).to_contain_text("Reached, with 60 % confidence")


def test_one_that_is_passed_over_counts_as_bad(page: Page, sampled: Path, tmp_path: Path) -> None:
    begin(page, drawn(sampled, tmp_path / "labels.html", 9, seed=3))
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".dialogue h2")).to_have_text("2 of 9")
    expect(page.locator(".decision")).to_be_visible()
    page.keyboard.press("1")
    expect(page.locator(".progress")).to_contain_text(
        "1 good, 0 bad, 1 passed over, which count as bad: evidence 1 of 10"
    )


def test_the_file_holds_no_score_and_only_what_was_drawn(sampled: Path, tmp_path: Path) -> None:
    read = ReadPage.of(drawn(sampled, tmp_path / "labels.html", 12, seed=4))
    assert len(read.dialogues) == 12
    keys = {key for dialogue in read.dialogues for key in dialogue}
    assert keys <= {
        *("id", "hash", "messages", "turns"),
        *("role_definition", "scenario", "tools", "evidence", "expected_outcomes"),
    }
    assert set(read.columns["dialogues"]) == {"id", "asked", "content", "first_words"}


def test_every_question_of_an_agreement_is_asked_and_read(
    page: Page, sampled: Path, tmp_path: Path
) -> None:
    begin(page, drawn(sampled, tmp_path / "gold.html", 10, purpose="agreement"))
    page.keyboard.press("j")
    page.wait_for_selector(".turn")
    fields = page.locator(".dialogue .score-field select")
    assert fields.count() == 3 + 3 * page.locator(".turn-review").count()
    assert page.get_by_role("button", name="Accept").count() == 0
    for at in range(fields.count()):
        expect(page.locator(".progress")).to_contain_text("0 of 10 answered")
        fields.nth(at).select_option("4")
    expect(page.locator(".progress")).to_contain_text("1 of 10 answered")
    answers = export(page, tmp_path / "gold.jsonl")
    assert len(answers) == fields.count()
    assert {row["value"] for row in read_label_rows(tmp_path / "gold.jsonl")} == {4}


def test_pairs_are_answered_without_knowing_the_sides(
    page: Page, sampled: Path, tmp_path: Path
) -> None:
    file = drawn(sampled, tmp_path / "pairs.html", 6, of="natural_pairs")
    pairs = {row["pair_id"]: row for row in rows(sampled / "pairs" / "natural_pairs.jsonl")}
    begin(page, file)
    better = {}
    for name in ReadPage.of(file).column("id"):
        page.keyboard.press("Control+Enter")
        expect(page.locator(".dialogue h2")).to_have_text(f"{len(better) + 1} of 6")
        assert page.locator(".side.chosen, .side.rejected, del, ins").count() == 0
        better[name] = page.locator(".side .text").nth(1).inner_text()
        page.keyboard.press("2")
        expect(page.get_by_role("button", name="B is better")).to_have_attribute(
            "aria-pressed", "true"
        )
    expect(page.locator(".progress")).to_contain_text("6 of 6 answered")
    answers = export(page, tmp_path / "pairs.jsonl")
    assert len(answers) == 6
    (draw,) = (one for one in read_draws(sampled) if one.of == "natural_pairs")
    swapped = dict(read_drawn(sampled, draw).select("unit", "swapped").iter_rows())
    for row in answers:
        assert pairs[row["pair_id"]][row["better"]]["content"] == better[row["pair_id"]]
        assert row["better"] == ("chosen" if swapped[row["pair_id"]] else "rejected")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("of", ["sft", "natural_pairs"])
def test_axe_finds_nothing_serious_in_a_draw(
    page: Page, sampled: Path, tmp_path: Path, width: int, of: str
) -> None:
    begin(page, drawn(sampled, tmp_path / "labels.html", 5, of=of, seed=9))
    page.keyboard.press("j")
    shown = page.get_by_role("button", name="A is better" if of == "natural_pairs" else "Accept")
    expect(shown).to_be_visible()
    page.keyboard.press("1")
    expect(shown).to_have_attribute("aria-pressed", "true")
    check_accessible(page, width)
