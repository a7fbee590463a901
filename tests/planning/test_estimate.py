"""The estimate foretells what a run then asks, says how sure it is, and stands beside the outcome."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message
from curate.engines.base import Capability, Completion, Request, Usage
from curate.engines.layout import Trunk
from curate.engines.model_pool import Asks, ModelPool
from curate.engines.scripted import ScriptedEngine
from curate.engines.stand_in import Expected, StandIn, likely_instance, plain_text, settled
from curate.engines.tokens import PromptTokens
from curate.errors import EngineError, UsageError
from curate.pairs.config import ForkConfig
from curate.pairs.expected_load import EXTRA_WORD, one_word_longer, with_a_bad_turn
from curate.planning.estimate import AssumedShare, Reservoir, estimate
from curate.planning.estimate_beside_actual import compare
from curate.planning.metering import Meter, TokenCounter, token_counter
from curate.planning.rates import measure_rates, parse_rates, rates_of
from curate.recipe import Recipe, parse_recipe
from curate.records import Judgment, Manifest, PreferencePair, Rates, StageCounts
from curate.stages import WorkItem, bind_stages
from tests.pairs.scripted import candidates_of

pytestmark = pytest.mark.usefixtures("all_sampled")

CAPABILITIES = frozenset({Capability.TOP_LOGPROBS, Capability.JSON_SCHEMA, Capability.PREFILL})
CHARACTERS = TokenCounter(plain_text, lambda text: float(len(text)), "characters")


def dialogue(number: int, turns: int = 2) -> Dialogue:
    messages = [
        Message(role=role, content=f"{role} says {number} in turn {turn}.")
        for turn in range(turns)
        for role in ("user", "assistant")
    ]
    return Dialogue(
        id=f"d{number}", messages=tuple(messages), role_definition="A clerk.", scenario="A shop."
    )


def recipe(**sections: Any) -> Recipe:
    prices = {"input": 2.0, "output": 10.0, "cached_input": 0.5}
    model = {"engine": "scripted", "replies": [], "prices": prices}
    given = {"name": "test", "source": {"path": "none"}, "models": {"judge": model}}
    return parse_recipe(given | {"adherence": {"output_mode": "continuous"}} | sections)


def models(**options: Any) -> ModelPool:
    def refuse(request: Request) -> Completion:
        raise AssertionError("an estimate asks no model")

    engine = ScriptedEngine(refuse, capabilities=CAPABILITIES, **options)
    return ModelPool(engine)


def foretell(
    of: Recipe, sample: Sequence[Dialogue], total: int | None = None, **options: Any
) -> Any:
    return estimate(of, sample, total or len(sample), models(), **options)


# --- sampling


@given(st.integers(0, 200), st.integers(1, 40))
def test_a_reservoir_keeps_distinct_dialogues_and_counts_all(number: int, size: int) -> None:
    sample = Reservoir(size)
    for index in range(number):
        sample.add(dialogue(index, turns=1))
    ids = [dialogue.id for dialogue in sample.dialogues]
    assert sample.seen == number
    assert len(ids) == len(set(ids)) == min(number, size)


def test_a_reservoir_draws_from_the_whole_source() -> None:
    """The first rows of a sorted source are not like the rest: short ones first, long ones last."""
    sample = Reservoir(100)
    for index in range(5000):
        sample.add(dialogue(index, turns=1))
    places = [int(dialogue.id[1:]) for dialogue in sample.dialogues]
    assert 2000 < fmean(places) < 3000
    assert max(places) > 4500


# --- figures


def test_requests_and_tokens_scale_up_and_a_whole_sample_leaves_no_doubt() -> None:
    some = [dialogue(index, turns=1 + index % 3) for index in range(12)]
    whole, tenfold = foretell(recipe(), some), foretell(recipe(), some, total=120)
    assert tenfold.total.requests == 10 * whole.total.requests
    assert whole.total.intervals["requests"] == (whole.total.requests,) * 2
    low, high = tenfold.total.intervals["prompt_tokens"]
    assert low < tenfold.total.prompt_tokens < high
    assert sum(stage.requests for stage in whole.stages.values()) == whole.total.requests
    assert whole.total.prefilled_tokens < whole.total.prompt_tokens / 3


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(7)
    source = [dialogue(index, turns=draw.choice((1, 2, 2, 3, 5, 8))) for index in range(300)]
    truth = foretell(recipe(judge=False), source).total.requests
    hits = 0
    for _ in range(40):
        low, high = foretell(recipe(judge=False), draw.sample(source, 30), 300).total.intervals[
            "requests"
        ]
        hits += low <= truth <= high
    assert hits >= 33


# The quantiles of Student's t for one and three degrees of freedom, as in any table of it.
@pytest.mark.parametrize(("turns", "t"), [((2, 3), 12.706), ((2, 3, 3, 4), 3.182)])
def test_the_interval_is_the_textbook_one(turns: tuple[int, ...], t: float) -> None:
    some = [dialogue(index, turns=count) for index, count in enumerate(turns)]
    found = foretell(recipe(judge=False), some, total=100)
    n = len(turns)
    half = t * stdev(turns) * (1 - n / 100) ** 0.5 / n**0.5 * 100
    low, high = found.total.intervals["requests"]
    assert high - found.total.requests == pytest.approx(half, rel=0.01)
    assert low == pytest.approx(max(sum(turns), found.total.requests - half), rel=0.01)


def test_time_follows_the_rates_and_cost_the_prices() -> None:
    rates = Rates(prefill=1000, decode=50, source="as given")
    found = foretell(recipe(), [dialogue(index) for index in range(5)], rates=rates)
    total = found.total
    assert found.seconds == pytest.approx(
        total.prefilled_tokens / 1000 + total.completion_tokens / 50, rel=0.01
    )
    cached = total.prompt_tokens - total.prefilled_tokens
    paid = 2.0 * total.prefilled_tokens + 0.5 * cached + 10 * total.completion_tokens
    assert found.cost == pytest.approx(paid / 1e6, rel=0.01)
    without = 2.0 * total.prompt_tokens + 10 * total.completion_tokens
    assert found.cost_without_cache == pytest.approx(without / 1e6, rel=0.01)


def test_forks_are_counted_by_their_share_and_the_share_is_said() -> None:
    forking = recipe(
        fork={"resamples": 2},
        models={role: {"engine": "scripted", "replies": []} for role in ("judge", "policy")},
    )
    some = [dialogue(index, turns=3) for index in range(6)]
    all_, half = (
        foretell(forking, some, fork_share=AssumedShare(value, "as given")) for value in (1.0, 0.5)
    )
    assert all_.stages["fork"].requests == pytest.approx(2 * half.stages["fork"].requests, abs=1)
    # Original and three candidates in three wordings of three scores, resamples and revision (the judge's words say
    # what is wrong); for each candidate both orders of a question about its new detail and of a comparison; the best two side by side, and
    # two scores of the role of the one that passes.
    assert all_.stages["fork"].requests == 6 * (4 * 3 * 3 + 2 + 1 + 3 * 2 + 3 * 2 + 2 + 2)
    assert any("50% of the dialogues are forked (as given)" in line for line in half.assumptions)
    assert half.cost is None  # no prices were given


class Agreeing:
    """A judge that finds everything as the estimate assumes it to be, and writers as long-winded as it does."""

    def __init__(self, config: ForkConfig | None = None) -> None:
        self.config = config
        self.revised = "no revision yet"

    def __call__(self, request: Request) -> Completion:
        step = request.purpose.partition(".")[2]
        if not request.labels and request.schema is None:
            said = settled(StandIn()([request]))[0]
            if step == "revise":
                self.revised = said.text.strip()
            return said
        if request.schema is not None:
            return Completion(text=json.dumps(self.reply(step, request)))
        best = self.label(step, request)
        return Completion(text=best, first_token=((best, -0.01),))

    def reply(self, step: str, request: Request) -> Any:
        """In JSON: the letter that a label would be, or the same score for all."""
        assert request.schema is not None
        if "answer" in request.schema["properties"]:
            letters = request.schema["properties"]["answer"]["enum"]
            return {"answer": self.label(step, replace(request, labels=tuple(letters)))}
        return likely_instance(request.schema, last=self.is_better(request))

    def label(self, step: str, request: Request) -> str:
        text = plain_text(request)
        if step == "compare":
            is_new = ["word word" in side or EXTRA_WORD in side for side in candidates_of(request)]
            loses = self.config and self.config.early_stop and self.revised not in text
            return "A" if is_new[0] != bool(loses) else "B"
        options = {said: name for name, said in re.findall(r"(?m)^([A-Z]) = (.+)$", text)}
        if step in ("specifics", "suffices"):
            word = "none" if step == "specifics" else "yes"
            return next(name for said, name in options.items() if said.startswith(word))
        if step == "role":
            return "yes"
        return request.labels[-1 if self.is_better(request) else 0]

    def is_better(self, request: Request) -> bool:
        """Whether the dialogue that is shown ends with a made-up better side, or it is asked about another turn."""
        text = plain_text(request)
        is_fine = "word word" in text or EXTRA_WORD in text
        is_first = "turn 1" in text.partition("</dialogue>")[2]
        return is_fine or (is_first and request.purpose.endswith(".turns"))


def prompts(requests: Iterable[Request]) -> list[str]:
    return [plain_text(request) for request in requests]


@pytest.mark.parametrize("mode", ["tokens", "json"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"at": "earliest", "principles": ("Be exact.",)},
        {"early_stop": True},
        {"guided_revision": False},
        {"factuality": {}},
    ],
)
def test_a_fork_that_goes_all_the_way_asks_what_is_expected(
    options: dict[str, Any], mode: str
) -> None:
    of_fork = {name: value for name, value in options.items() if name != "factuality"}
    forking = recipe(
        judge={"mode": mode},
        fork={"resamples": 2, "min_confidence": 1, **of_fork},
        factuality=options.get("factuality", False),
        models={role: {"engine": "scripted", "replies": []} for role in ("judge", "policy")},
    )
    assert forking.fork
    engine = ScriptedEngine(Agreeing(forking.fork), capabilities=CAPABILITIES)
    stages = bind_stages(forking, ModelPool(engine))
    assert stages.judge is not None
    assert stages.fork is not None
    some = dialogue(0, turns=3)
    asks = Asks.of(engine.complete)
    found = asyncio.run(stages.judge.run(WorkItem(some), asks))
    assert isinstance(found, Judgment)
    found = with_a_bad_turn(found, 1, forking.fork)
    engine.requests.clear()
    pairs = asyncio.run(stages.fork.run(WorkItem(some, found), asks))
    assert sum(pair.drop_reason is None for pair in pairs) == 1
    expected = stages.fork.expected_load(some, at=1)
    assert prompts(call.request for call in expected) == prompts(engine.requests)
    estimated = foretell(forking, [some], fork_share=AssumedShare(1.0, "as given"))
    assert estimated.stages["fork"].requests == len(engine.requests)
    # the second of its turns is taken for the weakest, and prompts and replies are as long
    characters = sum(map(len, prompts(engine.requests)))
    assert estimated.stages["fork"].prompt_tokens == pytest.approx(characters / 4, abs=1)


@pytest.mark.parametrize("mode", ["tokens", "json"])
@pytest.mark.parametrize("stage", ["judge", "adherence"])
def test_scoring_a_dialogue_asks_what_is_expected(stage: str, mode: str) -> None:
    output = {"tokens": "continuous", "json": "binary"}[mode]
    scoring = recipe(judge={"mode": mode, "text": "off"}, adherence={"output_mode": output})
    engine = ScriptedEngine(Agreeing(), capabilities=CAPABILITIES)
    bound = getattr(bind_stages(scoring, ModelPool(engine)), stage)
    some = dialogue(0, turns=9)
    asyncio.run(bound.run(WorkItem(some), Asks.of(engine.complete)))
    expected = bound.expected_load(some)
    assert prompts(call.request for call in expected) == prompts(engine.requests)
    assert {call.role for call in expected} == {"judge"}


@pytest.mark.parametrize("mode", ["tokens", "json"])
def test_every_dialogue_is_expected_to_be_asked_for_words_and_that_is_said(mode: str) -> None:
    with_words, without = (
        foretell(recipe(judge={"mode": mode, "text": text}), [dialogue(0, turns=3)])
        for text in ("auto", "off")
    )
    asked, bare = (made.stages["judge"] for made in (with_words, without))
    assert asked.requests == bare.requests + 1
    assert asked.completion_tokens > bare.completion_tokens + 50
    said = "words are asked for about every dialogue, as if none were excellent"
    assert said in with_words.assumptions
    assert said not in without.assumptions


@pytest.mark.parametrize("mode", ["tokens", "json"])
def test_verifying_a_natural_pair_asks_what_is_expected(mode: str) -> None:
    verifying = recipe(judge={"mode": mode}, natural={"verify": True})
    engine = ScriptedEngine(Agreeing(), capabilities=CAPABILITIES)
    natural = bind_stages(verifying, ModelPool(engine)).natural
    assert natural is not None
    some = dialogue(0, turns=3)
    last = some.messages[-1]
    prompt = some.model_copy(update={"messages": some.messages[:-1]})
    pair = PreferencePair(
        pair_id="0" * 32,
        dialogue_id=some.id,
        content_hash=some.content_hash,
        source="natural",
        basis="label",
        turn=3,
        prompt=prompt.messages,
        chosen=one_word_longer(last),
        rejected=last,
    )
    verified = asyncio.run(natural.run(WorkItem(prompt, pair=pair), Asks.of(engine.complete)))
    assert verified.drop_reason is None, verified.detail
    expected = natural.expected_load(some)
    assert prompts(call.request for call in expected) == prompts(engine.requests)


def test_nothing_is_expected_of_a_dialogue_that_gives_no_pair() -> None:
    both = recipe(
        fork={"resamples": 2},
        natural={"verify": True},
        models={role: {"engine": "scripted", "replies": []} for role in ("judge", "policy")},
    )
    stages = bind_stages(both, models())
    silent = dialogue(0).model_copy(update={"messages": dialogue(0).messages[:1]})
    assert stages.natural is not None
    assert stages.fork is not None
    assert stages.natural.expected_load(silent) == []
    assert stages.fork.expected_load(silent) == []


# --- counting


def test_prefilled_is_what_a_prompt_does_not_share_with_the_one_before() -> None:
    meter, loads = Meter(CHARACTERS), []
    texts = ("abcdef", "abcxyz!", "abcxyz!?", "abc", "q")
    for text in texts:
        request = Request(Trunk(text), max_tokens=4)
        loads.append(meter.load([Expected("judge", request, Completion(text="four"))]))
    assert [load.prompt for load in loads] == [len(text) for text in texts]
    assert [load.prefilled for load in loads] == [6, 4, 1, 0, 1]
    assert {(load.requests, load.completion) for load in loads} == {(1, 4)}


@given(st.lists(st.text("ab", max_size=12), min_size=1, max_size=8))
def test_counting_by_pieces_is_counting_the_whole(texts: list[str]) -> None:
    meter, last = Meter(CHARACTERS), ""
    for text in texts:
        prompt, prefilled = meter.measure(text)
        shared = next(
            (i for i, (a, b) in enumerate(zip(text, last, strict=False)) if a != b),
            min(len(text), len(last)),
        )
        assert (prompt, prefilled) == (len(text), len(text) - shared)
        last = text


def test_the_engines_own_tokenizer_counts_where_there_is_one() -> None:
    class Words(PromptTokens):
        def __init__(self) -> None:
            """Without a tokenizer."""

        def prompt_text(self, request: Request) -> str:
            return "<user> " + plain_text(request)

        def encode(self, text: str) -> list[int]:
            return [0] * len(text.split())

    engine = ScriptedEngine([])
    assert token_counter(engine).count("eight characters") == 4
    engine.prompts = Words()  # type: ignore[attr-defined]
    counter = token_counter(engine)
    asked = Request(Trunk("one two three"), max_tokens=1)
    assert counter.count(counter.render(asked)) == 4
    assert "own tokenizer" in counter.described


@pytest.mark.parametrize("mode", ["binary", "continuous"])
def test_no_question_is_asked_twice(mode: str) -> None:
    found = foretell(recipe(judge=False, adherence={"output_mode": mode}), [dialogue(0, turns=4)])
    assert found.total.requests == 4
    assert found.total.completion_tokens <= 4


def test_a_likely_reply_is_valid() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 5]}, "b": {"type": "string"}, "c": {"type": "array"}},
        "required": ["a", "b", "c"],
    }
    assert likely_instance(schema)["a"] == 1
    assert likely_instance(schema, last=True)["a"] == 5


# --- rates


def test_rates_are_read_and_anything_else_is_refused() -> None:
    assert parse_rates("prefill=2000,decode=80").decode == 80
    for text in ("2000", "prefill=2000", "prefill=0,decode=1", "prefill=a,decode=b"):
        with pytest.raises(UsageError, match="prefill="):
            parse_rates(text)


def test_rates_of_a_run_count_what_it_prefilled_and_generated() -> None:
    stage = StageCounts(
        requests_sent=9, prompt_tokens=1000, cached_tokens=400, completion_tokens=100
    )
    manifest = Manifest(
        name="x",
        status="done",
        started="",
        stages={"judge": stage, "select": StageCounts()},
        seconds_by_stage={"judge": 7.0, "export": 100.0},
    )
    rates = rates_of(manifest, "runs/x")
    assert rates is not None
    assert rates.prefill == rates.decode == pytest.approx(100)
    assert rates_of(Manifest(name="x", status="done", started=""), "runs/x") is None


def test_measuring_asks_few_questions_and_counts_them() -> None:
    engine = ScriptedEngine(
        lambda request: Completion(usage=Usage(500, 100, request.max_tokens)),
        capabilities=CAPABILITIES,
        open_dialogues=3,
    )
    measured = asyncio.run(measure_rates(recipe(), [dialogue(n) for n in range(5)], engine))
    assert measured.calls == len(engine.requests) == 6
    assert measured.usage.prompt_tokens == 3000
    assert measured.rates.prefill > 0
    assert [request.max_tokens for request in engine.requests[:3]] == [1, 1, 1]
    silent = ScriptedEngine(lambda request: Completion(), capabilities=CAPABILITIES)
    with pytest.raises(EngineError, match="--rate"):
        asyncio.run(measure_rates(recipe(), [dialogue(0)], silent))


# --- beside what happened


def ended(**more: Any) -> Manifest:
    expected = foretell(recipe(adherence=False), [dialogue(n) for n in range(4)])
    stage = {
        "rows": 4,
        "requests": expected.total.requests,
        "requests_sent": expected.total.requests,
    }
    given = {
        "name": "x",
        "status": "done",
        "started": "",
        "estimate": expected,
        "stages": {"judge": StageCounts(**(stage | more.pop("judge", {})))},
        "tokens_in": 900,
        "tokens_cached": 600,
        "tokens_out": 30,
    }
    return Manifest(**(given | more))


def test_expected_stands_beside_actual() -> None:
    compared = compare(ended(seconds_by_stage={"judge": 2.5, "export": 9.0}, cost=0.25))
    assert compared is not None
    rows = {row.name: row for row in compared.rows}
    assert rows["requests"].expected == rows["requests"].actual
    assert rows["  of these prefilled"].actual == 300
    assert rows["seconds asking"].actual == 2.5
    assert rows["seconds asking"].shown(rows["seconds asking"].expected) == "not known"
    assert rows["cost"].actual == 0.25
    assert compare(Manifest(name="x", status="done", started="")) is None


def test_what_was_there_before_is_not_expected_again() -> None:
    half = compare(ended(judge={"reused": 2, "requests_sent": 0}))
    whole = compare(ended())
    assert half is not None
    assert whole is not None
    assert half.rows[0].expected == pytest.approx((whole.rows[0].expected or 0) / 2)
    assert any("kept replies" in note for note in half.notes)
    stopped = compare(ended(status="budget", judge={"rows": 0}))
    assert stopped is not None
    assert any("did not get to its end" in note for note in stopped.notes)


def test_an_estimate_survives_the_manifest() -> None:
    manifest = ended()
    assert Manifest.model_validate(json.loads(manifest.model_dump_json())) == manifest
