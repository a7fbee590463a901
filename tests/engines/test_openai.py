import asyncio
import logging
import time

import pytest
from aiohttp import web

from curate.engines.base import Capability, Request
from curate.engines.config import OpenAIConfig
from curate.engines.layout import Trunk
from curate.engines.open import open_engine
from curate.engines.openai_requests import Dialect, read_error_body, read_retry_after, to_body
from curate.errors import CurateError, EngineError, UsageError
from tests.faults import Reset, Truncated
from tests.servers import CountingServer, answer_by_hash, chat_completion

KEY = "sk-secret-0123456789abcdef"
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["score"],
}


def make_request(trunk: str | Trunk = "question", question: str = "", **fields) -> Request:
    fields.setdefault("max_tokens", 8)
    return Request(Trunk(trunk) if isinstance(trunk, str) else trunk, question, **fields)


def make_config(server: CountingServer, **options) -> OpenAIConfig:
    options = {"model": "fake-judge", "base_url": server.base_url, "retries": 0, **options}
    return OpenAIConfig(**options)


@pytest.fixture
async def open_on():
    """Opens an engine on a server whose answers may be changed once it is open."""
    cleanup = []

    async def opener(server: CountingServer, **options):
        await server.start()
        cleanup.append(server.stop)
        engine = await open_engine(make_config(server, **options))
        cleanup.append(engine.close)
        server.requests.clear()
        server.counts.clear()
        return engine

    yield opener
    for close in reversed(cleanup):
        await close()


async def test_a_question_is_asked_and_answered(open_on):
    server = CountingServer()
    engine = await open_on(server)
    server.answer = lambda body: "hello"
    [reply] = await engine.complete([make_request()])
    assert reply.text == "hello"
    assert reply.usage.prompt_tokens > 0
    assert server.requests == [
        {
            "model": "fake-judge",
            "messages": [{"role": "user", "content": "question"}],
            "max_tokens": 8,
            "temperature": 0.0,
            "top_k": 0,
            "min_p": 0.0,
        }
    ]


async def test_siblings_come_back_in_order_and_are_asked_once(open_on):
    server = CountingServer(delay=(0.0, 0.02))
    engine = await open_on(server)
    server.answer = lambda body: body["messages"][-1]["content"].upper()
    replies = await engine.complete([make_request(letter) for letter in "abcdefgh"])
    assert "".join(reply.text for reply in replies) == "ABCDEFGH"
    assert len(server.requests) == 8
    assert set(server.counts.values()) == {1}


async def test_calls_in_flight_are_bounded(open_on):
    server = CountingServer(delay=0.01, crowd=3)
    engine = await open_on(server, in_flight=3)
    assert engine.open_dialogues == 3
    await engine.complete([make_request(f"chat {index}") for index in range(12)])
    assert server.largest_in_flight == 3


async def test_labels_are_read_from_the_first_tokens_distribution(open_on):
    server = CountingServer()
    engine = await open_on(server)
    [reply] = await engine.complete(
        [make_request("Answer yes or no", labels=("yes", "no"), max_tokens=1)]
    )
    assert server.requests[0]["logprobs"] is True
    assert server.requests[0]["top_logprobs"] == 20
    assert reply.first_token[0][1] < 0
    assert not reply.exact_labels


async def test_what_the_server_can_do_is_tried_once_when_it_is_opened():
    async with CountingServer() as server:
        engine = await open_engine(make_config(server))
        assert engine.capabilities == {
            Capability.SEED,
            Capability.JSON_SCHEMA,
            Capability.TOP_LOGPROBS,
            Capability.PREFILL,
        }
        assert len(server.requests) == 2
        await engine.close()


async def test_a_server_that_ignores_logprobs_and_schema_is_seen_through():
    async with CountingServer(lambda body: "Hi there!", owned_by="someone") as server:
        engine = await open_engine(make_config(server))
        assert engine.capabilities == {Capability.SEED, Capability.PARALLEL}
        await engine.close()


