"""Certificates of pairs, and which labels may certify: blind sides, `fork.certificate`, and the split from fitting."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from curate.errors import UsageError
from curate.pairs.config import ForkConfig
from curate.records import Calibration, Certificate, DropReason, TrustKind
from curate.run.labels.calibrate import calibrate_with_gold
from curate.run.labels.hold_out import is_held_out
from curate.run.labels.populations import read_drawn, read_draws
from curate.run.outputs import set_fingerprint
from curate.run.pipeline import run_recipe
from curate.run.trust_reports import read_trust_report
from curate.trust.label_rows import GoldRow, read_gold
from tests.live import live_server
from tests.run import test_calibrated_run, test_forking, test_pair_checks
from tests.run.test_certify import call, fill, write_csv


def held_certificate(run: Path) -> Certificate:
    found = read_trust_report(run, Certificate, TrustKind.PAIR_CERTIFICATE)
    assert found is not None
    return found


def say_which(run: Path, blank: Path, gold: Path, *, wrong: int) -> Path:
    """People's answers: the reply that opens with "Sure" is better, but for the first so many pairs."""
    with blank.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows):
        is_a = row["a"].startswith("[assistant] Sure") != (number < wrong)
        row["better"] = "a" if is_a else "b"
    return write_csv(gold, rows)


# ---- pairs


def test_pairs_are_labelled_blind_and_certified(tmp_path: Path) -> None:
    run = test_pair_checks.run(tmp_path, test_pair_checks.rows(60)).folder
    blank, out = tmp_path / "blank.csv", tmp_path / "c.json"
    call("sample", run, "-n", 40, "--of", "natural_pairs", "--out", blank)
    with blank.open(newline="") as file:
        rows = list(csv.DictReader(file))
    first = sum(row["a"].startswith("[assistant] Sure") for row in rows)
    assert 8 <= first <= 32  # neither side has a place of its own
    assert all("order number" in row["prompt"] for row in rows)
    gold = say_which(run, blank, tmp_path / "gold.csv", wrong=1)
    done = call("certify", run, gold, "--out", out)
    assert done.exit_code == 0, done.output
    certificate = held_certificate(run)
    assert (certificate.labels.bad, certificate.labels.drawn) == (1, 40)
    assert certificate.certified.size == 60
    assert (
        "at most 10 % of the 60 pairs of the data are the wrong way round" in certificate.sentence
    )
    many = say_which(run, blank, tmp_path / "gold.csv", wrong=9)
    assert call("certify", run, many, "--of", "natural_pairs").exit_code == 1
    threshold = call("certify", run, many, "--of", "natural_pairs", "--column", "evidence")
    assert (threshold.exit_code, "no recipe could apply" in threshold.output) == (2, True)
    with pytest.raises(UsageError, match="not for pairs made by forks"):
        ForkConfig.model_validate({"certificate": str(out)})


def test_a_tie_is_not_the_wrong_way_round_and_nonsense_is_no_answer(tmp_path: Path) -> None:
    run = test_pair_checks.run(tmp_path, test_pair_checks.rows(40)).folder
    blank = tmp_path / "blank.jsonl"
    call("sample", run, "-n", 30, "--of", "natural_pairs", "--out", blank)
    rows = [json.loads(line) for line in blank.read_text().splitlines()]
    said = ["tie"] * 29 + ["c"]
    gold = write_csv(
        tmp_path / "gold.csv", [row | {"better": is_} for row, is_ in zip(rows, said, strict=True)]
    )
    call("certify", run, gold, "--out", tmp_path / "c.json")
    labels = held_certificate(run).labels
    assert (labels.bad, labels.missing) == (1, 1)
    assert labels.unused == {"better is neither a, b, chosen, rejected nor tie: 'c'": 1}
    strict = call("certify", run, gold, "--bad", "better <> 'chosen'")
    assert strict.exit_code == 1
    assert held_certificate(run).labels.bad == 30


def test_forks_are_held_to_their_certificate(tmp_path: Path) -> None:
    data = tmp_path / "chats.jsonl"
    lines = (
        {
            "id": f"chat-{n}",
            "messages": [
                {"role": "user", "content": f"Question of chat {n} about order {n}?"},
                {"role": "assistant", "content": f"Answer in chat {n} about order {n}."},
            ],
        }
        for n in range(90)
    )
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    fork: dict[str, Any] = {
        "resamples": 3, "where": "verdict IS NOT NULL", "min_confidence": 0.0, "noise_factor": 50,
        "check_specifics": False, "check_role": False,
    }  # fmt: skip
    with live_server() as server:
        run = tmp_path / "run"
        run_recipe(test_forking.recipe(server, data, fork=fork), out=run)
        passed = {
            pair.pair_id: pair.check.evidence or 0.0
            for pair in test_forking.written(run)
            if pair.drop_reason is None and pair.check is not None
        }
        assert len(passed) > 2
        blank, out = tmp_path / "blank.csv", tmp_path / "c.json"
        call("sample", run, "-n", 99, "--of", "pairs", "--out", blank)
        with blank.open(newline="") as file:
            rows = [{"pair_id": row["pair_id"], "better": "chosen"} for row in csv.DictReader(file)]
        gold = write_csv(tmp_path / "gold.csv", rows)
        done = call("certify", run, gold, "--of", "pairs", "--column", "evidence", "--out", out)
        assert done.exit_code == 0, done.output
        certificate = Certificate.model_validate_json(out.read_bytes())
        assert certificate.certified.threshold == min(passed.values())

        def asked() -> int:
            """Requests about dialogues; each run tries the server out, too."""
            return sum("Question of chat" in str(body) for body in server.requests)

        before = asked()
        same = run_recipe(
            test_forking.recipe(server, data, fork=fork | {"certificate": str(out)}), out=run
        )
        assert same.manifest.pairs == len(passed)
        assert same.manifest.trust[TrustKind.PAIR_CERTIFICATE] == certificate.sentence
        # from a higher threshold on only those at or above it are pairs
        threshold = sorted(passed.values())[2]
        kept = {key for key, evidence in passed.items() if evidence >= threshold}
        certified = certificate.certified.model_copy(
            update={"threshold": threshold, "size": len(kept), "fingerprint": set_fingerprint(kept)}
        )
        stricter = certificate.model_copy(update={"certified": certified})
        result = run_recipe(
            test_forking.recipe(
                server, data, fork=fork | {"certificate": stricter.model_dump(mode="json")}
            ),
            out=run,
        )
        assert asked() == before  # rows of forks are those that there were
    assert result.manifest.pairs == len(kept) == len(passed) - 2
    assert result.manifest.drop_reasons[DropReason.BELOW_CERTIFICATE] == 2
    assert result.manifest.funnels["fork"][-1].dropped[DropReason.BELOW_CERTIFICATE] == 2
    assert result.manifest.trust[TrustKind.PAIR_CERTIFICATE] == certificate.sentence


