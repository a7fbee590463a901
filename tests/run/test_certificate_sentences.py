"""What a certificate says in words, with every figure that its sentence has."""

from __future__ import annotations

from typing import Any

import pytest

from curate.records import Certificate, TrustKind
from curate.run.labels.certificate_sentence import sentence_of
from curate.run.labels.certify import after_questions
from curate.run.labels.drawn_labels import REJECTED_PREFERRED
from curate.run.labels.question import (
    Question,
    asked_question,
    other_questions,
    question_of,
)

CANNOT = (
    "The labels cannot show that at most 10 % of the 1,200 dialogues of the SFT set are bad (reviewers reject it): "
    "{evidence}, so with 90 % confidence no more can be said than at most 12.3 %; "
)
PROMISE = "at most 10 % of the 1,200 dialogues of the SFT set are bad (reviewers reject it)"


def certificate(
    certified: dict[str, Any] | None = None, labels: dict[str, Any] | None = None, **fields: Any
) -> Certificate:
    base = {
        "kind": TrustKind.CERTIFICATE, "sentence": "-", "made": "2026", "fingerprints": {}, "issued": True,
        "run": "r", "test": "audit", "bad": "reviewers reject it", "risk": 0.1, "confidence": 0.9, "bound": 0.1234,
        "source": "s",
        "certified": {"of": "sft", "size": 1200, "fingerprint": "f"} | (certified or {}),
        "labels": {"origin": "draw", "draw": "d1", "drawn": 1150, "labelled": 1150, "bad": 5} | (labels or {}),
    }  # fmt: skip
    return Certificate.model_validate(base | fields)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (certificate(), f"With 90 % confidence {PROMISE}: 5 of 1,150 drawn at random are."),
        (
            certificate(labels={"missing": 3}),
            f"With 90 % confidence {PROMISE}: 5 of 1,150 drawn at random are, with 3 that have no label.",
        ),
        (
            certificate(labels={"origin": "all", "draw": None, "drawn": 1200}),
            f"With 90 % confidence {PROMISE}: 5 of all 1,200 are.",
        ),
        (
            certificate(labels={"origin": "unknown", "draw": None}),
            f"With 90 % confidence {PROMISE}: 5 of 1,150 labelled are. The labels are of unknown origin: this holds only if "
            "they were drawn at random.",
        ),
        (
            certificate({"apart": 1030}),
            f"With 90 % confidence {PROMISE}: 5 of 1,150 drawn at random are. Nothing is promised of 1,030 more, whose labels "
            "fitted the judge's calibration.",
        ),
        (
            certificate({"apart": 3}, {"hold_out": 0.5, "origin": "unknown", "draw": None}),
            f"With 90 % confidence {PROMISE}: 5 of 1,150 labelled are. Nothing is promised of 3 more, whose labels fitted the "
            "judge's calibration or chose its prompts. The labels are of unknown origin: this holds only if they were drawn "
            "at random.",
        ),
        (
            certificate({"of": "all", "column": "mean_score", "threshold": 3.98765}, test="threshold", risk=0.0512),
            "With 90 % confidence at most 5.12 % of the 1,200 dialogues with mean_score of 3.988 or more are bad (reviewers "
            "reject it): 5 of 1,150 drawn at random are.",
        ),
        (
            certificate({"of": "pairs"}, kind=TrustKind.PAIR_CERTIFICATE, bad=REJECTED_PREFERRED),
            "With 90 % confidence at most 10 % of the 1,200 pairs made by forks are the wrong way round (people prefer the "
            "rejected side): 5 of 1,150 drawn at random are.",
        ),
        (
            certificate({"of": "natural_pairs"}, kind=TrustKind.PAIR_CERTIFICATE, bad="better = 'tie'"),
            "With 90 % confidence at most 10 % of the 1,200 pairs of the data are bad (better = 'tie'): 5 of 1,150 drawn at "
            "random are.",
        ),
        (
            certificate({"of": "scored"}, bad=REJECTED_PREFERRED),
            "With 90 % confidence at most 10 % of the 1,200 scored dialogues are bad (better = 'rejected'): 5 of 1,150 drawn "
            "at random are.",
        ),
        (
            certificate({"of": "n_turns > 2"}, {"bad": 0}, confidence=0.975, earlier_attempts=1),
            "With 95 % confidence at most 10 % of the 1,200 dialogues with n_turns > 2 are bad (reviewers reject it): 0 of "
            "1,150 drawn at random are. (It would be 97.5 % for this question alone; 1 other question about such bad ones "
            "came before it.)",
        ),
        (
            certificate(issued=False, earlier_attempts=4),
            "Nothing is promised: 4 other questions about such bad ones came before this one, each with a chance of 10 % to be "
            "answered wrongly, and with so many one of the answers is likely to be wrong. Ask with more --confidence, of a "
            "new draw.",
        ),
        (
            certificate(labels={"drawn": 100, "bad": 9}, issued=False, more_labels=1050),
            CANNOT.format(evidence="9 of 100 drawn at random are")
            + "it would take about 1,050 more labels if bad ones came at that rate (a new draw of 1,150, with another --seed).",
        ),
        (
            certificate(labels={"drawn": 100, "bad": 9}, issued=False, more_labels=1100),
            CANNOT.format(evidence="9 of 100 drawn at random are")
            + "it would take about 1,100 more labels if bad ones came at that rate (then all of them have one).",
        ),
        (
            certificate(labels={"drawn": 100, "bad": 9}, issued=False, more_labels=1, test="anytime"),
            CANNOT.format(evidence="9 of 100 drawn at random are")
            + "about 1 more label of this draw would do if bad ones came at that rate.",
        ),
        (
            certificate(labels={"drawn": 100, "bad": 10}, issued=False),
            CANNOT.format(evidence="10 of 100 drawn at random are")
            + "more labels would not help, for that share itself is not below the risk.",
        ),
        (
            certificate(labels={"drawn": 100, "bad": 9}, issued=False),
            CANNOT.format(evidence="9 of 100 drawn at random are")
            + "no number of labels would do at that rate.",
        ),
        (
            certificate(labels={"drawn": 0, "bad": 0}, issued=False),
            CANNOT.format(evidence="0 of 0 drawn at random are")
            + "no number of labels would do at that rate.",
        ),
    ],
)  # fmt: skip
def test_what_it_says(given: Certificate, sentence: str) -> None:
    assert sentence_of(given) == sentence


