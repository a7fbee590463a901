"""What vLLM is sent and how its output is read, without vLLM. The engine itself: tests/vllm."""

import math
from types import SimpleNamespace

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines import model_files, vllm
from curate.engines.base import Request
from curate.engines.chat_completions import overflow
from curate.engines.config import VllmConfig
from curate.engines.layout import Trunk
from curate.engines.open import open_engine
from curate.engines.replies import completion_from_json, completion_to_json, storable
from curate.engines.vllm_requests import (
    engine_args,
    identity_args,
    read_output,
    replica_of,
    sampling_args,
    wire_schema,
)
from curate.errors import UsageError

KNOWN = {
    "model",
    "tensor_parallel_size",
    "gpu_memory_utilization",
    "max_num_seqs",
    "enable_prefix_caching",
    "block_size",
    "kv_cache_dtype",
    "structured_outputs_config",
    "quantization",
    "logprobs_mode",
}
CONTEXT = 100
LABELS = {22: "4", 23: " 4", 30: "5"}


def make_config(**fields):
    return VllmConfig(model="some/model", **fields)


def make_request(**fields):
    fields.setdefault("max_tokens", 1)
    return Request(Trunk("hello"), **fields)


class TestEngineArgs:
    def test_every_argument_of_the_recipe_passes_through(self):
        given_args = {"tensor_parallel_size": 2, "kv_cache_dtype": "fp8", "max_num_seqs": 64}
        args = engine_args(make_config(engine_args=given_args), KNOWN, on_cpu=False)
        assert given_args.items() <= args.items()
        assert "block_size" not in args

    def test_fields_of_the_recipe_take_vllms_names_and_unset_ones_are_left_to_vllm(self):
        args = engine_args(
            make_config(context=4096, dtype="float32", revision="abc"), KNOWN, on_cpu=False
        )
        assert (args["max_model_len"], args["dtype"], args["revision"]) == (4096, "float32", "abc")
        args = engine_args(make_config(), KNOWN, on_cpu=False)
        assert "max_model_len" not in args
        assert "revision" not in args

    def test_replies_to_a_schema_hold_no_free_whitespace_unless_the_recipe_says_so(self):
        args = engine_args(make_config(), KNOWN, on_cpu=False)["structured_outputs_config"]
        assert args == {"backend": "guidance", "disable_any_whitespace": True}
        own = {"structured_outputs_config": {"backend": "xgrammar"}}
        args = engine_args(make_config(engine_args=own), KNOWN, on_cpu=False)
        assert args["structured_outputs_config"]["backend"] == "xgrammar"
        assert args["structured_outputs_config"]["disable_any_whitespace"]

    def test_small_blocks_on_a_cpu_unless_the_recipe_says_so(self):
        assert engine_args(make_config(), KNOWN, on_cpu=True)["block_size"] == 32
        own = make_config(engine_args={"block_size": 64})
        assert engine_args(own, KNOWN, on_cpu=True)["block_size"] == 64

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("tensor_parallel", "did you mean tensor_parallel_size"),
            ("--gpu-memory-utilization", "did you mean gpu_memory_utilization"),
            ("qqqq", "no engine argument 'qqqq'"),
            ("model", "write it as `model:`"),
            ("max_model_len", "write it as `context:`"),
            ("dtype", "write it as `dtype:`"),
            ("logprobs_mode", "raw softmax"),
            ("hf_token", "variable HF_TOKEN"),
        ],
    )
    def test_an_argument_that_cannot_be_set_is_refused_with_what_to_write(self, name, hint):
        with pytest.raises(UsageError, match=hint):
            engine_args(make_config(engine_args={name: 1}), KNOWN, on_cpu=False)

    def test_a_secret_is_not_repeated(self):
        with pytest.raises(UsageError) as caught:
            engine_args(make_config(engine_args={"hf_token": "hf_abc"}), KNOWN, on_cpu=False)
        assert "hf_abc" not in str(caught.value)

    def test_only_what_may_change_a_reply_is_part_of_the_identity(self):
        fast = {"tensor_parallel_size": 2, "max_num_seqs": 8, "gpu_memory_utilization": 0.5}
        assert identity_args(make_config(engine_args=fast)) == ""
        other = identity_args(make_config(engine_args={**fast, "quantization": "fp8"}))
        assert orjson.loads(other) == {"quantization": "fp8"}
        # An argument nobody here has heard of may do anything.
        assert "brand_new" in identity_args(make_config(engine_args={"brand_new": 1}))


