"""Several addresses: a dialogue stays at one, a dead one is passed over, and returns."""

from __future__ import annotations

from collections import Counter

import pytest
from aiohttp import web

from curate.engines import endpoints
from curate.engines.base import Completion, Fault, Request
from curate.engines.config import OpenAIConfig
from curate.engines.endpoints import Endpoint, by_preference
from curate.engines.layout import Trunk
from curate.engines.limiter import Limiter
from curate.engines.open import open_engine
from curate.errors import EngineError, UsageError
from tests.servers import CountingServer, answer_by_hash

URLS = ("http://a/v1", "http://b/v1", "http://c/v1")


@pytest.fixture
async def make_endpoints():
    made = []

    def make(urls=URLS) -> list[Endpoint]:
        made.extend(Endpoint(url, {}, Limiter(4), use_proxy=False) for url in urls)
        return made[-len(urls) :]

    yield make
    for endpoint in made:
        await endpoint.close()


def homes(endpoints: list[Endpoint], count: int = 600) -> list[str]:
    return [by_preference(endpoints, f"dialogue {index}")[0].url for index in range(count)]


def ask(text: str, affinity: str = "") -> Request:
    return Request(Trunk(text), max_tokens=4, affinity=affinity)


DOWN = Completion(finish="error", fault=Fault("connection"))


async def test_a_dialogue_has_one_home_and_dialogues_spread_evenly(make_endpoints):
    several = make_endpoints()
    first = homes(several)
    assert homes(several) == first
    assert min(Counter(first).values()) > 150


async def test_an_address_that_fails_moves_only_its_own_dialogues_to_all_others_and_gets_them_back(
    monkeypatch, make_endpoints
):
    now = 100.0
    monkeypatch.setattr(endpoints.time, "monotonic", lambda: now)
    several = make_endpoints()
    before = homes(several)
    failing = next(endpoint for endpoint in several if endpoint.url == URLS[1])
    failing.note(DOWN)
    during = homes(several)
    moved = Counter()
    for old, new in zip(before, during, strict=True):
        if old == URLS[1]:
            moved[new] += 1
        else:
            assert new == old
    assert min(moved[URLS[0]], moved[URLS[2]]) > 50
    now += endpoints.FIRST_PAUSE
    assert homes(several) == before
    failing.note(DOWN)
    now += endpoints.FIRST_PAUSE
    assert homes(several) == during  # failed again: passed over for twice as long
    now += endpoints.FIRST_PAUSE
    failing.note(Completion())
    failing.note(DOWN)
    now += endpoints.FIRST_PAUSE
    assert homes(several) == before  # it had answered in between


async def test_an_address_more_takes_its_share_and_moves_nobody_else(make_endpoints):
    before, after = homes(make_endpoints(URLS[:2])), homes(make_endpoints())
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {URLS[2]}


async def test_with_all_down_one_is_asked_all_the_same(make_endpoints):
    several = make_endpoints()
    for endpoint in several:
        endpoint.note(DOWN)
    assert len(by_preference(several, "x")) == 3


async def test_what_has_no_affinity_takes_turns(make_endpoints):
    several = make_endpoints()
    assert len({by_preference(several, "")[0].url for _ in range(50)}) == 3


@pytest.fixture
async def pair():
    async with CountingServer(owned_by="vllm") as one, CountingServer(owned_by="vllm") as two:
        yield one, two


def make_config(servers, **fields) -> OpenAIConfig:
    urls = [server.base_url for server in servers]
    return OpenAIConfig(
        **{"model": "fake-judge", "base_url": urls, "retries": 0, "timeout": 60.0, **fields}
    )


def texts(server: CountingServer) -> set[str]:
    return {body["messages"][0]["content"].split()[0] for body in server.requests}


async def test_all_requests_about_a_dialogue_go_to_one_server(pair):
    engine = await open_engine(make_config(pair))
    for server in pair:
        server.requests.clear()
    names = [f"d{index}" for index in range(30)]
    await engine.complete([ask(f"{name} question {n}", name) for n in range(3) for name in names])
    first, second = (texts(server) for server in pair)
    assert first | second == set(names)
    assert not first & second
    assert min(len(first), len(second)) > 5
    assert engine.open_dialogues == 32
    await engine.close()


async def test_a_server_that_dies_hands_over_within_the_same_call_and_takes_back(pair, monkeypatch):
    monkeypatch.setattr(endpoints, "FIRST_PAUSE", 0.05)
    engine = await open_engine(make_config(pair))
    names = [f"d{index}" for index in range(20)]
    one, two = pair
    await one.stop()
    replies = await engine.complete([ask(f"{name} now", name) for name in names])
    assert all(reply.fault is None for reply in replies)
    assert texts(two) >= set(names)
    await one.start()
    one.requests.clear()
    for _ in range(40):
        await engine.complete([ask(f"{name} then", name) for name in names])
        if one.requests:
            break
    assert one.requests
    assert len(texts(one)) < len(names)
    await engine.close()


async def test_a_server_that_restarts_behind_a_gateway_hands_over_too(pair):
    engine = await open_engine(make_config(pair))
    pair[0].answer = lambda body: web.json_response({"error": "loading"}, status=503)
    replies = await engine.complete([ask(f"d{index}", f"d{index}") for index in range(10)])
    assert all(reply.fault is None for reply in replies)
    pair[1].answer = pair[0].answer
    [reply] = await engine.complete([ask("d", "d")])
    assert reply.fault.kind == "server"
    await engine.close()


async def test_the_identity_is_the_same_whoever_answers_and_however_many_there_are(pair):
    engines = [await open_engine(make_config(servers)) for servers in (pair, pair[:1])]
    assert engines[0].identity == engines[1].identity
    named = await open_engine(make_config(reversed(pair), revision="v1"))
    other = await open_engine(make_config(pair, revision="v1"))
    assert named.identity == other.identity
    for engine in (*engines, named, other):
        await engine.close()


async def test_addresses_that_serve_different_things_are_refused():
    async with CountingServer(owned_by="vllm") as one:
        async with CountingServer(owned_by="sglang") as two:
            with pytest.raises(UsageError, match="does not serve what"):
                await open_engine(make_config([one, two]))
        async with CountingServer(owned_by="vllm", models=("another",)) as two:
            with pytest.raises(UsageError, match=two.base_url):
                await open_engine(make_config([one, two]))
        async with CountingServer(lambda body: "no figures", owned_by="vllm") as two:
            with pytest.raises(UsageError, match="no log-probabilities"):
                await open_engine(make_config([one, two]))
    async with CountingServer(owned_by="vllm", answer=answer_by_hash) as one:
        gone = CountingServer()
        await gone.start()
        await gone.stop()
        with pytest.raises(EngineError, match=f"{gone.base_url} cannot be reached"):
            await open_engine(make_config([one, gone]))


def test_a_list_without_addresses_or_with_one_twice_is_refused():
    for urls in ([], ["http://a/v1", "http://a/v1/"]):
        with pytest.raises(UsageError, match="base_url is an empty list"):
            OpenAIConfig(model="m", base_url=urls)