async def test_a_server_that_mostly_gives_logprobs_is_believed_after_a_second_look():
    answers = iter([{"text": "Hi"}, {"text": "Hi"}])

    def answer(body):
        return next(answers, None) or answer_by_hash(body)

    async with CountingServer(answer, owned_by="someone") as server:
        engine = await open_engine(make_config(server, retries=2))
        assert Capability.TOP_LOGPROBS in engine.capabilities
        await engine.close()


async def test_a_server_that_refuses_logprobs_is_asked_without():
    def refuse(body):
        if "logprobs" in body:
            return web.json_response({"error": {"message": "no logprobs here"}}, status=400)
        return answer_by_hash(body)

    async with CountingServer(refuse, owned_by="someone") as server:
        engine = await open_engine(make_config(server))
        assert Capability.TOP_LOGPROBS not in engine.capabilities
        assert Capability.JSON_SCHEMA in engine.capabilities
        await engine.close()


@pytest.mark.parametrize("has_logprobs", [True, False])
@pytest.mark.parametrize("message", ["Use 'max_completion_tokens' instead.", "Nein."])
async def test_a_renamed_token_limit_is_learnt(message, has_logprobs):
    def refuse(body):
        if "max_tokens" in body or ("logprobs" in body and not has_logprobs):
            return web.json_response({"error": {"message": message}}, status=400)
        return answer_by_hash(body)

    async with CountingServer(refuse, owned_by="someone") as server:
        engine = await open_engine(make_config(server, retries=2))
        server.requests.clear()
        assert (await engine.complete([make_request()]))[0].fault is None
        assert server.requests[0]["max_completion_tokens"] == 8
        assert (Capability.TOP_LOGPROBS in engine.capabilities) == has_logprobs
        await engine.close()


@pytest.mark.parametrize("model", ["fake-judge", "nonsense"])
async def test_a_server_that_refuses_every_question_is_quoted(model):
    def refuse(body):
        said = "extra field" if "max_tokens" in body else "max_completion_tokens is unknown"
        return web.json_response({"error": {"message": said}}, status=400)

    async with CountingServer(refuse, owned_by="someone") as server:
        with pytest.raises(
            CurateError, match=r"400: extra field; with .*: max_completion_tokens is unk"
        ) as caught:
            await open_engine(make_config(server, model=model))
        is_listed = model == "fake-judge"
        assert isinstance(caught.value, EngineError if is_listed else UsageError)
        assert ("check `model`" in str(caught.value)) == (not is_listed)
        assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("owned_by", "expected"),
    [
        ("llamacpp", {}),
        ("vllm", {"add_generation_prompt": False, "continue_final_message": True}),
        ("sglang", {"add_generation_prompt": False, "continue_final_message": True}),
        ("someone", None),
    ],
)
async def test_a_begun_reply_is_sent_in_each_servers_way(open_on, owned_by, expected):
    server = CountingServer(owned_by=owned_by)
    engine = await open_on(server)
    server.answer = lambda body: ("Score: " if owned_by == "llamacpp" else "") + "4"
    [reply] = await engine.complete([make_request(prefill="Score: ")])
    assert reply.text == "4"
    [body] = server.requests
    begun = body["messages"][-1] == {"role": "assistant", "content": "Score: "}
    assert begun is (expected is not None)
    assert (Capability.PREFILL in engine.capabilities) is begun
    for name in ("add_generation_prompt", "continue_final_message"):
        assert body.get(name) == (expected or {}).get(name)


async def test_prefill_can_be_forced_and_forbidden(open_on):
    engine = await open_on(CountingServer(owned_by="someone"), prefill="on")
    assert Capability.PREFILL in engine.capabilities
    engine = await open_on(CountingServer(owned_by="vllm"), prefill="off")
    assert Capability.PREFILL not in engine.capabilities


