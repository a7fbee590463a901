"""Each layer of the client by itself, above an inner layer that does as it is told."""

import asyncio

import pytest

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Capability, Completion, EngineIdentity, Fault, Request, Usage
from curate.engines.cache import ReplyCache
from curate.engines.client import (
    Budgeted,
    Cached,
    Recorded,
    SingleFlight,
    TrunkFirst,
)
from curate.engines.config import Prices
from curate.engines.layout import Trunk
from curate.engines.retrying import OneByOne, Retrying
from curate.engines.scripted import DEFAULT_CAPABILITIES, ScriptedEngine
from curate.errors import BudgetReached, EngineError
from tests.engines.waiting import settle, until

IDENTITY = EngineIdentity("scripted", "m")
USAGE = Usage(prompt_tokens=10, completion_tokens=2)


def failed(kind: str, **fields) -> Completion:
    return Completion(finish="error", fault=Fault(kind, **fields))


def key(letter: str) -> str:
    return f"{ord(letter):032x}"


def calls(letters: str) -> dict[str, Request]:
    return {
        key(one): Request(Trunk("t"), one, max_tokens=1, purpose="judge.turn") for one in letters
    }


class Inner:
    """Answers each call with its letter, or with what the script has for it; notes the calls."""

    def __init__(self, script=None):
        self.script = {letter: list(replies) for letter, replies in (script or {}).items()}
        self.asked = []
        self.release = None

    async def complete(self, calls, answer):
        self.asked.append("".join(request.question for request in calls.values()))
        if self.release is not None:
            await self.release.wait()
        for name, request in calls.items():
            waiting = self.script.get(request.question)
            reply = waiting.pop(0) if waiting else Completion(text=request.question, usage=USAGE)
            if isinstance(reply, Exception):
                raise reply
            answer(name, reply)


async def ask(layer, letters: str) -> str:
    """The texts of the answers, a fault as its kind's first letter in capitals."""
    answers = {}
    await layer.complete(calls(letters), answers.__setitem__)
    assert answers.keys() == calls(letters).keys()
    return "".join(
        one.text if one.fault is None else one.fault.kind[0].upper()
        for one in (answers[key(letter)] for letter in letters)
    )


async def test_cached_asks_for_what_is_missing_and_keeps_nothing_itself(tmp_path):
    inner, accounting = Inner(), Accounting()
    with ReplyCache(tmp_path / "r.sqlite") as cache:
        await cache.put({key("a"): Completion(text="A")})
        layer = Cached(inner, cache, accounting)
        assert await ask(layer, "ab") == "Ab"
        assert await ask(layer, "ab") == "Ab"
    assert inner.asked == ["b", "b"]
    assert accounting.total.hits == 2


async def test_cached_refreshes_what_it_is_told_until_it_has_a_reply(tmp_path):
    inner = Inner({"a": [failed("server"), Completion(text="new")]})
    with ReplyCache(tmp_path / "r.sqlite") as cache:
        await cache.put({key("a"): Completion(text="old")})
        layer = Cached(inner, cache, Accounting(), refresh={"judge"})
        assert [await ask(layer, "a") for _ in range(3)] == ["S", "new", "old"]


@pytest.mark.parametrize(
    ("capabilities", "asked"),
    [
        (DEFAULT_CAPABILITIES, ["a", "b", "c"]),
        (DEFAULT_CAPABILITIES | {Capability.BATCH}, ["abc"]),
        ((), ["a", "b", "c"]),
    ],
)
async def test_trunk_first_asks_alone_then_together_or_as_a_batch(capabilities, asked):
    inner = Inner()
    layer = TrunkFirst(inner, ScriptedEngine([], capabilities=capabilities))
    inner.release = asyncio.Event()
    task = asyncio.create_task(ask(layer, "abc"))
    await until(lambda: inner.asked)
    await settle()
    assert len(inner.asked) == 1
    inner.release.set()
    assert await task == "abc"
    assert inner.asked == asked


async def test_single_flight_joins_equal_calls_and_takes_over_where_one_fails():
    inner, accounting = Inner({"a": [EngineError("gone")]}), Accounting()
    inner.release = asyncio.Event()
    layer = SingleFlight(inner, accounting)
    first, second = (asyncio.create_task(ask(layer, letters)) for letters in ("a", "ab"))
    third = asyncio.create_task(ask(layer, "b"))
    await until(lambda: inner.asked == ["a", "b"])
    await settle()
    inner.release.set()
    with pytest.raises(EngineError):
        await first
    assert (await second, await third) == ("ab", "b")
    assert inner.asked == ["a", "b", "a"]
    assert accounting.total.hits == 1


