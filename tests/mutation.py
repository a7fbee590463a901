"""Bytes changed at random, as a disk, an editor or an attacker would change them."""

from __future__ import annotations

import random

_TOKENS = (
    *(b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b'"', b"'", b"\\", b"\n", b"\r", b"\t"),
    *(b"{", b"}", b"[", b"]", b":", b",", b"- ", b"#", b"&a ", b"*a", b"<<: ", b"!!python/object "),
    *(b"null", b"true", b"NaN", b"1e999", b"-1", b"99999999999999999999", b"0x1F", b"2024-13-45"),
    *(b"[" * 2_000, b'{"a":' * 500, b"a" * 5_000, b"{{ 7 * 7 }}", b"%s%n", b"../../etc/passwd"),
)


def mutate(data: bytes, draw: random.Random) -> bytes:
    """The bytes with one to three changes: flipped, cut, blanked, doubled, moved, or a token put in."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice((1, 4, 50, 300)))
        match draw.randrange(7):
            case 0:
                changed = bytes(byte ^ draw.randrange(256) for byte in data[at : at + 4])
                data = data[:at] + changed + data[at + 4 :]
            case 1:
                data = data[:at]
            case 2:
                data = data[:at] + bytes(end - at) + data[end:]
            case 3:
                data = data[:end] + data[at:end] + data[end:]
            case 4:
                data = data[:at] + data[end:]
            case 5:
                data = data[end:] + data[at:end] + data[:at]
            case _:
                data = data[:at] + draw.choice(_TOKENS) + data[at:]
    return data
