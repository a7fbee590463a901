import tracemalloc

import pytest
import zstandard

from curate.engines import scripted
from curate.engines.base import Capability, Completion, Engine, Fault, Request
from curate.engines.cache import ReplyCache
from curate.engines.config import ScriptedConfig
from curate.engines.layout import Trunk
from curate.engines.open import open_engine
from curate.engines.scripted import ScriptedEngine, record_runs, write_recording
from curate.errors import EngineError, UsageError


def make_request(text: str, **fields) -> Request:
    return Request(Trunk(text), max_tokens=8, **fields)


async def test_a_list_is_replied_in_order_and_an_empty_one_raises():
    engine = ScriptedEngine(["one", Completion(text="two"), Fault("timeout", "late")])
    replies = await engine.complete([make_request("a"), make_request("b"), make_request("c")])
    assert [reply.text for reply in replies] == ["one", "two", ""]
    assert replies[2].fault == Fault("timeout", "late")
    with pytest.raises(EngineError, match="no reply for request 4") as caught:
        await engine.complete([make_request("which one is this?", purpose="judge.turn")])
    assert "which one is this?" in str(caught.value)
    assert "judge.turn" in str(caught.value)
    assert len(engine.requests) == 4


async def test_a_function_sees_the_request():
    engine = ScriptedEngine(lambda request: f"{request.purpose}!")
    [reply] = await engine.complete([make_request("a", purpose="fork.revise")])
    assert reply.text == "fork.revise!"


async def test_a_recording_is_replayed_in_any_order(tmp_path):
    path = tmp_path / "recorded.jsonl"
    calls = [
        (make_request("a"), Completion(text="A", finish="length")),
        (make_request("b", labels=("1",)), Completion(first_token=(("1", -0.5),))),
        (make_request("c"), Completion(finish="error", fault=Fault("refused", "no"))),
    ]
    write_recording(path, calls)
    engine = await open_engine(
        ScriptedConfig(replies=path, capabilities=frozenset({Capability.TOP_LOGPROBS}))
    )
    for request, completion in reversed(calls):
        assert await engine.complete([request]) == [completion]
    with pytest.raises(EngineError, match="no reply"):
        await engine.complete([make_request("d")])


async def test_recordings_with_other_content_are_other_identities(tmp_path):
    keys = set()
    for text in ("A", "B"):
        path = tmp_path / "r.jsonl"
        path.write_text(f'{{"text": "{text}"}}\n')
        engine = ScriptedEngine(path)
        keys.add(engine.identity.key)
        assert (await engine.complete([make_request("x")]))[0].text == text
    assert len(keys) == 2


@pytest.mark.parametrize("line", ["{", '["a"]', '{"txt": "a"}', '{"text": 5}'])
def test_a_broken_recording_names_the_line(tmp_path, line):
    path = tmp_path / "r.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(UsageError, match="line 2"):
        ScriptedEngine(path)


def test_a_missing_recording_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nope\.jsonl"):
        ScriptedEngine(tmp_path / "nope.jsonl")


async def test_first_tokens_need_the_capability():
    reply = Completion(first_token=(("1", -0.1),))
    with pytest.raises(EngineError, match="TOP_LOGPROBS"):
        await ScriptedEngine([reply]).complete([make_request("a")])


async def test_it_is_an_ordinary_engine():
    engine = ScriptedEngine([], capabilities={Capability.SEED}, open_dialogues=2, context_tokens=9)
    assert isinstance(engine, Engine)
    assert engine.capabilities == {Capability.SEED}
    assert (engine.open_dialogues, engine.context_tokens) == (2, 9)
    await engine.close()
    await engine.close()


@pytest.mark.parametrize("name", ["replies.jsonl", "replies.jsonl.zst"])
async def test_a_runs_replies_are_replayed_under_the_name_of_who_gave_them(tmp_path, name):
    live = ScriptedEngine(
        [],
        model="judge-7b",
        capabilities={Capability.LABEL_LOGPROBS, Capability.BATCH},
        open_dialogues=7,
        context_tokens=512,
    )
    reply = Completion(first_token=(("1", -0.5),), exact_labels=True)
    with ReplyCache(tmp_path / "replies.sqlite") as cache:
        await cache.put({make_request("a", labels=("1",)).key(live.identity): reply})
        cache.first_served(live.identity.key, "judge-7b")
    made = {"date": "2026-01-02", "command": "curate run mine.yaml"}
    assert record_runs([tmp_path / "replies.sqlite"], tmp_path / name, live, **made) == 1
    engine = await open_engine(ScriptedConfig(replies=tmp_path / name))
    assert await engine.complete([make_request("a", labels=("1",))]) == [reply]
    for known in ("identity", "capabilities", "open_dialogues", "context_tokens"):
        assert getattr(engine, known) == getattr(live, known)
    assert engine.warnings == (
        "Recorded replies: judge-7b gave them on 2026-01-02, and no model runs now. How they were made: "
        "curate run mine.yaml",
    )
    with pytest.raises(EngineError, match="differ from those recorded"):
        await engine.complete([make_request("b")])


def test_a_recording_that_is_not_compressed_as_its_name_says_is_refused(tmp_path):
    path = tmp_path / "r.jsonl.zst"
    path.write_text("{}")
    with pytest.raises(UsageError, match="cannot be read"):
        ScriptedEngine(path)


def test_a_small_recording_that_unpacks_to_too_much_is_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(scripted, "MOST", 1 << 20)
    path = tmp_path / "r.jsonl.zst"
    path.write_bytes(zstandard.compress(b'{"text": "' + b"a" * (64 << 20) + b'"}\n'))
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="too many recorded replies"):
            ScriptedEngine(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
