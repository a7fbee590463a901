"""A context that is stated, or told by the server, bounds the prompts of every stage of a run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.recipe import parse_recipe
from curate.run.pipeline import run_recipe
from tests.live import live_server
from tests.servers import Body, CountingServer

CONTEXT = 6000
LONG = "The parcel was sent to the old address and nobody could say where it went. "


def tokens(text: str) -> int:
    """A measure of our own: every sign is a token, and so are four letters of a word."""
    return sum(math.ceil(len(part) / 4) for part in re.findall(r"[A-Za-z]+|\S", text))


def chat(number: int, *, turns: int = 2, long_turn: int | None = None) -> dict[str, Any]:
    messages = []
    for turn in range(1, turns + 1):
        said = LONG * 420 if turn == long_turn else LONG * 10
        messages += [
            {"role": "user", "content": f"Question {turn} of chat {number}? {LONG * 10}"},
            {"role": "assistant", "content": f"Answer {turn} of chat {number}. {said}"},
        ]
    return {"id": f"chat-{number}", "messages": messages}


def pair(number: int, repeats: int) -> dict[str, Any]:
    asked = [{"role": "user", "content": f"Pair {number}: where is my parcel? {LONG * repeats}"}]
    return {
        "id": f"pair-{number}",
        "chosen": [*asked, {"role": "assistant", "content": "It is at 5 Elm Street since Monday."}],
        "rejected": [*asked, {"role": "assistant", "content": "No idea, ask someone in Leeds."}],
    }


@pytest.fixture(params=["recipe", "server", "/tokenize"])
def bounded(request: pytest.FixtureRequest) -> Iterator[tuple[CountingServer, dict[str, Any]]]:
    """A server that would take anything, and a model config; the bound comes from one of them."""
    told = {} if request.param == "recipe" else {"context": CONTEXT}
    if request.param == "/tokenize":
        told["tokenize"] = tokens
    with live_server(**told) as server:
        model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
        yield server, model | ({"context": CONTEXT} if request.param == "recipe" else {})


@pytest.mark.parametrize("mode", ["json", "tokens"])
def test_no_prompt_of_any_stage_exceeds_it(
    bounded: tuple[CountingServer, dict[str, Any]], mode: str, tmp_path: Path
) -> None:
    server, model = bounded
    rows = [chat(1), chat(2, turns=16), chat(3, long_turn=1), chat(4, long_turn=2)]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [pair(1, 2), pair(2, 420)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    recipe = {
        "name": "bounded",
        "source": [{"path": str(tmp_path / name)} for name in ("chats.jsonl", "pairs.jsonl")],
        "role": "A patient clerk of a parcel service.",
        "scenario": "A person asks where a parcel is.",
        "models": {"judge": model, "policy": model},
        "judge": {"mode": mode, "max_turns": 30},
        "adherence": {"output_mode": "continuous"},
        "fork": {"where": "n_turns >= 1", "resamples": 1, "max_tokens": 63},
        "natural": {"verify": True},
        "max_unscored": 1.0,
    }
    result = run_recipe(parse_recipe(recipe), out=tmp_path / "run")
    sent = [_size(body) for body in server.requests]
    assert max(sent) <= CONTEXT
    for stage in ("judge", "adherence"):
        rows = scored(tmp_path / "run", stage, result.manifest.fingerprints[stage])
        assert "reason" not in rows["chat-1"]
        for name in ("chat-3", "pair-2/chosen", "pair-2/rejected"):
            assert rows[name]["reason"] == "context_overflow"
        assert "exceed the context of 6000" in rows["chat-4"]["detail"]
        if stage == "judge":
            assert "split: context_overflow" in rows["chat-2"]["remarks"]
    assert any(body["max_tokens"] == 63 for body in server.requests), "the policy was asked"
    # A judge that compared one pair is not shown to agree with the data, which then keeps the other as well.
    pairs = [
        json.loads(line)
        for name in ("dropped_pairs", "natural_pairs")
        for line in (tmp_path / f"run/pairs/{name}.jsonl").open()
    ]
    [long] = [one for one in pairs if one["dialogue_id"].startswith("pair-2")]
    assert long["check"]["unscored"] == "context_overflow"


def scored(run: Path, stage: str, fingerprint: str) -> dict[str, dict[str, Any]]:
    table = pl.read_parquet(run / stage / fingerprint / "rows.parquet")
    return {row["dialogue_id"]: row for row in map(json.loads, table["record"])}


def _size(body: Body) -> int:
    texts = [str(message.get("content") or "") for message in body["messages"]]
    return tokens("\n".join(texts)) + int(body["max_tokens"])
