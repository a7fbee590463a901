"""p_good: fitted to verdicts, applied as plain numbers, with figures of dialogues it was not fitted to."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from curate.errors import UsageError
from curate.records import GoodModel, JudgeIdentity
from curate.trust.p_good import LabelledDialogue, fit_good

JUDGE = JudgeIdentity(engine="scripted", model="script")


def dialogues(n: int, noise: float, seed: int = 1) -> list[LabelledDialogue]:
    draw = random.Random(seed)
    held = []
    for number in range(n):
        is_good = draw.random() < 0.6
        coherence = 4 + 0.3 * is_good + draw.gauss(0, noise)
        features = {
            "coherence": coherence,
            "task_completion": coherence + draw.gauss(0, noise) if number % 4 else None,
            "min_safety": 5.0,
            "last_helpfulness": draw.gauss(4, 0.2),
        }
        held.append(LabelledDialogue(features, is_good, str(number)))
    return held


def test_what_is_stored_is_what_scikit_learn_fits() -> None:
    held = dialogues(60, 0.2)
    made = fit_good(held)
    assert made.features == (
        "coherence",
        "task_completion",
        "last_helpfulness",
    )  # safety is constant
    table = np.array([[h.features[name] for name in made.features] for h in held], dtype=float)
    table = np.where(np.isnan(table), np.nanmean(table, axis=0), table)
    scaled = (table - table.mean(axis=0)) / table.std(axis=0)
    labels = [h.is_good for h in held]
    theirs = LogisticRegression(C=0.3, tol=1e-10).fit(scaled, labels).predict_proba(scaled)[:, 1]
    assert [made.probability(h.features) for h in held] == pytest.approx(list(theirs))
    assert (made.labels, made.good) == (60, sum(labels))


def test_a_reading_that_speaks_against_the_labels_gets_no_weight() -> None:
    held = [
        LabelledDialogue(
            {**one.features, "min_safety": -(one.features["coherence"] or 0)},
            one.is_good,
            one.group,
        )
        for one in dialogues(60, 0.2)
    ]
    made = fit_good(held)
    weights = dict(zip(made.features, made.weights, strict=True))
    assert weights["min_safety"] == 0
    assert weights["coherence"] > 0
    without = fit_good(dialogues(60, 0.2))
    both = [(made.probability(h.features), without.probability(h.features)) for h in held]
    assert all(ours == pytest.approx(theirs, abs=1e-6) for ours, theirs in both)


def test_figures_are_of_dialogues_it_was_not_fitted_to() -> None:
    made = fit_good(dialogues(120, 0.15))
    assert made.auc is not None
    assert made.brier_interval is not None
    assert made.auc > 0.85
    assert made.brier_interval[0] < made.brier < made.brier_interval[1] < made.brier_without
    blind = [fit_good(dialogues(80, 100.0, seed)) for seed in range(8)]
    assert 0.4 < sum(model.auc or 0 for model in blind) / 8 < 0.6
    assert sum(model.brier < model.brier_without - 0.01 for model in blind) <= 1


def test_it_says_whose_adherence_it_reads() -> None:
    held = dialogues(40, 0.2)
    assert fit_good(held, JUDGE).adherence is None
    more = [
        LabelledDialogue({**h.features, "adherence": number / 40}, h.is_good, h.group)
        for number, h in enumerate(held)
    ]
    assert fit_good(more, JUDGE).adherence == JUDGE


@pytest.mark.parametrize(("good", "bad"), [(10, 9), (16, 4), (4, 16), (40, 0)])
def test_too_few_labels_are_refused_with_the_figures(good: int, bad: int) -> None:
    held = [LabelledDialogue({"coherence": n / 9}, n < good, str(n)) for n in range(good + bad)]
    with pytest.raises(UsageError, match=f"{good} good and {bad} not"):
        fit_good(held)


def test_the_least_that_serves_and_readings_that_are_all_alike() -> None:
    held = [LabelledDialogue({"coherence": n / 9}, n < 15, str(n)) for n in range(20)]
    assert fit_good(held).labels == 20
    alike = [LabelledDialogue({"coherence": 4.0}, n < 15, str(n)) for n in range(20)]
    with pytest.raises(UsageError, match="no reading differs"):
        fit_good(alike)


def test_a_missing_reading_counts_as_the_mean() -> None:
    model = GoodModel(
        features=("coherence",), means=(3.0,), scales=(0.5,), weights=(2.0,), intercept=0.0,
        labels=20, good=10, brier=0.2, brier_without=0.25,
    )  # fmt: skip
    assert model.probability({}) == model.probability({"coherence": None}) == 0.5
    assert model.probability({"coherence": 3.5}) == pytest.approx(0.8808, abs=1e-4)
    with pytest.raises(ValueError, match="for each feature"):
        GoodModel.model_validate(model.model_dump() | {"means": (1.0, 2.0)})
