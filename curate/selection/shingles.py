"""Tokens of a text, and 64-bit hashes of runs of tokens, for near-duplicates and contamination.

Both search for runs of n words that two texts share. Batches are processed in numpy: rensa hashes each token once,
and the hash of any run follows from running sums, so runs are never built as strings, except the few in reports.

Texts are compared without case, punctuation, symbols and spacing: NFKC, casefolded, split at every character that is
not a letter, mark or digit. In scripts written without spaces each character is a token and counts as part of a word,
by the usual length of words: Han two characters, kana three, Thai, Lao, Khmer and Burmese four. A run of n words is
the shortest run of tokens that is worth n words, so 13 words are 26 Han characters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

WORD = 12
"""Worth of a word; divisible by two, three and four."""
_UNSPACED: tuple[tuple[int, int, int], ...] = (
    (0x3005, 0x3007, WORD // 2),  # ideographic iteration mark, closing mark and zero
    (0x3400, 0x4DBF, WORD // 2),
    (0x4E00, 0x9FFF, WORD // 2),
    (0xF900, 0xFAFF, WORD // 2),
    (0x20000, 0x323AF, WORD // 2),
    (0x3041, 0x30FF, WORD // 3),
    (0x31F0, 0x31FF, WORD // 3),
    (0x0E01, 0x0EFF, WORD // 4),  # Thai, Lao
    (0x1000, 0x109F, WORD // 4),  # Burmese
    (0x1780, 0x17FF, WORD // 4),  # Khmer
)
"""First and last code point of a range, and the worth of a character in it."""

_LOWEST = min(first for first, _, _ in _UNSPACED)

_BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2^64
_INVERSE = pow(_BASE, -1, 1 << 64)


class _Table(dict[int, str | int]):
    """A table for `str.translate` after which `split` gives the tokens; entries are added at first use."""

    def __missing__(self, point: int) -> str | int:
        character = chr(point)
        value: str | int
        if unicodedata.category(character)[0] not in "LMN":
            value = " "
        elif _worth(point) != WORD:
            value = f" {character} "
        else:
            value = point
        self[point] = value
        return value


def _worth(point: int) -> int:
    return next((worth for first, last, worth in _UNSPACED if first <= point <= last), WORD)


_TABLE = _Table()


def tokenise(text: str) -> list[str]:
    """Return the tokens of a text, in order; the module's docstring defines them."""
    return unicodedata.normalize("NFKC", text).casefold().translate(_TABLE).split()


def worth(tokens: Sequence[str]) -> int:
    """Return how many words the tokens are worth, rounded down."""
    return int(_worths(tokens).sum()) // WORD


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of n words of a batch of texts.

    Attributes:
        hashes: hash of every run, text after text, by first token; shape (runs,).
        starts: index of each run's first token within its text; shape (runs,).
        stops: index after each run's last token; shape (runs,).
        offsets: `hashes[offsets[i]:offsets[i + 1]]` belong to text i; shape (texts + 1,).
    """

    hashes: U64
    starts: I64
    stops: I64
    offsets: I64

    def of(self, text: int) -> U64:
        """Return the hashes of one text's runs."""
        return self.hashes[self.offsets[text] : self.offsets[text + 1]]


class TokenBatch:
    """A batch of texts with every token hashed once, for runs of any length.

    Args:
        texts: tokens of each text (see `tokenise`).
    """

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        flat = [token for tokens in texts for token in tokens]
        lengths = np.fromiter((len(tokens) for tokens in texts), np.int64, len(texts))
        self._offsets: I64 = np.concatenate(([0], np.cumsum(lengths)))
        self._ends: I64 = np.repeat(self._offsets[1:], lengths)
        powers, self._inverses = _powers(len(flat))
        hashes = np.array(hash_tokens(flat), dtype=np.uint64)
        self._sums: U64 = np.concatenate(
            (np.zeros(1, np.uint64), np.cumsum(hashes * powers, dtype=np.uint64))
        )
        self._worth: I64 = np.concatenate(([0], np.cumsum(_worths(flat))))

    def runs(self, words: int, *, short: bool) -> Runs:
        """Return every run of `words` words.

        Args:
            words: length of a run in words.
            short: make a shorter text a single run of all its tokens; otherwise it has no runs.
        """
        first = np.arange(len(self._ends), dtype=np.int64)
        last = np.searchsorted(self._worth, self._worth[:-1] + words * WORD, side="left")
        fits = last <= self._ends
        if short:
            begins = self._offsets[:-1]
            has_tokens = begins < self._offsets[1:]
            lone = begins[has_tokens][~fits[begins[has_tokens]]]
            fits[lone] = True
            last[lone] = self._ends[lone]
        first, last = first[fits], last[fits]
        hashes = _mixed((self._sums[last] - self._sums[first]) * self._inverses[first])
        offsets = np.searchsorted(first, self._offsets, side="left").astype(np.int64)
        origin = np.repeat(self._offsets[:-1], np.diff(offsets))
        return Runs(hashes, first - origin, last - origin, offsets)


def _worths(tokens: Sequence[str]) -> I64:
    first = "".join([token[0] for token in tokens]).encode("utf-32-le")
    points = np.frombuffer(first, np.uint32)
    values = np.full(len(tokens), WORD, np.int64)
    if len(points) and points.max() >= _LOWEST:
        for low, high, value in _UNSPACED:
            values[(points >= low) & (points <= high)] = value
    return values


def hash_tokens(tokens: Sequence[str]) -> list[int]:
    """Return 64-bit hashes by rensa, the same on every machine and in every process."""
    from rensa import RMinHash

    hashes: list[list[int]] = RMinHash.hash_token_sets([tokens])
    return hashes[0]


def _powers(count: int) -> tuple[U64, U64]:
    """Return powers 0 to count - 1 of the base and of its inverse, modulo 2^64."""

    def up_to(base: int) -> U64:
        factors = np.full(max(count, 1), base, np.uint64)
        factors[0] = 1
        return np.cumprod(factors, dtype=np.uint64)[:count]

    return up_to(_BASE), up_to(_INVERSE)


def _mixed(values: U64) -> U64:
    """Apply the finaliser of splitmix64, because sums of products are not random enough in their low bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
