"""People's votes on the sides of a pair."""

from __future__ import annotations

import pytest

from curate.errors import UsageError
from curate.run.labels.pair_votes import votes_by_pair
from curate.trust.gold import ANSWERED_AGAIN
from curate.trust.label_rows import PairVote, Unused


def vote(
    pair: str, chosen: bool, rater: str | None = None, time: str | None = None, place: str = "1"
) -> PairVote:
    return PairVote(place, pair, chosen, rater, time)


def test_votes_are_gathered_by_pair_and_the_first_place_is_kept() -> None:
    votes = [
        vote("p", True, "ann", place="row 1"),
        vote("q", False, "ann", place="row 2"),
        vote("p", False, "bob", place="row 3"),
        vote("p", True, place="row 4"),
        vote("p", True, place="row 5"),
    ]
    unused = Unused()
    by_pair = votes_by_pair(votes, unused)
    assert by_pair["p"].by_rater == {"ann": True, "bob": False, "#2": True, "#3": True}
    assert (by_pair["p"].place, by_pair["p"].named) == ("row 1", {"ann", "bob"})
    assert (by_pair["q"].by_rater, by_pair["q"].is_yes) == ({"ann": False}, False)
    assert by_pair["p"].is_yes
    assert unused.counts == {}
    assert votes_by_pair([], unused) == {}


def test_the_last_of_a_rater_s_votes_counts_where_times_tell() -> None:
    votes = [
        vote("p", True, "ann", "2026-11-20T12:00:00", place="row 1"),
        vote("p", False, "ann", "2026-11-20T10:00:00", place="row 2"),
        vote("q", False, "ann", "2026-11-20T09:00:00", place="row 3"),
    ]
    unused = Unused()
    by_pair = votes_by_pair(votes, unused)
    assert by_pair["p"].by_rater == {"ann": True}
    assert by_pair["q"].by_rater == {"ann": False}
    assert (unused.counts, unused.first) == ({ANSWERED_AGAIN: 1}, {ANSWERED_AGAIN: "row 2"})


def test_two_votes_of_one_rater_without_times_are_refused() -> None:
    votes = [vote("p", True, "ann", place="row 1"), vote("p", True, "ann", place="row 2")]
    with pytest.raises(UsageError) as caught:
        votes_by_pair(votes, Unused())
    assert str(caught.value) == (
        "one rater gives one pair two values\n"
        "  got: pair p by ann, the second in row 2\n"
        "  expected: one row per rater and pair\n"
        "  do: keep the row that counts; people who share a name need names of their own"
    )
