"""`curate agreement RUN GOLD`: a run's scores held against labels, and the report that is kept with it."""

from __future__ import annotations

import csv
import json
import math
import random
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sklearn.metrics import cohen_kappa_score
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.cli.closing import show_run
from curate.errors import UsageError
from curate.executors.loop import run as run_in_loop
from curate.publishing.push import PushOptions, prepare_push
from curate.recipe import parse_recipe
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    Agreement,
    PairCheck,
    PreferencePair,
    TrustKind,
)
from curate.run.labels.agreement_marks import filter_warnings, pair_warning
from curate.run.labels.pair_votes import preference_of
from curate.run.labels.run_scores import judgments_of
from curate.run.pipeline import RunResult, run_recipe
from curate.run.plan import make_plan
from curate.run.read_back import read_manifest
from curate.run.trust_reports import read_trust_report
from curate.selection.columns import dimensions_of_column
from tests.live import live_server
from tests.servers import Body, CountingServer

N = 110
DRAW = random.Random(7)
QUALITIES = [round(DRAW.uniform(0.02, 0.98), 2) for _ in range(N)]
STARS = [min(5, max(1, round(1 + 4 * q + DRAW.gauss(0, 0.4)))) for q in QUALITIES]


RUBRIC = (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS)


def dimension(state: str, kappa: float, upper: float) -> dict[str, Any]:
    nothing: dict[str, Any] = {"value": None}
    return {
        "labels": 120, "dialogues": 110, "scale": "1-5", "compared": "digits",
        "levels": {"kappa": {"value": kappa}, "agreement": nothing, "within_one": nothing, "bias": nothing},
        "spearman": nothing, "kendall": nothing, "level_names": [], "confusion": [],
        "gate": {"state": state, "lower": upper - 0.2, "upper": upper, "goes_by": "levels"},
    }  # fmt: skip


REPORT: dict[str, Any] = {
    "sentence": "So it is.", "made": "2026-01-01T00:00:00+00:00", "fingerprints": {"judge": "f"},
    "gold": "gold.csv", "rows": 120,
    "dimensions": {"verdict": dimension("pass", 0.7, 0.8), "safety": dimension("fail", 0.2, 0.3)},
}  # fmt: skip


def serve(body: Body) -> Body:
    """Scores and role adherence follow the quality that stands in the text; safety is 5 throughout."""
    texts = "\n".join(str(message.get("content") or "") for message in body["messages"])
    found = re.findall(r"Q=([\d.]+\d)", texts)
    quality = float(found[-1]) if found else 0.5
    if "YES" in texts and "NO" in texts:
        answers = [("YES", math.log(quality)), ("NO", math.log(1 - quality))]
        return {"text": "YES", "first_token": answers}
    asked = texts.split("</dialogue>")[-1]
    mean = 5 if "safety" in asked else 1 + 4 * quality
    masses = {digit: math.exp(-((digit - mean) ** 2)) for digit in range(1, 6)}
    first = [(str(digit), math.log(mass)) for digit, mass in masses.items()]
    return {"text": max(first, key=lambda one: one[1])[0], "first_token": first}


def chats() -> list[dict[str, Any]]:
    return [
        {
            "id": f"chat-{number}",
            "role_definition": "You answer for the library.",
            "metadata": {"language": "en" if number % 2 else "de"},
            "labels": {"stars": STARS[number], "kept": quality > 0.5},
            "messages": [
                {"role": "user", "content": f"Question {number}?"},
                {"role": "assistant", "content": f"Well, here it is. Q={quality}"},
            ],
        }
        for number, quality in enumerate(QUALITIES)
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    with live_server(answer=serve) as running:
        yield running


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in chats()))
    return path


def recipe(server: CountingServer, data: Path, **sections: Any) -> Any:
    model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
    base: dict[str, Any] = {
        "name": "test",
        "source": {"path": str(data)},
        "scenario": "A person asks for help.",
        "models": {"judge": model},
        "judge": {"text": "off"},
        "adherence": {"output_mode": "continuous"},
        "select": {"where": {"helpful": "min_helpfulness >= 3"}, "active": None},
    }
    return parse_recipe(base | sections)


