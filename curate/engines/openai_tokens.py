"""Label reads as token ids: one `/v1/completions` call carries all questions about a dialogue.

The prompt is rendered and tokenised here, each segment once (`engines.tokens`), and the server gets a
list of prompts, so that a dialogue's dozen questions cost one HTTP call and no template on the server.
vLLM is asked for the log-probabilities of exactly the tokens that spell a label
(`logprob_token_ids`), from the full softmax: none is missing because others were likelier. Servers
without that field give the most likely tokens, as they do over chat.

Only one-token label reads go this way. Text, JSON and tool calls stay with `/chat/completions`, where
the server's own parsers are.
"""

# No `from __future__ import annotations`: pydantic reads the types below as they stand.

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Required

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from curate.engines.base import Completion, Request, Usage
from curate.engines.config import OpenAIConfig
from curate.engines.openai_bodies import with_extra
from curate.engines.prompt_length import PromptRoom
from curate.engines.tokens import PromptRefused, PromptTokens
from curate.engines.wire import (
    Logprob,
    WireUsage,
    failed,
    keep_first_token,
    malformed,
    read_first_token,
    read_usage,
)

Exchange = Callable[[str, dict[str, Any], str], Awaitable[Any]]
"""Path, body and affinity to a parsed reply, or to a completion that is a fault."""

MOST_LABEL_IDS = 128
"""vLLM's own bound of `logprob_token_ids` (MAX_LOGPROB_TOKEN_IDS in 0.32)."""
MOST_PROMPTS = 32
"""Prompts in a call: by then HTTP costs nothing, and a slow server still answers within its timeout."""
_TOKEN_ID = "token_id:"


class _Choice(TypedDict, total=False):
    index: int
    text: str | None
    finish_reason: str | None
    logprobs: Any


class _Completions(TypedDict, total=False):
    choices: Required[list[_Choice]]
    usage: WireUsage | None


_COMPLETIONS = TypeAdapter(_Completions)
_FIRST_TOKENS = TypeAdapter(
    Annotated[list[Annotated[dict[str, Logprob], Field(min_length=1)]], Field(min_length=1)]
)


