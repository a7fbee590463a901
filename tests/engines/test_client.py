import asyncio
import math

import pytest

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Capability, Completion, Fault, Request, Usage
from curate.engines.cache import ReplyCache
from curate.engines.client import Client
from curate.engines.config import OpenAIConfig, Prices
from curate.engines.layout import Chat, Trunk
from curate.engines.open import open_engine
from curate.engines.scripted import DEFAULT_CAPABILITIES, ScriptedEngine
from curate.errors import BudgetReached, CurateError, EngineError
from tests.engines.waiting import settle, until
from tests.servers import CountingServer, answer_by_hash, chat_completion


def make_request(text: str, **fields) -> Request:
    fields.setdefault("purpose", "judge.turn")
    return Request(Trunk(text), max_tokens=8, **fields)


def text_of(request: Request) -> str:
    return request.messages[-1]["content"]


@pytest.fixture
def cache(tmp_path):
    with ReplyCache(tmp_path / "replies.sqlite") as cache:
        yield cache


def make_asker(engine, cache=None, **options) -> Client:
    options.setdefault("accounting", Accounting())
    return Client(engine, cache, base_delay=0.001, **options)


async def test_only_misses_are_sent_and_answers_keep_their_order(cache):
    engine = ScriptedEngine(lambda request: text_of(request).upper())
    accounting = Accounting()
    ask = make_asker(engine, cache, accounting=accounting)
    await ask([make_request("b"), make_request("d")])
    replies = await ask([make_request(letter) for letter in "abcd"])
    assert [reply.text for reply in replies] == ["A", "B", "C", "D"]
    assert [text_of(request) for request in engine.requests] == ["b", "d", "a", "c"]
    tally = accounting.purposes["judge.turn"]
    assert (tally.requests, tally.hits, tally.sent) == (6, 2, 4)


async def test_a_kept_reply_survives_the_asker_and_the_engine(tmp_path):
    for expected_calls in (1, 0):
        engine = ScriptedEngine(["yes"] * expected_calls)
        with ReplyCache(tmp_path / "r.sqlite") as cache:
            [reply] = await make_asker(engine, cache)([make_request("a")])
        assert reply.text == "yes"
        assert len(engine.requests) == expected_calls


async def test_samples_of_one_prompt_are_different_requests(cache):
    engine = ScriptedEngine(["one", "two"])
    ask = make_asker(engine, cache)
    replies = await ask([make_request("a", sample=0), make_request("a", sample=1)])
    assert [reply.text for reply in replies] == ["one", "two"]


async def test_equal_requests_in_flight_are_one_call(cache):
    calls = 0

    class Slow(ScriptedEngine):
        async def complete(self, requests):
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.02)
            return [Completion(text="once")]

    accounting = Accounting()
    ask = make_asker(Slow([]), cache, accounting=accounting)
    both = await asyncio.gather(
        ask([make_request("a"), make_request("a")]), ask([make_request("a")])
    )
    assert [[reply.text for reply in replies] for replies in both] == [["once", "once"], ["once"]]
    assert calls == 1
    assert (accounting.total.requests, accounting.total.hits, accounting.total.sent) == (3, 2, 1)


async def test_when_the_first_asker_is_cancelled_the_waiting_one_asks_itself():
    started = asyncio.Event()
    calls = 0

    class Hanging(ScriptedEngine):
        async def complete(self, requests):
            nonlocal calls
            calls += 1
            started.set()
            if calls == 1:
                await asyncio.sleep(60)
            return [Completion(text="second")]

    ask = make_asker(Hanging([]))
    first = asyncio.create_task(ask([make_request("a")]))
    await started.wait()
    second = asyncio.create_task(ask([make_request("a")]))
    await asyncio.sleep(0.01)
    first.cancel()
    assert [reply.text for reply in await second] == ["second"]
    assert first.cancelled() or await asyncio.wait([first])


