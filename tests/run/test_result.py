"""The result of a run in Python: its HTML, and exports that it does not have."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from curate.errors import UsageError
from curate.records import VERDICTS, Manifest
from curate.run.pipeline import run_recipe
from curate.run.result import RunResult
from tests.live import live_server
from tests.run.test_pipeline import chat, recipe, write_rows


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("result")
    data = write_rows(folder / "chats.jsonl", [chat(n) for n in range(4)])
    with live_server() as server:
        return run_recipe(recipe(server, data), out=folder / "run")


def test_an_export_that_is_not_there_says_how_to_get_it(result: RunResult, tmp_path: Path) -> None:
    lacking = "expected: `trl` among export.trainers and `parquet` among export.formats"
    advice = "do: add it to the recipe and run it again: existing rows need no model calls"
    with pytest.raises(UsageError) as refused:
        RunResult(tmp_path, result.manifest).rows("reward")
    path = tmp_path / "export/trl/reward.parquet"
    message = f"the run has no such export\n  got: {path}\n  {lacking}\n  {advice}"
    assert str(refused.value) == message
    with pytest.raises(UsageError) as refused:
        result.rows("sft", "validation")
    path = result.folder / "export/trl/validation/sft.parquet"
    message = (
        f"the run has no such export\n  got: {path}\n  {lacking}, and select.split\n  {advice}"
    )
    assert str(refused.value) == message


def test_an_export_without_rows_is_an_empty_dataset(result: RunResult) -> None:
    path = result.folder / "export/trl/reward.parquet"
    assert result.sft.num_rows == result.manifest.selected > 0
    reward = result.rows("reward")
    assert (reward.num_rows, reward.column_names) == (0, pl.read_parquet(path).columns)


def test_a_notebook_shows_the_head_the_figures_and_what_is_trusted(result: RunResult) -> None:
    html = result._repr_html_()
    head = f'</style><h3>{result.manifest.name} <span class="badge">{result.manifest.status}</span></h3>'
    note = f'<p class="note">4 dialogues in {result.folder}</p>'
    assert head + note in html
    with_warning = result.manifest.model_copy(update={"warnings": ["Look <here>."]})
    assert f'{note}<p class="warning">Look &lt;here&gt;.</p>' in (
        RunResult(result.folder, with_warning)._repr_html_()
    )
    assert "<h4>Verdicts</h4>" in html
    order = [html.rindex(f"verdict-{name}") for name in reversed(VERDICTS)]
    assert order == sorted(order)
    assert html.index("mean helpfulness") < html.index("coherence")
    assert '<div class="grid"><' in html
    assert '<dl class="trust"><div><dt>' in html
    assert "<dt>pair certificate</dt>" in html


def test_a_run_without_scores_shows_its_head_alone(tmp_path: Path) -> None:
    manifest = Manifest.model_validate(
        {"format": 3, "name": "begun", "status": "running", "started": ""}
    )
    begun = RunResult(tmp_path, manifest)
    html = begun._repr_html_()
    assert f'<p class="note">0 dialogues in {tmp_path}</p><dl' in html
    assert "Verdicts" not in html
    pl.DataFrame({"id": ["a"], "n_turns": [1]}).write_parquet(tmp_path / "scores.parquet")
    assert begun.scores.height == 1
