"""Detection, quarantine, ids, limits and the account of every row."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.dialogue import Dialogue, Lineage, Message
from curate.errors import CurateError, SourceError, UsageError
from curate.records import QuarantineReason
from curate.sources import FORMATS, RowCounts, SourceConfig, Unit, open_rows, open_source
from curate.sources.detect import Detection, summarise
from curate.sources.hub_datasets import STREAM_OVER, hub_rows
from tests.sources.conftest import Loaded, load, said

Rows = Callable[..., Loaded]
ASK = {"role": "user", "content": "Hi"}
TELL = {"role": "assistant", "content": "Hello"}
GOOD = {"messages": [ASK, TELL]}
SHAREGPT = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}


# ---- detection ----------------------------------------------------------------------------------


def test_ambiguous_rows_are_not_guessed(rows: Rows) -> None:
    both = {**GOOD, **SHAREGPT}
    with pytest.raises(UsageError, match=r"ambiguous") as caught:
        rows(both)
    assert "messages" in str(caught.value)
    assert "sharegpt" in str(caught.value)
    assert "source.shape" in str(caught.value)
    assert rows(both, shape="sharegpt").shape == "sharegpt"


def test_an_even_mixture_is_not_guessed(rows: Rows) -> None:
    with pytest.raises(UsageError, match="ambiguous"):
        rows(*[GOOD, SHAREGPT] * 20)


def test_unknown_rows_name_what_they_have_and_the_shapes(rows: Rows) -> None:
    with pytest.raises(UsageError, match=r"not known") as caught:
        rows({"turns": [{"user": "a", "chatbot": "b"}], "dialog_id": 3})
    for word in ("turns", "dialog_id", "source.shape", "source.mapping", "trajectory"):
        assert word in str(caught.value)


def test_few_rows_of_another_shape_are_quarantined_as_such(rows: Rows) -> None:
    loaded = rows(*[GOOD] * 9, SHAREGPT, {"x": 1})
    detection = loaded.source.detection
    assert (detection.shape, detection.runner_up, detection.sampled) == ("messages", "sharegpt", 11)
    assert detection.confidence == pytest.approx(9 / 11)
    # A list of messages under another name is still read; what has none is not.
    assert dict(loaded.tally.reasons) == {"missing_field": 1}
    loaded = rows(*[GOOD] * 9, {"data": ["a", "b"]})
    (row,) = loaded.quarantined
    assert (row.reason, row.row) == ("shape_mismatch", 10)
    assert "ultrachat" in row.detail
    assert row.raw == {"data": ["a", "b"]}


def test_files_are_summed_up_by_the_number_of_their_rows() -> None:
    many, few = Detection("messages", 1.0, 30), Detection("messages", 0.5, 10, "sharegpt")
    other = Detection("sharegpt", 0.5, 40, "messages", "b", True)
    assert summarise({"a": few}) is few
    same = Detection("messages", 0.875, 40, "sharegpt", "all 2 files are messages")
    assert summarise({"a": many, "b": few}) == same
    mixed = Detection("mixed", 0.6875, 80, None, "files by shape: 2 messages, 1 sharegpt")
    assert summarise({"a": other, "b": few, "c": many}) == mixed
    none, empty = replace(many, sampled=0), replace(few, sampled=0)
    assert summarise({"a": none, "b": empty}) == replace(same, confidence=0.5, sampled=0)


def test_a_file_that_is_taken_like_others_says_how_many_of_its_rows_fit(tmp_path: Path) -> None:
    odd = {"x": 1}
    files = {
        "1": [GOOD],
        "2": [SHAREGPT],
        "3": [SHAREGPT],
        "4": [odd, GOOD, odd, odd, GOOD],
        "5": [odd],
    }
    for name, content in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    (tmp_path / "6.jsonl").write_text("{oops\n{oops\n")
    source = open_source(SourceConfig(path=str(tmp_path)))
    found = {Path(label).stem: one for label, one in source.detections.items()}
    assert [(name, one.shape, one.confidence, one.sampled) for name, one in found.items()] == [
        ("1", "messages", 1.0, 1),
        ("2", "sharegpt", 1.0, 1),
        ("3", "sharegpt", 1.0, 1),
        ("4", "messages", 0.4, 5),
        ("6", "sharegpt", 0.0, 2),
    ]
    assert found["4"].reason.endswith("; taken for messages like other files")
    assert "only 40% fit messages" in found["4"].reason
    assert [Path(file.file).stem for file in source.skipped_files] == ["5"]


def test_nothing_parsable_is_an_error_unless_the_shape_is_set(rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("{broken\n")
    with pytest.raises(UsageError, match="broken_json"):
        open_source(SourceConfig(path=str(path)))
    assert load(SourceConfig(path=str(path), shape="messages")).tally.quarantined == 1


# ---- quarantine ---------------------------------------------------------------------------------

BAD_ROWS: dict[str, tuple[str, Any]] = {
    "unknown role": ("unknown_role", {"messages": [{"role": "narrator", "content": "x"}, TELL]}),
    "no role": ("missing_field", {"messages": [{"content": "x"}, TELL]}),
    "no messages": ("missing_field", {"other": 1}),
    "null messages": ("missing_field", {"messages": None}),
    "no assistant": ("no_assistant", {"messages": [ASK]}),
    "empty list": ("empty", {"messages": []}),
    "only empty replies": ("empty", {"messages": [ASK, {"role": "assistant", "content": None}]}),
    "an empty user message": (
        "empty_user",
        {"messages": [ASK, TELL, {"role": "user", "content": None}, TELL]},
    ),
    "a user message of white space": (
        "empty_user",
        {"messages": [{"role": "user", "content": " \n\t"}, TELL]},
    ),
    "messages are text": ("bad_type", {"messages": "hello"}),
    "a message is text": ("bad_type", {"messages": ["hello"]}),
    "content is a number": ("bad_type", {"messages": [{"role": "user", "content": 3}, TELL]}),
    "unknown part": (
        "unknown_part",
        {"messages": [{"role": "user", "content": [{"type": "hologram"}]}, TELL]},
    ),
    "image part": (
        "media",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, TELL]},
    ),
    "audio part": (
        "media",
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}, TELL]},
    ),
    "images beside": ("media", {**GOOD, "images": ["a.png"]}),
    "call without a name": (
        "missing_field",
        {"messages": [ASK, {"role": "assistant", "tool_calls": [{"function": {}}]}]},
    ),
    "not an object": ("not_an_object", 3),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_quarantined_whole_with_its_reason(rows: Rows, name: str) -> None:
    reason, bad = BAD_ROWS[name]
    loaded = rows(GOOD, bad, GOOD, shape="messages")
    (row,) = loaded.quarantined
    assert (row.reason, row.row, row.part, row.raw) == (reason, 2, None, bad)
    assert row.detail
    assert row.file.endswith("data.jsonl")
    assert loaded.tally.dialogues == 2
    assert reason in {*QuarantineReason}


def test_an_empty_reply_among_others_is_kept(rows: Rows) -> None:
    empty = {"role": "assistant", "content": None}
    assert said(rows({"messages": [ASK, empty, ASK, TELL]}).dialogues[0])[1] == ("assistant", "")


# ---- ids, limits --------------------------------------------------------------------------------


def test_duplicate_ids_are_told_apart_and_nothing_is_dropped(rows: Rows) -> None:
    loaded = rows(
        {**GOOD, "id": "a"}, {**GOOD, "id": "a"}, {**GOOD, "id": "a~2"}, {**GOOD, "id": 7}
    )
    assert [dialogue.id for dialogue in loaded.dialogues] == ["a", "a~2", "a~2~2", "7"]
    assert loaded.dialogues[1].metadata == {"duplicate_of_id": "a"}
    pair = {"id": "p", "prompt": "Hi", "chosen": "x", "rejected": "y"}
    loaded = rows(pair, pair)
    assert [dialogue.group for dialogue in loaded.dialogues] == ["p", "p", "p~2", "p~2"]


def test_a_quarantined_row_takes_no_id(rows: Rows) -> None:
    loaded = rows({"id": "a", "messages": [ASK]}, {**GOOD, "id": "a"})
    assert loaded.dialogues[0].id == "a"


def test_limit_and_cap(rows: Rows) -> None:
    pair = {"prompt": "Hi", "chosen": "x", "rejected": "y"}
    assert rows(*[pair] * 5, limit=2).tally.rows_in == 2
    loaded = rows(*[pair] * 5, cap=3)
    assert (loaded.tally.rows_in, loaded.tally.dialogues) == (2, 3)
    (over,) = loaded.quarantined
    assert (over.reason, over.part) == ("over_cap", "rejected")
    assert rows(*[pair] * 5, cap=4).tally.parts_quarantined == 0


def test_cap_accounts_for_rows_of_a_flat_tree(rows: Rows) -> None:
    flat = [{"message_id": "u", "parent_id": None, "role": "prompter", "text": "u"}]
    flat += [
        {"message_id": f"a{n}", "parent_id": "u", "role": "assistant", "text": "a"}
        for n in range(3)
    ]
    loaded = rows(*flat, cap=1)
    assert (loaded.tally.rows_in, loaded.tally.rows_used, loaded.tally.quarantined) == (4, 2, 2)


def test_config_refuses_what_it_cannot_mean() -> None:
    with pytest.raises(ValidationError, match="extra"):
        SourceConfig.model_validate({"path": "x", "shpae": "messages"})
    for bad in (
        {"path": ""},
        {"path": []},
        {"path": "x", "encoding": "utf-9"},
        {"path": "x", "cap": 0},
    ):
        with pytest.raises(ValidationError):
            SourceConfig.model_validate(bad)
    mapping = {"each": "a[*]", "messages": [{"role": "user", "text": "t"}]}
    with pytest.raises(ValidationError, match="either"):
        SourceConfig.model_validate({"path": "x", "shape": "hh", "mapping": mapping})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b.jsonl.gz", "b"),
        ("a/b.c.parquet", "b.c"),
        ("a/folder/", "folder"),
        ("a/*.json", "a"),
        ("owner/name", "name"),
        (".", "source"),
    ],
)
def test_name_defaults_to_the_stem(path: str, name: str) -> None:
    assert SourceConfig(path=path).source_name == name
    assert SourceConfig(path=path, name="own").source_name == "own"


# ---- the account --------------------------------------------------------------------------------


def test_the_tally_refuses_a_unit_that_loses_a_row() -> None:
    dialogue = Dialogue(
        id="d",
        messages=(Message(role="assistant", content="x"),),
        lineage=Lineage(source="s", file="f", rows=(1,)),
    )
    RowCounts().add(Unit((1,), "f", (dialogue,), ()))
    for unit in (Unit((1, 2), "f", (dialogue,), ()), Unit((2,), "f", (), ())):
        with pytest.raises(RuntimeError, match="not accounted"):
            RowCounts().add(unit)


scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=8)
keys = st.sampled_from(
    [
        "role",
        "content",
        "from",
        "value",
        "text",
        "messages",
        "conversations",
        "conversation",
        "dialogue",
        "chosen",
        "rejected",
        "prompt",
        "instruction",
        "output",
        "input",
        "history",
        "query",
        "response",
        "data",
        "traj",
        "reward",
        "info",
        "task",
        "message_id",
        "parent_id",
        "replies",
        "deleted",
        "rank",
        "labels",
        "tools",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "type",
        "id",
        "system",
        "assistant",
        "user",
        "conversation_id",
        "turn",
        "speaker",
        "label",
        "metadata",
        "references",
        "evidence",
        "images",
    ]
)
words = st.sampled_from(
    [
        "user",
        "assistant",
        "system",
        "tool",
        "gpt",
        "human",
        "prompter",
        "\n\nHuman: a\n\nAssistant: b",
        "[{",
    ]
)
junk = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=25,
)


@pytest.mark.parametrize("shape", [known.name for known in FORMATS])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.dictionaries(keys, junk, max_size=8) | junk, min_size=1, max_size=6))
def test_arbitrary_rows_are_used_or_quarantined_in_every_shape(shape: str, rows: list[Any]) -> None:
    source = open_rows(rows, SourceConfig(path="junk", shape=shape))
    tally = RowCounts()
    for unit in source.read("R", "S"):
        tally.add(unit)
        for item in unit.quarantined:
            assert item.reason in {*QuarantineReason}
            orjson.dumps(item.model_dump(mode="json"))
        for dialogue in unit.dialogues:
            assert any(message.role == "assistant" for message in dialogue.messages)
            orjson.dumps(dialogue.model_dump(mode="json"))
            assert dialogue.content_hash
    assert tally.rows_in == len(rows) == tally.rows_used + tally.quarantined


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.dictionaries(keys, junk, max_size=8), min_size=1, max_size=6))
def test_detection_of_arbitrary_rows_names_a_shape_or_refuses(rows: list[Any]) -> None:
    try:
        source = open_rows(rows, SourceConfig(path="junk"))
    except CurateError:
        return
    tally = RowCounts()
    for unit in source.read():
        tally.add(unit)
    assert tally.rows_in == len(rows)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    content=st.binary(max_size=300), name=st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.tsv"])
)
def test_arbitrary_bytes_never_stop_a_run(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    try:
        load(SourceConfig(path=str(path), shape="messages"))
    except SourceError as problem:
        refusal = str(problem)
    else:
        return
    assert "empty" in refusal or "UTF-16" in refusal


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(junk, max_size=5), indent=st.sampled_from([None, 0, 2]))
def test_an_array_gives_each_of_its_entries(
    tmp_path: Path, values: list[Any], indent: int | None
) -> None:
    from curate.sources.json_rows import is_message_list
    from curate.sources.raw_rows import read_rows

    if is_message_list(values):
        return  # one conversation by itself
    path = tmp_path / "a.json"
    path.write_text(json.dumps(values, indent=indent))
    found = list(read_rows(path))
    assert [row.number for row in found] == list(range(1, len(values) + 1))
    assert all(row.fault is None for row in found)


# ---- frames, datasets ---------------------------------------------------------------------------


def test_frames_and_lists_of_rows(tmp_path: Path) -> None:
    frame = pl.DataFrame([{**GOOD, "n": 1}] * 2)
    source = open_rows(frame, SourceConfig(path="frame"))
    assert [unit.dialogues[0].id for unit in source.read()] == ["frame-1", "frame-2"]
    assert source.detection.shape == "messages"


def test_rows_in_memory_that_json_cannot_hold() -> None:
    rows = [
        GOOD,
        {"messages": [ASK, {"role": "assistant", "content": "\ud800"}]},
        {**GOOD, "n": 10**30},
    ]
    tally = RowCounts()
    for unit in open_rows(rows, SourceConfig(path="x")).read():
        tally.add(unit)
    assert dict(tally.reasons) == {"bad_encoding": 1, "unreadable": 1}


def test_datasets_load_a_local_folder(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("\n".join([json.dumps(GOOD)] * 3))
    for streaming in (True, False):
        loaded = load(SourceConfig(path=str(tmp_path), split="train", streaming=streaming))
        assert loaded.tally.dialogues == 3
        assert said(loaded.dialogues[0]) == [("user", "Hi"), ("assistant", "Hello")]


@pytest.mark.parametrize(
    ("asked", "size", "expected"),
    [
        (None, None, True),
        (None, STREAM_OVER + 1, True),
        (None, STREAM_OVER, False),
        (True, 1, True),
        (False, None, False),
    ],
)
def test_a_large_dataset_or_one_of_unknown_size_is_streamed_unless_the_recipe_says(
    monkeypatch: pytest.MonkeyPatch, asked: bool | None, size: int | None, expected: bool
) -> None:
    import datasets

    streamed: list[bool] = []

    def builder(path: str, **_: Any) -> SimpleNamespace:
        assert asked is None, "the recipe says it: the Hub need not be asked"
        return SimpleNamespace(info=SimpleNamespace(download_size=size))

    def loaded(path: str, *, streaming: bool, **_: Any) -> list[dict[str, Any]]:
        streamed.append(streaming)
        return [GOOD]

    monkeypatch.setattr(datasets, "load_dataset_builder", builder)
    monkeypatch.setattr(datasets, "load_dataset", loaded)
    config = SourceConfig(path="owner/set", split="train", streaming=asked)
    assert [row["messages"] for row in hub_rows(config)] == [GOOD["messages"]]
    assert streamed == [expected]


def test_a_typing_mistake_in_a_path_is_not_looked_up_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "logs").mkdir()
    for path in ("logs/missing", "other/missing.jsonl", "missing"):
        with pytest.raises(SourceError, match="no file or folder"):
            open_source(SourceConfig(path=path))


def test_a_dataset_of_several_splits_is_refused_and_one_of_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import datasets

    splits: dict[str, list[Any]] = {"train": [GOOD], "test": [TELL]}
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: splits)
    config = SourceConfig(path="owner/set", streaming=True)
    with pytest.raises(SourceError) as caught:
        hub_rows(config)
    assert "the dataset owner/set has several splits" in str(caught.value)
    assert "got: train, test" in str(caught.value)
    assert "name one as source.split" in str(caught.value)
    del splits["test"]
    assert list(hub_rows(config)) == [GOOD]


def test_what_is_asked_of_the_hub_and_why_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: dict[str, Any] = {}

    def fails(path: str, **named: Any) -> None:
        asked.update(named, path=path)
        raise ValueError("no such split")

    monkeypatch.setattr(datasets, "load_dataset", fails)
    config = SourceConfig(path="owner/set", config="c", split="s", revision="r", streaming=True)
    with pytest.raises(SourceError) as caught:
        hub_rows(config)
    assert asked == {
        "path": "owner/set",
        "name": "c",
        "split": "s",
        "revision": "r",
        "streaming": True,
    }
    assert "the dataset owner/set cannot be loaded" in str(caught.value)
    assert "got: ValueError: no such split" in str(caught.value)
    assert "a Hub dataset id that you may read" in str(caught.value)
    assert "check source.path, config, split and revision" in str(caught.value)


def test_a_source_of_which_no_row_can_be_read_names_the_keys_there_are(rows: Rows) -> None:
    loaded = rows({"a": 1, "b": 2}, {"a": 3}, shape="messages")
    with pytest.raises(UsageError) as caught:
        loaded.source.check_read(loaded.tally, "quarantine.jsonl")
    text = str(caught.value)
    assert "can be read" in text
    assert "got: 0 of 2 rows as messages (missing_field 2)" in text
    assert "expected: a shape or mapping that fits the rows' keys: a, b" in text
    assert "fix source.shape; quarantine.jsonl has each row's reason" in text
    loaded.source.check_read(rows(GOOD, {"a": 1}, shape="messages").tally)
    values = rows(3, 4, shape="messages")
    with pytest.raises(UsageError, match="expected: rows with keys"):
        values.source.check_read(values.tally)
    strange = rows({"messages": [{"role": "narrator", "content": "x"}, TELL]}, shape="messages")
    with pytest.raises(UsageError) as caught:
        strange.source.check_read(strange.tally, "q.jsonl")
    assert caught.value.fix == (
        "fix source.shape, or say who speaks as source.columns.roles or in_order; q.jsonl has each row's reason"
    )
    items = {"each": "said", "messages": [{"role_from": "who", "text": "text"}]}
    mapped = rows(
        {"said": [{"who": "narrator", "text": "x"}, {"who": "bot", "text": "y"}]}, mapping=items
    )
    with pytest.raises(UsageError) as caught:
        mapped.source.check_read(mapped.tally)
    assert caught.value.fix == (
        "fix source.mapping, or say who speaks as source.mapping.roles or in_order"
    )


def test_only_the_four_most_frequent_reasons_and_conditions_are_named(rows: Rows) -> None:
    source = rows(GOOD, shape="messages").source
    often = Counter({f"r{n}": 1000 + n for n in range(1, 6)})
    with pytest.raises(UsageError) as caught:
        source.check_read(RowCounts(rows_in=5015, quarantined=5015, reasons=often))
    shown = "r5 1,005, r4 1,004, r3 1,003, r2 1,002"
    assert caught.value.got == f"0 of 5,015 rows as messages ({shown})"
    assert (
        caught.value.expected
        == "a shape or mapping that fits the rows' keys: messages[*] (role, content)"
    )
    with pytest.raises(UsageError) as caught:
        source.check_read(RowCounts(rows_left_out=often))
    assert caught.value.problem == f"source.where leaves out every row of {source.config.path}"
    assert caught.value.got == f"5,015 rows, left out by {shown}"
    assert caught.value.fix == "compare source.where with the values that the data has"