# ---- what fits does not certify


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judged")
    qualities = [round(0.1 + 0.8 * i / 120, 3) for i in range(120)]
    rows = test_calibrated_run.rows(*qualities)
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with live_server(answer=test_calibrated_run.serve) as server:
        recipe = test_calibrated_run.recipe(server, folder / "chats.jsonl")
        run_recipe(recipe, out=folder / "run")
    return folder / "run"


def rated(run: Path, numbers: range) -> list[GoldRow]:
    return [
        GoldRow(f"f:{n}", "coherence", 1 + n * 5 // 121, dialogue_id=f"chat-{n}") for n in numbers
    ]


def test_what_was_drawn_to_certify_is_not_fitted_to(judged: Path, tmp_path: Path) -> None:
    blank = tmp_path / "blank.csv"
    call("sample", judged, "-n", 50, "--of", "scored", "--out", blank)
    draw = read_draws(judged)[-1]
    drawn = set(read_drawn(judged, draw).filter("drawn")["unit"])
    fitted = calibrate_with_gold(judged, rated(judged, range(120)))
    assert fitted.unused.counts == {"drawn to certify, and kept for that": 50}
    assert len(fitted.calibration.labelled) == 70
    assert drawn.isdisjoint(fitted.calibration.labelled)
    only_drawn = [GoldRow("f", "coherence", 3, content=unit) for unit in drawn]
    with pytest.raises(UsageError, match="all labels are reserved for a certificate"):
        calibrate_with_gold(judged, only_drawn)


def test_labels_that_fitted_the_calibration_certify_nothing(judged: Path, tmp_path: Path) -> None:
    gold = write_csv(
        tmp_path / "gold.csv",
        [
            {"id": f"chat-{n}", "dimension": "coherence", "value": 2 + n * 4 // 121}
            for n in range(120)
        ],
    )
    done = call("calibrate", judged, gold, "--hold-out", 0.5, "--out", tmp_path / "cal.json")
    assert done.exit_code == 0, done.output
    calibration = Calibration.model_validate_json((tmp_path / "cal.json").read_bytes())
    labelled = set(calibration.labelled)
    assert 15 < len(labelled) < 90
    assert not any(is_held_out(key, 0.5) for key in labelled)
    with live_server(answer=test_calibrated_run.serve) as server:
        recipe = test_calibrated_run.recipe(
            server, judged.parent / "chats.jsonl", judge={"calibration": str(tmp_path / "cal.json")}
        )
        run = tmp_path / "run"
        run_recipe(recipe, out=run)
    call("certify", run, gold, "--bad", "coherence < 2", "--of", "scored", "--out", tmp_path / "c")
    certificate = read_trust_report(run, Certificate, TrustKind.CERTIFICATE)
    assert certificate is not None
    assert certificate.certified.apart == len(labelled)
    assert certificate.labels.drawn == certificate.certified.size == 120 - len(labelled)
    assert (
        f"Nothing is promised of {len(labelled)} more, whose labels fitted" in certificate.sentence
    )


def test_a_split_is_the_same_each_time_and_nearly_the_share_asked_for() -> None:
    keys = [f"{n:032x}" for n in range(2_000)]
    held = {key for key in keys if is_held_out(key, 0.3)}
    assert 520 < len(held) < 680
    assert held <= {key for key in keys if is_held_out(key, 0.6)}
    assert not any(is_held_out(key, 0.0) for key in keys)


@pytest.mark.parametrize("options", [("--hold-out", 1), ("--hold-out", -0.1)])
def test_a_share_that_is_none_is_refused(judged: Path, tmp_path: Path, options: Any) -> None:
    gold = write_csv(tmp_path / "g.csv", [{"id": "chat-1", "dimension": "accept", "value": "yes"}])
    assert "--hold-out must be a share" in call("calibrate", judged, gold, *options).output
    assert len(read_gold(gold)) == 1


def test_a_draw_filled_in_is_a_file_of_labels_for_calibration_too(
    judged: Path, tmp_path: Path
) -> None:
    blank = tmp_path / "blank.csv"
    call("sample", judged, "-n", 60, "--for", "calibrate", "--seed", 7, "--dimension", "accept", "--out", blank)  # fmt: skip
    gold = fill(blank, tmp_path / "gold.csv", bad=lambda name: int(name.split("-")[1]) < 40)
    done = call("calibrate", judged, gold, "--out", tmp_path / "cal.json")
    assert done.exit_code == 0, done.output
    assert "p_good" in done.output