async def test_forced_prefill_that_is_refused_is_said():
    def refuse(body):
        if body["messages"][-1]["role"] == "assistant":
            return web.json_response({"error": "last message must be from user"}, status=400)
        return answer_by_hash(body)

    async with CountingServer(refuse) as server:
        with pytest.raises(UsageError, match="prefilled reply"):
            await open_engine(make_config(server, prefill="on"))
        engine = await open_engine(make_config(server))
        assert Capability.PREFILL not in engine.capabilities
        await engine.close()


def respond(status: int, body, **headers):
    return lambda _: web.json_response(body, status=status, headers=headers)


async def hang(body):
    await asyncio.sleep(5)
    return "late"


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (respond(429, {"error": {"message": "slow"}}, **{"Retry-After": "3"}), "rate_limited", ""),
        (respond(500, {"error": {"message": "oops"}}), "server", "oops"),
        (respond(502, "<html>"), "server", ""),
        (respond(401, {"error": {"message": f"bad key {KEY}"}}), "auth", "[key]"),
        (respond(403, {"detail": "forbidden"}), "auth", "forbidden"),
        (respond(404, {"message": "no model", "object": "error"}), "bad_request", "no model"),
        (respond(408, {}), "timeout", ""),
        (
            respond(400, {"error": {"message": "x", "code": "context_length_exceeded"}}),
            "context_overflow",
            "",
        ),
        (respond(422, {"error": "`inputs` must have less than 4 tokens"}), "context_overflow", ""),
        (respond(400, {"error": {"message": "bad field"}}), "bad_request", "bad field"),
        (respond(200, {"error": {"message": "behind", "code": 503}}), "server", "behind"),
        (respond(200, {"choices": []}), "malformed_reply", "not a chat completion"),
        (lambda body: web.Response(body=b'{"choices": [{"mess'), "server", "not JSON"),
        (lambda body: Truncated(), "server", "cut off"),
        (lambda body: Reset(), "connection", ""),
        (hang, "timeout", "within 1 s"),
    ],
)
async def test_every_failure_is_data(open_on, monkeypatch, answer, kind, says):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    server = CountingServer(key=KEY)
    engine = await open_on(server, timeout=60.0, api_key_env="JUDGE_KEY")
    server.answer = answer
    # Only who waits for it is told soon: a busy machine may take its time over the others, and over what follows.
    patient = engine.config
    engine.config = patient.model_copy(update={"timeout": 1.0 if answer is hang else 60.0})
    [reply] = await engine.complete([make_request()])
    engine.config = patient
    assert reply.fault.kind == kind
    assert says in reply.fault.detail
    assert KEY not in reply.fault.detail
    assert reply.fault.retry_after == (3.0 if kind == "rate_limited" else None)
    assert reply.finish == "error"
    assert len(server.requests) == 1
    server.answer = lambda body: "fine again"
    assert (await engine.complete([make_request()]))[0].text == "fine again"


async def test_a_server_that_has_gone_is_a_connection_fault(open_on):
    server = CountingServer()
    engine = await open_on(server)
    await server.stop()
    [reply] = await engine.complete([make_request()])
    assert reply.fault.kind == "connection"
    await server.start()


async def test_opening_an_unreachable_server_says_where():
    config = OpenAIConfig(model="m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9/v1 cannot be reached"):
        await open_engine(config)


async def test_a_wrong_or_missing_key_is_told_by_its_variables_name(monkeypatch):
    async with CountingServer(key=KEY) as server:
        with pytest.raises(EngineError, match="asks for a key and none is configured"):
            await open_engine(make_config(server))
        monkeypatch.setenv("JUDGE_KEY", "sk-wrong")
        with pytest.raises(EngineError, match="refuses the key in JUDGE_KEY") as caught:
            await open_engine(make_config(server, api_key_env="JUDGE_KEY"))
        assert "sk-wrong" not in str(caught.value)
        monkeypatch.delenv("JUDGE_KEY")
        with pytest.raises(UsageError, match="JUDGE_KEY is not set"):
            await open_engine(make_config(server, api_key_env="JUDGE_KEY"))


