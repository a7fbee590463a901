"""People's votes on a run's pairs, and the side that the judge prefers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from curate.errors import UsageError
from curate.records import PreferencePair
from curate.trust.gold import ANSWERED_AGAIN, Votes
from curate.trust.label_rows import PairVote, Unused


def votes_by_pair(votes: Sequence[PairVote], unused: Unused) -> dict[str, Votes]:
    """Return the votes on each pair, by its id; yes is for the chosen side.

    Raises:
        UsageError: one rater gives one pair two votes, without times that say which is the last.
    """
    by_pair: dict[str, Votes] = defaultdict(lambda: Votes(""))
    for vote in last_votes(votes, unused):
        pair_votes = by_pair[vote.pair_id]
        pair_votes.place = pair_votes.place or vote.place
        rater = vote.rater or f"#{len(pair_votes.by_rater)}"
        if rater in pair_votes.by_rater:
            raise UsageError(
                "one rater gives one pair two values",
                got=f"pair {vote.pair_id} by {rater}, the second in {vote.place}",
                expected="one row per rater and pair",
                fix="keep the row that counts; people who share a name need names of their own",
            )
        pair_votes.by_rater[rater] = vote.chosen_is_better
        if vote.rater is not None:
            pair_votes.named.add(rater)
    return dict(by_pair)


def last_votes(votes: Iterable[PairVote], unused: Unused) -> Iterable[PairVote]:
    """Yield the last vote of each rater on each pair, and all votes without rater or time; count the others."""
    last: dict[tuple[str, str], PairVote] = {}
    for vote in sorted(votes, key=lambda vote: vote.time or ""):
        if vote.rater is None or vote.time is None:
            yield vote
            continue
        if earlier := last.get((vote.pair_id, vote.rater)):
            unused.add(ANSWERED_AGAIN, earlier.place)
        last[vote.pair_id, vote.rater] = vote
    yield from last.values()


def preference_of(pair: PreferencePair) -> float | None:
    """Return a number above 0 where the judge prefers the chosen side, below 0 where the other; None where neither."""
    check = pair.check
    if check is None:
        return None
    if check.preference is not None:
        return check.preference or None
    if check.preferred_first is None or check.preferred_first is not check.preferred_second:
        return None
    return 1.0 if check.preferred_first else -1.0
