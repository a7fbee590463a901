"""Weighted metrics and people's labels: levels, weights and p_good, from a run to the next one that uses them."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from curate.cli import app
from curate.errors import UsageError
from curate.recipe import Recipe
from curate.run.labels.agreement import measure_agreement
from curate.run.labels.calibrate import calibrate_with_gold, merged_calibration
from curate.run.labels.gold_fit import GoldFit
from curate.run.labels.run_scores import metrics_of
from curate.run.labels.sample import sample
from curate.run.pipeline import run_recipe
from curate.storage.whole_files import write_record
from curate.trust.label_rows import GivenLabels, GoldRow, labels_in_file
from tests.live import live_server
from tests.run.fits import check_fit
from tests.run.test_pipeline import recipe, write_rows
from tests.servers import Body, CountingServer, answer_by_hash

N = 40
DRAW = random.Random(3)
QUALITIES = [DRAW.random() for _ in range(N)]
CHOSEN = [
    {"metric": "grounding_fidelity", "weight": 0.2},
    {"metric": "response_delivery", "weight": 0.6},
    {"metric": "task_completion", "weight": 0.2},
]


def answer(body: Body) -> Body | str:
    """4 or pass is always the likeliest; what else is likely follows the quality, but for the delivery."""
    text = "".join(str(message["content"]) for message in body["messages"])
    if "Metrics, each with its scale" not in text:
        return answer_by_hash(body)
    quality = float(text.split("Q=")[1].split()[0])
    if "failure_code" in text.rsplit("</dialogue>", 1)[1]:
        return json.dumps({"task_completion": {"failure_code": "not_done", "turns": [1]}})
    asked = text.rsplit("</dialogue>", 1)[1]
    likely, good, bad = ("P", "P", "F") if "task_completion" in asked else ("4", "5", "0")
    if "response_delivery" in asked:
        quality = (quality * 997) % 1
    shares = {good: 0.4 * quality + 1e-6, bad: 0.4 * (1 - quality) + 1e-6}
    shares[likely] = shares.get(likely, 0.0) + 0.6
    first = [(label, math.log(share)) for label, share in shares.items()]
    return {"text": likely, "first_token": sorted(first, key=lambda pair: -pair[1])}


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    with live_server(answer=answer) as running:
        yield running


def rows() -> list[dict[str, Any]]:
    return [
        {
            "id": f"chat-{number}",
            "messages": [
                {"role": "user", "content": f"Please see to matter {number}."},
                {"role": "assistant", "content": f"It is seen to. Q={quality:.3f} "},
            ],
        }
        for number, quality in enumerate(QUALITIES)
    ]


def measured(server: CountingServer, data: Path, **sections: Any) -> Recipe:
    given = {"judge": False, "adherence": False, "metrics": {"choose": CHOSEN}, "export": False}
    return recipe(server, data, **(given | sections))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("data") / "chats.jsonl", rows())


@pytest.fixture(scope="module")
def run(server: CountingServer, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "plain"
    run_recipe(measured(server, data), out=out)
    return out


def labels() -> list[GoldRow]:
    found = []
    for number, quality in enumerate(QUALITIES):
        said = {
            "metric_grounding_fidelity": round(5 * quality),
            "metric_task_completion": "pass" if quality > 0.6 else "fail",
            "accept": "yes" if quality > 0.5 else "no",
        }
        found += [
            GoldRow(f"gold:{number}", name, value, dialogue_id=f"chat-{number}")
            for name, value in said.items()
        ]
    return found


def test_labels_make_levels_that_the_next_run_sums_up_without_a_call(
    server: CountingServer, data: Path, run: Path, tmp_path: Path
) -> None:
    found = calibrate_with_gold(run, labels())
    check_fit("calibration_of_metrics", found)
    fitted = found.calibration.metrics
    assert fitted is not None
    assert [*fitted.levels] == ["grounding_fidelity", "task_completion"]
    grounding = fitted.levels["grounding_fidelity"]
    assert (grounding.lowest, len(grounding.cuts), grounding.scale) == (0, 5, "0-5")
    assert (grounding.before.value or 0.0) < 0.05  # 4 throughout
    assert (grounding.after.value or 0.0) > 0.8
    assert len(fitted.levels["task_completion"].cuts) == 1
    path = tmp_path / "calibration.json"
    write_record(path, found.calibration)
    config = {"choose": CHOSEN, "calibration": str(path)}
    result = run_recipe(measured(server, data, metrics=config), out=run)
    assert result.manifest.requests == 0
    plain = metrics_of(run)
    assert result.manifest.identities["metrics"].sampling["calibration"].startswith("levels ")
    for key, record in plain.items():
        by_name = {metric.name: metric for metric in record.metrics}
        assert by_name["grounding_fidelity"].digit == 4
        assert by_name["response_delivery"].score == by_name["response_delivery"].digit
        heights = {
            name: (metric.score or 0) / (1 if name == "task_completion" else 5)
            for name, metric in by_name.items()
        }
        assert record.overall_score == pytest.approx(
            100 * (0.2 * heights["grounding_fidelity"] + 0.6 * heights["response_delivery"] + 0.2 * heights["task_completion"])
        ), key  # fmt: skip
    assert {
        m.score for r in plain.values() for m in r.metrics if m.name == "grounding_fidelity"
    } > {0, 3}
    # The labels of a calibrated run are fitted to the judge's own readings again.
    assert calibrate_with_gold(run, labels()).calibration.metrics == fitted
    back = run_recipe(measured(server, data), out=run)
    assert back.manifest.requests == 0
    assert "calibration" not in back.manifest.identities["metrics"].sampling


def test_weights_are_fitted_beside_those_given(run: Path) -> None:
    fitted = calibrate_with_gold(run, labels()).calibration.metrics
    assert fitted is not None
    weights = fitted.weights
    assert weights is not None
    assert (weights.labels, weights.good) == (N, sum(q > 0.5 for q in QUALITIES))
    assert weights.given == pytest.approx({m["metric"]: m["weight"] for m in CHOSEN})
    assert math.fsum(weights.fitted.values()) == pytest.approx(1)
    assert weights.fitted["response_delivery"] < 0.2 < weights.given["response_delivery"]
    assert weights.auc_fitted > weights.auc_given
    assert weights.gain is not None
    assert weights.gain[0] > 0


def test_a_metric_that_does_not_apply_has_no_height_and_dialogues_without_metrics_no_part(
    run: Path,
) -> None:
    found = metrics_of(run)
    [first, *others], lost = [*found], "without metrics"
    absent = [
        metric.model_copy(update={"score": None, "digit": None, "reading": None, "na": "no_goal"})
        if metric.name == "task_completion"
        else metric
        for metric in found[first].metrics
    ]
    na = found | {first: found[first].model_copy(update={"metrics": tuple(absent)})}
    good: Any = {key: number % 2 == 0 for number, key in enumerate([first, *others])}
    groups = {key: key for key in found}

    def weights(good: dict[str, bool], metrics: Any) -> Any:
        gold: Any = SimpleNamespace(good=good)
        return GoldFit(gold, {}, {}, metrics, groups)._weights()

    fitted = weights(good | {lost: True}, na)
    assert fitted is not None
    assert (fitted.labels, fitted.good) == (N, N // 2)
    assert fitted.fitted != weights(good, found).fitted


def test_labels_that_say_nothing_of_the_metrics_are_counted(run: Path) -> None:
    extra = [
        GoldRow("x:1", "metric_charm", 3, dialogue_id="chat-0"),
        GoldRow("x:2", "metric_grounding_fidelity", 6, dialogue_id="chat-0"),
        GoldRow("x:3", "metric_grounding_fidelity", "n/a", dialogue_id="chat-1", rater="y"),
        GoldRow("x:4", "metric_grounding_fidelity", 3, dialogue_id="chat-2", turn=1),
    ]
    kept = [row for row in labels() if row.dialogue_id not in ("chat-0", "chat-1")]
    found = calibrate_with_gold(run, [*kept, *extra])
    assert found.unused.counts == {
        "the run has no such metric: 'metric_charm'": 1,
        "not on the scale 0-5: '6'": 1,
        "n/a: a metric is n/a where the judge says so": 1,
        "metric_grounding_fidelity is of the conversation, and a turn is named": 1,
    }
    check_fit("calibration_of_metrics_by_odd_labels", found)
    few = calibrate_with_gold(run, labels()[: 3 * 16])
    assert few.not_fitted["weights of metrics"].startswith("too few verdicts of people")


def test_a_calibration_of_other_metrics_is_refused_before_any_call(
    server: CountingServer, data: Path, run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    write_record(path, calibrate_with_gold(run, labels()).calibration)
    other = {"choose": [*CHOSEN, "instruction_compliance"], "calibration": str(path)}
    with pytest.raises(UsageError, match=r"metrics\.calibration was fitted to another judge"):
        run_recipe(measured(server, data, metrics=other), out=tmp_path / "run")
    with pytest.raises(UsageError, match="has no calibration of the rubric judge"):
        measured(server, data, judge={"calibration": str(path)})
    assert not (tmp_path / "run" / "metrics").exists()


def test_labels_may_come_in_parts(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    of_metrics = [row for row in labels() if row.dimension != "accept"]
    write_record(path, calibrate_with_gold(run, of_metrics).calibration)
    verdicts = calibrate_with_gold(run, [row for row in labels() if row.dimension == "accept"])
    whole, kept = merged_calibration(verdicts.calibration, path)
    assert whole.metrics is not None
    assert [*whole.metrics.levels] == ["grounding_fidelity", "task_completion"]
    assert whole.metrics.weights is not None
    assert kept == ("metric_grounding_fidelity", "metric_task_completion")
    one = [row for row in of_metrics if row.dimension == "metric_task_completion"]
    other = [row for row in of_metrics if row.dimension == "metric_grounding_fidelity"]
    write_record(path, calibrate_with_gold(run, other).calibration)
    whole, kept = merged_calibration(calibrate_with_gold(run, one).calibration, path)
    assert whole.metrics is not None
    assert {*whole.metrics.levels} == {"grounding_fidelity", "task_completion"}
    assert kept == ("metric_grounding_fidelity",)


def test_the_command_says_what_it_found_in_plain_words(run: Path, tmp_path: Path) -> None:
    gold = tmp_path / "gold.csv"
    pl.DataFrame(
        [{"id": r.dialogue_id, "dimension": r.dimension, "value": str(r.value)} for r in labels()]
    ).write_csv(gold)
    out = tmp_path / "calibration.json"
    said = CliRunner(env={"COLUMNS": "80"}).invoke(
        app, ["calibrate", str(run), str(gold), "--out", str(out)]
    )
    assert said.exit_code == 0, said.output
    assert "metric_grounding_fidelity" in said.output
    assert "take them as metrics.choose" in " ".join(said.output.split())
    assert f"`metrics: {{calibration: {out}}}`" in "".join(said.output.split("\n"))
    assert "judge: {calibration" not in said.output


def test_metrics_are_among_the_readings_of_p_good_where_the_run_has_them(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    sections: dict[str, Any] = {"judge": {"text": "off"}, "select": False}
    run_recipe(measured(server, data, **sections), out=tmp_path / "run")
    found = calibrate_with_gold(tmp_path / "run", labels())
    check_fit("calibration_of_all", found)
    good = found.calibration.good
    assert good is not None
    assert {"metric_grounding_fidelity", "metric_task_completion", "coherence"} <= {*good.features}
    by_name = dict(zip(good.features, good.weights, strict=True))
    assert by_name["metric_grounding_fidelity"] == pytest.approx(max(good.weights))
    path = tmp_path / "calibration.json"
    write_record(path, found.calibration)
    sections = {"judge": {"text": "off", "calibration": str(path)}}
    select = {"where": {"likely": "p_good > 0.5"}}
    run_recipe(measured(server, data, **sections, select=select), out=tmp_path / "run")
    table = pl.read_parquet(tmp_path / "run" / "scores.parquet")
    assert table["p_good"].null_count() == 0
    without = measured(server, data, **sections, metrics=False)
    with pytest.raises(UsageError, match="by its metrics, was fitted to another judge"):
        run_recipe(without, out=tmp_path / "other")


def test_metrics_are_sampled_filled_in_and_held_against_the_run(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    name, out = "metric_task_completion", tmp_path / "gold.csv"
    sample(folder, 30, out=out, purpose="agreement", dimensions=[name])
    by_id = {row.dialogue_id: str(row.value) for row in labels() if row.dimension == name}
    filled = pl.read_csv(out, infer_schema=False).with_columns(
        value=pl.col("id").replace_strict(by_id)
    )
    filled.write_csv(out)
    made = measure_agreement(folder, labels_in_file(out))
    assert made.report.dimensions[name].labels == 30
    page = tmp_path / "gold.html"
    sample(folder, 30, out=page, purpose="agreement", dimensions=[name], seed=1)
    tool = tmp_path / "project"
    sample(folder, 30, out=tool, purpose="agreement", dimensions=[name], tool="label-studio")
    assert '<Choice value="fail"/>' in (tool / "config.xml").read_text()
    with pytest.raises(UsageError, match="metric_task_completion") as refused:
        sample(folder, 30, out=tmp_path / "x.csv", purpose="agreement", dimensions=["metric_charm"])
    assert refused.value.got == "metric_charm"


def test_agreement_is_measured_of_each_labelled_metric(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    absent = GoldRow("gold:x", "adherence", "violation", dialogue_id="chat-0")
    rows = [
        (row.place, {"id": row.dialogue_id, "dimension": row.dimension, "value": row.value})
        for row in (*labels(), absent)
    ]
    made = measure_agreement(folder, GivenLabels("gold", rows))
    grounding = made.report.dimensions["metric_grounding_fidelity"]
    assert grounding.level_names == ("0", "1", "2", "3", "4", "5")
    assert (grounding.labels, grounding.scale) == (N, "0-5")
    assert sum(row[4] for row in grounding.confusion) == N  # the judge says 4 throughout
    assert (grounding.spearman.value or 0) > 0.9
    assert grounding.mapped is not None  # the same readings cut at other points agree much better
    assert (grounding.mapped.kappa.value or 0) > 0.6 > (grounding.levels.kappa.value or 0)
    completed = made.report.dimensions["metric_task_completion"]
    assert completed.level_names == ("fail", "pass")
    assert made.report.fingerprints.keys() == {"metrics"}
    assert made.unused.counts == {
        "the run has no rubric judge": N,
        "the run has no role adherence": 1,
    }
