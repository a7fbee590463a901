"""OpenRLHF: lists of messages under `prompt`, `chosen` and `rejected`, with a margin for reward models.

It renders messages by the tokenizer's chat template and never passes tools, so rows with tools are refused. SFT
rows are whole conversations; with `--data.multiturn` every assistant message is trained on, without it the last
one only, which is what rows made of mixed dialogues need.
"""

from __future__ import annotations

from typing import Final

from curate.export.template_messages import refuse_tools
from curate.export.trainer_facts import (
    Fate,
    Layout,
    StageFacts,
    TrainerFacts,
    pairs_in,
    whole_pairs_in,
)
from curate.export.trainer_module import Columns, TrainerRow, TrainingFile

_NO_TOOLS = "OpenRLHF passes no tools to the chat template"
_FILLED = Fate("dropped", "drop the row without a warning: the prompt fills max_len")
_LETTERS = Fate("corrupted", "pass the letters of the text to the template, each as a message")
_PAIRS = (
    pairs_in("prompt", "chosen", "rejected"),
    whole_pairs_in("chosen", "rejected", fates={"mixed_shapes": _LETTERS}),
)
_FATES: Final = {
    "prefix_differs": Fate(
        "corrupted", "cut the rejected side at the length of the chosen side's prompt"
    ),
    "prompt_not_prefix": Fate(
        "corrupted", "cut the answer at the wrong place: the prompt alone renders differently"
    ),
}

FACTS: Final = TrainerFacts(
    package="openrlhf",
    release="0.11.2",
    setting="data.max_len",
    stages={
        "dpo": StageFacts(
            layouts=_PAIRS,
            marker_columns=(frozenset({"chosen", "rejected"}),),
            limit=512,
            fates={**_FATES, "prompt_too_long": _FILLED},
            drops_tools=_NO_TOOLS,
            prompt_is_prefix=True,
        ),
        "reward": StageFacts(
            layouts=_PAIRS, limit=512, fates=_FATES, drops_tools=_NO_TOOLS, prompt_is_prefix=True
        ),
        "sft": StageFacts(
            layouts=(
                Layout(("messages",)),
                pairs_in("input", "output", holds="messages message text"),
            ),
            limit=2048,
            fates={
                **_FATES,
                "prompt_too_long": _FILLED,
                "no_assistant": Fate(
                    "mis_masked", "train on the last message as if it were the assistant's"
                ),
            },
            drops_tools=_NO_TOOLS,
            prompt_is_prefix=True,
        ),
    },
)


def _without_tools(row: TrainerRow) -> TrainerRow:
    refuse_tools(row, _NO_TOOLS)
    return row


def _turn(row: TrainerRow) -> TrainerRow:
    refuse_tools(row, _NO_TOOLS)
    return {"messages": row["prompt"] + row["completion"]}


_SFT: Final[Columns] = {"messages": "messages"}
_PAIR: Final[Columns] = {
    "prompt": "messages",
    "chosen": "messages",
    "rejected": "messages",
}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, _without_tools),
    TrainingFile("sft_salvaged", "sft", "masked_turns", _SFT, _turn),
    TrainingFile("dpo", "dpo", "pairs", _PAIR, _without_tools),
    TrainingFile("dpo_natural", "dpo", "natural", _PAIR, _without_tools),
    TrainingFile("reward", "reward", "margins", {**_PAIR, "margin": "real"}, _without_tools),
)
