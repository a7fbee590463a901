"""The fields of a row beside its messages: role, scenario, tools, references, labels, metadata.

All shapes share this module, so that a `tools` column means the same everywhere. Unknown fields go to `metadata` under
their own names, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from curate.dialogue import ToolCall
from curate.sources.messages import ROLE_KEYS, ROLES, decoded, read_calls, read_tools
from curate.sources.unit_result import Row, UnreadableError, present, scalar_id

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
ROLE_DEFINITION_KEYS = ("role_definition", "chatbot_role", "assistant_role", "system_role")
SCENARIO_KEYS = ("scenario", "scenario_description")
EVIDENCE_KEYS = ("evidence", "documents", "retrieved_documents", "retrieved_contexts")
TOOL_KEYS = ("tools", "functions")
MEDIA_KEYS = ("images", "image", "audios", "audio", "videos", "video")
TEXT_FIELDS = ("emphasis", "group")
LIST_FIELDS = {
    "expected_outcomes": ("expected_outcomes", "expected_outcome"),
    "evidence": EVIDENCE_KEYS,
}


def read_id(row: Row) -> tuple[str | None, str | None]:
    """Return the row's own id and its key; None and None where it has no id."""
    for key in ID_KEYS:
        own_id = scalar_id(row.get(key))
        if own_id is not None:
            return own_id, key
    return None, None


def read_fields(
    row: Row, used: Collection[str], metadata: dict[str, Any] | None = None
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
    _take_texts(rest, fields)
    _take_tools(rest, fields)
    _take_references(rest, fields)
    _take_numbers_and_labels(rest, fields)
    if isinstance(rest.get("metadata"), dict):
        rest = {**rest.pop("metadata"), **rest}
    fields["metadata"] = {str(key): value for key, value in rest.items()} | (metadata or {})
    return fields


def _take_texts(rest: Row, fields: dict[str, Any]) -> None:
    keys_of = {"role_definition": ROLE_DEFINITION_KEYS, "scenario": SCENARIO_KEYS}
    for name, keys in keys_of.items():
        key = present(rest, keys)
        if key and isinstance(rest[key], str) and rest[key].strip():
            fields[name] = rest.pop(key)
    for name in TEXT_FIELDS:
        text = scalar_id(rest.get(name))
        if text is not None:
            fields[name] = text
            rest.pop(name)
    for name, keys in LIST_FIELDS.items():
        key = present(rest, keys)
        texts = as_texts(rest[key]) if key else None
        if key and texts is not None:
            fields[name] = texts
            rest.pop(key)
    # Retrieved web pages that the assistant answered from (LLM-Rubric): evidence for the judge, not for training rows.
    if "ref" in rest and "ref_url" in rest:
        texts = as_texts(rest["ref"])
        if texts is not None:
            fields["evidence"] = (*fields.get("evidence", ()), *texts)
            rest.pop("ref")


def _take_tools(rest: Row, fields: dict[str, Any]) -> None:
    key = present(rest, TOOL_KEYS)
    if key:
        tools = read_tools(rest[key])
        if tools is not None:
            rest.pop(key)
            if tools:
                fields["tools"] = tools
    if rest.get("expected_tools"):
        try:
            fields["expected_tools"] = tuple(read_calls(rest["expected_tools"], "expected_tools"))
        except UnreadableError:
            return  # it stays in the metadata
        rest.pop("expected_tools")


def _take_references(rest: Row, fields: dict[str, Any]) -> None:
    raw = decoded(rest.get("references"))
    if isinstance(raw, list):
        per_turn = [as_texts(item) for item in raw]
        if all(item is not None for item in per_turn):
            fields["references"] = tuple(per_turn)
            rest.pop("references")


def _take_numbers_and_labels(rest: Row, fields: dict[str, Any]) -> None:
    reward = rest.get("reward")
    if isinstance(reward, int | float):
        fields["reward"] = float(reward)
        rest.pop("reward")
    labels: dict[str, Any] = {}
    if isinstance(rest.get("labels"), dict):
        labels.update({str(key): value for key, value in rest.pop("labels").items()})
    if "label" in rest:
        labels["label"] = rest.pop("label")
    if labels:
        fields["labels"] = labels


def as_texts(value: Any) -> tuple[str, ...] | None:
    """Return one text, or a list of texts, as a tuple; None for anything else."""
    if isinstance(value, str):
        return (value,) if value else ()
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return None


def with_system(row: Row, raw: list[Any]) -> tuple[list[Any], set[str]]:
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


def calls_of_actions(actions: Any) -> tuple[ToolCall, ...]:
    """Return tau-bench's `actions` ({name, kwargs}) as calls; empty where they have another form."""
    try:
        return tuple(read_calls(actions, "actions"))
    except UnreadableError:
        return ()
