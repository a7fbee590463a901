"""`curate sample` and `curate certify`: from a run and people's labels to a certificate that a recipe uses."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.errors import CurateError, UsageError
from curate.recipe import parse_recipe
from curate.records import Certificate, TrustKind
from curate.run.labels.hold_out import is_held_out
from curate.run.labels.populations import draw_folder, read_drawn, read_draws
from curate.run.labels.question import Question, question_of
from curate.run.labels.sample import sample
from curate.run.pipeline import RunResult, run_recipe
from curate.run.read_back import read_manifest
from curate.run.report import write_report
from curate.run.trust_reports import read_trust_report
from curate.run.verify import verify_run
from tests.live import live_server
from tests.report.reading import ReadPage
from tests.run import test_calibrated_run

N = 600
_RANDOM = random.Random(3)
SCORES = [round(_RANDOM.random(), 1) for _ in range(N)]
BAD = {f"c{i}": _RANDOM.random() < 0.5 * (1 - SCORES[i]) ** 2 for i in range(N)}


SELECTED = sum(score >= 0.5 for score in SCORES)


def recipe(folder: Path, **sections: Any) -> dict[str, Any]:
    return {
        "name": "test",
        "source": {"path": str(folder / "chats.jsonl")},
        "judge": False,
        "adherence": False,
        "select": {"where": {"good": "label_score >= 0.5"}},
        "export": {"trainers": ["trl"]},
    } | sections


def write_chats(folder: Path, groups: int = N) -> None:
    rows = (
        {
            "id": f"c{i}",
            "messages": [
                {"role": "user", "content": f"Question {i}?"},
                {"role": "assistant", "content": f"=1+{i}, and that is all."},
            ],
            "group": f"g{i % groups}",
            "labels": {"score": SCORES[i], "kept": "reject" if BAD[f"c{i}"] else "accept"},
        }
        for i in range(N)
    )
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_chats(tmp_path)
    run_recipe(parse_recipe(recipe(tmp_path)), out=tmp_path / "run")
    return tmp_path / "run"


@dataclass
class Done:
    exit_code: int
    output: str


def call(*arguments: object) -> Done:
    """Run the command as the shell does, and give all that it said."""
    said = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*map(str, arguments)])
    if isinstance(said.exception, CurateError):
        return Done(2, str(said.exception))
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    return Done(said.exit_code, said.output)


def fill(
    blank: Path,
    filled: Path,
    *,
    bad: Callable[[str], object] = BAD.__getitem__,
    rows: int | None = None,
) -> Path:
    """The file of a draw, filled in by someone who knows the truth."""
    with blank.open(newline="") as file:
        held = list(csv.DictReader(file))
    for row in held[:rows]:
        row["value"] = "reject" if bad(row["id"]) else "accept"
    return write_csv(filled, held)


def write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def drawn(run: Path, *options: object, n: int = 150) -> Path:
    """A filled-in draw of a run."""
    blank = run.parent / f"blank-{len(list(run.parent.glob('blank-*')))}.csv"
    done = call("sample", run, "-n", n, "--out", blank, *options)
    assert done.exit_code == 0, done.output
    return fill(blank, run.parent / f"gold-{blank.stem}.csv")


def held_certificate(run: Path) -> Certificate:
    found = read_trust_report(run, Certificate, TrustKind.CERTIFICATE)
    assert found is not None
    return found


# ---- drawing


def test_a_draw_is_at_random_and_recorded_and_the_same_again(run: Path) -> None:
    first = call("sample", run, "-n", 100, "--out", run.parent / "a.csv")
    assert f"100 of {SELECTED} dialogues of the SFT set, seed 42" in first.output.replace("\n", " ")
    call("sample", run, "-n", 100, "--out", run.parent / "b.csv")
    assert (run.parent / "a.csv").read_bytes() == (run.parent / "b.csv").read_bytes()
    (draw,) = read_draws(run)
    assert (draw.of, draw.purpose, draw.sizes) == ("sft", "certify", (100,))
    [file] = draw_folder(run).glob("*.json")
    whole = file.read_text()
    file.write_text(whole.replace(draw.id, f"../../{draw.id}"))
    with pytest.raises(CurateError, match="damaged"):  # its id names a file
        read_draws(run)
    file.write_text(whole)
    table = read_drawn(run, draw)
    assert (table.height, table["drawn"].sum()) == (SELECTED, 100)
    chosen = pl.read_csv(run.parent / "a.csv")["id"].to_list()
    assert len(set(chosen)) == 100
    assert all(SCORES[int(name[1:])] >= 0.5 for name in chosen)
    other = call("sample", run, "-n", 100, "--seed", 1, "--out", run.parent / "c.csv")
    assert other.exit_code == 0
    assert set(pl.read_csv(run.parent / "c.csv")["id"]) != set(chosen)


def test_a_draw_is_to_certify_the_selection_if_nothing_else_is_asked_for(run: Path) -> None:
    found = sample(run, 10, out=run.parent / "a.csv")
    assert (found.draw.purpose, found.draw.of, found.draw.by) == ("certify", "sft", None)
    assert (found.rows, found.size, found.used_to_fit) == (10, SELECTED, 0)
    assert found.named == "dialogues of the SFT set"
    assert read_draws(run) == [found.draw]


def test_a_larger_draw_begins_with_the_smaller_and_is_for_a_stop_at_any_time(run: Path) -> None:
    call("sample", run, "-n", 50, "--out", run.parent / "a.csv")
    done = call("sample", run, "-n", 80, "--out", run.parent / "b.csv")
    assert "enlarged" in done.output
    few, many = (pl.read_csv(run.parent / name)["id"].to_list() for name in ("a.csv", "b.csv"))
    assert many[:50] == few
    gold = fill(run.parent / "b.csv", run.parent / "gold.csv")
    said = call("certify", run, gold, "--risk", 0.2)
    assert said.exit_code == 2
    assert "--anytime" in said.output
    assert (
        call("certify", run, gold, "--risk", 0.2, "--anytime", "--out", run.parent / "c").exit_code
        == 0
    )


def test_strata_have_known_chances(run: Path) -> None:
    call(
        "sample", run, "-n", 60, "--of", "all", "--by", "label_score", "--out", run.parent / "a.csv"
    )
    (draw,) = read_draws(run)
    assert sum(part.size for part in draw.strata) == N
    assert sum(part.drawn for part in draw.strata) == 60
    assert all(abs(part.drawn / part.size - 0.1) < 0.01 for part in draw.strata)


def test_a_stratified_draw_certifies_and_members_it_could_not_draw_count_as_bad(
    run: Path, tmp_path: Path
) -> None:
    gold = drawn(run, "--by", "label_score", n=200)
    assert call("certify", run, gold, "--risk", 0.2, "--out", tmp_path / "c").exit_code == 0
    even = held_certificate(run)
    assert even.labels.drawn == 200
    assert "stratified" in call("certify", run, gold, "--anytime").output
    # a fifth of all scored dialogues was not in the SFT set that was drawn from
    call("certify", run, gold, "--risk", 0.2, "--of", "label_score >= 0.4")
    wider = held_certificate(run)
    assert not wider.issued
    outside = sum(score == 0.4 for score in SCORES)
    assert wider.certified.size == SELECTED + outside
    assert wider.bound >= outside / wider.certified.size + even.bound * SELECTED / (
        SELECTED + outside
    ) - 0.01  # fmt: skip


def test_the_file_asks_what_the_purpose_needs(run: Path) -> None:
    out = run.parent / "a.jsonl"
    call("sample", run, "-n", 2, "--for", "agreement", "--out", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["dimension"] for row in rows[:6]] == [
        "context_use", "helpfulness", "safety", "coherence", "task_completion", "repair_handling",
    ]  # fmt: skip
    assert (rows[0]["turn"], rows[3]["turn"], rows[0]["value"]) == (1, None, None)
    assert rows[0]["text"].startswith("[user] Question")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--for", "fun"), "fun"),
        (("--of", "label_score > 5"), "nothing to draw from"),
        (("--of", "no_such > 5"), "does not have"),
        (("--of", "pairs"), "nothing to draw from"),
        (("--by", "no_such"), "does not have"),
        (("--dimension", "taste"), "no such dimension"),
        (("--out", "x.xlsx"), "a page to answer in"),
        (("--risk", "0"), "above 0 and below 1"),
        (("--confidence", "0.5"), "above 0.5 and below 1"),
        (("--for", "agreement", "--risk", "0.2"), "only a certificate has"),
        (
            ("--of", "pairs", "--dimension", "accept"),
            "people label only which side of a pair is better\n"
            "  got: --dimension accept\n"
            "  do: leave it out, or draw dialogues",
        ),
        (("--of", "pairs", "--for", "agreement"), "  got: --for agreement\n"),
    ],
)
def test_a_draw_that_cannot_be_is_refused(run: Path, options: tuple[str, ...], said: str) -> None:
    out = () if "--out" in options else ("--out", run.parent / "a.csv")
    done = call("sample", run, *options, *out)
    assert (done.exit_code, said in done.output) == (2, True), done.output
    assert read_draws(run) == []


def test_a_file_with_labels_is_not_overwritten(run: Path) -> None:
    (run.parent / "a.csv").write_text("labels")
    assert call("sample", run, "--out", run.parent / "a.csv").exit_code == 2
    assert (run.parent / "a.csv").read_text() == "labels"


# ---- the audit


def test_a_set_is_certified_and_all_say_so(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "certificate.json"
    done = call("certify", run, drawn(run), "--risk", 0.2, "--out", out)
    assert done.exit_code == 0, done.output
    certificate = Certificate.model_validate_json(out.read_bytes())
    assert certificate == held_certificate(run)
    assert certificate.issued
    assert question_of(certificate) == Question(risk=0.2, of="sft")
    held = certificate.certified
    assert (held.of, held.size, held.rule) == ("sft", SELECTED, "")
    assert (certificate.labels.origin, certificate.labels.drawn) == ("draw", 150)
    assert certificate.labels.bad == sum(
        BAD[name] for name in pl.read_csv(tmp_path / "blank-0.csv")["id"]
    )
    assert certificate.sentence.startswith(
        f"With 90 % confidence at most 20 % of the {SELECTED} dialogues of the SFT set are bad (reviewers reject"
    )
    assert read_manifest(run).trust[TrustKind.CERTIFICATE] == certificate.sentence
    assert certificate.sentence in " ".join(call("show", run).output.split())
    mark = run / "export" / "certificates.json"
    assert json.loads(mark.read_text())["certificate"]["sentence"] == certificate.sentence
    # the same again asks nothing new; another selection is not what was certified
    run_recipe(parse_recipe(recipe(tmp_path)), out=run)
    assert read_manifest(run).trust[TrustKind.CERTIFICATE] == certificate.sentence
    run_recipe(parse_recipe(recipe(tmp_path, select={"where": {}})), out=run)
    assert "at most 20 %" not in read_manifest(run).trust[TrustKind.CERTIFICATE]
    assert not mark.exists()


def test_labels_that_cannot_show_it_say_what_it_would_take(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "certificate.json"
    done = call("certify", run, drawn(run), "--risk", 0.06, "--out", out)
    assert done.exit_code == 1
    assert not out.exists()
    certificate = held_certificate(run)
    assert not certificate.issued
    assert certificate.bound > 0.06
    assert "cannot show that at most 6 %" in certificate.sentence


def test_a_row_left_empty_counts_as_bad(run: Path, tmp_path: Path) -> None:
    drawn(run)
    gold = fill(tmp_path / "blank-0.csv", tmp_path / "part.csv", rows=120)
    call("certify", run, gold, "--risk", 0.2)
    counts = held_certificate(run).labels
    assert (counts.drawn, counts.labelled, counts.missing) == (150, 120, 30)
    assert counts.bad >= 30
    assert counts.unused == {"no value": 30}


def test_a_stop_at_any_time_takes_labels_as_far_as_they_go(run: Path, tmp_path: Path) -> None:
    drawn(run)
    gold = fill(tmp_path / "blank-0.csv", tmp_path / "part.csv", rows=80)
    done = call("certify", run, gold, "--risk", 0.25, "--anytime", "--out", tmp_path / "c.json")
    certificate = held_certificate(run)
    assert (done.exit_code, certificate.test) == (0, "anytime")
    assert (certificate.labels.drawn, certificate.labels.missing) == (80, 0)
    assert certificate.evidence is not None
    assert certificate.evidence >= 10


def test_labels_certify_the_set_that_they_were_drawn_from(run: Path, tmp_path: Path) -> None:
    of = "label_score >= 0.3"
    gold = drawn(run, "--of", of)
    call("certify", run, gold, "--risk", 0.25, "--out", tmp_path / "c.json")
    held = held_certificate(run).certified
    assert (held.of, held.size) == (of, sum(score >= 0.3 for score in SCORES))
    call("certify", run, gold, "--risk", 0.25, "--of", "sft", "--out", tmp_path / "c.json")
    assert held_certificate(run).certified.of == "sft"


def test_labels_drawn_for_something_else_certify_the_sft_set(run: Path, tmp_path: Path) -> None:
    gold = drawn(run, "--for", "agreement", "--dimension", "accept", n=300)
    call("certify", run, gold, "--risk", 0.25, "--out", tmp_path / "c.json")
    certificate = held_certificate(run)
    assert (certificate.certified.of, certificate.labels.origin) == ("sft", "draw")
    gold = drawn(run, "--for", "agreement", "--dimension", "accept", "--of", "all", n=200)
    call("certify", run, gold, "--risk", 0.12, "--column", "label_score", "--out", tmp_path / "c")
    assert held_certificate(run).certified.of == "all"  # a threshold is one of what was drawn from


def test_a_draw_says_what_its_labels_are_to_certify(run: Path) -> None:
    page = run.parent / "a.html"
    done = call("sample", run, "--risk", 0.05, "--confidence", 0.95, "--out", page)
    said = " ".join(done.output.split())
    assert "labels-test.jsonl --risk 0.05 --confidence 0.95 --anytime`" in said
    audit = ReadPage.of(page).figures["draw"]["audit"]
    assert (audit["risk"], audit["confidence"]) == (0.05, 0.95)


def test_a_review_that_takes_bad_ones_out_does_not_certify_the_rest(
    run: Path, tmp_path: Path
) -> None:
    gold = drawn(run)
    call("certify", run, gold, "--risk", 0.06)
    before = held_certificate(run)
    index = pl.read_parquet(run / "scores.parquet", columns=["id", "content_hash"])
    contents = dict(index.iter_rows())
    with gold.open(newline="") as file:
        names = [row["id"] for row in csv.DictReader(file)]
    answers = [
        {
            "id": name, "content": contents[name], "dimension": dimension, "value": value, "rater": "x",
            "time": f"2026-11-20T10:00:{second:02}Z",
        }
        for name in names
        for dimension, value, second in (
            ("accept", "accept", 1),
            ("accept", "reject" if BAD[name] else "accept", 2),
            ("note", "see there", 3),
        )
    ]  # fmt: skip
    review = tmp_path / "review.jsonl"
    review.write_text("".join(json.dumps(row) + "\n" for row in answers))
    assert call("review", run, review).exit_code == 0
    assert read_manifest(run).selected == SELECTED - before.labels.bad
    done = call("certify", run, review, "--risk", 0.06)  # a review file is one of labels
    after = held_certificate(run)
    assert (done.exit_code, after.issued) == (1, False)
    assert after.certified == before.certified
    assert (after.labels.drawn, after.labels.bad) == (150, before.labels.bad)
    assert after.labels.unused == {"note is no label of a dialogue": 150}


def test_labels_of_unknown_origin_say_so_and_count_once_a_group(tmp_path: Path) -> None:
    write_chats(tmp_path, groups=N // 5)
    run = tmp_path / "run"
    run_recipe(parse_recipe(recipe(tmp_path)), out=run)
    rows = [
        {"id": f"c{i}", "value": 5 - 4 * BAD[f"c{i}"]} for i in range(0, N, 2) if SCORES[i] >= 0.5
    ]
    gold = write_csv(tmp_path / "gold.csv", rows)
    done = call("certify", run, gold, "--bad", "human < 3", "--risk", 0.3, "--out", tmp_path / "c")
    assert done.exit_code == 0, done.output
    certificate = held_certificate(run)
    assert certificate.labels.origin == "unknown"
    assert "of unknown origin: this holds only if" in certificate.sentence
    groups = {int(row["id"][1:]) % (N // 5) for row in rows}
    assert certificate.labels.drawn == len(groups) < len(rows)
    assert certificate.labels.unused == {
        "another dialogue of its group has a label": len(rows) - len(groups)
    }


def test_labels_that_the_data_has_certify_too(run: Path) -> None:
    done = call(
        "certify",
        run,
        "--dimension",
        "accept",
        "--label",
        "kept",
        "--risk",
        "0.3",
        "--out",
        run.parent / "c.json",
        "--json",
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)["labels"]
    assert (told["origin"], told["drawn"]) == ("all", SELECTED)
    assert told["bad"] == sum(BAD[f"c{i}"] for i in range(N) if SCORES[i] >= 0.5)
    for options in (
        (),
        ("gold.csv", "--dimension", "accept"),
        ("--dimension", "accept", "--label", "moons"),
    ):
        refused = call("certify", run, *options)
        assert refused.exit_code == 2, refused.output


def test_another_question_asked_of_the_same_is_told(run: Path, tmp_path: Path) -> None:
    gold = drawn(run)
    call("certify", run, gold, "--risk", 0.2, "--out", tmp_path / "c")
    call("certify", run, gold, "--risk", 0.3, "--out", tmp_path / "c")
    assert held_certificate(run).earlier_attempts == 0  # the bound is the same
    call("certify", run, gold, "--risk", 0.2, "--column", "label_score", "--out", tmp_path / "c")
    certificate = held_certificate(run)
    assert certificate.earlier_attempts == 1
    assert certificate.sentence.startswith("With 80 % confidence at most 20 %")
    assert "90 % for this question alone; 1 other question" in certificate.sentence


def test_questions_that_have_spent_the_confidence_give_no_certificate(
    run: Path, tmp_path: Path
) -> None:
    """The best of many thresholds that one names by hand is no better than the best that curate would pick."""
    gold = drawn(run, "--of", "all", n=500)
    for place in range(5):
        done = call(
            "certify",
            run,
            gold,
            "--of",
            f"label_score >= 0.{place + 4}",
            "--risk",
            0.3,
            "--out",
            tmp_path / "c",
        )
        held = held_certificate(run)
        assert (done.exit_code, held.issued) == ((0, True) if place < 4 else (1, False)), (
            done.output
        )
        assert held.joint_confidence == pytest.approx(0.9 - place * 0.1)
    assert held.sentence.startswith("Nothing is promised: 4 other questions")
    done = call(
        "certify",
        run,
        gold,
        "--of",
        "label_score >= 0.9",
        "--risk",
        0.3,
        "--confidence",
        0.98,
        "--out",
        tmp_path / "c",
    )
    assert done.exit_code == 0, done.output
    assert held_certificate(run).sentence.startswith("With 88 % confidence")


def test_where_all_are_labelled_no_draw_is_needed_and_no_more_are_asked_for_than_there_are(
    run: Path, tmp_path: Path
) -> None:
    units = [f"c{i}" for i in range(N) if SCORES[i] >= 0.5]
    rows = [
        {"id": unit, "dimension": "accept", "value": "reject" if BAD[unit] else "accept"}
        for unit in units
    ]
    share = sum(BAD[unit] for unit in units) / len(units)
    whole = write_csv(tmp_path / "all.csv", rows)
    risk = math.ceil(1000 * share) / 1000
    done = call("certify", run, whole, "--risk", risk, "--out", tmp_path / "c.json")
    assert done.exit_code == 0, done.output
    held = held_certificate(run)
    assert (held.labels.origin, held.bound) == ("all", pytest.approx(share))
    assert f"{sum(BAD[unit] for unit in units)} of all {len(units)} are" in held.sentence
    assert "unknown origin" not in held.sentence
    assert call("certify", run, whole, "--risk", share - 0.005).exit_code == 1
    part = write_csv(tmp_path / "part.csv", rows[: len(rows) // 2])
    call("certify", run, part, "--risk", share + 0.002)
    held = held_certificate(run)
    assert held.labels.origin == "unknown"
    assert held.more_labels is None or held.more_labels <= len(units) - held.labels.drawn


def test_labels_that_chose_a_prompt_are_set_apart(run: Path, tmp_path: Path) -> None:
    rows = [
        {"id": f"c{i}", "dimension": "accept", "value": "reject" if BAD[f"c{i}"] else "accept"}
        for i in range(0, N, 2)
    ]
    gold = write_csv(tmp_path / "gold.csv", rows)
    options = ("--risk", 0.3, "--hold-out", 0.5, "--out", tmp_path / "c.json")
    assert call("certify", run, gold, *options).exit_code == 0
    held = held_certificate(run)
    content = pl.read_parquet(run / "scores.parquet").select("id", "content_hash").iter_rows()
    hashes = dict(content)
    selected = [row["id"] for row in rows if SCORES[int(row["id"][1:])] >= 0.5]
    out = [unit for unit in selected if is_held_out(hashes[unit], 0.5)]
    assert held.labels.drawn == len(out)
    assert held.certified.apart == len(selected) - len(out)
    assert "or chose its prompts" in held.sentence
    assert question_of(held).hold_out == 0.5
    from_python = curate.certify(run, gold, risk=0.3, hold_out=0.5)
    assert (from_python.labels, from_python.certified) == (held.labels, held.certified)
    # what was drawn to certify chose nothing: `agreement --hold-out` leaves it out
    assert call("certify", run, drawn(run), *options).exit_code == 0
    assert held_certificate(run).certified.apart == 0
    assert call("certify", run, gold, "--hold-out", 1).exit_code == 2


def test_a_plan_is_of_what_can_be_certified_and_of_the_test_that_will_be_made(run: Path) -> None:
    plan = json.loads(call("certify", run, "--plan", "--anytime", "--json").output)
    assert (plan["test"], plan["size"]) == ("anytime", SELECTED)
    assert plan["labels"]["0.0"] == {"0.8": 31, "0.9": 31}
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    units = pl.read_parquet(run / "scores.parquet").filter(pl.col("label_score") >= 0.5)
    labelled = units["content_hash"].to_list()[:30]
    manifest["recipe"]["metrics"] = {"calibration": {"labelled": labelled}}
    path.write_text(json.dumps(manifest))
    assert json.loads(call("certify", run, "--plan", "--json").output)["size"] == SELECTED - 30
    assert "at least 60 labels" in call(
        "certify", "--plan", "--column", "mean_score"
    ).output.replace("\n", " ")


def test_strata_are_the_words_of_a_column(run: Path) -> None:
    done = call(
        "sample", run, "-n", 30, "--of", "all", "--by", "label_kept", "--out", run.parent / "s.csv"
    )
    assert done.exit_code == 0, done.output
    (draw,) = read_draws(run)
    assert {stratum.name: stratum.size for stratum in draw.strata} == {
        "accept": N - sum(BAD.values()),
        "reject": sum(BAD.values()),
    }


# ---- the threshold, and what a recipe does with it


def certified_threshold(run: Path, tmp_path: Path) -> tuple[Path, Certificate]:
    out = tmp_path / "certificate.json"
    gold = drawn(run, "--of", "all", n=200)
    done = call("certify", run, gold, "--column", "label_score", "--risk", 0.12, "--out", out)
    assert done.exit_code == 0, done.output
    return out, Certificate.model_validate_json(out.read_bytes())


def run_with(tmp_path: Path, name: str, **select: Any) -> RunResult:
    return run_recipe(parse_recipe(recipe(tmp_path, select=select)), out=tmp_path / name)


def test_a_certified_threshold_is_what_a_recipe_selects_by(run: Path, tmp_path: Path) -> None:
    out, certificate = certified_threshold(run, tmp_path)
    held = certificate.certified
    assert held.threshold is not None
    inside = {f"c{i}" for i in range(N) if SCORES[i] >= held.threshold}
    assert held.size == len(inside)
    assert sum(BAD[name] for name in inside) / len(inside) <= 0.12
    result = run_with(tmp_path, "applied", certificate=str(out))
    assert result.manifest.selected == held.size
    assert result.manifest.trust[TrustKind.CERTIFICATE] == certificate.sentence
    assert result.manifest.warnings == []
    assert set(result.manifest.rejections) == {"certified"}
    # the run has it from the recipe, not from labels of its own
    verified = verify_run(tmp_path / "applied")
    assert (verified.differences, verified.not_verified) == ((), ())
    assert verified.certificates == 1


def test_the_page_offers_the_thresholds_that_a_certificate_holds_at(
    run: Path, tmp_path: Path
) -> None:
    _, certificate = certified_threshold(run, tmp_path)
    held = [step for step in certificate.steps if step.passed]
    shown = ReadPage.of(write_report(run, tmp_path / "page.html").files[0]).figures["threshold"]
    assert 0 < len(held) < len(certificate.steps)
    assert shown == {
        "column": "label_score",
        "steps": [
            {"threshold": step.threshold, "at": pytest.approx(step.threshold), "kept": step.kept}
            for step in held
        ],
        "risk": 0.12,
        "confidence": certificate.confidence,
        "named": "dialogues",
        "bad": certificate.bad,
    }


def test_of_another_set_a_certificate_promises_nothing(run: Path, tmp_path: Path) -> None:
    out, _ = certified_threshold(run, tmp_path)
    result = run_with(
        tmp_path, "applied", certificate=str(out), where={"more": "label_score >= 0.9"}
    )
    said = result.manifest.trust[TrustKind.CERTIFICATE]
    assert "nothing is promised" in said
    assert said in result.manifest.warnings


def test_another_source_is_refused_before_anything_is_asked(run: Path, tmp_path: Path) -> None:
    out, _ = certified_threshold(run, tmp_path)
    with pytest.raises(UsageError, match="another source"):
        run_recipe(
            parse_recipe(recipe(tmp_path, select={"certificate": str(out)})), limit=N - 1,
            out=tmp_path / "short",
        )  # fmt: skip


def test_another_judge_is_refused_before_it_is_asked(tmp_path: Path) -> None:
    data = tmp_path / "chats.jsonl"
    qualities = [round(0.1 + 0.8 * i / 60, 3) for i in range(60)]
    rows = test_calibrated_run.rows(*qualities)
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with live_server(answer=test_calibrated_run.serve) as server:
        run = tmp_path / "run"
        run_recipe(test_calibrated_run.recipe(server, data), out=run)
        blank, out = tmp_path / "blank.csv", tmp_path / "certificate.json"
        call("sample", run, "-n", 45, "--of", "scored", "--out", blank)
        gold = fill(blank, tmp_path / "gold.csv", bad=lambda _: False)
        done = call("certify", run, gold, "--column", "mean_score", "--out", out)
        assert done.exit_code == 0, done.output
        assert Certificate.model_validate_json(out.read_bytes()).identities.keys() == {"judge"}
        asked = len(server.requests)
        select = {"certificate": str(out), "active": None}
        same = run_recipe(
            test_calibrated_run.recipe(server, data, select=select), out=tmp_path / "same"
        )
        assert "at most 10 %" in same.manifest.trust[TrustKind.CERTIFICATE]
        asked = len(server.requests)
        other = test_calibrated_run.recipe(server, data, select=select, judge={"mode": "json"})
        with pytest.raises(UsageError, match=r"select\.certificate was issued for another judge"):
            run_recipe(other, out=tmp_path / "other")
        assert [body for body in server.requests[asked:] if "Question" in str(body)] == []


def test_a_refused_certificate_is_none(run: Path, tmp_path: Path) -> None:
    call("certify", run, drawn(run), "--risk", 0.06)
    with pytest.raises(UsageError, match="no certificate was issued"):
        parse_recipe(
            recipe(tmp_path, select={"certificate": str(run / "trust" / "certificate.json")})
        )


def test_a_draw_says_what_fitted_the_calibration_and_is_refused_where_that_is_all(
    run: Path,
) -> None:
    chosen = pl.read_csv(drawn(run, n=SELECTED))["content"].to_list()
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())

    def fitted_to(labelled: list[str]) -> Done:
        manifest["recipe"]["judge"] = {"calibration": {"labelled": labelled}}
        path.write_text(json.dumps(manifest))
        return call("sample", run, "-n", SELECTED, "--out", run.parent / f"{len(labelled)}.csv")

    page = run.parent / "a.html"
    fitted_to(chosen[3:5])
    assert call("sample", run, "-n", SELECTED, "--out", page).exit_code == 0
    assert ReadPage.of(page).figures["draw"]["audit"]["size"] == SELECTED - 2
    assert set(pl.read_csv(drawn(run, n=SELECTED))["content"]).isdisjoint(chosen[3:5])
    said = fitted_to(chosen[:5]).output.replace("\n", " ")
    assert "5 more were used to fit the judge's calibration and are not drawn" in said
    assert "--hold-out" in fitted_to(chosen).output
    assert not (run.parent / f"{SELECTED}.csv").exists()


# ---- bad input


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--risk", 0), "--risk must be the allowed share"),
        (("--risk", 1), "--risk must be the allowed share"),
        (("--confidence", 0.5), "--confidence must be the certainty"),
        (("--risk", 0.01), "fewer labels than any guarantee needs"),
        (("--bad", "taste < 3"), "--bad does not fit the labels"),
        (("--bad", "meh"), "no label has that value"),
        (("--bad", "accept"), "--bad is not a condition"),
        (("--column", "role"), "no threshold can be set"),
        (("--column", "uncertainty"), "high where a dialogue is in doubt"),
        (("--column", "uncertainty", "--plan"), "high where a dialogue is in doubt"),
        (("--column", "label_scor"), "did you mean label_score"),
        (("--of", "label_score"), "--of is not a condition"),
        (("--column", "label_score", "--anytime"), "cannot be certified while"),
        (("--rate", 0.1), "add --plan"),
    ],
)
def test_what_no_labels_can_answer_is_refused(
    run: Path, options: tuple[object, ...], said: str
) -> None:
    done = call("certify", run, drawn(run, n=60), *options)
    assert done.exit_code == 2
    assert said in done.output, done.output
    assert not (run / "trust" / "certificate.json").exists()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": "nobody", "value": "reject"}], "no label is about a dialogue"),
        ([{"id": "c1", "value": ""}], "no label has a value"),
        ([{"id": "c1", "label": "reject"}], "is not a file of labels"),
        ([{"draw": "d0", "id": "c1", "value": "reject", "dimension": "accept"}], "not recorded"),
        (
            [
                {"id": "c1", "dimension": "accept", "value": value, "rater": "x"}
                for value in ("yes", "no")
            ],
            "one rater gives one dialogue two labels",
        ),
        ([{"id": "c1", "value": 3}], "it is not defined which labels are bad"),
        ([{"pair_id": "p", "better": "chosen"}], "no label is about a pair"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    run: Path, tmp_path: Path, rows: list[dict[str, Any]], said: str
) -> None:
    done = call("certify", run, write_csv(tmp_path / "gold.csv", rows))
    assert (done.exit_code, said in done.output) == (2, True), done.output


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", ""), ("a.csv", "id,dimension,value\n")])
def test_a_file_without_a_row_is_refused_as_such(
    run: Path, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    done = call("certify", run, tmp_path / name)
    assert (done.exit_code, f"{name} has no labels" in done.output) == (2, True), done.output


def test_without_labels_there_is_a_plan(run: Path) -> None:
    assert "curate sample RUN" in call("certify", run).output
    done = call("certify", "--plan")
    assert "labels    22  38  52  65  91  152" in done.output
    known = json.loads(call("certify", run, "--plan", "--rate", 0.02, "--json").output)
    assert known == {
        "risk": 0.1,
        "confidence": 0.9,
        "size": SELECTED,
        "test": "audit",
        "least_labels": {"0": 21, "1": 36, "2": 49, "3": 61, "5": 84, "10": 138},
        "labels": {"0.02": {"0.8": 36, "0.9": 49}},
    }
    assert call("certify", "--plan", "--rate", 2).exit_code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--of", "nonsense"), "reads a column that the score table does not have"),
        (("--of", "mean_score"), "--of is not a condition"),
        (("--column", "nonsense"), "reads a column that the score table does not have"),
        (("--of", "pairs", "--column", "mean_score"), "pairs have no such score"),
    ],
)
def test_a_plan_of_a_set_that_no_run_can_have_is_refused(
    options: tuple[str, ...], said: str
) -> None:
    done = call("certify", "--plan", *options)
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_a_plan_takes_sets_and_columns_that_only_a_run_shows() -> None:
    for of in ("scored", "natural_pairs", "label_x > 1 AND mean_score > 3"):
        done = call("certify", "--plan", "--of", of)
        assert done.exit_code == 0, done.output