async def test_each_reply_is_kept_before_its_siblings_are_answered(cache):
    gate = asyncio.Event()

    class Uneven(ScriptedEngine):
        async def complete(self, requests):
            [request] = requests
            if text_of(request) == "slow":
                await gate.wait()
            return [Completion(text=text_of(request))]

    requests = [make_request(text) for text in ("first", "slow", "fast")]
    engine = Uneven([])
    task = asyncio.create_task(make_asker(engine, cache)(requests))
    keys = [request.key(engine.identity) for request in requests]
    for _ in range(20):
        await asyncio.sleep(0)
    assert set(cache.get_many(keys)) == {keys[0], keys[2]}
    gate.set()
    assert len(await task) == 3


async def test_the_first_sibling_goes_alone_then_the_others_together():
    open_now, widths = 0, []

    class Watching(ScriptedEngine):
        async def complete(self, requests):
            nonlocal open_now
            open_now += len(requests)
            widths.append(open_now)
            await asyncio.sleep(0.01)
            open_now -= len(requests)
            return [Completion()]

    requests = [make_request(letter) for letter in "abcd"]
    await make_asker(Watching([]))(requests)
    assert widths == [1, 1, 2, 3]
    widths.clear()
    alone = Watching([], capabilities=DEFAULT_CAPABILITIES - {Capability.PARALLEL})
    await make_asker(alone)(requests)
    assert widths == [1, 1, 1, 1]


async def test_siblings_in_flight_end_with_the_one_who_asked_and_outlive_one_that_raises(cache):
    begun, ended, raised = [], [], asyncio.Event()

    class Slow(ScriptedEngine):
        async def complete(self, requests):
            text = text_of(requests[0])
            begun.append(text)
            try:
                if text == "raises":
                    await until(lambda: len(begun) == 4)
                    raised.set()
                    raise EngineError("it is gone")
                if text != "first":
                    await raised.wait()
                    await settle()
            finally:
                ended.append(text)
            return [Completion(text="ok")]

    asked = [make_request(text) for text in ("first", "raises", "slow", "slower")]
    with pytest.raises(EngineError, match="it is gone"):
        await make_asker(Slow([]), cache)(asked)
    keys = [request.key(Slow([]).identity) for request in asked]
    assert set(cache.get_many(keys)) == {keys[0], keys[2], keys[3]}
    begun.clear()
    ended.clear()
    raised.clear()
    asking = asyncio.create_task(
        make_asker(Slow([]))([make_request(text, sample=1) for text in ("first", "long", "slow")])
    )
    asking.add_done_callback(lambda _: ended.append("all"))
    await until(lambda: begun == ["first", "long", "slow"])
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.sleep(0)
    assert ended == ["first", "long", "slow", "all"]


async def test_transient_faults_are_tried_again_and_never_kept(cache):
    engine = ScriptedEngine([Fault("server"), Fault("timeout"), "at last"])
    accounting = Accounting()
    ask = make_asker(engine, cache, retries=2, accounting=accounting)
    [reply] = await ask([make_request("a")])
    assert reply.text == "at last"
    assert accounting.total.sent == 3
    assert accounting.total.faults == {"server": 1, "timeout": 1}


async def test_a_fault_that_stays_is_data_and_is_asked_again_next_time(cache):
    engine = ScriptedEngine([Fault("server", "down"), Fault("server", "down"), "back"])
    ask = make_asker(engine, cache, retries=1)
    [reply] = await ask([make_request("a")])
    assert reply.fault == Fault("server", "down")
    [reply] = await ask([make_request("a")])
    assert reply.text == "back"


@pytest.mark.parametrize("kind", ["context_overflow", "bad_request"])
async def test_faults_that_a_user_can_mend_are_neither_repeated_nor_kept(cache, kind):
    engine = ScriptedEngine([Fault(kind), "mended"])
    ask = make_asker(engine, cache)
    assert (await ask([make_request("a")]))[0].fault.kind == kind
    assert (await ask([make_request("a")]))[0].text == "mended"


async def test_a_refusal_is_a_reply_and_is_kept(cache):
    engine = ScriptedEngine([Fault("refused", "policy")])
    ask = make_asker(engine, cache)
    assert (await ask([make_request("a")]))[0].fault.kind == "refused"
    assert (await ask([make_request("a")]))[0].fault == Fault("refused", "policy")
    assert len(engine.requests) == 1


