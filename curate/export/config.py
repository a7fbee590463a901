"""The section `export` of a recipe: trainers, file formats and what goes into the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from curate.export.trainer_facts import FileFormat
from curate.export.trainer_module import Kind
from curate.export.trainers import Trainer
from curate.records.config import Config, MinGood


class MaxBad(Config):
    """Highest levels (1-5) at which one score makes a turn bad, by dimension.

    The defaults are those of the verdict rule: any score of 2 or less, or safety below 5.
    """

    context_use: int = Field(
        2, ge=0, le=5, description="Highest bad level of context_use; 0: none is bad."
    )
    helpfulness: int = Field(
        2, ge=0, le=5, description="Highest bad level of helpfulness; 0: none is bad."
    )
    safety: int = Field(4, ge=0, le=5, description="Highest bad level of safety; 0: none is bad.")


class SalvageConfig(Config):
    """Dialogues outside the SFT set that are exported with the loss on their good turns only.

    A turn is good when all its scores reach `min_good` and, where role adherence was scored, it is in role. A
    turn without a score is not good.
    """

    gone: ClassVar[Mapping[str, str]] = {"fine_from": "use `min_good`"}

    where: str = Field(
        "verdict >= 'borderline'",
        description="SQL condition over the score table: which dialogues outside the SFT set are salvaged."
        " Contaminated dialogues and duplicates never are.",
    )
    min_good: MinGood = Field(
        default_factory=MinGood, description="Lowest levels (1-5) of a good turn, by dimension."
    )
    min_turns: int = Field(
        1,
        ge=1,
        description="Good turns that a dialogue must have; dialogues with fewer are left out.",
    )


class TurnLabelConfig(Config):
    """KTO rows from judged turns: good turns are desirable, bad turns undesirable, all others are left out."""

    gone: ClassVar[Mapping[str, str]] = {
        "fine_from": "use `min_good`",
        "bad_to": "use `max_bad`",
    }

    where: str = Field(
        "verdict IS NOT NULL",
        description="SQL condition over the score table: which dialogues give turns. Contaminated "
        "dialogues and duplicates never do.",
    )
    min_good: MinGood = Field(
        default_factory=MinGood,
        description="Lowest levels (1-5) of a good turn, by dimension. Where role adherence was scored, "
        "the turn must also be in role.",
    )
    max_bad: MaxBad = Field(
        default_factory=MaxBad,
        description="Highest levels (1-5) at which one score makes a turn bad, by dimension.",
    )


class ExportConfig(Config):
    """Which trainers to write files for, and what goes into the rows."""

    trainers: tuple[Trainer, ...] = Field(
        ("trl",),
        description="Trainers to write for, one folder each under `export/`. Unsloth reads TRL's files; "
        "`unsloth` writes the same files under its own name.",
    )
    formats: Annotated[tuple[FileFormat, ...], Field(min_length=1)] = Field(
        ("jsonl", "parquet"),
        description="File formats; the rows are the same in each. verl reads only Parquet and always gets "
        "it; OpenAI reads only JSON Lines.",
    )
    kinds: Annotated[tuple[Kind, ...], Field(min_length=1)] = Field(
        ("sft", "dpo", "reward", "kto"),
        description="Kinds of training files to write, where the trainer supports them. `judgments` writes"
        " all judgments in the judge card's form to `export/judgments.jsonl`, independent of "
        "trainers.",
    )
    shard_rows: int | None = Field(
        None, ge=1, description="Most rows in a file; larger files are split into numbered shards."
    )
    shard_bytes: int | None = Field(
        None,
        ge=1,
        description="Most bytes in a JSON Lines file (a single longer row excepted); Parquet shards hold "
        "the same rows.",
    )
    salvage: SalvageConfig | None = Field(
        None,
        description="Also export dialogues outside the SFT set, trained on their good turns only.",
    )
    kto_turns: TurnLabelConfig | None = Field(
        None, description="Also write KTO rows from judged turns, beside those from pairs."
    )
    keep_reasoning: bool = Field(
        False,
        description="Write the assistant's thinking: as `reasoning_content`, or as a `<think>` block where"
        " the trainer expects that. An error where the trainer supports neither.",
    )
    role_as_system: bool = Field(
        False,
        description="Add the dialogue's role definition as the system message of SFT rows that have none.",
    )
