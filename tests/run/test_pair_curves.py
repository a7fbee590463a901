"""A pair curve end to end: twins of a recipe's dialogues or the labels of a run, and the run that uses it."""

from __future__ import annotations

import json
import math
import random
import re
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

from curate.cli import app
from curate.cli.closing import show_run
from curate.engines import model_pool
from curate.engines.base import Capability, Completion, Request
from curate.engines.scripted import DEFAULT_CAPABILITIES, ScriptedEngine
from curate.engines.stand_in import likely_instance
from curate.errors import UsageError
from curate.publishing.card import _decisions
from curate.recipe import Recipe, load_recipe, parse_recipe
from curate.records import PairCurve, PreferencePair
from curate.records.validation import validate_record
from curate.run.labels.pair_curves import (
    fit_by_asking,
    plan_labelled,
    plan_twins,
)
from curate.run.labels.run_pair_curve import fit_from_choices, fit_from_run
from curate.run.pipeline import RunResult, run_recipe
from curate.sources.shipped_files import sample_chats
from curate.storage.whole_files import write_record
from curate.trust.gold import ANSWERED_AGAIN
from tests.run.fits import check_fit

DIALOGUES = 70
SCRIPTED = {"engine": "scripted", "replies": []}
WORDS = [
    "parcel",
    "depot",
    "driver",
    "street",
    "window",
    "letter",
    "counter",
    "ticket",
    "market",
    "garden",
]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def reply(number: int, turn: int) -> str:
    """A reply that no other dialogue has, with places for most flaws."""
    draw = random.Random(f"{number} {turn}")
    one, two, three = draw.sample(WORDS, 3)
    return (
        f"The {one} of case {100 + number} is with the {two} since {draw.randint(2, 9)} o'clock. You will have it "
        f"before {draw.randint(10, 28)} May, and that is certain. It can be changed at the {three}, if you want to."
    )


def chat(number: int) -> dict[str, Any]:
    messages = []
    for turn in range(2):
        question = f"Where is the thing of case {100 + number}, for the time {turn}?"
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": reply(number, turn)},
        ]
    return {"id": f"d{number}", "messages": messages}


ORIGINALS = {reply(number, turn): turn for number in range(DIALOGUES) for turn in range(2)}


def is_original(text: str, dialogue: str) -> bool:
    """Whether the reply belongs at the end of the dialogue."""
    questions = re.findall(r"case (\d+), for the time (\d)", dialogue)
    number, turn = questions[-1]
    return ORIGINALS.get(text) == int(turn) and f"case {number} " in text


class Judge:
    """Prefers an original by `signal` log-odds, give or take 1, with a pull towards the first shown."""

    def __init__(self, signal: float = 3.0, pull: float = 1.0, spread: float = 0.2) -> None:
        self.signal, self.pull, self.spread = signal, pull, spread
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Completion:
        self.requests.append(request)
        text = "\n".join(str(message["content"]) for message in request.messages)
        draw = random.Random(text)
        if request.purpose.endswith(".compare"):
            sides = re.findall(r"Candidate [AB]\n<candidate>\n(.*?)\n</candidate>", text, re.DOTALL)
            dialogue = text.partition("Candidate A\n")[0]
            first, second = (self.signal * is_original(side, dialogue) for side in sides)
            return letters(
                first - second + draw.gauss(0, 1) + self.pull + draw.gauss(0, self.spread)
            )
        if request.schema is not None:
            return Completion(json.dumps(likely_instance(request.schema)))
        labels = request.labels or ("x",)
        mass = [draw.uniform(0.5, 1.5) for _ in labels]
        shares = [math.log(weight / sum(mass)) for weight in mass]
        return Completion(labels[0], first_token=tuple(zip(labels, shares, strict=True)))


