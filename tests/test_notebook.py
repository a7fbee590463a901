"""What dialogues, judgments and runs show of themselves, in a real kernel and as HTML that is read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from curate.dialogue import Dialogue, Message
from curate.errors import UsageError
from curate.notebook import MAX_CHARACTERS, MAX_TURNS
from curate.run.result import RunResult
from tests.live import live_server
from tests.publishing.conftest import make_run
from tests.run.test_pipeline import chat, recipe, write_rows

SCRIPT = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """Tags that stand in a text, and what is between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def dialogue(*texts: str, **fields: Any) -> Dialogue:
    messages = (
        Message(role="assistant" if at % 2 else "user", content=text)
        for at, text in enumerate(texts)
    )
    return Dialogue(id="one", messages=tuple(messages), **fields)


def test_text_of_a_dialogue_is_no_markup() -> None:
    shown = Tags(dialogue(SCRIPT, f"yes \u202e{SCRIPT}", role_definition=SCRIPT)._repr_html_())
    assert not {"script", "img"} & shown.tags
    assert shown.text.count(SCRIPT) == 3
    assert "<U+202E>" in shown.text
    assert not shown.open


def test_what_is_too_long_is_cut_and_said() -> None:
    shown = Tags(dialogue(*["word " * 100_000] * 1_000)._repr_html_())
    assert f"and {500 - MAX_TURNS} more turns" in shown.text
    assert "and 497,000 more characters" in shown.text
    assert len(shown.text) < 500_000
    shown = Tags(dialogue("w" * (MAX_CHARACTERS + 1), "w" * MAX_CHARACTERS)._repr_html_())
    assert shown.text.count("and 1 more character") == 1
    assert "and 1 more characters" not in shown.text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("finished"), metrics={})


def test_a_run_shows_its_funnel_and_that_nothing_was_measured(run: Path) -> None:
    shown = Tags(RunResult.of(run)._repr_html_())
    manifest = RunResult.of(run).manifest
    assert f"{manifest.selected:,} of {manifest.dialogues:,}" in shown.text
    assert "Agreement of the judge with people was not measured" in shown.text
    assert "mean helpfulness" in shown.text
    assert not shown.open


def test_a_dialogue_of_a_run_is_shown_with_its_scores(run: Path) -> None:
    held = RunResult.of(run).dialogue("chat-1")
    assert held.judgment is not None
    shown = Tags(held._repr_html_())
    assert held.judgment["verdict"] in shown.text
    assert all(
        issue in shown.text for turn in held.judgment["per_turn"] for issue in turn["issues"]
    )


def test_rows_come_out_as_they_were_exported(run: Path) -> None:
    result = RunResult.of(run)
    exported = [json.loads(line) for line in (run / "export/trl/sft.jsonl").open()]
    assert result.sft.num_rows == len(exported) == result.manifest.exports["trl"]["sft"]
    assert result.pairs.column_names[:3] == ["prompt", "chosen", "rejected"]
    assert result.rows("sft", "validation").num_rows > 0
    assert result.scores.height == result.manifest.dialogues
    with pytest.raises(UsageError, match="no such export"):
        result.rows("sft", "test")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel()
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run_cell(kernel: BlockingKernelClient, code: str) -> tuple[dict[str, str], str]:
    """What a cell shows at its end, by MIME type, and what it prints meanwhile."""
    shown: dict[str, str] = {}
    printed: list[str] = []

    def take(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] in ("display_data", "execute_result"):
            shown.update(content["data"])
        elif message["msg_type"] == "stream":
            printed.append(content["text"])
        elif message["msg_type"] == "error":
            raise AssertionError("\n".join(content["traceback"]))

    kernel.execute_interactive(code, timeout=120, output_hook=take)
    return shown, "".join(printed)


def test_a_run_in_a_real_kernel_shows_progress_and_results(
    kernel: BlockingKernelClient, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "chats.jsonl", [chat(n) for n in range(4)])
    with live_server() as server:
        asked = recipe(server, data).model_dump(mode="json", exclude_unset=True)
        run_cell(kernel, f"import curate\nrecipe = {asked!r}")
        _, printed = run_cell(
            kernel, f"result = curate.run_recipe(recipe, out={str(tmp_path / 'run')!r})"
        )
        assert "judge: 100%" in printed
        assert "4/4" in printed
        shown, _ = run_cell(kernel, "result")
        assert "4 dialogues in" in Tags(shown["text/html"]).text
        code = (
            f"loaded = curate.load_dialogues({str(data)!r}, scenario='Help.')\nloaded.dialogues[0]"
        )
        shown, _ = run_cell(kernel, code)
        assert "chat 0" in Tags(shown["text/html"]).text
        code = "judgments = curate.judge_dialogues(loaded.dialogues, recipe['models']['judge'])\njudgments[0]"
        shown, printed = run_cell(kernel, code)
        assert "Judgment of chat-0" in Tags(shown["text/html"]).text
        assert "judge: 100%" in printed
    code = "[type(held).__module__ for held in (result.sft, result.pairs, result.scores)]"
    shown, _ = run_cell(kernel, code.replace("result.pairs, ", ""))
    assert shown["text/plain"] == "['datasets.arrow_dataset', 'polars.dataframe.frame']"
    shown, _ = run_cell(
        kernel, "len(curate.load_dialogues(result.sft).dialogues) == len(result.sft)"
    )
    assert shown["text/plain"] == "True"
