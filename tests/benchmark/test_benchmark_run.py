"""Conditions, methods that cannot run, and what is written."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.benchmark.benchmark_run import Benchmark, Options, run_benchmark
from curate.benchmark.labelled_turns import LabelledTurn, read_turns
from curate.benchmark.method_scores import Comparer
from curate.benchmark.methods import load_settings
from curate.benchmark.output import origin, prepare_folder, read_saved_scores, write_benchmark
from curate.benchmark.paper_tables import as_markdown, between, number, tables_of
from curate.errors import EngineError, UsageError
from curate.sources import SourceConfig
from curate.trust.agreement import Interval
from tests.benchmark.rows import turn, write_rows


@pytest.fixture
def turns(tmp_path: Path) -> list[LabelledTurn]:
    return read_turns(SourceConfig(path=str(write_rows(tmp_path / "rows.json", 20))))


def run(turns: list[LabelledTurn], methods: str | None, **options: Any) -> Benchmark:
    chosen = load_settings("rows.json", methods).methods
    return run_benchmark(turns, Options(methods=chosen, resamples=20, **options))


def test_conditions_are_the_first_rows_and_fits_are_their_own(turns: list[LabelledTurn]) -> None:
    found = run(turns, "rouge,kl", conditions=(20, 10))
    assert [condition.n for condition in found.conditions] == [10, 20]
    small, large = found.conditions
    assert small.methods[0].scores == large.methods[0].scores[:10]
    assert small.methods[1].scores != large.methods[1].scores[:10]
    assert small.verdicts == ()
    assert {verdict.method for verdict in large.verdicts} == {"rouge", "kl"}


def test_the_papers_conditions_by_default(turns: list[LabelledTurn]) -> None:
    assert [condition.n for condition in run(turns, "rouge").conditions] == [15, 20]


@pytest.mark.parametrize("asked", [(0,), (21,), (5, 1), ()])
def test_a_condition_beyond_the_file_is_refused(turns: list[LabelledTurn], asked: Any) -> None:
    with pytest.raises(UsageError, match="from 2 to 20"):
        run(turns, "rouge", conditions=asked)


@pytest.mark.parametrize("threshold", [math.nan, math.inf])
def test_a_threshold_that_is_no_number_is_refused(
    turns: list[LabelledTurn], threshold: float
) -> None:
    with pytest.raises(UsageError, match="threshold"):
        run(turns, "rouge", threshold=threshold)


def test_the_same_name_twice_is_refused(turns: list[LabelledTurn], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="twice"):
        run(turns, "rouge,rouge")
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"results": {"m": {"scores": [0.5] * 20}}}))
    saved = (*read_saved_scores(path, 20), *read_saved_scores(path, 20))
    with pytest.raises(UsageError, match="saved:m"):
        run(turns, "", saved=saved)


def test_baselines_stand_beside_every_method(turns: list[LabelledTurn]) -> None:
    found = run(turns, "rouge", threshold=0.3)
    for condition in found.conditions:
        names = [figures.method for figures in condition.figures]
        assert names == ["rouge", "word_count", "overlap", "unigram", "position"]
    assert found.full.figures[0].f1_macro is not None
    assert found.full.figures[1].f1_macro is None


def test_turns_without_references_are_unscored_and_counted() -> None:
    rows = [
        turn(f"said {row} here", "adherent" if row % 2 else "tone", *(["said"] if row else []))
        for row in range(6)
    ]
    found = run(rows, "rouge")
    assert found.full.methods[0].unscored == {"no_reference": 1}
    assert "unscored: 1 no_reference" in origin(found.full.methods[0])
    assert found.full.figures[0].unscored == 1


class Letters:
    """An encoder that counts letters, and how often it is asked."""

    identity = {"encoder": "letters"}  # noqa: RUF012
    cut = 0

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: Any) -> Any:
        self.texts.extend(texts)
        rows = np.array(
            [[text.count(c) + 0.1 for c in "abcdefgilnorstu0123456789"] for text in texts]
        )
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("float32")


def test_each_text_is_embedded_once_over_methods_and_conditions(
    turns: list[LabelledTurn], tmp_path: Path
) -> None:
    encoder = Letters()
    comparer = Comparer(tmp_path / "embeddings.sqlite", encoder)
    for method in load_settings("f", "cosine,knn,knn[pool=turn],mahalanobis").methods:
        for n in (10, 20):
            scores = comparer.score(method, turns[:n])
            assert len(scores.scores) == n
            assert None not in scores.scores
    assert len(encoder.texts) == len(set(encoder.texts))
    comparer.close()


def test_variants_differ_as_asked(turns: list[LabelledTurn]) -> None:
    comparer = Comparer(None, Letters())
    made = {
        method.name: comparer.score(method, turns)
        for method in load_settings(
            "f", "knn,knn[pool=turn],cosine,mahalanobis,mahalanobis[scale=none]"
        ).methods
    }
    assert made["knn[pool=turn]"].scores == made["cosine"].scores
    assert made["knn"].scores != made["cosine"].scores
    assert made["mahalanobis"].scores != made["mahalanobis[scale=none]"].scores
    assert "pool role" in made["knn"].detail
    assert "scale none" in made["mahalanobis[scale=none]"].detail


def test_a_model_that_is_not_there_names_the_way_out(
    turns: list[LabelledTurn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    empty = tmp_path / "model"
    empty.mkdir()
    methods = load_settings("f", "cosine", encoder=str(empty)).methods
    with pytest.raises(EngineError, match="--encoder"):
        run_benchmark(turns, Options(methods=methods))


def test_the_usual_methods_go_on_without_what_cannot_run(
    turns: list[LabelledTurn], tmp_path: Path
) -> None:
    empty = tmp_path / "model"
    empty.mkdir()
    methods = load_settings("f", None, encoder=str(empty)).methods
    found = run_benchmark(turns, Options(methods=methods, tolerant=True, resamples=5))
    assert list(found.not_run) == ["cosine", "knn", "mahalanobis", "pca_mahalanobis"]
    assert found.full.method_names == ["kl", "rouge", "bleu"]
    write_benchmark(found, tmp_path, "rows.json")
    said = (tmp_path / "tables.md").read_text()
    assert "`cosine`, `knn`, `mahalanobis`, `pca_mahalanobis`: not run" in said


def test_a_missing_package_names_the_extra(
    turns: list[LabelledTurn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curate.adherence.reference.scorer.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"\[scorers\]"):
        run(turns, "cosine")


def test_what_is_written(turns: list[LabelledTurn], tmp_path: Path) -> None:
    found = run(turns, "rouge,kl", conditions=(10, 20))
    write_benchmark(found, tmp_path, "rows|1.json")
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert list(rows[0]) == [
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
        "accuracy",
        "brier",
        "ece",
    ]
    assert [(row["method"], row["n"]) for row in rows[:4]] == [
        ("rouge", "10"),
        ("rouge", "20"),
        ("kl", "10"),
        ("kl", "20"),
    ]
    assert rows[0]["kappa"] == ""
    assert {row["method"] for row in rows} >= {"word_count", "overlap", "unigram", "position"}
    markdown = (tmp_path / "tables.md").read_text()
    for title in ("What needs no understanding", "Continuous methods", "All on one scale"):
        assert f"## {title}" in markdown
    assert "Does it beat the best baseline" in markdown
    again = read_saved_scores(tmp_path / "scores.json", 20)
    assert again[0].scores == found.full.methods[0].scores


def test_tables_of_binary_methods(turns: list[LabelledTurn], tmp_path: Path) -> None:
    scores = [float(one.is_adherent) for one in turns]
    scores[1] = 1.0
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"results": {"judge": {"scores": scores}}}))
    found = run(turns, "rouge", saved=tuple(read_saved_scores(path, 20)))
    tables = {table.title: table for table in tables_of(found)}
    assert [row[0] for row in tables["Binary decisions"].rows] == ["saved:judge"] * 2
    assert tables["Binary decisions: bootstrap intervals"].rows[0][2].startswith("[")
    assert {row[0] for row in tables["Continuous methods"].rows} == {"rouge"}
    unified = tables["All on one scale: AUC (n = 20)"]
    assert ["recomputed from saved scores" in row for row in unified.rows].count(True) == 1
    first = tables["Does it beat the best baseline? (n = 20)"].rows[0]
    assert first[-1] == "does not beat it"


def test_many_kinds_of_violation_stand_in_several_tables() -> None:
    rows = [turn(f"t {row}", "adherent" if row % 2 else f"kind_{row}", "t") for row in range(14)]
    tables = [t for t in tables_of(run(rows, "rouge")) if t.title.startswith("AUC of adherent")]
    assert len(tables) == 2
    assert sum(len(table.columns) - 1 for table in tables) == 7


def test_numbers_and_intervals_as_text() -> None:
    assert [number(0.8766), number(-0.1363), number(1.0), number(None)] == [
        ".877",
        "-.136",
        "1.000",
        "",
    ]
    assert [number(0.38, signed=True), number(-1.0, signed=True)] == ["+.380", "-1.000"]
    assert [number(10.5), number(-20.25)] == ["10.500", "-20.250"]
    assert between(Interval(0.1, 1.0, 5)) == "[.100, 1.000]"


def test_markdown_does_not_break_on_a_bar(turns: list[LabelledTurn]) -> None:
    table = tables_of(run(turns, "rouge"))[0]
    wide = type(table)("t", ("a|b",), (("c|d",),))
    assert "a\\|b" in as_markdown(wide)


def test_a_folder_that_cannot_be_made_is_told_first(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(UsageError, match="--out"):
        prepare_folder(taken / "inside")