@pytest.mark.parametrize(
    ("others", "issued", "start"),
    [
        (0, True, "With 90 % confidence"),
        (3, True, "With 60 % confidence"),
        (4, False, "Nothing is promised: 4 other questions"),
        (20, False, "Nothing is promised: 20 other questions"),
    ],
)
def test_other_questions_lower_its_confidence_until_nothing_is_promised(
    others: int, issued: bool, start: str
) -> None:
    lowered = after_questions(certificate(), others)
    assert (lowered.issued, lowered.earlier_attempts) == (issued, others)
    assert lowered.sentence.startswith(start)
    refused = after_questions(certificate(issued=False), others)
    assert not refused.issued


@pytest.mark.parametrize(
    ("given", "question", "asked"),
    [
        (
            certificate(),
            Question(None, 0.1, 0.9, "sft"),
            {"test": "audit", "of": "sft", "column": None, "draw": "d1", "set": "f"},
        ),
        (
            certificate(labels={"draw": None, "hold_out": 0.25, "rule": "human < 3"}, test="anytime"),
            Question("human < 3", 0.1, 0.9, "sft", may_stop=True, hold_out=0.25),
            {"test": "anytime", "of": "sft", "column": None, "draw": None, "set": "f"},
        ),
        (
            certificate({"of": "all", "column": "p_good", "threshold": 0.5}, test="threshold", risk=0.2, confidence=0.8),
            Question(None, 0.2, 0.8, "all", "p_good"),
            {"test": "threshold", "of": "all", "column": "p_good", "draw": "d1", "risk": 0.2, "confidence": 0.8},
        ),
    ],
)  # fmt: skip
def test_its_question_can_be_asked_again_and_is_kept(
    given: Certificate, question: Question, asked: dict[str, Any]
) -> None:
    assert question_of(given) == question
    about = {"bad": "reviewers reject it", "kind": "certificate"}
    assert asked_question(given) == about | asked


def test_only_other_questions_about_the_same_bad_ones_count() -> None:
    own = certificate()
    wider, of_pairs = certificate({"of": "all"}), certificate(kind=TrustKind.PAIR_CERTIFICATE)
    of_taste = certificate(bad="taste < 3")
    earlier = [asked_question(one) for one in (own, wider, own, of_pairs, of_taste)]
    assert other_questions(earlier, own) == 1
    assert other_questions([*earlier, {}], certificate({"of": "scored"})) == 3
    assert other_questions(earlier, of_taste) == 0
