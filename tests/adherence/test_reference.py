"""Reference methods: what each measures, what it is fitted on, what has no score and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.adherence.config import AdherenceConfig
from curate.adherence.reference import scorer as scoring
from curate.adherence.reference.cases import Case, cases_of, compared
from curate.adherence.reference.entailment import Entailment
from curate.adherence.reference.lexical import Divergence, bleu, rouge_l
from curate.adherence.reference.scorer import ReferenceScorer, check_scorer
from curate.adherence.reference.vectors import Distance, Nearest
from curate.adherence.reference_config import ReferenceConfig
from curate.adherence.sentence_encoder import Embedder
from curate.dialogue import Dialogue, Message
from curate.errors import EngineError, UsageError
from curate.records import AdherenceScore, Unscored
from curate.storage.store import Store, key_of

ROLE = "You are a bank's support agent."


class Angles:
    """An encoder without a model: a text "60" is the unit vector at 60 degrees."""

    def __init__(self) -> None:
        self.identity: dict[str, Any] = {"encoder": "angles", "revision": "1"}
        self.cut = 0
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str]) -> Any:
        self.seen.extend(texts)
        turns = [math.radians(float(text)) for text in texts]
        return np.array([[math.cos(t), math.sin(t)] for t in turns], dtype="float32")


def embedder() -> Embedder:
    return Embedder(Angles(), Store())


def case(candidate: str, *references: str, role: str = ROLE) -> Case:
    return Case(1, candidate, references, role)


def dialogue(
    *turns: tuple[str, ...], role: str | None = ROLE, name: str = "d", references: bool = True
) -> Dialogue:
    """Turns are (reply, reference, reference, …)."""
    messages = [
        message
        for reply, *_ in turns
        for message in (Message(role="user", content="?"), Message(role="assistant", content=reply))
    ]
    return Dialogue(
        id=name,
        messages=tuple(messages),
        role_definition=role,
        references=tuple(turn[1:] for turn in turns) if references else (),
    )


def scorer(
    monkeypatch: pytest.MonkeyPatch, dialogues: list[Dialogue], **config: Any
) -> ReferenceScorer:
    monkeypatch.setattr(scoring, "SentenceEncoder", lambda _: Angles())
    return ReferenceScorer(AdherenceConfig(**config), lambda: dialogues)


# What is compared


def test_a_turns_text_is_all_its_assistant_messages_and_its_references_are_in_order() -> None:
    messages = (
        Message(role="assistant", content="Hello."),
        Message(role="user", content="?"),
        Message(role="assistant", content="One moment."),
        Message(role="tool", content="42"),
        Message(role="assistant", content="It is 42."),
    )
    cases = cases_of(
        Dialogue(
            id="d", messages=messages, role_definition=ROLE, references=(("Hi.", " "), ("42.",))
        )
    )
    assert cases == [
        Case(0, "Hello.", ("Hi.",), ROLE),
        Case(1, "One moment.\n\nIt is 42.", ("42.",), ROLE),
    ]


def test_more_references_than_turns_cannot_be_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = dialogue(("0", "0")).model_copy(update={"references": (("0",), ("0",))})
    found = scorer(monkeypatch, [odd], scoring_method="cosine").score(odd)
    assert isinstance(found, Unscored)
    assert found.reason == "references_mismatch"


# Methods on vectors


def test_cosine_takes_the_nearest_of_several_references() -> None:
    method = Nearest(embedder(), 1, "turn")
    assert method.score(case("0", "90", "60")).score == pytest.approx(0.5)


def test_knn_is_the_mean_over_the_k_nearest_of_the_turns_references() -> None:
    references = ("60", "90", "180")
    for k, expected in ((1, 0.5), (2, 0.25), (3, -1 / 6), (9, -1 / 6)):
        found = Nearest(embedder(), k, "turn").score(case("0", *references))
        assert found.score == pytest.approx(expected, abs=1e-6)


def test_pooled_knn_looks_among_all_references_of_the_same_role() -> None:
    method = Nearest(embedder(), 1, "role")
    method.learn([case("0", "90"), case("10", "60"), case("0", "0", role="another")])
    assert method.score(case("0", "90")).score == pytest.approx(0.5, abs=1e-6)
    assert method.fitted_on() == {ROLE: 2, "another": 1}


def distances(config: ReferenceConfig, *angles: str) -> Distance:
    method = Distance(embedder(), config)
    cases = [case(angle, "0", "90") for angle in angles]
    method.learn(cases)
    if method.needs_second_pass:
        method.settle(cases)
    return method


def expected_distance(angle: float, ridge: float = 0.01) -> float:
    """References at 0 and 90 degrees: mean (.5, .5), variance .25 in both directions."""
    at = (math.cos(math.radians(angle)) - 0.5, math.sin(math.radians(angle)) - 0.5)
    return math.sqrt((at[0] ** 2 + at[1] ** 2) / (0.25 + ridge))


def test_mahalanobis_goes_by_mean_and_variance_of_all_references_of_the_role() -> None:
    config = ReferenceConfig(scale="none", ridge=0.5)
    method = Distance(embedder(), config)
    method.learn([case("0", "0", "90", "180"), case("0", "270"), case("0", "0")])
    x, y = np.array([1, 0, -1, 0, 1]), np.array([0, 1, 0, -1, 0])
    distance = math.sqrt((1 - x.mean()) ** 2 / (x.var() + 0.5) + y.mean() ** 2 / (y.var() + 0.5))
    assert method.score(case("0")).score == pytest.approx(math.exp(-distance), abs=1e-6)


@pytest.mark.parametrize(("alpha", "ridge"), [(1.0, 0.01), (2.0, 0.5)])
def test_mahalanobis_of_the_text_is_exp_minus_alpha_d(alpha: float, ridge: float) -> None:
    method = distances(ReferenceConfig(scale="none", alpha=alpha, ridge=ridge), "180")
    assert method.score(case("180")).score == pytest.approx(
        math.exp(-alpha * expected_distance(180, ridge)), abs=1e-6
    )


def test_mahalanobis_of_the_experiments_is_scaled_by_the_median_of_the_roles_turns() -> None:
    method = distances(ReferenceConfig(), "45", "180", "270")
    middle = sorted(map(expected_distance, (45, 180, 270)))[1]
    assert method.score(case("180")).score == pytest.approx(
        math.exp(-expected_distance(180) / middle), abs=1e-6
    )


def test_a_role_with_one_reference_has_no_variance_and_no_score() -> None:
    method = Distance(embedder(), ReferenceConfig(scale="none"))
    method.learn([case("0", "90")])
    assert method.score(case("0", "90")).unscored == "too_few_references"


def test_pca_keeps_the_directions_in_which_references_vary() -> None:
    config = ReferenceConfig(scale="none", components=1)
    method = Distance(embedder(), config, components=1)
    method.learn([case("0", "0", "90")])
    # Along (1, -1) the turn at 45 degrees is the centre, however far it lies the other way.
    assert method.score(case("45")).score == pytest.approx(1, abs=1e-3)
    variance = 0.5 + config.ridge
    assert method.score(case("0")).score == pytest.approx(
        math.exp(-math.sqrt(0.5 / variance)), abs=1e-6
    )


# Words


def test_kl_by_hand() -> None:
    method = Divergence(ReferenceConfig())
    method.learn([case("x", "a a b")])
    # P = (3/5, 2/5); Q of "B c" counts b only: (1/3, 2/3).
    divergence = 0.6 * math.log(0.6 * 3) + 0.4 * math.log(0.4 * 3 / 2)
    assert method.score(case("B c")).score == pytest.approx(math.exp(-divergence))
    strict = Divergence(ReferenceConfig(beta=2))
    strict.learn([case("x", "a a b")])
    assert strict.score(case("B c")).score == pytest.approx(math.exp(-2 * divergence))


def test_kl_reads_the_most_frequent_words_only() -> None:
    method = Divergence(ReferenceConfig(vocabulary=1))
    method.learn([case("x", "a a b")])
    assert method.score(case("whatever b")).score == 1  # one word: P and Q are both (1,)


def test_kl_is_fitted_on_each_role_by_itself() -> None:
    method = Divergence(ReferenceConfig())
    method.learn([case("x", "a"), case("x", "b", "c", role="another")])
    assert method.fitted_on() == {ROLE: 1, "another": 2}
    assert method.score(case("a", role="a third")).unscored == "too_few_references"


CANDIDATE = "the cat sat on the mat"


def test_rouge_l_by_hand() -> None:
    # Four of six and seven words in common, in order: "the cat on mat".
    assert rouge_l(CANDIDATE, ["the cat lay on a mat today"]) == pytest.approx(8 / 13)
    assert rouge_l(CANDIDATE, ["nothing", "The cat sat on the mat."]) == 1
    assert rouge_l("...", ["the cat"]) == 0


WORDS = st.lists(st.sampled_from("abcd"), max_size=12)


@given(WORDS, WORDS)
def test_rouge_l_is_the_longest_common_subsequence(a: list[str], b: list[str]) -> None:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
            )
    expected = 2 * table[-1][-1] / (len(a) + len(b)) if a and b else 0.0
    assert rouge_l(" ".join(a), [" ".join(b)]) == pytest.approx(expected)


# Cost


def test_each_unique_text_is_embedded_once_also_in_a_later_run(tmp_path: Path) -> None:
    cases = [case("0", "10", "20"), case("10", "20", "30"), case("0", "30")]
    for run, expected in (("first", {"0", "10", "20", "30"}), ("second", set())):
        encoder, store = Angles(), Store(tmp_path / "embeddings.sqlite")
        embedder = Embedder(encoder, store)
        method = Nearest(embedder, 1, "turn")
        method.learn(cases)
        for each in cases:
            method.score(each)
        assert set(encoder.seen) == expected, run
        assert len(encoder.seen) == embedder.embedded == len(expected)
        store.close()


def test_another_encoder_does_not_read_the_vectors_of_the_first() -> None:
    store, first, second = Store(), Angles(), Angles()
    second.identity = {"encoder": "angles", "revision": "2"}
    Embedder(first, store).warm(["0"])
    Embedder(second, store).warm(["0"])
    assert second.seen == ["0"]


def test_the_parts_of_a_key_cannot_run_into_each_other() -> None:
    assert key_of("a", "bc") != key_of("ab", "c")


# NLI


class Contradictions:
    """A classifier that finds a contradiction where the texts differ in "not"."""

    def __init__(self) -> None:
        self.identity: dict[str, Any] = {"nli_model": "fake"}
        self.asked: list[tuple[str, str]] = []
        self.cut = 0

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        self.asked.extend(pairs)
        return [("-" in first) != ("-" in second) for first, second in pairs]


def test_contradiction_is_a_hard_penalty_and_else_similarity_counts() -> None:
    method = Entailment(Contradictions(), embedder(), Store())  # type: ignore[arg-type]
    assert method.score(case("-1", "0")).score == 0  # almost the same direction, but contradicted
    assert method.score(case("0", "60")).score == pytest.approx(0.5, abs=1e-6)
    assert method.score(case("0", "-60", "60")).score == pytest.approx(0.5, abs=1e-6)


def test_nli_of_the_experiments_is_a_binary_classifier_and_asks_a_pair_once() -> None:
    classifier = Contradictions()
    method = Entailment(classifier, None, Store())  # type: ignore[arg-type]
    cases = [case("0", "60"), case("0", "-60"), case("0", "60")]
    method.learn(cases)
    assert [method.score(each).score for each in cases] == [1, 0, 1]
    assert classifier.asked == [("60", "0"), ("-60", "0")]


# A dialogue's score


def test_a_dialogue_is_scored_turn_by_turn_like_by_a_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dialogue(("0", "0"), ("0", "60"))
    found = scorer(monkeypatch, [one], scoring_method="cosine", turn_threshold=0.8).score(one)
    assert isinstance(found, AdherenceScore)
    assert [turn.score for turn in found.per_turn] == pytest.approx([1, 0.5], abs=1e-6)
    assert [turn.adherent for turn in found.per_turn] == [True, False]
    assert found.session_score == pytest.approx(0.75)
    assert (found.output_mode, found.scoring_method) == ("continuous", "cosine")
    assert (found.identity.engine, found.identity.mode) == ("reference", "cosine")


def test_strict_mode_threshold_and_weights_hold_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dialogue(("0", "0"), ("0", "60"))

    def score(**config: Any) -> AdherenceScore:
        found = scorer(monkeypatch, [one], scoring_method="cosine", **config).score(one)
        assert isinstance(found, AdherenceScore)
        return found

    assert score(threshold=0.7).adherent
    assert not score(threshold=0.8).adherent
    assert not score(strict_mode=True, turn_threshold=0.8).adherent
    assert score(weights=(1.0, 0.0)).session_score == pytest.approx(1)


def test_a_negative_similarity_is_zero_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dialogue(("0", "180"))
    found = scorer(monkeypatch, [one], scoring_method="cosine").score(one)
    assert isinstance(found, AdherenceScore)
    assert found.session_score == 0


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (dialogue(("0", "0"), references=False), "no_reference"),
        (dialogue(("0", "0"), ("0",)), "no_reference"),
        (dialogue(("", "0")), "no_text"),
        (dialogue(("0", "0"), role=" "), "missing_role"),
        (Dialogue(id="d", messages=(), role_definition=ROLE), "no_assistant_turn"),
    ],
)
def test_what_cannot_be_compared_is_unscored_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, made: Dialogue, reason: str
) -> None:
    found = scorer(monkeypatch, [made], scoring_method="cosine").score(made)
    assert isinstance(found, Unscored)
    assert found.reason == reason


def test_a_fitted_method_says_on_how_many_references_and_its_identity_covers_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = [dialogue(("0", "0", "90")), dialogue(("45", "30"))]
    fitted = scorer(monkeypatch, some, scoring_method="mahalanobis")
    found = fitted.score(some[0])
    assert isinstance(found, AdherenceScore)
    assert found.fitted_on == 3
    other = scorer(monkeypatch, some[:1], scoring_method="mahalanobis")
    assert other.identity != fitted.identity


def test_a_parameter_that_changes_scores_changes_the_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = [dialogue(("0", "0", "90"))]

    def identity(method: str, **reference: Any) -> Any:
        config = {"scoring_method": method, "reference": ReferenceConfig(**reference)}
        return scorer(monkeypatch, some, **config).identity

    assert identity("knn", k=1) != identity("knn", k=2)
    assert identity("knn", pool="turn") != identity("knn", pool="role")
    for key, value in (("alpha", 2), ("scale", "none"), ("ridge", 1)):
        assert identity("mahalanobis") != identity("mahalanobis", **{key: value})
    assert identity("pca_mahalanobis") != identity("pca_mahalanobis", components=1)
    assert identity("kl") != identity("kl", vocabulary=3)
    assert identity("kl") != identity("kl", beta=3)


def test_bertscore_without_a_known_layer_is_refused_before_anything_runs() -> None:
    pytest.importorskip("sentence_transformers")
    with pytest.raises(UsageError, match="no layer is known"):
        check_scorer(
            AdherenceConfig(
                scoring_method="bertscore", reference=ReferenceConfig(bertscore_model="my/encoder")
            )
        )


def test_a_missing_package_names_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "torch"
    monkeypatch.setattr(scoring, "find_spec", lambda name: None if name == missing else name)
    with pytest.raises(UsageError, match=r"pip install .*\[scorers\]"):
        check_scorer(AdherenceConfig(scoring_method="cosine"))
    missing = "sentence_transformers"
    with pytest.raises(UsageError, match="sentence-transformers"):
        check_scorer(AdherenceConfig(scoring_method="cosine"))
    check_scorer(AdherenceConfig(scoring_method="kl"))  # counts words, needs no package


def test_a_model_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    (tmp_path / "config.json").write_text("{}")
    config = AdherenceConfig(
        scoring_method="cosine", reference=ReferenceConfig(encoder=str(tmp_path), device="cpu")
    )
    with pytest.raises(EngineError, match=tmp_path.name):
        ReferenceScorer(config, lambda: [dialogue(("a", "b"))])


def test_bleu_with_add_one_smoothing_by_hand() -> None:
    # Orders 1 to 4 of "the cat sat" (3 tokens): 2/3, (1+1)/(2+1), (0+1)/(1+1); same length.
    assert bleu("the cat sat", ["the cat lay"]) == pytest.approx((2 / 3 * 2 / 3 * 1 / 2) ** (1 / 3))
    # Half as long as the reference: the brevity penalty exp(1 - 2).
    assert bleu("a b", ["a b a b"]) == pytest.approx(math.exp(-1))
    # Counts are clipped: one of two "a" counts, and of two references the best is taken per word.
    assert bleu("a a", ["a b"]) == pytest.approx((1 / 2 * 1 / 2) ** (1 / 2))
    assert bleu("a b", ["a c", "c b"]) == pytest.approx((1 * 1 / 2) ** (1 / 2))
    assert bleu("x", ["a"]) == 0


def test_the_role_beside_the_turn_is_compared_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = ReferenceConfig(role_beside=True)
    one = case("Your card is blocked now.", "It is blocked.", role="A card is a card.")
    joined = "A card is a card.\n\nYour card is blocked now."
    assert compared(one, ReferenceConfig()) == one
    assert compared(one, beside) == replace(one, candidate=joined)
    # A turn without text stays one, whatever its role says.
    empty = case("", "It is blocked.", role="A card is a card.")
    assert compared(empty, beside) == empty
    data = [dialogue(("Your card is blocked now.", "The card is blocked."))]
    alone = scorer(monkeypatch, data, scoring_method="rouge")
    with_role = scorer(monkeypatch, data, scoring_method="rouge", reference=beside)
    assert with_role.identity.sampling == {**alone.identity.sampling, "role_beside": True}
    scores = [one.score(data[0]) for one in (alone, with_role)]
    assert [score.per_turn[0].score for score in scores if isinstance(score, AdherenceScore)] == [
        rouge_l(text, ["The card is blocked."])
        for text in ("Your card is blocked now.", f"{ROLE}\n\nYour card is blocked now.")
    ]
