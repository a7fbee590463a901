"""What curate reads that others write: for each kind of input, sound examples, and how it is read.

A reader raises nothing but a `CurateError`, or what the code that calls it catches.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from curate.adherence.answer_reading import read_binary
from curate.engines.base import Chat, Completion, Request
from curate.engines.chat_completions import read_chat
from curate.engines.openai_requests import read_error_body
from curate.engines.replies import read_stored as read_kept_reply
from curate.engines.scripted import ScriptedEngine
from curate.engines.structured import read_object
from curate.errors import CurateError
from curate.judging.factuality.judge import read_claims
from curate.judging.json_mode import read_reply as read_scores
from curate.judging.session import BadReplyError, Scope, reply_object
from curate.judging.text import read_text
from curate.pairs.candidates import calls_of_reply
from curate.recipe import load_recipe
from curate.records.calibration_file import (
    read_calibration,
    read_cascade_fit,
    read_certificate,
    read_curve,
)
from curate.run.review_answers import read_answers
from curate.sources import SourceConfig
from curate.sources.raw_rows import read_rows
from curate.trainer_check.check import check_path
from curate.trust.label_rows import labels_in_file, split_labels
from curate.trust.labelling_tools import questions_about, tool_files
from tests.cli.test_schema import EXAMPLES
from tests.sources.conftest import load
from tests.trust.test_labelling_tools import argilla, item, label_studio

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"
MOST = 6_000  # bytes of each file of real data


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    Attributes:
        name: of the file that is read; its suffix says how.
        examples: sound inputs.
        read: reads the file.
    """

    name: str
    examples: list[bytes]
    read: Callable[[Path], object]


def read_source(path: Path) -> object:
    """Read a source and account for each of its rows."""
    try:
        loaded = load(SourceConfig(path=str(path)), role="A helper.")
    except CurateError:
        rows = list(read_rows(path))  # of no known shape, or refused here as well
        assert [row.number for row in rows] == sorted({row.number for row in rows})
        raise
    rows = list(read_rows(path))
    if loaded.source.config.mapping is None and loaded.shape != "mapping":
        assert loaded.tally.rows_in == len(rows)
    if path.suffix == ".jsonl" and not path.read_bytes().lstrip().startswith(b"["):
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
        assert (
            len(rows) in (sum(bool(line.strip()) for line in lines), 0) or lines[0].strip() == b"{"
        )
    return loaded


def _heads(pattern: str) -> list[bytes]:
    """Return a few kilobytes of each file of real data that lies beside this checkout."""
    found = []
    for path in sorted(SHARED.glob(pattern)):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if ".jsonl" in path.name:
            lines = data.splitlines(keepends=True)
            found.append(b"".join(_within(lines)))
        elif path.suffix == ".json":
            value = json.loads(data)
            if isinstance(value, list):
                parts = [json.dumps(part).encode() for part in value[:20]]
                found.append(b"[" + b",\n".join(_within(parts)) + b"]")
        else:
            found.append(b"".join(_within(data.splitlines(keepends=True))))
    return [data for data in found if len(data) < 10 * MOST]


def _within(parts: list[bytes]) -> Iterator[bytes]:
    size = 0
    for part in parts:
        size += len(part)
        if size > MOST and size > len(part):
            return
        yield part


ROWS = [
    {"id": f"c{n}", "messages": [{"role": "user", "content": f"Ask {n}?"},
     {"role": "assistant", "content": "Say.", "tool_calls": [{"id": "t", "type": "function",
      "function": {"name": "look", "arguments": '{"a": 1}'}}]}]} for n in range(6)
]  # fmt: skip
OTHER = [
    {"talk": {"lines": [{"by": "customer", "said": f"Hello {n}"}, {"by": "agent", "said": "Yes?"}]}, "ref": n}
    for n in range(6)
]  # fmt: skip
PREFERENCES = [{"prompt": f"Ask {n}", "chosen": "Good.", "rejected": "Bad."} for n in range(6)]
TREE = {"message_tree_id": "m", "prompt": {"message_id": "m", "text": "Ask", "role": "prompter", "replies": [
    {"message_id": "n", "parent_id": "m", "text": "Say", "role": "assistant", "rank": 0, "replies": []}]}}  # fmt: skip
