"""Contamination: dialogues that share a run of words with an evaluation set.

A dialogue is contaminated by an eval text when both contain the same n words in a row (13 by default, after
Brown et al. 2020, Language Models are Few-Shot Learners, appendix C), with texts tokenised by
`selection.shingles`. Only the hashes of an eval set's n-grams are held in memory (12 bytes each); its texts and
the dialogues are streamed. The n-gram shown in a report is taken from the dialogue.

n-grams found in many texts of one set ("choose one of the following answers …") count as that set's template
and are ignored. `EvalIndex.warning` says how many texts therefore cannot be found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from curate.records import Collision
from curate.selection.config import EvalSet
from curate.selection.dedup import TextBatch, batches
from curate.selection.minhash import U32
from curate.selection.shingles import U64, TokenBatch, tokenise

REASON = "contaminated"


@dataclass(frozen=True, slots=True)
class EvalText:
    """One text of an eval set and its position in it."""

    row: str
    text: str


class EvalIndex:
    """The n-grams of one eval set.

    Args:
        texts: texts of the set; read once and not kept.

    Attributes:
        texts: number of texts read.
        short: number of texts shorter than one n-gram.
        template: number of texts whose n-grams all belong to the set's template.
    """

    def __init__(self, config: EvalSet, texts: Iterable[EvalText]) -> None:
        self.config = config
        self._rows: list[str] = []
        hashes: list[U64] = [np.empty(0, np.uint64)]
        owners: list[U32] = [np.empty(0, np.uint32)]
        for batch in batches(texts):
            runs = TokenBatch([tokenise(item.text) for item in batch]).runs(
                config.ngram, short=False
            )
            for place, item in enumerate(batch):
                unique = np.unique(runs.of(place))
                hashes.append(unique)
                owners.append(np.full(len(unique), len(self._rows), np.uint32))
                self._rows.append(item.row)
        self.texts = len(self._rows)
        grams, owner = np.concatenate(hashes), np.concatenate(owners)
        counts = np.bincount(owner, minlength=self.texts)
        self.short = int((counts == 0).sum())
        order = np.argsort(grams, kind="stable")
        grams, owner = grams[order], owner[order]
        if config.common is not None and len(grams):
            _, inverse, texts_with = np.unique(grams, return_inverse=True, return_counts=True)
            rare = texts_with[inverse] <= config.common
            grams, owner = grams[rare], owner[rare]
        self._grams, self._owners = grams, owner
        self._sizes = np.bincount(owner, minlength=self.texts)
        self.template = int((self._sizes == 0).sum()) - self.short

    @property
    def warning(self) -> str | None:
        """Return a one-line warning about texts that cannot be found in dialogues; None where all can."""
        parts = []
        if self.short:
            parts.append(f"{self.short} are shorter than {self.config.ngram} words")
        if self.template:
            parts.append(
                f"{self.template} hold no n-gram but such as more than {self.config.common} texts share"
            )
        if not parts:
            return None
        return (
            f"Of the {self.texts} texts of eval set {self.config.label}, {' and '.join(parts)}; "
            "dialogues that repeat these are not found."
        )

    def collisions(self, texts: TextBatch) -> dict[int, Collision]:
        """Return the collisions of the contaminated dialogues of a batch, by their index in it.

        A collision names the eval text of which the dialogue contains the largest share of n-grams (the first
        where several tie), and the first n-gram they share.
        """
        runs = texts.hashed("dialogue").runs(self.config.ngram, short=False)
        if not len(self._grams):
            return {}
        at = np.searchsorted(self._grams, runs.hashes) % len(self._grams)
        hit = self._grams[at] == runs.hashes
        where = np.searchsorted(runs.offsets, np.flatnonzero(hit), side="right") - 1
        return {
            int(place): self._collision(texts, int(place), runs.of(int(place)))
            for place in np.unique(where)
        }

    def _collision(self, texts: TextBatch, place: int, hashes: U64) -> Collision:
        shared = np.intersect1d(hashes, self._grams)
        first = np.searchsorted(self._grams, shared, side="left")
        last = np.searchsorted(self._grams, shared, side="right")
        owners = np.concatenate(
            [self._owners[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
        )
        candidates, counts = np.unique(owners, return_counts=True)
        shares = counts / self._sizes[candidates]
        best = int(candidates[np.argmax(shares)])
        mine = self._grams[self._owners == best]
        start = int(np.flatnonzero(np.isin(hashes, mine))[0])
        return Collision(
            reason=REASON,
            other=f"{self.config.label}:{self._rows[best]}",
            similarity=float(shares.max()),
            text=self._run_text(texts.tokens("dialogue")[place], start),
        )

    def _run_text(self, tokens: list[str], number: int) -> str:
        """Return run `number` of a text, its tokens joined by spaces."""
        runs = TokenBatch([tokens]).runs(self.config.ngram, short=False)
        return " ".join(tokens[runs.starts[number] : runs.stops[number]])
