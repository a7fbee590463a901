"""Baseline scores that need no understanding of the text.

A method that does not beat them shows how easy a file is, not how good the method.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from curate.adherence.reference.cases import Case
from curate.benchmark.labelled_turns import LabelledTurn
from curate.trust.agreement import auc

BLOCK = 5
"""Turns that make a conversation in the paper's file."""

FOLDS = 10
"""Parts of the file that the unigram model is fitted without, in turn."""

POSITION = "position"
DESCRIPTIONS = {
    "word_count": "number of words of the turn",
    "overlap": "share of the turn's words that its references hold",
    "unigram": "naive Bayes over words, fitted on the other tenths; never sees the role",
    POSITION: "place of the row in its block",
}

_WORDS = re.compile(r"\w+")


def baselines(turns: Sequence[LabelledTurn], block: int = BLOCK) -> dict[str, list[float | None]]:
    """Return the scores by name; all but `unigram` oriented so that their AUC is at least 0.5.

    `word_count` of the turn; `overlap`, the share of the turn's words found in its references (None where it
    has none); `unigram`, log-odds of a naive Bayes model of words that sees the labels of the file's other
    tenths and never the role; `position` of the row in its block of `block` rows.
    """
    scores = {
        "word_count": _oriented([float(len(turn.case.candidate.split())) for turn in turns], turns),
        "overlap": _oriented([_overlap(turn.case) for turn in turns], turns),
    }
    scores["unigram"] = list(_unigram(turns))
    scores[POSITION] = _oriented([float(row % block) for row in range(len(turns))], turns)
    return scores


def _oriented(scores: Sequence[float | None], turns: Sequence[LabelledTurn]) -> list[float | None]:
    known = [
        (score, turn.is_adherent)
        for score, turn in zip(scores, turns, strict=True)
        if score is not None
    ]
    value = auc([score for score, _ in known], [label for _, label in known])
    sign = -1.0 if value is not None and value < 0.5 else 1.0
    return [None if score is None else sign * score for score in scores]


def _overlap(case: Case) -> float | None:
    words = set(_WORDS.findall(case.candidate.lower()))
    known = {word for text in case.references for word in _WORDS.findall(text.lower())}
    return len(words & known) / len(words) if words and known else None


def _unigram(turns: Sequence[LabelledTurn]) -> list[float]:
    """Return the log-odds of adherent by the words of the other tenths' candidates, add-one smoothed, per known word.

    Whole tenths are left out, not single rows: leaving one row out takes words from its own class alone,
    which pushes every score away from its label, and neighbours often answer the same message. Words that the
    other tenths do not hold say nothing; smoothed, they would speak for the smaller class.
    """
    words = [_WORDS.findall(turn.case.candidate.lower()) for turn in turns]
    folds = [row * min(FOLDS, len(turns)) // len(turns) for row in range(len(turns))]
    scores = [0.0] * len(turns)
    for fold in set(folds):
        counts = {True: Counter[str](), False: Counter[str]()}
        for turn, own_words, place in zip(turns, words, folds, strict=True):
            if place != fold:
                counts[turn.is_adherent].update(own_words)
        known = counts[True] | counts[False]
        sizes = {kind: counts[kind].total() + len(known) for kind in counts}
        odds = {word: _log_odds(word, counts, sizes) for word in known}
        for row in (row for row, place in enumerate(folds) if place == fold):
            said_known = [odds[word] for word in words[row] if word in odds]
            scores[row] = math.fsum(said_known) / max(1, len(said_known))
    return scores


def _log_odds(word: str, counts: Mapping[bool, Counter[str]], sizes: Mapping[bool, int]) -> float:
    yes, no = (math.log((counts[kind][word] + 1) / sizes[kind]) for kind in (True, False))
    return yes - no
