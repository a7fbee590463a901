"""Checks of a run's pairs by length and words: the figures are the run's own, the pairs behind them are found here."""

from __future__ import annotations

from curate.records import AuditCheck, PairSetReport
from curate.trust.audit.audit_figures import Behind, not_run, of_set_check
from curate.trust.pair_set import ReadPairs, side_length
from curate.trust.telling_words import WordCounts, side_words

CHECKS = ("longer_wins", "length_auc", "word_auc")
"""Those of the checks over a set of pairs that are about lengths and words."""


def pair_checks(kind: str, report: PairSetReport, read: ReadPairs) -> list[AuditCheck]:
    """Return the lengths and words of a set of pairs, with the pairs behind each figure.

    Args:
        kind: of the pairs, as the manifest names it.
        report: what the run found.
        read: gives the pairs; only called where a check warns.
    """
    return [
        of_set_check(
            kind,
            check,
            _behind(check.name, check.figure or 0.0, read) if check.status == "warn" else Behind(),
        )
        for check in report.checks
        if check.name in CHECKS
    ]


def no_pair_checks() -> list[AuditCheck]:
    """Return checks that were not run, for a run without pairs."""
    return [not_run("pairs", "length and words", 0.6, 0, "the run has no pairs")]


def _behind(name: str, figure: float, read: ReadPairs) -> Behind:
    """Return the pairs that a reader may look at: those that go the way the figure says."""
    behind = Behind()
    if name == "word_auc":
        return _with_words(read)
    for pair in read():
        if pair.chosen is None:
            continue
        difference = side_length(pair.chosen) - side_length(pair.rejected)
        if difference and (difference > 0) == (figure > 0.5):
            behind.add(pair.pair_id)
    return behind


def _with_words(read: ReadPairs) -> Behind:
    """Return the pairs whose chosen or rejected side alone has a word that tells the sides apart, on the side it tells of."""
    counts = WordCounts()
    for pair in read():
        if pair.chosen is not None:
            counts.add(pair.pair_id, pair.chosen, pair.rejected)
    shortcut = counts.shortcut()
    words = shortcut.words if shortcut else ()
    of_chosen = {word.word for word in words if word.chosen > word.rejected}
    of_rejected = {word.word for word in words} - of_chosen
    behind = Behind()
    for pair in read():
        if pair.chosen is None:
            continue
        chosen, rejected = side_words(pair.chosen), side_words(pair.rejected)
        if of_chosen & (chosen - rejected) or of_rejected & (rejected - chosen):
            behind.add(pair.pair_id)
    return behind
