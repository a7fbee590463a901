"""Rows cut out of the dialogues' file are, byte for byte, the rows made of the dialogues."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message, ToolCall
from curate.errors import CurateError
from curate.export import stored
from curate.export.config import ExportConfig
from curate.export.stored import Copied
from curate.export.writing import ExportData, write_export
from curate.run.ingest import DialogueFile, read_dialogues, stored_dialogues
from curate.storage import spans
from tests.export.samples import GOOD, TRACK, USER, call, dialogue, renew_dialogue, tool_dialogue

CONFIGS = [
    ExportConfig(keep_reasoning=keep, role_as_system=role)
    for keep in (False, True)
    for role in (False, True)
]


def write(folder: Path, dialogues: Sequence[Dialogue]) -> None:
    with DialogueFile(folder / "dialogues.jsonl", folder / "dialogues.parquet") as file:
        for made in dialogues:
            file.append(made)


def check(
    folder: Path, dialogues: Sequence[Dialogue], wanted: Sequence[bool], config: ExportConfig
) -> None:
    """Both ways give the same files and counts."""
    write(folder, dialogues)
    chosen = list(read_dialogues(folder, pl.Series(wanted, dtype=pl.Boolean)))
    cut = stored_dialogues(folder, pl.Series(wanted, dtype=pl.Boolean))
    counts = [
        write_export(folder / name, "trl", ExportData(sft=sft), config)
        for name, sft in (("made", chosen), ("cut", cut))
    ]
    assert counts[0] == counts[1]
    made, cut_out = (
        {path.name: path.read_bytes() for path in (folder / name).iterdir()}
        for name in ("made", "cut")
    )
    known = "sft_provenance.parquet"  # the same table; how it lies in row groups is no matter
    assert pl.read_parquet(made.pop(known)).equals(pl.read_parquet(cut_out.pop(known)))
    assert made == cut_out


def copied(folder: Path, dialogues: Sequence[Dialogue], *, role_as_system: bool = False) -> int:
    write(folder, dialogues)
    rows = stored_dialogues(folder, pl.Series([True] * len(dialogues)))
    made = rows.rows(role_as_system=role_as_system)
    return sum(len(row.messages) for row in made if isinstance(row, Copied))


nasty = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [
            '"}],"messages":[{',
            "\\",
            '\\"}]',
            ' a"',
            "\u2028\x7f\x00\x1f",
            "\U0001f600",
            " a",
            "a\u3000",
        ]
    ),
    st.text(st.sampled_from('"\\}]{[,: \n\u00a0'), max_size=8),
)
message = st.one_of(
    st.builds(Message, role=st.sampled_from(["user", "assistant"]), content=nasty),
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant", "tool"]),
        content=nasty,
        name=st.none() | nasty,
        tool_call_id=st.none() | nasty,
        reasoning=st.none() | nasty,
        tool_calls=st.lists(
            st.builds(
                ToolCall,
                name=nasty,
                arguments=st.sampled_from([{}, {"a": 1}, {"x": float("nan")}, "no"]),
            ),
            max_size=1,
        ).map(tuple),
    ),
)
dialogues = st.lists(
    st.builds(
        Dialogue,
        id=nasty,
        messages=st.lists(message, max_size=5).map(tuple)
        | st.just((USER, GOOD))
        | nasty.map(lambda said: (Message(role="user", content=said), GOOD)),
        role_definition=st.none() | nasty,
        scenario=st.none() | nasty,
        tools=st.sampled_from([(), (), (TRACK,), ({"type": "function"},)]),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=40)
@given(dialogues, st.data(), st.sampled_from(CONFIGS))
def test_both_ways_give_the_same_files(
    tmp_path_factory: pytest.TempPathFactory,
    given_dialogues: list[Dialogue],
    data: st.DataObject,
    config: ExportConfig,
) -> None:
    size = len(given_dialogues)
    wanted = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    check(tmp_path_factory.mktemp("export"), given_dialogues, wanted, config)


@pytest.mark.parametrize("config", CONFIGS)
def test_both_ways_give_the_same_where_plain_rows_and_others_alternate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: ExportConfig
) -> None:
    """Small blocks, rows larger than a block, kinds of messages that come late, lineage and refusals."""
    monkeypatch.setattr(spans, "_BLOCK", 700)
    monkeypatch.setattr(spans, "_ROWS", 7)
    asked = Message(role="user", content="And then?")
    long = Message(role="user", content="é" * 2_000)
    own = Message(role="system", content="Own.")
    rows = [
        *(
            dialogue(f"plain-{n}", role_definition='A "role".' if n % 3 else None)
            for n in range(12)
        ),
        dialogue("cut", USER, GOOD, asked),
        dialogue("refused", USER),
        tool_dialogue(),
        dialogue("long", long, GOOD, role_definition="R"),
        dialogue("own", own, USER, GOOD, role_definition="R"),
        renew_dialogue(),
        Dialogue(id="no lineage", messages=(USER, GOOD)),
        dialogue("thinks", USER, GOOD.model_copy(update={"reasoning": "hm"})),
        dialogue("last", role_definition="  "),
    ]
    for shift in (0, 13):
        turned = [*rows[shift:], *rows[:shift]]
        check(tmp_path / str(shift), turned, [n % 5 != 4 for n in range(len(rows))], config)


def test_every_character_is_written_alike(tmp_path: Path) -> None:
    """A line is written by one JSON library and a row by another; where they differ, nothing may be cut out."""
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    text = every[:0xD800] + every[0xE000:]
    said = Message(role="assistant", content=f"a{text}a")
    made = dialogue("every", Message(role="user", content=text), said)
    assert copied(tmp_path, [made]) == 1
    check(tmp_path, [made], [True], ExportConfig())


def test_texts_that_take_turns_are_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unread:
        @staticmethod
        def model_validate_json(_: bytes) -> None:
            raise AssertionError("parsed")

    plain = [dialogue(f"{n}", role_definition="R" if n % 2 else None) for n in range(20)]
    write(tmp_path, plain)
    monkeypatch.setattr(stored, "Dialogue", Unread)
    for role in (False, True):
        config = ExportConfig(role_as_system=role)
        sft = stored_dialogues(tmp_path, pl.Series([True] * 20))
        counts = write_export(tmp_path / "trl", "trl", ExportData(sft=sft), config)
        assert (counts.rows["sft"], counts.roles_added) == (20, 10 * role)


@pytest.mark.parametrize(
    "made",
    [
        dialogue("space", USER, Message(role="assistant", content="Yes. ")),
        dialogue("thinks", USER, GOOD.model_copy(update={"reasoning": "hm"})),
        dialogue("named", USER.model_copy(update={"name": "Ann"}), GOOD),
        dialogue("cut", USER, GOOD, USER),
        dialogue("no user", GOOD),
        dialogue("calls", USER, call("track", {"parcel": 81}), GOOD),
        dialogue("tools", tools=(TRACK,)),
        dialogue("nothing", USER, Message(role="assistant")),
    ],
    ids=lambda made: made.id,
)
def test_what_a_row_says_otherwise_is_not_cut_out(tmp_path: Path, made: Dialogue) -> None:
    assert copied(tmp_path, [made]) == 0


def test_a_file_that_was_cut_short_is_an_error_and_the_earlier_export_stands(
    tmp_path: Path,
) -> None:
    write(tmp_path, [dialogue(f"{n}") for n in range(5)])
    stored_ = stored_dialogues(tmp_path, pl.Series([True] * 5))
    data = ExportData(sft=stored_)
    write_export(tmp_path / "trl", "trl", data, ExportConfig())
    before = {path.name: path.read_bytes() for path in (tmp_path / "trl").iterdir()}
    lines = tmp_path / "dialogues.jsonl"
    lines.write_bytes(lines.read_bytes()[:300])
    with pytest.raises(CurateError, match="shorter than its index"):
        write_export(tmp_path / "trl", "trl", data, ExportConfig())
    assert {path.name: path.read_bytes() for path in (tmp_path / "trl").iterdir()} == before


def test_provenance_of_rows_cut_out_is_the_dialogues(tmp_path: Path) -> None:
    write(tmp_path, [dialogue("a"), tool_dialogue("b"), dialogue("c")])
    sft = stored_dialogues(tmp_path, pl.Series([True, True, True]))
    write_export(tmp_path / "trl", "trl", ExportData(sft=sft), ExportConfig())
    known = pl.read_parquet(tmp_path / "trl/sft_provenance.parquet")
    rows = [orjson.loads(line) for line in (tmp_path / "trl/sft.jsonl").open("rb")]
    assert known["dialogue_id"].to_list() == ["a", "b", "c"]
    assert [len(row["messages"]) for row in rows] == [2, 4, 2]
    assert known["lineage_rows"].to_list() == [[3, 4]] * 3
    assert known["lineage_part"].to_list() == ["chosen"] * 3