def letters(odds: float) -> Completion:
    a = 1 / (1 + math.exp(-odds))
    return Completion("A", first_token=(("A", math.log(a)), ("B", math.log(1 - a))))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Judge:
    """The judge that every recipe of the test opens; runs are made in a folder of their own."""
    scripted_judge = Judge()
    engine = ScriptedEngine(
        scripted_judge, capabilities=DEFAULT_CAPABILITIES | {Capability.TOP_LOGPROBS}
    )

    async def scripted(_: object) -> ScriptedEngine:
        return engine

    monkeypatch.setattr(model_pool, "open_engine", scripted)
    monkeypatch.chdir(tmp_path)
    return scripted_judge


def recipe_of(path: Path, rows: list[dict[str, Any]], **sections: Any) -> Recipe:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = {
        "name": "curves",
        "source": {"path": str(path)},
        "role": "A clerk of the post.",
        "scenario": "A person asks for a thing.",
        "models": {"judge": SCRIPTED},
        "judge": {"mode": "tokens", "text": "off"},
        "adherence": False,
        "select": False,
    }
    return parse_recipe(base | sections)


def twins_recipe(tmp_path: Path, **sections: Any) -> Recipe:
    return recipe_of(tmp_path / "chats.jsonl", [chat(at) for at in range(DIALOGUES)], **sections)


def ranked(agreeing: int, of: int) -> list[dict[str, Any]]:
    """Pairs of replies with rewards; the original has the higher one in so many of them."""
    rows = []
    for number in range(of):
        sides = [reply(number, 0), reply(number, 0).replace("You will", "You will not")]
        for text, reward in zip(
            sides, (1.0, 0.0) if number < agreeing else (0.0, 1.0), strict=True
        ):
            question = f"Where is the thing of case {100 + number}, for the time 0?"
            messages = [
                {"role": "user", "content": question},
                {"role": "assistant", "content": text},
            ]
            rows.append(
                {
                    "id": f"p{number}/{reward}",
                    "messages": messages,
                    "group": f"g{number}",
                    "reward": reward,
                }
            )
    return rows


NATURAL = {"verify": {"check_specifics": False}, "may_be_fine": True}


def verified(tmp_path: Path, agreeing: int, of: int = 50, **natural: Any) -> RunResult:
    sections = {"judge": False, "natural": NATURAL | natural}
    recipe = recipe_of(tmp_path / "pairs.jsonl", ranked(agreeing, of), **sections)
    return run_recipe(recipe, out=tmp_path / "run")


def written(run: Path, name: str) -> list[PreferencePair]:
    path = run / "pairs" / f"{name}.jsonl"
    return [PreferencePair.model_validate_json(line) for line in path.read_text().splitlines()]


def shown(result: RunResult) -> str:
    out = StringIO()
    show_run(Console(file=out, width=1000), result, verbose=True)
    return out.getvalue()


# --- twins


def test_a_plan_estimates_the_requests_without_a_model_call(judge: Judge, tmp_path: Path) -> None:
    recipe = twins_recipe(tmp_path)
    plan = plan_twins(recipe, 60)
    assert not judge.requests
    assert (len(plan.pairs), sum(plan.kinds.values())) == (60, 60)
    assert plan.cost is None
    fit_by_asking(recipe, plan, tmp_path / "replies.sqlite")
    assert len(judge.requests) == plan.load.requests
    characters = sum(len(str(r.messages[0]["content"])) + len(r.prefill) for r in judge.requests)
    assert plan.load.prompt == pytest.approx(characters / 4, rel=0.01)


def test_a_plan_costs_what_the_judges_prices_say(tmp_path: Path) -> None:
    priced = SCRIPTED | {"prices": {"input": 1.0, "output": 2.0}}
    rows = [chat(at) for at in range(30)]
    plan = plan_twins(recipe_of(tmp_path / "few.jsonl", rows, models={"judge": priced}), 50)
    assert plan.cost is not None
    assert plan.cost > plan.load.prompt / 1e6 / 2


