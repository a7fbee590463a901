"""The checks of a certificate's question, before any label is read."""

from __future__ import annotations

from typing import Any

import pytest

from curate.errors import UsageError
from curate.run.labels.question import Question


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"risk": 0.0}, ["--risk must be the allowed share of bad members", "got: 0.0", "above 0 and below 1: only labels of all"]),
        ({"risk": 1.0}, ["--risk", "got: 1.0"]),
        ({"confidence": 0.5}, ["--confidence must be the certainty", "got: 0.5", "above 0.5 and below 1, such as 0.9"]),
        ({"confidence": 1.0}, ["--confidence", "got: 1.0"]),
        ({"may_stop": True, "column": "mean_score"},
         ["cannot be certified while labels come in", "got: --anytime --column mean_score", "leave out one of them"]),
    ],
)  # fmt: skip
def test_what_no_certificate_could_answer_is_refused(
    given: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        Question(**given).check()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("given", "test"),
    [({}, "audit"), ({"may_stop": True}, "anytime"), ({"column": "mean_score"}, "threshold")],
)
def test_which_test_answers_it(given: dict[str, Any], test: str) -> None:
    question = Question(**given)
    question.check()
    assert question.test == test


def test_the_share_of_certificates_that_may_be_wrong() -> None:
    assert Question(risk=0.001, confidence=0.95).error == pytest.approx(0.05)
    Question(risk=0.999, confidence=0.51).check()