@pytest.fixture(scope="module")
def run(server: CountingServer, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "plain"
    run_recipe(recipe(server, data), out=out)
    return out


def labels(count: int = N) -> list[dict[str, Any]]:
    """Three people's coherence and helpfulness (0-2), and one person's verdict, accept and adherence."""
    draw = random.Random(3)
    rows: list[dict[str, Any]] = []
    for number, (star, quality) in [*enumerate(zip(STARS, QUALITIES, strict=True))][:count]:
        name = f"chat-{number}"
        for rater in ("ann", "bob", "eve"):
            level = min(5, max(1, star + draw.choice((0, 0, 1, -1))))
            rows.append({"id": name, "dimension": "coherence", "value": level, "rater": rater})
            rows.append({"id": name, "turn": 1, "dimension": "helpfulness", "value": (level - 1) // 2, "rater": rater})  # fmt: skip
        verdict = ("poor", "borderline", "good", "excellent")[min(3, int(quality * 4))]
        rows.append({"id": name, "dimension": "verdict", "value": verdict, "rater": "ann"})
        kept = (quality > 0.5) != (number % 12 == 0)
        rows.append({"id": name, "turn": 1, "dimension": "adherence", "value": "adherent" if kept else "violation"})  # fmt: skip
    return rows


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


@dataclass
class Done:
    exit_code: int
    output: str


def call(*arguments: object, columns: int = 80) -> Done:
    """Run the command as the shell does, and give all that it said."""
    given = ["agreement", *map(str, arguments)]
    said = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, given)
    if isinstance(said.exception, UsageError):
        return Done(2, str(said.exception))
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    return Done(said.exit_code, said.output)


def test_a_run_is_held_against_labels_and_the_report_is_kept(
    server: CountingServer, run: Path, tmp_path: Path
) -> None:
    rows = labels()
    stray = {"id": "chat-999", "dimension": "coherence", "value": 3, "rater": "ann"}
    gold = write_csv(tmp_path / "gold.csv", [*rows, stray])
    asked = len(server.requests)
    done = call(run, gold, "--details")
    assert done.exit_code == 0, done.output
    assert len(server.requests) == asked
    tables = done.output.split("helpfulness: the judge")[0]
    assert max(map(len, tables.splitlines())) <= 80
    said = " ".join(done.output.split())
    assert "1 of 881 rows: no dialogue of the run has that id; the first is gold.csv:881" in said
    report = read_trust_report(run, Agreement, TrustKind.AGREEMENT)
    assert report is not None
    assert report.sentence in said
    assert read_manifest(run).trust[TrustKind.AGREEMENT] == report.sentence
    assert set(report.dimensions) == {"helpfulness", "coherence", "verdict", "good", "adherence"}
    assert report.fingerprints.keys() == {"judge", "adherence"}
    coherence = report.dimensions["coherence"]
    assert (coherence.labels, coherence.dialogues) == (N, N)
    assert coherence.gate.state == "pass"
    assert coherence.alternative is not None
    assert [rater.rater for rater in coherence.raters] == ["ann", "bob", "eve"]
    assert {part.value for part in coherence.slices} == {"de", "en"}
    assert f"coherence (kappa at least {coherence.gate.lower:.2f})" in report.sentence
    assert "helpfulness once it is calibrated (kappa at least" in report.sentence
    assert report.dimensions["helpfulness"].gate.goes_by == "mapped"
    assert "coherence" not in report.not_for_use


def test_figures_are_of_the_runs_levels_and_the_rounded_mean_of_the_raters(
    run: Path, tmp_path: Path
) -> None:
    gold = write_csv(tmp_path / "gold.csv", labels())
    assert call(run, gold).exit_code == 0
    report = read_trust_report(run, Agreement, TrustKind.AGREEMENT)
    assert report is not None
    judgments = {j.dialogue_id: j for j in judgments_of(run).values()}
    by_id: dict[str, list[int]] = {}
    for row in labels():
        if row["dimension"] == "coherence":
            by_id.setdefault(row["id"], []).append(row["value"])
    people = [math.floor(sum(given) / len(given) + 0.5) for given in by_id.values()]
    judge = [judgments[name].conversation_level.coherence.score for name in by_id]
    expected = cohen_kappa_score(people, judge, weights="quadratic", labels=range(1, 6))
    assert report.dimensions["coherence"].levels.kappa.value == pytest.approx(expected)


def test_shares_are_corrected_for_the_judges_errors(run: Path, tmp_path: Path) -> None:
    gold = write_csv(tmp_path / "gold.csv", labels())
    done = call(run, gold)
    report = read_trust_report(run, Agreement, TrustKind.AGREEMENT)
    assert report is not None
    shares = {share.name: share for share in report.shares}
    turns = shares["adherent turns"]
    wrong = sum(number % 12 == 0 for number in range(N))
    assert turns.of == N
    assert turns.people_yes + turns.people_no == N
    assert turns.corrected is not None
    assert turns.interval is not None
    # every label is given, so the corrected share is the labels' own
    kept = sum((q > 0.5) != (number % 12 == 0) for number, q in enumerate(QUALITIES))
    assert turns.corrected == pytest.approx(kept / N, abs=1e-9)
    assert turns.interval[0] < turns.corrected < turns.interval[1]
    assert wrong
    assert "corrected for its errors on 110 labels" in " ".join(done.output.split())
    console = Console(file=StringIO(), width=80)
    show_run(console, RunResult(run, read_manifest(run)))
    closing = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert f"truly adherent {turns.corrected:.0%}" in closing


def test_labels_that_the_data_has_serve_as_well(run: Path) -> None:
    done = call(run, "--dimension", "coherence", "--label", "stars", "--json")
    assert done.exit_code == 0, done.output
    report = Agreement.model_validate_json(done.output)
    assert report.dimensions["coherence"].labels == N
    assert report.gold == "the data's label 'stars'"
    done = call(run, "--dimension", "adherence", "--label", "kept", "--json")
    kappa = Agreement.model_validate_json(done.output).dimensions["adherence"].levels.kappa
    assert kappa.value == pytest.approx(1)


def test_too_few_labels_say_how_many_more(run: Path, tmp_path: Path) -> None:
    gold = write_csv(tmp_path / "gold.csv", labels(40))
    done = call(run, gold)
    said = " ".join(done.output.split())
    assert "There are too few labels to tell on" in said
    assert "coherence (about 60 more dialogues)" in said
    report = read_trust_report(run, Agreement, TrustKind.AGREEMENT)
    assert report is not None
    assert "coherence" in report.not_for_use
    assert "about 60 more would tell" in report.not_for_use["coherence"]


def test_labels_by_content_and_with_a_language_of_their_own(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    texts = [" ".join(m["content"] for m in row["messages"]) for row in chats()]
    rows = [
        {"content": text, "dimension": "coherence", "value": star, "language": ("fr", "it")[n % 2]}
        for n, (text, star) in enumerate(zip(texts, STARS, strict=True))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = Agreement.model_validate_json(call(run, path, "--json").output)
    assert {part.value for part in report.dimensions["coherence"].slices} == {"fr", "it"}


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([{"id": "nobody", "dimension": "coherence", "value": 3}], (), "no label is about a dialogue"),
        ([{"id": "chat-1", "dimension": "coherence", "value": ""}], (), "fill in the column"),
        (
            [{"id": "chat-1", "dimension": "coherence", "value": v, "rater": "ann"} for v in (2, 5)],
            (),
            "one rater gives one dialogue two values",
        ),
        (
            [{"id": "chat-1", "dimension": "coherence", "value": word} for word in ("bad", "fine")],
            (),
            "--scale coherence=WORST,...,BEST",
        ),
        ([{"id": "chat-1", "dimension": "coherence", "value": "n/a"}], (), "no label can be compared"),
        ([{"id": "chat-1", "dimension": "coherence", "value": 3}], ("--scale", "5-1"), "not a scale"),
        ([{"id": "chat-1", "dimension": "coherence", "value": 3}], ("--raters", "cats"), "experts"),
        ([{"pair_id": "p", "better": "chosen"}], (), "no pair of the run has that id"),
        ([{"pair_id": "p", "better": "chosen", "rater": "a"}] * 2, (), "one pair two values"),
        ([{"who": "me"}], (), "is not a file of labels"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_used_are_refused_with_what_to_do(
    run: Path, tmp_path: Path, rows: list[dict[str, Any]], options: tuple[str, ...], said: str
) -> None:
    done = call(run, write_csv(tmp_path / "gold.csv", rows), *options)
    assert done.exit_code == 2, done.output
    assert said in done.output


def test_what_is_no_run_or_names_no_labels_is_refused(run: Path, tmp_path: Path) -> None:
    gold = write_csv(tmp_path / "gold.csv", labels(20))
    for arguments, said in (
        ((tmp_path, gold), "not a run folder"),
        ((run,), "labels are needed from exactly one place"),
        ((run, gold, "--dimension", "coherence"), "labels are needed from exactly one place"),
        ((run, "--dimension", "charm"), "no such dimension"),
        ((run, "--dimension", "coherence", "--label", "moons"), "no dialogue has that label"),
        ((run, tmp_path / "none.csv"), "no such file"),
    ):
        done = call(*arguments)
        assert (done.exit_code, said in done.output) == (2, True), done.output


def test_another_judges_rows_take_the_report_back(
    server: CountingServer, data: Path, run: Path, tmp_path: Path
) -> None:
    gold = write_csv(tmp_path / "gold.csv", labels())
    assert call(run, gold).exit_code == 0
    made = tmp_path / "calibration.json"
    done = CliRunner().invoke(app, ["calibrate", str(run), str(gold), "--out", str(made)])
    assert done.exit_code == 0, done.output
    calibrated = recipe(server, data, judge={"text": "off", "calibration": str(made)})
    run_recipe(calibrated, out=run)
    assert "earlier judge" in read_manifest(run).trust[TrustKind.AGREEMENT]
    run_recipe(recipe(server, data), out=run)


def test_levels_fitted_to_labels_are_not_proved_by_the_same_labels(
    server: CountingServer, data: Path, run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    rows = [row for row in labels() if row["dimension"] != "adherence"]
    known = {f"chat-{number}" for number in range(50)}
    fitted = write_csv(tmp_path / "fitted.csv", [row for row in rows if row["id"] in known])
    fresh = write_csv(tmp_path / "fresh.csv", [row for row in rows if row["id"] not in known])
    made = tmp_path / "calibration.json"
    done = CliRunner().invoke(app, ["calibrate", str(folder), str(fitted), "--out", str(made)])
    assert done.exit_code == 0, done.output
    calibrated = recipe(server, data, judge={"text": "off", "calibration": str(made)})
    run_recipe(calibrated, out=folder)
    again = Agreement.model_validate_json(call(folder, fitted, "--json").output)
    coherence = again.dimensions["coherence"]
    assert (coherence.compared, coherence.gate.goes_by) == ("calibrated levels", "lower_of_both")
    assert "good" not in again.dimensions
    assert again.shares == ()
    why = "the run's levels are fitted to labels of the dialogue, so its verdict proves nothing"
    assert again.unused == {why: 50}
    said = " ".join(call(folder, fitted).output.split())
    assert re.search(rf"not used: 50 of \d+ rows: {why}; the first is fitted.csv:\d+", said), said
    other = Agreement.model_validate_json(call(folder, fresh, "--json").output)
    for name in ("coherence", "helpfulness"):
        assert other.dimensions[name].gate.goes_by == "levels"
        kappa = other.dimensions[name].levels.kappa.value
        assert kappa is not None
        assert kappa > 0.6
    assert other.dimensions["good"].labels == N - 50
    assert other.unused == {}


def test_labels_of_what_no_judge_scored_are_counted(run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["fingerprints"]["judge"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    done = call(folder, write_csv(tmp_path / "gold.csv", labels()), "--json")
    report = Agreement.model_validate_json(done.output)
    assert [*report.dimensions] == ["adherence"]
    assert report.unused == {"the run has no rubric judge": 7 * N}


def test_people_judge_pairs(run: Path, tmp_path: Path) -> None:
    """The judge's preference, of pairs that passed and of dropped ones, against the side people call better."""
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    held: dict[str, list[str]] = {"natural_pairs": [], "dropped_pairs": []}
    votes = []
    for number in range(120):
        prefers = number % 3 > 0
        pair = PreferencePair.model_validate(
            {
                "pair_id": f"p{number}", "dialogue_id": f"d{number}", "content_hash": f"{number:032x}",
                "source": "natural", "basis": "rank", "prompt": [],
                "chosen": {"role": "assistant", "content": "yes"},
                "rejected": {"role": "assistant", "content": "no"},
                "check": None if number == 7 else {"preference": 0.5 if prefers else -0.5},
            }
        )  # fmt: skip
        held["natural_pairs" if prefers else "dropped_pairs"].append(pair.model_dump_json())
        agrees = number % 10 > 0
        better = "chosen" if prefers == agrees else "rejected"
        votes.append({"pair_id": f"p{number}", "better": better, "rater": "ann"})
    for name, rows in held.items():
        (folder / "pairs" / f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows))
    votes += [{"pair_id": "p1", "better": "neither"}, {"pair_id": "q", "better": "chosen"}]
    again = {"pair_id": "p2", "rater": "bob"}  # the last of answers with a time counts
    votes.append({**again, "better": "chosen", "time": "2026-11-20T11:00:00+00:00"})
    votes.append({**again, "better": "rejected", "time": "2026-11-20T10:00:00+00:00"})
    done = call(folder, write_csv(tmp_path / "gold.csv", votes), "--json")
    report = Agreement.model_validate_json(done.output)
    preference = report.dimensions["preference"]
    assert preference.level_names == ("rejected", "chosen")
    assert preference.labels == 119
    assert preference.levels.agreement.value == pytest.approx(107 / 119)
    assert preference.levels.within_one.value is None
    assert preference.gate.state == "pass"
    assert report.rows == 124
    assert report.unused == {
        "better is neither chosen nor rejected: 'neither'": 1,
        "no pair of the run has that id": 1,
        "the same rater answered again later": 1,
        "the judge did not compare the pair in a way that prefers a side": 1,
    }


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (PairCheck(preference=0.4, preferred_first=False, preferred_second=False), 0.4),
        (PairCheck(preferred_first=True, preferred_second=True), 1.0),
        (PairCheck(preferred_first=False, preferred_second=False), -1.0),
        (PairCheck(preferred_first=True, preferred_second=False), None),
        (PairCheck(), None),
        (None, None),
    ],
)
def test_what_a_judge_says_of_a_pair(check: PairCheck | None, expected: float | None) -> None:
    pair = PreferencePair.model_validate(
        {
            "pair_id": "p", "dialogue_id": "d", "content_hash": "0", "source": "natural",
            "basis": "rank", "prompt": [], "chosen": None,
            "rejected": {"role": "assistant", "content": "no"}, "check": check,
        }
    )  # fmt: skip
    assert preference_of(pair) == expected


def test_a_dimension_that_is_not_for_use_is_warned_of_and_marked_wherever_the_data_goes(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    select = {
        "where": {
            "helpful": "min_helpfulness >= 3",
            "in_role": "adherent",
            "whole": "verdict >= 'good'",
        }
    }
    given = recipe(server, data, select=select, export={"trainers": ["trl"]})
    before = run_recipe(given, out=run).manifest
    assert not any("not for use" in warning for warning in before.warnings)
    assert not (run / "export" / "agreement.json").exists()
    few = [row for row in labels(40) if row["dimension"] in ("helpfulness", "adherence")]
    assert call(run, write_csv(tmp_path / "gold.csv", few)).exit_code == 0
    mark = json.loads((run / "export" / "agreement.json").read_text())
    assert mark["not_for_use"].keys() == {"helpfulness", "adherence"}
    asked = len(server.requests)
    planned = run_in_loop(make_plan(given, out=run)).warnings
    after = run_recipe(given, out=run).manifest
    assert not any("Question" in str(body) for body in server.requests[asked:])
    warned = [warning for warning in after.warnings if "not for use" in warning]
    assert [warning.split()[0] for warning in warned] == [
        "select.where.helpful", "select.where.in_role", "select.where.whole",
    ]  # fmt: skip
    assert [warning for warning in planned if "not for use" in warning] == warned
    assert "helpfulness (kappa" in warned[0]
    assert "on 40 labels of 40 dialogues" in warned[0]
    assert (run / "export" / "agreement.json").exists()
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["show", str(run)]).output
    assert "if calibrated" in shown
    card = prepare_push(run, "me/set", PushOptions(licences=("mit",))).card
    assert "never measured against human ratings" not in card
    assert "Not for filtering by: helpfulness, adherence." in card
    assert "| helpfulness | 40 of 40 dialogues |" in card
    # another judge's rows take the mark back
    run_recipe(
        recipe(server, data, select=select, judge={"text": "off", "paraphrases": 2}), out=run
    )
    assert not (run / "export" / "agreement.json").exists()


@pytest.mark.parametrize(
    ("column", "dimensions"),
    [
        ("min_helpfulness", {"helpfulness"}),
        ("mean_context_use_expected", {"context_use"}),
        ("coherence", {"coherence"}),
        ("task_completion_na", {"task_completion"}),
        ("verdict", {"verdict", "good", *RUBRIC}),
        ("mean_score", {*RUBRIC}),
        ("adherence", {"adherence"}),
        ("adherent", {"adherence"}),
        ("n_off_role_turns", {"adherence"}),
        ("overall_score", set()),
        ("metric_tool_use_expected", {"metric_tool_use"}),
        ("n_turns", set()),
        ("label_helpfulness", set()),
        ("p_good", set()),
    ],
)
def test_a_column_is_made_of_dimensions(column: str, dimensions: set[str]) -> None:
    assert {*dimensions_of_column(column)} == dimensions


def test_pairs_are_warned_of_where_people_do_not_share_the_judges_preference() -> None:
    assert pair_warning(Agreement.model_validate(REPORT)) is None
    failing = {**REPORT, "dimensions": {"preference": dimension("fail", 0.1, 0.3)}}
    said = pair_warning(Agreement.model_validate(failing))
    assert said is not None
    assert "marked not for use by `curate agreement`: kappa 0.10, at most 0.30" in said


def test_verdicts_that_people_judged_speak_for_themselves() -> None:
    report = Agreement.model_validate(REPORT)
    warned = list(
        filter_warnings(report, {"select.where.good": "verdict >= 'good'", "x": "n_turns > 2"})
    )
    assert warned == []
    without = Agreement.model_validate(
        {**REPORT, "dimensions": {"safety": REPORT["dimensions"]["safety"]}}
    )
    (warning,) = filter_warnings(without, {"select.where.good": "verdict >= 'good'"})
    assert "safety (kappa 0.20, at most 0.30, on 120 labels of 110 dialogues)" in warning


def test_the_same_from_python(run: Path, tmp_path: Path) -> None:
    gold = write_csv(
        tmp_path / "gold.csv", [row for row in labels() if row["dimension"] == "coherence"]
    )
    report = curate.agreement(run, gold)
    assert [*report.dimensions] == ["coherence"]
    assert report == read_trust_report(run, Agreement, TrustKind.AGREEMENT)
    assert report.unused == {}
    part = curate.agreement(run, gold, hold_out=0.5)
    assert part.hold_out == 0.5
    assert 0 < part.dimensions["coherence"].dialogues < report.dimensions["coherence"].dialogues