def retrying(inner, **options) -> Retrying:
    return Retrying(inner, IDENTITY, **{"retries": 2, "base_delay": 0.001, **options})


async def test_retrying_repeats_only_what_failed_in_passing():
    inner = Inner(
        {"a": [failed("server")] * 2, "b": [failed("bad_request")], "c": [failed("timeout")] * 9}
    )
    assert await ask(retrying(inner), "abcd") == "aBTd"
    assert inner.asked == ["abcd", "ac", "ac"]


async def test_retrying_begins_no_try_after_the_deadline():
    inner = Inner({"a": [failed("server", retry_after=60.0)] * 9})
    assert await ask(retrying(inner, deadline=1.0), "a") == "S"
    assert inner.asked == ["a"]


async def test_retrying_gives_an_engine_up_that_fails_for_good():
    inner = Inner({"a": [failed("auth", detail="HTTP 401")] * 9})
    layer = retrying(inner, fatal_after=2)
    for letter in "ab":
        with pytest.raises(EngineError, match="HTTP 401"):
            await ask(layer, letter)
    assert inner.asked == ["a", "a"]


async def test_retrying_answers_with_a_refusal_where_others_come_through():
    class Shared(Inner):
        async def complete(self, calls, answer):
            if key("a") in calls:
                assert await ask(layer, "b") == "b"
            await super().complete(calls, answer)

    inner = Shared({"a": [failed("auth")] * 9})
    layer = retrying(inner, fatal_after=3)
    assert await ask(layer, "a") == "A"
    assert inner.asked == ["b", "a"] * 3


async def test_retrying_counts_what_is_forbidden_about_one_dialogue_once():
    inner = Inner({letter: [failed("auth", status=403)] * 9 for letter in "acd"})
    layer = retrying(inner, fatal_after=3)
    assert await ask(layer, "a") == "A"
    assert await ask(layer, "a") == "A"
    assert await ask(layer, "c") == "A"
    with pytest.raises(EngineError):
        await ask(layer, "d")


async def test_one_by_one_asks_each_alone_where_a_whole_list_failed():
    overflow = [failed("context_overflow")]
    inner = Inner({"a": overflow * 1, "b": overflow * 2})
    assert await ask(OneByOne(inner), "ab") == "aC"
    assert inner.asked == ["ab", "a", "b"]
    inner = Inner({"b": overflow * 2})
    assert await ask(OneByOne(inner), "ab") == "aC"
    assert inner.asked == ["ab"]


async def test_one_by_one_hands_over_what_came_before_the_end():
    answers = {}
    layer = OneByOne(Inner({"b": [BudgetReached("over")]}))
    with pytest.raises(BudgetReached):
        await layer.complete(calls("abc"), answers.__setitem__)
    assert answers.keys() == {key("a")}


async def test_budgeted_asks_what_is_allowed():
    inner, answers = Inner(), {}
    budget = Budget(calls=3)
    layer = Budgeted(inner, budget)
    assert await ask(layer, "a") == "a"
    with pytest.raises(BudgetReached):
        await layer.complete(calls("abcd"), answers.__setitem__)
    assert inner.asked == ["a", "ab"]
    assert answers.keys() == {key("a"), key("b")}
    assert budget.used_calls == 3


async def test_recorded_counts_what_a_reply_used_before_it_is_kept(tmp_path):
    budget = Budget(tokens=12)
    replies = [Completion(text="a", usage=USAGE)]
    with ReplyCache(tmp_path / "r.sqlite") as cache:
        prices = Prices(input=1e6, output=0)
        layer = Recorded(ScriptedEngine(replies), cache, Accounting(), budget, prices)
        asking = asyncio.create_task(layer.complete(calls("a"), lambda *_: None))
        await asyncio.sleep(0)
        assert not cache.get_many([key("a")])
        assert (budget.used_tokens, budget.used_money) == (12, 10.0)
        with pytest.raises(BudgetReached):
            budget.start_call()
        await asking
        assert cache.get_many([key("a")])


async def test_recorded_keeps_replies_and_refusals_before_it_answers(tmp_path):
    kept_when_answered = {}
    replies = [Completion(text="a", usage=USAGE), failed("refused"), failed("server")]
    accounting = Accounting()
    with ReplyCache(tmp_path / "r.sqlite") as cache:
        layer = Recorded(ScriptedEngine(replies), cache, accounting)
        await layer.complete(
            calls("abc"),
            lambda name, _: kept_when_answered.update({name: cache.get_many([name])}),
        )
    assert [bool(kept_when_answered[key(letter)]) for letter in "abc"] == [True, True, False]
    assert (accounting.total.sent, accounting.total.prompt_tokens) == (3, 10)
    assert accounting.total.faults == {"refused": 1, "server": 1}
