"""A request in vLLM's terms, and vLLM's output as a completion.

Pure functions without vLLM, so that requests and replies are tested where vLLM is not
installed; `engines.vllm` is the thin engine beside them.

Findings by reading and trial (vLLM 0.32), each with a test:
- log-probabilities of named tokens come with `logprob_token_ids` while `logprobs` stays unset. They are
  those of the raw softmax over the whole vocabulary, as long as `logprobs_mode` is left alone;
- a request's own `disable_any_whitespace` is ignored: only the engine's holds, and only with a named
  backend. llguidance is named, because it needs no compilation (every number of turns is a schema of
  its own) and spaces its output as asked; xgrammar 0.2.8 still lets blanks in;
- `maxLength` takes grammars seconds to compile, so it is taken out; replies are checked afterwards;
- a reply that meets the end of the context is reported as cut by `max_tokens`.
"""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from curate.engines.base import Completion, Request, Usage, sorted_json
from curate.engines.chat_completions import cut_by_context, failed, label_logprobs
from curate.engines.config import VllmConfig
from curate.engines.structured import for_grammar
from curate.errors import UsageError

FIELDS = {
    "model": "model",
    "revision": "revision",
    "dtype": "dtype",
    "max_model_len": "context",
}
"""Arguments of vLLM's that have a field of their own in the recipe."""

_REFUSED = {
    "logprobs_mode": "scores are read from the raw softmax",
    "skip_tokenizer_init": "prompts are made with the model's tokenizer",
    "runner": "only generation is used",
    "hf_token": "a recipe is copied into its run folder; set the environment variable HF_TOKEN",
}
# Arguments that change speed, memory or logging and not the reply; all others are part of the identity.
_NEUTRAL = frozenset(
    {
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "data_parallel_size_local",
        "enable_expert_parallel",
        "distributed_executor_backend",
        "nnodes",
        "node_rank",
        "master_addr",
        "master_port",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "num_gpu_blocks_override",
        "block_size",
        "enable_prefix_caching",
        "prefix_caching_hash_algo",
        "cpu_offload_gb",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_num_partial_prefills",
        "enable_chunked_prefill",
        "async_scheduling",
        "enforce_eager",
        "download_dir",
        "max_parallel_loading_workers",
        "disable_log_stats",
        "enable_log_requests",
        "max_logprobs",
        "seed",
        "worker_cls",
    }
)
_SLOW = ("maxLength",)
_STRUCTURED = {"backend": "guidance", "disable_any_whitespace": True}
_CPU_BLOCK = 32
"""vLLM's own choice on a CPU is 128, which leaves up to 127 tokens of a shared start unshared."""


def engine_args(config: VllmConfig, known: Collection[str], *, on_cpu: bool) -> dict[str, Any]:
    """Return the keyword arguments of `AsyncEngineArgs`.

    Args:
        config: the recipe's section; its `engine_args` pass through as they are.
        known: the names that the installed vLLM knows.

    Raises:
        UsageError: an argument is unknown, has a field of its own, or would change what replies hold.
    """
    for name in config.engine_args:
        _check_name(name, known)
    args: dict[str, Any] = {
        "model": config.model,
        "revision": config.revision,
        "dtype": config.dtype,
        "max_model_len": config.context,
        "disable_log_stats": True,
    }
    if on_cpu:
        args["block_size"] = _CPU_BLOCK
    own_args = dict(config.engine_args)
    structured = own_args.pop("structured_outputs_config", None) or {}
    args["structured_outputs_config"] = _STRUCTURED | dict(structured)
    return {name: value for name, value in args.items() if value is not None} | own_args


def _check_name(name: str, known: Collection[str]) -> None:
    if name in FIELDS:
        raise UsageError(
            f"{name} does not belong in engine_args",
            fix=f"write it as `{FIELDS[name]}:` beside `engine: vllm`",
        )
    if name in _REFUSED:
        raise UsageError(
            f"{name} cannot be set in engine_args", fix=f"leave it out: {_REFUSED[name]}"
        )
    if name not in known:
        plain = name.lstrip("-").replace("-", "_")
        near = difflib.get_close_matches(plain, sorted(known), n=1, cutoff=0.5)
        raise UsageError(
            f"vLLM has no engine argument {name!r}",
            expected="a field of vllm.AsyncEngineArgs, written with underscores",
            fix=f"did you mean {near[0]}?" if near else None,
        )