def test_twins_give_a_curve_and_a_second_time_asks_nothing(judge: Judge, tmp_path: Path) -> None:
    recipe = twins_recipe(tmp_path)
    plan, replies = plan_twins(recipe, 60), tmp_path / "replies.sqlite"
    steps: list[tuple[int, int]] = []
    curve = fit_by_asking(recipe, plan, replies, progress=lambda *done: steps.append(done))
    assert (curve.fitted_on, curve.pairs, curve.dialogues) == ("twins", 60, 60)
    assert curve.auc > 0.9
    assert curve.preference_weight > 0
    assert steps[-1] == (120, 120)
    assert set(curve.kinds) == set(plan.kinds)
    validate_record("pair-curve", curve.model_dump(mode="json"))
    check_fit("curve_of_twins", curve)
    requests = len(judge.requests)
    assert fit_by_asking(recipe, plan, replies) == curve
    assert len(judge.requests) == requests


def test_the_best_dialogues_of_a_run_get_the_flaws(judge: Judge, tmp_path: Path) -> None:
    recipe = twins_recipe(tmp_path)
    run = run_recipe(recipe, out=tmp_path / "run").folder
    plan = plan_twins(recipe, 40, run)
    assert "the 40 best dialogues" in plan.chosen_from
    scores = pl.read_parquet(run / "scores.parquet")
    least = scores["mean_score"].sort(descending=True)[39]
    of = dict(zip(scores["content_hash"], scores["mean_score"], strict=True))
    assert all(of[pair.group] >= least for pair in plan.pairs)
    assert "not known" in plan_twins(recipe, 40, tmp_path / "absent").chosen_from


def test_a_judge_that_sees_no_flaw_gets_an_error_with_the_figure(
    judge: Judge, tmp_path: Path
) -> None:
    judge.signal = 0.0
    recipe = twins_recipe(tmp_path)
    with pytest.raises(UsageError, match=r"cannot tell planted twins apart[\s\S]*AUC 0\.\d\d"):
        fit_by_asking(recipe, plan_twins(recipe, 60), tmp_path / "replies.sqlite")


def test_the_sample_replaces_dialogues_with_too_little_room(tmp_path: Path) -> None:
    few = recipe_of(tmp_path / "few.jsonl", [chat(at) for at in range(12)])
    plan = plan_twins(few, 60)
    assert plan.chosen_from == "curate's sample dialogues, since the recipe's 12 have room for 24"
    assert len(plan.pairs) >= 40
    assert not {pair.prompt.id for pair in plan.pairs} & {f"d{at}" for at in range(12)}
    written = {row["id"]: row["flaw"] for path in sample_chats() for row in rows_of(path)}
    for pair in plan.pairs:
        flaw = written[pair.prompt.id]
        assert flaw is None or pair.turn < flaw["turn"]


def test_too_few_twins_are_refused_before_any_call(judge: Judge, tmp_path: Path) -> None:
    few = recipe_of(tmp_path / "few.jsonl", [chat(at) for at in range(30)])
    with pytest.raises(UsageError, match="20 twins, 20 requested"):
        plan_twins(few, 20)
    no_judge = few.model_copy(update={"models": few.models.model_copy(update={"judge": None})})
    with pytest.raises(UsageError, match="no judge is named"):
        plan_twins(no_judge, 60)
    assert not judge.requests


