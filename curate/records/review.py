"""Decisions of people about a run's dialogues and pairs, and the decisions of selection."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from curate.dialogue import Frozen
from curate.wording import plural


class ReviewAnswer(BaseModel):
    """One answer of a reviewer, a line of a review file. Other columns of such a file are ignored.

    `dimension` is one of the rubric's or `accept`, so that the file also serves as labels for `curate agreement`,
    `calibrate` and `certify`; or `weakest_turn`, `note`, and for a pair `better` and `chosen_text`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(description="Id of the dialogue.")
    content: str = Field(
        pattern="^[0-9a-f]{32}$", description="Content hash of the dialogue (32 hex digits)."
    )
    turn: int | None = Field(None, description="Number of the turn, for an answer about a turn.")
    pair_id: str | None = Field(None, description="Id of the pair, for an answer about a pair.")
    dimension: str = Field(description="What was answered.")
    value: str | int = Field(description="The answer.")
    better: str | None = Field(
        None, description="For a pair, the better side: `chosen`, `rejected` or `tie`."
    )
    rater: str = Field(min_length=1, description="Name of the reviewer.")
    time: str = Field(description="Time in UTC, ISO 8601.")
    old: str | int | None = Field(None, description="The run's own value.")
    blind: bool | None = Field(
        None, description="Whether the judge's scores were hidden from the reviewer."
    )

    @property
    def question(self) -> tuple[str, str | None, int | None, str, str]:
        """Return the key of the question; if a question is answered twice, the later answer counts."""
        return self.content, self.pair_id, self.turn, self.dimension, self.rater


class ReviewedDecision(Frozen):
    """A decision of people about a dialogue, which replaces that of the rules."""

    accept: bool = Field(description="Whether the dialogue is accepted.")
    raters: tuple[str, ...] = Field(description="Names of the people who decided.")
    time: str = Field(description="Time of their last answer, in UTC, ISO 8601.")
    rule_reasons: tuple[str, ...] = Field((), description="Reason codes of the rules.")


class ReviewReport(Frozen):
    """Decisions of people about the dialogues and pairs of a run."""

    raters: int = Field(0, description="Number of people.")
    accepted: int = Field(0, description="Dialogues that people accepted.")
    rejected: int = Field(0, description="Dialogues that people rejected.")
    disagreed: int = Field(
        0,
        description="Dialogues that equally many people accept and reject; the rules decide about them.",
    )
    changed: int = Field(0, description="Dialogues that the rules would have decided differently.")
    pairs_turned: int = Field(
        0, description="Pairs not exported because more people call the rejected side better."
    )
    texts: int = Field(0, description="Pairs exported with a chosen side that a reviewer wrote.")

    @property
    def described(self) -> str:
        """Return the report as one sentence."""
        sentence = (
            f"{plural(self.raters, 'person', 'people')} reviewed: {plural(self.accepted, 'dialogue')} accepted, "
            f"{self.rejected:,} rejected, {self.changed:,} of these against the rules"
        )
        if self.disagreed:
            sentence += f"; {self.disagreed:,} where they disagree evenly, which the rules decide"
        if self.pairs_turned or self.texts:
            sentence += f"; {plural(self.pairs_turned, 'pair')} left out, {self.texts:,} chosen texts rewritten"
        return sentence + "."


class Collision(Frozen):
    """What a duplicate or contaminated dialogue has in common with another text."""

    reason: str = Field(description="The reason code that it explains.")
    other: str = Field(
        description="Id of the dialogue that is kept, or `<eval set>:<row>` of an eval text."
    )
    similarity: float = Field(
        ge=0,
        le=1,
        description="0-1. Duplicates: Jaccard similarity of shingles, or cosine of embeddings. "
        "Contamination: share of the eval text's n-grams that the dialogue contains.",
    )
    text: str = Field("", description="Contamination: the first shared n-gram, normalised.")


class Decision(Frozen):
    """The decision of selection about one dialogue, with every reason."""

    dialogue_id: str = Field(description="Id of the dialogue.")
    content_hash: str = Field(description="Content hash of the dialogue (32 hex digits).")
    sets: tuple[Literal["sft", "rejected", "review", "active"], ...] = Field(
        description="Sets that the dialogue is in."
    )
    reasons: tuple[str, ...] = Field(
        (), description="Names of the conditions it fails, or reason codes."
    )
    collisions: tuple[Collision, ...] = Field(
        (), description="Texts that it duplicates or is contaminated by."
    )
    split: Literal["train", "validation"] | None = Field(
        None, description="Side of the split, if the recipe has one; every dialogue gets a side."
    )
    reviewed: ReviewedDecision | None = Field(
        None, description="Decision of people, which replaces that of the rules."
    )