def identity_args(config: VllmConfig) -> str:
    """Return the engine arguments that may change a reply, as sorted JSON; empty where there are none."""
    args = {name: value for name, value in config.engine_args.items() if name not in _NEUTRAL}
    return sorted_json(args).decode() if args else ""


def sampling_args(request: Request, label_ids: Collection[int]) -> dict[str, Any]:
    """Return the keyword arguments of `SamplingParams`, with a schema under `json`.

    Args:
        label_ids: tokens whose log-probabilities are requested; none for a request without labels.

    Raises:
        jsonschema.SchemaError: the schema is none.
    """
    args: dict[str, Any] = {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    if request.temperature > 0:
        args["seed"] = request.seed
    if label_ids:
        args["logprob_token_ids"] = sorted(label_ids)
        if request.max_tokens == 1:
            args["detokenize"] = False
    if request.schema is not None:
        args["json"] = wire_schema(orjson.dumps(request.schema))
    return args


@lru_cache(maxsize=256)
def wire_schema(schema: bytes) -> str:
    """Return a schema as vLLM gets it: strict, without `maxLength`, spaced like ordinary JSON.

    Raises:
        jsonschema.SchemaError: it is none.
    """
    return orjson.dumps(for_grammar(orjson.loads(schema), without=_SLOW)).decode()


def replica_of(request: Request, replicas: int) -> int | None:
    """Return which of vLLM's data-parallel replicas has a request's dialogue in its cache; None: any of them."""
    if replicas < 2 or not request.affinity:
        return None
    digest = hashlib.blake2b(request.affinity.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % replicas


def read_output(
    output: Any, request: Request, label_ids: Mapping[int, str], context: int
) -> Completion:
    """Return a completion from vLLM's finished `RequestOutput`.

    Args:
        output: `outputs[0]` (text, token_ids, finish_reason, logprobs), `prompt_token_ids` and
            `num_cached_tokens` are used.
        label_ids: the tokens whose log-probabilities were requested, and their texts.
        context: tokens that prompt and reply may have together.
    """
    reply = output.outputs[0]
    usage = Usage(
        prompt_tokens=len(output.prompt_token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        completion_tokens=len(reply.token_ids),
    )
    if reply.finish_reason not in ("stop", "length"):
        return failed("server", f"vLLM ended the reply with finish_reason {reply.finish_reason!r}")
    is_cut = reply.finish_reason == "length"
    if is_cut and (overflow := cut_by_context(usage, request, context)):
        return overflow
    first_token: tuple[tuple[str, float], ...] = ()
    if label_ids:
        try:
            first_token = _read_labels(reply.logprobs, label_ids)
        except ValueError as error:
            return failed("server", str(error))
    return Completion(
        text=reply.text,
        finish="length" if is_cut else "stop",
        first_token=first_token,
        exact_labels=bool(label_ids),
        usage=usage,
    )


def _read_labels(
    logprobs: Sequence[Mapping[int, Any]] | None, label_ids: Mapping[int, str]
) -> tuple[tuple[str, float], ...]:
    if not logprobs:
        raise ValueError("vLLM gave no log-probabilities")
    first = logprobs[0]
    if missing_ids := [token for token in label_ids if token not in first]:
        raise ValueError(f"vLLM left out the log-probabilities of the tokens {missing_ids}")
    # The sampled token is among them; only the labels are kept.
    pairs = [(text, float(first[token].logprob)) for token, text in label_ids.items()]
    if any(math.isnan(value) for _, value in pairs):
        raise ValueError("the model's log-probabilities are not numbers (NaN); see `dtype`")
    return label_logprobs(pairs)
