"""Requests and the records made of their replies as text, compared with a file that stands beside the tests.

A request is the key under which its reply is kept: whatever changes in one is asked and paid for again, and recorded
replies no longer fit; a record is what users read. So these files change only with a prompt or a record. `CURATE_REWRITE=1 pytest TEST` writes them anew; read
the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from curate.engines.base import Request

_SHOWN_APART = ("trunk", "question", "_")


def transcript(requests: Sequence[Request], *records: BaseModel) -> str:
    """Each request: whatever is not the default, then its prompt, of a prompt that begins as the last only what is new.

    Then each record, without what is empty or the default.
    """
    parts: list[str] = []
    before = ""
    for number, request in enumerate(requests, start=1):
        options = {
            entry.name: value
            for entry in fields(Request)
            if entry.name not in _SHOWN_APART
            and (value := getattr(request, entry.name)) != entry.default
        }
        lines = [f"{name} = {_plain(value)}" for name, value in options.items()]
        prompt = "\n\n".join(f"{m['role']}: {_content(m)}" for m in request.messages)
        same = next(
            (at for at, (a, b) in enumerate(zip(before, prompt, strict=False)) if a != b), 0
        )
        shared = prompt.rfind("\n", 0, same) + 1
        start = "" if shared < 200 else f"[the first {shared} characters as before]\n"
        before = prompt
        shown = prompt[shared:] if start else prompt
        parts.append("\n".join([f"==== request {number}", *lines, "----", start + shown.rstrip()]))
    for record in records:
        content = record.model_dump(mode="json", exclude_defaults=True)
        parts.append(
            f"==== {type(record).__name__}\n{json.dumps(_rounded(content), indent=1, ensure_ascii=False)}"
        )
    return "\n\n".join(parts) + "\n"


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=list)


_CHANGING = {
    "content_hash", "curate_version", "duration", "environment", "estimate", "finished", "fingerprints", "hashes", "made",
    "seconds", "seconds_by_stage", "started", "version", "versions",
}  # fmt: skip
"""What differs from run to run, or with each release."""


def kept(content: Any, *folders: Path) -> str:
    """JSON that a run keeps, as text: without times, versions and fingerprints, and where it lies on this machine."""
    text = json.dumps(_rounded(content, _CHANGING), indent=1, ensure_ascii=False, default=str)
    for folder in folders:
        text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"127\.0\.0\.1:\d+", "SERVER", text)
    return (
        re.sub(r"(?<![.\w])(?:[0-9a-f]{16}|(?=[a-f]*\d)[0-9a-f]{8})\b", "FINGERPRINT", text) + "\n"
    )


def _rounded(value: Any, leave_out: Collection[str] = ("content_hash",)) -> Any:
    """The value with 6 significant digits, which no library's release changes."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {
            key: _rounded(inner, leave_out) for key, inner in value.items() if key not in leave_out
        }
    return [_rounded(inner, leave_out) for inner in value] if isinstance(value, list) else value


def _content(message: Any) -> str:
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    return f"{message.get('content') or ''}{' ' + _plain(rest) if rest else ''}"


def check(text: str, file: Path) -> None:
    """Assert that a file holds this text."""
    if os.environ.get("CURATE_REWRITE"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines()
