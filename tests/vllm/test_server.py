"""The `openai` engine against a real `vllm serve`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from curate.adherence.config import AdherenceConfig
from curate.dialogue import Dialogue
from curate.engines.accounting import Accounting
from curate.engines.base import Capability, Completion, Request
from curate.engines.client import Client
from curate.engines.config import OpenAIConfig
from curate.engines.label_mass import read_label_mass
from curate.engines.layout import Trunk
from curate.engines.model_pool import Asks
from curate.engines.open import open_engine
from curate.engines.openai import OpenAIEngine
from curate.engines.structured import BadReply, read_object
from curate.errors import UsageError
from curate.records import AdherenceScore
from curate.sources import open_source
from curate.sources.config import SourceConfig
from curate.stages import WorkItem, adherence_stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

SAMPLE = Path(__file__).resolve().parents[2] / "recipes" / "sample" / "support.jsonl"
CONTEXT = 2048
MODEL = "small"
STARTED_WITHIN = 600.0
STRUCTURED = '{"backend": "guidance", "disable_any_whitespace": true}'
DIGITS = tuple("12345")
TRUNK = "You are a judge.\n" + "[1.user]\nThe user asked for a refund, politely.\n" * 20
SCHEMA = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 71, "maximum": 75},
        "words": {"type": "array", "items": {"enum": ["plover", "quux"]}, "maxItems": 2},
    },
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running `vllm serve`."""

    url: str
    model_folder: Path


@pytest.fixture(scope="module")
def server(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "vllm.log"
    # What `vllm serve` runs; that command itself asks for a distribution named vllm, and the wheel for
    # CPUs has another name.
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model_folder)),
        *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--max-model-len", str(CONTEXT), "--block-size", "32"),
        *("--kv-cache-memory-bytes", "1000000000", "--enforce-eager"),
        "--enable-prompt-tokens-details",
        # Without it a reply may begin with blanks until its tokens are spent; see docs/engines.md.
        *("--structured-outputs-config", STRUCTURED),
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"VLLM_NO_USAGE_STATS": "1"},
            start_new_session=True,
        )
        try:
            _wait_until_up(process, port, log)
            yield Server(f"http://127.0.0.1:{port}/v1", model_folder)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            # Its own session, so this reaches what it may have left behind and nothing else.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _wait_until_up(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + STARTED_WITHIN
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"vllm serve ended early:\n{log.read_text(errors='replace')[-3000:]}")
        try:
            opener.open(f"http://127.0.0.1:{port}/health", timeout=2)
        except OSError:
            time.sleep(0.5)
        else:
            return
    pytest.fail(f"vllm serve did not come up:\n{log.read_text(errors='replace')[-3000:]}")


