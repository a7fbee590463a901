"""A Hugging Face model in this process: the exact reference for log-probabilities.

All siblings of a `complete` are read in one tree (see `engines.token_tree`), so their common start is read
once; the longest prompt's keys and values are kept for the dialogue's next call. A label read is
the model's full head at the prompt's last position, and only there: the normaliser is taken over the
whole vocabulary in float32, so the figures are those of a plain forward pass.

A schema is enforced by llguidance, which also says which tokens are forced: those are appended without
running the model for each. The model runs in one thread of its own, so the event loop stays free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jsonschema
import orjson

from curate.engines.base import (
    Capability,
    Completion,
    EngineIdentity,
    Fault,
    Request,
    Usage,
    closed_error,
)
from curate.engines.chat_completions import cut_by_context, failed, label_logprobs, overflow
from curate.engines.config import TransformersConfig
from curate.engines.structured import for_grammar
from curate.engines.token_tree import TokenTree
from curate.engines.tokens import PromptRefused, PromptTokens

if TYPE_CHECKING:
    import torch


_CAPABILITIES = frozenset(
    {
        Capability.LABEL_LOGPROBS,
        Capability.PREFILL,
        Capability.TOKEN_PROMPTS,
        Capability.THOUGHTS,
        Capability.SEED,
        Capability.BATCH,
    }
)


@dataclass
class _Row:
    """One request being answered.

    Attributes:
        slot: of the last token in the tree, whose logits give the next token.
        limit: tokens the reply may have, by the request, the config and the context.
        matcher: llguidance's state, where there is a schema.
    """

    request: Request
    ids: list[int]
    limit: int
    matcher: Any = None
    slot: int = -1
    cached: int = 0
    reply: list[int] = field(default_factory=list)
    first_token: tuple[tuple[str, float], ...] = ()
    is_open: bool = True
    is_cut: bool = False
    fault: Fault | None = None
    generator: torch.Generator | None = None


class TransformersEngine:
    """A loaded model. Made by `engines.transformers_loading.open_transformers`.

    Args:
        model: a causal language model of transformers, in evaluation mode.
        context: tokens a prompt and its reply may have together.
        stops: ids of the tokens that end a reply.
        grammars: llguidance's tokenizer; None where the tokenizer is not one it can read.
    """

    def __init__(
        self,
        model: Any,
        prompts: PromptTokens,
        identity: EngineIdentity,
        config: TransformersConfig,
        *,
        context: int,
        stops: frozenset[int],
        grammars: Any = None,
    ) -> None:
        self._model = model
        self._config = config
        self.prompts = prompts
        self.identity = identity
        self.context_tokens = context
        # One is in the model while the next is being rendered and tokenised.
        self.open_dialogues = 2
        # Labels are read exactly, so there are no TOP_LOGPROBS; siblings come together, not side by side.
        self.capabilities = _CAPABILITIES | (
            {Capability.JSON_SCHEMA} if grammars is not None else set()
        )
        self._stops = stops
        self._grammars = grammars
        self._kept: deque[TokenTree] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="transformers")
        self._is_closing = False

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer siblings together, each token they share read once."""
        if self._model is None:
            raise closed_error()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._answer, list(requests))

    async def close(self) -> None:
        """Free the model. A call in flight ends with its current token."""
        self._is_closing = True
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._kept.clear()
        self._model = None

    def _answer(self, requests: list[Request]) -> list[Completion]:
        import torch

        prepared = [self._prepare(request) for request in requests]
        rows = [row for row in prepared if isinstance(row, _Row)]
        if rows:
            try:
                self._run(rows)
            except torch.OutOfMemoryError as error:
                # A tree that was read in part must not serve as a trunk, and the memory is needed.
                self._kept.clear()
                for row in rows:
                    row.fault = Fault("server", f"out of memory: {str(error)[:200]}")
        return [self._finish(row) if isinstance(row, _Row) else row for row in prepared]

    def _prepare(self, request: Request) -> _Row | Completion:
        try:
            ids = self.prompts.prompt_ids(request)
        except PromptRefused as error:
            return failed("bad_request", str(error))
        if too_long := overflow(len(ids), self.context_tokens):
            return too_long
        room = self.context_tokens - len(ids)
        row = _Row(request, ids, min(request.max_tokens, self._config.max_new, room))
        if request.schema is not None and self._grammars is not None:
            try:
                row.matcher = _matcher(self._grammars, request)
            except (jsonschema.SchemaError, ValueError) as error:
                return failed("bad_request", f"the schema cannot be kept to: {error}")
        if request.temperature > 0:
            row.generator = generator_of(request.seed)
        return row

    def _run(self, rows: list[_Row]) -> None:
        tree = self._take_tree([row.ids for row in rows])
        for row in rows:
            row.slot, new = tree.place(row.ids)
            row.cached = len(row.ids) - new
        for row in rows:
            if row.matcher is not None:
                self._extend(row, _consume_forced(row.matcher), tree)
        open_rows = [row for row in rows if row.is_open]
        while open_rows:
            if self._is_closing:
                for row in open_rows:
                    row.fault = Fault("server", "the engine was closed")
                return
            logits = tree.read([row.slot for row in open_rows])
            for row in open_rows:
                self._advance(row, logits[row.slot], tree)
            open_rows = [row for row in open_rows if row.is_open]
        self._keep(tree, max((row.ids for row in rows), key=len))

    def _advance(self, row: _Row, logits: torch.Tensor, tree: TokenTree) -> None:
        """Choose the next token of a row and put it, and the tokens that it forces, into the tree."""
        if row.request.labels and not row.reply:
            row.first_token = self._read_labels(row.request, logits)
        if row.matcher is not None:
            logits = _masked(row.matcher, logits)
        token = choose_token(logits, row.request, row.generator)
        if token in self._stops:
            row.is_open = False
        elif row.matcher is None:
            self._extend(row, [token], tree)
        else:
            row.matcher.consume_token(token)
            self._extend(row, [token, *_consume_forced(row.matcher)], tree)

    def _extend(self, row: _Row, tokens: list[int], tree: TokenTree) -> None:
        """Append tokens, which the row's matcher has consumed, to its reply."""
        fitting = tokens[: row.limit - len(row.reply)]
        row.reply += fitting
        if row.matcher is not None and row.matcher.is_error():
            row.fault = Fault("server", f"llguidance: {row.matcher.get_error()[:300]}")
            row.is_open = False
        elif row.matcher is not None and row.matcher.is_stopped() and len(fitting) == len(tokens):
            row.is_open = False
        elif len(row.reply) >= row.limit:
            row.is_open, row.is_cut = False, True
        else:
            row.slot = tree.grow(row.slot, fitting)

    def _read_labels(self, request: Request, logits: torch.Tensor) -> tuple[tuple[str, float], ...]:
        logprobs = logits.log_softmax(-1)
        label_ids = self.prompts.label_ids(request)
        return label_logprobs((text, float(logprobs[index])) for index, text in label_ids.items())

    def _finish(self, row: _Row) -> Completion:
        usage = Usage(len(row.ids), row.cached, len(row.reply))
        if row.fault is not None:
            return Completion(finish="error", usage=usage, fault=row.fault)
        if (
            row.is_cut
            and row.limit < self._config.max_new
            and (too_long := cut_by_context(usage, row.request, self.context_tokens))
        ):
            return too_long
        return Completion(
            text=self.prompts.tokenizer.decode(row.reply, skip_special_tokens=True),
            finish="length" if row.is_cut else "stop",
            first_token=row.first_token,
            exact_labels=bool(row.request.labels),
            usage=usage,
        )

    def _take_tree(self, prompts: Sequence[list[int]]) -> TokenTree:
        """Return a kept tree that begins as these prompts do, cut to their common start; else an empty one."""
        best, shared = None, 0
        for tree in self._kept:
            length = max(tree.shared_with(ids) for ids in prompts)
            if length > shared:
                best, shared = tree, length
        if best is None:
            return TokenTree(self._model)
        # A prompt that the tree has to its end has its last token read again: its logits were not kept.
        whole = [len(ids) for ids in prompts if best.shared_with(ids) == len(ids)]
        shared = min([shared, *(length - 1 for length in whole)])
        if shared <= 0:
            return TokenTree(self._model)
        # More than half of it is one dialogue going on; less is a rubric that two dialogues share.
        if 2 * shared >= len(best):
            self._kept.remove(best)
        return best.branch_off(shared)

    def _keep(self, tree: TokenTree, ids: list[int]) -> None:
        tree.read([])  # the prompt of a reply that a schema forced to its end
        tree.keep_path(ids)
        self._kept.append(tree)
        total = sum(len(kept) for kept in self._kept)
        while total > self._config.cache_tokens and self._kept:
            total -= len(self._kept.popleft())


