"""Text from elsewhere, made fit to be looked at: whatever steers a terminal or reorders a line is seen, not obeyed.

Ids, names and contents come from whoever wrote the data. An escape sequence in one would colour or overwrite what
stands on a terminal, and a sign that turns the direction of writing shows a file or a command as another one.
"""

from __future__ import annotations

_KEPT = "\n\t"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_SIGNS: dict[int, str] = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in _KEPT}
_SIGNS |= {0x7F: "\u2421"} | {code: f"<U+{code:04X}>" for code in range(0x80, 0xA0)}
# Embeddings, overrides and isolates; other line breaks; a blank without width; tags. Marks that right-to-left text
# and joined signs need stay.
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


def cell(value: object) -> object:
    """A value of a table that a spreadsheet opens: text that it would run as a formula begins with an apostrophe."""
    is_formula = isinstance(value, str) and value.lstrip(" ")[:1] in _FORMULA
    return f"'{value}" if is_formula else value


def visible(text: str) -> str:
    """The text with control signs replaced by what stands for them: `␛`, `<U+202E>`."""
    return text if text.isascii() and text.isprintable() else text.translate(_SIGNS)
