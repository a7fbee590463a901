"""NLI: a turn that contradicts what would have been right is not adherent, however similar it is."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
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
    Embedder,
    device_of,
    load_model,
    model_name,
    revision_of,
    token_limit,
)
from curate.errors import UsageError
from curate.storage.store import Store

_BATCH = 16
_NUMBER = struct.Struct("<?")


class PairClassifier:
    """A transformers sequence classifier whose labels include contradiction.

    Attributes:
        classified: pairs that went through the model.
        cut: pairs that were longer than it reads.
    """

    def __init__(self, config: ReferenceConfig) -> None:
        self._config = config
        self.classified = self.cut = 0

    @cached_property
    def _loaded(self) -> tuple[Any, Any, int]:
        config = self._config
        auto = "AutoModelForSequenceClassification"
        tokenizer, model = load_model(auto, config.nli_model, config)
        labels = {int(index): str(name) for index, name in model.config.id2label.items()}
        contradiction_labels = [
            index for index, name in labels.items() if name.lower().startswith("contradict")
        ]
        if len(contradiction_labels) != 1:
            raise UsageError(
                "this model is not an NLI classifier",
                got=f"{config.nli_model} with labels {', '.join(labels.values())}",
                expected="one label named contradiction",
            )
        return tokenizer, model.to(device_of(config)), contradiction_labels[0]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Model, revision and precision."""
        return {
            "nli_model": model_name(self._config.nli_model),
            "nli_revision": revision_of(self._config.nli_model, self._loaded[1].config),
            "precision": self._config.precision,
        }

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Return for (premise, hypothesis) pairs, in order, whether contradiction is the most likely label."""
        import torch

        tokenizer, model, label = self._loaded
        limit = token_limit(tokenizer, model)
        contradicted = [False] * len(pairs)
        order = sorted(range(len(pairs)), key=lambda at: -sum(map(len, pairs[at])))
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            texts = [pairs[place][0] for place in places], [pairs[place][1] for place in places]
            whole = tokenizer(*texts, truncation=True, max_length=limit + 1)["input_ids"]
            self.cut += sum(len(ids) > limit for ids in whole)
            batch = tokenizer(
                *texts, truncation=True, max_length=limit, padding=True, return_tensors="pt"
            ).to(model.device)
            with torch.inference_mode():
                best = model(**batch).logits.argmax(dim=-1)
            for place, index in zip(places, best.tolist(), strict=True):
                contradicted[place] = index == label
        self.classified += len(pairs)
        return contradicted


class Entailment(ComparisonMethod):
    """0 for a turn that contradicts each of its references, else its similarity to them, or 1.

    Contradicting one of several valid replies says nothing, as they may contradict each other.
    """

    def __init__(self, classifier: PairClassifier, embedder: Embedder | None, store: Store) -> None:
        self._classifier, self._embedder, self._store = classifier, embedder, store
        self.models = (classifier, *([embedder.encoder] if embedder else []))

    def learn(self, cases: Sequence[Case]) -> None:
        """Classify the pairs, and embed the texts where similarity is the base."""
        self._contradicts(
            [(text, case.candidate) for case in cases if case.candidate for text in case.references]
        )
        if self._embedder is not None:
            self._embedder.warm(
                text for case in cases for text in (case.candidate, *case.references) if text
            )

    def _score(self, case: Case) -> CaseReading:
        """Return 0, or the base in [-1, 1]."""
        if not case.references:
            return NO_REFERENCE
        if all(self._contradicts([(text, case.candidate) for text in case.references])):
            return CaseReading(0.0)
        if self._embedder is None:
            return CaseReading(1.0)
        references = self._embedder.vectors(case.references)
        return CaseReading(float((references @ self._embedder.vectors([case.candidate])[0]).max()))

    def describe(self) -> dict[str, Any]:
        """Return what the identity records."""
        base = {"nli_base": "one"} if self._embedder is None else self._embedder.encoder.identity
        return {**base, **self._classifier.identity}

    @cached_property
    def _name(self) -> str:
        return repr(("nli", sorted(self._classifier.identity.items())))

    def _contradicts(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        def classify(missing: Sequence[tuple[str, str]]) -> list[tuple[bool]]:
            return [(label,) for label in self._classifier.contradictions(missing)]

        figures = pair_figures(self._store, self._name, _NUMBER, pairs, classify)
        return [bool(label) for (label,) in figures]
