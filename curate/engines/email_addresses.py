"""E-mail addresses in a text, also encoded ones (`%40`) and those spelled out to hide them from programs.

Each is searched from its `@`, or another spelling of it, outwards; the name before it is bounded, so the search is linear.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

LINE_ESCAPE = re.compile(r"\\[nrtbf]")
"""The end of a line, a tab and the like, as JSON writes them."""
_AT_SIGN = r"[@\uff20]|\\u0040|\\uff20|%40|&#64;"
_AT = re.compile(
    rf"(?:{_AT_SIGN})(?:[^\W_][\w-]{{0,62}}[.\uff0e]){{1,10}}(?:xn--[a-zA-Z0-9-]{{2,59}}|[^\W\d_]{{2,63}})"
)
_SPELLED_AT = r"[ ]?[\[({]\s?(?:[aA][tT]|ät|@)\s?[\])}][ ]?"
_SPELLED_DOT = r"[ ]?[\[({]\s?(?:[dD][oO][tT]|punkt|\.)\s?[\])}][ ]?"
_SPELLED = re.compile(
    rf"{_SPELLED_AT}[^\W_][\w-]{{0,62}}(?:(?:\.|{_SPELLED_DOT})[^\W_][\w-]{{1,62}}){{1,4}}"
)
"""What follows the name in an address that its writer hides from programs: `ann [at] shop [dot] org`."""
_SHOUTED = re.compile(r"[ ]AT[ ][^\W_][\w-]{0,62}(?:[ ]DOT[ ][^\W_][\w-]{1,62}){1,4}")
"""The same without brackets: `ann AT shop DOT org`."""
_DOT_BEFORE = re.compile(rf"(?:{_SPELLED_DOT}|[ ]DOT[ ])\Z")
_LOCAL = frozenset(".+%'-_\"\uff0e")
_LONGEST_LOCAL = 128
_MOST_SPELLED_DOTS = 3


def find_emails(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each e-mail address in a text; some may overlap."""
    for match in itertools.chain(_SPELLED.finditer(text), _AT.finditer(text)):
        start = _local_start(text, match.start())
        if start < match.start():
            yield _first_local(text, start), match.end()
    for match in _SHOUTED.finditer(text):
        start = _local_start(text, match.start())
        # Among words that are all capitals, AT and DOT are words: `LOOK AT AMAZON DOT COM`.
        words = text[start : match.start()] + match[0].replace(" AT ", "").replace(" DOT ", "")
        if start < match.start() and not words.isupper():
            yield _first_local(text, start), match.end()


def _local_start(text: str, end: int) -> int:
    """Return where the name before an `@` begins; `end` where there is none."""
    start, least = end, max(0, end - _LONGEST_LOCAL)
    while start > least and (text[start - 1].isalnum() or text[start - 1] in _LOCAL):
        start -= 1
    if LINE_ESCAPE.match(text, start - 1) and start > 0:
        start += 1  # the letter of `\n` or `\t` is not part of the address
    while start < end and not (text[start].isalnum() or text[start] == "_"):
        start += 1
    return start


def _first_local(text: str, start: int) -> int:
    """Return where a name begins whose dots are spelled: `ann [dot] lee` of `ann [dot] lee [at] shop.org`."""
    for _ in range(_MOST_SPELLED_DOTS):
        dot = _DOT_BEFORE.search(text, max(0, start - 12), start)
        before = start if dot is None else _local_start(text, dot.start())
        if dot is None or before == dot.start():
            break
        start = before
    return start


def plain_address(address: str) -> str:
    """Return an address of `find_emails` with `@` and dots in place of their other spellings."""
    plain = re.sub(rf"{_SPELLED_AT}|[ ]AT[ ]|{_AT_SIGN}", "@", address)
    return re.sub(rf"{_SPELLED_DOT}|[ ]DOT[ ]|\uff0e", ".", plain)
