"""The Python API against a real server, and the README's example as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import curate
from curate import api
from curate.adherence.config import AdherenceConfig
from curate.engines.scripted import ScriptedEngine
from curate.errors import UsageError
from curate.pairs.config import ForkConfig
from curate.records import AdherenceScore, Judgment
from curate.selection.config import SelectConfig
from tests.live import live_server
from tests.servers import CountingServer

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "recipes/sample/support.jsonl"


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with live_server() as running:
        yield running


def model(server: CountingServer) -> dict[str, Any]:
    return {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}


def test_a_config_given_to_the_api_says_how_often_a_call_is_repeated(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience: list[tuple[int | None, float | None]] = []

    class Noted(api.Asker):
        def __init__(self, *args: Any, **options: Any) -> None:
            patience.append((options.get("retries"), options.get("deadline")))
            super().__init__(*args, **options)

    monkeypatch.setattr(api, "Asker", Noted)
    judge = model(server) | {"retries": 1, "deadline": 7.0}
    dialogues = curate.load_dialogues(SAMPLE).dialogues[:1]
    judgments = curate.judge_dialogues(dialogues, judge)
    policy = ScriptedEngine(lambda request: "Yes.", capabilities=frozenset())
    curate.fork_pairs(dialogues, judgments, judge=judge, policy=policy, reviser=model(server))
    assert patience == [(1, 7.0), (1, 7.0), (None, None), (4, 900.0)]


def test_every_name_of_the_package_is_there() -> None:
    for name in curate.__all__:
        assert getattr(curate, name) is not None
    with pytest.raises(AttributeError):
        _ = curate.no_such_name


def test_rows_in_memory_are_read_like_a_file() -> None:
    rows = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    expected = [d.content_hash for d in curate.load_dialogues(SAMPLE).dialogues]
    assert [d.content_hash for d in curate.load_dialogues(rows).dialogues] == expected
    plain = [row["messages"] for row in rows if "tools" not in row]
    loaded = curate.load_dialogues(pl.DataFrame({"messages": plain}))
    assert loaded.tally.rows_used == len(plain) == 7


def test_from_file_to_pairs(server: CountingServer) -> None:
    loaded = curate.load_dialogues(SAMPLE)
    assert loaded.tally.rows_in == len(loaded.dialogues) == 8
    assert loaded.detection.shape == "messages"
    judgments = curate.judge_dialogues(loaded.dialogues, model(server))
    assert [record.dialogue_id for record in judgments] == [d.id for d in loaded.dialogues]
    adherence = curate.score_adherence(
        loaded.dialogues, model(server), AdherenceConfig(output_mode="continuous")
    )
    assert all(isinstance(record, AdherenceScore) for record in adherence)
    decisions = curate.select(
        loaded.dialogues,
        judgments,
        adherence,
        SelectConfig(where={"helpful": "mean_helpfulness >= 3"}),
    )
    assert len(decisions) == 8
    pairs = curate.fork_pairs(
        loaded.dialogues,
        judgments,
        judge=model(server),
        policy=model(server),
        config=ForkConfig(resamples=1),
    )
    assert {pair.dialogue_id for pair in pairs} == {
        record.dialogue_id for record in judgments if isinstance(record, Judgment)
    }


def test_kept_replies_are_not_asked_for_again(server: CountingServer, tmp_path: Path) -> None:
    dialogues = curate.load_dialogues(SAMPLE).dialogues
    first = curate.judge_dialogues(dialogues, model(server), replies=tmp_path / "replies")
    asked = len(server.requests)
    again = curate.judge_dialogues(dialogues, model(server), replies=tmp_path / "replies")
    probes = server.requests[asked:]
    assert not any("<dialogue>" in str(body["messages"]) for body in probes)
    assert first == again


def test_an_open_engine_is_asked_and_stays_open() -> None:
    engine = ScriptedEngine(lambda request: "yes", capabilities=frozenset())
    dialogues = curate.load_dialogues(SAMPLE).dialogues[:1]
    [score] = curate.score_adherence(dialogues, engine)
    assert isinstance(score, AdherenceScore)
    assert score.session_score == 1.0
    assert len(engine.requests) == len(score.per_turn)


def test_a_wrong_engine_config_is_named() -> None:
    with pytest.raises(UsageError, match="not an engine config"):
        curate.judge_dialogues([], {"engine": "nosuch"})


@pytest.mark.model
def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code = code.replace("dialogues[:2]", "dialogues[:1]")  # half the small model's time
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