def make_config(server: Server, **fields: object) -> OpenAIConfig:
    return OpenAIConfig.model_validate(
        {"model": MODEL, "base_url": server.url, "timeout": 300.0, **fields}
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def chats(server: Server) -> AsyncIterator[OpenAIEngine]:
    """Everything over `/chat/completions`."""
    engine = await open_engine(make_config(server))
    assert isinstance(engine, OpenAIEngine)
    yield engine
    await engine.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tokens(server: Server) -> AsyncIterator[OpenAIEngine]:
    """Label reads over `/completions`, as lists of token ids."""
    engine = await open_engine(make_config(server, tokenizer=str(server.model_folder)))
    assert isinstance(engine, OpenAIEngine)
    yield engine
    await engine.close()


def make_request(text: str, **fields: object) -> Request:
    fields.setdefault("max_tokens", 8)
    return Request(Trunk(text), **fields)  # type: ignore[arg-type]


def label_read(question: str) -> Request:
    return make_request(TRUNK + question, labels=DIGITS, prefill="(", max_tokens=1)


async def ask(engine: OpenAIEngine, text: str, **fields: object) -> Completion:
    [completion] = await engine.complete([make_request(text, **fields)])
    return completion


async def test_what_the_server_can_do_is_found_out(
    chats: OpenAIEngine, tokens: OpenAIEngine
) -> None:
    assert chats.dialect.flavour == "vllm"
    assert chats.context_tokens == CONTEXT
    common = {Capability.JSON_SCHEMA, Capability.PREFILL, Capability.TOP_LOGPROBS}
    assert chats.capabilities >= common
    assert tokens.capabilities >= common | {Capability.LABEL_LOGPROBS, Capability.TOKEN_PROMPTS}


async def test_a_reply_over_chat_is_bound_by_its_schema(chats: OpenAIEngine) -> None:
    reply = await ask(chats, "List ten animals.", schema=SCHEMA, max_tokens=80)
    value = read_object(reply, SCHEMA)
    assert not isinstance(value, BadReply), (reply, value)
    assert not set(" \n") & set(reply.text)


async def test_a_begun_reply_is_continued_and_not_repeated(chats: OpenAIEngine) -> None:
    reply = await ask(chats, "Count up to ten.", prefill="one, two, three,", max_tokens=6)
    assert not reply.text.startswith("one")
    assert "four" in reply.text


async def test_label_reads_as_a_list_of_token_prompts_are_exact(
    chats: OpenAIEngine, tokens: OpenAIEngine
) -> None:
    requests = [label_read(f"How {word} was it, from 1 to 5?") for word in ("good", "bad", "odd")]
    exact = await tokens.complete(requests)
    over_chat = await chats.complete(requests)
    for request, one, other in zip(requests, exact, over_chat, strict=True):
        assert one.exact_labels
        assert not other.exact_labels
        found = read_label_mass(one, DIGITS).logprobs
        assert set(found) == set(DIGITS)
        # The same prompt, made here and made by the server: the same figures where both have them.
        named = {text: value for text, value in other.first_token if text in DIGITS}
        assert named
        for text, value in named.items():
            assert dict(one.first_token)[text] == pytest.approx(value, abs=1e-3), request


async def test_cached_tokens_are_counted(chats: OpenAIEngine, tokens: OpenAIEngine) -> None:
    for engine in (chats, tokens):
        [first] = await engine.complete([label_read("Was it polite?")])
        [second] = await engine.complete([label_read("Was it safe?")])
        assert second.usage.cached_tokens >= first.usage.prompt_tokens - 64


async def test_a_prompt_that_does_not_fit_is_a_fault_also_in_a_list(
    chats: OpenAIEngine, tokens: OpenAIEngine
) -> None:
    long = make_request("word " * (CONTEXT + 100), labels=DIGITS, max_tokens=1)
    for engine in (chats, tokens):
        # The server refuses the whole list; what can be answered is asked for again by itself.
        asker = Client(engine, None, accounting=Accounting())
        good, bad = await asker([label_read("Good?"), long])
        assert good.fault is None
        assert bad.fault is not None
        assert bad.fault.kind == "context_overflow"


async def test_a_wrong_model_name_is_refused_with_the_right_one(server: Server) -> None:
    with pytest.raises(UsageError, match=f"expected: {MODEL}"):
        await open_engine(make_config(server, model="smal"))


def read_dialogue() -> Dialogue:
    return next(iter(open_source(SourceConfig(path=str(SAMPLE))).read())).dialogues[0]


async def test_adherence_over_token_prompts(tokens: OpenAIEngine) -> None:
    accounting, dialogue = Accounting(), read_dialogue()
    step = adherence_stage(AdherenceConfig(output_mode="continuous"), tokens)
    score = await step.run(WorkItem(dialogue), Asks.of(Client(tokens, None, accounting=accounting)))
    assert isinstance(score, AdherenceScore), score
    assert len(score.per_turn) == len(dialogue.turns)
    tally = accounting.stages["adherence"]
    assert (tally.faults, tally.completion_tokens) == ({}, len(dialogue.turns))
