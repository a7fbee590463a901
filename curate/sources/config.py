"""The section `source` of a recipe: where the data is, and what the reader cannot detect.

Everything but `path` has a default, because the shape is detected; a setting exists only for what the data does
not show.
"""

from __future__ import annotations

from glob import has_magic
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, field_validator, model_validator

from curate.records.config import Config
from curate.sources.mapping import Mapping
from curate.sources.messages import RolesInOrder, SpeakerRoles
from curate.sources.selectors import Conditions

Shape = Literal[
    "auto",
    "messages",
    "sharegpt",
    "conversation",
    "card",
    "gaussia",
    "preference",
    "hh",
    "ultrachat",
    "alpaca",
    "oasst",
    "history",
    "turns_table",
    "trajectory",
]


RoleFrom = Literal["data", "recipe"]
"""Which role definition is used where both the data and the recipe have one."""


class Columns(Config):
    """Column names of a `turns_table` (one row per message). Columns that are not named are found by their usual names."""

    conversation: str | None = Field(
        None, description="Column whose value the rows of one conversation share."
    )
    order: str | None = Field(
        None,
        description="Column to sort a conversation's rows by; by default the order of the file.",
    )
    role: str | None = Field(None, description="Column with the speaker.")
    text: str | None = Field(None, description="Column with the text.")
    roles: SpeakerRoles = Field(default_factory=dict)
    in_order: RolesInOrder = ()


class SourceConfig(Config):
    """One source of dialogues."""

    path: str | tuple[str, ...] = Field(
        description="File, folder, glob (`**` allowed), a list of these, or a Hub dataset id."
    )
    shape: Shape = Field(
        "auto", description="Shape of the data; `auto` detects it from a sample of every file."
    )
    name: str | None = Field(
        None, description="Name in ids and lineage; by default the stem of the path."
    )
    config: str | None = Field(None, description="Hub: the dataset's configuration.")
    split: str | None = Field(None, description="Hub: the split; needed where there are several.")
    revision: str | None = Field(None, description="Hub: branch, tag or commit.")
    streaming: bool | None = Field(
        None,
        description="Hub: whether to stream rows; null streams datasets larger than 1 GB or of unknown "
        "size.",
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="Read only the first N rows that meet `where` (conversations, where one spans several "
        "rows).",
    )
    cap: int | None = Field(None, ge=1, description="Most dialogues to take from this source.")
    weight: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Weight in the mixture of all sources that have one (3 beside 1 gives three quarters)."
        " Each source gives as many dialogues as the scarcest one allows. null: all dialogues,"
        " outside the mixture.",
    )
    where: Conditions = Field(
        default_factory=dict,
        description="Conditions on rows: rows that do not meet them are left out, and counted by condition.",
    )
    mapping: Mapping | None = Field(
        None, description="How to read a shape that curate does not know; see docs/sources.md."
    )
    columns: Columns = Field(Columns(), description="Column names for the shape `turns_table`.")
    license: str | None = Field(
        None,
        min_length=1,
        description="Licence of the data, as the Hub names it: `apache-2.0`, `cc-by-4.0`, `other`, …; "
        "`curate push` needs one.",
    )
    encoding: str | None = Field(
        None,
        description="Encoding of text files; null is UTF-8, with or without a byte order mark.",
    )

    @field_validator("path", mode="before")
    @classmethod
    def _path_given(cls, value: object) -> object:
        paths = value if isinstance(value, list | tuple) else [value]
        if not paths or any(isinstance(path, str) and not path.strip() for path in paths):
            raise ValueError("path is empty; give a file, a folder, a glob or a Hub dataset id")
        return tuple(value) if isinstance(value, list) else value

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                "".encode(value)
            except LookupError:
                raise ValueError(f"'{value}' is not an encoding that Python knows") from None
        return value

    @model_validator(mode="after")
    def _one_way_to_read(self) -> SourceConfig:
        if self.mapping is not None and self.shape != "auto":
            raise ValueError("give either source.shape or source.mapping, not both")
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the path, or the paths, as a tuple."""
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def on_hub(self) -> bool:
        """Return whether a Hub-only setting is given, so that the path is read through `datasets`."""
        return any(
            value is not None for value in (self.config, self.split, self.revision, self.streaming)
        )

    @property
    def source_name(self) -> str:
        """Return `name`, else the stem of the first path (`a/b.jsonl.gz` gives `b`, `a/*.json` gives `a`)."""
        if self.name:
            return self.name
        parts = [
            part
            for part in PurePosixPath(self.paths[0].replace("\\", "/")).parts
            if part not in ("/", ".", "..") and not has_magic(part)
        ]
        return stem(parts[-1]) if parts else "source"


def stem(name: str) -> str:
    """Return a file's name without its data and compression suffixes."""
    for suffix in (".gz", ".zst"):
        name = name.removesuffix(suffix)
    for suffix in DATA_SUFFIXES:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return name


TEXT_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
TABLE_SUFFIXES = (".parquet", ".arrow", ".feather", ".ipc")
DATA_SUFFIXES = (*TEXT_SUFFIXES, *TABLE_SUFFIXES)
