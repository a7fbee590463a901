"""Facts in a run: rows, columns, report, estimate, what resumes, and what is published."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from curate.cli.closing import show_run
from curate.cli.show_dialogue import show_judged
from curate.errors import UsageError
from curate.records.validation import validate_record
from curate.run.pipeline import RunResult, run_recipe
from curate.run.read_back import read_judged
from tests.live import live_server
from tests.run.test_pipeline import chat, lines, questions, recipe, write_rows
from tests.servers import Body, CountingServer, answer_by_hash


def claims_false_of_curtains(body: Body) -> Any:
    """One claim a turn, the answer's number; false where it is about curtains."""
    said = "\n".join(str(message.get("content")) for message in body["messages"])
    if "List the claims" not in said:
        return answer_by_hash(body)
    turn = re.findall(r"makes in turn (\d+)", said)[-1]
    words = re.findall(rf"Answer {turn} in chat \d+ about [a-z ]+", said)[-1]
    label = "false" if "curtains" in words else "true"
    claim = {"words": words, "label": label, "evidence": "earlier_turn"}
    return json.dumps({"claims": [claim]})


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with live_server(answer=claims_false_of_curtains) as running:
        yield running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [chat(n, turns=1 + n % 2) for n in range(3)] + [chat(7, turns=2, text="curtains")]
    return write_rows(tmp_path / "chats.jsonl", rows)


def run(server: CountingServer, data: Path, **sections: Any) -> RunResult:
    given = {"judge": False, "adherence": False, "factuality": {}} | sections
    return run_recipe(recipe(server, data, **given), out=data.parent / "run")


def test_claims_are_rows_columns_and_a_report_and_are_asked_once(
    server: CountingServer, data: Path
) -> None:
    where = {"where": {"facts": "factual_precision >= 0.9"}}
    result, asked = questions(server, lambda: run(server, data, select=where))
    turns = 1 + 2 + 1 + 2
    assert len(asked) == turns == result.manifest.stages["factuality"].requests
    report = result.manifest.factuality
    assert report is not None
    assert (report.dialogues, report.without_claims) == (4, 0)
    assert report.labels == {"true": 4, "false": 2}
    assert report.evidence == {"earlier_turn": 6}
    assert report.mean_precision == 0.75
    table = pl.read_parquet(result.folder / "scores.parquet")
    assert table["factual_precision"].to_list() == [1, 1, 1, 0]
    assert table["n_false_claims"].to_list() == [0, 0, 0, 2]
    decisions = lines(result.folder / "select/decisions.jsonl")
    assert [d["reasons"] for d in decisions] == [[], [], [], ["facts"]]
    [rows] = (result.folder / "factuality").glob("*/rows.parquet")
    for record in pl.read_parquet(rows)["record"]:
        validate_record("factuality", json.loads(record))
    assert result.manifest.estimate is not None
    assert result.manifest.estimate.stages["factuality"].requests == turns
    again, asked = questions(server, lambda: run(server, data, select=where))
    assert asked == []
    assert again.manifest.factuality == report
    _, asked = questions(server, lambda: run(server, data, factuality={"max_claims": 3}))
    assert len(asked) == turns


def test_no_conditions_take_what_claims_nothing_false(server: CountingServer, data: Path) -> None:
    result = run(server, data, select={})
    assert result.manifest.selected == 3
    assert result.manifest.rejections == {"no_false_claims": 1}


def test_summary_and_show_tell_the_claims(server: CountingServer, data: Path) -> None:
    result = run(server, data)
    shown = Console(file=io.StringIO(), width=200)
    show_run(shown, result, verbose=True)
    show_judged(shown, read_judged(result.folder, "chat-7"))
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "facts: precision 0.75 a dialogue on average; claims: false 2, true 4" in text
    assert "false (earlier_turn): Answer 2 in chat 7 about curtains" in text
    assert "facts: precision 0.00" in text


def test_a_claim_that_cannot_be_had_is_unscored_and_asked_again_when_told(data: Path) -> None:
    mended = False

    def answer(body: Body) -> Any:
        if "curtains" in json.dumps(body["messages"]) and not mended:
            return "I would rather not."
        return claims_false_of_curtains(body)

    with live_server(answer=answer) as server:
        first = run(server, data, select={"where": {"f": "n_false_claims = 0"}})
        assert first.manifest.stages["factuality"].reasons == {"bad_reply": 1}
        scores = pl.read_parquet(first.folder / "scores.parquet")
        assert scores["factuality_unscored"].to_list() == [None, None, None, "bad_reply"]
        assert first.manifest.selected == 3
        mended = True
        asked = recipe(server, data, judge=False, adherence=False, factuality={})
        retried = run_recipe(asked, out=first.folder, retry_unscored=True)
        assert retried.manifest.stages["factuality"].unscored == 0


def test_conditions_on_facts_need_the_section(server: CountingServer, data: Path) -> None:
    where = {"where": {"facts": "factual_precision >= 0.9"}}
    with pytest.raises(UsageError, match="factuality"):
        run(server, data, judge={}, factuality=False, select=where)
