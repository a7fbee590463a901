"""Which module knows a trainer's files."""

from __future__ import annotations

from typing import Final

from curate.export import axolotl, llamafactory, openai_finetuning, openrlhf, swift, trl, verl
from curate.export.config import Trainer
from curate.export.trainer_module import TrainerModule

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
