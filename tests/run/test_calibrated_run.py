"""Runs with a calibration: no call, levels in scores, verdicts and forks, and what a run says without one."""

from __future__ import annotations

import asyncio
import json
import math
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.api import judge_dialogues, load_dialogues, select
from curate.errors import UsageError
from curate.judging.config import RubricConfig
from curate.recipe import Recipe, ReuseConfig, parse_recipe
from curate.records import Calibration, CutPoints, GoodModel, Judgment, Unscored
from curate.run.pipeline import RunResult, run_recipe
from curate.run.plan import make_plan
from curate.run.verify import verify_run
from curate.selection.config import SelectConfig
from tests.live import live_server
from tests.servers import Body, CountingServer

QUALITIES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95)


def serve(body: Body) -> Body | str:
    """Says 4 of everything; how good the dialogue is shows in the rest of the distribution only."""
    texts = "\n".join(str(message.get("content") or "") for message in body["messages"])
    found = re.findall(r"Q=([\d.]+\d)", texts)
    if not body.get("logprobs"):
        return f"Another answer. Q={float(found[-1]) / 2 if found else 0.5}"
    quality = float(found[-1]) if found else 0.5
    if "verdict" in texts.split("</dialogue>")[-1]:
        return {"text": "A", "first_token": [("A", math.log(0.9))]}  # excellent
    shares = {"4": 0.55, "2": 0.4 * (1 - quality), "5": 0.4 * quality + 0.01, "N": 0.02}
    return {"text": "4", "first_token": [(token, math.log(part)) for token, part in shares.items()]}


def rows(*qualities: float) -> list[dict[str, Any]]:
    return [
        {
            "id": f"chat-{number}",
            "messages": [
                {"role": "user", "content": f"Question {number}?"},
                {"role": "assistant", "content": f"Well, here it is. Q={quality}"},
            ],
        }
        for number, quality in enumerate(qualities)
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(*QUALITIES)))
    return path


def recipe(server: CountingServer, data: Path, **sections: Any) -> Recipe:
    model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
    base: dict[str, Any] = {
        "name": "test",
        "source": {"path": str(data)},
        "scenario": "A person asks for help.",
        "models": {"judge": model, "policy": model},
        "adherence": False,
        "max_unscored": 1.0,
        "select": {"active": None},
    }
    return parse_recipe(base | sections)


def fitted(result: RunResult, *, model: str | None = None, **more: Any) -> Calibration:
    """Cuts half way between the expectations that this judge has."""
    identity = result.manifest.identities["judge"].uncalibrated()
    if model is not None:
        identity = identity.model_copy(update={"model": model})
    points = CutPoints(cuts=(3.5, 3.7, 3.9, 4.1), method="matched_shares", labels=15)
    levels = dict.fromkeys(("helpfulness", "context_use", "coherence", "task_completion"), points)
    levels["safety"] = CutPoints(cuts=(1.0, 1.0, 1.0, 1.0), method="matched_shares", labels=15)
    return Calibration(kind="calibration", identity=identity, levels=levels, **more)


def scores(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "scores.parquet")


def p_good(**more: Any) -> GoodModel:
    fields = {
        "features": ("min_helpfulness",), "means": (3.8,), "scales": (0.3,), "weights": (2.0,),
        "intercept": 0.0, "labels": 20, "good": 10, "brier": 0.2, "brier_without": 0.25,
    }  # fmt: skip
    return GoodModel.model_validate(fields | more)