def test_a_judge_that_gives_only_letters_gets_no_curve(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = ScriptedEngine(judge, capabilities=frozenset({Capability.JSON_SCHEMA}))

    async def scripted(_: object) -> ScriptedEngine:
        return engine

    monkeypatch.setattr(model_pool, "open_engine", scripted)
    recipe = twins_recipe(tmp_path, judge={"mode": "json", "text": "off"})
    with pytest.raises(UsageError, match="log-probabilities") as refused:
        fit_by_asking(recipe, plan_twins(recipe, 60), tmp_path / "replies.sqlite")
    assert str(refused.value) == (
        "a curve needs a judge that gives log-probabilities\n"
        "  got: only letters\n"
        "  do: use an engine that gives them"
    )
    assert not judge.requests


def test_whole_json_scores_are_a_margin_beside_letters_read_by_log_probabilities(
    judge: Judge, tmp_path: Path
) -> None:
    recipe = twins_recipe(tmp_path, judge={"mode": "json", "text": "off"})
    curve = fit_by_asking(recipe, plan_twins(recipe, 60), tmp_path / "replies.sqlite")
    assert curve.identity.mode == "json"
    assert curve.pairs == 60
    assert curve.preference_weight > 0
    assert any(request.schema for request in judge.requests)


def test_a_judge_that_can_answer_about_too_few_says_why(judge: Judge, tmp_path: Path) -> None:
    recipe = twins_recipe(tmp_path, scenario=None)
    with pytest.raises(UsageError, match="0 of 60; unscored: missing_scenario 60"):
        fit_by_asking(recipe, plan_twins(recipe, 60), tmp_path / "replies.sqlite")


def test_a_judge_without_preference_is_not_asked_for_scores(judge: Judge, tmp_path: Path) -> None:
    judge.signal = 0.0
    recipe = twins_recipe(tmp_path)
    with pytest.raises(UsageError, match="cannot tell planted twins apart"):
        fit_by_asking(recipe, plan_twins(recipe, 60), tmp_path / "replies.sqlite")
    assert len(judge.requests) == 2 * 60
    assert all(request.purpose.endswith(".compare") for request in judge.requests)


def test_few_dialogues_give_two_twins_each_and_are_kept_together(
    judge: Judge, tmp_path: Path
) -> None:
    recipe = recipe_of(tmp_path / "few.jsonl", [chat(at) for at in range(30)])
    plan = plan_twins(recipe, 50)
    assert (len(plan.pairs), plan.dialogues) == (50, 30)
    curve = fit_by_asking(recipe, plan, tmp_path / "replies.sqlite")
    assert (curve.pairs, curve.dialogues) == (50, 30)


# --- labelled pairs of a file


def preferences(path: Path, agreeing: int, of: int) -> Path:
    """Rows of prompt, chosen and rejected; the original is the chosen side in so many of them."""
    rows = []
    for number in range(of):
        sides = [reply(number, 0), reply(number, 0).replace("You will", "You will not")]
        chosen, rejected = sides if number < agreeing else reversed(sides)
        prompt = f"Where is the thing of case {100 + number}, for the time 0?"
        rows.append({"id": f"g{number}", "prompt": prompt, "chosen": chosen, "rejected": rejected})
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        pl.DataFrame(rows).write_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_file_of_labelled_pairs_is_asked_about_and_gives_a_curve(
    judge: Judge, tmp_path: Path, kind: str
) -> None:
    gold = preferences(tmp_path / f"gold.{kind}", agreeing=50, of=50)
    recipe = twins_recipe(tmp_path)
    plan = plan_labelled(recipe, gold)
    assert not judge.requests
    curve = fit_by_asking(recipe, plan, tmp_path / "replies.sqlite")
    assert len(judge.requests) == plan.load.requests
    assert (curve.fitted_on, curve.source, curve.pairs) == ("labels", gold.name, 50)
    assert curve.auc > 0.9
    assert f"50 labelled pairs of {gold.name}" in curve.described
    check_fit("curve_of_a_file", curve.model_copy(update={"source": "gold"}))


def test_rows_of_a_file_that_give_no_pair_are_counted_and_named(
    judge: Judge, tmp_path: Path
) -> None:
    gold = preferences(tmp_path / "gold.jsonl", agreeing=50, of=50)
    same = {"id": "same", "prompt": "And?", "chosen": "So it is.", "rejected": "So it is."}
    with gold.open("a") as file:
        file.write(json.dumps(same) + "\n{broken\n")
    recipe = as_file(twins_recipe(tmp_path), tmp_path / "r.yaml")
    output = run_cli("calibrate", recipe, str(gold), "--pairs", "--dry-run")
    assert not judge.requests
    assert "50 labelled pairs of gold.jsonl" in output
    assert "not used: 1: dropped: identical; the first is dialogue same" in output
    assert re.search(r"not used: 1: cannot be read: \w+; the first is gold.jsonl, row 52", output)
    assert re.search(r"[\d,]+ requests", output)
    few = preferences(tmp_path / "few.jsonl", agreeing=9, of=9)
    with pytest.raises(UsageError, match="9 pairs"):
        plan_labelled(twins_recipe(tmp_path), few)


def test_a_judge_that_disagrees_with_a_file_of_pairs_gets_no_curve(
    judge: Judge, tmp_path: Path
) -> None:
    gold = preferences(tmp_path / "gold.jsonl", agreeing=25, of=50)
    recipe = twins_recipe(tmp_path)
    with pytest.raises(UsageError, match="cannot tell the better side of labelled pairs apart"):
        fit_by_asking(recipe, plan_labelled(recipe, gold), tmp_path / "replies.sqlite")


def test_choices_about_a_runs_pairs_give_a_curve_without_asking(
    judge: Judge, tmp_path: Path
) -> None:
    """The data has the sides wrong in 20 of 50, and people say so."""
    run = verified(tmp_path, agreeing=30).folder
    requests = len(judge.requests)
    pairs = written(run, "natural_pairs") + written(run, "dropped_pairs")
    rows = [
        {
            "pair_id": pair.pair_id,
            "better": "chosen" if is_right(pair) else "rejected",
            "rater": "a",
        }
        for pair in pairs
    ]
    first = rows[0]
    rows += [first | {"better": "chosen"}, first | {"better": "rejected"}, first]
    rows += [{"pair_id": "none", "better": "chosen"}, first | {"better": "both"}]
    gold = tmp_path / "choices.csv"
    pl.DataFrame(rows).write_csv(gold)
    curve, unused = fit_from_choices(run, gold)
    assert len(judge.requests) == requests
    assert curve.labelled == tuple(sorted(pair.pair_id for pair in pairs))
    check_fit("curve_of_choices", curve, unused=unused)
    assert (curve.fitted_on, curve.source, curve.pairs) == ("labels", "choices.csv", 50)
    assert curve.auc > 0.9
    assert unused.counts == {
        "the run's judge compared no pair of that id by log-probabilities": 1,
        "better is neither chosen nor rejected: 'both'": 1,
    }
    output = run_cli("calibrate", str(run), str(gold), "--pairs")
    assert "choices.csv" in output
    assert "not used: 1:" in output
    wrong = preferences(tmp_path / "gold.jsonl", agreeing=50, of=50)
    with pytest.raises(UsageError, match="`pair_id` and `better`"):
        fit_from_choices(run, wrong)


def test_of_a_rater_s_answers_with_a_time_the_last_is_a_choice(
    judge: Judge, tmp_path: Path
) -> None:
    run = verified(tmp_path, agreeing=50).folder
    rows = [
        {"pair_id": pair.pair_id, "better": "chosen", "rater": "a", "time": "2026-11-20T12:00:00"}
        for pair in written(run, "natural_pairs") + written(run, "dropped_pairs")
    ]
    changed = {"better": "rejected", "time": "2026-11-20T10:00:00"}
    gold = tmp_path / "review.jsonl"
    gold.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0] | changed]))
    curve, unused = fit_from_choices(run, gold)
    assert curve.pairs == len(rows) == 50
    assert unused.first == {ANSWERED_AGAIN: "review.jsonl:51"}


