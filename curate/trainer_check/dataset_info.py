"""LLaMA-Factory's description of a file, its entry in `dataset_info.json`, and rows by that entry.

A row becomes one of plain columns here, which all else reads: its messages with their roles, its sides, its system
message in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import orjson

from curate.errors import SourceError
from curate.export.llamafactory import FACTS, TAGS
from curate.export.trainer_facts import (
    Layout,
    Order,
    StageFacts,
    TrainerRole,
    TrainingStage,
    pairs_in,
)
from curate.trainer_check.data_files import FileRow, shown
from curate.trainer_check.examples import Unread
from curate.trainer_check.findings import Problem

_ALPACA: Final = {"prompt": "instruction", "query": "input", "response": "output"}
_COLUMNS: Final[Mapping[str, str | None]] = {
    **_ALPACA,
    "messages": "conversations",
    **dict.fromkeys(("history", "system", "tools", "images", "videos", "audios")),
    **dict.fromkeys(("chosen", "rejected", "kto_tag")),
}
"""Meanings of columns, with their default names for a file without a `columns` block."""

_OPENAI_TAGS: Final = dict(
    zip(
        TAGS,
        ("role", "content", "user", "assistant", "tool", "function_call", "system"),
        strict=True,
    )
)
_ROLES: Final[Mapping[str, TrainerRole]] = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "observation_tag": "tool",
    "function_tag": "call",
    "system_tag": "system",
}


@dataclass(slots=True)
class DatasetInfo:
    """LLaMA-Factory's description of a file.

    Attributes:
        columns: names of the file's columns by meaning; None for a meaning without a column.
        tags: names of keys and roles in a message.
        missing_tags: tags that a partial block leaves unset.
        is_listed: False if no `dataset_info.json` names the file, so that the rest is a guess.
        names_columns: True if the entry has a `columns` block; without one a default column may be absent.
    """

    formatting: str = "alpaca"
    ranking: bool = False
    columns: dict[str, str | None] = field(default_factory=lambda: dict(_COLUMNS))
    tags: dict[str, str | None] = field(default_factory=lambda: dict(TAGS))
    missing_tags: tuple[str, ...] = ()
    is_listed: bool = True
    names_columns: bool = False

    @staticmethod
    def of_entry(entry: Mapping[str, Any]) -> DatasetInfo:
        """Return an entry as LLaMA-Factory's parser reads it: a block of columns or tags replaces all defaults."""
        info = DatasetInfo(entry.get("formatting", "alpaca"), entry.get("ranking", False))
        if "columns" in entry:
            info.columns = {name: entry["columns"].get(name) for name in _COLUMNS}
            info.names_columns = True
        if "tags" in entry:
            info.tags = {name: entry["tags"].get(name) for name in TAGS}
            info.missing_tags = tuple(name for name in TAGS if name not in entry["tags"])
        return info

    @staticmethod
    def of_file(path: Path, columns: Sequence[str]) -> DatasetInfo:
        """Return the entry of a file in the `dataset_info.json` beside it, or a guess from its columns.

        Raises:
            SourceError: the description is not a JSON object of entries.
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
            info.tags = dict(_OPENAI_TAGS)
        return info

    @property
    def stage(self) -> TrainingStage:
        """The stage whose processor reads the file."""
        return "dpo" if self.ranking else "kto" if self.columns["kto_tag"] else "sft"

    def facts(self, facts: StageFacts) -> StageFacts:
        """Return a stage's facts with this entry's columns and roles."""
        if self.ranking:
            layout = pairs_in("prompt", "chosen", "rejected", holds="messages message")
        else:
            layout = Layout(("messages",))
        is_openai = self.formatting == "openai"
        merges: frozenset[TrainerRole] = frozenset({"tool"}) if is_openai else frozenset()
        roles = {tag: role for name, role in _ROLES.items() if (tag := self.tags[name])}
        return replace(
            facts,
            layouts=(layout,),
            roles=roles if self.formatting != "alpaca" else facts.roles,
            order=Order(merges),
            drops_calls="" if is_openai else facts.drops_calls,
        )

    def problems(self, columns: Sequence[str]) -> list[Problem]:
        """Return problems of the entry, for a file with these columns."""
        problems = []
        if not self.is_listed:
            does = "not find the file: it reads what dataset_info.json names"
            problems.append(Problem("no_dataset_info", "stops", does))
        is_alpaca = self.formatting == "alpaca"
        if self.missing_tags:
            fatal = not is_alpaca and {"role_tag", "content_tag"} & {*self.missing_tags}
            does = "treat the missing tags as unset, not as their defaults"
            if fatal:
                does = "stop: a message is read by these keys"
            tags = ", ".join(self.missing_tags)
            problems.append(Problem("partial_tags", "stops" if fatal else "noted", does, tags))
        required = [] if is_alpaca else ["messages"]
        required += ["chosen", "rejected"] if self.ranking else []
        if unset := [name for name in required if self.columns[name] is None]:
            does = "stop: it has no column for what it needs"
            problems.append(Problem("partial_columns", "stops", does, ", ".join(unset)))
        unused = {"messages", "response"} if is_alpaca else {*_ALPACA}
        required_columns = {
            column
            for name, column in self.columns.items()
            if column is not None and (self.names_columns or name not in unused)
        }
        if absent := sorted(required_columns - {*columns}):
            does = "stop: the description names columns that the file does not have"
            problems.append(Problem("unknown_columns", "stops", does, ", ".join(absent)))
        return problems

    def unread(self, row: FileRow) -> list[Problem]:
        """Return problems with what a row has and the entry does not name."""
        names = [n for n in ("system", "tools") if self.columns[n] is None and row.get(n)]
        if not names:
            return []
        does = f"leave {' and '.join(names)} out: the description names no column for them"
        return [Problem("partial_columns", "corrupted", does)]

    def row(self, row: FileRow) -> FileRow:
        """Return a row with plain columns: `messages`, or `prompt`, `chosen` and `rejected`; `tools` and `label`.

        Raises:
            Unread: `not_messages`, `mixed_shapes`, `missing_column`.
        """
        values = {name: row.get(column) for name, column in self.columns.items() if column}
        plain = {"tools": values.get("tools"), "label": values.get("kto_tag")}
        if self.formatting == "alpaca":
            messages, sides = _alpaca(values, self.ranking)
        else:
            messages = self._tagged(values.get("messages"))
            sides = {name: values.get(name) for name in ("chosen", "rejected")}
            bad = [name for name, side in sides.items() if not isinstance(side, Mapping)]
            if self.ranking and bad:
                code = "missing_column" if sides[bad[0]] is None else "mixed_shapes"
                raise Unread(code, f"{bad[0]}: {shown(sides[bad[0]])}")
            sides = {name: self._tagged([side])[0] for name, side in sides.items() if self.ranking}
        opens = self.tags["system_tag"] if self.formatting != "alpaca" else "system"
        if values.get("system") and not (messages and messages[0]["role"] == opens):
            messages = [{"role": opens or "system", "content": values["system"]}, *messages]
        return {**plain, **sides, "prompt" if self.ranking else "messages": messages}

    def _tagged(self, messages: object) -> list[dict[str, Any]]:
        role, content = self.tags["role_tag"], self.tags["content_tag"]
        if not isinstance(messages, list):
            raise Unread("not_messages", shown(messages))
        for message in messages:
            if not isinstance(message, Mapping) or role not in message or content not in message:
                raise Unread("not_messages", shown(message))
        return [
            {**message, "role": message[role], "content": message[content]} for message in messages
        ]


def _alpaca(
    values: Mapping[str, Any], ranking: bool
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    history = values.get("history") or []
    if not isinstance(history, list) or not all(
        isinstance(t, list) and len(t) == 2 for t in history
    ):
        raise Unread("not_messages", shown(history))
    query = [text for name in ("prompt", "query") if (text := values.get(name))]
    if not all(isinstance(text, str) for text in query):
        raise Unread("not_messages", shown(query))
    texts = [*(text for turn in history for text in turn), "\n".join(query)]
    sides = {n: values.get(n) for n in (("chosen", "rejected") if ranking else ("response",))}
    for name, side in sides.items():
        if not isinstance(side, str):
            raise Unread(
                "missing_column" if side is None else "mixed_shapes", f"{name}: {shown(side)}"
            )
    texts += [] if ranking else [sides.pop("response")]
    speakers = ("user", "assistant")
    messages = [{"role": speakers[at % 2], "content": text} for at, text in enumerate(texts)]
    return messages, {name: {"role": "assistant", "content": side} for name, side in sides.items()}


def described_files(folder: Path) -> frozenset[str] | None:
    """Return the names of the files that a folder's `dataset_info.json` describes; None if it has none.

    Raises:
        SourceError: the description is not a JSON object of entries.
    """
    entries = _entries(folder)
    return None if entries is None else frozenset(entries)


def _entries(folder: Path) -> dict[str, Mapping[str, Any]] | None:
    """Return the entries of a folder's `dataset_info.json` by the file they describe."""
    path = folder / FACTS.description_file
    if not path.is_file():
        return None
    try:
        entries = orjson.loads(path.read_bytes())
        return {entry["file_name"]: entry for entry in entries.values() if "file_name" in entry}
    except (orjson.JSONDecodeError, AttributeError, TypeError) as error:
        raise SourceError(
            "dataset_info.json cannot be read",
            got=f"{path}: {error}",
            expected="a JSON object with an entry for each data set",
        ) from error
