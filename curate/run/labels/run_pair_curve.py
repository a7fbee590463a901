"""Fit a judge's pair curve to the pairs of a run that it compared; no model calls."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from curate.errors import UsageError
from curate.records import PairCurve, PreferencePair, StageName
from curate.run.labels.pair_votes import last_votes
from curate.run.outputs import DROPPED_PAIRS, NATURAL_PAIRS, PAIRS, read_pairs
from curate.run.read_back import read_manifest
from curate.stages import pair_identity
from curate.trust.label_rows import PairVote, Unused, labels_in_file
from curate.trust.pair_curve import KnownPair, fit_pair_curve


def fit_from_run(run: Path, *, precision: float = 0.9) -> PairCurve:
    """Fit the curve to the natural pairs of a run that its judge compared; no model calls.

    Raises:
        UsageError: no finished run folder; no natural pair was compared; as `fit_pair_curve`.
    """
    manifest = read_manifest(run)
    pairs = [
        known
        for name in (NATURAL_PAIRS, DROPPED_PAIRS)
        for pair in read_pairs(run, name)
        if pair.basis != "judge" and (known := _known_pair(pair)) is not None
    ]
    if not pairs:
        raise UsageError(
            "the run has no labelled pair that its judge compared",
            got=run,
            expected="natural pairs and log-probabilities",
            fix="set natural.verify in the recipe and run it again",
        )
    identity = manifest.identities.get(StageName.NATURAL)
    if identity is None:
        raise _no_identity(run)
    return fit_pair_curve(pairs, identity, fitted_on="labels", source=run.name, precision=precision)


def fit_from_choices(run: Path, gold: Path, *, precision: float = 0.9) -> tuple[PairCurve, Unused]:
    """Fit the curve to people's choices between the sides of a run's pairs; no model calls.

    Args:
        run: its pairs, forked and natural, passed and dropped, as far as the judge compared them.
        gold: JSONL, CSV or Parquet with `pair_id` and `better` (`chosen` or `rejected`); of several rows about a
            pair the majority counts, of a rater's answers with a `time` only the last.

    Returns:
        The curve, and the rows that were not used.

    Raises:
        UsageError: no finished run folder; a file that cannot be read; as `fit_pair_curve`.
    """
    manifest = read_manifest(run)
    compared = {
        pair.pair_id: known
        for name in (PAIRS, NATURAL_PAIRS, DROPPED_PAIRS)
        for pair in read_pairs(run, name)
        if (known := _known_pair(pair)) is not None
    }
    unused = Unused()
    by_pair = _choices(gold, compared, unused)
    pairs = []
    for key, pair_votes in by_pair.items():
        in_favour = sum(vote.chosen_is_better for vote in pair_votes)
        if 2 * in_favour == len(pair_votes):
            unused.add("as many say chosen as rejected", pair_votes[0].place, len(pair_votes))
            continue
        known = compared[key]
        pairs.append(known if 2 * in_favour > len(pair_votes) else known.turned())
    judge = manifest.identities.get(StageName.JUDGE)
    identity = manifest.identities.get(StageName.NATURAL) or (
        judge and pair_identity(judge.uncalibrated())
    )
    if identity is None:
        raise _no_identity(run)
    curve = fit_pair_curve(
        pairs, identity, fitted_on="labels", source=gold.name, precision=precision
    )
    return curve.model_copy(update={"labelled": tuple(sorted(by_pair))}), unused


def _choices(gold: Path, compared: Container[str], unused: Unused) -> dict[str, list[PairVote]]:
    """Return the votes that count on each pair that the judge compared, in the order of the file."""
    rows = labels_in_file(gold).rows
    columns = {name for _, row in rows for name in row}
    if not columns >= {"pair_id", "better"}:
        raise UsageError(
            f"{gold} does not say which side is better",
            got=f"columns: {', '.join(sorted(columns)) or 'none'}",
            expected="columns `pair_id` and `better`; to have a judge compare rows of prompt, chosen and rejected, give a recipe in "
            "place of the run",
        )
    votes: list[PairVote] = []
    for place, row in rows:
        names = ("pair_id", "better", "rater", "time")
        key, better, rater, time = (str(row.get(name) or "").strip() for name in names)
        if better not in ("chosen", "rejected"):
            unused.add(f"better is neither chosen nor rejected: {better[:40]!r}", place)
        elif key not in compared:
            unused.add("the run's judge compared no pair of that id by log-probabilities", place)
        else:
            votes.append(PairVote(place, key, better == "chosen", rater or None, time or None))
    by_pair: dict[str, list[PairVote]] = {vote.pair_id: [] for vote in votes}
    for vote in last_votes(votes, unused):
        by_pair[vote.pair_id].append(vote)
    return by_pair


def _no_identity(run: Path) -> UsageError:
    return UsageError(
        "the run does not say which judge compared its pairs",
        got=run,
        fix="run its recipe again: rows of an earlier version are recomputed from cached replies",
    )


def _known_pair(pair: PreferencePair) -> KnownPair | None:
    """Return the readings of a run's pair, its chosen side taken for the better; None without log-odds of the judge."""
    check = pair.check
    if check is None or check.preference is None or check.margin is None:
        return None
    return KnownPair(check.preference, check.margin, group=pair.content_hash, kind=pair.basis)