async def test_retry_after_is_honoured(monkeypatch):
    waits = []
    real = asyncio.sleep

    async def note(seconds):
        waits.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    engine = ScriptedEngine([Fault("rate_limited", retry_after=7.5), Fault("server"), "ok"])
    await make_asker(engine)([make_request("a")])
    assert waits[0] == 7.5
    assert 0.001 <= waits[1] <= 0.002


async def test_faults_in_a_row_that_no_retry_mends_stop_the_run():
    engine = ScriptedEngine(lambda request: Fault("auth", "HTTP 401: no"))
    ask = make_asker(engine, fatal_after=3)
    for _ in range(2):
        with pytest.raises(EngineError, match="HTTP 401") as caught:
            await ask([make_request("a")])
        assert "kept" in str(caught.value)
    assert len(engine.requests) == 3


async def test_a_success_between_them_breaks_the_row():
    replies = [Fault("connection"), Fault("connection"), "ok"] * 3
    ask = make_asker(ScriptedEngine(replies), retries=0, fatal_after=3)
    for _ in range(3):
        [completion] = await ask([make_request("a")])
        assert completion.text == "ok"


async def test_a_budget_of_calls_is_exact_and_keeps_what_was_in_flight(cache):
    engine = ScriptedEngine(lambda request: "ok")
    budget = Budget(calls=3)
    ask = make_asker(engine, cache, budget=budget)
    requests = [make_request(letter) for letter in "abcde"]
    with pytest.raises(BudgetReached, match="calls"):
        await ask(requests)
    assert len(engine.requests) == 3
    assert len(cache.get_many([request.key(engine.identity) for request in requests])) == 3
    assert len(await make_asker(engine, cache, budget=Budget(calls=2))(requests)) == 5
    assert len(engine.requests) == 5


async def test_kept_replies_cost_nothing_of_the_budget(cache):
    engine = ScriptedEngine(lambda request: "ok")
    await make_asker(engine, cache)([make_request("a")])
    assert (await make_asker(engine, cache, budget=Budget(calls=0))([make_request("a")]))[0].text


async def test_budgets_of_tokens_and_money_stop_before_the_next_call():
    reply = Completion(text="x", usage=Usage(prompt_tokens=900, completion_tokens=100))
    for budget in (Budget(tokens=1500), Budget(money=0.0015)):
        engine = ScriptedEngine(lambda request: reply)
        ask = make_asker(engine, budget=budget, prices=Prices(input=1.0, output=1.0))
        await ask([make_request("a")])
        await ask([make_request("b")])
        with pytest.raises(BudgetReached):
            await ask([make_request("c")])
        assert budget.used_tokens == 2000
        assert budget.used_money == pytest.approx(0.002)


async def test_texts_are_redacted_before_they_leave_and_in_the_key(cache):
    engine = ScriptedEngine(lambda request: "ok")
    plain = make_asker(engine, cache)
    await plain([make_request("call Ann")])
    ask = make_asker(engine, cache, redact=lambda text: text.replace("Ann", "[name]"))
    request = Request(
        Chat(
            (
                {"role": "user", "content": [{"type": "text", "text": "hi Ann"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "1", "function": {"name": "f", "arguments": '{"n": "Ann"}'}}
                    ],
                },
                {"role": "user", "content": "call Ann"},
            )
        ),
        max_tokens=1,
        prefill="Dear Ann",
    )
    await ask([make_request("call Ann"), request])
    assert "Ann" not in str(engine.requests[1:])
    assert str(engine.requests).count("[name]") == 5
    assert "Ann" in str(request)


async def test_refresh_asks_again_once_for_a_stage_a_purpose_or_a_key(cache):
    engine = ScriptedEngine(lambda request: f"reply {len(engine.requests)}")
    request, other = make_request("a"), make_request("a", purpose="adherence.turn", sample=1)
    await make_asker(engine, cache)([request, other])
    for entry in ("judge", "judge.turn", request.key(engine.identity)):
        before = len(engine.requests)
        ask = make_asker(engine, cache, refresh=frozenset({entry}))
        await ask([other])
        [first], [second] = await ask([request]), await ask([request])
        assert first == second
        assert len(engine.requests) == before + 1
        assert (await make_asker(engine, cache)([request]))[0] == first


