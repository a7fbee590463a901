"""The settings of every engine, as a recipe has them.

The models hold only what can be written down and shared: a key is named (an environment variable),
never held.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, field_validator, model_validator

from curate.engines.base import Capability
from curate.engines.keys import looks_like_key, refuse_keys
from curate.errors import UsageError
from curate.records.config import Config

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class _Keyless(Config):
    """Base of all engines' settings; refuses API keys in them."""

    @property
    def is_hosted(self) -> bool:
        """Tell whether texts leave this machine; they are redacted for hosted engines."""
        return False

    @model_validator(mode="before")
    @classmethod
    def _holds_no_key(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            refuse_keys(data, "an engine's settings")
        return data


class Prices(Config):
    """Prices per million tokens, in the currency of the budget."""

    input: float = Field(ge=0, description="Price of prompt tokens.")
    output: float = Field(ge=0, description="Price of completion tokens.")
    cached_input: float | None = Field(
        None,
        ge=0,
        description="Price of prompt tokens found in the server's cache; by default that of `input`.",
    )


# What several engines have alike.
_HubRevision = Annotated[
    str | None, Field(description="Commit, tag or branch of a Hub repository.")
]
_Threads = Annotated[int | None, Field(ge=1, description="CPU threads; by default all cores.")]
_TemplateVariables = Annotated[
    dict[str, Any], Field(description="Extra variables for the model's chat template.")
]
_Retries = Annotated[int, Field(ge=0, description="How often a request that failed is sent again.")]
_ModelContext = Annotated[
    int | None,
    Field(
        ge=256, description="Context length in tokens (prompt and reply); by default the model's."
    ),
]
_ModelPrices = Annotated[
    Prices | None, Field(description="Prices, for the cost of a run and a budget of money.")
]


class LlamaCppConfig(_Keyless):
    """A GGUF model run in this process by llama.cpp."""

    engine: Literal["llamacpp"] = "llamacpp"
    model: str = Field(description="`smollm2`, the path of a .gguf file, or a Hub id owner/name.")
    file: str | None = Field(None, description="Name of the .gguf file in a Hub repository.")
    revision: _HubRevision = None
    context: int = Field(
        8192, ge=256, description="Context length of a slot in tokens: prompt and reply."
    )
    slots: int = Field(1, ge=1, le=64, description="Number of requests served at the same time.")
    cache_mib: int = Field(
        512, ge=0, description="Memory in MiB for the states of earlier prompts."
    )
    threads: _Threads = None
    gpu_layers: int = Field(0, ge=-1, description="Layers kept on a GPU; -1 for all.")
    chat_template_kwargs: _TemplateVariables = Field(default_factory=dict)
    retries: _Retries = 0
    prices: _ModelPrices = None


class OpenAIConfig(_Keyless):
    """Any server with OpenAI's `/chat/completions`: vLLM, SGLang, TGI, llama.cpp, commercial."""

    engine: Literal["openai"] = "openai"
    model: str = Field(description="Name of the model at the server.")
    base_url: str | tuple[str, ...] = Field(
        description="Base URL of the API, including /v1 where the server has it; or several servers with "
        "the same model."
    )
    api_key_env: str | None = Field(
        None, description="NAME of the environment variable that holds the key."
    )
    in_flight: int = Field(
        16, ge=1, le=4096, description="Most calls open at the same time at each address."
    )
    concurrency: Literal["auto", "adaptive", "fixed"] = Field(
        "auto",
        description="Whether `in_flight` is reduced on 429 and 503. `auto`: at hosted addresses only.",
    )
    timeout: float = Field(
        120.0, gt=0, description="Longest time in seconds that one call may take."
    )
    deadline: float | None = Field(
        900.0,
        gt=0,
        description="Seconds after which a request is not retried any more; null: no limit.",
    )
    retries: _Retries = 4
    tokenizer: str | None = Field(
        None,
        description="Folder or Hub id of the model's tokenizer; with it, prompts whose labels are read are"
        " sent as token ids.",
    )
    context: int | None = Field(
        None,
        ge=256,
        description="Context length in tokens (prompt and reply); longer prompts are not sent. By default "
        "what the server reports.",
    )
    revision: str | None = Field(
        None,
        description="Version of what the server serves; part of the model's identity in place of base_url.",
    )
    prefill: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether the server can continue a given start of a reply. `auto`: test it when the "
        "engine is opened.",
    )
    reasoning_effort: str | None = Field(
        None,
        min_length=1,
        description="How much a reasoning model thinks, as the API calls it: none, minimal, low, medium, "
        "high.",
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Fields added to each request; null removes a field."
    )
    top_logprobs: int = Field(
        20,
        ge=1,
        le=1000,
        description="Number of most likely tokens whose log-probabilities are asked for.",
    )
    chat_template_kwargs: _TemplateVariables = Field(default_factory=dict)
    prices: _ModelPrices = None

    # UsageError rather than ValueError: pydantic would print the value, which may be a key.
    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, value: str | None) -> str | None:
        if value is not None and (not _VARIABLE.fullmatch(value) or looks_like_key(value)):
            raise UsageError(
                "api_key_env does not look like the name of an environment variable",
                got=f"{len(value)} characters (not shown: it may be a key)",
                expected="a name such as OPENAI_API_KEY",
                fix="put the key into an environment variable and write that variable's name; "
                "if the value is a key, remove it from your recipe",
            )
        return value

    @field_validator("base_url")
    @classmethod
    def _are_plain_urls(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(value, str):
            return _check_url(value)
        urls = tuple(_check_url(url) for url in value)
        if not urls or len(set(urls)) < len(urls):
            raise UsageError(
                "base_url is an empty list, or names an address twice",
                got=", ".join(urls) or "an empty list",
                expected="an address, or several different ones that serve the same model",
            )
        return urls

    @property
    def base_urls(self) -> tuple[str, ...]:
        """Return all addresses, at least one."""
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url

    @property
    def is_hosted(self) -> bool:
        """Tell whether any server runs elsewhere; texts are redacted for hosted engines."""
        hosts = [urlsplit(url).hostname or "" for url in self.base_urls]
        return not all(host in ("localhost", "::1") or host.startswith("127.") for host in hosts)

    @property
    def is_adaptive(self) -> bool:
        """Tell whether the number of open calls adapts to the server's refusals."""
        return self.concurrency == "adaptive" or (self.concurrency == "auto" and self.is_hosted)


class VllmConfig(_Keyless):
    """A Hugging Face model run on this machine by vLLM, in a process of its own."""

    engine: Literal["vllm"] = "vllm"
    model: str = Field(description="Folder of a Hugging Face model, or a Hub id owner/name.")
    revision: _HubRevision = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Type of the weights in use; `auto` turns a float32 checkpoint into bfloat16.",
    )
    context: _ModelContext = None
    chat_template_kwargs: _TemplateVariables = Field(default_factory=dict)
    engine_args: dict[str, Any] = Field(
        default_factory=dict,
        description="Any other field of vLLM's AsyncEngineArgs, such as tensor_parallel_size.",
    )
    retries: _Retries = 2
    prices: _ModelPrices = None


