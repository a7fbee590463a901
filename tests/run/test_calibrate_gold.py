"""`curate calibrate RUN GOLD`: from a run and people's labels to one file that the next run uses."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.errors import UsageError
from curate.records import Calibration, Judgment, StageName
from curate.run.labels.calibrate import (
    calibrate_with_gold,
    calibrate_with_shares,
    merged_calibration,
)
from curate.run.pipeline import run_recipe
from curate.run.staging import scored_rows
from curate.trust.label_rows import GoldRow
from tests.live import live_server
from tests.run.fits import check_fit
from tests.run.test_calibrated_run import recipe, rows, serve
from tests.servers import CountingServer

N = 60
DRAW = random.Random(5)
QUALITIES = [round(DRAW.uniform(0.02, 0.99), 2) for _ in range(N)]
STARS = [min(5, max(1, round(1 + 4 * q + DRAW.gauss(0, 0.5)))) for q in QUALITIES]


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    with live_server(answer=serve) as running:
        yield running


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "chats.jsonl"
    held = [
        {**row, "labels": {"stars": star}}
        for row, star in zip(rows(*QUALITIES), STARS, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in held))
    return path


@pytest.fixture(scope="module")
def run(server: CountingServer, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "plain"
    run_recipe(recipe(server, data), out=out)
    return out


def write_gold(path: Path, *extra: dict[str, Any], labels: int = N) -> Path:
    given: list[dict[str, Any]] = []
    for number, star in list(enumerate(STARS))[:labels]:
        name = f"chat-{number}"
        given += [
            {"id": name, "dimension": "coherence", "value": str(star), "rater": "x"},
            {"id": name, "dimension": "coherence", "value": str(min(5, star + number % 2)), "rater": "y"},
            {"id": name, "turn": 1, "dimension": "helpfulness", "value": str((star - 1) // 2), "rater": "x"},
            {"id": name, "dimension": "accept", "value": "yes" if star > 2 else "no", "rater": "x"},
        ]  # fmt: skip
    pl.DataFrame([*given, *extra], infer_schema_length=None).write_csv(path)
    return path


@dataclass
class Done:
    exit_code: int
    output: str


def call(*arguments: object) -> Done:
    """Run the command as the shell does, and give all that it said."""
    said = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["calibrate", *map(str, arguments)])
    if isinstance(said.exception, UsageError):
        return Done(2, str(said.exception))
    return Done(said.exit_code, said.output)


def test_labels_become_a_file_that_the_next_run_uses(
    server: CountingServer, data: Path, run: Path, tmp_path: Path
) -> None:
    gold = write_gold(
        tmp_path / "gold.csv",
        {"id": "chat-999", "dimension": "coherence", "value": "3", "rater": "x"},
        {"id": "chat-1", "turn": 7, "dimension": "helpfulness", "value": "1", "rater": "x"},
    )
    out = tmp_path / "calibration.json"
    asked = len(server.requests)
    done = call(run, gold, "--out", out)
    assert done.exit_code == 0, done.output
    assert len(server.requests) == asked
    made = Calibration.model_validate_json(out.read_bytes())
    assert set(made.levels) == {"coherence", "helpfulness"}
    coherence, helpfulness = made.levels["coherence"], made.levels["helpfulness"]
    assert (coherence.labels, coherence.scale, helpfulness.scale) == (N, "1-5", "0-2")
    assert coherence.before.value == pytest.approx(0)
    assert coherence.after.value is not None
    assert coherence.after.value > 0.6
    assert coherence.ceiling is not None
    assert coherence.ceiling > 0.7
    assert helpfulness.ceiling is None
    assert made.good is not None
    assert made.good.auc is not None
    assert made.good.auc > 0.85
    said = " ".join(done.output.split())
    for part in (
        "coherence 60 of 60 1-5 .00 .00:.00",
        f"{coherence.after.value:.2f}".removeprefix("0"),
        "p_good: 60 labelled dialogues",
        f"without a judge {made.good.brier_without:.3f}",
        "not used: 1 of 242 rows: no dialogue of the run has that id; the first is gold.csv:241",
        "not used: 1 of 242 rows: the judge has no score of that turn; the first is gold.csv:242",
        "Agreement on",
        f"`judge: {{calibration: {out}}}`",
    ):
        assert part in said, said
    after = run_recipe(
        recipe(
            server,
            data,
            judge={"calibration": str(out)},
            select={"where": {"likely_good": "p_good >= 0.5"}, "active": None},
        ),
        out=run,
    ).manifest
    assert not [body for body in server.requests[asked:] if "Question" in str(body)]
    assert after.levels.startswith("levels are calibrated: helpfulness, coherence; most likely")
    table = pl.read_parquet(run / "scores.parquet")
    assert table["coherence"].n_unique() == 5
    agree = sum(abs(a - b) <= 1 for a, b in zip(table["coherence"], STARS, strict=True)) / N
    assert agree > 0.9
    accepted = table["p_good"] >= 0.5
    assert sum(a == (s > 2) for a, s in zip(accepted, STARS, strict=True)) / N > 0.8
    assert after.selected == accepted.sum()
    # calibrated scores serve as well: readings and digits are kept
    again = curate.calibrate_with_gold(str(run), _rows(STARS))
    run_recipe(recipe(server, data), out=run)
    assert curate.read_gold(str(gold))[0].dialogue_id == "chat-0"
    assert again.calibration == calibrate_with_gold(run, _rows(STARS)).calibration
    check_fit("calibration_by_gold", calibrate_with_gold(run, curate.read_gold(str(gold))))


def _rows(stars: list[int], dimension: str = "coherence") -> list[GoldRow]:
    return [
        GoldRow(f"g:{n}", dimension, star, dialogue_id=f"chat-{n}") for n, star in enumerate(stars)
    ]


def test_labels_in_the_data_serve_and_what_the_file_holds_is_kept(
    run: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "calibration.json"
    done = call(run, "--dimension", "coherence", "--label", "stars", "--out", out)
    assert done.exit_code == 0, done.output
    first = Calibration.model_validate_json(out.read_bytes())
    assert first.levels == calibrate_with_gold(run, _rows(STARS)).calibration.levels
    done = call(
        run, "--labels", data, "--dimension", "task_completion", "--label", "stars", "--out", out
    )
    assert done.exit_code == 0, done.output
    assert f"kept from {out}: coherence" in done.output
    second = Calibration.model_validate_json(out.read_bytes())
    assert set(second.levels) == {"coherence", "task_completion"}
    assert second.levels["coherence"] == first.levels["coherence"]
    # of another judge nothing is kept
    foreign = first.model_copy(
        update={"identity": first.identity and first.identity.model_copy(update={"model": "x"})}
    )
    out.write_text(foreign.model_dump_json())
    assert merged_calibration(second, out) == (second, ())


def test_expected_shares_need_no_label(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    done = call(run, "--shares", "1: .1, 2: .2, 3: .3, 4: .3, 5: .1", "--out", out)
    assert done.exit_code == 0, done.output
    assert "how far they agree with people is not known" in done.output
    made = Calibration.model_validate_json(out.read_bytes())
    assert "safety" not in made.levels
    check_fit("calibration_by_shares", made)
    assert {cuts.method for cuts in made.levels.values()} == {"given_shares"}
    fingerprint = json.loads((run / "manifest.json").read_text())["fingerprints"]["judge"]
    judged = [r for _, r in scored_rows(run, StageName.JUDGE, fingerprint).read()]
    means = [
        r.conversation_level.coherence.reading.mean
        for r in judged
        if isinstance(r, Judgment) and r.conversation_level.coherence.reading
    ]
    levels = [made.levels["coherence"].level(mean or 0) for mean in means]
    assert [levels.count(level) for level in range(1, 6)] == pytest.approx(
        [6, 12, 18, 18, 6], abs=2
    )
    only = call(run, "--shares", "safety: {1: .05, 5: .95}", "--out", tmp_path / "safety.json")
    assert only.exit_code == 0, only.output
    assert set(json.loads((tmp_path / "safety.json").read_text())["levels"]) == {"safety"}
    with pytest.raises(UsageError, match="no such dimension"):
        calibrate_with_shares(run, {"tone": {5: 1.0}})
    for wrong in ("1: .1", "1: x", "a", "{"):
        refused = call(run, "--shares", wrong, "--out", tmp_path / "no.json")
        assert refused.exit_code == 2, refused.output
    assert not (tmp_path / "no.json").exists()


def test_too_few_labels_are_refused_with_the_figures(run: Path, tmp_path: Path) -> None:
    few = call(run, write_gold(tmp_path / "few.csv", labels=14), "--out", tmp_path / "no.json")
    assert few.exit_code == 2
    said = " ".join(few.output.split())
    assert "nothing could be calibrated" in said
    assert "coherence: too few labels to calibrate coherence: 14 labels" in said
    assert "p_good: too few verdicts of people for p_good: 14 labelled dialogues" in said
    some = write_gold(tmp_path / "some.csv", labels=18)
    done = call(run, some, "--out", tmp_path / "some.json", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert list(told["levels"]) == ["helpfulness", "coherence"]
    assert told["good"] is None
    assert list(told["not_fitted"]) == ["p_good"]
    assert told["rows"] == 72
    check_fit("calibration_by_few", calibrate_with_gold(run, curate.read_gold(str(some))))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gold", "--shares", "5: 1"), "several sets of labels"),
        (("gold", "--scale", "2-1"), "not a scale"),
        (("absent.csv",), "no such file of labels"),
        (("--dimension", "tone"), "no such dimension"),
        (("--dimension", "coherence", "--label", "absent"), "no label is about"),
        (("gold", "--method", "spline"), "spline"),
    ],
)
def test_mistakes_are_named(
    run: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    gold = write_gold(tmp_path / "gold.csv")
    given = [gold if part == "gold" else part for part in arguments]
    done = call(run, *given, "--out", tmp_path / "no.json")
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())


def test_in_json_mode_cut_points_are_on_whole_digits(tmp_path: Path) -> None:
    def digits(body: Any) -> Any:
        if "response_format" not in body:
            return serve(body)
        schema = body["response_format"]["json_schema"]["schema"].get("properties", {})
        text = json.dumps(body["messages"])
        digit = 3 if "Q=0.0" in text or "Q=0.1" in text or "Q=0.2" in text else 4
        reply: dict[str, Any] = {}
        for key, held in schema.items():
            if key.startswith("turn_"):
                reply[key] = {"context_use": digit, "helpfulness": digit, "safety": 5}
            elif key in ("coherence", "task_completion", "repair_handling"):
                reply[key] = digit
            elif "anyOf" in held or key == "weakest_turn":
                reply[key] = None
            else:
                reply[key] = "good" if key == "verdict" else "said"
        return json.dumps(reply)

    data = tmp_path / "chats.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(*QUALITIES)))
    with live_server(answer=digits) as server:
        judge = {"mode": "json", "text": "off"}
        run_recipe(recipe(server, data, judge=judge), out=tmp_path / "run")
        fitted = calibrate_with_gold(tmp_path / "run", _rows(STARS)).calibration
        cuts = fitted.levels["coherence"]
        low, high = cuts.level(3), cuts.level(4)
        assert low < high
        assert all(cut in (1.0, 3.5, 6.0) for cut in cuts.cuts)
        after = run_recipe(
            recipe(server, data, judge=judge | {"calibration": fitted}), out=tmp_path / "run"
        )
    assert after.manifest.stages["judge"].requests_sent == 0
    table = pl.read_parquet(tmp_path / "run" / "scores.parquet")
    assert set(table["coherence"]) == {low, high}


def test_role_adherence_is_fitted_from_the_same_file(tmp_path: Path) -> None:
    data = tmp_path / "chats.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(*QUALITIES)))

    def both(body: Any) -> Any:
        found = serve(body)
        if isinstance(found, dict) and "YES" in json.dumps(body["messages"]).upper():
            text = json.dumps(body["messages"])
            quality = float(text.rsplit("Q=", 1)[1][:3].rstrip('\\"<')) if "Q=" in text else 0.5
            yes = min(0.98, max(0.02, quality))
            first = [*found["first_token"], ("YES", math.log(yes)), ("NO", math.log(1 - yes))]
            return {"text": "YES", "first_token": first}
        return found

    with live_server(answer=both) as server:
        sections = {"adherence": {"output_mode": "continuous"}, "role": "A clerk."}
        made = run_recipe(recipe(server, data, **sections), out=tmp_path / "run").manifest
        assert made.stages["adherence"].unscored == 0
        given = _rows([star > 2 for star in STARS], "adherence")  # type: ignore[misc]
        whole = calibrate_with_gold(
            tmp_path / "run", [*given, *_rows([s > 2 for s in STARS], "accept")]
        )
        check_fit("calibration_of_role_adherence", whole)
        fitted = whole.calibration
        assert fitted.adherence is not None
        assert fitted.adherence.turns == N
        assert fitted.good is not None
        assert "adherence" in fitted.good.features
        assert fitted.good.adherence is not None
        file = tmp_path / "calibration.json"
        file.write_text(fitted.model_dump_json())
        with_both = {
            "judge": {"calibration": str(file)},
            "adherence": {"output_mode": "continuous", "calibration": str(file)},
            "role": "A clerk.",
        }
        after = run_recipe(recipe(server, data, **with_both), out=tmp_path / "run").manifest
        assert "calibration" in after.identities["adherence"].sampling
        table = pl.read_parquet(tmp_path / "run" / "scores.parquet")
        assert table["p_good"].null_count() == 0
        with pytest.raises(UsageError, match="role adherence"):
            run_recipe(
                recipe(server, data, judge={"calibration": str(file)}), out=tmp_path / "other"
            )
