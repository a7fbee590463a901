"""What is taken out before a hosted model sees it, and what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.redaction import redactor


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to ana.ruiz+shop@example.co.uk, please.", "Write to [email], please."),
        ("Call +1 708-340-0190 or (030) 123 4567.", "Call [phone] or [phone]."),
        ("My phone is 708-340-0190.", "My phone is [phone]."),
        ("Card 4111 1111 1111 1111, thanks", "Card [card], thanks"),
        ("Order 4421-987 of 2024-05-20, 1,250.00 EUR, flight HAT136", None),
        ("Order 1234567890123456 is no card", None),
    ],
)
def test_personal_data_is_replaced_by_its_kind(text: str, expected: str | None) -> None:
    redact = redactor(("email", "phone", "card"))
    assert redact is not None
    assert redact(text) == (expected or text)


def test_only_the_kinds_asked_for() -> None:
    redact = redactor(("email",))
    assert redact is not None
    assert redact("a@b.org 708-340-0190") == "[email] 708-340-0190"
    assert redactor(()) is None


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    redact = redactor(("email", "phone", "card"))
    assert redact is not None
    assert redact(redact(text)) == redact(text)
