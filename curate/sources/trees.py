"""OASST trees: nested (one row a tree) or flat (one row a message with a pointer to its parent).

Every path from the root to a leaf is a dialogue of the tree's group. A path that ends with a user message is
cut back to its last assistant message, and paths that become equal are one. Deleted messages are left
out with all that hangs on them. Sibling ranks stand in `labels['message_ranks']`, the best rank among a message
and its siblings in `labels['best_ranks']` and message ids in `metadata['message_ids']`, all aligned with the
messages, so that siblings can be found again by group.

Flat files are held in memory whole, because a message may stand anywhere in relation to its parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from curate.dialogue import Message
from curate.sources.fields import read_fields
from curate.sources.messages import read_message
from curate.sources.unit_result import (
    Draft,
    RowFault,
    SourceRow,
    UnitResult,
    UnreadableError,
    check_user,
    present,
    scalar_id,
    text_of,
    type_name,
)

ID_KEYS = ("message_id", "user_message_id")
PARENT_KEYS = ("parent_id", "parent_message_id")
STRUCTURE_KEYS = frozenset(
    (*ID_KEYS, *PARENT_KEYS, "text", "role", "replies", "rank", "deleted", "labels", "children")
)
TREE_KEYS = frozenset(("message_tree_id", "tree_state"))


@dataclass(slots=True)
class Node:
    """One message of a tree. `fault` says why it cannot be read; what hangs on it is left out then."""

    id: str
    raw: SourceRow
    row: int = 0
    parent: str | None = None
    message: Message | None = None
    fault: UnreadableError | None = None
    children: list[Node] = field(default_factory=list)


def read_nested(row: SourceRow) -> UnitResult:
    """Read one tree: `prompt` with `replies`, or the root message itself.

    Raises:
        UnreadableError: `no_assistant`, `missing_field`, or the root's own fault.
    """
    raw = row["prompt"] if isinstance(row.get("prompt"), dict) else row
    if "replies" not in raw and "children" not in raw:
        raise UnreadableError("missing_field", "no 'prompt' with 'replies'")
    root = _build(raw)
    if root.fault is not None:
        raise root.fault
    tree_id = scalar_id(row.get("message_tree_id")) or root.id
    shared = {} if raw is row else read_fields(row, {"prompt", "message_tree_id"})
    drafts, faults = _drafts(root, tree_id, shared.get("metadata", {}))
    if not drafts:
        raise UnreadableError("no_assistant", "no path of the tree has an assistant message")
    parts = tuple(fault.at(part=node.id) for node, fault in faults)
    return UnitResult(tree_id, tuple(drafts), parts)


def _build(raw: SourceRow) -> Node:
    """Return the tree of nodes, built without recursion because the data may be arbitrarily deep."""
    root = _node(raw, "0")
    open_nodes = [root]
    while open_nodes:
        node = open_nodes.pop()
        replies = node.raw.get("replies") or node.raw.get("children") or []
        if node.fault is not None or not isinstance(replies, list):
            continue
        for index, reply in enumerate(replies):
            child_id = f"{node.id}.{index}"
            if isinstance(reply, dict):
                child = _node(reply, child_id)
            else:
                child = Node(child_id, {}, fault=UnreadableError("bad_type", type_name(reply)))
            node.children.append(child)
            open_nodes.append(child)
    return root


def _node(raw: SourceRow, fallback_id: str, row: int = 0) -> Node:
    key = present(raw, ID_KEYS)
    node = Node((scalar_id(raw[key]) if key else None) or fallback_id, raw, row)
    try:
        if raw.get("deleted") is True:
            raise UnreadableError("deleted", f"message {node.id}")
        text = text_of(raw.get("text"), "text")
        message = read_message({"role": raw.get("role"), "content": text})[0]
        check_user(message, f"message {node.id}")
        node.message = message
    except UnreadableError as fault:
        node.fault = fault
    return node


def _drafts(
    root: Node, tree_id: str, shared: dict[str, Any]
) -> tuple[list[Draft], list[tuple[Node, UnreadableError]]]:
    """Return the paths of a tree as drafts, in the order of the data, and the nodes that were left out."""
    drafts: list[Draft] = []
    faults: list[tuple[Node, UnreadableError]] = []
    paths_drafted: set[tuple[str, ...]] = set()
    open_paths: list[tuple[Node, ...]] = [(root,)]
    while open_paths:
        path = open_paths.pop()
        faults.extend((node, node.fault) for node in path[-1].children if node.fault is not None)
        live = [node for node in path[-1].children if node.fault is None]
        open_paths.extend((*path, node) for node in reversed(live))
        if live:
            continue
        usable = _cut_back(path)
        ids = tuple(node.id for node in usable)
        if usable and ids not in paths_drafted:
            paths_drafted.add(ids)
            drafts.append(_draft(usable, tree_id, shared))
    return drafts, faults


def _cut_back(path: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the path up to its last assistant message with text; empty where there is none."""
    for end in range(len(path), 0, -1):
        message = path[end - 1].message
        if message is not None and message.role == "assistant" and message.content.strip():
            return path[:end]
    return ()


