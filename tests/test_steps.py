"""What binds stages to models: every request says which dialogue it is about."""

from __future__ import annotations

from dataclasses import replace

from curate.adherence.config import AdherenceConfig
from curate.dialogue import Dialogue, Message
from curate.engines.accounting import Accounting
from curate.engines.asking import Asker
from curate.engines.scripted import ScriptedEngine
from curate.judging.config import RubricConfig
from curate.steps import adherence_step, judge_step


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
    ask = Asker(engine, None, accounting=Accounting())
    homes = []
    for dialogue in (make_dialogue("one"), make_dialogue("two")):
        engine.requests.clear()
        await judge_step(RubricConfig(mode="json"), engine).work(dialogue, ask)
        await adherence_step(AdherenceConfig(output_mode="binary"), engine).work(dialogue, ask)
        purposes = {request.purpose.partition(".")[0] for request in engine.requests}
        assert purposes == {"judge", "adherence"}
        [affinity] = {request.affinity for request in engine.requests}
        assert affinity == dialogue.content_hash
        homes.append(affinity)
    assert homes[0] != homes[1]


async def test_the_affinity_is_no_part_of_the_key():
    engine = ScriptedEngine(lambda request: "yes")
    await adherence_step(AdherenceConfig(output_mode="binary"), engine).work(
        make_dialogue("one"), Asker(engine, None, accounting=Accounting())
    )
    request = engine.requests[0]
    assert request.affinity
    assert request.key(engine.identity) == replace(request, affinity="").key(engine.identity)
