"""Same recipe, model and seed: the same bytes, whatever the order in which replies come in."""

from __future__ import annotations

from pathlib import Path

from curate.run.pipeline import run_recipe
from tests.live import live_server
from tests.run.test_verify import contents, every_stage

OF_THE_PROCESS = ("manifest.json", "replies.sqlite")
"""Times and token counts; replies lie in the order in which they came."""


def test_all_that_a_run_makes_is_the_same_in_whatever_order_replies_come(tmp_path: Path) -> None:
    with live_server() as server:
        model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
        orders, made = [], []
        for name, in_flight, delay, crowd in (("one", 1, 0.0, 0), ("many", 32, (0.0, 0.05), 9)):
            server.delay, server.crowd = delay, crowd
            server.requests.clear()
            asked = {**model, "in_flight": in_flight}
            planned = every_stage(
                server, tmp_path, chats=10, models={"judge": asked, "policy": asked}
            )
            assert run_recipe(planned, out=tmp_path / name).exit_code == 0
            orders.append([str(body["messages"]) for body in server.requests])
            made.append(contents(tmp_path / name))
        assert orders[0] != orders[1]
        assert sorted(orders[0]) == sorted(orders[1])
        assert server.largest_in_flight >= 9
    assert made[0].keys() == made[1].keys()
    different = [name for name in made[0] if made[0][name] != made[1][name]]
    assert different == [name for name in different if name.endswith(OF_THE_PROCESS)]
    assert any(name.startswith("export/") for name in made[0])