async def test_the_key_is_nowhere_but_in_the_header(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("JUDGE_KEY", KEY)
    async with CountingServer(key=KEY) as server:
        config = make_config(server, api_key_env="JUDGE_KEY")
        engine = await open_engine(config)
        [reply] = await engine.complete([make_request()])
        assert reply.fault is None
        shown = [repr(engine), str(engine.identity), config.model_dump_json(), caplog.text]
        assert not any(KEY in text for text in shown)
        await engine.close()


@pytest.mark.parametrize("owned_by", ["vllm", "llamacpp"])
async def test_an_unknown_model_is_told_which_there_are(owned_by):
    models = ("qwen-7b-instruct", "llama-8b")
    async with CountingServer(owned_by=owned_by, models=models) as server:
        with pytest.raises(UsageError, match="has no model 'qwen-7b'") as caught:
            await open_engine(make_config(server, model="qwen-7b"))
        assert "expected: qwen-7b-instruct" in str(caught.value)


async def test_an_address_without_its_v1_is_told_so():
    async with CountingServer() as server:
        with pytest.raises(
            UsageError, match="base_url ends where the API begins, usually with /v1"
        ):
            await open_engine(make_config(server, base_url=server.base_url.removesuffix("/v1")))


async def test_a_hosted_list_is_not_complete_so_the_first_call_decides():
    def answer(body):
        if body["model"] != "nonsense":
            return answer_by_hash(body)
        return web.json_response({"error": {"message": "The model does not exist"}}, status=404)

    async with CountingServer(answer, owned_by="openai") as server:
        engine = await open_engine(make_config(server, model="alias"))
        await engine.close()
        [warning] = engine.warnings
        assert "'alias' and does not list it (listed: fake-judge)" in warning
        server.requests.clear()
        with pytest.raises(UsageError, match="fake-judge"):
            await open_engine(make_config(server, model="nonsense"))
        assert len(server.requests) == 1
        listed = await open_engine(make_config(server, model="fake-judge", prefill="off"))
        await listed.close()
        assert listed.warnings == ()


@pytest.mark.parametrize("models", [("another",), ()])
async def test_an_answer_under_a_name_not_listed_is_warned_of_with_the_replys_own(models):
    def answer(body):
        reply = chat_completion(answer_by_hash(body), body)
        return reply | {"model": "gpt-oss-20b-of-another"}

    async with CountingServer(answer, owned_by="proxy", models=models) as server:
        engine = await open_engine(make_config(server, model="my-judge"))
        await engine.close()
    [warning] = engine.warnings
    assert "'my-judge'" in warning
    assert "'gpt-oss-20b-of-another'" in warning
    assert f"listed: {models[0] if models else 'none at all'}" in warning


async def test_a_server_that_is_still_loading_is_waited_for(monkeypatch):
    async def at_once(_):
        return None

    states = iter([503, 503])

    def answer(body):
        status = next(states, None)
        if status is None:
            return answer_by_hash(body)
        return web.json_response({"error": {"message": "Loading model"}}, status=status)

    async with CountingServer(answer) as server:
        with monkeypatch.context() as patch:
            patch.setattr("curate.engines.openai_probe.asyncio.sleep", at_once)
            engine = await open_engine(make_config(server, retries=3))
        assert Capability.TOP_LOGPROBS in engine.capabilities
        await engine.close()


async def test_the_context_comes_from_the_recipe_or_the_server(open_on):
    assert (await open_on(CountingServer(context=4096))).context_tokens == 4096
    assert (await open_on(CountingServer(context=4096), context=2048)).context_tokens == 2048
    assert (await open_on(CountingServer())).context_tokens is None


@pytest.mark.parametrize("told_by", ["recipe", "server"])
@pytest.mark.parametrize("owned_by", ["vllm", "someone"])
async def test_what_may_not_fit_the_context_is_never_sent(open_on, told_by, owned_by):
    server = CountingServer(owned_by=owned_by, context=400 if told_by == "server" else None)
    engine = await open_on(server, **({"context": 400} if told_by == "recipe" else {}))
    server.answer = lambda body: "fine"
    fits, no_room_for_the_reply, long = await engine.complete(
        [
            make_request("word " * 50),
            make_request("word " * 50, max_tokens=300),
            make_request("word " * 9000),
        ]
    )
    assert fits.text == "fine"
    assert len(server.requests) == 1
    for refused in (no_room_for_the_reply, long):
        assert refused.fault.kind == "context_overflow"
        assert "of reply exceed the context of 400" in refused.fault.detail


async def test_a_servers_own_count_decides_where_the_bound_does_not(open_on):
    server = CountingServer(context=400, tokenize=lambda text: len(text.split()), owned_by="vllm")
    engine = await open_on(server)
    assert engine.facts["length of prompts"] == "counted by the server"
    server.tokenized = 0
    await engine.complete([make_request("word " * 40)])
    assert (len(server.requests), server.tokenized) == (1, 0)
    [fits, long] = await engine.complete([make_request("word " * 300), make_request("word " * 320)])
    assert (fits.fault, long.fault.kind) == (None, "context_overflow")
    assert (len(server.requests), server.tokenized) == (2, 2)


async def test_what_siblings_begin_with_is_counted_once(open_on):
    server = CountingServer(context=600, tokenize=lambda text: len(text.split()), owned_by="vllm")
    engine = await open_on(server)
    server.tokenized = 0
    shared, longer = Trunk("word " * 300), Trunk("word " * 700)
    for question in ("first?", "second?", "third?"):
        [reply] = await engine.complete([make_request(shared, question, affinity="d")])
        assert reply.fault is None
    assert server.tokenized == 1
    for question in ("first?", "second?", "third?"):
        [reply] = await engine.complete([make_request(longer, question, affinity="e")])
        assert reply.fault.kind == "context_overflow"
    assert server.tokenized == 2


async def test_a_count_that_cannot_be_had_is_a_fault_and_no_overflow(open_on):
    server = CountingServer(context=400, tokenize=lambda text: len(text.split()), owned_by="vllm")
    engine = await open_on(server)
    await server.stop()
    [reply] = await engine.complete([make_request("word " * 300)])
    assert reply.fault.kind == "connection"
    await server.start()


async def test_the_identity_holds_what_changes_replies(open_on):
    server = CountingServer()
    plain = (await open_on(server)).identity
    assert ("base_url", server.base_url) in plain.detail
    engine = await open_on(CountingServer(), revision="v7")
    assert engine.identity.revision == "v7"
    assert "base_url" not in dict(engine.identity.detail)
    same = await open_on(CountingServer(), revision="v7", in_flight=2, timeout=9)
    assert same.identity == engine.identity
    other = await open_on(CountingServer(), revision="v7", extra_body={"top_k": 3})
    assert other.identity.key != engine.identity.key
    keys = {engine.identity.key}
    for effort in ("low", "high"):
        thinking = await open_on(CountingServer(), revision="v7", reasoning_effort=effort)
        keys.add(thinking.identity.key)
    assert len(keys) == 3


def test_reasoning_effort_is_sent_as_the_apis_field():
    bodies = [
        to_body(
            make_request(), OpenAIConfig(model="m", base_url="http://h/v1", **options), Dialect()
        )
        for options in ({}, {"reasoning_effort": "low"})
    ]
    assert "reasoning_effort" not in bodies[0]
    assert bodies[1] == bodies[0] | {"reasoning_effort": "low"}


def test_extra_fields_are_added_and_nulls_take_fields_out():
    config = OpenAIConfig(
        model="m",
        base_url="http://h/v1",
        extra_body={"temperature": None, "verbosity": "low"},
        chat_template_kwargs={"enable_thinking": False},
    )
    body = to_body(make_request(), config, Dialect())
    assert "temperature" not in body
    assert body["verbosity"] == "low"
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_schema_is_sent_strict_and_instead_of_a_prefill():
    config = OpenAIConfig(model="m", base_url="http://h/v1")
    body = to_body(make_request(schema=SCHEMA, prefill="{"), config, Dialect("vllm", True))
    sent = body["response_format"]["json_schema"]
    assert sent["strict"] is True
    assert sent["schema"]["additionalProperties"] is False
    assert body["messages"][-1]["role"] == "user"


@pytest.mark.parametrize(("flavour", "temperature"), [("", 1.0), ("vllm", 0.0), ("llamacpp", 0.0)])
def test_a_one_token_read_is_taken_at_temperature_1_where_it_may_matter(flavour, temperature):
    config = OpenAIConfig(model="m", base_url="http://h/v1")
    request = make_request(labels=("1",), max_tokens=1)
    assert to_body(request, config, Dialect(flavour))["temperature"] == temperature


def test_samples_have_seeds_of_their_own():
    config = OpenAIConfig(model="m", base_url="http://h/v1")
    requests = [make_request(temperature=1.0, sample=n) for n in (0, 1)]
    seeds = [to_body(request, config, Dialect())["seed"] for request in requests]
    assert seeds == [request.seed for request in requests]
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "2"}, 2.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "Retry-After": "9"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
    ],
)
def test_retry_after_is_read_in_its_forms(headers, seconds):
    assert read_retry_after(headers) == seconds