async def test_what_cannot_be_kept_stops_the_run(cache, monkeypatch):
    def refuse(entries):
        raise CurateError("the disk is full")

    monkeypatch.setattr(cache.store, "put", refuse)
    with pytest.raises(CurateError, match="disk is full"):
        await make_asker(ScriptedEngine(["a"]), cache)([make_request("a")])


async def test_accounts_add_up_over_purposes_stages_and_processes():
    usage = Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=2)
    accounting = Accounting()
    engine = ScriptedEngine(lambda request: Completion(usage=usage))
    ask = make_asker(engine, accounting=accounting)
    await ask([make_request("a"), make_request("b", purpose="judge.summary")])
    await ask([make_request("c", purpose="adherence.turn")])
    judge = accounting.stages["judge"]
    assert (judge.requests, judge.prompt_tokens, judge.cached_tokens) == (2, 20, 8)
    twice = Accounting()
    twice.merge(accounting)
    twice.merge(accounting)
    assert twice.total.completion_tokens == 12
    assert accounting.total.completion_tokens == 6
    assert twice.total.as_dict()["sent"] == 6


BATCHING = DEFAULT_CAPABILITIES | {Capability.BATCH}


class Batching(ScriptedEngine):
    """Answers lists; a reply that is a list of completions is used up by its text, one a call."""

    def __init__(self, script=None, **options):
        super().__init__([], capabilities=BATCHING, **options)
        self.script = script or {}
        self.calls = []
        self.on_call = lambda: None

    async def complete(self, requests):
        self.on_call()
        self.calls.append("".join(text_of(request) for request in requests))
        await asyncio.sleep(0.01)
        replies = []
        for request in requests:
            waiting = self.script.get(text_of(request))
            replies.append(waiting.pop(0) if waiting else Completion(text=text_of(request).upper()))
        return replies


async def test_an_engine_that_batches_gets_all_siblings_in_one_call(cache):
    engine, accounting = Batching(), Accounting()
    ask = make_asker(engine, cache, accounting=accounting)
    replies = await ask([make_request(letter) for letter in "abca"])
    assert [reply.text for reply in replies] == ["A", "B", "C", "A"]
    assert engine.calls == ["abc"]
    assert (accounting.total.requests, accounting.total.hits, accounting.total.sent) == (4, 1, 3)
    await ask([make_request(letter) for letter in "abcd"])
    assert engine.calls == ["abc", "d"]


async def test_only_those_that_failed_are_asked_again_and_the_others_are_kept_at_once(cache):
    down = Completion(finish="error", fault=Fault("server"))
    engine = Batching({"b": [down, down], "d": [down]})
    requests = [make_request(letter) for letter in "abcd"]
    keys = [request.key(engine.identity) for request in requests]
    kept = []
    engine.on_call = lambda: kept.append([key in cache.get_many(keys) for key in keys])

    accounting = Accounting()
    replies = await make_asker(engine, cache, accounting=accounting)(requests)
    assert [reply.text for reply in replies] == ["A", "B", "C", "D"]
    assert engine.calls == ["abcd", "bd", "b"]
    assert kept == [[False] * 4, [True, False, True, False], [True, False, True, True]]
    assert (accounting.total.sent, accounting.total.faults["server"]) == (7, 3)


async def test_equal_requests_of_two_batches_in_flight_are_one_call(cache):
    engine = Batching()
    ask = make_asker(engine, cache)
    first, second = await asyncio.gather(
        ask([make_request(letter) for letter in "abc"]),
        ask([make_request(letter) for letter in "bcd"]),
    )
    assert [reply.text for reply in first] == ["A", "B", "C"]
    assert [reply.text for reply in second] == ["B", "C", "D"]
    assert engine.calls == ["abc", "d"]


