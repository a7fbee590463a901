"""Text from elsewhere made safe to display: control characters are shown as signs instead of taking effect.

Ids, names and contents come from whoever wrote the data. An escape sequence could colour or overwrite a terminal,
and a character that changes the writing direction can make a file or command look like another one.
"""

from __future__ import annotations

_KEPT = "\n\t"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_SIGNS: dict[int, str] = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in _KEPT}
_SIGNS |= {0x7F: "\u2421"} | {code: f"<U+{code:04X}>" for code in range(0x80, 0xA0)}
# Embeddings, overrides and isolates; other line breaks; zero-width spaces; tags. Marks that right-to-left text and
# joined characters need are kept.
_SIGNS |= {
    code: f"<U+{code:04X}>"
    for span in (
        range(0x202A, 0x202F),
        range(0x2066, 0x206A),
        (0x2028, 0x2029, 0x200B, 0xFEFF),
        range(0xE0000, 0xE0080),
    )
    for code in span
}


def spreadsheet_cell(value: object) -> object:
    """Return a table value for a spreadsheet: text that would run as a formula gets a leading apostrophe."""
    is_formula = isinstance(value, str) and value.lstrip(" ")[:1] in _FORMULA
    return f"'{value}" if is_formula else value


def visible(text: str) -> str:
    """Return the text with control characters replaced by visible signs: `␛`, `<U+202E>`."""
    return text if text.isascii() and text.isprintable() else text.translate(_SIGNS)
