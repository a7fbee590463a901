"""BERTScore (Zhang et al. 2020), equal to the bert-score package on the same encoder, layer and options.

Ours because that package embeds again whatever comes in another call, and cannot run in bfloat16. Token
states come from the encoder cut after the chosen layer. Each unique text goes through it once: texts of
like length together, states kept while memory lasts, and the score of a pair kept on disk.

As in the package: start and end tokens can be matched and weigh nothing; idf is
log((M + 1) / (df + 1)) over the M references; of several references the best score counts.
"""

from __future__ import annotations

import csv
import hashlib
import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from curate.adherence.reference.cases import (
    NO_REFERENCE,
    Case,
    CaseReading,
    ComparisonMethod,
    pair_figures,
)
from curate.adherence.reference_config import ReferenceConfig
from curate.adherence.sentence_encoder import (
    device_of,
    load_model,
    model_name,
    revision_of,
    token_limit,
)
from curate.errors import UsageError, first_line
from curate.storage.store import Store

LAYERS = {
    "bert-base-chinese": 8,
    "bert-base-multilingual-cased": 9,
    "bert-base-uncased": 9,
    "bert-large-uncased": 18,
    "distilbert-base-uncased": 5,
    "distilroberta-base": 5,
    "microsoft/deberta-base": 9,
    "microsoft/deberta-large": 16,
    "microsoft/deberta-large-mnli": 18,
    "microsoft/deberta-v3-base": 9,
    "microsoft/deberta-v3-large": 12,
    "microsoft/deberta-xlarge-mnli": 40,
    "microsoft/mpnet-base": 8,
    "roberta-base": 10,
    "roberta-large": 17,
    "roberta-large-mnli": 19,
    "xlm-roberta-base": 9,
    "xlm-roberta-large": 17,
}
"""Layers the bert-score package chose by correlation with human ratings (WMT16)."""

_BATCH_TOKENS = 512
"""Tokens of a batch, padding included: its activations then stay in a processor's cache."""
_GPU_BATCH_TOKENS = 16_384
_STATE_BYTES = 2**30
_TRIPLE = struct.Struct("<3d")

Triple = tuple[float, float, float]
"""Precision, recall and F1 of a pair, before rescaling."""


def layer_of(config: ReferenceConfig) -> int:
    """Return the layer whose states are compared.

    Raises:
        UsageError: none is given and none is known for the model.
    """
    layer = config.layer or LAYERS.get(config.bertscore_model.removeprefix("FacebookAI/"))
    if layer is None:
        raise UsageError(
            "no layer is known for this BERTScore model",
            got=config.bertscore_model,
            expected="adherence.reference.layer, or one of " + ", ".join(sorted(LAYERS)),
            fix="name the layer; about two thirds of the model's depth is usual",
        )
    return layer


def check_options(config: ReferenceConfig) -> None:
    """Refuse options that cannot work, before a model is loaded; errors as in `layer_of`.

    Raises:
        UsageError: the baseline cannot be read, or has no row for the layer.
    """
    layer = layer_of(config)
    if config.baseline is not None:
        _read_baseline(config.baseline, layer)