FLAT = [
    {"message_id": "m", "parent_id": None, "text": "Ask", "role": "prompter"},
    {"message_id": "n", "parent_id": "m", "text": "Say", "role": "assistant"},
]
GOLD = [{"id": f"chat-{n}", "dimension": "helpfulness", "value": n % 5 + 1, "turn": 1} for n in range(8)]  # fmt: skip
ANSWER = {"kind": "review_answer", "id": "chat-1", "content": "0" * 32, "dimension": "accept", "value": "accept",
          "rater": "ann", "time": "2026-01-01T00:00:00Z"}  # fmt: skip


def lines(rows: list[Any]) -> bytes:
    """Return rows as lines of JSON."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def csv_text(rows: list[dict[str, Any]], sign: str = ",") -> bytes:
    """Return rows as CSV, each cell quoted."""
    cells = [list(rows[0]), *(list(map(str, row.values())) for row in rows)]
    return "".join(sign.join(f'"{cell}"' for cell in row) + "\n" for row in cells).encode()


def parquet(rows: list[Any], compression: str = "none") -> bytes:
    """Return rows as a Parquet file."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file, compression=compression)
    return file.getvalue()


def arrow(rows: list[Any]) -> bytes:
    """Return rows as an Arrow stream."""
    table = pa.Table.from_pylist(rows)
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def labels_of_tools() -> list[bytes]:
    """Return an export of each labelling tool."""
    questions = questions_about(["coherence"])
    items = [item(), item(1)]
    answers: Any = [[(1, {"coherence": "4"})], [("b", {"coherence": "2"})]]
    return [
        orjson.dumps(make(tool_files(tool, items, questions, "p"), answers))
        for tool, make in (("label-studio", label_studio), ("argilla", argilla))
    ]


def calibrations() -> list[bytes]:
    """Return files of `curate calibrate` and `curate certify`."""
    names = ("certificate", "cascade-fit", "calibration", "pair-curve")
    return [EXAMPLES[name].model_dump_json().encode() for name in names]


def read_calibrations(path: Path) -> None:
    """Read a file as each key of a recipe that may name it does."""
    refused = 0
    readers: list[Callable[[], object]] = [
        lambda: read_certificate(path),
        lambda: read_cascade_fit(path),
        lambda: read_calibration(path, "judge.calibration"),
        lambda: read_curve(path),
    ]
    for read in readers:
        try:
            read()
        except CurateError as error:
            refused += 1
            refusal = error
    if refused == len(readers):
        raise refusal


SCOPE = Scope(turns=(1, 2), conversation=True, verdict=True, weakest=(1, 2))
CLAIMS = {"type": "object", "required": ["claims"], "properties": {"claims": {"type": "array", "items": {
    "type": "object", "required": ["words", "label", "evidence"], "properties": {
        "words": {"type": "string"}, "label": {"enum": ["true", "false", "not_factual"]},
        "evidence": {"type": ["string", "null"]}}}}}}  # fmt: skip
REPLIES = [
    b'{"turn_1": [4, 5, 5], "turn_2": [2, 3, 5], "coherence": 4, "task_completion": "n/a", "repair_handling": 3,'
    b' "verdict": "review", "weakest_turn": 2}',
    b'<think>So.</think>\n```json\n{"per_turn": [{"turn": 1, "helpfulness": 4}], "conversation_level": {}}\n```',
    b'{"claims": [{"words": "Oslo is large", "label": "true", "evidence": null}]}',
    b'{"empathy": {"score": 3, "failure_code": null, "turns": [1]}}',
    b'<tool_call>{"name": "look", "arguments": {"a": 1}}</tool_call>',
    b'[TOOL_CALLS] [{"name": "look", "arguments": {}}]',
    b"**Yes**, it is. The answer is YES.",
    b'{"turn_1_issues": "short; rude", "coherence_note": "fine", "basis": "turn 1"}',
]
CHATS = [
    b'{"id": "1", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant",'
    b' "content": "4"}, "logprobs": {"content": [{"token": "4", "logprob": -0.1, "top_logprobs": [{"token": "4",'
    b' "logprob": -0.1}, {"token": "3", "logprob": -2.5}]}]}}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}',
    b'{"error": {"message": "Too many requests", "type": "rate", "code": 429}}',
    b'{"text": "4", "finish": "stop", "first_token": [["4", -0.1]], "usage": [1, 2, 0], "fault": null}',
]


