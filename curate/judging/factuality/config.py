"""The section `factuality` of a recipe."""

from __future__ import annotations

from pydantic import Field

from curate.records.config import Config


class FactualityConfig(Config):
    """How the facts of assistant turns are looked at."""

    max_claims: int = Field(
        8, ge=1, le=50, description="Claims that are asked for in one call, the weightiest."
    )
    part_words: int = Field(
        300,
        ge=50,
        description="A turn of more words (in scripts without spaces: characters) is asked about in parts.",
    )
    retries: int = Field(
        2, ge=0, le=10, description="How often a reply that cannot be used is asked again."
    )
    show_reasoning: bool = Field(False, description="Show parsed-off thinking to the judge.")
