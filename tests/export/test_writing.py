"""What holds for every trainer: nothing lost, the rules of a row, kinds, shards, sidecars, folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message
from curate.export.config import ExportConfig, SalvageConfig, TurnLabelConfig
from curate.export.counts import ExportCounts, files, refusals
from curate.export.good_turns import LabelledTurns, MixedDialogue
from curate.export.trainers import TRAINERS, Trainer
from curate.export.writing import ExportData, write_export
from curate.records import PreferencePair
from curate.run.ingest import DialogueFile, read_dialogues
from tests.export.samples import (
    BAD,
    GOOD,
    USER,
    call,
    dialogue,
    mixed_dialogue,
    pair,
    renew_dialogue,
    tool_dialogue,
    tool_pair,
)

EVERYTHING: dict[str, Any] = {"salvage": SalvageConfig(), "kto_turns": TurnLabelConfig()}


def some() -> ExportData:
    return ExportData(
        sft=[
            dialogue("a"),
            tool_dialogue(),
            dialogue("cut", USER, GOOD, USER),
            dialogue("q", USER),
        ],
        pairs=[pair("a"), tool_pair("b"), pair("same", rejected=GOOD)],
        natural=[pair("n", check=None), pair("m", basis="rank", source="natural")],
        mixed=[
            MixedDialogue(mixed_dialogue(), (2,)),
            MixedDialogue(dialogue("bad", USER, BAD), ()),
            MixedDialogue(dialogue("plain", USER, GOOD, USER, BAD), (1,)),
        ],
        labelled=[LabelledTurns(mixed_dialogue(), {1: False, 2: True})],
    )


def rows_of(folder: Path, name: str) -> list[Any]:
    """Rows of a file, of all its shards, in order; from Parquet where there is no JSON Lines."""
    if paths := sorted(folder.glob(f"{name}.jsonl")) or sorted(
        folder.glob(f"{name}-?????-of-*.jsonl")
    ):
        return [orjson.loads(line) for path in paths for line in path.read_bytes().splitlines()]
    paths = sorted(folder.glob(f"{name}.parquet")) or sorted(folder.glob(f"{name}-?????-of-*"))
    return [row for path in paths for row in pl.read_parquet(path).rows(named=True)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_row_is_written_or_refused(tmp_path: Path, trainer: Trainer) -> None:
    counts = write_export(tmp_path, trainer, some(), ExportConfig(**EVERYTHING))
    rows_in = {"dialogues": 4, "pairs": 3, "natural": 2, "margins": 4, "pair_labels": 6}
    rows_in |= {"natural_labels": 4, "turn_labels": 2, "masked": 3}
    for file in TRAINERS[trainer].files:
        written = len(rows_of(tmp_path, file.name))
        assert written == counts.rows[file.name], file.name
        # of `masked_turns` a dialogue without a good turn is one refusal, of the others each message is a row
        expected = rows_in.get(file.stream, 4)
        assert written + counts.refused[file.name].total() == expected, file.name
    refused = [orjson.loads(line) for line in (tmp_path / "refused.jsonl").open("rb")]
    assert len(refused) == sum(reasons.total() for reasons in counts.refused.values())
    assert all(record["detail"] and record["dialogue_id"] for record in refused)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_row_has_its_line_in_a_sidecar(tmp_path: Path, trainer: Trainer) -> None:
    counts = write_export(tmp_path, trainer, some(), ExportConfig(**EVERYTHING))
    sidecars = [pl.read_parquet(path) for path in sorted(tmp_path.glob("*provenance.parquet"))]
    assert sum(table.height for table in sidecars) == sum(counts.rows.values())
    for name, number in counts.rows.items():
        if name == "sft":
            table = pl.read_parquet(tmp_path / "sft_provenance.parquet")
        else:
            [table] = [t for t in sidecars if "file" in t.columns and name in t["file"]] or [
                sidecars[0].clear()
            ]
            table = table.filter(pl.col("file") == name) if "file" in table.columns else table
        assert table["row"].to_list() == list(range(number)), name


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_same_input_gives_the_same_bytes_and_shards_the_same_rows(
    tmp_path: Path, trainer: Trainer
) -> None:
    for name, options in (("one", {}), ("two", {}), ("shards", {"shard_rows": 1})):
        write_export(tmp_path / name, trainer, some(), ExportConfig(**EVERYTHING, **options))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    for file in TRAINERS[trainer].files:
        whole, parts = (rows_of(tmp_path / name, file.name) for name in ("one", "shards"))
        assert whole == parts
    sidecars = [path.name for path in (tmp_path / "one").glob("*provenance.parquet")]
    for name in sidecars:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "shards" / name).read_bytes()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_dialogues_read_from_their_file_give_the_same_files(
    tmp_path: Path, trainer: Trainer
) -> None:
    given_dialogues = [
        *(dialogue(f"p{n}", role_definition="R" if n % 2 else None) for n in range(6)),
        tool_dialogue(),
        dialogue("greets", GOOD, USER, GOOD),
        dialogue("twice", USER, USER, GOOD),
        dialogue("open", USER),
        renew_dialogue(),
    ]
    with DialogueFile(tmp_path / "dialogues.jsonl", tmp_path / "dialogues.parquet") as file:
        for made in given_dialogues:
            file.append(made)
    stored = list(read_dialogues(tmp_path))
    config = ExportConfig(role_as_system=True)
    counts = [
        write_export(tmp_path / name, trainer, ExportData(sft=sft), config)
        for name, sft in (("made", given_dialogues), ("read", stored))
    ]
    assert counts[0] == counts[1]
    assert contents(tmp_path / "made") == contents(tmp_path / "read")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_only_the_kinds_that_are_asked_for_are_written(tmp_path: Path, trainer: Trainer) -> None:
    write_export(tmp_path, trainer, some(), ExportConfig(**EVERYTHING))
    counts = write_export(tmp_path, trainer, some(), ExportConfig(kinds=("sft",)))
    assert list(counts.rows) == ["sft"]
    left = {path.name for path in tmp_path.iterdir()} - {"dataset_info.json"}
    assert {name.partition(".")[0] for name in left} == {"sft", "sft_provenance", "refused"}


def test_shards_of_an_earlier_export_do_not_stay(tmp_path: Path) -> None:
    config = ExportConfig(shard_bytes=100, formats=("jsonl",))
    write_export(tmp_path, "trl", ExportData(sft=[dialogue(f"{n}") for n in range(4)]), config)
    assert len(list(tmp_path.glob("sft-*.jsonl"))) == 4
    (tmp_path / "sft-notes.txt").write_text("mine")
    write_export(tmp_path, "trl", ExportData(sft=[dialogue("a")]), ExportConfig())
    assert sorted(path.name for path in tmp_path.glob("sft*")) == [
        "sft-notes.txt",
        "sft.jsonl",
        "sft.parquet",
        "sft_provenance.parquet",
    ]


def test_a_mixed_dialogue_needs_as_many_good_turns_as_are_asked_for(tmp_path: Path) -> None:
    config = ExportConfig(salvage=SalvageConfig(min_turns=2))
    two = MixedDialogue(dialogue("two", USER, GOOD, USER, BAD, USER, GOOD), (1, 3))
    one = MixedDialogue(dialogue("one", USER, GOOD, USER, BAD), (1,))
    counts = write_export(tmp_path, "axolotl", ExportData(mixed=[one, two]), config)
    assert counts.rows["sft_salvaged"] == 1
    assert counts.refused["sft_salvaged"] == {"too_few_good_turns": 1}
    assert (counts.salvaged_dialogues, counts.salvaged_turns) == (1, 2)


def test_a_judged_turn_becomes_a_labelled_row(tmp_path: Path) -> None:
    config = ExportConfig(kto_turns=TurnLabelConfig())
    only_calls = dialogue("calls", USER, call("track", {"parcel": 81}))
    labelled = [
        LabelledTurns(mixed_dialogue(), {1: False, 2: True}),
        LabelledTurns(only_calls, {1: False}),
    ]
    counts = write_export(tmp_path, "trl", ExportData(labelled=labelled), config)
    rows = rows_of(tmp_path, "kto_turns")
    assert [(row["label"], row["completion"][0]["content"]) for row in rows] == [
        (False, BAD.content),
        (True, GOOD.content),
    ]
    assert rows[1]["prompt"][-1]["role"] == "tool"
    assert counts.refused["kto_turns"] == {"no_text_in_turn": 1}
    known = pl.read_parquet(tmp_path / "turn_provenance.parquet")
    assert known.select("turns", "messages", "label").rows() == [
        ([1], [1], False),
        ([2], [5], True),
    ]


def test_counts_tell_files_and_reasons_apart() -> None:
    counts = ExportCounts(
        {"sft": 2, "sft_salvaged": 1},
        {"sft": {"no_user": 1}, "sft_salvaged": {"too_few_good_turns": 3}},  # type: ignore[dict-item]
    )
    flat = {
        "sft": 2,
        "sft_salvaged": 1,
        "dialogues_cut": 0,
        "refused_sft": 1,
        "refused_sft_no_user": 1,
        "refused_sft_salvaged": 3,
        "refused_sft_salvaged_too_few_good_turns": 3,
    }
    assert files(flat) == counts.rows
    assert refusals(flat) == counts.refused


texts = st.sampled_from(["", " ", " a ", "a", "b\n", "\n\nHuman: x", "<tool_call>", "é\u2028"])
message = st.one_of(
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant", "tool"]),
        content=texts,
        reasoning=st.none() | texts,
    ),
    st.builds(lambda text: call("track", {"parcel": 1}, content=text), texts),
    st.just(call("track", "broken")),
)
messages = st.lists(message, max_size=6)


@settings(max_examples=60)
@given(
    st.sampled_from([*TRAINERS]),
    st.booleans(),
    st.lists(messages, max_size=4),
    st.lists(st.tuples(messages, message, message), max_size=4),
)
def test_whatever_comes_the_rules_of_a_row_hold(
    tmp_path_factory: pytest.TempPathFactory,
    trainer: Trainer,
    keep_reasoning: bool,
    dialogues: list[list[Message]],
    sides: list[tuple[list[Message], Message, Message]],
) -> None:
    folder = tmp_path_factory.mktemp("export")
    sft = [Dialogue(id=str(i), messages=tuple(made)) for i, made in enumerate(dialogues)]
    pairs = [
        pair(str(i), prompt=tuple(prompt), chosen=chosen, rejected=rejected)
        for i, (prompt, chosen, rejected) in enumerate(sides)
    ]
    mixed = [MixedDialogue(made, tuple(turn.number for turn in made.turns)) for made in sft]
    data = ExportData(sft=sft, pairs=pairs, mixed=mixed)
    config = ExportConfig(salvage=SalvageConfig(), keep_reasoning=keep_reasoning)
    counts = write_export(folder, trainer, data, config)
    assert counts.rows["sft"] + counts.refused["sft"].total() == len(sft)
    for name in counts.rows:
        rows = rows_of(folder, name)
        assert len(rows) == counts.rows[name]
        for row in rows:
            check_row(trainer, row)


def check_row(trainer: Trainer, row: Any) -> None:
    """The rules of every row, whatever the trainer's shape."""
    if "preferred_output" in row:
        row = {
            "prompt": row["input"]["messages"],
            "chosen": row["preferred_output"],
            "rejected": row["non_preferred_output"],
        }
    if "rejected_messages" in row:
        ours, theirs = row["messages"], row["rejected_messages"]
        assert ours != theirs
        same = next(
            (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        assert ours[:same] == theirs[:same]
        assert all(m["role"] in ("assistant", "tool_call") for m in ours[same:] + theirs[same:])
        return
    sides = [as_list(row[name]) for name in ("chosen", "rejected", "completion") if name in row]
    for side in sides:
        [only] = side if isinstance(side, list) else [side]
        if isinstance(only, str):
            assert only == only.strip()
            continue
        assert only.get("role", only.get("from")) in ("assistant", "gpt", "function_call")
        text = only.get("content", only.get("value"))
        assert text == text.strip()
    if "rejected" in row:
        assert row["chosen"] != row["rejected"]
    spoken = row.get("prompt", row.get("conversations", row.get("messages")))
    if isinstance(spoken, str):
        assert spoken.endswith("\n\nAssistant: ")
        return
    last = spoken[-1].get("role", spoken[-1].get("from"))
    if sides:
        assert last in ("user", "tool", "human", "observation")
    else:
        assert last in ("assistant", "gpt", "function_call", "tool_call")
    assert any(m.get("role", m.get("from")) in ("user", "human") for m in spoken)


def as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def test_what_a_pair_lacks_is_refused_before_any_trainer_sees_it(tmp_path: Path) -> None:
    bad: Sequence[PreferencePair] = [
        pair("same", rejected=GOOD),
        pair("open", prompt=(USER, GOOD)),
        pair("refused", drop_reason="order_flip"),
    ]
    for trainer in TRAINERS:
        counts = write_export(tmp_path / trainer, trainer, ExportData(pairs=bad), ExportConfig())
        for name, reasons in counts.refused.items():
            if reasons:
                assert set(reasons) == {"identical_sides", "prompt_not_open", "not_verified"}, name