def _draft(path: tuple[Node, ...], tree_id: str, shared: dict[str, Any]) -> Draft:
    labels: dict[str, Any] = {
        "message_ranks": [_rank(node.raw.get("rank")) for node in path],
        "best_ranks": [None, *(_best_rank(node.children) for node in path[:-1])],
    }
    message_labels = [_message_labels(node.raw.get("labels")) for node in path]
    if any(message_labels):
        labels["message_labels"] = message_labels
    metadata = {**shared, "message_ids": [node.id for node in path]}
    metadata |= {
        key: path[0].raw[key] for key in ("lang", "tree_state") if path[0].raw.get(key) is not None
    }
    keys = dict.fromkeys(
        key
        for node in path
        for key, value in node.raw.items()
        if value is not None and key not in STRUCTURE_KEYS and key not in TREE_KEYS
    )
    metadata["per_message"] = {key: [node.raw.get(key) for node in path] for key in keys}
    messages = tuple(node.message for node in path if node.message is not None)
    rows = tuple(node.row for node in path) if path[0].row else None
    fields = {"group": tree_id, "labels": labels, "metadata": metadata}
    return Draft(messages, fields, part=path[-1].id, rows=rows)


def _rank(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and value == value else None


def _best_rank(siblings: list[Node]) -> int | None:
    """Return the best rank among the readable siblings; None where none of them has a rank."""
    ranks = (_rank(node.raw.get("rank")) for node in siblings if node.fault is None)
    return min((rank for rank in ranks if rank is not None), default=None)


def _message_labels(raw: Any) -> dict[str, Any] | None:
    """Return OASST's labels of a message as {name: value}, from either form in which it publishes them."""
    if not isinstance(raw, dict) or not raw:
        return None
    names, values = raw.get("name"), raw.get("value")
    if isinstance(names, list) and isinstance(values, list):
        return dict(zip(map(str, names), values, strict=False))
    return {
        str(name): item.get("value") if isinstance(item, dict) else item
        for name, item in raw.items()
    }


def read_flat(rows: list[tuple[int, SourceRow]]) -> Iterator[tuple[tuple[int, ...], UnitResult]]:
    """Read the trees of a flat file, in the order of their roots, then the rows that belong to no tree.

    Yields:
        The rows of each tree, sorted, and its reading. Rows on no dialogue are faults of the reading.
    """
    nodes: dict[str, Node] = {}
    faults: dict[int, RowFault] = {}
    for number, row in rows:
        key, parent = present(row, ID_KEYS), present(row, PARENT_KEYS)
        node_id = scalar_id(row[key]) if key else None
        if node_id is None:
            faults[number] = RowFault("missing_field", f"none of {', '.join(ID_KEYS)}", number)
        elif node_id in nodes:
            first = nodes[node_id].row
            faults[number] = RowFault("duplicate_message", f"id of row {first}: {node_id}", number)
        else:
            nodes[node_id] = _node(row, node_id, number)
            nodes[node_id].parent = scalar_id(row[parent]) if parent else None
    roots = [node for node in nodes.values() if node.parent is None]
    for node in nodes.values():
        if node.parent in nodes:
            nodes[node.parent].children.append(node)
    reached_ids: set[str] = set()
    for root in roots:
        members = _members(root)
        reached_ids.update(node.id for node in members)
        yield tuple(sorted(node.row for node in members)), _read_flat_tree(root, members)
    for node in nodes.values():
        if node.id not in reached_ids:
            detail = f"parent {node.parent} leads to no root"
            faults[node.row] = RowFault("missing_parent", detail, node.row)
    for number in sorted(faults):
        yield (number,), UnitResult(None, faults=(faults[number],))


def _members(root: Node) -> list[Node]:
    members, open_nodes = [], [root]
    while open_nodes:
        node = open_nodes.pop()
        members.append(node)
        open_nodes.extend(node.children)
    return members


def _read_flat_tree(root: Node, members: list[Node]) -> UnitResult:
    tree_id = scalar_id(root.raw.get("message_tree_id")) or root.id
    drafts = _drafts(root, tree_id, {})[0] if root.fault is None else []
    used = {row for draft in drafts for row in draft.rows or ()}
    lost = {id(node) for node in members if node.fault is not None}
    faults = []
    for node in members:  # parents come before their children
        if id(node) in lost:
            lost.update(id(child) for child in node.children)
        if node.row in used:
            continue
        if node.fault is not None:
            faults.append(node.fault.at(node.row))
        elif id(node) in lost:
            faults.append(RowFault("missing_parent", "a message above it was left out", node.row))
        else:
            faults.append(RowFault("no_assistant", "no assistant message after this one", node.row))
    return UnitResult(tree_id, tuple(drafts), tuple(faults))
