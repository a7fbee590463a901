"""The pictures are made and hold something; how they look is for eyes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from curate.benchmark.benchmark_run import Options, run_benchmark
from curate.benchmark.labelled_turns import read_turns
from curate.benchmark.methods import load_settings
from curate.benchmark.output import read_saved_scores
from curate.benchmark.plots import _macro_f1, check_plots, write_plots
from curate.errors import UsageError
from curate.sources import SourceConfig
from tests.benchmark.rows import write_rows

pytest.importorskip("matplotlib")


def test_four_pictures(tmp_path: Path) -> None:
    from matplotlib.image import imread

    turns = read_turns(SourceConfig(path=str(write_rows(tmp_path / "rows.json", 20))))
    methods = load_settings("f", "rouge,bleu,kl").methods
    found = run_benchmark(turns, Options(methods=methods, resamples=5))
    paths = write_plots(found, tmp_path)
    assert [path.name for path in paths] == [
        "class_means.png",
        "separation.png",
        "roc.png",
        "reliability.png",
    ]
    for path in paths:
        assert imread(path).std() > 0.05


def test_macro_f1_is_drawn_over_the_conditions_where_methods_decide(tmp_path: Path) -> None:
    turns = read_turns(SourceConfig(path=str(write_rows(tmp_path / "rows.json", 20))))
    methods = load_settings("f", "rouge,bleu").methods
    options = Options(methods=methods, conditions=(8, 14, 20), threshold=0.4, resamples=20)
    found = run_benchmark(turns, options)
    assert "macro_f1.png" in [path.name for path in write_plots(found, tmp_path)]
    figure = _macro_f1(found)
    assert figure is not None
    (axes,) = figure.axes
    lines = [bar for bar in axes.containers if bar.get_label() in ("rouge", "bleu")]
    assert len(lines) == 2
    for container, name in zip(lines, ("rouge", "bleu"), strict=True):
        drawn = container[0].get_ydata().tolist()
        assert drawn == [
            f.f1_macro for c in found.conditions for f in c.figures if f.method == name
        ]
    one = run_benchmark(turns, Options(methods=methods, conditions=(20,), threshold=0.4))
    assert _macro_f1(one) is None


def test_nothing_to_draw_is_no_picture(tmp_path: Path) -> None:
    """One condition has no course against n; scores beyond [0, 1] have no reliability."""
    turns = read_turns(SourceConfig(path=str(write_rows(tmp_path / "rows.json", 4))))
    saved = tmp_path / "saved.json"
    saved.write_text('{"results": {"log_odds": {"scores": [3, -2, null, 1]}}}')
    found = run_benchmark(turns, Options(saved=tuple(read_saved_scores(saved, 4)), resamples=5))
    assert [path.name for path in write_plots(found, tmp_path)] == ["class_means.png", "roc.png"]


def test_without_matplotlib_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install .*\[plots\]"):
        check_plots()