class TestSamplingArgs:
    def test_a_label_read_is_one_greedy_token_with_named_log_probabilities(self):
        args = sampling_args(make_request(labels=("4", "5")), LABELS)
        assert args == {
            "max_tokens": 1,
            "temperature": 0.0,
            "top_p": 1.0,
            "logprob_token_ids": [22, 23, 30],
            "detokenize": False,
        }

    def test_text_after_a_label_is_kept(self):
        args = sampling_args(make_request(labels=("4",), max_tokens=9), LABELS)
        assert "detokenize" not in args

    def test_samples_have_seeds_and_greedy_replies_need_none(self):
        request = make_request(temperature=0.7, top_p=0.9, sample=3, max_tokens=9)
        args = sampling_args(request, {})
        assert (args["temperature"], args["top_p"], args["seed"]) == (0.7, 0.9, request.seed)
        assert "seed" not in sampling_args(make_request(sample=3), {})

    def test_a_schema_goes_as_json_text(self):
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        sent = orjson.loads(sampling_args(make_request(schema=schema), {})["json"])
        assert sent["required"] == ["a"]
        assert sent["additionalProperties"] is False

    def test_a_schema_that_is_none_is_refused_and_not_ignored(self):
        with pytest.raises(jsonschema.SchemaError):
            sampling_args(make_request(schema={"type": "flub"}), {})


class TestWireSchema:
    def test_lengths_go_and_properties_of_that_name_stay(self):
        schema = {
            "type": "object",
            "properties": {
                "maxLength": {"type": "string", "maxLength": 9},
                "notes": {"type": "array", "items": {"type": "string", "maxLength": 5}},
                "kind": {"enum": ["maxLength"]},
                "either": {
                    "anyOf": [{"type": "string", "maxLength": 3}, {"const": {"maxLength": 1}}]
                },
            },
            "$defs": {"maxLength": {"type": "string", "maxLength": 2}},
        }
        sent = orjson.loads(wire_schema(orjson.dumps(schema)))
        assert sent["properties"]["maxLength"] == {"type": "string"}
        assert sent["properties"]["notes"]["items"] == {"type": "string"}
        assert sent["properties"]["kind"] == {"enum": ["maxLength"]}
        assert sent["properties"]["either"]["anyOf"] == [
            {"type": "string"},
            {"const": {"maxLength": 1}},
        ]
        assert sent["$defs"] == {"maxLength": {"type": "string"}}

    def test_the_spacing_is_that_of_ordinary_json(self):
        sent = orjson.loads(wire_schema(b'{"type": "object"}'))
        assert sent["x-guidance"] == {
            "whitespace_flexible": False,
            "item_separator": ", ",
            "key_separator": ": ",
        }


def make_output(text="", tokens=1, finish="stop", logprobs=None, prompt=50, cached=32):
    reply = SimpleNamespace(
        text=text, token_ids=[7] * tokens, finish_reason=finish, logprobs=logprobs
    )
    return SimpleNamespace(outputs=[reply], prompt_token_ids=[1] * prompt, num_cached_tokens=cached)


def make_logprobs(values, sampled=999):
    entries = {token: SimpleNamespace(logprob=value) for token, value in values.items()}
    return [{sampled: SimpleNamespace(logprob=-0.1)} | entries]


