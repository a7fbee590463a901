"""Runs with a jury and with a cascade: the calls of each judge, the kept replies, and the reports."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.api import judge_dialogues, load_dialogues
from curate.engines.config import OpenAIConfig
from curate.errors import UsageError
from curate.executors.loop import run as run_in_loop
from curate.publishing.card import _judges
from curate.recipe import Recipe, parse_recipe
from curate.records import Judgment, TrustKind, Unscored
from curate.records.validation import validate_record
from curate.run.audit import audit_run, plan_second_judging
from curate.run.labels.agreement import measure_agreement
from curate.run.labels.cascade_fit import fit_cascade
from curate.run.labels.certify import certify_run
from curate.run.labels.populations import used_to_fit
from curate.run.labels.question import Question
from curate.run.labels.run_scores import adherence_of
from curate.run.pipeline import RunResult, run_recipe
from curate.run.plan import make_plan
from curate.stages import bind_stages, model_pool
from curate.storage.whole_files import write_record
from tests.live import live_server
from tests.run.fits import check_fit
from tests.servers import Body, CountingServer

SURE = {"5": 0.97, "4": 0.03}
UNSURE = {"5": 0.5, "1": 0.48, "4": 0.02}
POOR = {"1": 0.95, "2": 0.05}


def serve(body: Body) -> Body | str:
    """`large` knows that hard dialogues are bad; `small` does not, and is unsure of them; `odd` finds all bad."""
    texts = "\n".join(str(message.get("content") or "") for message in body["messages"])
    if not body.get("logprobs"):
        return "words"
    if "verdict" in texts.split("</dialogue>")[-1]:
        return {"text": "A", "first_token": [("A", math.log(0.9))]}
    is_hard, model = "hard" in texts, body["model"]
    shares = SURE
    if model == "odd" or (model in ("large", "third") and is_hard):
        shares = POOR
    elif model == "small" and is_hard:
        shares = UNSURE
    first = [(token, math.log(share)) for token, share in shares.items()]
    return {
        "text": first[0][0],
        "first_token": first,
        "usage": {"prompt_tokens": 300 if model == "large" else 100, "completion_tokens": 1},
    }


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with live_server(answer=serve, models=("small", "large", "third", "odd")) as running:
        yield running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Thirty dialogues, every third of them hard."""
    path = tmp_path / "chats.jsonl"
    rows = [
        {
            "id": f"chat-{number}",
            "messages": [
                {
                    "role": "user",
                    "content": f"Question {number}, {'easy' if number % 3 else 'hard'}?",
                },
                {"role": "assistant", "content": f"Answer {number}."},
            ],
        }
        for number in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def model(server: CountingServer, name: str, **more: Any) -> dict[str, Any]:
    return {"engine": "openai", "model": name, "base_url": server.base_url, **more}


def recipe(data: Path, models: dict[str, Any], **sections: Any) -> Recipe:
    base: dict[str, Any] = {
        "name": "test",
        "source": {"path": str(data)},
        "scenario": "A person asks for help.",
        "models": models,
        "judge": {"text": "off"},
        "adherence": False,
        "select": {"active": None, "where": {}},
        "max_unscored": 1.0,
    }
    return parse_recipe(base | sections)


def jury(server: CountingServer, data: Path, *names: str, **sections: Any) -> Recipe:
    return recipe(data, {"judges": [model(server, name) for name in names]}, **sections)


def cascade(server: CountingServer, data: Path, **rule: Any) -> Recipe:
    small, large = model(server, "small"), model(server, "large")
    return recipe(data, {"judge": {"cascade": [small, large], **rule}})


def is_about_a_dialogue(body: Body) -> bool:
    return "Question" in json.dumps(body)


def asked(server: CountingServer, run: Callable[[], Any]) -> tuple[Any, Counter[str]]:
    """Return a result, and how often each model was asked about a dialogue for it (probes contain none)."""
    before = len(server.requests)
    result = run()
    return result, Counter(
        body["model"] for body in server.requests[before:] if is_about_a_dialogue(body)
    )


def table(result: RunResult) -> pl.DataFrame:
    return pl.read_parquet(result.folder / "scores.parquet")


def test_a_jurys_majority_decides_and_its_disagreement_is_a_column(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    names = ("large", "third", "odd")
    review = "jury_disagreement > 2"
    chosen = jury(server, data, *names, select={"where": {}, "active": None, "review": review})
    result, calls = asked(server, lambda: run_recipe(chosen, out=tmp_path / "run"))
    manifest, scores = result.manifest, table(result)
    assert manifest.verdicts == {"excellent": 20, "poor": 10}
    assert len({*calls.values()}) == 1
    assert calls.keys() == {*names}
    apart = scores.select("verdict", "jury_disagreement").group_by("verdict").mean().to_dicts()
    disagreement = {row["verdict"]: row["jury_disagreement"] for row in apart}
    assert disagreement["poor"] == pytest.approx(0)
    assert disagreement["excellent"] == pytest.approx(2 / 3 * (4.97 - 1.05))
    assert manifest.sets["review"] == 20
    assert scores["uncertainty"].max() > 0.5  # which the active-learning set goes by
    identity = manifest.identities["judge"]
    assert (identity.engine, identity.model) == ("jury", "large + third + odd")
    assert [one["model"] for one in identity.sampling["judges"]] == [*names]
    assert manifest.jury is not None
    assert manifest.jury.same_verdict == 10
    apart_by = {member.judge: member.apart for member in manifest.jury.members}
    assert max(apart_by, key=lambda name: apart_by[name]).endswith("odd")
    assert [row[2] for row in _judges(manifest)] == [*names]
    validate_record("manifest", json.loads((result.folder / "manifest.json").read_text()))


def test_a_jury_is_estimated_and_its_replies_are_kept_for_each(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    prices = {"input": 1.0, "output": 1.0}
    models = {"judges": [model(server, name, prices=prices) for name in ("small", "large", "odd")]}
    chosen = recipe(data, models)
    plan = run_in_loop(make_plan(chosen, out=tmp_path / "run"))
    result, calls = asked(server, lambda: run_recipe(chosen, out=tmp_path / "run"))
    assert plan.estimate is not None
    assert plan.estimate.total.requests == calls.total()
    assert plan.estimate.cost is not None
    # Another rule makes the rows anew, from the kept replies of each judge.
    other = chosen.model_copy(
        update={"judge": chosen.judge.model_copy(update={"jury": "minimum"})}  # type: ignore[union-attr]
    )
    again, calls = asked(server, lambda: run_recipe(other, out=tmp_path / "run"))
    assert calls.total() == 0
    assert again.manifest.verdicts == {"poor": 30}
    assert again.manifest.fingerprints["judge"] != result.manifest.fingerprints["judge"]
    rest = run_in_loop(make_plan(chosen, out=tmp_path / "run")).left
    assert rest is not None
    assert rest.total.requests == 0


def test_retrying_asks_the_judge_that_failed_and_no_other(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    def fails(body: Body) -> Body | str:
        if body["model"] == "third" and body.get("logprobs") and "Question 3," in json.dumps(body):
            return {"text": "The", "first_token": [("The", math.log(0.99))]}
        return serve(body)

    server.answer = fails
    chosen = jury(server, data, "large", "third", "odd", judge={"text": "off", "retries": 0})
    result = run_recipe(chosen, out=tmp_path / "run")
    assert result.manifest.stages["judge"].reasons == {"low_coverage": 1}
    server.answer = serve
    again, calls = asked(
        server, lambda: run_recipe(chosen, out=tmp_path / "run", retry_unscored=True)
    )
    assert again.manifest.unscored == 0
    assert calls.keys() == {"third"}


def test_without_a_threshold_a_cascade_asks_both_and_a_threshold_is_fitted_to_that(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    first, calls = asked(server, lambda: run_recipe(cascade(server, data), out=tmp_path / "both"))
    assert calls["small"] == calls["large"] > 0
    assert first.manifest.verdicts == {"excellent": 20, "poor": 10}
    assert first.manifest.cascade is not None
    assert (first.manifest.cascade.share, first.manifest.cascade.lost_share) == (1.0, 0.0)

    fit, _ = fit_cascade(tmp_path / "both")
    assert (fit.dialogues, fit.kept, fit.lost) == (30, 20, 0)
    check_fit("cascade_by_its_second_judge", fit)
    assert fit.lost_at_most == pytest.approx(1 - 0.1 ** (1 / 30))
    write_record(tmp_path / "cascade.json", fit)
    validate_record("cascade-fit", json.loads((tmp_path / "cascade.json").read_text()))

    fitted = cascade(server, data, fit=str(tmp_path / "cascade.json"), check=0)
    plan = run_in_loop(make_plan(fitted, out=tmp_path / "fitted"))
    result, calls = asked(server, lambda: run_recipe(fitted, out=tmp_path / "fitted"))
    # Exactly the ten hard ones go to the large judge, as the estimate says.
    assert (calls["small"], calls["large"]) == (calls["small"], calls["small"] // 3)
    assert plan.estimate is not None
    assert plan.estimate.total.requests == calls.total()
    assert result.manifest.verdicts == first.manifest.verdicts
    report = result.manifest.cascade
    assert report is not None
    assert (report.escalated, report.share, report.checked) == (10, pytest.approx(1 / 3), 0)
    assert report.lost_share is None
    assert "none was checked" in report.sentence
    # On the twenty it was not asked about the large judge would use three times the small one's tokens, and a bit.
    each = report.tokens[1] / 10
    assert report.tokens_saved == pytest.approx(20 * each, rel=0.01)

    _, calls = asked(server, lambda: run_recipe(fitted, out=tmp_path / "both"))
    assert calls.total() == 0  # all of it was kept


def test_what_a_cascade_loses_is_measured_on_the_dialogues_it_checks(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    # The small judge decides all, the hard ones wrongly; both are asked about all.
    chosen = cascade(server, data, threshold=1.0, check=1.0)
    result = run_recipe(chosen, out=tmp_path / "run")
    report = result.manifest.cascade
    assert report is not None
    assert (report.escalated, report.checked, report.lost) == (0, 30, 10)
    assert report.lost_share == pytest.approx(1 / 3)
    assert result.manifest.verdicts == {"excellent": 30}
    assert table(result)["jury_disagreement"].null_count() == 0


def test_people_say_what_a_cascade_loses(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(cascade(server, data), out=tmp_path / "run")
    gold = tmp_path / "gold.csv"
    # People find every dialogue good, so the large judge is the one that errs and nothing is lost without it.
    gold.write_text(
        "id,dimension,value\n"
        + "".join(f"chat-{n},accept,yes\n" for n in range(29))
        + "other,accept,yes\n"
    )
    fit, unused = fit_cascade(tmp_path / "run", gold)
    assert (fit.truth, fit.dialogues, fit.kept, fit.lost) == ("people", 29, 29, 0)
    check_fit("cascade_by_people", fit, unused=unused)
    assert sum(unused.counts.values()) == 1
    assert len(fit.labelled) == 29  # which may not certify what it selects


def test_labels_that_fitted_a_cascade_do_not_certify_it(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(cascade(server, data), out=tmp_path / "run")
    gold = tmp_path / "gold.csv"
    gold.write_text("id,dimension,value\n" + "".join(f"chat-{n},accept,yes\n" for n in range(25)))
    fit, _ = fit_cascade(tmp_path / "run", gold)
    write_record(tmp_path / "cascade.json", fit)
    fitted = cascade(server, data, fit=str(tmp_path / "cascade.json"))
    result = run_recipe(fitted, out=tmp_path / "run")
    assert used_to_fit(result.manifest, False) == {*fit.labelled}
    unfitted = run_recipe(cascade(server, data, threshold=0.3), out=tmp_path / "run")
    assert not used_to_fit(unfitted.manifest, False)


def test_a_cascade_that_loses_more_than_it_was_fitted_for_says_so(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(cascade(server, data), out=tmp_path / "both")
    fit, _ = fit_cascade(tmp_path / "both", risk=0.2)
    write_record(tmp_path / "cascade.json", fit)
    chosen = cascade(server, data, fit=str(tmp_path / "cascade.json"), check=1.0)
    calm = run_recipe(chosen, out=tmp_path / "calm").manifest
    assert not any("was fitted to lose" in warning for warning in calm.warnings)

    def drifted(body: Body) -> Body | str:
        return serve(body | {"model": "odd"} if body["model"] == "large" else body)

    server.answer = drifted  # now the large judge finds all bad
    lost = run_recipe(chosen, out=tmp_path / "drifted").manifest
    assert lost.cascade is not None
    assert (lost.cascade.checked, lost.cascade.lost) == (20, 20)
    [warning] = [warning for warning in lost.warnings if "was fitted to lose" in warning]
    assert "at most 20.0%" in warning


def test_a_certificate_of_a_cascade_is_of_its_final_scores_and_of_no_other_cascade(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    models = cascade(server, data, threshold=0.3).models.model_dump(mode="json", exclude_none=True)
    scored = recipe(data, models)
    run_recipe(scored, out=tmp_path / "run")
    gold, out = tmp_path / "gold.csv", tmp_path / "certificate.json"
    rows = (f"chat-{n},accept,{'yes' if n % 3 else 'no'}\n" for n in range(30))
    gold.write_text("id,dimension,value\n" + "".join(rows))
    question = Question(risk=0.2, of="scored", column="mean_score")
    certificate = certify_run(tmp_path / "run", gold, question)
    # The small judge alone finds all thirty excellent; the cascade's scores tell the ten bad ones apart.
    assert (certificate.issued, certificate.certified.size) == (True, 20)
    assert certificate.identities["judge"].engine == "cascade"
    write_record(out, certificate)
    select = {"certificate": str(out), "active": None}
    same = run_recipe(recipe(data, models, select=select), out=tmp_path / "run")
    assert same.manifest.trust[TrustKind.CERTIFICATE] == certificate.sentence
    assert same.sft.num_rows == 20
    other = cascade(server, data, threshold=0.9).models.model_dump(mode="json", exclude_none=True)
    with pytest.raises(UsageError, match=r"select\.certificate"):
        run_recipe(recipe(data, other, select=select), out=tmp_path / "other")


def test_a_calibration_is_of_the_jury_as_it_is_put_together(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    result = run_recipe(jury(server, data, "large", "third", "odd"), out=tmp_path / "run", limit=3)
    identity = result.manifest.identities["judge"].model_dump(mode="json")
    cuts = {"method": "given_shares", "cuts": [1.01, 1.02, 4.98, 4.99]}
    calibration = {"kind": "calibration", "identity": identity, "levels": {"helpfulness": cuts}}
    judge = {"text": "off", "calibration": calibration}
    same = jury(server, data, "large", "third", "odd", judge=judge)
    calibrated, calls = asked(server, lambda: run_recipe(same, out=tmp_path / "run", limit=3))
    assert calls.total() == 0
    assert calibrated.manifest.verdicts == {"good": 2, "poor": 1}  # an expectation of 4.97 is a 3
    for other in (
        jury(server, data, "large", "third", "odd", judge={**judge, "jury": "minimum"}),
        jury(server, data, "large", "third", "small", judge=judge),
        jury(server, data, "large", "odd", judge=judge),
    ):
        with pytest.raises(UsageError, match="fitted to another judge"):
            run_recipe(other, out=tmp_path / "other", limit=3)


def test_a_jury_judges_again_and_compares_together(data: Path, tmp_path: Path) -> None:
    """Wherever a dialogue is judged all are asked: with another scenario, too."""
    with live_server(models=("small", "large")) as server:
        chosen = jury(
            server,
            data,
            "small",
            "large",
            role="A clerk.",
            adherence={"output_mode": "binary"},
            judge={"text": "off", "persona_check": 3},
            fork={"resamples": 1, "where": "verdict != 'excellent'", "at": "earliest"},
        )
        policy = {"policy": model(server, "large")}
        chosen = parse_recipe(
            chosen.model_dump(mode="json", exclude={"models"})
            | {"models": {"judges": [model(server, "small"), model(server, "large")], **policy}}
        )
        rows = [json.loads(line) for line in data.read_text().splitlines()]
        for number, row in enumerate(rows):
            row["scenario"] = f"Scenario {number % 2}."
        data.write_text("".join(json.dumps(row) + "\n" for row in rows[:6]))
        result = run_recipe(chosen, out=tmp_path / "run")
    manifest = result.manifest
    assert manifest.identities["adherence"].model == "small + large"
    assert manifest.stages["persona"].rows == 3
    persona = next((result.folder / "persona").iterdir())
    assert manifest.identities["judge"].model == "small + large"
    assert persona.is_dir()
    pairs = [
        json.loads(line)
        for name in ("pairs", "dropped_pairs")
        for line in (result.folder / f"pairs/{name}.jsonl").read_text().splitlines()
    ]
    compared = {pair["judge"] for pair in pairs if pair["judge"]}
    assert compared == {"openai:small + openai:large"}


IN_ROLE = {"large": 0.9, "third": 0.7, "odd": 0.1, "small": 0.5}


def in_role(body: Body) -> Body | str:
    """Judges who differ in how well the role is kept, in metrics and in which side is better."""
    texts = "\n".join(str(message.get("content") or "") for message in body["messages"])
    model = body["model"]
    if not body.get("logprobs"):
        return '{"response_delivery": {"failure_code": "rude_reply", "turns": [1]}}'
    if "ONLY with YES" in texts:
        yes = IN_ROLE[model]
        return {"text": "YES", "first_token": [("YES", math.log(yes)), ("NO", math.log(1 - yes))]}
    digit = {"large": "5", "third": "3", "odd": "1", "small": "4"}[model]
    return {"text": digit, "first_token": [(digit, math.log(0.98)), ("2", math.log(0.001))]}


def test_a_jury_scores_the_role_and_metrics_together(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    server.answer = in_role
    sections = {
        "role": "A clerk.",
        "adherence": {},
        "metrics": {"choose": ["response_delivery"]},
        "judge": {"text": "off", "jury": {"metrics": "minimum"}},
    }
    names = ("large", "third", "odd")
    chosen = jury(server, data, *names, **sections)
    plan = run_in_loop(make_plan(chosen, out=tmp_path / "run", limit=4))
    result, calls = asked(server, lambda: run_recipe(chosen, out=tmp_path / "run", limit=4))
    assert calls.keys() == {*names}
    assert plan.estimate is not None
    identity = result.manifest.identities["adherence"]
    assert (identity.engine, identity.model) == ("jury", "large + third + odd")
    row = table(result).row(0, named=True)
    assert row["adherence"] == pytest.approx(0.7, abs=0.01)
    assert row["adherence_disagreement"] == pytest.approx((0.2 + 0.8 + 0.6) / 3, abs=0.01)
    assert row["overall_score"] == pytest.approx(20)  # 1 of 5, the lowest
    assert row["metrics_disagreement"] == pytest.approx((2 + 4 + 2) / 3 / 5, abs=0.01)
    for record in adherence_of(result.folder, needed=True).values():
        scores = [one.scores["1"] for one in record.opinions]
        assert scores == pytest.approx([0.9, 0.7, 0.1], abs=0.01)
    # Another rule costs no call.
    sections["judge"] = {"text": "off", "jury": {"adherence": "minimum"}}
    other = jury(server, data, *names, **sections)
    again, calls = asked(server, lambda: run_recipe(other, out=tmp_path / "run", limit=4))
    assert calls.total() == 0
    assert table(again)["adherence"].to_list() == pytest.approx([0.1] * 4, abs=0.01)
    assert table(again)["overall_score"].to_list() == pytest.approx([60] * 4)


def test_a_judge_that_cannot_score_the_role_is_named_and_asked_again_alone(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    def fails(body: Body) -> Body | str:
        reply = in_role(body)
        if body["model"] == "third" and isinstance(reply, dict) and reply["text"] == "YES":
            return {"text": "The", "first_token": [("The", math.log(0.9999))]}
        return reply

    server.answer = fails
    chosen = jury(server, data, "large", "third", role="A clerk.", adherence={})
    result = run_recipe(chosen, out=tmp_path / "run", limit=2)
    assert result.manifest.stages["adherence"].reasons == {"low_coverage": 2}
    server.answer = in_role
    again, calls = asked(
        server, lambda: run_recipe(chosen, out=tmp_path / "run", limit=2, retry_unscored=True)
    )
    assert again.manifest.unscored == 0
    assert calls == {"third": 2}


def test_a_cascade_leaves_the_role_to_its_large_judge_and_says_so(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    server.answer = in_role
    models = cascade(server, data, threshold=1.0, check=0).models.model_dump(mode="json")
    chosen = recipe(data, {"judge": models["judge"]}, role="A clerk.", adherence={})
    plan = run_in_loop(make_plan(chosen, out=tmp_path / "run", limit=4))
    assert plan.estimate is not None
    assert any("a cascade divides the rubric" in text for text in plan.estimate.assumptions)
    result, calls = asked(server, lambda: run_recipe(chosen, out=tmp_path / "run", limit=4))
    assert result.manifest.identities["adherence"].model == "large"
    assert calls["large"] == 4


def test_a_jurys_run_is_audited(server: CountingServer, data: Path, tmp_path: Path) -> None:
    chosen = jury(server, data, "large", "third", "odd")
    run_recipe(chosen, out=tmp_path / "run")
    plain = audit_run(tmp_path / "run")
    assert {check.part for check in plain.checks} >= {"weakest turns", "collapsed scores"}
    second = plan_second_judging(tmp_path / "run", 0.05)
    again, calls = asked(server, lambda: audit_run(tmp_path / "run", second))
    assert calls.keys() == {"large", "third", "odd"}  # each of them a second time
    assert any(check.part == "asked again" for check in again.checks)


def test_agreement_says_how_many_votes_a_jury_is(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    """Judges that err alike are one vote, and none is worth more than the best of them."""
    run_recipe(jury(server, data, "large", "third", "small"), out=tmp_path / "run")
    gold = tmp_path / "gold.csv"
    values = [(4 if n % 3 else 1) + n % 2 for n in range(30)]  # hard ones 1 or 2, easy ones 4 or 5
    gold.write_text(
        "id,turn,dimension,value\n"
        + "".join(f"chat-{n},1,helpfulness,{value}\n" for n, value in enumerate(values))
    )
    measured = measure_agreement(tmp_path / "run", gold)
    figures = measured.report.dimensions["helpfulness"].jury
    assert figures is not None
    assert (figures.judges, figures.items) == (3, 30)
    assert figures.votes == pytest.approx(1, abs=0.01)
    assert not figures.recommended
    run_recipe(cascade(server, data), out=tmp_path / "cascade")
    of_cascade = measure_agreement(tmp_path / "cascade", gold).report
    assert of_cascade.dimensions["helpfulness"].jury is None


def test_it_says_so_of_the_role_and_of_metrics(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    """Judges whose answers follow the number of the question, each with errors of its own."""

    def numbered(body: Body) -> Body | str:
        texts = "\n".join(str(message.get("content") or "") for message in body["messages"])
        match = re.search(r"Question (\d+)", texts)
        if match is None or not body.get("logprobs"):
            return in_role(body)
        number, factor = int(match[1]), {"large": 2, "third": 3, "odd": 4}[body["model"]]
        if "ONLY with YES" in texts:
            yes = 0.2 + 0.5 * (number % 3 > 0) + 0.02 * (number * factor % 7)
            return {
                "text": "YES",
                "first_token": [("YES", math.log(yes)), ("NO", math.log(1 - yes))],
            }
        digit = str((number + ((number + factor) % 7 == 0)) % 6)
        return {"text": digit, "first_token": [(digit, math.log(0.9)), ("N", math.log(0.01))]}

    server.answer = numbered
    scored = {"role": "A clerk.", "adherence": {}, "metrics": {"choose": ["response_delivery"]}}
    chosen = jury(server, data, "large", "third", "odd", judge=False, select=False, **scored)
    run_recipe(chosen, out=tmp_path / "run")
    gold = tmp_path / "gold.csv"
    label_of = {
        "adherence": lambda n: "yes" if n % 3 else "no",
        "metric_response_delivery": lambda n: n % 6,
    }
    gold.write_text(
        "id,dimension,value\n"
        + "".join(f"chat-{n},{name},{of(n)}\n" for n in range(30) for name, of in label_of.items())
    )
    report = measure_agreement(tmp_path / "run", gold).report
    for name in label_of:
        figures = report.dimensions[name].jury
        assert figures is not None, name
        assert (figures.judges, figures.items) == (3, 30)
        assert figures.spearman > 0.5


def test_a_small_sample_gives_no_threshold(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(cascade(server, data), out=tmp_path / "run", limit=10)
    with pytest.raises(UsageError, match="too few dialogues"):
        fit_cascade(tmp_path / "run")
    run_recipe(jury(server, data, "small", "large"), out=tmp_path / "jury", limit=2)
    with pytest.raises(UsageError, match="has no cascade"):
        fit_cascade(tmp_path / "jury")


def test_what_cannot_be_is_refused_before_a_call(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(cascade(server, data), out=tmp_path / "run")
    fit, _ = fit_cascade(tmp_path / "run")
    write_record(tmp_path / "cascade.json", fit)
    before = len(server.requests)
    odd = {
        "cascade": [model(server, "odd"), model(server, "large")],
        "fit": str(tmp_path / "cascade.json"),
    }
    with pytest.raises(UsageError, match="fitted to another judge"):
        run_recipe(recipe(data, {"judge": odd}), out=tmp_path / "other")
    plain = cascade(server, data).model_copy(
        update={"judge": cascade(server, data).judge.model_copy(update={"mode": "json"})}
    )  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="gives no readings"):
        run_recipe(plain, out=tmp_path / "json")
    for models, message in (
        ({"judges": [model(server, "odd")]}, "a jury needs two judges"),
        ({"judges": [model(server, "odd")] * 2}, "same model"),
        (
            {
                "judges": [model(server, "odd"), model(server, "large")],
                "judge": model(server, "odd"),
            },
            "not both",
        ),
        ({"judge": {"cascade": [model(server, "odd")]}}, "cascade"),
        ({"judge": {**odd, "threshold": 0.1}}, "either threshold or fit"),
        ({"judge": {"cascade": odd["cascade"], "threshold": 2}}, "threshold"),
    ):
        with pytest.raises(UsageError, match=message):
            recipe(data, models)
    lone = {"judge": model(server, "odd")}
    reviewing = recipe(data, lone, select={"review": "jury_disagreement > 1"})
    with pytest.raises(UsageError, match="jury_disagreement"):
        reviewing.checked()
    assert not any(map(is_about_a_dialogue, server.requests[before:]))


async def test_a_worker_that_binds_the_stage_anew_has_the_same_one(
    server: CountingServer, data: Path
) -> None:
    for chosen in (jury(server, data, "small", "large"), cascade(server, data, threshold=0.3)):
        async with model_pool(chosen) as models:
            here = bind_stages(chosen, models)
            facts = pickle.loads(pickle.dumps(models.facts))
        there = bind_stages(pickle.loads(pickle.dumps(chosen)), facts)
        assert here.judge is not None
        assert there.of(here.judge.name, here.judge.fingerprint).identity == here.judge.identity


def test_the_api_judges_by_jury_and_by_cascade(server: CountingServer, data: Path) -> None:
    dialogues = load_dialogues(data, scenario="A person asks.").dialogues[:4]
    config = {"text": "off"}
    judges = [model(server, name) for name in ("large", "third", "odd")]
    rows = judge_dialogues(dialogues, judges, config)
    assert [row.verdict for row in rows if isinstance(row, Judgment)] == [
        *("poor", "excellent", "excellent", "poor")
    ]
    small, large = OpenAIConfig(**model(server, "small")), model(server, "large")
    rule = {"cascade": [small, large], "threshold": 0.2, "check": 0}
    rows, calls = asked(server, lambda: judge_dialogues(dialogues, rule, config))
    assert calls["large"] == calls["small"] / 2
    assert not any(isinstance(row, Unscored) for row in rows)
    with pytest.raises(UsageError, match="two judges"):
        judge_dialogues(dialogues, {"cascade": [small]}, config)
