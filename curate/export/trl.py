"""TRL's conversational shapes: SFT, DPO, Reward with margin, KTO. Unsloth takes the same.

TRL itself checks little (identical sides pass, a prompt that ends with the assistant passes) and a row its chat
template cannot render ends the whole training run. It has no place for a mask by message: a row of `messages` is
trained on all of it, or on all assistant messages. So a mixed dialogue becomes rows of `prompt` and
`completion`, one a good message, of which TRL trains the completion only.
"""

from __future__ import annotations

from typing import Final

from curate.export.template_messages import as_it_is
from curate.export.trainer_facts import (
    CUTS_PROMPT,
    PICTURES,
    Fate,
    Layout,
    StageFacts,
    TrainerFacts,
    pairs_in,
    whole_pairs_in,
)
from curate.export.trainer_module import Columns, TrainingFile

_SFT: Final[Columns] = {"messages": "messages", "tools": "optional"}
_TURN: Final[Columns] = {
    "prompt": "messages",
    "completion": "messages",
    "tools": "optional",
}
_PAIR: Final[Columns] = {
    "prompt": "messages",
    "chosen": "messages",
    "rejected": "messages",
    "tools": "optional",
}
_REWARD: Final[Columns] = {**_PAIR, "margin": "real"}
_KTO: Final[Columns] = {**_TURN, "label": "truth"}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, as_it_is),
    TrainingFile("sft_salvaged", "sft", "masked_turns", _TURN, as_it_is),
    TrainingFile("dpo", "dpo", "pairs", _PAIR, as_it_is),
    TrainingFile("dpo_natural", "dpo", "natural", _PAIR, as_it_is),
    TrainingFile("reward", "reward", "margins", _REWARD, as_it_is),
    TrainingFile("kto", "kto", "pair_labels", _KTO, as_it_is),
    TrainingFile("kto_natural", "kto", "natural_labels", _KTO, as_it_is),
    TrainingFile("kto_turns", "kto", "turn_labels", _KTO, as_it_is),
)


_ANY = "messages text"
_PROMPT_FILLS = Fate("dropped", "drop the row without a warning: the prompt alone fills max_length")
_CHOSEN, _LABEL = frozenset({"chosen", "rejected"}), frozenset({"completion", "label"})
_PAIRS = (
    pairs_in("prompt", "chosen", "rejected", holds=_ANY),
    whole_pairs_in("chosen", "rejected", holds=_ANY),
)
_CUT = {"prompt_too_long": _PROMPT_FILLS, "prompt_not_prefix": CUTS_PROMPT}

FACTS: Final = TrainerFacts(
    package="trl",
    release="1.16.0",
    setting="max_length",
    stages={
        "reward": StageFacts(
            layouts=_PAIRS,
            marker_columns=(_CHOSEN | {"margin"},),
            limit=1024,
            fates={
                "too_long": Fate(
                    "dropped", "drop the row without a warning: a side is longer than max_length"
                ),
            },
        ),
        "dpo": StageFacts(
            layouts=_PAIRS,
            marker_columns=(_CHOSEN,),
            limit=1024,
            fates=_CUT,
            prompt_is_prefix=True,
            refused_columns=PICTURES,
        ),
        "kto": StageFacts(
            layouts=(
                Layout(
                    ("prompt", "completion", "label"),
                    ("completion",),
                    holds=frozenset({"messages", "text"}),
                ),
                *_PAIRS,
            ),
            marker_columns=(_LABEL,),
            limit=1024,
            fates={"label_not_bool": Fate("stops", "stop when it counts the labels"), **_CUT},
            prompt_is_prefix=True,
            refused_columns=PICTURES,
        ),
        "sft": StageFacts(
            layouts=(
                pairs_in("prompt", "completion", holds=_ANY),
                Layout(("messages",), unless=("prompt",)),
                Layout(("conversations",), unless=("prompt",)),
                Layout(("text",), holds=frozenset({"text"}), unless=("prompt",)),
            ),
            limit=1024,
            fates={
                "unknown_columns": Fate(
                    "stops",
                    "stop: it reads `messages`, `text`, or `prompt` with `completion`, and a column `prompt` "
                    "makes it look for `completion` in every row",
                ),
                "no_assistant": Fate("corrupted", "train on the user's words alone"),
                "ends_open": Fate("noted", "train on what follows the last answer too"),
                **_CUT,
            },
            trains_on_all=True,
            prompt_is_prefix=True,
            refused_columns=PICTURES,
        ),
    },
)