class TestReadOutput:
    def test_text_finish_and_counts(self):
        reply = read_output(make_output(" four", tokens=3), make_request(max_tokens=9), {}, CONTEXT)
        assert (reply.text, reply.finish, reply.exact_labels) == (" four", "stop", False)
        assert (reply.usage.prompt_tokens, reply.usage.cached_tokens) == (50, 32)
        assert reply.usage.completion_tokens == 3
        cut = read_output(
            make_output(tokens=9, finish="length"), make_request(max_tokens=9), {}, 99
        )
        assert cut.finish == "length"

    def test_counts_that_vllm_does_not_know_are_zero(self):
        reply = read_output(make_output(cached=None), make_request(), {}, CONTEXT)
        assert reply.usage.cached_tokens == 0

    def test_exactly_the_labels_are_read_and_not_the_sampled_token(self):
        output = make_output(logprobs=make_logprobs({22: -2.0, 23: -3.0, 30: -1.0}))
        reply = read_output(output, make_request(labels=("4", "5")), LABELS, CONTEXT)
        assert reply.first_token == (("5", -1.0), ("4", -2.0), (" 4", -3.0))
        assert reply.exact_labels

    def test_an_impossible_label_is_very_unlikely_and_outlives_the_reply_log(self):
        output = make_output(logprobs=make_logprobs({22: -math.inf, 23: -3.0, 30: -1.0}))
        reply = storable(read_output(output, make_request(labels=("4", "5")), LABELS, CONTEXT))
        assert reply.first_token[-1] == ("4", -9999.0)
        kept = orjson.loads(orjson.dumps(completion_to_json(reply)))
        assert completion_from_json(kept) == reply

    @pytest.mark.parametrize(
        "logprobs",
        [None, [], make_logprobs({22: -1.0}), make_logprobs({22: math.nan, 23: -1.0, 30: -1.0})],
    )
    def test_labels_that_cannot_be_read_are_a_fault_and_no_figure(self, logprobs):
        output = make_output(logprobs=logprobs)
        reply = read_output(output, make_request(labels=("4", "5")), LABELS, CONTEXT)
        assert reply.fault.kind == "server"
        assert not reply.first_token

    @pytest.mark.parametrize("finish", ["abort", "error", "repetition", None])
    def test_a_reply_that_vllm_broke_off_is_a_fault(self, finish):
        reply = read_output(make_output("half", finish=finish), make_request(), {}, CONTEXT)
        assert reply.fault.kind == "server"
        assert not reply.text

    def test_a_reply_that_meets_the_end_of_the_context_is_a_fault(self):
        output = make_output("half", tokens=50, finish="length")
        reply = read_output(output, make_request(max_tokens=60), {}, CONTEXT)
        assert reply.fault.kind == "context_overflow"
        assert "50" in reply.fault.detail
        assert read_output(output, make_request(max_tokens=50), {}, CONTEXT).fault is None

    @given(st.dictionaries(st.integers(0, 9), st.floats(-50, 0), min_size=1))
    def test_the_likeliest_label_comes_first(self, values):
        texts = {token: str(token) for token in values}
        output = make_output(logprobs=make_logprobs(values))
        pairs = read_output(output, make_request(labels=("0",)), texts, CONTEXT).first_token
        assert dict(pairs) == {str(token): value for token, value in values.items()}
        assert [value for _, value in pairs] == sorted(values.values(), reverse=True)


def test_the_requests_of_a_dialogue_go_to_one_replica():
    requests = [make_request(affinity=f"dialogue-{number}") for number in range(64)]
    ranks = [replica_of(request, 4) for request in requests]
    assert set(ranks) == {0, 1, 2, 3}
    assert ranks == [replica_of(make_request(affinity=r.affinity, sample=1), 4) for r in requests]
    assert replica_of(requests[0], 1) is None
    assert replica_of(make_request(), 4) is None


def test_a_prompt_without_room_for_a_reply_is_an_overflow():
    assert overflow(CONTEXT - 1, CONTEXT) is None
    for tokens in (CONTEXT, CONTEXT + 1):
        assert overflow(tokens, CONTEXT).fault.kind == "context_overflow"


def make_settings(kv_tokens, max_num_seqs, replicas=1):
    return SimpleNamespace(
        cache_config=SimpleNamespace(kv_cache_size_tokens=kv_tokens),
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs),
        parallel_config=SimpleNamespace(data_parallel_size=replicas),
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (make_settings(10**6, 64), 64),
        (make_settings(10 * vllm.TRUNK_TOKENS, 256), 10),
        (make_settings(100, 256), 1),
        (make_settings(None, 256), 1),
        (make_settings(10**6, 64, replicas=4), 256),
    ],
)
def test_as_many_dialogues_as_run_at_once_and_fit_into_the_cache(settings, expected):
    assert vllm.open_dialogues(settings) == expected


def test_a_folder_that_is_not_there_is_told_from_a_hub_id(tmp_path):
    assert model_files.find_folder(str(tmp_path)) == tmp_path
    assert model_files.find_folder("Qwen/Qwen3-8B") is None
    for missing in ("./judge", "judge", str(tmp_path / "judge"), "~/no/such"):
        with pytest.raises(UsageError, match="no model folder"):
            model_files.find_folder(missing)


def test_a_checkpoint_is_known_by_its_weights_and_not_by_its_place(tmp_path):
    def make(name, weights):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model-1.safetensors").write_bytes(weights)
        (folder / "README.md").write_text(name)
        return model_files.hash_checkpoint(folder)

    first = make("a", b"one")
    assert make("b", b"one") == first
    assert make("c", b"two") != first


async def test_a_missing_package_names_the_line_that_mends_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    with pytest.raises(UsageError, match=r"pip install '.*\[vllm\]'"):
        await open_engine(make_config())
