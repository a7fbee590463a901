"""The section `factuality` of a recipe."""

from __future__ import annotations

from pydantic import Field

from curate.records.config import Config


class FactualityConfig(Config):
    """How the factual claims of assistant turns are checked."""

    max_claims: int = Field(
        8, ge=1, le=50, description="Most claims asked for in one call, the most important first."
    )
    part_words: int = Field(
        300,
        ge=50,
        description="Turns with more words than this (in scripts without spaces: characters) are asked "
        "about in parts.",
    )
    retries: int = Field(
        2, ge=0, le=10, description="How often an unusable reply is asked for again."
    )
    show_reasoning: bool = Field(False, description="Show the assistant's thinking to the judge.")
