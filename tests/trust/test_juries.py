"""How many votes a jury is, and whether it is worth having, on judges whose errors are known."""

from __future__ import annotations

import numpy as np
import pytest

from curate.records.agreement import JuryFigures
from curate.trust.juries import effective_votes, errors_of, jury_worth, mean_correlation

ITEMS = 400


def members(
    correlation: float, judges: int = 3, seed: int = 0
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Judges whose errors correlate so, as large as the truth's own spread."""
    rng = np.random.default_rng(seed)
    gold = rng.normal(3, 1, ITEMS)
    shared, own = rng.normal(size=ITEMS), rng.normal(size=(judges, ITEMS))
    errors = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    return {f"judge {at}": gold + error for at, error in enumerate(errors)}, gold


def worth(correlation: float) -> JuryFigures:
    scores, gold = members(correlation)
    jury = np.median(list(scores.values()), axis=0)
    found = jury_worth(scores, jury, gold, np.arange(ITEMS))
    assert found is not None
    return found


def test_the_formula() -> None:
    assert effective_votes(9, 1.0) == 1
    assert effective_votes(9, 0.0) == 9
    assert effective_votes(9, 0.4375) == pytest.approx(2.0)  # nine judges were two votes
    assert effective_votes(2, -1.0) is None


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.8])
def test_the_correlation_of_errors_is_found(correlation: float) -> None:
    found = worth(correlation)
    assert found.correlation == pytest.approx(correlation, abs=0.08)
    assert found.votes == pytest.approx(effective_votes(3, correlation), rel=0.2)


def test_a_jury_is_recommended_where_its_errors_cancel_and_not_where_they_are_shared() -> None:
    assert worth(0.0).recommended
    shared = worth(0.98)
    assert not shared.recommended
    assert "no gain over" in shared.sentence


def test_a_narrow_use_of_the_scale_is_no_shared_error() -> None:
    scores, gold = members(0.0)
    narrow = np.array([3.5 + 0.2 * (held - 3) for held in scores.values()])
    assert mean_correlation(narrow - gold) > 0.6  # what plain differences would say
    assert mean_correlation(errors_of(narrow, gold)) == pytest.approx(0, abs=0.08)


def test_nothing_is_said_where_nothing_varies() -> None:
    scores, gold = members(0.2)
    constant = {**scores, "always 5": np.full(ITEMS, 5.0)}
    assert jury_worth(constant, gold, gold, np.arange(ITEMS)) is None
    assert jury_worth(scores, gold, gold, np.arange(ITEMS) % 9) is None  # nine dialogues
    perfect = {**scores, "perfect": gold}
    assert jury_worth(perfect, gold, gold, np.arange(ITEMS)) is None
