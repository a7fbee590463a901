"""The commands that README and the docs show, page by page and in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """The page's path from the project's root."""
    return page.relative_to(ROOT).as_posix()


def commands(page: Path) -> Iterator[str]:
    """Each command of a page's shell blocks, as it is written; in a console those behind `$`."""
    for _, language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language in ("sh", "bash", "console"):
            for line in map(str.strip, block.replace("\\\n", " ").splitlines()):
                if language == "console" and not line.startswith("$ "):
                    continue
                if line and not line.startswith("#"):
                    yield line.removeprefix("$ ")
