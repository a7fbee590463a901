"""Reading a page back, as its program does."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class _Elements(HTMLParser):
    """Elements by id, all scripts, all tags."""

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[str, str] = {}
        self.programs: list[str] = []
        self.tags: list[str] = []
        self.policy = ""
        self._open: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        held = dict(attrs)
        if held.get("http-equiv") == "Content-Security-Policy":
            self.policy = held["content"] or ""
        if tag == "script":
            self._open = held.get("id") or ""

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open == "":
            self.programs.append(data)
        elif self._open:
            self.by_id[self._open] = self.by_id.get(self._open, "") + data


class ReadPage:
    """A page: its figures, columns, dialogues, and what a browser would run."""

    def __init__(self, data: bytes) -> None:
        elements = _Elements()
        elements.feed(data.decode())
        self.programs, self.tags, self.policy = elements.programs, elements.tags, elements.policy
        self.figures: dict[str, Any] = json.loads(elements.by_id["figures"])
        self.columns: dict[str, Any] = json.loads(unpacked(elements.by_id["columns"]))
        names = [name for name in elements.by_id if re.fullmatch(r"chunk-\d+", name)]
        self.chunks = [
            [json.loads(line) for line in unpacked(elements.by_id[name]).split(b"\n")]
            for name in names
        ]

    @classmethod
    def of(cls, path: Path) -> ReadPage:
        return cls(path.read_bytes())

    @property
    def dialogues(self) -> list[dict[str, Any]]:
        return [dialogue for chunk in self.chunks for dialogue in chunk]

    def column(self, name: str, table: str = "dialogues") -> list[Any]:
        column = self.columns[table][name]
        if "v" in column:
            return list(column["v"])
        return [None if code < 0 else column["d"][code] for code in column["c"]]


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
