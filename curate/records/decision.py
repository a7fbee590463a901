"""What selection decides of a dialogue."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.review import ReviewedDecision


class Collision(Frozen):
    """What a removed duplicate or a contaminated dialogue has in common with something else."""

    reason: str = Field(description="The reason code it explains.")
    other: str = Field(
        description="Id of the dialogue that is kept, or `<eval set>:<row>` of an eval text."
    )
    similarity: float = Field(
        ge=0,
        le=1,
        description="Duplicates: Jaccard of shingles, or cosine of embeddings. Contamination: share of the "
        "eval text's n-grams that the dialogue holds.",
    )
    text: str = Field("", description="Contamination: the first shared n-gram, normalised.")


class Decision(Frozen):
    """Where selection put a dialogue, and the name of every condition it failed."""

    dialogue_id: str
    content_hash: str
    sets: tuple[Literal["sft", "rejected", "review", "active"], ...]
    reasons: tuple[str, ...] = Field((), description="Names of failed conditions, or reason codes.")
    collisions: tuple[Collision, ...] = Field(
        (), description="What it collided with, where it is a duplicate or contaminated."
    )
    split: Literal["train", "validation"] | None = Field(
        None, description="Of every dialogue, where the recipe asks for a split."
    )
    reviewed: ReviewedDecision | None = Field(
        None, description="What people decided, which stands in place of the rules' decision."
    )
