"""Can the words alone tell chosen from rejected? A classifier that knows nothing else, held out by prompt.

If it can, a model trained on the pairs can learn the words instead of what they stand for ("Sure" opens
every chosen side). The classifier is naive Bayes over words that only one side of a pair has: what both
sides say is the subject, and says nothing about which is better. Punctuation and markdown are words of their
own, and so is the first word of a side. In pure Python, so that the alarm belongs to the base install.
"""

from __future__ import annotations

import math
import random
import re
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from curate.dialogue import Message
from curate.trust.agreement import auc

_TOKEN = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|[^\W_]+|[^\w\s]+|_+")
_FIRST = "^"
_SUPPORT = 5
_Z = 5.0
_SHOWN = 3
_SEED = 0
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
    """What words alone can tell.

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
        folds: parts that are held out in turn.
    """

    def __init__(self, size: int = 20_000, folds: int = 5) -> None:
        self._size = size
        self._folds = folds
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
        fold = zlib.crc32(group.encode("utf-8", "surrogatepass")) % self._folds
        left, right = side_words(chosen), side_words(rejected)
        entry = (fold, self._numbers(left - right), self._numbers(right - left))
        self._pairs[place : place + 1] = [entry]

    def _numbers(self, words: Iterable[str]) -> array[int]:
        known = self._vocabulary
        return array("I", sorted(known.setdefault(word, len(known)) for word in words))

    def shortcut(self) -> WordShortcut | None:
        """Train on all folds but one, score that one, and so on; None where there are not two folds."""
        if len({fold for fold, _, _ in self._pairs}) < 2:
            return None
        by_fold = [self._counts(fold) for fold in range(self._folds)]
        total = tuple(
            [sum(each) for each in zip(*sides, strict=True)] for sides in zip(*by_fold, strict=True)
        )
        weights = [
            _weights(*(_less(whole, part) for whole, part in zip(total, counts, strict=True)))
            for counts in by_fold
        ]
        scores, is_chosen = [], []
        for fold, *sides in self._pairs:
            for words, label in zip(sides, (True, False), strict=True):
                scores.append(math.fsum(weights[fold].get(word, 0.0) for word in words))
                is_chosen.append(label)
        area = auc(scores, is_chosen)
        return None if area is None else WordShortcut(area, len(self._pairs), self._telling(*total))

    def _counts(self, fold: int) -> tuple[list[int], list[int]]:
        """In how many pairs of a fold only the chosen, and only the rejected side has each word."""
        counts = ([0] * len(self._vocabulary), [0] * len(self._vocabulary))
        for at, *sides in self._pairs:
            if at == fold:
                for count, words in zip(counts, sides, strict=True):
                    for word in words:
                        count[word] += 1
        return counts

    def _telling(self, chosen: Sequence[int], rejected: Sequence[int]) -> tuple[TellingWord, ...]:
        """Words far from what chance gives, by the z of a sign test against the share of all words."""
        share = sum(chosen) / max(1, sum(chosen) + sum(rejected))
        spread = share * (1 - share)
        found = []
        for word, number in self._vocabulary.items():
            yes, no = chosen[number], rejected[number]
            if yes + no >= _SUPPORT and spread:
                z = (yes - share * (yes + no)) / math.sqrt((yes + no) * spread)
                if abs(z) >= _Z:
                    found.append((-abs(z), word, TellingWord(word, yes, no)))
        return tuple(item for *_, item in sorted(found, key=lambda entry: entry[:2])[:_SHOWN])


def _less(whole: Sequence[int], part: Sequence[int]) -> list[int]:
    return [one - other for one, other in zip(whole, part, strict=True)]


def _weights(chosen: Sequence[int], rejected: Sequence[int]) -> dict[int, float]:
    """Log ratio of a word's share of all words on either side, one added to each count.

    Shares, not counts, so that a side is not taken for chosen because it is longer; words of fewer than
    `_SUPPORT` pairs weigh nothing.
    """
    bias = math.log((sum(chosen) + len(chosen) + 1) / (sum(rejected) + len(rejected) + 1))
    return {
        word: math.log((yes + 1) / (no + 1)) - bias
        for word, (yes, no) in enumerate(zip(chosen, rejected, strict=True))
        if yes + no >= _SUPPORT
    }


def side_words(side: Message) -> set[str]:
    """The words of a side: casefolded words and runs of marks, tools called, and `^word` for its first."""
    # a blob without spaces is no word to remember whole
    found = [word[:_LONGEST] for word in _TOKEN.findall(side.content.casefold())]
    words = set(found)
    if found:
        words.add(_FIRST + found[0])
    words.update(f"call:{call.name}" for call in side.tool_calls)
    return words