def is_right(pair: PreferencePair) -> bool:
    assert pair.chosen is not None
    return pair.chosen.content in ORIGINALS


# --- labels


def test_labelled_pairs_of_a_run_give_a_curve_without_asking(judge: Judge, tmp_path: Path) -> None:
    run = verified(tmp_path, agreeing=50).folder
    requests = len(judge.requests)
    curve = fit_from_run(run)
    assert (curve.fitted_on, curve.pairs) == ("labels", 50)
    check_fit("curve_of_a_run", curve)
    assert len(judge.requests) == requests
    with pytest.raises(UsageError, match="no labelled pair"):
        fit_from_run(run_recipe(twins_recipe(tmp_path), out=tmp_path / "other").folder)


def test_a_judge_that_agrees_with_the_labels_verifies(judge: Judge, tmp_path: Path) -> None:
    result = verified(tmp_path, agreeing=50)
    agreement = result.manifest.label_agreement
    assert agreement is not None
    assert (agreement.pairs, agreement.is_shown) == (50, True)
    assert result.manifest.position_spread is not None
    pairs = written(result.folder, "natural_pairs")
    assert {pair.check.decided_by for pair in pairs if pair.check} == {"uncalibrated"}
    dropped = written(result.folder, "dropped_pairs")
    assert {pair.drop_reason for pair in dropped} <= {
        "rejected_preferred",
        "below_margin",
        "other_dimension_fell",
    }
    assert len(pairs) + len(dropped) == 50
    for pair in pairs:
        assert pair.check is not None
        assert pair.check.preference is not None
        assert pair.check.preference >= result.manifest.position_spread
    assert any("without a curve" in warning for warning in result.manifest.warnings)
    assert "preference alone" in result.manifest.pair_decisions["natural"]


