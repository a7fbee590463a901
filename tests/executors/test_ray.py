"""Two workers on a real Ray cluster of two nodes on this machine, against a real HTTP server that counts what it is asked."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.errors import UsageError
from curate.executors.loop import run as run_in_loop
from curate.recipe import Recipe, parse_recipe
from curate.run.pipeline import RunResult, run_recipe
from curate.run.plan import Assumptions, make_plan
from tests.live import live_server
from tests.run import test_pipeline
from tests.servers import CountingServer

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = pytest.mark.ray

WORKERS, IN_FLIGHT = 2, 3
PATIENCE = 300.0  # seconds for a worker to open its models
RAY = {"kind": "ray", "workers": WORKERS}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two machines, as far as Ray is concerned, of one CPU each; this process is on the first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        options = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        cluster = Cluster(
            initialize_head=True, head_node_args=options | {"include_dashboard": False}
        )
        cluster.add_node(**options)
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    with live_server(delay=(0.002, 0.02)) as running:
        yield running


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dialogues of one to four turns, and one that comes twice."""
    rows = [chat(number, 1 + number % 4) for number in range(11)]
    rows.append({**chat(3, 4), "id": "chat-3-again"})
    path = tmp_path_factory.mktemp("data") / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def chat(number: int, turns: int) -> dict[str, Any]:
    messages = []
    for turn in range(1, turns + 1):
        messages += [
            {"role": "user", "content": f"Question {turn} of chat {number}?"},
            {"role": "assistant", "content": f"Answer {turn} in chat {number}."},
        ]
    return {"id": f"chat-{number}", "messages": messages}


def recipe(server: CountingServer, data: Path, **sections: Any) -> Recipe:
    model = {
        "engine": "openai",
        "model": "fake-judge",
        "base_url": server.base_url,
        "in_flight": IN_FLIGHT,
    }
    return test_pipeline.recipe(
        server,
        data,
        **{
            "models": {"judge": model, "policy": model},
            "select": {"where": {"helpful": "mean_helpfulness >= 3"}},
            "fork": {"where": "weakest_turn IS NOT NULL", "resamples": 1},
        }
        | sections,
    )


def contents(run: Path) -> dict[str, object]:
    """All that a run leaves for its user; manifest and reply log tell of the way there."""
    found: dict[str, object] = {}
    for path in sorted(run.rglob("*")):
        if path.suffix == ".parquet":
            found[str(path.relative_to(run))] = pl.read_parquet(path).to_dicts()
        elif path.suffix == ".jsonl":
            found[str(path.relative_to(run))] = path.read_bytes()
    return found


@contextlib.contextmanager
def counted(server: CountingServer) -> Iterator[Callable[[], dict[str, int]]]:
    """How often each question about a dialogue was asked in the block (probes hold none)."""
    before = len(server.requests)

    def counts() -> dict[str, int]:
        found: dict[str, int] = {}
        for body in server.requests[before:]:
            text = json.dumps(body, sort_keys=True)
            if "chat " in text:
                found[text] = found.get(text, 0) + 1
        return found

    yield counts