class TransformersConfig(_Keyless):
    """A Hugging Face model run in this process by transformers: exact log-probabilities."""

    engine: Literal["transformers"] = "transformers"
    model: str = Field(description="Folder of a model, or a Hub id owner/name.")
    revision: _HubRevision = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Type of the weights; `auto` is that of the files. float32 is exact."
    )
    device: str | None = Field(
        None, description="Device as torch names it; by default cuda if there is one."
    )
    attention: Literal["sdpa", "eager"] | None = Field(
        None, description="Attention implementation; by default the model's."
    )
    context: _ModelContext = None
    max_new: int = Field(4096, ge=1, description="Longest reply in tokens.")
    cache_tokens: int = Field(
        16384, ge=0, description="Prompt tokens whose keys and values are kept between calls."
    )
    threads: _Threads = None
    chat_template_kwargs: _TemplateVariables = Field(default_factory=dict)
    retries: _Retries = 0
    prices: _ModelPrices = None


class ScriptedConfig(_Keyless):
    """Fixed replies, for tests and for replaying a recording."""

    engine: Literal["scripted"] = "scripted"
    model: str = Field("scripted", description="Name of the model in the records.")
    replies: tuple[str, ...] | Path = Field(
        description="Reply texts in order, or a recorded JSONL file."
    )
    capabilities: frozenset[Capability] | None = Field(
        None, description="Capabilities the engine reports; by default those of the replies."
    )
    context: int | None = Field(
        None, description="Context length in tokens that the engine reports; null: no limit."
    )
    retries: _Retries = 0
    prices: _ModelPrices = None


EngineConfig = Annotated[
    LlamaCppConfig | OpenAIConfig | VllmConfig | TransformersConfig | ScriptedConfig,
    Field(discriminator="engine"),
]


def _check_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port beyond 65535, a bracket that is not closed
        is_address = False
    if not is_address:
        raise UsageError(
            "base_url is not the address of a server",
            got=value if "@" not in value else "(not shown: it may hold a password)",
            expected="an address such as http://localhost:8000/v1",
        )
    secret = any(re.search(r"key|token|secret", name) for name, _ in parse_qsl(parts.query))
    if parts.username or parts.password or secret:
        raise UsageError(
            "base_url holds a user name, a password or a key",
            expected="the bare address",
            fix="put the key into an environment variable and name it in api_key_env",
        )
    return value.rstrip("/")
