"""vLLM on this machine, without a server: one model over one or several GPUs, or on the CPU.

`AsyncLLM` runs the model in a process of its own and serves requests as they come, so no request waits for
a whole list. Prompts go as token ids made here (see `tokens`), already in the form that vLLM passes on
without waiting: siblings then reach the scheduler in order, which its prefix cache needs. vLLM keeps the
cache by itself and reports the cached tokens with each reply.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import itertools
import os
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema

from curate.engines.base import Capability, Completion, EngineIdentity, Request, closed_error
from curate.engines.chat_completions import failed, overflow
from curate.engines.config import VllmConfig
from curate.engines.model_files import find_folder, hash_checkpoint
from curate.engines.tokens import PromptRefused, PromptTokens
from curate.engines.vllm_requests import (
    engine_args,
    identity_args,
    read_output,
    replica_of,
    sampling_args,
)
from curate.errors import EngineError, UsageError

TRUNK_TOKENS = 4096
"""Tokens of the KV cache that a dialogue is assumed to need, for the number of open dialogues."""

_CAPABILITIES = frozenset(
    {
        Capability.JSON_SCHEMA,
        Capability.LABEL_LOGPROBS,
        Capability.PREFILL,
        Capability.TOKEN_PROMPTS,
        Capability.THOUGHTS,
        Capability.SEED,
        Capability.PARALLEL,
    }
)
_ENDS_WITHIN = 30.0
# Set where the user has not: our process has threads, which a forked one would not survive; vLLM
# sends usage statistics to its makers; and its log would stand between the lines of ours.
_ENVIRONMENT = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


class VllmEngine:
    """A loaded model. Made by `open_vllm`."""

    def __init__(
        self, llm: Any, settings: Any, prompts: PromptTokens, identity: EngineIdentity
    ) -> None:
        self._llm = llm
        self.prompts = prompts
        self.identity = identity
        self.capabilities = _CAPABILITIES
        self.context_tokens = int(settings.model_config.max_model_len)
        self._replicas = int(settings.parallel_config.data_parallel_size)
        self.open_dialogues = open_dialogues(settings)
        self._numbers = itertools.count()
        self._running: set[asyncio.Task[Completion]] = set()

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer all at once; completions in order. Cancelling it takes the requests out of vLLM.

        Raises:
            EngineError: the process that runs the model has died, or the engine has been closed.
        """
        if self._llm is None:
            raise closed_error()
        tasks = [asyncio.create_task(self._answer(request)) for request in requests]
        self._running.update(tasks)
        for task in tasks:
            task.add_done_callback(self._running.discard)
        # All are waited for also when one raises, so that none goes on running.
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        completions: list[Completion] = []
        for outcome in outcomes:
            if isinstance(outcome, asyncio.CancelledError):
                raise EngineError(
                    "the engine was closed during a call",
                    expected="an engine that stays open until its last reply",
                )
            if isinstance(outcome, BaseException):
                raise outcome
            completions.append(outcome)
        return completions

    async def close(self) -> None:
        """Cancel the requests that are running and end vLLM's process. Calling it twice is harmless."""
        llm, self._llm = self._llm, None
        if llm is None:
            return
        running = list(self._running)
        for task in running:
            task.cancel()  # vLLM would never end them
        await asyncio.gather(*running, return_exceptions=True)
        # A long timeout: vLLM kills processes that have not ended in time, and leaves shared memory behind.
        llm.shutdown(timeout=_ENDS_WITHIN)
        # Lets vLLM's own tasks see that they are cancelled before the loop ends; then the object is freed,
        # which is part of a cycle and would complain if it outlived the modules it uses.
        await asyncio.sleep(0)
        del llm, running
        gc.collect()

    async def _answer(self, request: Request) -> Completion:
        try:
            ids = self.prompts.prompt_ids(request)
            labels = self.prompts.label_ids(request) if request.labels else {}
            args = sampling_args(request, labels)
        except PromptRefused as error:
            return failed("bad_request", str(error))
        except jsonschema.SchemaError as error:
            return failed("bad_request", f"the schema is not a JSON schema: {error.message}")
        if request.labels and not labels:
            detail = f"no label of {request.labels} is a single token of this model"
            return failed("bad_request", detail)
        if too_long := overflow(len(ids), self.context_tokens):
            return too_long
        output = await self._generate(ids, args, replica_of(request, self._replicas))
        if isinstance(output, Completion):
            return output
        return read_output(output, request, labels, self.context_tokens)

    async def _generate(self, ids: list[int], args: dict[str, Any], replica: int | None) -> Any:
        from vllm.exceptions import GracefulHTTPError, VLLMClientError
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        last = None
        try:
            params = _sampling_params(args)
            number = str(next(self._numbers))
            stream = self._llm.generate(
                tokens_input(ids), params, number, data_parallel_rank=replica
            )
            async for output in stream:
                last = output
        except EngineDeadError as error:
            raise EngineError(
                f"the vLLM process of {self.identity.model} has ended",
                got=str(error),
                fix="its own message is above; a lower context or engine_args.gpu_memory_utilization helps "
                "where memory ran out. Then run again: replies received so far are kept",
            ) from error
        except GracefulHTTPError as error:
            return failed("rate_limited", f"vLLM: {error}")
        except EngineGenerateError as error:
            return failed("server", f"vLLM: {error.__cause__ or error!r}")
        # ValueError and its like come from checks that vLLM has not given a type of its own.
        except (VLLMClientError, ValueError, TypeError) as error:
            return failed("bad_request", f"vLLM: {error}")
        return last if last is not None else failed("server", "vLLM gave no output")


