"""What a dialogue claims as facts, and how far that is so."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity, WholeScore

ClaimLabel = Literal["true", "false", "unverifiable", "not_factual"]
Evidence = Literal["tool_result", "document", "earlier_turn", "model_knowledge"]


class FactualClaim(Frozen):
    """One claim of an assistant turn."""

    words: str = Field(description="The words of the turn it stands in.")
    label: ClaimLabel
    evidence: Evidence | None = Field(
        None, description="What the judge held it against; null for a claim that is not factual."
    )


class TurnClaims(Frozen):
    """The claims of one assistant turn, in the order they stand in."""

    turn: int
    claims: tuple[FactualClaim, ...] = ()
    parts: int = Field(1, description="Calls the turn was asked in; long ones are split.")
    precision: float | None = Field(
        None,
        description="True claims over factual ones, 0-1; null where the turn claims no facts.",
    )


class FactualityScore(WholeScore):
    """The facts of one dialogue. A turn whose claims could not be had leaves it `Unscored` as a whole.

    Precision is the share of true claims in those that are true, false or unverifiable (FActScore, Min et al. 2023).
    """

    kind: Literal["factuality"] = "factuality"
    dialogue_id: str
    content_hash: str
    identity: JudgeIdentity
    per_turn: tuple[TurnClaims, ...]
    precision: float | None = Field(
        None, description="Over all claims of the dialogue, 0-1; null where it claims no facts."
    )
    neutralised: int = Field(0, description="Strings in the data that were defused in the prompt.")
    requests: int = 0

    def count(self, *labels: ClaimLabel) -> int:
        """Claims of the dialogue with one of these labels."""
        return sum(claim.label in labels for turn in self.per_turn for claim in turn.claims)


class FactualityReport(Frozen):
    """The facts of all dialogues of a run that are scored."""

    dialogues: int
    without_claims: int = Field(description="Dialogues that claim no facts.")
    mean_precision: float | None = Field(None, description="Mean over the other dialogues, 0-1.")
    labels: dict[str, int] = Field(description="Claims by label.")
    evidence: dict[str, int] = Field(description="Factual claims by what they were held against.")
