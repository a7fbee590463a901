"""The file itself: nothing from data is markup, and what was packed comes out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.report.page import CHUNK_BYTES, CHUNK_DIALOGUES, packed_chunks, page
from tests.report.reading import ReadPage, unpacked

HOSTILE = '</script><script>document.title="taken"</script><!--<script>&amp;\u2028\u202e"'


def made(title: str = "t", **figures: object) -> ReadPage:
    lines = [json.dumps({"text": HOSTILE}).encode()]
    bodies = [chunk for _, chunk in packed_chunks(lines)]
    return ReadPage(b"".join(page(title, figures, {"dialogues": {"id": [HOSTILE]}}, bodies)))


def test_hostile_text_is_no_markup_wherever_it_stands() -> None:
    read, plain = made(HOSTILE, name=HOSTILE), made()
    assert read.tags == plain.tags
    assert read.figures == {"name": HOSTILE}
    assert read.dialogues == [{"text": HOSTILE}]
    assert read.programs == plain.programs


@pytest.mark.hypothesis
@given(st.text(), st.dictionaries(st.text(max_size=4), st.text()))
def test_any_text_comes_back_and_adds_no_element(title: str, figures: dict[str, str]) -> None:
    data = b"".join(page(title, figures, {}, [])).decode(errors="replace")
    if "\r" not in title and "\x00" not in data:
        read = ReadPage(data.encode())
        assert read.figures == figures
        assert read.tags == [*made().tags[:-2], "script"]


def test_only_the_pages_own_program_may_run_and_nothing_is_loaded() -> None:
    read = made()
    (program,) = read.programs
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    policy = dict(part.split(" ", 1) for part in read.policy.split("; "))
    assert policy["script-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert "connect-src" not in policy
    assert policy["img-src"] == "data:"


@pytest.mark.parametrize("name", ["report.js", "report.css"])
def test_the_bundle_names_no_address_to_load_from(name: str) -> None:
    text = (files("curate.report") / "built" / name).read_text()
    found = set(re.findall(r"https?://[^\s\"'`)]+", text))
    # Names of namespaces, which nothing is loaded from.
    assert {address for address in found if not address.startswith("http://www.w3.org/")} == set()
    assert "@import" not in text


def test_markup_is_never_made_of_text() -> None:
    sources = files("curate.report") / "page" / "src"
    for source in sources.iterdir():
        assert "dangerouslySetInnerHTML" not in source.read_text()
        assert "innerHTML" not in source.read_text()


def test_chunks_end_at_a_count_or_a_size() -> None:
    small = list(packed_chunks([b"{}"] * (2 * CHUNK_DIALOGUES + 1)))
    assert [count for count, _ in small] == [CHUNK_DIALOGUES, CHUNK_DIALOGUES, 1]
    large = list(packed_chunks([b"x" * CHUNK_BYTES, b"y", b"z"]))
    assert [count for count, _ in large] == [1, 2]
    assert unpacked(large[1][1].decode()) == b"y\nz"
