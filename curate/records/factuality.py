"""Factual claims of dialogues, and whether they are true."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import DialogueScore, NeutralisedCount, RequestCount

ClaimLabel = Literal["true", "false", "unverifiable", "not_factual"]
Evidence = Literal["tool_result", "document", "earlier_turn", "model_knowledge"]


class FactualClaim(Frozen):
    """One claim of an assistant turn."""

    words: str = Field(description="The words of the turn that make the claim.")
    label: ClaimLabel = Field(description="Whether the claim is true.")
    evidence: Evidence | None = Field(
        None,
        description="What the judge compared the claim with; null for a claim that is not factual.",
    )


class TurnClaims(Frozen):
    """The claims of one assistant turn, in order."""

    turn: int = Field(description="Number of the turn.")
    claims: tuple[FactualClaim, ...] = Field((), description="The claims.")
    parts: int = Field(
        1, description="Number of calls that the turn was split into; long turns are split."
    )
    precision: float | None = Field(
        None,
        description="True claims divided by factual ones, 0-1; null if the turn makes no factual claims.",
    )


class FactualityScore(DialogueScore):
    """The factual claims of one dialogue. If the claims of a turn are missing, the whole dialogue is `Unscored`.

    Precision is the share of true claims among those that are true, false or unverifiable (FActScore, Min et al. 2023).
    """

    kind: Literal["factuality"] = "factuality"
    per_turn: tuple[TurnClaims, ...] = Field(description="The claims of each assistant turn.")
    precision: float | None = Field(
        None,
        description="True claims divided by factual ones over the dialogue, 0-1; null if it makes no "
        "factual claims.",
    )
    neutralised: NeutralisedCount = 0
    requests: RequestCount = 0

    def count(self, *labels: ClaimLabel) -> int:
        """Return the number of claims with one of these labels."""
        return sum(claim.label in labels for turn in self.per_turn for claim in turn.claims)


class FactualityReport(Frozen):
    """The factual claims of all scored dialogues of a run."""

    dialogues: int = Field(description="Number of scored dialogues.")
    without_claims: int = Field(description="Dialogues without factual claims.")
    mean_precision: float | None = Field(
        None, description="Mean precision of the other dialogues, 0-1."
    )
    labels: dict[str, int] = Field(description="Number of claims by label.")
    evidence: dict[str, int] = Field(
        description="Number of factual claims by what they were compared with."
    )
