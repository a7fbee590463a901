"""What binds stages to models: every request says which dialogue it is about, every worker has the run's stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from curate.adherence.config import AdherenceConfig
from curate.dialogue import Dialogue, Message
from curate.engines.accounting import Accounting
from curate.engines.client import Client
from curate.engines.model_pool import Asks, ModelPool
from curate.engines.scripted import ScriptedEngine
from curate.errors import EngineError
from curate.judging.config import RubricConfig
from curate.recipe import parse_recipe
from curate.records import StageName
from curate.stages import WorkItem, adherence_stage, bind_stages, judge_stage


def make_dialogue(name: str) -> Dialogue:
    return Dialogue(
        id=name,
        role_definition="A patient shop assistant.",
        scenario="Help with an order.",
        messages=(
            Message(role="user", content=f"Where is {name}?"),
            Message(role="assistant", content="On its way."),
            Message(role="user", content="Since when?"),
            Message(role="assistant", content="Since Monday."),
        ),
    )


async def test_all_requests_about_a_dialogue_share_an_affinity_of_its_own():
    engine = ScriptedEngine(lambda request: "yes")
    ask = Client(engine, None, accounting=Accounting())
    homes = []
    for dialogue in (make_dialogue("one"), make_dialogue("two")):
        engine.requests.clear()
        await judge_stage(RubricConfig(mode="json"), engine).run(WorkItem(dialogue), Asks.of(ask))
        await adherence_stage(AdherenceConfig(output_mode="binary"), engine).run(
            WorkItem(dialogue), Asks.of(ask)
        )
        purposes = {request.purpose.partition(".")[0] for request in engine.requests}
        assert purposes == {"judge", "adherence"}
        [affinity] = {request.affinity for request in engine.requests}
        assert affinity == dialogue.content_hash
        homes.append(affinity)
    assert homes[0] != homes[1]


async def test_the_affinity_is_no_part_of_the_key():
    engine = ScriptedEngine(lambda request: "yes")
    await adherence_stage(AdherenceConfig(output_mode="binary"), engine).run(
        WorkItem(make_dialogue("one")), Asks.of(Client(engine, None, accounting=Accounting()))
    )
    request = engine.requests[0]
    assert request.affinity
    assert request.key(engine.identity) == replace(request, affinity="").key(engine.identity)


def test_a_worker_with_another_stage_is_refused() -> None:
    recipe = parse_recipe(
        {
            "name": "n",
            "source": {"path": "x"},
            "models": {"judge": {"engine": "scripted", "replies": []}},
        }
    )
    here = bind_stages(recipe, ModelPool(ScriptedEngine([])))
    assert [stage.name for stage in here] == [StageName.JUDGE, StageName.ADHERENCE]
    assert here.judge is not None
    same = bind_stages(recipe, ModelPool(ScriptedEngine([])).facts)
    assert here.of(StageName.JUDGE, here.judge.fingerprint).identity == here.judge.identity
    assert same.judge is not None
    assert same.judge.fingerprint == here.judge.fingerprint
    other = bind_stages(recipe, ModelPool(ScriptedEngine([], model="other")))
    with pytest.raises(EngineError, match="differs from the run's") as raised:
        other.of(StageName.JUDGE, here.judge.fingerprint)
    assert here.judge.fingerprint in str(raised.value)
