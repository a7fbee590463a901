"""A stage whose first 50 rows all came to nothing for one reason ends the run; servers are real and count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import curate
from curate.engines.retrying import Retrying
from curate.errors import EngineError
from curate.executors.first_rows import FIRST_ROWS, FirstRows
from curate.recipe import Recipe, parse_recipe
from curate.records import StageName, Unscored
from curate.run.audit import audit_run, plan_second_judging
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_manifest
from tests.faults import Reset
from tests.live import live_server
from tests.processes import curate as command
from tests.run.test_determinism import OF_THE_PROCESS
from tests.run.test_verify import contents
from tests.servers import Body, CountingServer, answer_by_hash

IN_FLIGHT = 4


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long is waited between two tries is test_client's."""
    monkeypatch.setattr(Retrying, "_pause", lambda *_: 0.01)


class Broken:
    """Answers as long as it is not broken, and where it is asked about nothing of the data."""

    def __init__(self, kind: str, *, but: str = "never said") -> None:
        self.kind = kind
        self.but = but
        self.is_broken = True

    def __call__(self, body: Body) -> Any:
        text = json.dumps(body["messages"])
        if not self.is_broken or "chat " not in text or self.but in text:
            return answer_by_hash(body)
        if self.kind == "429":
            return web.json_response({"error": {"message": "slow down"}}, status=429)
        if self.kind == "no mass" and body.get("logprobs"):
            return {"text": "Sure", "first_token": [("Sure", -0.01), ("Of", -5.0)]}
        return "I would rather not say." if self.kind == "words" else answer_by_hash(body)


