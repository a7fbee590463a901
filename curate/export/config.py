"""What a recipe can say about the export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from curate.export.trainer_facts import Format
from curate.export.trainer_module import Kind
from curate.export.trainers import Trainer
from curate.records.config import Config, MinGood


class MaxBad(Config):
    """Up to which level one turn score makes the turn bad, 1-5 per dimension.

    The defaults are those of the verdict rule: any score of 2 or less, or safety below 5.
    """

    context_use: int = Field(2, ge=0, le=5)
    helpfulness: int = Field(2, ge=0, le=5)
    safety: int = Field(4, ge=0, le=5)


class SalvageConfig(Config):
    """Mixed dialogues that are kept beside the SFT set, the loss on their good turns only.

    A turn is good when its scores are, and when role adherence, where it was scored, found it in role. A
    turn without a score is not good.
    """

    gone: ClassVar[Mapping[str, str]] = {"fine_from": "it is `min_good` now"}

    where: str = Field(
        "verdict >= 'borderline'",
        description="SQL condition over the score table: which of the dialogues that are not in the SFT set. "
        "Contaminated ones and duplicates never are.",
    )
    min_good: MinGood = Field(
        default_factory=MinGood, description="Levels from which on a turn is good."
    )
    min_turns: int = Field(
        1, ge=1, description="Good turns a dialogue must have; one with fewer is refused."
    )


class TurnLabelConfig(Config):
    """KTO rows from judged dialogues: a good turn is desirable, a bad one is not, the rest are left out."""

    gone: ClassVar[Mapping[str, str]] = {
        "fine_from": "it is `min_good` now",
        "bad_to": "it is `max_bad` now",
    }

    where: str = Field(
        "verdict IS NOT NULL",
        description="SQL condition over the score table: which dialogues give turns. Contaminated ones and "
        "duplicates never do.",
    )
    min_good: MinGood = Field(
        default_factory=MinGood,
        description="Levels from which on a turn is good; it must also be in role, where that was scored.",
    )
    max_bad: MaxBad = Field(
        default_factory=MaxBad, description="Levels up to which one score makes a turn bad."
    )


class ExportConfig(Config):
    """Which trainers to write for, and what goes into their rows."""

    trainers: tuple[Trainer, ...] = Field(
        ("trl",),
        description="One folder a trainer under `export/`. Unsloth takes TRL's files: `unsloth` writes the "
        "same under its own name.",
    )
    formats: Annotated[tuple[Format, ...], Field(min_length=1)] = Field(
        ("jsonl", "parquet"),
        description="File formats; the rows are the same in each. verl takes Parquet only and gets it in any "
        "case, OpenAI takes JSON Lines only.",
    )
    kinds: Annotated[tuple[Kind, ...], Field(min_length=1)] = Field(
        ("sft", "dpo", "reward", "kto"),
        description="Kinds of training files, of those that the trainer has; `judgments` writes all judgments in the "
        "judge card's form to `export/judgments.jsonl`, for no trainer.",
    )
    shard_rows: int | None = Field(
        None, ge=1, description="Rows of a file at most; larger ones become numbered shards."
    )
    shard_bytes: int | None = Field(
        None,
        ge=1,
        description="Bytes of a JSON Lines file at most, a longer row aside; Parquet shards hold the same rows.",
    )
    salvage: SalvageConfig | None = Field(
        None, description="Keep mixed dialogues, trained on their good turns only."
    )
    kto_turns: TurnLabelConfig | None = Field(
        None, description="KTO rows from judged turns, beside those from pairs."
    )
    keep_reasoning: bool = Field(
        False,
        description="Write the assistant's thinking: as `reasoning_content`, or as a `<think>` block where the "
        "trainer wants that; refused where it takes none.",
    )
    role_as_system: bool = Field(
        False,
        description="Open an SFT row that has no system message with the dialogue's role definition.",
    )
