"""The sample as clean dialogues: up to the flaw that was written into them, in the recipe's role where that goes first."""

from __future__ import annotations

from typing import Any

from curate.dialogue import Dialogue
from curate.recipe import parse_recipe
from curate.run.sample_dialogues import sample_dialogues


def of(**fields: Any) -> list[Dialogue]:
    recipe = parse_recipe({"name": "r", "source": {"path": "x"}, "scenario": "Elsewhere."} | fields)
    return sample_dialogues(recipe)


def test_each_ends_with_a_reply_before_its_flaw() -> None:
    for dialogue in of():
        flaw = dialogue.metadata.get("flaw")
        assert flaw is None or len(dialogue.turns) == flaw["turn"] - 1
        assert dialogue.messages[-1].role == "assistant"


def test_they_keep_their_roles_and_scenarios_unless_the_recipes_role_goes_first() -> None:
    by_data, by_recipe = of(role="A waiter."), of(role="A waiter.", role_from="recipe")
    assert {dialogue.role_definition for dialogue in by_recipe} == {"A waiter."}
    assert len({dialogue.role_definition for dialogue in by_data} - {"A waiter."}) > 1
    for dialogues in (by_data, by_recipe):
        assert not {dialogue.scenario for dialogue in dialogues} & {None, "", "Elsewhere."}
