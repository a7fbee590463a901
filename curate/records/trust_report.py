"""What was learnt about a run's judge after the run: one report a file, each with a sentence for people.

`curate agreement`, `certify`, `probe` and `audit` each write one into the run folder; summary, `show`, manifest and
dataset card say its sentence, or that nothing was measured.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import Field

from curate.dialogue import Frozen


class TrustKind(StrEnum):
    """The kinds of reports; the file of one is `trust/<kind>.json`."""

    AGREEMENT = "agreement"
    CERTIFICATE = "certificate"
    PAIR_CERTIFICATE = "pair_certificate"
    PROBE = "probe"
    AUDIT = "audit"


NOT_TAKEN: Final = {
    TrustKind.AGREEMENT: "Agreement of the judge with people was not measured (`curate agreement`).",
    TrustKind.CERTIFICATE: "No certificate says how many of the selected dialogues are bad (`curate certify`).",
    TrustKind.PAIR_CERTIFICATE: "No certificate says how many of the pairs are the wrong way round (`curate certify`).",
    TrustKind.PROBE: "The judge was not tried on planted flaws (`curate probe`).",
    TrustKind.AUDIT: "The run was not audited (`curate audit`).",
}
"""What is said where a kind of report was not taken."""


class TrustReport(Frozen):
    """What every such report holds; each kind adds its figures."""

    kind: TrustKind
    sentence: str = Field(min_length=1, description="What was found, in one plain sentence.")
    made: str = Field(description="When, ISO 8601 in UTC.")
    fingerprints: dict[str, str] = Field(
        description="Of the run's stages whose rows the figures are of, by stage. Where the run's own have "
        "changed since, the figures are of an earlier run and said to be."
    )
