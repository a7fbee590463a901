"""Keys and values of prompts that share their start, in one cache.

Siblings on a trunk, nested prefixes and several samples of one reply form a tree of tokens. It is laid
out flat in one key-value cache: every token has a slot, sees its ancestors and itself, and has the
position of its depth. One pass of the model then reads all questions about a dialogue at once: nothing
is padded, nothing is read twice, the trunk's keys and values are not copied for each branch, and the
figures are those of reading each prompt by itself (up to rounding). Generation grows the same tree by one
run of tokens a branch and pass.

This needs attention with a mask of our own. Models with other layers (recurrent, chunked) are refused
when they are loaded, see `attention_kinds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from curate.errors import EngineError

if TYPE_CHECKING:
    import torch

CHUNK = 1024
"""Tokens read in one pass: bounds the mask, which is CHUNK times the length of the cache."""

_KINDS = frozenset({"full_attention", "sliding_attention"})


def attention_kinds(config: Any) -> tuple[frozenset[str], int | None]:
    """Return the kinds of attention layers of a model, and its sliding window in tokens.

    Raises:
        EngineError: the model has layers that cannot read a tree.
    """
    text = config.get_text_config(decoder=True)
    window: int | None = getattr(text, "sliding_window", None)
    kinds = frozenset(getattr(text, "layer_types", None) or ())
    if not kinds:
        kinds = frozenset({"full_attention" if window is None else "sliding_attention"})
    if not kinds <= _KINDS:
        raise EngineError(
            f"the transformers engine cannot run {text.model_type}",
            got=f"layers of the kinds {', '.join(sorted(kinds))}",
            expected=f"only {' and '.join(sorted(_KINDS))}",
            fix="serve the model with vLLM (engine: vllm or openai)",
        )
    return kinds, window if "sliding_attention" in kinds else None


class TokenTree:
    """A tree of tokens and its key-value cache. Not safe to use from two threads.

    Args:
        model: a causal language model of transformers, in evaluation mode.
    """

    def __init__(self, model: Any) -> None:
        from transformers import DynamicCache

        self._model = model
        self._kinds, self._window = attention_kinds(model.config)
        # Without the config all layers keep all tokens; sliding ones are held to their window by the mask.
        self._cache: Any = DynamicCache()
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._positions: list[int] = []
        # First slot of the unbroken chain a slot stands in: ancestors are a few ranges, not many slots.
        self._chain_starts: list[int] = []
        self._children: dict[tuple[int, int], int] = {}
        self._read = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def shared_with(self, ids: Sequence[int]) -> int:
        """Count the tokens of `ids`, from the start, that the tree holds."""
        slot = -1
        for count, token in enumerate(ids):
            slot = self._children.get((slot, token), -1)
            if slot < 0:
                return count
        return len(ids)

    def place(self, ids: Sequence[int]) -> tuple[int, int]:
        """Put a prompt into the tree.

        Returns:
            The slot of its last token, and how many of its tokens are new.
        """
        slot, new = -1, 0
        for token in ids:
            child = self._children.get((slot, token))
            if child is None:
                child = self._append(slot, token)
                self._children[slot, token] = child
                new += 1
            slot = child
        return slot, new

    def grow(self, slot: int, ids: Sequence[int]) -> int:
        """Append tokens behind a slot, as a branch of its own; return the slot of the last one."""
        for token in ids:
            slot = self._append(slot, token)
        return slot

    def read(self, slots: Sequence[int]) -> dict[int, torch.Tensor]:
        """Run the model over all tokens that were not read yet.

        Args:
            slots: those of these tokens whose logits are needed.

        Returns:
            For each of the slots the logits of the next token, float32, one per entry of the vocabulary.
        """
        logits_by_slot: dict[int, torch.Tensor] = {}
        while self._read < len(self):
            start, stop = self._read, min(self._read + CHUNK, len(self))
            chunk = sorted({slot for slot in slots if start <= slot < stop})
            logits_by_slot |= zip(chunk, self._forward(start, stop, chunk), strict=True)
            self._read = stop
        return logits_by_slot

    def keep_path(self, ids: Sequence[int]) -> None:
        """Keep only a prompt's tokens (all of which were read), as the first slots."""
        import torch

        slots, slot = [], -1
        for token in ids:
            slot = self._children[slot, token]
            slots.append(slot)
        index = torch.tensor(slots, device=self._model.device)
        for layer in self._cache.layers:
            # Copies on purpose: a view would keep the memory of all the branches.
            layer.keys = layer.keys.index_select(2, index)
            layer.values = layer.values.index_select(2, index)
        self._relabel(ids)

    def branch_off(self, length: int) -> TokenTree:
        """Return another tree that begins with the first `length` slots of this one, which is one path."""
        tree = TokenTree(self._model)
        for number, layer in enumerate(self._cache.layers):
            keys, values = layer.keys[:, :, :length], layer.values[:, :, :length]
            tree._cache.update(keys.clone(), values.clone(), number)
        tree._relabel(self._tokens[:length])
        return tree

    def _relabel(self, ids: Sequence[int]) -> None:
        self._tokens, self._parents, self._positions, self._chain_starts = [], [], [], []
        self._children = {}
        self.place(list(ids))
        self._read = len(self)

    def _append(self, parent: int, token: int) -> int:
        slot = len(self._tokens)
        self._tokens.append(token)
        self._parents.append(parent)
        self._positions.append(self._positions[parent] + 1 if parent >= 0 else 0)
        is_next = parent == slot - 1 and slot > 0
        self._chain_starts.append(self._chain_starts[parent] if is_next else slot)
        return slot

    def _forward(self, start: int, stop: int, slots: list[int]) -> torch.Tensor:
        import torch

        device = self._model.device
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([self._tokens[start:stop]], device=device),
                position_ids=torch.tensor([self._positions[start:stop]], device=device),
                attention_mask=self._masks(start, stop),
                past_key_values=self._cache,
                use_cache=True,
                # The head is as large as many layers: it is run only where a reply begins. The whole
                # vocabulary all the same, since the normaliser of an exact log-probability needs it.
                logits_to_keep=torch.tensor(
                    [slot - start for slot in slots], dtype=torch.long, device=device
                ),
            )
            logits: torch.Tensor = output.logits[0].float()
        return logits

    def _masks(self, start: int, stop: int) -> Any:
        """Return the attention masks of the tokens `start..stop`, as additive 4-D masks: one, or one a kind of layer."""
        import torch

        sees = torch.zeros(stop - start, stop, dtype=torch.bool)
        slot = start
        while slot < stop:
            end = slot + 1
            while end < stop and self._parents[end] == end - 1:
                end += 1
            row = self._ancestors(self._parents[slot], stop)
            sees[slot - start : end - start] = row
            sees[slot - start : end - start, slot:end] = torch.ones(
                end - slot, end - slot, dtype=torch.bool
            ).tril()
            slot = end
        masks = dict.fromkeys(self._kinds, sees)
        if self._window is not None:
            positions = torch.tensor(self._positions[:stop])
            distance = positions[start:, None] - positions[None, :]
            masks["sliding_attention"] = sees & (distance < self._window)
        additive = {kind: self._additive(mask) for kind, mask in masks.items()}
        return additive if len(additive) > 1 else next(iter(additive.values()))

    def _ancestors(self, slot: int, size: int) -> torch.Tensor:
        import torch

        row = torch.zeros(size, dtype=torch.bool)
        while slot >= 0:
            first = self._chain_starts[slot]
            row[first : slot + 1] = True
            slot = self._parents[first]
        return row

    def _additive(self, sees: torch.Tensor) -> torch.Tensor:
        import torch

        dtype = self._model.dtype
        mask = torch.zeros(sees.shape, dtype=dtype)
        mask.masked_fill_(~sees, torch.finfo(dtype).min)
        return mask[None, None].to(self._model.device)
