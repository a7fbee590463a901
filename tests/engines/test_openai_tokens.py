"""Label reads as lists of token prompts: one call a dialogue, exact labels, and what to do when it fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from curate.engines import openai_probe
from curate.engines.accounting import Accounting
from curate.engines.base import Capability, Completion, Request
from curate.engines.cache import ReplyCache
from curate.engines.client import Client
from curate.engines.config import OpenAIConfig
from curate.engines.layout import Trunk
from curate.engines.open import open_engine
from curate.engines.openai_requests import Dialect, is_label_read, read_list
from curate.engines.tokens import PromptTokens
from curate.errors import UsageError

pytest.importorskip("transformers", reason="needs the extra [transformers]")
pytest.importorskip("jinja2", reason="needs the extra [transformers]")

from tests.engines.families import small_tokenizer
from tests.engines.waiting import until
from tests.servers import Body, CountingServer, answer_by_hash

YES_NO = ("yes", "no")
TRUNK = "Rubric.\n[1.user]\nyes or no\n[1.assistant]\nno 3\n"


@pytest.fixture(scope="module")
def prompts() -> PromptTokens:
    return PromptTokens(small_tokenizer())


def label_read(text: str, **fields: Any) -> Request:
    fields = {"max_tokens": 1, "labels": YES_NO, **fields}
    return Request(Trunk(TRUNK + text), **fields)


def without_counts(body: Body) -> Body:
    answer = answer_by_hash(body)
    parts = {"text": answer} if isinstance(answer, str) else dict(answer)
    return {**parts, "usage": {}}


@pytest.fixture
async def open_on(monkeypatch):
    monkeypatch.setattr(openai_probe, "load_tokenizer", lambda name: small_tokenizer())
    cleanup = []

    async def opener(server: CountingServer, **options: Any):
        await server.start()
        cleanup.append(server.stop)
        fields = {"model": "fake-judge", "base_url": server.base_url, "tokenizer": "here"}
        engine = await open_engine(OpenAIConfig(**fields, retries=0, **options))
        cleanup.append(engine.close)
        server.requests.clear()
        return engine

    yield opener
    for close in reversed(cleanup):
        await close()


async def test_all_label_reads_of_a_dialogue_are_one_call_with_exact_labels(open_on, prompts):
    server = CountingServer(without_counts, owned_by="vllm", token_prompts="exact")
    engine = await open_on(server)
    assert {
        Capability.BATCH,
        Capability.TOKEN_PROMPTS,
        Capability.LABEL_LOGPROBS,
    } <= engine.capabilities
    requests = [label_read("One?"), label_read("Two?", labels=("3", "no")), label_read("Three?")]
    replies = await engine.complete(requests)
    [body] = server.requests
    assert body["prompt"] == [prompts.prompt_ids(request) for request in requests]
    wanted = set().union(*(prompts.label_ids(request) for request in requests))
    assert body["logprob_token_ids"] == sorted(wanted)
    assert body["logprobs"] == len(wanted)
    for request, reply, ids in zip(requests, replies, body["prompt"], strict=True):
        spelt = prompts.label_ids(request)
        assert reply.exact_labels
        # Each from its own prompt, though the server answered in another order.
        expected = {text: -1.0 - (sum(ids) + token) % 97 / 10 for token, text in spelt.items()}
        assert dict(reply.first_token) == pytest.approx(expected)
        assert [value for _, value in reply.first_token] == sorted(expected.values(), reverse=True)
        assert reply.usage.prompt_tokens == len(ids)
    assert [reply.usage.cached_tokens for reply in replies] == [0, 0, 4]


async def test_through_the_asker_siblings_stay_one_call(open_on):
    server = CountingServer(without_counts, owned_by="vllm", token_prompts="exact")
    engine = await open_on(server)
    accounting = Accounting()
    ask = Client(engine, None, accounting=accounting)
    await ask([label_read(f"{index}?") for index in range(12)])
    assert len(server.requests) == 1
    assert accounting.total.sent == 12
    await ask([label_read(f"{index} again?") for index in range(70)])
    assert [len(body["prompt"]) for body in server.requests[1:]] == [32, 32, 6]


async def test_text_and_schemas_stay_with_chat(open_on):
    server = CountingServer(without_counts, owned_by="vllm", token_prompts="exact")
    engine = await open_on(server)
    text = label_read("Say?", labels=(), max_tokens=9)
    bound = label_read("JSON?", labels=(), max_tokens=9, schema={"type": "object"})
    replies = await engine.complete([label_read("One?"), text, label_read("Two?"), bound])
    assert [reply.exact_labels for reply in replies] == [True, False, True, False]
    assert sorted("prompt" in body for body in server.requests) == [False, False, True]
    assert not is_label_read(text)


async def test_a_server_without_the_field_gives_its_most_likely_tokens(open_on):
    server = CountingServer(without_counts, owned_by="someone", token_prompts="top")
    engine = await open_on(server)
    assert Capability.TOKEN_PROMPTS in engine.capabilities
    assert Capability.LABEL_LOGPROBS not in engine.capabilities
    [reply] = await engine.complete([label_read("One?")])
    assert not reply.exact_labels
    assert len(reply.first_token) == 20


async def test_the_tokenizer_is_there_for_counting(open_on, prompts):
    engine = await open_on(CountingServer(without_counts, owned_by="vllm"))
    assert engine.prompts.prompt_ids(label_read("One?")) == prompts.prompt_ids(label_read("One?"))


def test_alternatives_in_the_form_of_chats_are_never_taken_for_exact(prompts):
    tops = [{"token": word, "logprob": -1.0 - rank} for rank, word in enumerate(("so", "yes"))]
    said = {"index": 0, "text": "so", "logprobs": {"content": [{**tops[0], "top_logprobs": tops}]}}

    # llama.cpp takes the ids of the labels and passes over them.
    [reply] = read_alone(prompts, {"choices": [said]})
    assert reply.first_token == (("so", -1.0), ("yes", -2.0))
    assert not reply.exact_labels


async def test_a_server_without_the_path_is_asked_by_chat(open_on):
    server = CountingServer(without_counts, owned_by="vllm")
    engine = await open_on(server)
    assert not {Capability.TOKEN_PROMPTS, Capability.BATCH} & engine.capabilities
    assert engine.facts["prompts as token ids"] is False
    await engine.complete([label_read("One?")])
    assert "messages" in server.requests[0]


async def test_a_tokenizer_that_is_not_the_servers_is_refused(open_on):
    with pytest.raises(UsageError, match="is not the one"):
        await open_on(CountingServer(owned_by="vllm", token_prompts="exact"))


async def test_the_tokenizer_and_the_way_of_reading_are_part_of_the_identity(open_on):
    exact = await open_on(
        CountingServer(without_counts, owned_by="vllm", token_prompts="exact"), revision="7"
    )
    top = await open_on(
        CountingServer(without_counts, owned_by="vllm", token_prompts="top"), revision="7"
    )
    assert {"tokenizer", "chat_template", "label_reads"} <= dict(exact.identity.detail).keys()
    assert exact.identity.key != top.identity.key


EXACT = Dialect("vllm", label_lists="exact")


def read_alone(prompts: PromptTokens, reply: Any) -> list[Completion]:
    request = label_read("a?")
    ids, labels = prompts.prompt_ids(request), prompts.label_ids(request)
    return read_list(reply, [request], [ids], [labels], EXACT)


async def test_one_prompt_that_is_too_long_does_not_fail_its_siblings(open_on):
    server = CountingServer(without_counts, owned_by="vllm", token_prompts="exact", context=70)
    engine = await open_on(server, context=4096)  # more than it has: the server refuses
    ask = Client(engine, None, accounting=Accounting())
    good, bad, other = await ask([label_read("a?"), label_read("yes " * 70), label_read("b?")])
    assert [len(body["prompt"]) for body in server.requests] == [3, 1, 1, 1]
    assert good.exact_labels
    assert other.exact_labels
    assert bad.fault.kind == "context_overflow"


async def test_a_prompt_that_is_known_to_be_too_long_is_not_sent(open_on):
    server = CountingServer(without_counts, owned_by="vllm", token_prompts="exact", context=70)
    engine = await open_on(server)
    good, bad = await engine.complete([label_read("a?"), label_read("yes " * 70)])
    text = await engine.complete([Request(Trunk("yes " * 60), max_tokens=20)])
    assert [len(body["prompt"]) for body in server.requests] == [1]
    assert good.exact_labels
    assert [bad.fault.kind, text[0].fault.kind] == ["context_overflow"] * 2
    assert engine.facts["length of prompts"] == "counted by the tokenizer"


async def test_replies_are_kept_call_by_call_not_when_the_last_one_is_there(open_on, tmp_path):
    server = CountingServer(without_counts, owned_by="vllm", token_prompts="exact")
    engine = await open_on(server)
    release = asyncio.Event()

    async def hold(body: Body) -> Body:
        await release.wait()
        return without_counts(body)

    server.answer = hold
    reads = [label_read(f"{index}?") for index in range(40)]
    text = label_read("Say?", labels=(), max_tokens=9)
    with ReplyCache(tmp_path / "replies.sqlite") as cache:
        task = asyncio.create_task(Client(engine, cache, accounting=Accounting())([*reads, text]))
        keys = [request.key(engine.identity) for request in reads]
        await until(lambda: len(cache.get_many(keys)) == len(keys))
        assert not task.done()
        release.set()
        assert len(await task) == 41


async def test_a_server_that_is_busy_fails_all_at_once_and_is_not_asked_one_by_one(open_on):
    server = CountingServer(without_counts, owned_by="vllm", token_prompts="exact")
    engine = await open_on(server, extra_body={"priority": 3})
    server.refuse_lists = 429
    replies = await engine.complete([label_read("a?"), label_read("b?")])
    assert [(reply.fault.kind, reply.fault.status) for reply in replies] == [
        ("rate_limited", 429)
    ] * 2
    [body] = server.requests
    assert body["priority"] == 3


@pytest.mark.parametrize(
    "reply",
    [
        [],
        {},
        {"choices": []},
        {"choices": [{"index": 0, "text": "", "logprobs": None}]},
        {"choices": [{"index": 0, "text": "", "logprobs": {"top_logprobs": [{"token_id:1": -1}]}}]},
        {"choices": [{"logprobs": {"top_logprobs": [{"yes": -1}]}}]},
        {"choices": [{"logprobs": {"top_logprobs": []}}]},
        {"choices": [{"logprobs": {"top_logprobs": [{}]}}]},
        {"choices": [{"index": "first", "text": "", "logprobs": {"top_logprobs": [{"yes": -1}]}}]},
        {"choices": [{"logprobs": {"top_logprobs": [{"yes": "nan"}]}}]},
        {"choices": [{"logprobs": {"top_logprobs": [{"yes": 710.0}]}}]},
    ],
)
def test_a_reply_that_is_something_else_is_a_fault(prompts, reply):
    [completion] = read_alone(prompts, reply)
    assert completion.fault.kind == "malformed_reply"


@pytest.mark.parametrize(
    "indices", [(0, 0), (1, 1), (1, 2), (0, None), (0, -1), (0, 1, 1), (None, None)]
)
def test_replies_of_a_list_that_say_to_which_prompt_they_belong_answer_each_prompt_once(
    prompts, indices
):
    first = {"text": "", "logprobs": {"top_logprobs": [{"yes": -0.1, "no": -3.0}]}}
    choices = [first if index is None else {**first, "index": index} for index in indices]
    pair = [label_read("a?"), label_read("b?")]
    ids, labels = map(prompts.prompt_ids, pair), map(prompts.label_ids, pair)
    replies = read_list({"choices": choices}, pair, list(ids), list(labels), Dialect())
    # Servers of one's own that number nothing answer in the order of the prompts.
    is_whole = indices == (None, None)
    assert [reply.fault is None for reply in replies] == [is_whole] * 2