def open_dialogues(settings: Any) -> int:
    """Return how many dialogues are best kept open, from vLLM's resolved settings.

    More than `max_num_seqs` only wait, and more than the KV cache holds evict each other's trunks.
    """
    capacity = settings.cache_config.kv_cache_size_tokens or TRUNK_TOKENS
    at_once = min(settings.scheduler_config.max_num_seqs, max(1, capacity // TRUNK_TOKENS))
    return int(at_once * settings.parallel_config.data_parallel_size)


def _sampling_params(args: dict[str, Any]) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    schema = args.pop("json", None)
    if schema is not None:
        args["structured_outputs"] = StructuredOutputsParams(json=schema)
    # Only the finished reply is used; outputs before it would be made and passed on for nothing.
    return SamplingParams(**args, output_kind=RequestOutputKind.FINAL_ONLY)


async def open_vllm(config: VllmConfig) -> VllmEngine:
    """Load a model into a process of its own.

    It blocks the event loop while it loads: nothing else goes on when engines are opened, and vLLM
    ties itself to the loop it is made in.

    Raises:
        UsageError: there is no such folder, or vLLM refuses an argument.
        EngineError: the model cannot be fetched or loaded.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    folder = find_folder(config.model)
    if folder is not None:
        config = config.model_copy(update={"model": str(folder)})
    settings = _settings(config, folder)
    llm = _start(settings, config)
    try:
        prompts = PromptTokens(llm.get_tokenizer(), config.chat_template_kwargs)
        identity = await asyncio.to_thread(_identity, config, settings, prompts, folder)
    except BaseException:
        llm.shutdown()
        raise
    return VllmEngine(llm, settings, prompts, identity)


def _settings(config: VllmConfig, folder: Path | None) -> Any:
    """Return vLLM's resolved configuration; reads the model's config, not its weights."""
    from pydantic import ValidationError
    from vllm import AsyncEngineArgs
    from vllm.platforms import current_platform

    fields = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    args = engine_args(config, fields, on_cpu=current_platform.is_cpu())
    try:
        return AsyncEngineArgs(**_with_configs(args, AsyncEngineArgs)).create_engine_config()
    except (ValidationError, ValueError, TypeError, AssertionError, NotImplementedError) as error:
        raise UsageError(
            "vLLM refuses the model or an engine argument",
            got=_one_line(error),
            fix="see `context`, `dtype` and `engine_args` in the recipe",
        ) from error
    # The Hub's client raises errors of several libraries, all of them OSError or RuntimeError.
    except (OSError, RuntimeError) as error:
        raise EngineError(
            f"the model {config.model} cannot be {'read' if folder else 'fetched from the Hub'}",
            got=_one_line(error),
            fix="check the files" if folder else "check the id and the connection",
        ) from error


def _with_configs(args: dict[str, Any], owner: type) -> dict[str, Any]:
    """Return the arguments with mappings turned into vLLM's configuration classes, where it has one for them.

    vLLM's own command line does the same with JSON; its class takes some of them as mappings, not all.
    """
    # Not resolved: some annotations name types that only a type checker imports, and those stay as they are.
    types = {field.name: field.type for field in dataclasses.fields(owner)}
    built = dict(args)
    for name, value in args.items():
        if not isinstance(value, dict):
            continue
        for choice in typing.get_args(types[name]) or (types[name],):
            if isinstance(choice, type) and dataclasses.is_dataclass(choice):
                built[name] = choice(**value)
    return built


def _start(settings: Any, config: VllmConfig) -> Any:
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        return AsyncLLM.from_vllm_config(
            settings, disable_log_stats=bool(config.engine_args.get("disable_log_stats", True))
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise EngineError(
            f"vLLM cannot load {config.model}",
            got=_one_line(error),
            fix="its own message is above; where memory is short, lower context or raise "
            "gpu_memory_utilization; from a Python script, run under `if __name__ == '__main__':`",
        ) from error


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


def _identity(
    config: VllmConfig, settings: Any, prompts: PromptTokens, folder: Path | None
) -> EngineIdentity:
    model = settings.model_config
    commit = getattr(model.hf_config, "_commit_hash", None)
    detail = [("dtype", str(model.dtype).removeprefix("torch.")), *prompts.identity_detail]
    if args := identity_args(config):
        detail.append(("engine_args", args))
    return EngineIdentity(
        engine="vllm",
        model=folder.resolve().name if folder else config.model,
        revision=hash_checkpoint(folder) if folder else str(commit or config.revision or ""),
        quantisation=str(model.quantization or ""),
        detail=tuple(detail),
    )