def read_replies(path: Path) -> None:
    """Read a judge's reply by every reader of replies."""
    text = path.read_bytes().decode(errors="replace")
    completion = Completion(text=text)
    for read in (lambda: read_scores(text, SCOPE), lambda: reply_object(text)):
        with contextlib.suppress(BadReplyError):
            read()
    for cut in (True, False):
        read_text(text, cut=cut)
    reply = read_object(completion, CLAIMS)
    if isinstance(reply, dict):
        read_claims(reply["claims"], "Oslo is large.")
    read_binary(completion)
    calls_of_reply(completion, text, {"look"})


def read_wire(path: Path) -> None:
    """Read what a server sends, and what is kept of it."""
    data = path.read_bytes()
    read_error_body(data)
    read_kept_reply(data)
    try:
        value = orjson.loads(data)
    except ValueError:
        return
    chat = Chat(({"role": "user", "content": "Rate it."},))
    read_chat(value, Request(chat, max_tokens=1, labels=("3", "4")))


def check_rows(path: Path) -> None:
    """Check a file as a trainer would read it."""
    check_path(path, "trl")


def read_gold_file(path: Path) -> object:
    """Read labels of any kind."""
    return split_labels(labels_in_file(path))


def kinds() -> dict[str, Kind]:
    """Return every kind of input, with a few kilobytes of each file of real data where that lies beside the checkout."""
    sample = [
        ROOT.joinpath("recipes/sample/support.jsonl").read_bytes()[:MOST].rpartition(b"\n")[0]
    ]
    rows = [lines(ROWS), lines(OTHER), lines(PREFERENCES), lines([TREE]), lines(FLAT)]
    arrays = [json.dumps(each, indent=1).encode() for each in (ROWS, OTHER, PREFERENCES, FLAT)]
    arrays.append(json.dumps({"data": OTHER}).encode())
    recipes = [path.read_bytes() for path in sorted(ROOT.glob("recipes/**/*.yaml"))]
    asked = lines([{"instruction": "a", "output": "b"}] * 6)
    table = [{"instruction": f"Ask {n}", "output": "Say, so"} for n in range(9)]
    sft = [{"messages": row["messages"]} for row in ROWS]
    return {
        "lines": Kind("a.jsonl", sample + rows + _heads("*/*.jsonl") + _heads("*/*.jsonl.gz"), read_source),
        "arrays": Kind("a.json", arrays + _heads("*/*.json"), read_source),
        "csv": Kind("a.csv", [csv_text(table), csv_text(table, ";")], read_source),
        "tsv": Kind("a.tsv", [csv_text(table, "\t"), *_heads("*/*.tsv")], read_source),
        "gz": Kind("a.jsonl.gz", [gzip.compress(data) for data in (*sample, asked)], read_source),
        "zst": Kind("a.jsonl.zst", [zstandard.compress(data) for data in (*sample, asked)], read_source),
        "parquet": Kind("a.parquet", [parquet(ROWS), parquet(table), parquet(ROWS, "zstd")], read_source),
        "arrow": Kind("a.arrow", [arrow(ROWS), arrow(table)], read_source),
        "recipes": Kind("recipe.yaml", recipes, load_recipe),
        "labels.csv": Kind("gold.csv", [csv_text(GOLD), csv_text(GOLD, ";")], read_gold_file),
        "labels.jsonl": Kind("gold.jsonl", [lines(GOLD), lines([{"pair_id": "p", "better": "chosen", "rater": "bob"}])], read_gold_file),
        "labels.json": Kind("gold.json", labels_of_tools(), read_gold_file),
        "labels.parquet": Kind("gold.parquet", [parquet(GOLD)], read_gold_file),
        "reviews": Kind("answers.jsonl", [lines([ANSWER] * 9)], read_answers),
        "calibrations": Kind("calibration.json", calibrations(), read_calibrations),
        "replies": Kind("reply.txt", REPLIES, read_replies),
        "wire": Kind("reply.json", CHATS, read_wire),
        "recorded": Kind("replies.jsonl", [lines([{"text": "4"}, {"request": "a", "text": "5"}])], ScriptedEngine),
        "training rows": Kind("sft.jsonl", [lines(sft), lines(PREFERENCES)], check_rows),
        "training table": Kind("sft.parquet", [parquet(sft), parquet(PREFERENCES)], check_rows),
    }  # fmt: skip