def test_a_judge_that_disagrees_with_the_labels_neither_drops_nor_verifies(
    judge: Judge, tmp_path: Path
) -> None:
    result = verified(tmp_path, agreeing=25)
    agreement = result.manifest.label_agreement
    assert agreement is not None
    assert not agreement.is_shown
    pairs = written(result.folder, "natural_pairs")
    assert (len(pairs), result.manifest.natural_drop_reasons) == (50, {})
    assert {pair.check.decided_by for pair in pairs if pair.check} == {"data"}
    assert result.manifest.pair_decisions["natural"].startswith("50 by the data alone")
    assert "not verified: the judge prefers" in shown(result)
    assert any("worth nothing on this data" in warning for warning in result.manifest.warnings)
    # The margin of such a judge must not train a reward model.
    assert result.manifest.exports["trl"].get("reward_natural", 0) == 0


def test_a_curve_decides_by_its_threshold_and_changing_it_asks_nothing(
    judge: Judge, tmp_path: Path
) -> None:
    verified(tmp_path, agreeing=50)
    curve = fit_from_run(tmp_path / "run")
    write_record(tmp_path / "curve.json", curve)
    requests = len(judge.requests)
    verify = {"check_specifics": False, "curve": str(tmp_path / "curve.json")}
    result = verified(tmp_path, agreeing=50, verify=verify)
    assert len(judge.requests) == requests
    assert result.manifest.identities["natural"] == curve.identity
    for name in ("natural_pairs", "dropped_pairs"):
        for pair in written(result.folder, name):
            assert pair.check is not None
            assert pair.check.decided_by == "labels"
            assert pair.check.probability is not None
            if pair.drop_reason is None:
                assert pair.check.probability >= curve.threshold
            elif pair.drop_reason == "below_margin":
                assert 0.5 < pair.check.probability < curve.threshold
    assert not any("without a curve" in warning for warning in result.manifest.warnings)
    # Summary, manifest and card say which curve decided, with its figures.
    decision = f"{result.manifest.natural_pairs} by a curve fitted to 50 labelled pairs of run: AUC {curve.auc:.2f}"
    assert result.manifest.pair_decisions["natural"].startswith(decision)
    assert decision in shown(result)
    card = "\n".join(_decisions(result.manifest))
    assert decision in card
    assert "of 50 natural pairs" in card


