"""Taking personal data out of what is sent to a hosted model.

Only the prompt is changed: dialogues, records and exports keep their text. What is found is replaced by
its kind in brackets, the same everywhere, so that a judge can still follow who gave what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Literal

PersonalData = Literal["email", "phone", "card"]

_EMAIL = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.]*\d)")
# With a country code, an area code in brackets, or groups of digits; a bare run of digits may be an
# order number, and a date or an amount is no telephone.
_PHONE = re.compile(
    r"(?<![\w.])(?:\+\d{1,3}[ .-]?(?:\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}"
    r"|\(\d{2,4}\) ?\d{3,4}[ .-]?\d{3,4}"
    r"|\d{3}[ .-]\d{3}[ .-]\d{4})(?![\w-])"
)


def redactor(kinds: Collection[PersonalData]) -> Callable[[str], str] | None:
    """A function that replaces the given kinds of personal data in a text; None for no kinds."""
    if not kinds:
        return None
    # Cards before phones: a card number holds what looks like a phone number.
    chosen = [kind for kind in ("email", "card", "phone") if kind in kinds]

    def redact(text: str) -> str:
        for kind in chosen:
            text = _replace(kind, text)
        return text

    return redact


def _replace(kind: str, text: str) -> str:
    if kind == "email":
        return _EMAIL.sub("[email]", text)
    if kind == "phone":
        return _PHONE.sub("[phone]", text)
    return _CARD.sub(lambda found: "[card]" if passes_luhn(found.group()) else found.group(), text)


def passes_luhn(number: str) -> bool:
    """The check digit of ISO/IEC 7812-1, which tells a card number from other long numbers."""
    digits = [int(sign) for sign in number if sign.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
