"""A report of hostile and of ordinary dialogues, and a browser to open it in (make test-browser)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from curate.run.pipeline import run_recipe
from curate.run.report import write_report
from tests.live import live_server
from tests.run.test_pipeline import chat, recipe, write_rows

AXE = Path(__file__).parents[2] / "curate/report/page/node_modules/axe-core/axe.min.js"
SCRIPT = (
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script></script>"
)
TURNED = "pay \u202eEUR 100\u202c to \u2067Ann\u2069\x1b[31m"
LONG = "word " * 200_000
expect.set_options(timeout=60_000)  # milliseconds; a busy machine may take its time


def talk(name: str, *texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"id": name, "messages": messages}


def preference(number: int) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": f"Where is parcel {number} of the Tanaka family?"}],
        "chosen": [{"role": "assistant", "content": f"It arrives on day {number} at nine."}],
        "rejected": [{"role": "assistant", "content": f"No idea, ask somebody else, {number}."}],
    }


HOSTILE = [
    talk(f"a/b {SCRIPT}", f"Hello {SCRIPT}", f"I answer {SCRIPT}"),
    talk("turned", TURNED, f"Yes: {TURNED}"),
    talk("long", "Tell me all.", LONG),
    talk("many", *(f"text {n}" for n in range(1_000))),
]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    rows = [chat(n, turns=1 + n % 4) for n in range(300)]
    data = write_rows(folder / "chats.jsonl", [*rows, *HOSTILE])
    prefs = write_rows(folder / "prefs.jsonl", [preference(n) for n in range(6)])
    sections: dict[str, Any] = {
        "name": "hostile",
        "scenario": f"A person {SCRIPT} asks.",
        "source": [{"path": str(data)}, {"path": str(prefs)}],
        "select": {"where": {"not_worst": "mean_helpfulness > 2"}},
        "fork": {"resamples": 1, "where": "n_turns = 1"},
    }
    with live_server() as server:
        run_recipe(recipe(server, data, **sections), out=folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def file(run: Path) -> Path:
    return write_report(run).files[0]


@pytest.fixture(scope="session")
def browser(file: Path) -> Iterator[Browser]:
    """Opened after the run was made: the event loop of a run cannot begin inside that of the browser."""
    with sync_playwright() as playwright:
        chromium = os.environ.get("CURATE_CHROMIUM", "/usr/bin/chromium")
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A tab in which nothing may go wrong: an error or a request for anything but the file fails the test."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(("file:", "blob:")) else wrong.append(asked.url),
    )
    yield page
    assert wrong == []


def open_at(page: Page, file: Path, place: str = "overview") -> None:
    page.goto(f"{file.as_uri()}#/{place}")
    page.wait_for_selector("html[data-open]")


def serious(page: Page) -> list[tuple[str, str, str]]:
    """What axe finds to be serious or critical: rule, element, what to do."""
    # By the debugger, which the page's own policy does not bind.
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")
    return [
        (one["id"], node["html"][:200], node["failureSummary"])
        for one in found["violations"]
        for node in one["nodes"]
        if one["impact"] in ("serious", "critical")
    ]


def check_accessible(page: Page, width: int) -> None:
    """What is shown, at this width: axe finds nothing serious, and nothing reaches past the window."""
    page.set_viewport_size({"width": width, "height": 844})
    expect(page.get_by_text("Reading …", exact=True)).to_have_count(0)
    # Two frames: what follows from the new width is drawn, and what follows from that.
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def check_accessible_place(page: Page, file: Path, place: str, width: int, scheme: str) -> None:
    """`check_accessible` of a place of a page that is opened at this width, light or dark."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 844})
    open_at(page, file, place)
    check_accessible(page, width)
