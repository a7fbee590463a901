"""The doctor finds what would stop a run, says what each engine can do, and asks nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curate.engines.base import Capability
from curate.planning.doctor import Report, examine, examine_folder, examine_machine, extras, modes
from curate.recipe import Recipe, parse_recipe
from tests.cli.test_commands import fails
from tests.live import live_server
from tests.processes import curate
from tests.servers import CountingServer

LOGPROBS = frozenset({Capability.TOP_LOGPROBS})


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with live_server(context=4096) as running:
        yield running


def recipe(base_url: str, **sections: Any) -> Recipe:
    model = {"engine": "openai", "model": "fake-judge", "base_url": base_url, "retries": 0}
    given = {
        "name": "test",
        "source": {"path": "none"},
        "models": {"judge": model, "policy": model},
    }
    return parse_recipe(given | {"adherence": {"output_mode": "continuous"}} | sections)


def report_on(of: Recipe | None, out: Path) -> Report:
    return asyncio.run(examine(of, out))


def test_an_engine_is_shown_with_what_it_can_do_and_what_follows(
    server: CountingServer, tmp_path: Path
) -> None:
    report = report_on(recipe(server.base_url), tmp_path / "run")
    assert report.is_usable
    [engine] = report.engines  # judge and policy are one engine, opened and probed once
    assert engine.roles == ("judge", "policy")
    assert engine.capabilities["top_logprobs"]
    assert engine.capabilities["json_schema"]
    assert not engine.capabilities["token_prompts"]
    assert engine.context_tokens == 4096
    assert {mode.stage: mode.mode for mode in engine.modes} == {
        "judge": "tokens",
        "adherence": "continuous",
    }
    assert not (tmp_path / "run").exists()


def test_one_engine_out_of_order_does_not_hide_the_other(
    server: CountingServer, tmp_path: Path
) -> None:
    bad = {"engine": "openai", "model": "gone", "base_url": "http://127.0.0.1:9/v1", "retries": 0}
    good = recipe(server.base_url).models.judge
    assert good is not None
    both = recipe(server.base_url, models={"judge": good.model_dump(), "policy": bad})
    report = report_on(both, tmp_path)
    assert not report.is_usable
    assert [engine.is_usable for engine in report.engines] == [True, False]
    assert "127.0.0.1:9" in (report.engines[1].problem or "")


def test_modes_say_why() -> None:
    def said(capabilities: frozenset[Capability], **sections: Any) -> dict[str, tuple[Any, str]]:
        found = modes(recipe("http://localhost:1/v1", **sections), capabilities)
        return {mode.stage: (mode.mode, mode.why) for mode in found}

    reads = said(LOGPROBS)
    assert reads["judge"][0] == "tokens"
    assert "likeliest" in reads["judge"][1]
    exact = said(LOGPROBS | {Capability.LABEL_LOGPROBS})
    assert "exactly" in exact["judge"][1]
    bare = said(frozenset())
    assert bare["judge"] == ("json", "the engine gives no log-probabilities")
    assert bare["adherence"][0] == "binary"
    assert "falls back" in bare["adherence"][1]
    forced = said(frozenset(), judge={"mode": "tokens"})
    assert forced["judge"][0] is None
    assert "log-probabilities" in forced["judge"][1]
    assert "judge" not in said(LOGPROBS, judge=False)
    assert "metrics" not in reads
    assert said(frozenset(), metrics={})["metrics"] == (
        "json",
        "the engine gives no log-probabilities",
    )
    assert said(LOGPROBS, metrics={})["metrics"][0] == "tokens"
    assert said(frozenset(), metrics={"mode": "tokens"})["metrics"][0] is None


def test_metrics_are_told_of_the_model_that_scores_them() -> None:
    given = recipe("http://localhost:1/v1", metrics={})
    assert given.models.judge is not None
    other = given.model_copy(
        update={"models": given.models.model_copy(update={"metrics": given.models.judge})}
    )

    def stages(of: Recipe, *roles: str) -> list[str]:
        return [mode.stage for mode in modes(of, LOGPROBS, roles)]

    assert stages(given, "judge", "policy") == ["judge", "adherence", "metrics"]
    assert stages(other, "judge") == ["judge", "adherence"]
    assert stages(other, "metrics") == ["metrics"]
    assert stages(other, "policy") == []


def test_extras_come_from_the_installed_package_with_the_line_that_installs_them() -> None:
    found = {extra.name: extra for extra in extras()}
    assert {"openai", "llamacpp", "push"} <= found.keys()
    assert "aiohttp" in found["openai"].packages
    for extra in found.values():
        assert (extra.install is None) == (not extra.missing)
        if extra.install:
            assert f"[{extra.name}]" in extra.install


def test_gpus_are_those_nvidia_smi_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf 'NVIDIA L4, 23034 MiB\\nNVIDIA L4, 23034 MiB\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert examine_machine().gpus == ("NVIDIA L4, 23034 MiB",) * 2

    def hangs(*_: Any, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    machine = examine_machine(hangs)
    assert machine.gpus == ()
    assert machine.cores >= 1
    assert machine.memory_gib > 0


def test_a_folder_that_cannot_be_made_is_found(tmp_path: Path) -> None:
    assert examine_folder(tmp_path / "a" / "b").is_writable
    (tmp_path / "file").write_text("")
    assert not examine_folder(tmp_path / "file" / "run").is_writable


def test_the_command_line(server: CountingServer, tmp_path: Path) -> None:
    bare = curate("doctor", cwd=tmp_path)
    assert bare.returncode == 0
    assert re.search(r"\b(1 core|([02-9]|\d{2,}) cores),", bare.stdout)
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"source: {{path: none}}\nmodels: {{judge: {{engine: openai, model: fake-judge, base_url: '{server.base_url}'}}}}\n"
    )
    good = curate("doctor", path, cwd=tmp_path)
    assert good.returncode == 0, good.stdout + good.stderr
    for word in ("fake-judge", "log-probabilities: yes", "mode tokens", "4096", "all usable"):
        assert word in good.stdout
    assert max(map(len, good.stdout.splitlines())) <= 80
    found = json.loads(curate("doctor", path, "--json", cwd=tmp_path).stdout)
    assert found["usable"] is True
    assert found["engines"][0]["capabilities"]["json_schema"] is True
    forced = curate("doctor", path, "--set", "judge.mode=tokens", cwd=tmp_path)
    assert forced.returncode == 0
    lost = curate(
        "doctor", path, "--set", "models.judge.base_url=http://127.0.0.1:9/v1", cwd=tmp_path
    )
    fails(lost, 1, "127.0.0.1:9", "not usable")


@pytest.mark.parametrize("command", ["doctor", "run", "run --dry-run"])
@pytest.mark.parametrize("owned_by", ["vllm", "proxy"])
def test_a_model_that_the_server_does_not_list(tmp_path: Path, command: str, owned_by: str) -> None:
    """Refused by a server whose list is complete, before any call; else answered, with a warning."""
    chat = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello."}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": chat}) + "\n")
    with live_server(owned_by=owned_by, models=("good-judge",)) as server:
        (tmp_path / "mine.yaml").write_text(
            "source: {path: chats.jsonl}\nrole: a clerk\nscenario: a shop\nmax_unscored: 1\n"
            f"models: {{judge: {{engine: openai, model: bad-judge, base_url: '{server.base_url}'}}}}\n"
        )
        name, *options = command.split()
        done = curate(name, tmp_path / "mine.yaml", *options, cwd=tmp_path)
        said = " ".join((done.stdout + done.stderr).split())
        assert "good-judge" in said
        if owned_by == "vllm":
            assert done.returncode == (1 if name == "doctor" else 2)
            assert "has no model 'bad-judge'" in said
            assert server.requests == []
        else:
            assert done.returncode == 0
            assert "does not list it" in said
            assert "all usable" not in said
