"""Role adherence methods on labelled turns: the figures of the paper's tables, for any set of methods.

A benchmark is a list of dialogues that each end in the turn to be scored, labelled `adherent` or with the
kind of violation. Conditions are its first n turns, and a distribution method is fitted on those n alone, as
in the paper ("Role Adherence", Fritz and Fiorenza 2026). Scores made elsewhere are judged like any
other. Everything here is data in, data out; printing is the command line's.

The baselines understand nothing. A method that does not beat them shows how easy a file is, not how good
the method.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from curate.adherence.blobs import BlobStore
from curate.adherence.embedding import Encoder, SentenceEncoder
from curate.adherence.reference.cases import Case, cases_of
from curate.adherence.reference.config import ReferenceConfig
from curate.adherence.reference.scorer import fit, open_method
from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.trust.agreement import (
    Interval,
    auc,
    average_precision,
    bootstrap_interval,
    class_means,
    cohen_kappa,
    f1_scores,
)

ADHERENT = "adherent"
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """The last assistant turn of a dialogue, with its label."""

    dialogue: Dialogue
    case: Case
    label: str

    @property
    def is_adherent(self) -> bool:
        """True for the positive class."""
        return self.label == ADHERENT


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """What a method came to on one condition. None where a figure is not defined.

    Attributes:
        method: its name.
        n: turns scored; `unscored` others were not and count nowhere.
        binary: its scores are all 0 or 1, so figures of a hard decision are given.
        separation: difference of the class means. The paper's tables give the difference of the means as
            rounded there, which can differ from this by one in the third decimal.
        auc_by_violation: AUC of the adherent turns against each kind of violation.
    """

    method: str
    n: int
    unscored: int
    binary: bool
    mean_adherent: float | None
    mean_violation: float | None
    separation: float | None
    auc: float | None
    auc_interval: Interval | None
    ap: float | None
    f1_adherent: float | None
    f1_violation: float | None
    f1_macro: float | None
    kappa: float | None
    auc_by_violation: Mapping[str, float | None]


def labelled_turns(dialogues: Sequence[Dialogue], field: str = "label") -> list[LabelledTurn]:
    """Take the turn to be scored, and its label, from each dialogue of a benchmark.

    Raises:
        UsageError: a dialogue has no label, no assistant turn, or more references than turns.
    """
    found = []
    for number, dialogue in enumerate(dialogues, start=1):
        label, cases = dialogue.labels.get(field), cases_of(dialogue)
        if not isinstance(label, str) or not cases:
            raise UsageError(
                f"row {number} of the benchmark cannot be used",
                got=f"label {label!r}, {len(cases or ())} assistant turns with references in order",
                expected=f"a text in '{field}' (`{ADHERENT}` or a kind of violation) and a last "
                "assistant turn",
            )
        found.append(LabelledTurn(dialogue, cases[-1], label))
    return found


def score_methods(
    turns: Sequence[LabelledTurn],
    methods: Sequence[str],
    config: ReferenceConfig,
    *,
    encoder: Encoder | None = None,
    store: Path | None = None,
) -> dict[str, list[float | None]]:
    """Scores of the turns by each reference method, fitted on these turns; None where unscored.

    kNN looks among all references of a role if `config.pool` says so, as the paper's experiments do.
    """
    kept = BlobStore(store)
    encoder = encoder or SentenceEncoder(config)
    dialogues = [turn.dialogue for turn in turns]
    scores: dict[str, list[float | None]] = {}
    for name in methods:
        method = open_method(name, config, kept, encoder)
        fit(method, lambda: dialogues)
        scores[name] = [method.score(turn.case).score for turn in turns]
    return scores


def baselines(turns: Sequence[LabelledTurn], block: int = 5) -> dict[str, list[float | None]]:
    """Scores that need no understanding; the first three oriented so that their AUC is at least 0.5.

    `word_count` of the turn; `position` of the row in its block of `block` rows (5 turns make a
    conversation in the paper's file); `overlap`, the share of the turn's words found in its references;
    `unigram`, a naive Bayes model of words that sees the other rows' labels and never the role.
    """
    counts = [float(len(turn.case.candidate.split())) for turn in turns]
    found: dict[str, list[float | None]] = {}
    for name, scores in {
        "word_count": counts,
        "position": [float(row % block) for row in range(len(turns))],
        "overlap": [_overlap(turn.case) for turn in turns],
    }.items():
        value = auc(scores, [turn.is_adherent for turn in turns])
        sign = -1.0 if value is not None and value < 0.5 else 1.0
        found[name] = [sign * score for score in scores]
    found["unigram"] = list(_unigram(turns))
    return found


def read_saved_scores(path: str | Path, n: int) -> dict[str, list[float | None]]:
    """Scores made elsewhere: `{"results": {name: {"model": …, "scores": [one a row, in order]}}}`.

    A null is an unscored row. The names get the prefix `saved:`, since what made them cannot be checked.

    Raises:
        UsageError: another shape, or another number of scores than the benchmark has rows.
    """
    try:
        results = orjson.loads(Path(path).read_bytes())["results"]
        scores = {f"saved:{name}": list(result["scores"]) for name, result in results.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "not a file of saved scores",
            got=f"{path}: {error!r}",
            expected='{"results": {"name": {"scores": [...]}}}',
        ) from error
    for name, values in scores.items():
        if len(values) != n or any(not _is_score(value) for value in values):
            raise UsageError(
                f"the saved scores of {name} do not fit the benchmark",
                got=f"{len(values)} entries",
                expected=f"{n} numbers (or null), one a row in order",
            )
    return scores


def figures(
    method: str,
    scores: Sequence[float | None],
    turns: Sequence[LabelledTurn],
    *,
    threshold: float | None = None,
    resamples: int = 1000,
) -> MethodFigures:
    """Everything the paper reports about a method, on the turns it scored.

    Args:
        method: name for the table.
        scores: one a turn, None where unscored.
        turns: in the same order.
        threshold: least score of an adherent turn, for F1 and kappa; without one they are given only for
            methods whose scores are all 0 or 1.
        resamples: of the bootstrap interval of the AUC; 0 for none.
    """
    held = [(s, turn) for s, turn in zip(scores, turns, strict=True) if s is not None]
    values, gold = [s for s, _ in held], [turn.is_adherent for _, turn in held]
    binary = bool(values) and set(values) <= {0.0, 1.0}
    cut = 0.5 if binary and threshold is None else threshold
    decided = None if cut is None else [value >= cut for value in values]
    means, f1 = class_means(values, gold), None if decided is None else f1_scores(gold, decided)

    def resampled(rows: Sequence[int]) -> float | None:
        return auc([values[row] for row in rows], [gold[row] for row in rows])

    return MethodFigures(
        method=method,
        n=len(held),
        unscored=len(turns) - len(held),
        binary=binary,
        mean_adherent=means.positive if means else None,
        mean_violation=means.negative if means else None,
        separation=means.separation if means else None,
        auc=auc(values, gold),
        auc_interval=bootstrap_interval(resampled, len(held), resamples=resamples),
        ap=average_precision(values, gold),
        f1_adherent=f1.positive if f1 else None,
        f1_violation=f1.negative if f1 else None,
        f1_macro=f1.macro if f1 else None,
        kappa=None if decided is None else cohen_kappa(gold, decided),
        auc_by_violation=_by_violation(values, [turn for _, turn in held]),
    )


def as_row(found: MethodFigures) -> dict[str, Any]:
    """One line of `results.csv`: method, n, class means, separation, AUC, AP, F1s, kappa."""
    names = "method n mean_adherent mean_violation separation auc ap f1_adherent f1_violation f1_macro kappa"
    return {name: getattr(found, name) for name in names.split()}


def _by_violation(
    values: Sequence[float], turns: Sequence[LabelledTurn]
) -> dict[str, float | None]:
    kinds = sorted({turn.label for turn in turns} - {ADHERENT})
    found = {}
    for kind in kinds:
        rows = [at for at, turn in enumerate(turns) if turn.label in (ADHERENT, kind)]
        found[kind] = auc([values[at] for at in rows], [turns[at].is_adherent for at in rows])
    return found


def _overlap(case: Case) -> float:
    words = set(_WORDS.findall(case.candidate.lower()))
    known = {word for text in case.references for word in _WORDS.findall(text.lower())}
    return len(words & known) / len(words) if words else 0.0


def _unigram(turns: Sequence[LabelledTurn]) -> list[float]:
    """Log-odds of adherent by the words of the other turns' candidates, add-one smoothed, per word."""
    words = [_WORDS.findall(turn.case.candidate.lower()) for turn in turns]
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for turn, said in zip(turns, words, strict=True):
        counts[turn.is_adherent].update(said)
    size = len(counts[True] | counts[False])
    scores = []
    for turn, said in zip(turns, words, strict=True):
        own = Counter(said)
        odds = 0.0
        for kind, sign in ((True, 1), (False, -1)):
            without = own if kind == turn.is_adherent else Counter[str]()
            total = counts[kind].total() - without.total() + size
            odds += sign * sum(math.log((counts[kind][w] - without[w] + 1) / total) for w in said)
        scores.append(odds / max(1, len(said)))
    return scores


def _is_score(value: object) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )
