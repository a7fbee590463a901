"""What reading sources leaves in a folder: what each source came to, lines of what was left out, damage that is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from curate.dialogue import Dialogue
from curate.errors import CurateError
from curate.run.ingest import (
    INDEX,
    SourceReport,
    read_dialogues,
    read_index,
    read_sources,
    sample_sources,
    sum_reports,
)
from curate.sources import SourceConfig, open_source
from curate.sources.mapping_parts import Join


def chat(name: str, reply: str = "Yes.", **fields: Any) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": "Is it there?"},
        {"role": "assistant", "content": reply},
    ]
    return {"id": name, "messages": messages, **fields}


def write(path: Path, rows: list[Any]) -> str:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return str(path)


def read(folder: Path, *configs: SourceConfig, **options: Any) -> list[SourceReport]:
    sources = [open_source(config) for config in configs]
    return read_sources(sources, folder, role="R.", scenario="S.", **options)


def lines(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_a_source_says_what_reading_it_came_to(tmp_path: Path) -> None:
    log = write(
        tmp_path / "log.jsonl", [chat("a", role_definition="Own."), chat("b"), {"messages": 3}]
    )
    (tmp_path / "run").mkdir()
    [report] = read(tmp_path / "run", SourceConfig(path=[log]))
    described = report.as_dict()
    [reason] = {row["reason"] for row in lines(tmp_path / "run/quarantine.jsonl")}
    assert described == {
        "path": [log],
        "name": report.source.config.source_name,
        "shape": "messages",
        "confidence": report.source.detection.confidence,
        "why": report.source.detection.reason,
        "files": 1,
        "skipped_files": {},
        "rows_in": 3,
        "rows_used": 2,
        "quarantined": 1,
        "dialogues": 2,
        "roles": {"recipe": 1, "field": 1},
        "not_sampled": 0,
        "parts_quarantined": 0,
        "reasons": {reason: 1},
        "part_reasons": {},
        "rows_left_out": {},
        "items_left_out": {},
    }


def test_how_a_source_is_mapped_and_joined_is_said(tmp_path: Path) -> None:
    questions = ["Is it there?", "When will it come?", "Whose is it?", "Why not today?"]
    rows = [
        {"no": f"n{n}", "exchange": [{"from_whom": "customer", "words": question}, {"from_whom": "agent", "words": f"It is {n}."}]}
        for n, question in enumerate(questions)
    ]  # fmt: skip
    log = write(tmp_path / "log.jsonl", rows)
    facts = [{"no": no, "city": "Oslo"} for no in ("n0", "n1", "n2", "n3", "n4")]
    cities = write(tmp_path / "cities.jsonl", facts)
    [found] = read(tmp_path / "run", SourceConfig(path=log))
    mapping = found.source.detection.mapping
    assert mapping is not None
    described = found.as_dict()
    assert described["mapping"] == mapping.model_dump(mode="json", exclude_defaults=True)
    assert orjson.loads(orjson.dumps(described)) == described
    assert described["path"] == log
    # The recipe has a mapping that is its own, and the joined file is counted.
    joined = mapping.model_copy(update={"join": Join(path=cities, by="no")})
    [report] = read(tmp_path / "run", SourceConfig(path=log, mapping=joined))
    assert report.as_dict() | {"why": ""} == {
        key: value for key, value in described.items() if key != "mapping"
    } | {"why": "", "joined": {"rows": 5, "unused": 1}}


def test_totals_add_up_what_all_sources_came_to(tmp_path: Path) -> None:
    first = write(
        tmp_path / "first.jsonl", [chat("a"), chat("b", role_definition="Own."), {"messages": 3}]
    )
    second = write(tmp_path / "second.jsonl", [chat("a"), chat("c")])
    reports = read(tmp_path / "run", SourceConfig(path=first), SourceConfig(path=second))
    total = sum_reports(reports, tmp_path / "run")
    assert total.sources == [report.as_dict() for report in reports]
    assert total.model_dump(include={"rows_in", "rows_used", "quarantined", "dialogues", "roles"}) == {
        "rows_in": 5, "rows_used": 4, "quarantined": 1, "dialogues": 4, "roles": {"recipe": 3, "field": 1},
    }  # fmt: skip
    assert [dialogue.id for dialogue in read_dialogues(tmp_path / "run")] == [
        "a",
        "b",
        "second:a",
        "c",
    ]


def test_an_id_that_every_source_has_is_prefixed_until_it_is_free(tmp_path: Path) -> None:
    logs = [write(tmp_path / f"{n}.jsonl", [chat("a")]) for n in range(3)]
    read(tmp_path / "run", *(SourceConfig(path=log, name="s") for log in logs))
    assert [d.id for d in read_dialogues(tmp_path / "run")] == ["a", "s:a", "s:s:a"]


def test_one_source_keeps_the_ids_that_its_rows_give(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [chat("a"), chat("a", "No.")])
    read(tmp_path / "run", SourceConfig(path=log))
    alone = [dialogue.id for dialogue in read_dialogues(tmp_path / "run")]
    other = write(tmp_path / "other.jsonl", [chat("b")])
    read(tmp_path / "run", SourceConfig(path=log), SourceConfig(path=other))
    assert [dialogue.id for dialogue in read_dialogues(tmp_path / "run")] == [*alone, "b"]


def test_role_and_scenario_are_the_recipes_where_it_puts_its_own_first(tmp_path: Path) -> None:
    own = {"role_definition": "Own role.", "scenario": "Own scenario."}
    log = write(tmp_path / "log.jsonl", [chat("a"), chat("b", **own)])

    def given(**options: Any) -> list[tuple[str | None, str | None]]:
        read(tmp_path / "run", SourceConfig(path=log), **options)
        written = list(read_dialogues(tmp_path / "run"))
        sampled: list[Dialogue] = []
        source = open_source(SourceConfig(path=log))
        sample_sources([source], sampled.append, role="R.", scenario="S.", **options)
        assert sampled == written
        return [(d.role_definition, d.scenario) for d in written]

    assert given() == [("R.", "S."), ("Own role.", "Own scenario.")]
    assert given(role_from="recipe") == [("R.", "S."), ("R.", "Own scenario.")]


def test_a_source_of_which_nothing_can_be_read_names_its_quarantine(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [{"messages": 3}, {"messages": 4}])
    config = SourceConfig(path=log, shape="messages")
    with pytest.raises(CurateError) as raised:
        read(tmp_path / "run", config)
    assert str(tmp_path / "run/quarantine.jsonl") in str(raised.value)
    assert len(lines(tmp_path / "run/quarantine.jsonl")) == 2
    with pytest.raises(CurateError) as raised:
        sample_sources([open_source(config)], lambda _: None, role=None, scenario=None)
    assert "quarantine.jsonl" not in str(raised.value)


def test_progress_counts_dialogues_over_all_sources_and_each_is_seen_once(tmp_path: Path) -> None:
    first = write(tmp_path / "first.jsonl", [chat("a"), chat("b")])
    second = write(tmp_path / "second.jsonl", [chat("c")])
    numbers: list[int] = []
    dialogues: list[Dialogue] = []
    configs = SourceConfig(path=first), SourceConfig(path=second)
    read(tmp_path / "run", *configs, progress=numbers.append, see=dialogues.append)
    assert (numbers, [d.id for d in dialogues]) == ([1, 2, 3], ["a", "b", "c"])


def test_what_is_not_sampled_is_named_with_its_place_and_a_sample_reads_the_same(
    tmp_path: Path,
) -> None:
    first = write(tmp_path / "first.jsonl", [chat("a")])
    second = write(
        tmp_path / "second.jsonl", [chat(f"b{n}", f"{n}", group=f"g{n}") for n in range(3)]
    )
    configs = SourceConfig(path=first, weight=1), SourceConfig(path=second, weight=1)
    reports = read(tmp_path / "run", *configs, mix_seed=5)
    dialogues = list(read_dialogues(tmp_path / "run"))
    taken = {dialogue.id for dialogue in dialogues}
    left_out = lines(tmp_path / "run/not_sampled.jsonl")
    rows = {f"b{n}": n + 1 for n in range(3) if f"b{n}" not in taken}
    assert len(rows) == 2
    by_id: dict[str, Dialogue] = {}
    read(tmp_path / "alone", configs[1], see=lambda d: by_id.update({d.id: d}))
    assert left_out == [
        {
            "dialogue_id": name,
            "content_hash": by_id[name].content_hash,
            "group": f"g{name[1]}",
            "source": "second",
            "file": by_id[name].lineage.file,  # type: ignore[union-attr]
            "rows": [row],
        }
        for name, row in rows.items()
    ]
    seen: list[Dialogue] = []
    options: Any = {"role": "R.", "scenario": "S.", "mix_seed": 5}
    sampled = sample_sources([open_source(config) for config in configs], seen.append, **options)
    assert seen == dialogues
    assert [report.as_dict() for report in sampled] == [report.as_dict() for report in reports]


def test_dialogues_that_do_not_fit_their_index_are_damaged(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [chat("a"), chat("b"), chat("c")])
    read(tmp_path, SourceConfig(path=log))
    path = tmp_path / "dialogues.jsonl"
    good = path.read_bytes()
    first, second, third = good.splitlines(keepends=True)

    def damage(*changed: bytes) -> str:
        path.write_bytes(b"".join(changed))
        with pytest.raises(CurateError) as raised:
            list(read_dialogues(tmp_path))
        return str(raised.value).replace(f"{tmp_path}/", "")

    counts = "it has {} lines or more, dialogues.parquet 3"
    assert counts.format(2) in damage(first, second)
    assert counts.format(4) in damage(first, second, third, third, third)
    assert "dialogues.jsonl:2" in damage(first, b"{}\n", third)
    # A line that is not asked for is not parsed.
    path.write_bytes(first + b"{}\n" + third)
    marks = pl.Series([True, False, True])
    assert [dialogue.id for dialogue in read_dialogues(tmp_path, marks)] == ["a", "c"]
    path.write_bytes(good)
    (tmp_path / INDEX).write_bytes(b"PAR1 torn")
    with pytest.raises(CurateError, match=INDEX):
        read_index(tmp_path, "id")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [chat("a"), chat("b")])
    read(tmp_path / "run", SourceConfig(path=log))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert sorted(before) == [
        "dialogues.jsonl",
        "dialogues.parquet",
        "not_sampled.jsonl",
        "quarantine.jsonl",
    ]

    def fail(dialogue: Dialogue) -> None:
        if dialogue.id == "b":
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        read(tmp_path / "run", SourceConfig(path=log, limit=None), see=fail, role_from="recipe")
    assert before.items() <= {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}.items()
    read(tmp_path / "run", SourceConfig(path=log))
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
