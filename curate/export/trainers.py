"""Which trainers there are, and which module knows the files of each."""

from __future__ import annotations

from typing import Final, Literal

from curate.export import axolotl, llamafactory, openai_finetuning, openrlhf, swift, trl, verl
from curate.export.trainer_module import TrainerModule

Trainer = Literal[
    "trl", "unsloth", "axolotl", "llamafactory", "openrlhf", "verl", "swift", "openai"
]

_TRL: Final = TrainerModule(trl.FACTS, trl.FILES)

TRAINERS: Final[dict[Trainer, TrainerModule]] = {
    "trl": _TRL,
    "unsloth": _TRL,
    "axolotl": TrainerModule(axolotl.FACTS, axolotl.FILES),
    "llamafactory": TrainerModule(llamafactory.FACTS, llamafactory.FILES, llamafactory.side_files),
    "openrlhf": TrainerModule(openrlhf.FACTS, openrlhf.FILES),
    "verl": TrainerModule(verl.FACTS, verl.FILES),
    "swift": TrainerModule(swift.FACTS, swift.FILES),
    "openai": TrainerModule(openai_finetuning.FACTS, openai_finetuning.FILES),
}
