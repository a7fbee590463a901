"""What LLaMA-Factory knows of a file: the entry of `dataset_info.json` that names it, as its parser reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from curate.errors import SourceError

Stage = Literal["sft", "dpo", "kto"]

COLUMNS: Final = {
    "prompt": "instruction",
    "query": "input",
    "response": "output",
    "history": None,
    "messages": "conversations",
    "system": None,
    "tools": None,
    "images": None,
    "videos": None,
    "audios": None,
    "chosen": None,
    "rejected": None,
    "kto_tag": None,
}
"""What a file's columns can mean, with the names looked for where there is no `columns` block."""

TAGS: Final = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "observation_tag": "observation",
    "function_tag": "function_call",
    "system_tag": "system",
}
"""What a message's keys and roles can mean, with the names looked for where there is no `tags` block."""


@dataclass(slots=True)
class DatasetInfo:
    """What LLaMA-Factory knows of a file.

    Attributes:
        columns: names of the file's columns by what they mean; None for what it does not look for.
        tags: names of keys and roles in a message.
        missing_columns, missing_tags: what a partial block leaves unset.
        is_listed: False where no `dataset_info.json` names the file, and the rest is a guess.
    """

    formatting: str = "alpaca"
    ranking: bool = False
    columns: dict[str, str | None] = field(default_factory=lambda: dict(COLUMNS))
    tags: dict[str, str | None] = field(default_factory=lambda: dict(TAGS))
    missing_columns: tuple[str, ...] = ()
    missing_tags: tuple[str, ...] = ()
    is_listed: bool = True

    @staticmethod
    def of_entry(entry: Mapping[str, Any]) -> DatasetInfo:
        """As its parser reads an entry: a block of columns or tags replaces all defaults, not only its own."""
        info = DatasetInfo(
            formatting=entry.get("formatting", "alpaca"), ranking=entry.get("ranking", False)
        )
        if "columns" in entry:
            given = entry["columns"]
            info.columns = {name: given.get(name) for name in COLUMNS}
            info.missing_columns = tuple(name for name in COLUMNS if name not in given)
        if "tags" in entry:
            given = entry["tags"]
            info.tags = {name: given.get(name) for name in TAGS}
            info.missing_tags = tuple(name for name in TAGS if name not in given)
        return info

    @staticmethod
    def of_file(path: Path, columns: Sequence[str]) -> DatasetInfo:
        """The entry of a file in the `dataset_info.json` beside it, or a guess from its columns.

        Raises:
            SourceError: the description is no JSON object of entries.
        """
        entry = (_entries(path.parent) or {}).get(path.name)
        if entry is not None:
            return DatasetInfo.of_entry(entry)
        info = DatasetInfo(is_listed=False)
        info.ranking = "chosen" in columns and "rejected" in columns
        for name in ("system", "tools", "chosen", "rejected", "kto_tag"):
            info.columns[name] = name if name in columns else None
        if "conversations" in columns:
            info.formatting = "sharegpt"
        elif "messages" in columns:
            info.formatting, info.columns["messages"] = "openai", "messages"
            openai = ("role", "content", "user", "assistant", "tool", "function_call", "system")
            info.tags = dict(zip(TAGS, openai, strict=True))
        return info

    @property
    def stage(self) -> Stage:
        """The stage whose processor takes the file."""
        return "dpo" if self.ranking else "kto" if self.columns["kto_tag"] else "sft"


def described_files(folder: Path) -> frozenset[str] | None:
    """Names of the files that a folder's `dataset_info.json` describes; None where there is none.

    Raises:
        SourceError: it is no JSON object of entries.
    """
    entries = _entries(folder)
    return None if entries is None else frozenset(entries)


def _entries(folder: Path) -> dict[str, Mapping[str, Any]] | None:
    """Entries of a folder's `dataset_info.json` by the file they describe."""
    described = folder / "dataset_info.json"
    if not described.is_file():
        return None
    try:
        entries = orjson.loads(described.read_bytes())
        return {entry["file_name"]: entry for entry in entries.values() if "file_name" in entry}
    except (orjson.JSONDecodeError, AttributeError, TypeError) as error:
        raise SourceError(
            "dataset_info.json cannot be read",
            got=f"{described}: {error}",
            expected="a JSON object with an entry for each data set",
        ) from error
