"""axolotl: SFT of type `chat_template`, with masks by message, and DPO of type `chat_template.default`.

SFT rows are read message by message: tool calls and tools are carried, and `message_field_training: train` makes
axolotl train a message or leave it out. The DPO reader takes role and content of each message and drops the
rest, so that a pair with tools would be trained on without them; such pairs are refused. A column it does not
know breaks it, since columns it leaves in place end up in TRL's trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from curate.export.template_messages import as_it_is, bare, refuse_reasoning, refuse_tools
from curate.export.trainer_facts import (
    CHAT_ROLES,
    PICTURES,
    Fate,
    Layout,
    StageFacts,
    TrainerFacts,
    TrainerRole,
    pairs_in,
)
from curate.export.trainer_module import Columns, TrainerRow, TrainingFile

_TOO_LONG = Fate("dropped", "drop the row: it is longer than sequence_len")
_READS_LITTLE = "axolotl's DPO reads role and content only"
_ROLES: Final[Mapping[str, TrainerRole]] = {
    role: CHAT_ROLES[role] for role in ("system", "user", "assistant", "tool")
}
_MAPS = Fate("stops", "stop: it maps roles and knows only system, user, assistant and tool")

FACTS: Final = TrainerFacts(
    package="axolotl",
    release="0.19.0",
    setting="sequence_len",
    stages={
        "dpo": StageFacts(
            layouts=(pairs_in("messages", "chosen", "rejected", holds="messages message text"),),
            marker_columns=(frozenset({"chosen", "rejected"}),),
            limit=512,
            fates={
                "too_long": _TOO_LONG,
                "prompt_too_long": _TOO_LONG,
                "unknown_role": _MAPS,
                "empty_side": Fate(
                    "corrupted",
                    "take the dummy question for the answer: an empty text is found at once",
                ),
                "several_messages": Fate("corrupted", "train on the last message of the side only"),
                "untrimmed": Fate("noted", "lose the answer wherever the template trims it"),
            },
            side_fates={
                "null_content": Fate(
                    "stops", "stop: it looks for the content in what the template wrote"
                ),
                "content_not_text": Fate(
                    "stops", "stop: it looks for a text in what the template wrote"
                ),
            },
            roles=_ROLES,
            drops_tools=_READS_LITTLE,
            drops_calls=_READS_LITTLE,
            arguments="any",
            refused_columns=PICTURES,
        ),
        "sft": StageFacts(
            layouts=(Layout(("messages",)),),
            limit=512,
            fates={
                "too_long": _TOO_LONG,
                "unknown_role": Fate(
                    "mis_masked", "render the role unchanged and train on none of its words"
                ),
                "content_not_text": None,
                "no_assistant": Fate("dropped", "drop the row: no token of it would be trained on"),
                "empty_side": Fate("mis_masked", "train on nothing of an empty answer"),
                "system_null": Fate(
                    "corrupted", "put a system message without text before the dialogue"
                ),
            },
            roles={"human": "user", "gpt": "assistant", **_ROLES},
            arguments="any",
        ),
    },
)


def _pair(row: TrainerRow) -> TrainerRow:
    refuse_tools(row, FACTS.stages["dpo"].drops_tools)
    refuse_reasoning(row, _READS_LITTLE)
    return {
        "messages": [bare(message) for message in row["prompt"]],
        "chosen": bare(row["chosen"][0]),
        "rejected": bare(row["rejected"][0]),
    }


_SFT: Final[Columns] = {"messages": "messages", "tools": "optional"}
_PAIR: Final[Columns] = {
    "messages": "messages",
    "chosen": "message",
    "rejected": "message",
}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, as_it_is),
    TrainingFile("sft_salvaged", "sft", "masked", _SFT, as_it_is),
    TrainingFile("dpo", "dpo", "pairs", _PAIR, _pair),
    TrainingFile("dpo_natural", "dpo", "natural", _PAIR, _pair),
)
