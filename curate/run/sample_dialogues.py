"""The sample's dialogues without their flaws: flaws are planted in them where no other dialogues are named."""

from __future__ import annotations

from curate.dialogue import Dialogue
from curate.pairs.prefix import with_messages
from curate.recipe import Recipe, parse_source
from curate.sources import open_source
from curate.sources.shipped_files import sample_chats


def sample_dialogues(recipe: Recipe) -> list[Dialogue]:
    """Return the sample's dialogues up to the flaw that was written into them, so that a planted one is the only one."""
    dialogues = []
    for path in sample_chats():
        source = open_source(parse_source({"path": str(path)}))
        for unit in source.read(recipe.role, recipe.scenario, recipe.role_from):
            for dialogue in unit.dialogues:
                flaw = dialogue.metadata.get("flaw")
                turns = [t for t in dialogue.turns if flaw is None or t.number < flaw["turn"]]
                if turns:
                    end = turns[-1].start + len(turns[-1].messages)
                    dialogues.append(with_messages(dialogue, dialogue.messages[:end]))
    return dialogues
