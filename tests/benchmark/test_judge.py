"""A judge's scores: through the code of a run, kept, never asked for twice, never made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curate.benchmark.benchmark_run import Benchmark, Options, run_benchmark
from curate.benchmark.labelled_turns import read_turns
from curate.benchmark.methods import MethodScores, load_settings
from curate.errors import CurateError, UsageError
from tests.benchmark.rows import write_rows

ROWS = 6
RIGHT = ["YES" if row % 2 == 0 else "NO" for row in range(ROWS)]


def recipe(folder: Path, replies: list[str], more: str = "") -> Path:
    path = folder / "judge.yaml"
    path.write_text(
        f"models:\n  judge: {{engine: scripted, model: fake, replies: {json.dumps(replies)}}}\n{more}"
    )
    return path


def run(data: Path, judge: Path | None, out: Path | None, methods: str | None) -> Benchmark:
    settings = load_settings(str(data), methods, judge=judge)
    turns = read_turns(settings.recipe.source[0])
    options = Options(
        methods=settings.methods,
        recipe=settings.recipe,
        store=out,
        tolerant=not settings.are_named,
        resamples=20,
    )
    return run_benchmark(turns, options)


def only(found: Benchmark) -> MethodScores:
    (scores,) = found.full.methods
    return scores


def test_a_binary_judge_and_its_figures(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.json", ROWS)
    found = run(data, recipe(tmp_path, RIGHT), tmp_path / "out", "llm_judge")
    assert only(found).scores == (1.0, 0.0, 1.0, 0.0, 1.0, 0.0)
    assert only(found).model == "fake"
    assert "binary" in only(found).detail
    assert only(found).needs_references is False
    judged = found.full.figures[0]
    assert (judged.f1_macro, judged.kappa) == (1.0, 1.0)


def test_a_second_run_asks_for_nothing(tmp_path: Path) -> None:
    """The second script is empty, and an empty script raises when it is asked."""
    data, out = write_rows(tmp_path / "rows.json", ROWS), tmp_path / "out"
    first = run(data, recipe(tmp_path, RIGHT), out, "llm_judge")
    again = run(data, recipe(tmp_path, []), out, "llm_judge")
    assert only(again).scores == only(first).scores
    with pytest.raises(CurateError):
        run(data, recipe(tmp_path, []), tmp_path / "elsewhere", "llm_judge")


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    data, out = write_rows(tmp_path / "rows.json", ROWS), tmp_path / "out"
    with pytest.raises(CurateError):
        run(data, recipe(tmp_path, RIGHT[:4]), out, "llm_judge")
    rest = run(data, recipe(tmp_path, RIGHT[4:]), out, "llm_judge")
    assert None not in only(rest).scores


def test_a_reply_that_cannot_be_read_is_unscored_and_counted(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.json", ROWS)
    replies = ["maybe", *RIGHT[1:]]
    found = run(
        data, recipe(tmp_path, replies, "adherence: {retries: 0}\n"), tmp_path / "out", "llm_judge"
    )
    assert only(found).scores[0] is None
    assert only(found).unscored == {"bad_reply": 1}
    assert found.full.figures[0].unscored == 1
    assert found.full.figures[0].n == ROWS


def test_only_the_last_turn_counts(tmp_path: Path) -> None:
    """An earlier turn without a score does not cost the last one its own."""
    rows = [
        {
            "role_definition": "A clerk.",
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "My order?"},
                {"role": "assistant", "content": f"It left, {label}."},
            ],
            "label": label,
        }
        for label in ("adherent", "tone")
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # The first turn is the same in both, and asked about once.
    replies = ["maybe", "YES", "NO"]
    judge = recipe(tmp_path, replies, "adherence: {retries: 0, strict_mode: true}\n")
    found = run(data, judge, tmp_path / "out", "llm_judge")
    assert only(found).scores == (1.0, 0.0)


def test_continuous_mode_without_log_probabilities_falls_back_loudly(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.json", ROWS)
    judge = recipe(tmp_path, RIGHT, "adherence: {output_mode: continuous}\n")
    found = run(data, judge, tmp_path / "out", "llm_judge")
    assert "binary" in only(found).detail
    assert any("falls back" in warning for warning in found.warnings)


def test_the_definition_asked_for_reaches_the_judge(tmp_path: Path) -> None:
    """Another prompt is another request, so replies to the first cannot answer the second."""
    data, out = write_rows(tmp_path / "rows.json", ROWS), tmp_path / "out"
    run(data, recipe(tmp_path, RIGHT), out, "llm_judge")
    with pytest.raises(CurateError):
        run(data, recipe(tmp_path, []), out, "llm_judge[definition=restrictive]")


def test_a_conversation_is_asked_about_once(tmp_path: Path) -> None:
    """One answer a dialogue, though it has two assistant turns."""
    rows = [
        {
            "role_definition": "A clerk.",
            "messages": [
                {"role": "assistant", "content": "Welcome."},
                {"role": "user", "content": "My order?"},
                {"role": "assistant", "content": f"It left, {label}."},
            ],
            "label": label,
        }
        for label in ("adherent", "tone")
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = run(
        data,
        recipe(tmp_path, ["YES", "NO"]),
        tmp_path / "out",
        "llm_judge[evaluation_granularity=conversation]",
    )
    assert only(found).scores == (1.0, 0.0)


def test_no_model_is_asked_silently(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.json", ROWS)
    with pytest.raises(UsageError, match="--judge"):
        run(data, None, tmp_path / "out", "llm_judge")


def test_a_judge_needs_a_place_for_its_replies(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.json", ROWS)
    with pytest.raises(UsageError, match="--out"):
        run(data, recipe(tmp_path, RIGHT), None, "llm_judge")


def test_a_named_judge_is_among_the_usual_methods(tmp_path: Path) -> None:
    settings = load_settings("rows.json", None, judge=recipe(tmp_path, RIGHT))
    assert [method.name for method in settings.methods][-1] == "llm_judge"
    assert not settings.are_named