def write_chats(folder: Path, count: int) -> Path:
    path = folder / "chats.jsonl"
    rows = [
        {
            "id": f"chat-{number}",
            "messages": [
                {"role": "user", "content": f"Where is the order of chat {number}?"},
                {"role": "assistant", "content": f"It is on its way to you, chat {number}."},
            ],
        }
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def model(server: CountingServer, **more: Any) -> dict[str, Any]:
    named = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
    return named | {"in_flight": IN_FLIGHT, "retries": 0} | more


def recipe(data: Path, server: CountingServer, **sections: Any) -> Recipe:
    plain: dict[str, Any] = {
        "name": "broken",
        "source": {"path": str(data)},
        "role": "A patient clerk.",
        "scenario": "A person asks for help.",
        "models": {"judge": model(server), "policy": model(server)},
        "judge": {"mode": "tokens"},
        "adherence": False,
    }
    return parse_recipe(plain | sections)


def asked(server: CountingServer) -> set[str]:
    """The chats that a server was asked about."""
    texts = (json.dumps(body["messages"]) for body in server.requests)
    return {text.partition("order of chat ")[2].partition("?")[0] for text in texts} - {""}


@pytest.mark.parametrize(
    ("kind", "reason", "sections"),
    [
        ("429", "engine_error", {}),
        ("429", "engine_error", {"judge": False, "adherence": {"output_mode": "continuous"}}),
        ("no mass", "low_coverage", {}),
        ("no mass", "low_coverage", {"judge": False, "adherence": {"output_mode": "continuous"}}),
        ("words", "bad_reply", {"judge": {"mode": "json"}}),
    ],
    ids=["429 judge", "429 adherence", "no mass judge", "no mass adherence", "words judge"],
)
def test_the_run_ends_with_the_reason_and_goes_on_when_it_is_mended(
    tmp_path: Path, kind: str, reason: str, sections: dict[str, Any]
) -> None:
    data, broken = write_chats(tmp_path, 90), Broken(kind)
    with live_server(answer=broken) as server:
        given = recipe(data, server, **sections)
        with pytest.raises(EngineError, match=reason) as raised:
            run_recipe(given, out=tmp_path / "run")
        assert "--retry unscored" in str(raised.value)
        assert len(asked(server)) < FIRST_ROWS + 2 * IN_FLIGHT
        manifest = read_manifest(tmp_path / "run")
        assert manifest.status == "failed"
        assert any(reason in warning for warning in manifest.warnings)
        broken.is_broken = False
        mended = run_recipe(given, out=tmp_path / "run", retry_unscored=True)
        assert mended.exit_code == 0
        assert len(asked(server)) == 90


def test_a_second_judging_ends_with_the_reason_and_its_stage(tmp_path: Path) -> None:
    data, broken = write_chats(tmp_path, 60), Broken("429")
    broken.is_broken = False
    with live_server(answer=broken) as server:
        run_recipe(recipe(data, server), out=tmp_path / "run")
        broken.is_broken = True
        with pytest.raises(EngineError) as raised:
            audit_run(tmp_path / "run", plan_second_judging(tmp_path / "run", 1))
    assert raised.value.problem == (
        "the first 50 rows of the stage 'judge' all failed for the same reason: engine_error"
    )


def test_keep_going_and_fewer_dialogues_end_as_ever(tmp_path: Path) -> None:
    with live_server(answer=Broken("429")) as server:
        given = recipe(write_chats(tmp_path, 60), server)
        ended = run_recipe(given, out=tmp_path / "all", keep_going=True)
        assert (ended.exit_code, ended.manifest.stages["judge"].unscored) == (3, 60)
        few = recipe(write_chats(tmp_path, FIRST_ROWS - 1), server)
        ended = run_recipe(few, out=tmp_path / "few")
        assert (ended.exit_code, ended.manifest.stages["judge"].unscored) == (3, FIRST_ROWS - 1)


def test_one_that_is_scored_among_the_first_is_enough_to_go_on(tmp_path: Path) -> None:
    with live_server(answer=Broken("429", but="chat 20?")) as server:
        ended = run_recipe(recipe(write_chats(tmp_path, 60), server), out=tmp_path / "run")
    assert ended.manifest.stages["judge"].unscored == 59


def test_a_call_is_repeated_as_often_as_the_model_says_and_no_more(tmp_path: Path) -> None:
    with live_server(answer=Broken("429")) as server:
        two = {"judge": model(server, retries=2, deadline=600)}
        run_recipe(recipe(write_chats(tmp_path, 1), server, models=two), out=tmp_path / "run")
        about = [key for key, count in server.counts.items() if count > 1]
        assert about
        assert max(server.counts.values()) == 3


def test_a_policy_that_refuses_every_call_ends_the_forks(tmp_path: Path) -> None:
    with live_server() as server, live_server(answer=Broken("429")) as policy:
        models = {"judge": model(server), "policy": model(policy)}
        fork = {"where": "n_turns >= 1", "resamples": 1, "guided_revision": False}
        given = recipe(write_chats(tmp_path, 90), server, models=models, fork=fork)
        with pytest.raises(EngineError, match=r"stage 'fork' .* engine_error"):
            run_recipe(given, out=tmp_path / "run")
        assert FIRST_ROWS <= len(asked(policy)) < FIRST_ROWS + 2 * IN_FLIGHT
        assert read_manifest(tmp_path / "run").stages["judge"].unscored == 0


def test_the_command_line_and_python_say_the_same(tmp_path: Path) -> None:
    data = write_chats(tmp_path, 60)
    with live_server(answer=Broken("no mass")) as server:
        path = tmp_path / "mine.yaml"
        path.write_text(json.dumps(recipe(data, server).model_dump(mode="json")))
        stopped = command("run", path, cwd=tmp_path)
        assert stopped.returncode == 1
        for word in ("first 50", "low_coverage", "enable_thinking", "--keep-going"):
            assert word in stopped.stderr
        assert "Traceback" not in stopped.stderr
        gone_on = command("run", path, "--keep-going", cwd=tmp_path)
        assert gone_on.returncode == 3
        dialogues = curate.load_dialogues(
            str(data), role="A patient clerk.", scenario="A person asks for help."
        ).dialogues
        config = {"mode": "tokens"}
        with pytest.raises(EngineError, match="low_coverage"):
            curate.judge_dialogues(dialogues, model(server), config)
        found = curate.judge_dialogues(dialogues, model(server), config, keep_going=True)
        assert {getattr(record, "reason", "") for record in found} == {"low_coverage"}


def unscored(reason: str, requests: int = 1) -> Unscored:
    return Unscored(
        dialogue_id="d", content_hash="0" * 32, stage="judge", reason=reason, requests=requests
    )


def test_what_nobody_was_asked_for_counts_neither_way() -> None:
    first = FirstRows(StageName.JUDGE)
    for _ in range(FIRST_ROWS - 1):
        first.see(unscored("engine_error"))
        first.see(unscored("missing_scenario", requests=0))
    with pytest.raises(EngineError):
        first.see(unscored("engine_error"))


def test_two_reasons_are_no_pattern() -> None:
    first = FirstRows(StageName.JUDGE)
    first.see(unscored("bad_reply"))
    for _ in range(2 * FIRST_ROWS):
        first.see(unscored("engine_error"))


def refused(status: int, **error: str) -> web.Response:
    return web.json_response({"error": {"message": "no", **error}}, status=status)


AWAY: dict[str, Callable[[], web.Response]] = {
    "no connection": Reset,
    "a key that was taken back": lambda: refused(401),
    "an account used up": lambda: refused(429, code="insufficient_quota"),
    "a key without the right": lambda: refused(403),
}


@pytest.mark.parametrize("kind", AWAY)
def test_a_server_that_refused_all_and_came_back(tmp_path: Path, kind: str) -> None:
    """Nothing is made of the calls that came to nothing at the end: the next run asks them again."""
    data, is_away = write_chats(tmp_path, 12), False

    def answer(body: Body) -> Any:
        nonlocal is_away
        is_chat = "chat " in json.dumps(body["messages"])
        is_away = is_away or (is_chat and server.counts.total() == last)
        return AWAY[kind]() if is_away and is_chat else answer_by_hash(body)

    with live_server(answer=answer) as server:
        last = -1
        run_recipe(recipe(data, server), out=tmp_path / "quiet")
        # What forbids one text alone is not given up, so the last dialogues are left out.
        for last_of in range(24, 64 if kind != "a key without the right" else 48, 8):
            run, began = tmp_path / f"run-{last_of}", len(server.requests)
            last = began + last_of
            with pytest.raises(
                EngineError, match=r"cannot be used any more[\s\S]*check the server"
            ):
                run_recipe(recipe(data, server), out=run)
            is_away, last = False, -1
            run_recipe(recipe(data, server), out=run)
            quiet, made = contents(tmp_path / "quiet"), contents(run)
            different = [name for name in quiet if quiet[name] != made.get(name)]
            assert different == [name for name in different if name.endswith(OF_THE_PROCESS)]


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_text_that_a_gateway_forbids_costs_its_row_alone(tmp_path: Path, in_flight: int) -> None:
    def answer(body: Body) -> Any:
        return refused(403) if "chat 11?" in json.dumps(body["messages"]) else answer_by_hash(body)

    with live_server(answer=answer) as server:
        models = {"judge": model(server, in_flight=in_flight)}
        given = recipe(write_chats(tmp_path, 12), server, models=models)
        ended = run_recipe(given, out=tmp_path / "run")
    assert ended.manifest.stages["judge"].unscored == 1
    assert ended.manifest.stages["judge"].rows == 12
