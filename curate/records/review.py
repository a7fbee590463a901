"""What people decide about a run's dialogues and pairs, and what that came to."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from curate.dialogue import Frozen
from curate.wording import plural


class ReviewAnswer(BaseModel):
    """One answer of a reviewer, a line of a review file. Further columns of such a file are left alone.

    `dimension` is one of the rubric's or `accept`, which make the file labels for `curate agreement`, `calibrate` and
    `certify`; or `weakest_turn`, `note`, and of a pair `better` and `chosen_text`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(description="Id of the dialogue.")
    content: str = Field(pattern="^[0-9a-f]{32}$", description="Its content hash.")
    turn: int | None = None
    pair_id: str | None = Field(None, description="Of an answer about a pair.")
    dimension: str
    value: str | int
    better: str | None = Field(
        None, description="Of a pair the better side: `chosen`, `rejected` or `tie`."
    )
    rater: str = Field(min_length=1)
    time: str = Field(description="When, ISO 8601 in UTC.")
    old: str | int | None = Field(None, description="What the run said.")
    blind: bool | None = Field(None, description="The judge's scores were hidden.")

    @property
    def question(self) -> tuple[str, str | None, int | None, str, str]:
        """Key of the question: of two answers to the same question the later one counts."""
        return self.content, self.pair_id, self.turn, self.dimension, self.rater


class ReviewedDecision(Frozen):
    """That people decided about a dialogue, whatever the rules say."""

    accept: bool
    raters: tuple[str, ...]
    time: str = Field(description="Of the last of their answers.")
    rule_reasons: tuple[str, ...] = Field((), description="The reasons that the rules gave.")


class ReviewReport(Frozen):
    """What people decided about the dialogues and pairs of a run."""

    raters: int = 0
    accepted: int = Field(0, description="Dialogues.")
    rejected: int = 0
    disagreed: int = Field(
        0, description="Dialogues that as many accept as reject: the rules decide about them."
    )
    changed: int = Field(0, description="Dialogues that the rules would have put elsewhere.")
    pairs_turned: int = Field(
        0, description="Pairs not exported, since more people call the rejected side better."
    )
    texts: int = Field(0, description="Pairs whose chosen side is exported as a reviewer wrote it.")

    @property
    def described(self) -> str:
        """One sentence."""
        said = (
            f"{plural(self.raters, 'person', 'people')} reviewed: {plural(self.accepted, 'dialogue')} accepted, "
            f"{self.rejected:,} rejected, {self.changed:,} of these against the rules"
        )
        if self.disagreed:
            said += f"; {self.disagreed:,} where they disagree evenly, which the rules decide"
        if self.pairs_turned or self.texts:
            said += f"; {plural(self.pairs_turned, 'pair')} left out, {self.texts:,} chosen texts written anew"
        return said + "."


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