@pytest.fixture(scope="module")
def local(
    server: CountingServer, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> RunResult:
    """The same recipe in this process."""
    return run_recipe(recipe(server, data), out=tmp_path_factory.mktemp("runs") / "local")


def test_same_rows_and_counts_as_in_one_process(
    cluster: Cluster,
    server: CountingServer,
    data: Path,
    tmp_path: Path,
    local: RunResult,
) -> None:
    with counted(server) as counts:
        result = run_recipe(recipe(server, data, executor=RAY), out=tmp_path / "ray")
        asked = counts()
    assert contents(tmp_path / "ray") == contents(local.folder)
    assert set(asked.values()) == {1}
    assert len(asked) == result.manifest.requests == local.manifest.requests
    assert result.manifest.tokens_in == local.manifest.tokens_in
    for name, stage in local.manifest.stages.items():
        assert result.manifest.stages[name].requests == stage.requests
    assert not workers_on(cluster, 0) + workers_on(cluster, 1)


def workers_on(cluster: Cluster, machine: int) -> list[int]:
    """Process ids of the workers that a machine's raylet started."""
    node = [cluster.head_node, *cluster.worker_nodes][machine]
    raylet = node.all_processes["raylet"][0].process.pid
    children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
    named = {child: Path(f"/proc/{child}/cmdline") for child in children}
    with contextlib.suppress(OSError):  # one may end meanwhile
        return [int(child) for child, line in named.items() if b"::Worker" in line.read_bytes()]
    return []


def test_a_killed_worker_loses_nothing_and_repeats_only_calls_in_flight(
    cluster: Cluster,
    server: CountingServer,
    data: Path,
    tmp_path: Path,
    local: RunResult,
) -> None:
    """One on the other machine while the judge works, and one on this machine in the forks."""
    machines, repeated = {"judge": 1, "fork": 0}, list[int]()

    def kill(name: str, finished: int, _: int) -> None:
        if name in machines and finished >= 2:
            found, machine = list[int](), machines.pop(name)
            # A run begins with one worker; on a busy machine the other is still opening its models.
            until = time.monotonic() + PATIENCE
            while not found:
                assert time.monotonic() < until
                time.sleep(0.02)
                found = workers_on(cluster, machine)
            asked = counts()
            repeated.append(sum(asked.values()) - len(asked))
            os.kill(found[0], signal.SIGKILL)

    with counted(server) as counts:
        run_recipe(recipe(server, data, executor=RAY), out=tmp_path / "ray", progress=kill)
        asked = counts()
    assert not machines
    assert contents(tmp_path / "ray") == contents(local.folder)
    # A killed worker had no more calls than this open; one more would be a reply that is in the log.
    first, second, last = *repeated, sum(asked.values()) - len(asked)
    assert first == 0
    assert second <= IN_FLIGHT
    assert last - second <= IN_FLIGHT
    assert max(asked.values()) <= 2


def test_a_budget_of_calls_holds_over_all_workers_and_the_run_goes_on(
    cluster: Cluster,
    server: CountingServer,
    data: Path,
    tmp_path: Path,
    local: RunResult,
) -> None:
    with counted(server) as counts:
        limited = recipe(server, data, executor=RAY, budget={"calls": 25})
        result = run_recipe(limited, out=tmp_path / "ray")
        assert sum(counts().values()) == 25
        assert result.manifest.status == "budget"
        assert result.manifest.requests == 25
        # What one executor received, the other does not ask for.
        run_recipe(recipe(server, data), out=tmp_path / "ray")
        assert set(counts().values()) == {1}
    assert contents(tmp_path / "ray") == contents(local.folder)


def test_an_error_in_a_worker_is_the_error_of_the_run(
    cluster: Cluster, server: CountingServer, data: Path, tmp_path: Path
) -> None:
    wrong = recipe(server, data, executor=RAY).model_dump(mode="json")
    wrong["models"]["judge"]["model"] = "another"
    with pytest.raises(UsageError, match="fake-judge"):
        run_recipe(parse_recipe(wrong), out=tmp_path / "wrong")


def test_a_plan_opens_the_models_in_a_worker_and_says_what_it_says_of_one_process(
    cluster: Cluster,
    server: CountingServer,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assumed = Assumptions(sample=4, measure=True)
    here = run_in_loop(make_plan(recipe(server, data), out=tmp_path, assumptions=assumed))

    def elsewhere(_: Recipe) -> None:
        raise AssertionError("the models were opened in this process")

    monkeypatch.setattr("curate.run.plan.model_pool", elsewhere)
    on_ray = recipe(server, data, executor=RAY)
    there = run_in_loop(make_plan(on_ray, out=tmp_path, assumptions=assumed))
    assert (there.identities, there.policy) == (here.identities, here.policy)
    assert there.estimate is not None
    assert here.estimate is not None
    assert there.estimate.total == here.estimate.total
    assert there.measured is not None
    assert there.measured.calls
    wrong = on_ray.model_dump(mode="json")
    wrong["models"]["judge"]["model"] = "another"
    with pytest.raises(UsageError, match="fake-judge"):
        run_in_loop(make_plan(parse_recipe(wrong), out=tmp_path))


def test_workers_that_do_not_fit_are_refused(
    cluster: Cluster, server: CountingServer, data: Path, tmp_path: Path
) -> None:
    greedy = {"kind": "ray", "gpus_per_worker": 1}
    with pytest.raises(UsageError, match="do not fit"):
        run_recipe(recipe(server, data, executor=greedy), out=tmp_path / "run")
    with pytest.raises(UsageError, match="do not fit"):
        run_in_loop(make_plan(recipe(server, data, executor=greedy), out=tmp_path / "run"))


def test_a_cluster_that_is_not_there_is_refused_at_once(
    server: CountingServer, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    nowhere = {"kind": "ray", "address": "127.0.0.1:1"}
    with pytest.raises(UsageError, match="cannot be joined"):
        run_recipe(recipe(server, data, executor=nowhere), out=tmp_path / "run")


def test_a_ray_client_is_refused(server: CountingServer, data: Path, tmp_path: Path) -> None:
    client = {"kind": "ray", "address": "ray://head:10001"}
    with pytest.raises(UsageError, match="Ray client"):
        run_recipe(recipe(server, data, executor=client), out=tmp_path / "run")