async def test_a_budget_cuts_a_batch_exactly_and_keeps_what_it_paid_for(cache):
    engine = Batching()
    requests = [make_request(letter) for letter in "abcde"]
    ask = make_asker(engine, cache, budget=Budget(calls=3))
    waiting = asyncio.create_task(ask(requests[:1]))
    with pytest.raises(BudgetReached):
        await ask(requests)
    # Whoever waited for a reply that came gets it, though the batch as a whole was stopped.
    assert (await waiting)[0].text == "A"
    assert "".join(engine.calls) == "abc"
    assert len(cache.get_many([request.key(engine.identity) for request in requests])) == 3
    await make_asker(engine, cache)(requests)
    assert engine.calls[-1] == "de"


async def test_a_failing_batch_counts_once_towards_giving_up():
    refuse = Completion(finish="error", fault=Fault("auth", "HTTP 401"))
    engine = Batching({letter: [refuse] * 9 for letter in "abc"})
    ask = make_asker(engine, fatal_after=2)
    with pytest.raises(EngineError):
        await ask([make_request(letter) for letter in "abc"])
    assert engine.calls == ["abc", "abc"]


async def test_no_try_begins_after_the_deadline(monkeypatch):
    now = 100.0

    async def pass_time(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr("curate.engines.retrying.time.monotonic", lambda: now)
    monkeypatch.setattr("curate.engines.retrying.asyncio.sleep", pass_time)
    engine = ScriptedEngine(lambda request: Fault("server", retry_after=20.0))
    ask = make_asker(engine, retries=50, deadline=70.0)
    [reply] = await ask([make_request("a")])
    assert reply.fault.kind == "server"
    assert len(engine.requests) == 4  # at 0, 20, 40 and 60 s


@pytest.mark.parametrize("logprob", [math.nan, math.inf, 1.0, 710.0])
async def test_a_log_probability_that_is_none_is_asked_for_again_and_never_kept(cache, logprob):
    read = Completion(text="4", first_token=(("4", logprob), ("5", -1.0)))
    good = Completion(text="4", first_token=(("4", -0.5), ("5", -1.0)))
    engine = ScriptedEngine([read, good], capabilities=[Capability.TOP_LOGPROBS])
    accounting = Accounting()
    ask = make_asker(engine, cache, accounting=accounting)
    for _ in range(2):
        assert await ask([make_request("a", labels=("4", "5"))]) == [good]
    assert accounting.total.faults == {"malformed_reply": 1}


async def test_a_probability_of_0_is_kept_as_a_number(cache):
    read = Completion(text="4", first_token=(("4", -0.5), ("5", -math.inf)))
    engine = ScriptedEngine([read], capabilities=[Capability.TOP_LOGPROBS])
    ask = make_asker(engine, cache)
    for _ in range(2):
        [reply] = await ask([make_request("a", labels=("4", "5"))])
        assert reply.first_token == (("4", -0.5), ("5", -9999.0))


async def test_every_third_reply_is_none_and_none_of_them_is_kept(tmp_path):
    asked = 0

    def answer(body):
        nonlocal asked
        asked += 1
        good = chat_completion(answer_by_hash(body), body)
        if asked % 3:
            return good
        message, choice = good["choices"][0]["message"], good["choices"][0]
        if "logprobs" in choice:
            del choice["logprobs"]
        else:
            message["content"] = None
        return good

    requests = [make_request(f"yes or no? {n}", labels=("yes", "no")) for n in range(30)]
    requests += [make_request(f"say something {n}") for n in range(30)]
    async with CountingServer() as server:
        engine = await open_engine(
            OpenAIConfig(model="fake-judge", base_url=server.base_url, in_flight=1)
        )
        with ReplyCache(tmp_path / "r.sqlite") as cache:
            expected = await make_asker(engine, None)(requests)
            server.answer = answer
            accounting = Accounting()
            replies = await make_asker(engine, cache, accounting=accounting)(requests)
            assert accounting.total.faults["malformed_reply"] == 29
            assert replies == expected
            kept = await make_asker(ScriptedLike(engine), cache)(requests)
            assert kept == expected
        await engine.close()


class ScriptedLike(ScriptedEngine):
    """Stands for another engine's identity, and has nothing to say."""

    def __init__(self, engine):
        super().__init__([], capabilities=engine.capabilities)
        self.identity = engine.identity