class TokenEncoder:
    """A transformers encoder cut after one layer: texts in, token ids and states of length 1 out.

    Attributes:
        embedded: texts that went through the model.
        cut: texts that were longer than it reads.
    """

    def __init__(self, config: ReferenceConfig) -> None:
        self._config, self.layer = config, layer_of(config)
        self.embedded = self.cut = 0

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        tokenizer, model = load_model("AutoModel", self._config.bertscore_model, self._config)
        _keep_layers(model, self.layer)
        return tokenizer, model.to(device_of(self._config))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Model, revision, layer and precision."""
        return {
            "encoder": model_name(self._config.bertscore_model),
            "revision": revision_of(self._config.bertscore_model, self._loaded[1].config),
            "layer": self.layer,
            "precision": self._config.precision,
        }

    @cached_property
    def weightless(self) -> frozenset[int]:
        """Ids of the start and end token, which weigh nothing without idf."""
        tokenizer = self._loaded[0]
        return frozenset({tokenizer.cls_token_id, tokenizer.sep_token_id})

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return token ids with special tokens; a text longer than the model reads is cut there, and counted."""
        tokenizer, model = self._loaded
        limit = token_limit(tokenizer, model)
        # The package asks byte-level BPE tokenizers to treat the first word like any other.
        gap = " " if type(tokenizer).__name__.startswith(("Roberta", "GPT2")) else ""
        token_ids: list[list[int]] = tokenizer(
            [gap + text.strip() for text in texts], truncation=True, max_length=limit + 1
        )["input_ids"]
        over = [place for place, ids in enumerate(token_ids) if len(ids) > limit]
        if over:
            self.cut += len(over)
            again = [gap + texts[place].strip() for place in over]
            cut = tokenizer(again, truncation=True, max_length=limit)["input_ids"]
            for place, ids in zip(over, cut, strict=True):
                token_ids[place] = ids
        return token_ids

    def encode(self, texts: Sequence[str]) -> list[tuple[list[int], Any]]:
        """Return ids and states (tokens, dimensions; float32, each row of length 1) of each text, in order."""
        import torch

        ids = self.tokenize(texts)
        model = self._loaded[1]
        budget = _BATCH_TOKENS if model.device.type == "cpu" else _GPU_BATCH_TOKENS
        states: list[Any] = [None] * len(ids)
        for batch in _batches([len(each) for each in ids], budget):
            longest = max(len(ids[place]) for place in batch)
            tokens = torch.zeros((len(batch), longest), dtype=torch.long)
            mask = torch.zeros_like(tokens)
            for row, place in enumerate(batch):
                tokens[row, : len(ids[place])] = torch.tensor(ids[place])
                mask[row, : len(ids[place])] = 1
            with torch.inference_mode():
                out = model(input_ids=tokens.to(model.device), attention_mask=mask.to(model.device))
                unit = torch.nn.functional.normalize(out[0].float(), dim=-1).cpu()
            for row, place in enumerate(batch):
                states[place] = unit[row, : len(ids[place])].clone()
        self.embedded += len(texts)
        return list(zip(ids, states, strict=True))


class BertScore(ComparisonMethod):
    """BERTScore F1 of a turn against its references, the best of them."""

    def __init__(self, encoder: TokenEncoder, store: Store, config: ReferenceConfig) -> None:
        self.encoder, self._store, self._config = encoder, store, config
        self.models = (encoder,)
        self.needs_second_pass = True
        self._documents, self._frequency = 0, Counter[int]()
        self._states: OrderedDict[str, tuple[list[int], Any]] = OrderedDict()
        self._held = 0
        self._baseline = (
            _read_baseline(config.baseline, encoder.layer) if config.baseline is not None else None
        )

    def learn(self, cases: Sequence[Case]) -> None:
        """Count, with idf, in how many references each token stands."""
        if self._config.idf:
            references = [text for case in cases for text in case.references]
            self._documents += len(references)
            for ids in self.encoder.tokenize(references) if references else ():
                self._frequency.update(set(ids))

    def settle(self, cases: Sequence[Case]) -> None:
        """Compute the pairs of the cases that are not in the store."""
        self.pairs(
            [(case.candidate, text) for case in cases if case.candidate for text in case.references]
        )

    def _score(self, case: Case) -> CaseReading:
        """Return F1, or with a baseline what is left of it above the baseline (then it can be below 0)."""
        if not case.references:
            return NO_REFERENCE
        triples = self.pairs([(case.candidate, text) for text in case.references])
        best = max(f1 for _, _, f1 in triples)
        if self._baseline is not None:
            best = (best - self._baseline[2]) / (1 - self._baseline[2])
        return CaseReading(best)

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Triple]:
        """Return precision, recall and F1 of (candidate, reference) pairs, in order, without rescaling."""

        def match(missing: Sequence[tuple[str, str]]) -> list[Triple]:
            states = self._states_of([text for pair in missing for text in pair])
            return [
                _match(states[candidate], states[reference], self._weight)
                for candidate, reference in missing
            ]

        triples = pair_figures(self._store, self._name, _TRIPLE, pairs, match)
        return [(precision, recall, f1) for precision, recall, f1 in triples]

    def describe(self) -> dict[str, Any]:
        """Return what the identity records."""
        baseline = {"baseline": self._baseline} if self._baseline is not None else {}
        return {**self.encoder.identity, "idf": self._idf_digest or False, **baseline}

    @cached_property
    def _name(self) -> str:
        return repr(("bertscore", sorted(self.encoder.identity.items()), self._idf_digest))

    @cached_property
    def _idf_digest(self) -> str:
        """Names the idf table, first read when counting is over; empty without idf."""
        if not self._config.idf:
            return ""
        table = repr((self._documents, sorted(self._frequency.items())))
        return hashlib.blake2b(table.encode(), digest_size=8).hexdigest()

    def _weight(self, token: int) -> float:
        if self._config.idf:
            return math.log((self._documents + 1) / (self._frequency[token] + 1))
        return 0.0 if token in self.encoder.weightless else 1.0

    def _states_of(self, texts: Sequence[str]) -> dict[str, tuple[list[int], Any]]:
        """Return states of the unique texts; those least recently used are let go beyond a bound of memory."""
        needed = dict.fromkeys(texts)
        fresh = [text for text in needed if text not in self._states]
        for text, state in zip(fresh, self.encoder.encode(fresh) if fresh else (), strict=True):
            self._states[text] = state
            self._held += state[1].nbytes
        result = {text: self._states[text] for text in needed}
        for text in needed:
            self._states.move_to_end(text)
        while self._held > _STATE_BYTES and self._states:
            _, (_, dropped) = self._states.popitem(last=False)
            self._held -= dropped.nbytes
        return result


