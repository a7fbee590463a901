"""Methods that count words: KL divergence of vocabularies, and the baselines ROUGE-L and BLEU.

KL is fitted on the references of a role; the other two compare a turn with its own references, by rapidfuzz and
sacrebleu. The paper considered ROUGE and BLEU and discarded them, because they
punish paraphrase: they are here to be compared with.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from curate.adherence.reference.cases import (
    NO_REFERENCE,
    TOO_FEW,
    Case,
    CaseReading,
    ComparisonMethod,
)
from curate.adherence.reference_config import ReferenceConfig

_WORDS = re.compile(r"\w+")
_TOKENS = re.compile(r"\w+|[^\w\s]")
BLEU_ORDER = 4


class Divergence(ComparisonMethod):
    """exp(-beta * KL(P || Q)): P the words of a role's references, Q those of a turn.

    Both are counts over the `vocabulary` most frequent words of the references (ties to the word that came
    first), plus one (Laplace). Words are what stands between white space, in lower case, punctuation
    included: so the paper's figures are reproduced.
    """

    def __init__(self, config: ReferenceConfig) -> None:
        self.beta, self.size = config.beta, config.vocabulary
        self._counts: dict[str, Counter[str]] = {}
        self._references: Counter[str] = Counter()
        self._digest = hashlib.blake2b(digest_size=8)
        self._fitted: dict[str, _Vocabulary] = {}

    def learn(self, cases: Sequence[Case]) -> None:
        """Count the references' words."""
        for case in cases:
            for reference in case.references:
                self._digest.update(f"{case.role}\0{reference}\0".encode())
                self._references[case.role] += 1
                self._counts.setdefault(case.role, Counter()).update(reference.lower().split())

    def _score(self, case: Case) -> CaseReading:
        """Return a score in (0, 1]; a role without references has no distribution."""
        if not self._counts.get(case.role):
            return TOO_FEW
        if case.role not in self._fitted:
            self._fitted[case.role] = _Vocabulary(self._counts[case.role], self.size)
        return CaseReading(
            math.exp(-self.beta * self._fitted[case.role].divergence(case.candidate))
        )

    def fitted_on(self) -> dict[str, int]:
        """Return how many references each role has."""
        return dict(self._references)

    def describe(self) -> dict[str, Any]:
        """Return what the identity records."""
        return {"beta": self.beta, "vocabulary": self.size, "fit": self._digest.hexdigest()}


class _Vocabulary:
    """A role's smoothed word distribution, laid out so that a turn costs only its own words.

    KL(P || Q) = sum P log P - sum P log(count + 1) + log(words + V), and a word the turn does not hold
    adds log 1 = 0 to the middle sum.
    """

    def __init__(self, counts: Mapping[str, int], size: int) -> None:
        frequent = Counter(counts).most_common(size)
        total = sum(count for _, count in frequent) + len(frequent)
        self.shares = {word: (count + 1) / total for word, count in frequent}
        self.entropy = math.fsum(p * math.log(p) for p in self.shares.values())

    def divergence(self, text: str) -> float:
        """Return the divergence in nats."""
        seen = Counter(word for word in text.lower().split() if word in self.shares)
        cross = math.fsum(self.shares[word] * math.log(n + 1) for word, n in seen.items())
        return max(0.0, self.entropy - cross + math.log(seen.total() + len(self.shares)))


class Overlap(ComparisonMethod):
    """A function of a turn and its own references, nothing fitted."""

    def __init__(self, measure: Callable[[str, Sequence[str]], float], name: str) -> None:
        self._measure, self._name = measure, name

    def _score(self, case: Case) -> CaseReading:
        """Return the measure of the turn."""
        if not case.references:
            return NO_REFERENCE
        return CaseReading(self._measure(case.candidate, case.references))

    def describe(self) -> dict[str, Any]:
        """Return what the identity records."""
        return {"measure": self._name}


def rouge_l(candidate: str, references: Sequence[str]) -> float:
    """Return F1 of the longest common word subsequence (Lin 2004), the best over the references, in [0, 1]."""
    from rapidfuzz.distance import Indel

    words = _WORDS.findall(candidate.lower())
    others = [_WORDS.findall(reference.lower()) for reference in references]
    # 1 - distance / (both lengths together), in insertions and deletions: twice the subsequence over the lengths.
    return max(
        (Indel.normalized_similarity(words, other) for other in others if words and other),
        default=0.0,
    )


def bleu(candidate: str, references: Sequence[str]) -> float:
    """Return sentence BLEU-4 (Papineni et al. 2002) in [0, 1] over words and punctuation, in lower case.

    Counts are clipped at the most any reference holds, the brevity penalty takes the reference nearest in
    length (ties to the shorter). Orders above one are smoothed by adding one (Lin and Och 2004); a
    candidate shorter than four tokens is measured on the orders it has.
    """
    words, *others = (" ".join(_TOKENS.findall(text.lower())) for text in (candidate, *references))
    if not words or not any(others):
        return 0.0
    measure = _bleu_of_order(min(BLEU_ORDER, words.count(" ") + 1))
    return float(measure.sentence_score(words, others).score) / 100


@cache
def _bleu_of_order(order: int) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(
        tokenize="none",
        smooth_method="add-k",
        smooth_value=1,
        max_ngram_order=order,
        effective_order=True,
    )