class TokenReads:
    """Label reads for one server.

    Args:
        config: model, fields of the recipe, how many alternatives where labels cannot be named.
        prompts: renders and tokenises.
        is_exact: whether the server takes `logprob_token_ids`.
        flavour: the server's, as in `Dialect`.
    """

    def __init__(
        self, config: OpenAIConfig, prompts: PromptTokens, *, is_exact: bool, flavour: str
    ) -> None:
        self._config = config
        self._prompts = prompts
        self._is_exact = is_exact
        self._flavour = flavour

    @property
    def identity_detail(self) -> tuple[tuple[str, str], ...]:
        """What of the tokenizer and of this way of asking changes replies."""
        reads = "exact" if self._is_exact else "most likely"
        return (*self._prompts.identity_detail, ("label_reads", f"{reads}, token prompts"))

    async def complete(
        self,
        requests: Sequence[Request],
        exchange: Exchange,
        chat: Callable[[Request], Awaitable[Completion]],
        room: PromptRoom | None = None,
    ) -> list[Completion]:
        """Answer siblings, in order: label reads in lists, whatever else one by one through `chat`."""

        async def answer(indices: list[int]) -> list[Completion]:
            group = [requests[index] for index in indices]
            if not is_label_read(group[0]):
                return [await chat(group[0])]
            return await self._read(group, exchange, room)

        groups = self.split(requests)
        if len(groups) == 1:
            return await answer(groups[0])
        answered = await asyncio.gather(*map(answer, groups))
        found: dict[int, Completion] = {}
        for indices, completions in zip(groups, answered, strict=True):
            found.update(zip(indices, completions, strict=True))
        return [found[index] for index in range(len(requests))]

    def split(self, requests: Sequence[Request]) -> list[list[int]]:
        """Indices of the requests that go in one call each."""
        groups: list[list[int]] = []
        growing: dict[tuple[object, ...], tuple[list[int], set[int]]] = {}
        for index, request in enumerate(requests):
            if not is_label_read(request):
                groups.append([index])
                continue
            kind = (request.sample, request.temperature, request.affinity)
            spelt = self._prompts.label_ids(request).keys()
            group, wanted = growing.get(kind, ([], set()))
            if not group or len(group) == MOST_PROMPTS or len(wanted | spelt) > MOST_LABEL_IDS:
                group, wanted = growing[kind] = ([], set())
                groups.append(group)
            group.append(index)
            wanted |= spelt
        return groups

    async def _read(
        self, group: Sequence[Request], exchange: Exchange, room: PromptRoom | None
    ) -> list[Completion]:
        answers: dict[int, Completion] = {}
        prompts: dict[int, list[int]] = {}
        for index, request in enumerate(group):
            try:
                ids = self._prompts.prompt_ids(request)
            except PromptRefused as error:
                answers[index] = failed("bad_request", str(error))
                continue
            refusal = room.refuse_tokens(len(ids), request) if room is not None else None
            if refusal is None:
                prompts[index] = ids
            else:
                answers[index] = refusal
        if prompts:
            asked = [group[index] for index in prompts]
            labels = [self._prompts.label_ids(request) for request in asked]
            body = self.body(list(prompts.values()), asked[0], sorted(set().union(*labels)))
            reply = await exchange("/completions", body, asked[0].affinity)
            if isinstance(reply, Completion):
                read = [reply] * len(asked)
            else:
                read = self.read(reply, asked, list(prompts.values()), labels)
            answers.update(zip(prompts, read, strict=True))
        return [answers[index] for index in range(len(group))]

    def body(
        self, prompts: Sequence[Sequence[int]], request: Request, wanted: Sequence[int]
    ) -> dict[str, Any]:
        """The call for prompts that are alike but for their text."""
        body: dict[str, Any] = {
            "model": self._config.model,
            "prompt": prompts,
            "max_tokens": 1,
            "temperature": request.temperature,
            "logprobs": self._config.top_logprobs,
        }
        if request.temperature > 0 or request.sample:
            body["seed"] = request.sample
        if self._flavour == "llamacpp":
            body["top_k"], body["min_p"] = 0, 0.0
        if self._is_exact and wanted:
            body |= {
                "logprobs": len(wanted),
                "logprob_token_ids": wanted,
                "return_tokens_as_token_ids": True,
            }
        return with_extra(body, self._config)

    def read(
        self,
        reply: Any,
        group: Sequence[Request],
        prompts: Sequence[Sequence[int]],
        labels: Sequence[Mapping[int, str]],
    ) -> list[Completion]:
        """A completion for each prompt of a call; one fault for all where it is no such reply."""
        try:
            read = _COMPLETIONS.validate_python(reply)
            choices = sorted(read["choices"], key=lambda choice: choice.get("index", 0))
            if len(choices) != len(group):
                raise ValueError(f"{len(choices)} choices for {len(group)} prompts")
            # Servers report what was cached for one prompt of a list at most: a lower bound.
            cached = read_usage(read.get("usage")).cached_tokens
            named = self._is_exact and any(labels)
            completions = [
                _read_choice(choice, request, spelt if named else None)
                for choice, request, spelt in zip(choices, group, labels, strict=True)
            ]
        except ValueError as error:
            fault = malformed("the reply is not the list of completions that was asked for", error)
            return [fault] * len(group)
        usages = [Usage(len(prompt), 0, 1) for prompt in prompts]
        usages[-1] = replace(usages[-1], cached_tokens=min(cached, usages[-1].prompt_tokens))
        return [
            replace(completion, usage=usage)
            for completion, usage in zip(completions, usages, strict=True)
        ]


def is_label_read(request: Request) -> bool:
    """Whether only the first token's distribution is wanted."""
    return bool(request.labels) and request.max_tokens == 1 and not request.schema


def _read_choice(choice: _Choice, request: Request, spelt: Mapping[int, str] | None) -> Completion:
    """One prompt's completion; `spelt` has the label tokens that were asked for, None where none could be."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict) or not isinstance(logprobs.get("top_logprobs"), list):
        # llama.cpp: the form of chats. It passes over the ids it was given, so nothing here is exact.
        spelt = None
        pairs = read_first_token(logprobs, request)
    else:
        top = _FIRST_TOKENS.validate_python(logprobs["top_logprobs"][:1])[0]
        if spelt is None:
            pairs = keep_first_token(list(top.items()), request)
        else:
            read = {name.removeprefix(_TOKEN_ID): value for name, value in top.items()}
            if missing := [index for index in spelt if str(index) not in read]:
                raise ValueError(f"the log-probabilities of the tokens {missing} are missing")
            named = [(word, read[str(index)]) for index, word in spelt.items()]
            pairs = tuple(sorted(named, key=lambda pair: -pair[1]))
    return Completion(
        text=choice.get("text") or "",
        finish="length" if choice.get("finish_reason") == "length" else "stop",
        first_token=pairs,
        exact_labels=spelt is not None,
    )
