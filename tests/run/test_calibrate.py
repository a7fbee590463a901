"""`curate calibrate`: labels from a source, scores from a run or a file, one judge at a time."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from curate import calibrate as calibrate_by_api
from curate.adherence.config import AdherenceConfig
from curate.api import load_dialogues, score_adherence
from curate.cli import app
from curate.dialogue import Dialogue, Message
from curate.engines.base import Capability, Completion, Request
from curate.engines.scripted import DEFAULT_CAPABILITIES, ScriptedEngine
from curate.errors import UsageError
from curate.recipe import parse_recipe
from curate.records import AdherenceScore, Calibration, Unscored
from curate.run.labels.adherence_fit import Labels, calibrate, calibrate_run
from curate.run.labels.gold_fit import GoldFit
from curate.run.pipeline import run_recipe
from curate.sources import SourceConfig
from curate.trust.calibration_fit import LabelledScore
from curate.trust.gold import Gold, GoldItem, Votes
from tests.live import live_server
from tests.servers import Body

KINDS = ("adherent", "tone", "adherent", "scope")


def row(number: int, label: Any) -> dict[str, Any]:
    """Its text says how likely the judge finds it: two turns, the second of them labelled."""
    kept = label == "adherent"
    likely = random.Random(number).uniform(0.5, 0.99) if kept else 0.3 + number % 6 / 10
    return {
        "id": f"r{number}",
        "role_definition": "You answer for the library.",
        "label": label,
        "messages": [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "P=0.5"},
            {"role": "user", "content": f"Question {number}."},
            {"role": "assistant", "content": f"P={likely:.3f}"},
        ],
    }


ROWS = [row(number, KINDS[number % 4]) for number in range(40)]


def likely(text: str) -> float:
    return float(text.rsplit("P=", 1)[1].split()[0])


def judge(request: Request) -> Completion:
    yes = likely(str(request.messages[0]["content"]))
    return Completion("x", first_token=(("YES", math.log(yes)), ("NO", math.log(1 - yes))))


def serve(body: Body) -> Body:
    content = str(body["messages"][-1]["content"])
    yes = likely(content) if "P=" in content else 0.5
    first = [("YES", math.log(yes)), ("NO", math.log(1 - yes))]
    return {"text": "YES", "first_token": first}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(held) + "\n" for held in rows))
    return path


def scored(dialogues: list[Dialogue], **config: Any) -> list[AdherenceScore | Unscored]:
    capabilities = DEFAULT_CAPABILITIES | {Capability.TOP_LOGPROBS}
    engine = ScriptedEngine(judge, capabilities=capabilities)
    return score_adherence(
        dialogues, engine, AdherenceConfig.model_validate({"output_mode": "continuous"} | config)
    )


@pytest.fixture
def dialogues(tmp_path: Path) -> list[Dialogue]:
    return load_dialogues(write(tmp_path / "rows.jsonl", ROWS)).dialogues


def test_a_label_is_that_of_the_last_turn(dialogues: list[Dialogue]) -> None:
    made = calibrate(scored(dialogues), dialogues)
    assert (made.turns, made.adherent, made.groups) == (40, 20, 40)
    assert made.identity.mode == "continuous"
    assert (made.scoring_method, made.definition) == ("llm_judge", "constructive")
    assert calibrate_by_api is calibrate


def test_a_list_of_labels_has_one_for_each_turn(dialogues: list[Dialogue]) -> None:
    both = [
        held.model_copy(update={"labels": {"turns": [None, held.labels["label"] == "adherent"]}})
        for held in dialogues
    ]
    records = scored(dialogues)
    made = calibrate(records, both, labels=Labels("turns"))
    assert made.figures == calibrate(records, dialogues).figures
    every = [held.model_copy(update={"labels": {"turns": [True, False]}}) for held in both]
    with pytest.raises(UsageError, match="does not rank"):
        calibrate(
            [r.model_copy(update={"per_turn": r.per_turn[::-1]}) for r in records if isinstance(r, AdherenceScore)],
            [d.model_copy(update={"labels": {"turns": [likely_of(d) < 0.5, True]}}) for d in every],
            labels=Labels("turns"),
        )  # fmt: skip
    wrong = [held.model_copy(update={"labels": {"turns": [True]}}) for held in both]
    with pytest.raises(UsageError, match="does not fit its turns"):
        calibrate(records, wrong, labels=Labels("turns"))


def likely_of(dialogue: Dialogue) -> float:
    return likely(dialogue.messages[-1].content)


def test_raw_scores_are_fitted_and_answers_without_evidence_left_out(
    dialogues: list[Dialogue],
) -> None:
    plain = scored(dialogues)
    made = calibrate(plain, dialogues)
    again = calibrate(scored(dialogues, calibration=made), dialogues)
    assert again == made
    halves = scored(dialogues, on_missing="half", min_coverage=1.0)
    records = [
        record.model_copy(
            update={
                "per_turn": tuple(t.model_copy(update={"imputed": True}) for t in record.per_turn)
            }
        )
        for record in halves
        if isinstance(record, AdherenceScore)
    ]
    with pytest.raises(UsageError, match="no labelled turn has a score"):
        calibrate(records, dialogues)


def test_conversations_are_calibrated_on_their_one_answer(dialogues: list[Dialogue]) -> None:
    whole = scored(dialogues, evaluation_granularity="conversation")
    made = calibrate(whole, dialogues)
    assert (made.evaluation_granularity, made.turns) == ("conversation", 40)


def test_votes_on_turns_without_a_score_are_counted_with_their_place(
    dialogues: list[Dialogue],
) -> None:
    one, other, third = (held for held in scored(dialogues[:3]) if isinstance(held, AdherenceScore))
    guessed = tuple(turn.model_copy(update={"imputed": True}) for turn in other.per_turn)
    records = {
        one.content_hash: one,
        other.content_hash: other.model_copy(update={"per_turn": guessed}),
    }
    gold = Gold()
    for record, place in ((one, "row 1"), (other, "row 2"), (third, "row 3")):
        votes = Votes(place, {"ann": True, "bob": True, "eve": False})
        gold.adherent_votes[GoldItem(record.content_hash, 2, "adherence")] = votes
    fit = GoldFit(gold, {}, records, {}, {one.content_hash: "g"})
    (read,) = fit.adherent_turns()
    assert read == LabelledScore(pytest.approx(likely_of(dialogues[0])), True, "g")
    why = "role adherence of that turn could not be scored"
    none = "role adherence of the dialogue could not be scored"
    assert gold.unused.counts == {why: 3, none: 3}
    assert gold.unused.first == {why: "row 2", none: "row 3"}


def test_scores_of_two_judges_are_refused(dialogues: list[Dialogue]) -> None:
    mixed = [*scored(dialogues[:20]), *scored(dialogues[20:], definition="restrictive")]
    with pytest.raises(UsageError, match="several judges, or from one with several settings"):
        calibrate(mixed, dialogues)


def test_a_run_is_calibrated_and_the_next_one_uses_it(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", ROWS)
    bare = [{k: v for k, v in held.items() if k != "label"} for held in ROWS]
    unlabelled = write(tmp_path / "bare.jsonl", bare)
    runner = CliRunner()
    with live_server(answer=serve) as server:

        def run(name: str, source: Path, **adherence: Any) -> Any:
            model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
            recipe = {
                "name": name,
                "source": {"path": str(source)},
                "models": {"judge": model},
                "judge": False,
                "adherence": {"output_mode": "continuous"} | adherence,
                "select": False,
                "export": False,
            }
            return run_recipe(parse_recipe(recipe), out=tmp_path / name).manifest

        run("labelled", data)
        file = tmp_path / "judge.json"
        done = runner.invoke(app, ["calibrate", str(tmp_path / "labelled"), "--out", str(file)])
        assert done.exit_code == 0, done.output
        assert "40 labelled turns, 20 adherent" in done.output
        assert "Brier" in done.output
        assert "ECE (10 bins)" in done.output
        made = Calibration.model_validate_json(file.read_bytes()).adherence
        assert made is not None
        assert set(made.figures) == {"raw", "platt", "isotonic"}
        after = run("after", unlabelled, calibration=str(file))
        assert not any("IGNORED" in text for text in after.warnings)
        assert "calibration" in after.identities["adherence"].sampling
        older = tmp_path / "older.json"  # the form of the file before it held levels, too
        older.write_text(made.model_dump_json())
        again = run("older", unlabelled, calibration=str(older))
        assert again.identities == after.identities

        # Labels of another source, matched by what the dialogues say, or by id.
        run("bare", unlabelled)
    found = calibrate_run(tmp_path / "bare", SourceConfig(path=str(data))).adherence
    assert found == made
    with pytest.raises(UsageError, match="none with a label"):
        calibrate_run(tmp_path / "bare")


def test_a_file_of_records_serves_and_anything_else_is_named(
    dialogues: list[Dialogue], tmp_path: Path
) -> None:
    file = tmp_path / "scores.jsonl"
    records = scored(dialogues)
    file.write_text("".join(record.model_dump_json() + "\n" for record in records))
    source = SourceConfig(path=str(tmp_path / "rows.jsonl"))
    made = calibrate_run(file, source, method="isotonic").adherence
    assert made is not None
    assert made.method == "isotonic"
    assert made == calibrate(records, dialogues, method="isotonic")
    with pytest.raises(UsageError, match="--labels"):
        calibrate_run(file)
    file.write_text('{"score": 1}\n')
    with pytest.raises(UsageError, match="not a file of adherence scores"):
        calibrate_run(file, source)
    with pytest.raises(UsageError, match="not a file of adherence scores"):
        calibrate_run(tmp_path / "absent", source)


def test_labels_are_values_of_one_class_and_anything_else_a_violation() -> None:
    def of(value: Any, answers: int = 1) -> list[bool | None]:
        held = Dialogue(id="x", messages=(Message(role="user"),), labels={"label": value})
        return Labels().of(held, answers)

    assert of("adherent") == of(True) == of(1) == [True]
    assert of(0) == of(False) == [False]
    assert of("tone") == of(False) == of(0) == [False]
    assert of("tone", 3) == [None, None, False]
    assert of([None, "adherent", "scope"], 3) == [None, True, False]
