"""TRL's conversational shapes: SFT, DPO, Reward with margin, KTO. Unsloth takes the same.

TRL itself checks little (identical sides pass, a prompt that ends with the assistant passes) and a row its chat
template cannot render ends the whole training run. It has no place for a mask by message: a row of `messages` is
trained on all of it, or on all assistant messages. So a mixed dialogue becomes rows of `prompt` and
`completion`, one a good message, of which TRL trains the completion only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from curate.export.carrying import as_it_is
from curate.export.config import Format
from curate.export.layout import Column, TrainingFile

FORMATS: Final[Sequence[Format]] = ("jsonl", "parquet")


_SFT: Final[Mapping[str, Column]] = {"messages": "messages", "tools": "optional"}
_TURN: Final[Mapping[str, Column]] = {
    "prompt": "messages",
    "completion": "messages",
    "tools": "optional",
}
_PAIR: Final[Mapping[str, Column]] = {
    "prompt": "messages",
    "chosen": "messages",
    "rejected": "messages",
    "tools": "optional",
}
_REWARD: Final[Mapping[str, Column]] = {**_PAIR, "margin": "real"}
_KTO: Final[Mapping[str, Column]] = {**_TURN, "label": "truth"}

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


def side_files(_: Mapping[str, Sequence[str]]) -> Mapping[str, bytes]:
    """None; TRL reads the files by name."""
    return {}