def test_a_calibration_costs_no_call_and_everything_follows_it(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with live_server(answer=serve) as server:
        plain = run_recipe(recipe(server, data), out=out)
        before = scores(out)
        assert before["verdict"].unique().to_list() == ["poor"]  # safety is 4 throughout
        file = tmp_path / "calibration.json"
        file.write_text(fitted(plain).model_dump_json())
        asked = len(server.requests)
        calibrated = run_recipe(recipe(server, data, judge={"calibration": str(file)}), out=out)
        assert [body for body in server.requests[asked:] if "Question" in str(body)] == []
        after = scores(out)
        verification = verify_run(out)
        manifest = (out / "manifest.json").read_bytes()
        changed = json.loads(manifest)
        cuts = changed["recipe"]["judge"]["calibration"]["levels"]["safety"]["cuts"]
        cuts[:] = [cut + 0.01 for cut in cuts]
        (out / "manifest.json").write_bytes(json.dumps(changed).encode())
        of_other_cuts = verify_run(out)
        (out / "manifest.json").write_bytes(manifest)
        # forks go by the levels: dialogues whose turn is fine have none
        forked = run_recipe(
            recipe(
                server,
                data,
                judge={"calibration": str(file)},
                fork={"resamples": 1, "guided_revision": False},
            ),
            out=out,
        )
        forked_of = {
            json.loads(line)["dialogue_id"]
            for name in ("pairs", "dropped_pairs")
            for line in (out / "pairs" / f"{name}.jsonl").read_text().splitlines()
        }
        again = len(server.requests)
        run_recipe(recipe(server, data), out=out)
        assert [body for body in server.requests[again:] if "Question" in str(body)] == []
    assert after["verdict"].to_list() == [
        "poor", "borderline", "good", "excellent", "excellent", "excellent",
    ]  # fmt: skip
    assert after["weakest_turn"].to_list() == [1, 1, 1, None, None, None]
    assert after["mean_score"].to_list() == before["mean_score"].to_list()
    assert after["levels_calibrated"].all()
    assert not before["levels_calibrated"].any()
    assert verification.differences == ()
    assert verification.not_verified == (
        "judge.calibration: the labels that it was fitted to are not kept",
    )
    assert "judge" in {difference.place for difference in of_other_cuts.differences}
    assert scores(out).equals(before)
    assert set(after["judge_key"]).isdisjoint(before["judge_key"])
    assert plain.manifest.levels.startswith("levels are not calibrated")
    assert calibrated.manifest.levels.startswith("levels are calibrated: context_use, helpfulness")
    assert calibrated.manifest.verdicts == {"poor": 1, "borderline": 1, "good": 1, "excellent": 3}
    assert forked.manifest.funnels["fork"][0].entered == 3
    assert forked_of == {"chat-0", "chat-1", "chat-2"}


def test_without_a_calibration_the_better_half_is_selected_and_with_one_the_good(
    data: Path, tmp_path: Path
) -> None:
    with live_server(answer=serve) as server:
        plain = run_recipe(recipe(server, data), out=tmp_path / "plain")
        calibrated = run_recipe(
            recipe(server, data, judge={"calibration": fitted(plain).model_dump()}),
            out=tmp_path / "calibrated",
        )
    assert (plain.manifest.selected, plain.manifest.rejections) == (3, {"top": 3})
    assert calibrated.manifest.selected == 4
    assert calibrated.manifest.rejections == {"good_verdict": 2}


def test_a_calibration_of_another_judge_is_refused_before_any_call(
    data: Path, tmp_path: Path
) -> None:
    with live_server(answer=serve) as server:
        plain = run_recipe(recipe(server, data), out=tmp_path / "plain")
        asked = len(server.requests)
        foreign = fitted(plain, model="another-judge")
        wrong = recipe(server, data, judge={"calibration": foreign})
        with pytest.raises(UsageError, match="another judge") as caught:
            run_recipe(wrong, out=tmp_path / "run")
        with pytest.raises(UsageError, match="another judge"):
            asyncio.run(make_plan(wrong))
        two = {"calibration": fitted(plain).model_dump(), "paraphrases": 2}
        with pytest.raises(UsageError, match="other settings of it") as other_way:
            run_recipe(recipe(server, data, judge=two), out=tmp_path / "run")
        assert other_way.value.got == "paraphrases 2"
        assert [body for body in server.requests[asked:] if "Question" in str(body)] == []
    assert "fake-judge" in str(caught.value.got)
    assert "another-judge" in str(caught.value.expected)


def test_judgments_of_another_run_are_calibrated_with_and_without_a_model(
    data: Path, tmp_path: Path
) -> None:
    with live_server(answer=serve) as server:
        plain = run_recipe(recipe(server, data), out=tmp_path / "plain")
        judge = {"calibration": fitted(plain)}
        asked = len(server.requests)
        reuse = str(tmp_path / "plain")
        sections = {"judge": judge, "reuse": {"run": reuse, "required": True}}
        run_recipe(recipe(server, data, **sections), out=tmp_path / "with")
        assert [body for body in server.requests[asked:] if "Question" in str(body)] == []
        more = tmp_path / "more.jsonl"
        more.write_text("".join(json.dumps(row) + "\n" for row in rows(*QUALITIES, 0.6)))
        sections["reuse"] = {"run": str(tmp_path / "with"), "required": True}
        with pytest.raises(UsageError) as caught:
            run_recipe(recipe(server, more, **sections), out=tmp_path / "more")
        assert "1 of 7 dialogues have no judge row" in str(caught.value)
        assert "they are not in that run, as 'chat-6'" in str(caught.value)
    alone = parse_recipe(
        {
            "name": "alone",
            "source": {"path": str(data)},
            "scenario": "A person asks for help.",
            "adherence": False,
            "reuse": reuse,
            "judge": judge,
        }
    )
    run_recipe(alone, out=tmp_path / "alone")
    verdicts = scores(tmp_path / "with")["verdict"].to_list()
    assert verdicts == scores(tmp_path / "alone")["verdict"].to_list()
    assert verdicts[-1] == "excellent"
    # and a run without a calibration takes calibrated rows as they are
    other = ReuseConfig(run=tmp_path / "alone")
    bare = alone.model_copy(update={"judge": RubricConfig(), "reuse": other})
    taken = run_recipe(bare, out=tmp_path / "bare").manifest
    assert taken.levels == "levels are calibrated, as in the run they are taken from."
    assert scores(tmp_path / "bare")["verdict"].to_list() == verdicts


def test_a_mismatch_is_rejected_by_the_levels(data: Path, tmp_path: Path) -> None:
    with live_server(answer=serve) as server:
        plain = run_recipe(recipe(server, data), out=tmp_path / "plain")
        judge = {"calibration": fitted(plain), "on_mismatch": "reject"}
        strict = run_recipe(recipe(server, data, judge=judge), out=tmp_path / "plain")
    # the judge says excellent of all
    assert strict.manifest.stages["judge"].reasons == {"rejected_mismatch": 3}
    assert strict.manifest.verdicts == {"excellent": 3}


def test_p_good_is_a_column_and_refused_without_what_it_is_made_of(
    data: Path, tmp_path: Path
) -> None:
    where = {"where": {"likely_good": "p_good >= 0.5"}, "active": None}
    with live_server(answer=serve) as server:
        plain = run_recipe(recipe(server, data), out=tmp_path / "run")
        assert scores(tmp_path / "run")["p_good"].null_count() == 6
        asked = len(server.requests)
        for sections in (
            {"select": where},
            {"select": {"where": {}, "top": {"fraction": 0.5, "by": "p_good"}}},
            {"fork": {"where": "p_good < 0.2"}},
            {"select": where, "judge": {"calibration": fitted(plain)}},
        ):
            with pytest.raises(UsageError, match="reads p_good"):
                run_recipe(recipe(server, data, **sections), out=tmp_path / "run")
        good = fitted(plain).model_copy(update={"good": p_good(), "levels": {}})
        made = run_recipe(
            recipe(server, data, judge={"calibration": good}, select=where), out=tmp_path / "run"
        )
        of_adherence = good.model_copy(
            update={"good": p_good(features=("adherence",), adherence=good.identity)}
        )
        with pytest.raises(UsageError, match="role adherence"):
            run_recipe(
                recipe(server, data, judge={"calibration": of_adherence}), out=tmp_path / "run"
            )
        assert [body for body in server.requests[asked:] if "Question" in str(body)] == []
    table = scores(tmp_path / "run")
    assert table["p_good"].is_sorted()
    assert table["p_good"].is_between(0, 1).all()
    assert made.manifest.selected == table.filter(pl.col("p_good") >= 0.5).height == 4
    assert made.manifest.levels.startswith("levels are not calibrated")


def test_the_python_api_calibrates_too(data: Path) -> None:
    with live_server(answer=serve) as server:
        model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
        dialogues = load_dialogues(data, scenario="A person asks for help.").dialogues
        plain = judge_dialogues(dialogues, model)
        first = plain[0]
        assert isinstance(first, Judgment)
        points = CutPoints(cuts=(3.5, 3.7, 3.9, 4.1), method="kappa")
        made = Calibration(
            kind="calibration", identity=first.identity, levels={"coherence": points}, good=p_good()
        )
        after = judge_dialogues(dialogues, model, RubricConfig(calibration=made))
    levels = [row.conversation_level.coherence.score for row in after if isinstance(row, Judgment)]
    assert levels == sorted(levels)
    assert len(set(levels)) > 3
    assert not any(isinstance(row, Unscored) for row in after)
    config = SelectConfig(where={"likely_good": "p_good >= 0.5"}, active=None)
    chosen = select(dialogues, after, config=config, calibration=made)
    assert ["sft" in decision.sets for decision in chosen] == [False, False, True, True, True, True]
