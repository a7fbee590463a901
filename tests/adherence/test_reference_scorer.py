"""The scorer around a reference method: which method a name opens, its passes, the record and its warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from curate.adherence.config import AdherenceConfig
from curate.adherence.reference import scorer as scoring
from curate.adherence.reference.bertscore import BertScore
from curate.adherence.reference.cases import CHUNK, Case, ComparisonMethod
from curate.adherence.reference.entailment import Entailment
from curate.adherence.reference.lexical import Divergence, Overlap, bleu, rouge_l
from curate.adherence.reference.scorer import ReferenceScorer, check_scorer, fit, open_method
from curate.adherence.reference.vectors import Distance, Nearest
from curate.adherence.reference_config import ReferenceConfig
from curate.errors import UsageError
from curate.records import AdherenceScore, Unscored
from curate.storage.store import Store
from tests.adherence.test_parameters import calibration
from tests.adherence.test_reference import ROLE, Angles, case, dialogue, scorer

ANGLES = {"encoder": "angles", "revision": "1"}
FITTED = {"alpha": 1.0, "scale": "median", "ridge": 0.01}
EMPTY = "e4a6a0577479b2b4"
"""Hash of no text at all, in 8 bytes: what an unfitted method is fitted on."""


@pytest.mark.parametrize(
    ("name", "kind", "described"),
    [
        ("cosine", Nearest, {**ANGLES, "k": 1, "pool": "turn"}),
        ("knn", Nearest, {**ANGLES, "k": 3, "pool": "role", "fit": EMPTY}),
        ("mahalanobis", Distance, {**ANGLES, **FITTED, "fit": EMPTY}),
        ("pca_mahalanobis", Distance, {**ANGLES, **FITTED, "components": 7, "fit": EMPTY}),
        ("kl", Divergence, {"beta": 2.0, "vocabulary": 9, "fit": EMPTY}),
        ("rouge", Overlap, {"measure": "rouge_l_f1"}),
        ("bleu", Overlap, {"measure": "bleu_4"}),
    ],
)
def test_a_name_opens_its_method_with_its_own_parameters(
    name: str, kind: type[ComparisonMethod], described: dict[str, Any]
) -> None:
    config = ReferenceConfig(k=3, pool="role", components=7, beta=2, vocabulary=9)
    method = open_method(name, config, Store(), Angles())
    assert type(method) is kind
    assert method.describe() == described


def test_the_baselines_measure_what_their_name_says() -> None:
    text, reference = "the cat sat", "the cat lay"
    for name, measure in (("rouge", rouge_l), ("bleu", bleu)):
        method = open_method(name, ReferenceConfig(), Store())
        assert method.score(case(text, reference)).score == measure(text, [reference])


def test_methods_on_transformers_are_opened_without_loading_a_model() -> None:
    assert type(open_method("bertscore", ReferenceConfig(), Store())) is BertScore
    cosine = open_method("nli", ReferenceConfig(), Store(), encoder := Angles())
    assert type(cosine) is Entailment
    assert encoder in cosine.models
    one = open_method("nli", ReferenceConfig(nli_base="one"), Store(), encoder)
    assert len(one.models) == 1
    assert encoder not in one.models


class Passes(ComparisonMethod):
    """A method that notes what it is shown, and says what it is told to."""

    def __init__(self, *, second_pass: bool) -> None:
        self.needs_second_pass = second_pass
        self.passes: list[tuple[str, list[str]]] = []

    def learn(self, cases: Sequence[Case]) -> None:
        self.passes.append(("learn", [case.candidate for case in cases]))

    def settle(self, cases: Sequence[Case]) -> None:
        self.passes.append(("settle", [case.candidate for case in cases]))


def test_a_method_is_taken_through_all_dialogues_once_or_twice() -> None:
    data = [dialogue(("a", "x"), ("b", "x")), dialogue(("c", "x"))]
    for second_pass in (False, True):
        method = Passes(second_pass=second_pass)
        fit(method, ReferenceConfig(), lambda: iter(data))
        learned, settled = ("learn", ["a", "b", "c"]), ("settle", ["a", "b", "c"])
        assert method.passes == ([learned, settled] if second_pass else [learned])


def test_a_pass_shows_cases_as_they_are_compared_and_a_chunk_at_a_time() -> None:
    method = Passes(second_pass=False)
    data = [dialogue(("a", "x"))] * (CHUNK + 1)
    fit(method, ReferenceConfig(role_beside=True), lambda: data)
    assert [len(texts) for _, texts in method.passes] == [CHUNK, 1]
    assert method.passes[1] == ("learn", [f"{ROLE}\n\na"])


@pytest.mark.parametrize("package", ["torch", "transformers", "sentence_transformers"])
def test_each_package_of_the_extra_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setattr(scoring, "find_spec", lambda name: None if name == package else name)
    with pytest.raises(UsageError, match=package.replace("_", "-")):
        check_scorer(AdherenceConfig(scoring_method="knn"))
    for method in ("llm_judge", "kl", "rouge", "bleu"):
        check_scorer(AdherenceConfig.model_validate({"scoring_method": method}))


def test_only_bertscore_needs_a_known_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "find_spec", lambda name: name)
    unknown = ReferenceConfig(bertscore_model="my/encoder")
    check_scorer(AdherenceConfig(scoring_method="nli", reference=unknown))
    check_scorer(AdherenceConfig(scoring_method="bertscore"))
    with pytest.raises(UsageError, match="no layer is known"):
        check_scorer(AdherenceConfig(scoring_method="bertscore", reference=unknown))


def test_the_identity_names_method_encoder_and_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dialogue(("0", "0"), ("0", "60"))
    made = scorer(monkeypatch, [one], scoring_method="cosine")
    fields = {"engine", "model", "revision", "quantisation", "mode", "prompt_version", "sampling"}
    assert made.identity.model_dump(include=fields) == {
        "engine": "reference",
        "model": "angles",
        "revision": "1",
        "quantisation": "",
        "mode": "cosine",
        "prompt_version": "reference-1",
        "sampling": {"k": 1, "pool": "turn"},
    }
    assert made.warning is None
    words = scorer(monkeypatch, [one], scoring_method="rouge").identity
    assert (words.model, words.revision, words.sampling) == ("", "", {"measure": "rouge_l_f1"})


def test_the_record_holds_everything_that_follows_from_the_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = dialogue(("0", "0"), ("0", "60"), ("0", "0"))
    config = {"scoring_method": "cosine", "turn_threshold": 0.6, "definition": "restrictive"}
    found = scorer(monkeypatch, [one], **config).score(one)
    assert isinstance(found, AdherenceScore)
    assert (found.dialogue_id, found.content_hash) == (one.id, one.content_hash)
    assert (found.definition, found.evaluation_granularity) == ("restrictive", "turn")
    assert [turn.turn for turn in found.per_turn] == [1, 2, 3]
    assert [turn.raw_score for turn in found.per_turn] == [None] * 3
    assert found.turns_in_role == 1
    assert found.trend is not None
    assert found.trend.slope == pytest.approx(0, abs=1e-6)
    assert found.session_score == pytest.approx(2.5 / 3)
    assert found.interval[0] < found.session_score < found.interval[1]
    assert found.interval_method == "bootstrap"
    assert (found.fitted_on, found.requests, found.neutralised) == (0, 0, 0)


def test_a_turn_at_the_threshold_is_adherent(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dialogue(("a b", "a c"))
    for threshold, adherent in ((0.5, True), (0.51, False)):
        config = {"scoring_method": "rouge", "turn_threshold": threshold}
        found = scorer(monkeypatch, [one], **config).score(one)
        assert isinstance(found, AdherenceScore)
        assert (found.per_turn[0].score, found.per_turn[0].adherent) == (0.5, adherent)


@pytest.mark.parametrize(("score", "expected"), [(-0.5, 0.0), (0.25, 0.25), (1.5, 1.0)])
def test_scores_are_brought_between_0_and_1(
    monkeypatch: pytest.MonkeyPatch, score: float, expected: float
) -> None:
    one = dialogue(("a", "b"))
    monkeypatch.setattr(scoring, "rouge_l", lambda *_: score)
    found = scorer(monkeypatch, [one], scoring_method="rouge").score(one)
    assert isinstance(found, AdherenceScore)
    assert found.per_turn[0].score == expected


def test_nli_of_the_experiments_is_binary_and_the_rest_continuous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NoContradiction:
        identity: dict[str, Any] = {"nli_model": "fake"}  # noqa: RUF012
        cut = 0

        def contradictions(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
            return [False for _ in pairs]

    monkeypatch.setattr(scoring, "PairClassifier", lambda _: NoContradiction())
    one = dialogue(("0", "60"))
    base = ReferenceConfig(nli_base="one")
    for config, mode, score, method in (
        ({"scoring_method": "nli", "reference": base}, "binary", 1.0, "wilson"),
        ({"scoring_method": "nli"}, "continuous", 0.5, "none (one turn)"),
        (
            {"scoring_method": "cosine", "reference": base},
            "continuous",
            0.5,
            "none (one turn)",
        ),
    ):
        made = scorer(monkeypatch, [one], **config)
        found = made.score(one)
        assert isinstance(found, AdherenceScore)
        assert made.config.output_mode == found.output_mode == mode
        assert found.session_score == pytest.approx(score, abs=1e-6)
        assert found.interval_method == method


def test_why_a_dialogue_is_unscored_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dialogue(("0", "0"))

    def unscored(made: Any, **config: Any) -> Unscored:
        row = scorer(monkeypatch, [made], scoring_method="cosine", **config).score(made)
        assert isinstance(row, Unscored)
        assert (row.stage, row.dialogue_id, row.content_hash, row.requests) == (
            "adherence",
            made.id,
            made.content_hash,
            0,
        )
        return row

    without_role = dialogue(("0", "0"), role=None)
    assert unscored(without_role).detail == "the dialogue has no role definition"
    skipped = unscored(without_role, missing_role="skip")
    assert (skipped.reason, "missing_role is skip" in skipped.detail) == ("skipped", True)
    odd = one.model_copy(update={"references": (("0",), ("0",))})
    assert unscored(odd).detail == "2 references for fewer assistant turns"
    mixed = dialogue(("0", "0"), ("", "0"), ("0",))
    row = unscored(mixed)
    # Reasons that differ: the first such turn's, as no model could have failed.
    assert row.reason == "no_text"
    assert row.detail == "2 of 3 assistant turns have no score: 2 (no_text), 3 (no_reference)"
    assert unscored(dialogue(("0",), ("", "0"))).reason == "no_reference"
    # A reason of the whole dialogue is not replaced by a turn's.
    assert unscored(mixed, weights=(1.0,)).reason == "weights_mismatch"


def test_the_references_that_a_record_names_are_its_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = dialogue(("a", "a b", "c")), dialogue(("a", "a"), role="Another role.")
    fitted = scorer(monkeypatch, [ours, theirs], scoring_method="kl")
    for one, count in ((ours, 2), (theirs, 1)):
        found = fitted.score(one)
        assert isinstance(found, AdherenceScore)
        assert found.fitted_on == count


def test_texts_that_a_model_cut_and_an_ignored_calibration_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Short(Angles):
        def encode(self, texts: Sequence[str]) -> Any:
            self.cut += len(texts)
            return super().encode(texts)

    one = dialogue(("0", "60"))
    monkeypatch.setattr(scoring, "SentenceEncoder", lambda _: Short())
    config = AdherenceConfig(scoring_method="cosine")
    cut = ReferenceScorer(config, lambda: [one])
    assert cut.warning == (
        "adherence: 2 texts are longer than the model of cosine reads; what stands behind its limit was not "
        "compared"
    )
    other = AdherenceConfig.model_validate(
        {"scoring_method": "cosine", "calibration": calibration(scoring_method="rouge")}
    )
    both = ReferenceScorer(other, lambda: [one])
    lines = (both.warning or "").splitlines()
    assert lines[0] == cut.warning
    assert "IGNORED" in lines[1]
    assert both.config.calibration is None
    alone = scorer(monkeypatch, [one], **dict(other))
    assert (alone.warning or "").startswith("adherence: the calibration is IGNORED")


def test_vectors_are_kept_in_the_file_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    one, first, second = dialogue(("0", "60")), Angles(), Angles()
    for encoder in (first, second):
        monkeypatch.setattr(scoring, "SentenceEncoder", lambda _, encoder=encoder: encoder)
        config = AdherenceConfig(scoring_method="cosine")
        ReferenceScorer(config, lambda: [one], tmp_path / "vectors.sqlite")
    assert sorted(first.seen) == ["0", "60"]
    assert second.seen == []