@pytest.mark.parametrize("hours", [-6, 6])
def test_a_date_to_retry_after_is_read_by_the_servers_clock(monkeypatch, hours):
    """By one that is six hours behind, a minute would be six hours."""
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600 * hours)
    dates = {
        "Date": "Mon, 23 Nov 2026 10:00:00 GMT",
        "Retry-After": "Mon, 23 Nov 2026 10:01:00 GMT",
    }
    assert read_retry_after(dates) == 60


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error": {"message": "m", "code": "c"}}', ("m", "c")),
        (b'{"error": "text", "error_type": "validation"}', ("text", "")),
        (b'{"object": "error", "message": "m", "code": 400}', ("m", "400")),
        (b'{"detail": "d"}', ("d", "")),
        (b"<html>oops", ("<html>oops", "")),
        (b"[]", ("[]", "")),
    ],
)
def test_error_bodies_are_read_in_their_forms(body, expected):
    assert read_error_body(body) == expected


def named(name):
    return lambda body: {**chat_completion(answer_by_hash(body), body), "model": name}


@pytest.mark.parametrize(
    "name", ["fake-judge", "/models/Fake-Judge", "fake-judge-2025-01-01", "", 7]
)
async def test_a_model_that_replies_under_its_own_name_is_no_matter(open_on, name):
    engine = await open_on(CountingServer(named(name)))
    assert engine.warnings == ()
    assert (await engine.complete([make_request()]))[0].fault is None


async def test_a_model_that_replies_under_another_name_is_a_warning_when_it_is_opened(open_on):
    engine = await open_on(CountingServer(named("gpt-2")))
    assert engine.served == "gpt-2"
    [said] = engine.warnings
    assert "'fake-judge' was asked for" in said
    assert "'gpt-2'" in said
    assert (await engine.complete([make_request()]))[0].fault is None


async def test_a_model_that_changes_is_an_error_with_both_names(open_on):
    server = CountingServer()
    engine = await open_on(server)
    server.answer = named("another-judge")
    with pytest.raises(EngineError, match="now replies as another model") as caught:
        await engine.complete([make_request()])
    assert "got: another-judge" in str(caught.value)
    assert "expected: fake-judge" in str(caught.value)


async def test_addresses_that_reply_as_different_models_are_refused():
    async with CountingServer() as one, CountingServer(named("another-judge")) as other:
        config = OpenAIConfig(
            model="fake-judge", base_url=[one.base_url, other.base_url], retries=0
        )
        with pytest.raises(EngineError, match="another-judge") as caught:
            await open_engine(config)
        assert other.base_url in str(caught.value)
        assert f"fake-judge, as {one.base_url} first replied" in str(caught.value)
