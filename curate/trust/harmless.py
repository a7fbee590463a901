"""Edits that change a reply's words and not its meaning: the control for a planted flaw.

A judge that scores any edited text lower would seem to find flaws. So beside each flaw the same reply is edited
harmlessly, with about as much of it changed: by a rewording that is known of the whole text, else by words that
mean the same.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from difflib import SequenceMatcher

from curate.trust.plants import is_like_long

_WAYS = (
    ("do not", "don't"),
    ("does not", "doesn't"),
    ("cannot", "can't"),
    ("will not", "won't"),
    ("is not", "isn't"),
    ("I am", "I'm"),
    ("I will", "I'll"),
    ("It is", "It's"),
    ("That is", "That's"),
    ("There is", "There's"),
    ("you will", "you'll"),
    ("Let us", "Let's"),
    ("perhaps", "maybe"),
    ("big", "large"),
    ("begin", "start"),
    ("likely", "probably"),
    ("nothing more", "nothing else"),
    ("Thank you", "Thanks"),
    ("Yes", "Yes indeed"),
    ("Then", "In that case"),
    ("Please", "Kindly"),
    ("please", "kindly"),
    ("tell me", "let me know"),
    ("Tell me", "Let me know"),
    ("gets", "receives"),
    ("shown", "displayed"),
    ("usually", "normally"),
    ("until", "till"),
    ("Perfecto", "De acuerdo"),
    ("Gracias", "Muchas gracias"),
    ("pero", "aunque"),
    ("quieren", "desean"),
    ("Entiendo", "Comprendo"),
)
"""Words and what may stand for them, at word boundaries."""
_SIGNS = (
    ("请", "麻烦您"),
    ("抱歉", "对不起"),
    ("谢谢", "多谢"),
    ("大概", "大约"),
    ("所以", "因此"),
)
"""The same in a script without word boundaries."""
_SWAPS = (
    *((rf"(?<![\w']){re.escape(one)}(?![\w'])", other) for one, other in _WAYS),
    *((re.escape(one), other) for one, other in _SIGNS),
)
"""Patterns and what may stand for what they match."""


def changed_share(text: str, other: str) -> float:
    """Return how much of a text another one changes, 0-1: 1 - 2 x characters in common / characters of both."""
    return 1 - SequenceMatcher(None, text, other, autojunk=False).ratio()


def harmless_edit(
    text: str, share: float, rewordings: Mapping[str, str], draw: random.Random
) -> str | None:
    """Return the text in other words, about as much of it changed as asked; None where nothing is known for it.

    Args:
        text: a reply.
        share: how much of it a flaw changes, 0-1.
        rewordings: texts and the same in other words; taken whole where the flaw changes as much or more.
        draw: the order in which words are tried.
    """
    whole = rewordings.get(text)
    if whole is not None and changed_share(text, whole) <= share:
        return whole
    edited = text
    for pattern, other in draw.sample(_SWAPS, len(_SWAPS)):
        if changed_share(text, edited) >= share:
            break
        longer = re.sub(pattern, other, edited, count=1)
        if is_like_long(longer, text):
            edited = longer
    return edited if edited != text else whole
