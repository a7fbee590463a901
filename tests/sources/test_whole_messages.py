"""What is said of data that cannot be read or is of no known shape, whole: problem, what came, proposal, remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from curate.errors import CurateError
from curate.sources import SourceConfig, open_source
from tests.transcript import check

FILES = Path(__file__).parent / "messages"
ASK, TELL = "Hi there, can you help me with it?", "Of course, what would you like to know?"
MORE, LAST = "My order of last week is late.", "I am sorry to hear it; I look it up."
PARTIES = (("agent", TELL), ("customer", MORE), ("agent", LAST))


def said(folder: Path, **config: Any) -> str:
    """The error of a source, and the mapping that it proposes."""
    with pytest.raises(CurateError) as caught:
        list(open_source(SourceConfig(**config)).read())
    proposal = getattr(caught.value, "proposal", None)
    more = "" if proposal is None else f"\n-- proposal\n{proposal.yaml}"
    text = f"{caught.value}{more}".replace(str(folder), "FOLDER")
    return re.sub("(broken_json, ).*?(: line)", r"\1IN ORJSON'S WORDS\2", text)


SHAPES: dict[str, Sequence[Any]] = {
    "questions and answers": [{"q": [ASK, MORE], "answers": [TELL, LAST], "n": 2}] * 3,
    "objects beside each other": [
        {"questions": [{"text": ASK}, {"text": MORE}], "answers": [{"text": TELL}, {"text": LAST}]}
    ]
    * 3,
    "speakers of unknown names": [
        {"talk": [{"speaker": "x1", "text": ASK}, {"speaker": "y2", "text": TELL}], "topic": "a"}
    ]
    * 3,
    "a list of texts": [{"lines": [ASK, TELL, MORE, LAST]}] * 3,
    "two texts": [{"input_text": ASK, "output_text": TELL, "source": "web"}] * 3,
    "a transcript": [{"body": f"Agent: {TELL}\nCustomer: {MORE}\nAgent: {LAST}"}] * 3,
    "a transcript with names": [{"body": f"Ann: {ASK}\nBob: {TELL}\nAnn: {MORE}"}] * 3,
    "a turn in each row": [
        {"conversation": at // 3, "who": name, "words": text}
        for at, (name, text) in enumerate(PARTIES * 3)
    ],
    "no conversation": [{"a": 1, "b": {"c": [1, 2], "d": "x"}}, {"e": None}],
    "nested": [{"data": {"chat": [{"by": "user1", "msg": ASK}, {"by": "bot", "msg": TELL}]}}] * 3,
    "an empty list": [{"messages": []}],
    "rows that are no objects": [1, "two", None],
}


def test_data_of_no_known_shape(tmp_path: Path) -> None:
    parts = []
    for name, rows in SHAPES.items():
        file = tmp_path / f"{name.replace(' ', '_')}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        try:
            units = list(open_source(SourceConfig(path=str(file))).read())
        except CurateError:
            text = said(tmp_path, path=str(file))
        else:
            rows_out = [row.model_dump(mode="json") for unit in units for row in unit.quarantined]
            talks = [
                [f"{message.role}: {message.content}" for message in dialogue.messages]
                for unit in units
                for dialogue in unit.dialogues
            ]
            text = json.dumps([talks[:1], rows_out], indent=1).replace(str(tmp_path), "FOLDER")
        parts.append(f"==== {name}\n{text}")
    check("\n\n".join(parts) + "\n", FILES / "shapes.txt")


def test_sources_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "notes.docx").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.jsonl.gz").write_bytes(b"no gzip")
    cases: dict[str, dict[str, Any]] = {
        name: {"path": str(tmp_path / name)}
        for name in (
            "empty.jsonl", "notes.docx", "folder", "none.jsonl", "broken.jsonl.gz", "*.csv",
        )
    }  # fmt: skip
    parts = [f"==== {name}\n{said(tmp_path, **config)}" for name, config in cases.items()]
    check("\n\n".join(parts) + "\n", FILES / "unreadable.txt")