def _match(
    candidate: tuple[list[int], Any],
    reference: tuple[list[int], Any],
    weight: Callable[[int], float],
) -> Triple:
    """Match greedily: each token takes its most similar one of the other text."""
    import torch

    (candidate_ids, candidate_states), (reference_ids, reference_states) = candidate, reference
    similar = candidate_states @ reference_states.T
    sides = []
    for ids, best in (
        (candidate_ids, similar.max(dim=1).values),
        (reference_ids, similar.max(dim=0).values),
    ):
        weights = torch.tensor([weight(token) for token in ids])
        total = float(weights.sum())
        sides.append(float(best @ weights) / total if total else 0.0)
    precision, recall = sides
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield places of texts, longest first, in batches that with their padding stay within the budget of tokens."""
    batch: list[int] = []
    longest = 0
    for place in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and (len(batch) + 1) * longest > budget:
            yield batch
            batch = []
        if not batch:
            longest = lengths[place]
        batch.append(place)
    if batch:
        yield batch


def _keep_layers(model: Any, layer: int) -> None:
    """Drop the layers behind the chosen one, whose output is then the model's own."""
    import torch

    for path in ("encoder.layer", "transformer.layer", "layers"):
        holder, _, name = path.rpartition(".")
        at = getattr(model, holder, None) if holder else model
        layers = getattr(at, name, None)
        if isinstance(layers, torch.nn.ModuleList):
            if layer > len(layers):
                raise UsageError(
                    "the BERTScore model has fewer layers",
                    got=f"layer {layer}",
                    expected=f"1 to {len(layers)}",
                )
            setattr(at, name, layers[:layer])
            return
    raise UsageError(
        "BERTScore cannot cut this model's layers",
        got=type(model).__name__,
        expected="an encoder like BERT, RoBERTa, DeBERTa or DistilBERT",
    )


def _read_baseline(path: Path, layer: int) -> Triple:
    """Read precision, recall and F1 of a layer from a table with the columns LAYER, P, R, F."""
    try:
        with path.open(encoding="utf-8") as file:
            rows = {int(row["LAYER"]): row for row in csv.DictReader(file)}
        row = rows[layer]
        return float(row["P"]), float(row["R"]), float(row["F"])
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UsageError(
            "not a BERTScore baseline for this layer",
            got=f"{path}: {first_line(error)}",
            expected=f"a CSV file with columns LAYER,P,R,F and a row for layer {layer}",
        ) from error
