"""The fields of a row beside its messages: role, scenario, tools, references, labels, metadata.

All shapes share this module, so that a `tools` column means the same everywhere. Unknown fields go to `metadata` under
their own names, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from curate.dialogue import ToolCall
from curate.sources.messages import ROLE_KEYS, ROLES, decoded, read_calls, read_tools
from curate.sources.unit_result import SourceRow, UnreadableError, present, scalar_id

ID_KEYS = (
    "id",
    "_id",
    "conversation_id",
    "conversation_hash",
    "dialogue_id",
    "dialog_id",
    "session_id",
    "chat_id",
    "thread_id",
    "prompt_id",
    "uuid",
)
SCENARIO_KEYS = ("scenario", "scenario_description")
MEDIA_KEYS = ("images", "image", "audios", "audio", "videos", "video")


def read_id(row: SourceRow) -> tuple[str | None, str | None]:
    """Return the row's own id and its key; None and None where it has no id."""
    for key in ID_KEYS:
        own_id = scalar_id(row.get(key))
        if own_id is not None:
            return own_id, key
    return None, None


def read_fields(
    row: SourceRow, used: Collection[str], metadata: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the fields of `Dialogue` that a row has beside its messages.

    Args:
        used: keys that a reader has already read, such as the messages.
        metadata: metadata to add.

    Raises:
        UnreadableError: `media` where the row has images, audio or video.
    """
    for key in MEDIA_KEYS:
        if key not in used and row.get(key):
            raise UnreadableError("media", f"the field '{key}'")
    rest = {key: value for key, value in row.items() if key not in used and value is not None}
    rest.pop(read_id(row)[1] or "", None)
    fields: dict[str, Any] = {}
    for name, (keys, convert) in _FIELDS.items():
        own_key = present(rest, keys)
        value = convert(rest[own_key]) if own_key else None
        if own_key and value is not None:
            fields[name] = value
            rest.pop(own_key)
    # Retrieved web pages that the assistant answered from (LLM-Rubric): evidence for the judge, not for training rows.
    pages = as_texts(rest["ref"]) if "ref" in rest and "ref_url" in rest else None
    if pages is not None:
        fields["evidence"] = (*fields.get("evidence", ()), *pages)
        rest.pop("ref")
    labels = rest.pop("labels") if isinstance(rest.get("labels"), dict) else {}
    labels = {str(key): value for key, value in labels.items()}
    if "label" in rest:
        labels["label"] = rest.pop("label")
    if labels:
        fields["labels"] = labels
    if isinstance(rest.get("metadata"), dict):
        rest = {**rest.pop("metadata"), **rest}
    fields["metadata"] = {str(key): value for key, value in rest.items()} | (metadata or {})
    return fields


def as_texts(value: Any) -> tuple[str, ...] | None:
    """Return one text, or a list of texts, as a tuple; None for anything else."""
    if isinstance(value, str):
        return (value,) if value else ()
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return None


def calls_of_actions(actions: Any) -> tuple[ToolCall, ...]:
    """Return calls in any form, such as tau-bench's {name, kwargs}; empty where they cannot be read."""
    try:
        return tuple(read_calls(actions, "actions"))
    except UnreadableError:
        return ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _expected_tools(value: Any) -> tuple[ToolCall, ...] | None:
    try:
        return tuple(read_calls(value, "expected_tools")) if value else None
    except UnreadableError:
        return None


def _references(value: Any) -> tuple[tuple[str, ...] | None, ...] | None:
    items = decoded(value)
    texts = tuple(map(as_texts, items)) if isinstance(items, list) else (None,)
    return None if None in texts else texts


_FIELDS: dict[str, tuple[Collection[str], Callable[[Any], Any]]] = {
    "role_definition": (
        ("role_definition", "chatbot_role", "assistant_role", "system_role"),
        _text,
    ),
    "scenario": (SCENARIO_KEYS, _text),
    "emphasis": (("emphasis",), scalar_id),
    "group": (("group",), scalar_id),
    "expected_outcomes": (("expected_outcomes", "expected_outcome"), as_texts),
    "evidence": (("evidence", "documents", "retrieved_documents", "retrieved_contexts"), as_texts),
    "tools": (("tools", "functions"), read_tools),
    "expected_tools": (("expected_tools",), _expected_tools),
    "references": (("references",), _references),
    "reward": (("reward",), lambda value: float(value) if isinstance(value, int | float) else None),
}
"""Fields of a dialogue: the keys they stand under, and what reads a value; a value that it returns None for stays in
the metadata."""


def with_system(row: SourceRow, raw: list[Any]) -> tuple[list[Any], set[str]]:
    """Put a row's `system` text before raw messages that have no system message of their own.

    Returns:
        The messages, and the keys that were read; no keys where the text is not used, so that it becomes metadata.
    """
    key = present(row, ("system", "system_prompt"))
    text = row[key] if key else None
    if key is None or not isinstance(text, str):
        return raw, set()
    if not text.strip():
        return raw, {key}
    first = raw[0] if raw and isinstance(raw[0], dict) else {}
    role_name = next((first[name] for name in ROLE_KEYS if isinstance(first.get(name), str)), "")
    if ROLES.get(role_name.strip().lower()) == "system":
        return raw, {key} if text in first.values() else set()
    return [{"role": "system", "content": text}, *raw], {key}
