"""Checks whether words alone tell chosen from rejected, by a classifier that knows nothing else, held out by prompt.

If it can, a model trained on the pairs can learn the words instead of what they stand for ("Sure" opens
every chosen side). The classifier is naive Bayes over words that only one side of a pair has: what both
sides say is the subject, and says nothing about which is better. Punctuation and markdown are words of their
own, and so is the first word of a side.
"""

from __future__ import annotations

import random
import re
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from curate.dialogue import Message
from curate.trust.agreement import auc

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

TOKEN = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|[^\W_]+|[^\w\s]+|_+")
_FIRST = "^"
_SUPPORT = 5
_Z = 5.0
_SHOWN = 3
_SEED = 0
_FOLDS = 5
"""Parts of the pairs that are held out in turn."""
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class TellingWord:
    """A word and in how many pairs only the chosen, or only the rejected side has it."""

    word: str
    chosen: int
    rejected: int

    def __str__(self) -> str:
        is_first = self.word.startswith(_FIRST) and self.word != _FIRST
        named = f"'{self.word[1:]}' as first word" if is_first else f"'{self.word}'"
        return f"{named} only in chosen {self.chosen}, only in rejected {self.rejected}"


@dataclass(frozen=True, slots=True)
class WordShortcut:
    """How well words alone tell the sides apart.

    Attributes:
        auc: in [0, 1]; the share of (chosen, rejected) sides, of any two pairs, that held-out scores put in
            the right order. 0.5 is chance.
        pairs: how many it was measured on.
        words: those that tell the most, first.
    """

    auc: float
    pairs: int
    words: tuple[TellingWord, ...]


class WordCounts:
    """The words of many pairs, as numbers: about four bytes for a word that only one side has.

    Args:
        size: pairs to count; of more, an even sample is drawn (Vitter's algorithm R, with a fixed seed).
    """

    def __init__(self, size: int = 20_000) -> None:
        self._size = size
        self._added = 0
        self._draw = random.Random(_SEED)
        self._vocabulary: dict[str, int] = {}
        self._pairs: list[tuple[int, array[int], array[int]]] = []

    def add(self, group: str, chosen: Message, rejected: Message) -> None:
        """Take a pair in. Pairs of one group, as those of one prompt, are never on both sides of a fold."""
        self._added += 1
        place = len(self._pairs)
        if place >= self._size and (place := self._draw.randrange(self._added)) >= self._size:
            return
        fold = zlib.crc32(group.encode("utf-8", "surrogatepass")) % _FOLDS
        left, right = side_words(chosen), side_words(rejected)
        entry = (fold, self._numbers(left - right), self._numbers(right - left))
        self._pairs[place : place + 1] = [entry]

    def _numbers(self, words: Iterable[str]) -> array[int]:
        known = self._vocabulary
        return array("I", sorted(known.setdefault(word, len(known)) for word in words))

    def shortcut(self) -> WordShortcut | None:
        """Train on all folds but one, score that one, and so on; None where there are not two folds."""
        import numpy as np
        from sklearn.naive_bayes import MultinomialNB

        table = self._table()
        folds = np.repeat([fold for fold, *_ in self._pairs], 2)
        is_chosen = np.tile((True, False), len(self._pairs))
        if len(np.unique(folds)) < 2:
            return None
        scores = np.zeros(len(folds))
        # without any word there is nothing to fit, and all scores are 0
        for fold in np.unique(folds) if self._vocabulary else ():
            rest = table[folds != fold]
            # Shares of all words of a side, not counts, so that a side is not taken for chosen because it is longer.
            bayes = MultinomialNB(fit_prior=False).fit(rest, is_chosen[folds != fold])
            weights = bayes.feature_log_prob_[1] - bayes.feature_log_prob_[0]
            weights[rest.sum(axis=0) < _SUPPORT] = 0
            scores[folds == fold] = table[folds == fold] @ weights
        area = auc(scores.tolist(), is_chosen.tolist())
        assert area is not None
        words = self._telling(table[is_chosen].sum(axis=0), table[~is_chosen].sum(axis=0))
        return WordShortcut(area, len(self._pairs), words)

    def _table(self) -> Any:
        """Return the words that a side has and the other has not, as ones of a sparse table: the chosen side of the first
        pair, its rejected side, the chosen side of the second pair, and so on.
        """
        import numpy as np
        from scipy.sparse import csr_array

        sides = [side for _, *both in self._pairs for side in both]
        starts = np.cumsum([0, *map(len, sides)])
        words = np.fromiter(chain.from_iterable(sides), np.int32, starts[-1])
        shape = (len(sides), len(self._vocabulary))
        return csr_array((np.ones(len(words), np.int32), words, starts), shape=shape)

    def _telling(
        self, chosen: npt.NDArray[np.int64], rejected: npt.NDArray[np.int64]
    ) -> tuple[TellingWord, ...]:
        """Return the words that occur far from chance, by the z of a sign test against the share of all words."""
        import numpy as np

        both = chosen + rejected
        share = chosen.sum() / max(1, both.sum())
        spread = np.sqrt(both * share * (1 - share))
        z = np.abs(chosen - share * both) / np.where(spread > 0, spread, np.inf)
        far = [
            (-z[number], word, TellingWord(word, int(chosen[number]), int(rejected[number])))
            for word, number in self._vocabulary.items()
            if both[number] >= _SUPPORT and z[number] >= _Z
        ]
        return tuple(item for *_, item in sorted(far, key=lambda entry: entry[:2])[:_SHOWN])


def side_words(side: Message) -> set[str]:
    """Return the words of a side: casefolded words and runs of marks, tools called, and `^word` for its first."""
    # a long text without spaces, such as base64, is cut
    parts = [word[:_LONGEST] for word in TOKEN.findall(side.content.casefold())]
    words = set(parts)
    if parts:
        words.add(_FIRST + parts[0])
    words.update(f"call:{call.name}" for call in side.tool_calls)
    return words
