"""The vLLM engine: what it is, what it answers, what it reports, how it fails."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from itertools import pairwise, takewhile
from pathlib import Path

import pytest

from curate.adherence.config import AdherenceConfig
from curate.dialogue import Dialogue
from curate.engines.accounting import Accounting
from curate.engines.base import Capability, Completion, Request
from curate.engines.client import Client
from curate.engines.config import VllmConfig
from curate.engines.label_mass import read_label_mass
from curate.engines.layout import Trunk
from curate.engines.model_pool import Asks
from curate.engines.open import open_engine
from curate.engines.structured import BadReply, read_object
from curate.engines.tokens import PromptTokens
from curate.engines.vllm import VllmEngine
from curate.errors import EngineError, UsageError
from curate.judging.config import RubricConfig
from curate.records import AdherenceScore, Judgment
from curate.sources import open_source
from curate.sources.config import SourceConfig
from curate.stages import WorkItem, adherence_stage, judge_stage
from tests.vllm.conftest import CONTEXT

pytestmark = pytest.mark.asyncio(loop_scope="session")

SAMPLE = Path(__file__).resolve().parents[2] / "recipes" / "sample" / "support.jsonl"
BLOCK = 32
DIGITS = tuple("12345")
TRUNK = "You are a judge.\n" + "[1.user]\nThe user asked for a refund, politely.\n" * 20
SCHEMA = {
    "type": "object",
    "properties": {
        "turn_1": {
            "type": "object",
            "properties": {"score": {"type": "integer", "minimum": 71, "maximum": 75}},
        },
        "words": {"type": "array", "items": {"enum": ["plover", "quux"]}, "maxItems": 2},
        "mark": {"anyOf": [{"type": "integer", "minimum": 8, "maximum": 9}, {"const": "n/a"}]},
    },
}


def make_request(text: str, **fields: object) -> Request:
    fields.setdefault("max_tokens", 8)
    return Request(Trunk(text), **fields)  # type: ignore[arg-type]


def label_read(question: str, **fields: object) -> Request:
    return make_request(TRUNK + question, labels=DIGITS, prefill="(", max_tokens=1, **fields)


async def ask(engine: VllmEngine, text: str, **fields: object) -> Completion:
    [completion] = await engine.complete([make_request(text, **fields)])
    return completion


def read_dialogues(count: int) -> list[Dialogue]:
    units = open_source(SourceConfig(path=str(SAMPLE))).read()
    return [dialogue for unit in units for dialogue in unit.dialogues][:count]


async def test_it_says_what_it_is(engine: VllmEngine, model_folder: Path) -> None:
    identity, detail = engine.identity, dict(engine.identity.detail)
    assert (identity.engine, identity.model) == ("vllm", model_folder.name)
    assert identity.revision.startswith("files:")
    assert detail["dtype"] == "float32"
    assert {"chat_template", "tokenizer"} <= detail.keys()
    assert "engine_args" not in detail  # those given here do not change a reply
    assert engine.context_tokens == CONTEXT
    assert 2 <= engine.open_dialogues <= 64
    assert engine.capabilities >= {Capability.LABEL_LOGPROBS, Capability.JSON_SCHEMA}
    assert Capability.TOP_LOGPROBS not in engine.capabilities


async def test_it_answers_and_counts_tokens(engine: VllmEngine) -> None:
    reply = await ask(engine, "Say hello.", max_tokens=4)
    assert reply.text
    assert reply.finish == "length"
    assert reply.usage.completion_tokens == 4
    assert reply.usage.prompt_tokens > 10


async def test_siblings_find_the_trunk_in_the_cache(engine: VllmEngine) -> None:
    [first] = await engine.complete([label_read("Was it polite?")])
    others = await engine.complete([label_read(f"Was it {word}?") for word in ("safe", "right")])
    for other in others:
        # All but the question, its own block and the rest of the trunk's last one.
        assert other.usage.cached_tokens >= first.usage.prompt_tokens - 64


async def test_every_label_is_read_from_the_full_softmax(
    engine: VllmEngine, model_folder: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    requests = [label_read(f"How {word} was it, from 1 to 5?") for word in ("good", "bad", "odd")]
    yes_no = make_request(TRUNK + "Polite? YES or NO.", labels=("yes", "Yes", "no", "No"))
    replies = await engine.complete([*requests, yes_no])
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    prompts = PromptTokens(AutoTokenizer.from_pretrained(model_folder))
    errors = []
    for request, reply in zip([*requests, yes_no], replies, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompts.prompt_ids(request)])).logits[0, -1]
        expected = torch.log_softmax(logits.double(), -1)
        ids = prompts.label_ids(request)
        assert reply.exact_labels
        assert sorted(text for text, _ in reply.first_token) == sorted(ids.values())
        assert set(read_label_mass(reply, request.labels).logprobs) == set(request.labels)
        read = dict(reply.first_token)
        errors += [abs(read[text] - float(expected[token])) for token, text in ids.items()]
    print(f"largest error of {len(errors)} label log-probabilities: {max(errors):.2e}")
    assert max(errors) < 1e-3


async def test_a_label_read_is_that_of_temperature_one_whatever_is_sampled(
    engine: VllmEngine,
) -> None:
    cold, warm = await engine.complete(
        [label_read("Good?"), label_read("Good?", temperature=1.5, top_p=0.1, sample=3)]
    )
    assert dict(warm.first_token) == pytest.approx(dict(cold.first_token), abs=1e-3)


async def test_a_reply_is_bound_by_its_schema_without_free_whitespace(engine: VllmEngine) -> None:
    replies = await engine.complete(
        [
            make_request(text, schema=SCHEMA, max_tokens=80, prefill="{")
            for text in ("List ten animals.", "Tell me a long story.")
        ]
    )
    for reply in replies:
        value = read_object(reply, SCHEMA)
        assert not isinstance(value, BadReply), (reply, value)
        assert reply.text.startswith('{"turn_1": {"score": 7')
        assert not set("\n\t") & set(reply.text)
        assert "  " not in reply.text


async def test_a_schema_that_is_none_is_refused_and_not_ignored(engine: VllmEngine) -> None:
    reply = await ask(engine, "hi", schema={"type": "flub"})
    assert reply.fault is not None
    assert reply.fault.kind == "bad_request"


async def test_a_begun_reply_is_continued_and_not_repeated(engine: VllmEngine) -> None:
    reply = await ask(engine, "Count up to ten.", prefill="one, two, three,", max_tokens=6)
    assert not reply.text.startswith("one")
    assert "four" in reply.text


async def test_equal_samples_repeat_and_others_differ(engine: VllmEngine) -> None:
    replies = await engine.complete(
        [
            make_request("Name a town.", temperature=1.5, sample=sample, max_tokens=12)
            for sample in (1, 2, 1)
        ]
    )
    assert replies[0].text == replies[2].text
    assert replies[0].text != replies[1].text


async def test_what_does_not_fit_is_a_fault_and_never_cut(engine: VllmEngine) -> None:
    long, tight = await engine.complete(
        [
            make_request("word " * (CONTEXT + 100)),
            make_request("word " * (CONTEXT - 60), max_tokens=100, temperature=1.0),
        ]
    )
    assert long.fault is not None
    assert long.fault.kind == "context_overflow"
    assert str(CONTEXT) in long.fault.detail
    if tight.fault is None:
        assert tight.finish == "stop"  # it happened to be short enough
    else:
        assert tight.fault.kind == "context_overflow"
    assert (await ask(engine, "Still there?")).fault is None


async def test_what_vllm_refuses_is_a_fault_of_that_request_alone(engine: VllmEngine) -> None:
    bad, good = await engine.complete(
        [make_request("hi", temperature=7.0), make_request("hi", max_tokens=2)]
    )
    assert bad.fault is not None
    assert bad.fault.kind == "bad_request"
    assert "temperature" in bad.fault.detail
    assert good.fault is None


async def test_a_cancelled_request_leaves_vllm(engine: VllmEngine) -> None:
    task = asyncio.create_task(
        engine.complete([make_request("Tell me a long story.", max_tokens=1500)])
    )
    unfinished = engine._llm.get_num_unfinished_requests
    await wait_until(lambda: unfinished() == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: unfinished() == 0)
    started = time.monotonic()
    await ask(engine, "Hello?", max_tokens=1)
    assert time.monotonic() - started < 60  # it would have been behind 1500 tokens


async def test_dialogues_are_judged_by_exact_labels(engine: VllmEngine) -> None:
    accounting, seen = Accounting(), SeenRequests()
    asker = Client(engine, None, accounting=accounting)

    async def ask_seen(requests: Sequence[Request]) -> list[Completion]:
        seen.add(engine, requests)
        return await asker(requests)

    judge = judge_stage(RubricConfig(), engine)
    assert judge.mode == "tokens"
    dialogues = read_dialogues(3)
    found = await asyncio.gather(
        *(judge.run(WorkItem(dialogue), Asks.of(ask_seen)) for dialogue in dialogues)
    )
    for judgment in found:
        assert isinstance(judgment, Judgment), judgment
    adherence = adherence_stage(AdherenceConfig(output_mode="continuous"), engine)
    assert adherence.warning is None
    scores = await asyncio.gather(
        *(adherence.run(WorkItem(dialogue), Asks.of(ask_seen)) for dialogue in dialogues)
    )
    for dialogue, score in zip(dialogues, scores, strict=True):
        assert isinstance(score, AdherenceScore), score
        assert len(score.per_turn) == len(dialogue.turns)
    tally = accounting.total
    prefilled, bound = tally.prompt_tokens - tally.cached_tokens, seen.bound
    print(
        f"{tally.sent} label reads on {len(dialogues)} dialogues: {tally.prompt_tokens} tokens in, "
        f"{prefilled} prefilled; {bound} with perfect sharing of blocks of one token; "
        f"{tally.cached_tokens / tally.prompt_tokens:.0%} found in the cache"
    )
    assert tally.cached_tokens > 0.6 * tally.prompt_tokens
    # A call reads its last block anew, of which on average half is its own.
    assert prefilled <= bound + BLOCK * tally.sent


class SeenRequests:
    """How many different prompt prefixes there were: what perfect sharing would have to read."""

    def __init__(self) -> None:
        self._prompts: list[list[int]] = []

    def add(self, engine: VllmEngine, requests: Sequence[Request]) -> None:
        self._prompts += [engine.prompts.prompt_ids(request) for request in requests]

    @property
    def bound(self) -> int:
        ordered = sorted(self._prompts)
        return sum(map(len, ordered)) - sum(shared(*pair) for pair in pairwise(ordered))


def shared(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


async def wait_until(holds: object, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_an_unknown_argument_is_refused_before_anything_is_loaded(config: VllmConfig) -> None:
    wrong = config.model_copy(update={"engine_args": {"tensor_paralel_size": 2}})
    with pytest.raises(UsageError, match="did you mean tensor_parallel_size"):
        await open_engine(wrong)
    wrong = config.model_copy(update={"context": 10**7})
    with pytest.raises(UsageError, match="vLLM refuses"):
        await open_engine(wrong)
    wrong = config.model_copy(update={"engine_args": {"max_num_seqs": "many"}})
    with pytest.raises(UsageError, match="vLLM refuses"):
        await open_engine(wrong)


async def test_a_folder_without_a_model_is_said_to_be_one(
    config: VllmConfig, tmp_path: Path
) -> None:
    with pytest.raises((UsageError, EngineError), match=r"vLLM refuses|cannot be read"):
        await open_engine(config.model_copy(update={"model": str(tmp_path)}))


def children_of(pid: int) -> Sequence[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


async def test_the_end_of_vllms_process_is_an_error_that_says_so(config: VllmConfig) -> None:
    known = {child.pid for child in multiprocessing.active_children()}
    # In bfloat16, which is what vLLM makes of a float32 checkpoint unless told.
    engine = await open_engine(config.model_copy(update={"dtype": "auto"}))
    assert isinstance(engine, VllmEngine)
    assert dict(engine.identity.detail)["dtype"] == "bfloat16"
    started = [child for child in multiprocessing.active_children() if child.pid not in known]
    assert started
    waiting = asyncio.create_task(
        engine.complete([make_request("Tell me a long story.", max_tokens=1500)])
    )
    await wait_until(lambda: engine._llm.get_num_unfinished_requests() == 1)
    for child in started:
        assert child.pid is not None
        for worker in children_of(child.pid):
            os.kill(worker, signal.SIGKILL)
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="has ended"):
        await asyncio.wait_for(waiting, 180)
    with pytest.raises(EngineError, match="has ended"):
        await ask(engine, "Hello?")
    await engine.close()
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await ask(engine, "Hello?")
