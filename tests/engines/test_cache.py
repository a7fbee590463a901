"""Kept replies: as they were received, or asked for again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import Completion, Fault, Usage
from curate.engines.cache import ReplyCache
from curate.engines.replies import completion_from_json, completion_to_json

COMPLETIONS = st.builds(
    Completion,
    text=st.text(st.characters(exclude_categories=["Cs"])),
    finish=st.sampled_from(["stop", "length"]),
    first_token=st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.floats(-100, 0, width=64))
    ).map(tuple),
    exact_labels=st.booleans(),
    tool_calls=st.just(({"id": "a", "function": {"name": "f", "arguments": "{}"}},)),
    usage=st.builds(Usage, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    fault=st.none() | st.just(Fault("refused", "no")),
)


def make_key(number: int) -> str:
    return f"{number:032x}"


@given(COMPLETIONS)
def test_a_reply_comes_back_as_it_was_received(completion: Completion) -> None:
    assert completion_from_json(orjson.loads(orjson.dumps(completion_to_json(completion)))) == (
        completion
    )


async def test_replies_are_found_at_once_and_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    with ReplyCache(path) as cache:
        for number in range(20):
            await cache.put({make_key(number): Completion(text=str(number))})
        assert cache.get_many([make_key(7), make_key(99)]) == {make_key(7): Completion(text="7")}
        await cache.put({make_key(1): Completion(text="new")})
    with ReplyCache(path) as cache:
        found = cache.get_many([make_key(number) for number in range(30)])
        expected = {make_key(number): str(number) for number in range(20)} | {make_key(1): "new"}
        assert {key: reply.text for key, reply in found.items()} == expected


@pytest.mark.parametrize(
    "reply",
    [
        {"text": None},
        {"text": "x", "first_token": [["4", None]]},
        {"text": "x", "first_token": [["4", "nan"]]},
        {"text": "x", "first_token": [["4", 710.0]]},
        {"text": "x", "usage": [1e20, 0, 0]},
        {"text": "x", "usage": [1, 2]},
        {"text": "x", "tool_calls": [None]},
        {"text": "x", "fault": ["no such kind", ""]},
        {"text": "x", "score": 4},
        [],
    ],
)
async def test_a_kept_reply_that_is_none_costs_only_itself(tmp_path: Path, reply: Any) -> None:
    with ReplyCache(tmp_path / "r.sqlite") as cache:
        await cache.put({make_key(1): Completion(text="good")})
        cache.store.put([(make_key(2), orjson.dumps(reply))])
        for _ in range(2):
            found = cache.get_many([make_key(1), make_key(2)])
            assert found == {make_key(1): Completion(text="good")}
        assert cache.damaged == 1


def test_the_name_that_a_model_first_replied_under_is_remembered(tmp_path: Path) -> None:
    with ReplyCache(tmp_path / "r.sqlite") as cache:
        assert cache.first_served("identity", "judge-v1") == "judge-v1"
    with ReplyCache(tmp_path / "r.sqlite") as cache:
        assert cache.first_served("identity", "judge-v2") == "judge-v1"
        assert cache.first_served("another", "judge-v2") == "judge-v2"
