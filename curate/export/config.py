"""What a recipe can say about the export."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from curate.dialogue import Frozen


class ExportConfig(Frozen):
    """Which trainers to write for, and what goes into their rows."""

    trainers: tuple[Literal["trl"], ...] = Field(
        ("trl",), description="One folder a trainer under `export/`."
    )
    formats: Annotated[tuple[Literal["jsonl", "parquet"], ...], Field(min_length=1)] = Field(
        ("jsonl", "parquet"), description="File formats; the rows are the same in each."
    )
    keep_reasoning: bool = Field(
        False, description="Write the assistant's thinking as `reasoning_content`."
    )
    role_as_system: bool = Field(
        False,
        description="Open an SFT row that has no system message with the dialogue's role definition.",
    )
