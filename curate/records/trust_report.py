"""Reports about a run's judge, made after the run: one file each, with a sentence for people.

`curate agreement`, `certify`, `probe` and `audit` each write one into the run folder. Summary, `show`, manifest and
dataset card quote its sentence, or say that there is no such report.
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
"""Sentence that stands in for a kind of report that was not made."""


class TrustReport(Frozen):
    """What all these reports have in common; each kind adds its figures."""

    kind: TrustKind = Field(description="Kind of the report.")
    sentence: str = Field(min_length=1, description="The finding in one sentence.")
    made: str = Field(description="Time in UTC, ISO 8601.")
    fingerprints: dict[str, str] = Field(
        description="Fingerprints of the stages whose rows were used, by stage. If the run's own have "
        "changed since, the report is marked as being about an earlier run."
    )
