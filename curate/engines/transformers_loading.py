"""Loading a Hugging Face model for the `transformers` engine, and what identifies it."""

from __future__ import annotations

import asyncio
from typing import Any

from curate.engines.base import ONE_TOKEN, EngineIdentity
from curate.engines.config import TransformersConfig
from curate.engines.model_files import hash_folder, model_folder
from curate.engines.token_tree import TokenTree
from curate.engines.tokens import PromptTokens, load_tokenizer
from curate.engines.transformers import TransformersEngine
from curate.errors import EngineError, UsageError, first_line

_TOLERANCE = {"float32": 1e-3}
_TOLERANCE_OF_HALVES = 0.5


async def open_transformers(config: TransformersConfig) -> TransformersEngine:
    """Load a model, check that it reads a tree of tokens as it reads a text, and ask it for one token.

    Raises:
        UsageError: the folder holds no model, there is no chat template, the device is not there.
        EngineError: the model cannot be loaded or run, or its layers cannot read a tree.
    """
    engine = await asyncio.to_thread(_load, config)
    [completion] = await engine.complete([ONE_TOKEN])
    if completion.fault is not None:
        await engine.close()
        raise EngineError(
            f"the model {config.model} does not answer",
            got=completion.fault.detail,
            fix="check that the folder holds a causal model with its tokenizer, and that there is memory for it",
        )
    return engine


def _load(config: TransformersConfig) -> TransformersEngine:
    import torch

    prompts = PromptTokens(
        load_tokenizer(config.model, config.revision), config.chat_template_kwargs
    )
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    model = _load_model(config)
    text = model.config.get_text_config(decoder=True)
    longest = getattr(text, "max_position_embeddings", None)
    context = min(filter(None, (config.context, longest)), default=None)
    if context is None:
        raise UsageError(
            f"the config of {config.model} does not say how long a context may be",
            fix="give it as `context`, in tokens",
        )
    _check_tree(model, prompts)
    stops = _stops(model, prompts.tokenizer)
    return TransformersEngine(
        model,
        prompts,
        _identify(config, model, prompts),
        config,
        context=context,
        stops=stops,
        grammars=_grammars(prompts.tokenizer, text.vocab_size, stops),
    )


def _load_model(config: TransformersConfig) -> Any:
    import torch
    import transformers

    # Typed loosely: their results depend on the model.
    auto: Any = transformers.AutoModelForCausalLM
    logging: Any = transformers.utils.logging
    device = config.device or ("cuda" if torch.cuda.is_available() else "cpu")
    options: dict[str, Any] = {
        "dtype": config.dtype,
        "revision": config.revision,
        "trust_remote_code": False,
    }
    if config.attention is not None:
        options["attn_implementation"] = config.attention
    name = str(model_folder(config.model) or config.model)
    shows_bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return auto.from_pretrained(name, **options).to(device).eval()
    # transformers, torch and the Hub client raise types from half a dozen libraries here.
    except Exception as error:
        raise EngineError(
            f"the model {config.model} cannot be loaded",
            got=first_line(error),
            expected=f"a causal language model that fits on {device}",
            fix="check the files, or set another `device` or `dtype`",
        ) from error
    finally:
        if shows_bars:
            logging.enable_progress_bar()


def _check_tree(model: Any, prompts: PromptTokens) -> None:
    """Compare two branches read in a tree with the same two texts read plainly.

    Raises:
        EngineError: they differ, so the model does not follow the mask.
    """
    import torch

    trunk = prompts.encode("You judge a dialogue.\n[1.user]\nHello there.\n")
    branches = [trunk + prompts.encode(text) for text in ("Good or bad?", "How good, from 1 to 5?")]
    tree = TokenTree(model)
    slots = [tree.place(ids)[0] for ids in branches]
    try:
        logits = tree.read(slots)
        with torch.inference_mode():
            plain = [
                model(torch.tensor([ids], device=model.device)).logits[0, -1] for ids in branches
            ]
    # An architecture that takes no such mask or cache fails in its own way.
    except Exception as error:
        raise EngineError(
            f"the transformers engine cannot run {model.config.model_type}",
            got=f"{type(error).__name__}: {error}",
            fix="serve the model with vLLM (engine: vllm or openai)",
        ) from error
    worst = max(
        float((logits[slot].log_softmax(-1) - row.float().log_softmax(-1)).abs().max())
        for slot, row in zip(slots, plain, strict=True)
    )
    dtype = str(model.dtype).removeprefix("torch.")
    # Written so that nan fails.
    if not worst <= _TOLERANCE.get(dtype, _TOLERANCE_OF_HALVES):
        raise EngineError(
            f"{model.config.model_type} does not score branched prompts as it scores whole ones",
            got=f"log-probabilities that differ by {worst:.3g} in {dtype}",
            fix="serve the model with vLLM (engine: vllm or openai), or try attention: eager",
        )


def _stops(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end a reply, by the generation config and the tokenizer."""
    ends = model.generation_config.eos_token_id
    listed = ends if isinstance(ends, list) else [ends]
    return frozenset(index for index in (*listed, tokenizer.eos_token_id) if index is not None)


def _grammars(tokenizer: Any, size: int, stops: frozenset[int]) -> Any:
    """Return llguidance's view of the tokenizer; None for a tokenizer that it cannot read."""
    import llguidance.hf

    if not getattr(tokenizer, "is_fast", False):
        return None
    return llguidance.hf.from_tokenizer(
        tokenizer, n_vocab=max(size, len(tokenizer)), eos_token=sorted(stops)
    )


def _identify(config: TransformersConfig, model: Any, prompts: PromptTokens) -> EngineIdentity:
    folder = model_folder(config.model)
    commit = getattr(model.config, "_commit_hash", None)
    dtype = str(model.dtype).removeprefix("torch.")
    packed = getattr(model.config, "quantization_config", None)
    method = (
        packed.get("quant_method") if isinstance(packed, dict) else packed and packed.quant_method
    )
    return EngineIdentity(
        engine="transformers",
        model=folder.resolve().name if folder else config.model,
        revision=hash_folder(folder) if folder else str(commit or config.revision or ""),
        quantisation=f"{method}/{dtype}" if method else dtype,
        detail=prompts.identity_detail,
    )