@pytest.mark.parametrize("section", ["natural", "fork"])
def test_the_curve_of_another_judge_is_refused_before_anything_is_asked(
    judge: Judge, tmp_path: Path, section: str
) -> None:
    verified(tmp_path, agreeing=50)
    curve = fit_from_run(tmp_path / "run")
    other = curve.model_copy(
        update={"identity": curve.identity.model_copy(update={"model": "another-judge"})}
    )
    judge.requests.clear()
    sections: dict[str, Any] = {
        "natural": {"natural": {"verify": {"curve": other.model_dump()}}},
        "fork": {
            "fork": {"curve": other.model_dump()},
            "models": dict.fromkeys(("judge", "policy"), SCRIPTED),
        },
    }[section]
    recipe = recipe_of(tmp_path / "pairs.jsonl", ranked(5, 5), **sections)
    with pytest.raises(UsageError, match="another-judge") as raised:
        run_recipe(recipe, out=tmp_path / "new")
    assert curve.identity.model in str(raised.value)
    assert not judge.requests


def test_a_curve_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "curve.json"
    file.write_text("{}")
    for path in (file, tmp_path / "absent.json"):
        with pytest.raises(UsageError, match="curve"):
            parse_recipe({"name": "x", "source": {"path": "y"}, "fork": {"curve": str(path)}})


# --- on the command line


def run_cli(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def as_file(recipe: Recipe, path: Path) -> str:
    path.write_text(json.dumps(recipe.model_dump(mode="json", exclude_unset=True)))
    return str(path)


def test_calibrate_twins_says_the_cost_asks_and_writes_the_curve(
    judge: Judge, tmp_path: Path
) -> None:
    prices = {"engine": "scripted", "replies": [], "prices": {"input": 1.0, "output": 2.0}}
    recipe = as_file(twins_recipe(tmp_path, models={"judge": prices}), tmp_path / "r.yaml")
    output = run_cli("calibrate", recipe, "--twins", "60", "--dry-run")
    assert not judge.requests
    assert "60 twins" in output
    assert re.search(r"[\d,]+ requests, about [\d,]+ prompt tokens", output)
    assert "cost at most" in output
    assert not (tmp_path / "pair-curve.json").exists()
    output = run_cli("calibrate", recipe, "--twins", "60", "--precision", "0.8")
    curve = PairCurve.model_validate_json((tmp_path / "pair-curve.json").read_bytes())
    assert curve.precision == 0.8
    assert "prefer labelled pairs" in output
    assert "AUC" in output
    assert all(kind in output for kind in curve.kinds)
    assert "curve: pair-curve.json" in output
    requests = len(judge.requests)
    as_json = json.loads(
        run_cli("calibrate", recipe, "--twins", "60", "--precision", "0.8", "--json")
    )
    assert as_json == curve.model_dump(mode="json") | {"unused": {}}
    assert len(judge.requests) == requests


def test_calibrate_pairs_reads_a_run(judge: Judge, tmp_path: Path) -> None:
    run = verified(tmp_path, agreeing=50).folder
    output = run_cli("calibrate", str(run), "--pairs", "--out", "c.json")
    assert "fitted to 50 labelled pairs" in output
    assert "coarse" not in output
    assert fit_from_run(run) == PairCurve.model_validate_json((tmp_path / "c.json").read_bytes())


def test_a_recipe_that_names_the_curve_to_be_written_is_calibrated(
    judge: Judge, tmp_path: Path
) -> None:
    recipe = json.loads(Path(as_file(twins_recipe(tmp_path), tmp_path / "r.json")).read_text())
    recipe["natural"] = {"verify": {"curve": "pair-curve.json"}}
    recipe["fork"] = {"curve": "pair-curve.json"}
    recipe["models"]["policy"] = SCRIPTED
    path = tmp_path / "named.yaml"
    path.write_text(json.dumps(recipe))
    run_cli("calibrate", str(path), "--twins", "60")
    assert load_recipe(path).natural.verification is not None


@pytest.mark.parametrize(
    "options", [["--twins", "60", "--pairs"], ["--pairs", "--precision", "1"], ["--pairs"]]
)
def test_calibrate_refuses_what_makes_no_sense(options: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        CliRunner().invoke(app, ["calibrate", str(tmp_path), *options], catch_exceptions=False)