def generator_of(seed: int) -> torch.Generator:
    """Return the random generator of one row, whose draws do not depend on its siblings."""
    import torch

    return torch.Generator().manual_seed(seed)


def choose_token(logits: torch.Tensor, request: Request, generator: torch.Generator | None) -> int:
    """Return the next token: the most likely one, or a draw from the nucleus of probability `top_p`."""
    if request.temperature <= 0 or generator is None:
        return int(logits.argmax())
    import torch

    probabilities = (logits.cpu() / request.temperature).softmax(-1)
    if request.top_p < 1.0:
        ranked, order = probabilities.sort(descending=True)
        # The token that reaches top_p still belongs to it, so at least one is always left.
        ranked[ranked.cumsum(-1) - ranked >= request.top_p] = 0.0
        return int(order[torch.multinomial(ranked, 1, generator=generator)])
    return int(torch.multinomial(probabilities, 1, generator=generator))


def _matcher(grammars: Any, request: Request) -> Any:
    """Return llguidance's matcher for a request's schema.

    Raises:
        jsonschema.SchemaError: the schema is none.
        ValueError: llguidance does not support it.
    """
    from llguidance import LLMatcher

    assert request.schema is not None
    schema = for_grammar(request.schema)
    grammar = LLMatcher.grammar_from_json_schema(orjson.dumps(schema).decode())
    matcher = LLMatcher(grammars, grammar)
    if matcher.is_error():
        raise ValueError(matcher.get_error()[:300])
    return matcher


def _consume_forced(matcher: Any) -> list[int]:
    """Return the tokens that must come next, and advance the matcher past them."""
    forced: list[int] = matcher.compute_ff_tokens()
    if forced:
        matcher.consume_tokens(forced)
    return forced


def _masked(matcher: Any, logits: torch.Tensor) -> torch.Tensor:
    """Return the logits of the tokens that a matcher allows; the rest are -inf."""
    import torch

    # One byte a token. The model's head may have more rows than the tokenizer has tokens.
    bias = torch.frombuffer(bytearray(matcher.compute_logit_bias()), dtype=torch.uint8)
    allowed = torch.zeros(len(logits), dtype=torch.bool)
    size = min(len(bias), len(logits))
    allowed[:size] = bias[:size] > 0
    return logits.masked_fill(~allowed.to(logits.device), float("-inf"))
