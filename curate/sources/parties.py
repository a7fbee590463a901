"""Guesses of speakers' roles from their names and how often they speak: user, assistant, or left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from curate.sources.messages import ROLES

MOST_NAMES = 12
"""Most distinct speakers over all dialogues for their names to be roles; more are names of people."""
_USERS = frozenset(
    [
        "usr",
        "seeker",
        "help_seeker",
        "buyer",
        "driver",
        "patient",
        "student",
        "caller",
        "questioner",
        "asker",
        "requester",
        "apprentice",
        "child",
        "guest",
        "visitor",
        "person",
        "q",
    ]
)
"""Names of users beside those in `ROLES`."""
_ASSISTANTS = frozenset(
    [
        "wizard",
        "supporter",
        "seller",
        "operator",
        "support",
        "doctor",
        "teacher",
        "tutor",
        "therapist",
        "counselor",
        "counsellor",
        "helper",
        "expert",
        "robot",
        "machine",
        "sys",
        "listener",
        "advisor",
        "answerer",
        "a",
    ]
)
"""Names of assistants beside those in `ROLES`."""

Raw = dict[str, Any]


def guess_roles(dialogues: Sequence[Sequence[str | None]]) -> tuple[Raw, list[str]]:
    """Return the roles of the speakers, in the form of a mapping's settings, and the doubts about them.

    Args:
        dialogues: the speakers of each dialogue in order.
    """
    counts = Counter(name for names in dialogues for name in names if name is not None)
    if len(counts) > MOST_NAMES:
        return {"in_order": ["user", "assistant"]}, ["who speaks first is taken for the user"]
    doubts: list[str] = []
    roles = {name: role for name in counts if (role := known_role(name)) is not None}
    roles |= _by_words(counts.keys() - roles.keys(), set(roles.values()))
    _second_party(roles, counts, doubts)
    unknown = [name for name in counts if name not in roles]
    if unknown:
        _guess(roles, unknown, dialogues, counts, doubts)
    unusual = {
        name: role for name, role in roles.items() if ROLES.get(name.strip().lower()) != role
    }
    if unusual and not doubts:
        doubts.append("roles are guessed from the speakers' names")
    return {"roles": unusual} if unusual else {}, doubts


def known_role(name: str) -> str | None:
    """Return the role that a speaker's name says, as a usual name or as one of a party; None for other names."""
    name = name.strip().lower()
    parties = {"user": _USERS, "assistant": _ASSISTANTS}
    return ROLES.get(name) or next((role for role in parties if name in parties[role]), None)


def _by_words(names: set[str], known_roles: set[str]) -> dict[str, str]:
    """Return roles by a word in the name, such as `0_Wizard`; empty unless user and assistant are then both known."""
    roles_by_name = {
        name: role
        for name in names
        for word in re.split(r"[\W\d_]+", name)
        if word and (role := known_role(word)) is not None
    }
    return (
        roles_by_name if {"user", "assistant"} <= known_roles | set(roles_by_name.values()) else {}
    )


def _second_party(roles: dict[str, str], counts: Counter[str], doubts: list[str]) -> None:
    """Make a system speaker with a quarter or more of all messages the assistant, if there is no assistant."""
    total = counts.total()
    if "assistant" in roles.values():
        return
    for name, role in roles.items():
        if role == "system" and counts[name] * 4 >= total:
            roles[name] = "assistant"
            doubts.append(f"'{name}' is taken for the assistant")
            return


def _guess(
    roles: dict[str, str],
    unknown: list[str],
    dialogues: Sequence[Sequence[str | None]],
    counts: Counter[str],
    doubts: list[str],
) -> None:
    """Assign the missing roles to the unknown speakers who speak most, or first, and leave the others out."""
    missing = [role for role in ("user", "assistant") if role not in roles.values()]
    first = Counter(name for names in dialogues for name in names[:1] if name in unknown)
    candidates = sorted(unknown, key=lambda name: (-counts[name], -first[name]))[: len(missing)]
    if len(missing) == 2:
        candidates.sort(key=lambda name: -first[name])
        doubts.append("who speaks first is taken for the user")
    for name, role in zip(candidates, missing, strict=False):
        roles.update({name: role})
    others = [name for name in unknown if name not in roles]
    roles.update(dict.fromkeys(others, "skip"))
    if others:
        doubts.append(f"left out, since their names say no role: {', '.join(others)}")
    if candidates and len(missing) == 1:
        doubts.append(f"'{candidates[0]}' is taken for the {missing[0]}")
