"""Which of the speakers that data names is the user, which the assistant, and who is left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from curate.sources.messages import ROLES

MOST_NAMES = 12
"""More speakers than these over all dialogues are people's names, which say no role."""
USERS = frozenset(
    [
        "user",
        "usr",
        "customer",
        "client",
        "human",
        "prompter",
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
ASSISTANTS = frozenset(
    [
        "assistant",
        "agent",
        "gpt",
        "bot",
        "chatbot",
        "model",
        "ai",
        "chatgpt",
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

Raw = dict[str, Any]


def guess_roles(dialogues: Sequence[Sequence[str | None]]) -> tuple[Raw, list[str]]:
    """Roles of the speakers, as a mapping has them, and what is doubtful about them."""
    spoken = Counter(name for names in dialogues for name in names if name is not None)
    if len(spoken) > MOST_NAMES:
        return {"in_order": ["user", "assistant"]}, ["who speaks first is taken for the user"]
    roles: dict[str, str] = {}
    doubts: list[str] = []
    for name in spoken:
        role = _known_role(name)
        if role is not None:
            roles[name] = role
    roles |= _by_words(set(spoken) - roles.keys(), set(roles.values()))
    _second_party(roles, spoken, doubts)
    unknown = [name for name in spoken if name not in roles]
    if unknown:
        _guess(roles, unknown, dialogues, spoken, doubts)
    named = {name: role for name, role in roles.items() if ROLES.get(name.strip().lower()) != role}
    if named and not doubts:
        doubts.append("roles are guessed from the speakers' names")
    return {"roles": named} if named else {}, doubts


def _known_role(name: str) -> str | None:
    folded = name.strip().lower()
    if folded in ROLES:
        return ROLES[folded]
    return "user" if folded in USERS else "assistant" if folded in ASSISTANTS else None


def _by_words(names: set[str], given: set[str]) -> dict[str, str]:
    """Roles by a word in a name, such as `0_Wizard`, where the words tell both parties apart."""
    found = {
        name: role
        for name in names
        for word in re.split(r"[\W\d_]+", name)
        if word and (role := _known_role(word)) is not None
    }
    return found if {"user", "assistant"} <= given | set(found.values()) else {}


def _second_party(roles: dict[str, str], spoken: Counter[str], doubts: list[str]) -> None:
    """Who is called a system and speaks as often as the user is the assistant."""
    total = spoken.total()
    if "assistant" in roles.values():
        return
    for name, role in roles.items():
        if role == "system" and spoken[name] * 4 >= total:
            roles[name] = "assistant"
            doubts.append(f"'{name}' is taken for the assistant")
            return


def _guess(
    roles: dict[str, str],
    unknown: list[str],
    dialogues: Sequence[Sequence[str | None]],
    spoken: Counter[str],
    doubts: list[str],
) -> None:
    """Give the party that is missing to who speaks most, or first, and leave the others out."""
    missing = [role for role in ("user", "assistant") if role not in roles.values()]
    first = Counter(name for names in dialogues for name in names[:1] if name in unknown)
    ranked = sorted(unknown, key=lambda name: (-spoken[name], -first[name]))[: len(missing)]
    if len(missing) == 2:
        ranked.sort(key=lambda name: -first[name])
        doubts.append("who speaks first is taken for the user")
    for name, role in zip(ranked, missing, strict=False):
        roles.update({name: role})
    left = [name for name in unknown if name not in roles]
    roles.update(dict.fromkeys(left, "skip"))
    if left:
        doubts.append(f"left out, since their names say no role: {', '.join(left)}")
    if ranked and len(missing) == 1:
        doubts.append(f"'{ranked[0]}' is taken for the {missing[0]}")
