"""Which module knows a trainer's files."""

from __future__ import annotations

from curate.export import axolotl, llamafactory, openai_finetuning, openrlhf, swift, trl, verl
from curate.export.config import Trainer
from curate.export.trainer_module import TrainerModule


def trainer_module(trainer: Trainer) -> TrainerModule:
    """The module that knows a trainer's files."""
    match trainer:
        case "trl" | "unsloth":
            return trl
        case "axolotl":
            return axolotl
        case "llamafactory":
            return llamafactory
        case "openrlhf":
            return openrlhf
        case "verl":
            return verl
        case "swift":
            return swift
        case "openai":
            return openai_finetuning
