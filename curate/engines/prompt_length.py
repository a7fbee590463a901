"""A check that a prompt and its reply fit into a server's context, made before a request is sent.

The exact count comes from the model's tokenizer, where the recipe names it, or from the server's own
`/tokenize`, which is only called where the upper bound does not decide. The bound is one token a byte, and two
thirds of that for plain words. No tokenizer of eight families (SmolLM2, Llama 3, Qwen 2 and 3.5, Mistral's two,
Gemma, DeepSeek) made more tokens of any text tried, random letters and base64 included; for English prose the
bound is 2.5 to 3 times the true count.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import orjson

from curate.engines.base import Completion, Request
from curate.engines.chat_completions import failed
from curate.engines.layout import Trunk
from curate.engines.tokens import PromptRefused, PromptTokens

CountOnServer = Callable[[str, str], Awaitable[int | Completion]]
"""Text and affinity to a number of tokens, or to a completion that is a fault."""

_PROMPT, _MESSAGE, _TOOLS = 64, 16, 256
"""Tokens that a chat template puts around a prompt, a message, and a list of tools."""
_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z][a-z]+(?![A-Z0-9])")


def token_bound(text: str) -> int:
    """Return an upper bound of the tokens that common tokenizers make of a text."""
    words = sum(match.end() - match.start() for match in _WORD.finditer(text))
    return len(text.encode("utf-8", "surrogatepass")) - words // 3


class PromptRoom:
    """Refuses requests that do not fit into a context.

    Args:
        context: most tokens of prompt and reply together.
        prompts: the tokenizer; None where the recipe names none.
        count: counts on the server; None where it has no `/tokenize`.
    """

    def __init__(
        self, context: int, prompts: PromptTokens | None = None, count: CountOnServer | None = None
    ) -> None:
        self.context = context
        self._prompts = prompts
        self._count = count

    @property
    def description(self) -> str:
        """Say how prompts are measured, for `curate doctor`."""
        if self._prompts is not None:
            return "counted by the tokenizer"
        return "counted by the server" if self._count else "an upper bound by its characters"

    async def refuse(self, request: Request) -> Completion | None:
        """Return a fault for a request that does not fit; None where it fits."""
        if self._prompts is not None:
            try:
                return self.refuse_tokens(len(self._prompts.prompt_ids(request)), request)
            except PromptRefused:
                pass  # the server renders it by a template of its own
        around = _PROMPT + _MESSAGE * len(request.messages) + (_TOOLS if request.tools else 0)
        least_room = self.context - request.max_tokens - around
        shared, own = _texts_of(request)
        own_bound = token_bound(own)
        trunk = request.trunk
        bound = own_bound
        if isinstance(trunk, Trunk):
            bound += trunk.derived(token_bound, token_bound)
        if bound <= least_room:
            return None
        if self._count is None or least_room <= 0:
            return self.refuse_tokens(bound + around, request, "at most ")
        if isinstance(trunk, Trunk):
            # The siblings' trunk is counted once; cutting the text there can change the count by one token.
            counts: list[int] = trunk.derived(self, lambda _: [])
            if not counts:
                counted = await self._count(shared, request.affinity)
                if isinstance(counted, Completion):
                    return counted
                counts.append(counted)
            if counts[0] + own_bound + 1 <= least_room:
                return None
            if counts[0] - 1 > least_room:
                return self.refuse_tokens(counts[0] - 1 + around, request, "at least ")
        counted = await self._count(shared + own, request.affinity)
        if isinstance(counted, Completion):
            return counted
        return self.refuse_tokens(counted + around, request)

    def refuse_tokens(self, prompt: int, request: Request, about: str = "") -> Completion | None:
        """Return a fault for a prompt of `prompt` tokens that does not fit; None where it fits."""
        if prompt + request.max_tokens <= self.context:
            return None
        return failed(
            "context_overflow",
            f"not sent: {about}{prompt} tokens of prompt and {request.max_tokens} of reply exceed the "
            f"context of {self.context}",
        )


def _texts_of(request: Request) -> tuple[str, str]:
    """Return the texts that a chat template prints of a request: the shared start, and the rest."""
    tools = _json(request.tools) if request.tools else ""
    if isinstance(request.trunk, Trunk):
        return request.trunk.text, f"{request.question}{tools}{request.thought}{request.prefill}"
    parts: list[str] = []
    for message in request.messages:
        for key, value in message.items():
            parts += [value if isinstance(value, str) else _json(value), key]
    return "", "\n".join([*parts, tools, request.prefill])


def _json(value: object) -> str:
    return orjson.dumps(value, default=dict).decode()
