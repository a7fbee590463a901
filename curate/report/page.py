"""The HTML file: the program, the figures, the columns and the dialogues, each in an element of its own.

What comes from data is never markup: figures are JSON with `<` escaped, everything else is compressed and in base64.
The content policy allows the page's own program and style by their hashes, a worker for searching, and no network.
Dialogues lie in chunks that the page unpacks when it needs them, so that a file of ten thousand opens at once.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import orjson

CHUNK_DIALOGUES: Final = 100
CHUNK_BYTES: Final = 1_000_000
"""Bytes of a chunk before it is compressed; a chunk ends with the dialogue that reaches it."""
_LEVEL = 9


def packed(value: Any) -> bytes:
    """Return JSON, compressed (zlib), in base64."""
    return pack(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))


def pack(data: bytes) -> bytes:
    """Return the bytes, compressed (zlib), in base64."""
    return base64.b64encode(zlib.compress(data, _LEVEL))


def packed_chunks(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Pack dialogues, each a line of JSON, some at a time: how many there are, and the chunk."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if len(part) == CHUNK_DIALOGUES or size >= CHUNK_BYTES:
            yield len(part), pack(b"\n".join(part))
            part, size = [], 0
    if part:
        yield len(part), pack(b"\n".join(part))


def page(
    title: str,
    figures: Mapping[str, Any],
    columns: Mapping[str, Any],
    bodies: Iterable[bytes],
) -> Iterator[bytes]:
    """Return the file, piece by piece.

    Args:
        title: of the page; any text.
        figures: what the overview shows.
        columns: see `report.packed_columns`.
        bodies: chunks as `chunks` gives them.
    """
    script, style = _built("report.js"), _built("report.css")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_sha256(script)}'",
            f"style-src '{_sha256(style)}'",
            "worker-src blob:",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(title)}</title>\n<style>"
    )
    yield head.encode() + style + b"</style>\n</head>\n<body>\n"
    yield b'<div id="app"><p class="opening">Opening the report.</p><noscript>'
    yield b"The report needs JavaScript, which runs in this page alone.</noscript></div>\n"
    yield _element("figures", "application/json", _json(figures))
    yield _element("columns", "application/octet-stream", packed(columns))
    for number, body in enumerate(bodies):
        yield _element(f"chunk-{number}", "application/octet-stream", body)
    yield b"<script>" + script + b"</script>\n</body>\n</html>\n"


def unpacked_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Return all data that a page holds: its figures, its columns, and each dialogue."""
    with path.open("rb") as file:
        for line in file:
            match = _DATA.match(line)
            if match is None:
                continue
            kind, content = match.groups()
            if kind == b"json":
                yield orjson.loads(content)
            else:
                for row in zlib.decompress(base64.b64decode(content)).split(b"\n"):
                    yield orjson.loads(row)


_DATA = re.compile(rb'<script type="application/(json|octet-stream)" id="[\w-]+">(.*)</script>$')


def _element(name: str, kind: str, content: bytes) -> bytes:
    return f'<script type="{kind}" id="{name}">'.encode() + content + b"</script>\n"


def _json(value: Any) -> bytes:
    """Return JSON without a `<`, so that nothing in it ends the element or begins another."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).replace(b"<", b"\\u003c")


def _sha256(data: bytes) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(data).digest()).decode()


def _built(name: str) -> bytes:
    return (files("curate.report") / "built" / name).read_bytes().strip()
