"""Two versions of a file of a run held against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from curate.errors import CurateError
from curate.run.file_differences import (
    Difference,
    RowDifferences,
    different_fields,
    file_differences,
)

DIFFERS = "differs from what the kept replies give"


def written(path: Path, *rows: Any) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def found(kept: Path, made: Path) -> list[Difference]:
    return list(file_differences(kept, made, "place"))


def test_what_differs_is_named_by_its_id_and_its_keys(tmp_path: Path) -> None:
    kept = written(
        tmp_path / "kept.jsonl",
        {"dialogue": {"id": "a"}, "score": 1},
        {"pair_id": "p", "check": {"margin": 1, "noise": 0}},
        {"dialogue_id": "c", "x": 1},
        {"x": 1},
        [1],
    )
    made = written(
        tmp_path / "made.jsonl",
        {"dialogue": {"id": "a"}, "score": 1},
        {"pair_id": "p", "check": {"margin": 2, "noise": 0}},
        {"dialogue_id": "c", "x": 1},
        {"x": 2, "y": None},
        [2],
    )
    [difference] = found(kept, made)
    assert difference == Difference(
        place="place",
        problem=DIFFERS,
        rows=3,
        units=("p", "row 4", "row 5"),
        fields=("check.margin", "x"),
    )


def test_of_a_file_of_another_kind_only_that_it_differs_is_said(tmp_path: Path) -> None:
    for name, text in (("kept.md", "one"), ("same.md", "one"), ("made.md", "two")):
        (tmp_path / name).write_text(text)
    assert found(tmp_path / "kept.md", tmp_path / "same.md") == []
    difference = Difference(place="place", problem=DIFFERS)
    assert found(tmp_path / "kept.md", tmp_path / "made.md") == [difference]


def test_rows_at_the_end_that_only_one_has(tmp_path: Path) -> None:
    short = written(tmp_path / "short.jsonl", {"id": "a"})
    long = written(tmp_path / "long.jsonl", {"id": "a"}, {"id": "b"}, {"id": "c"})
    [missing] = found(short, long)
    assert (missing.rows, missing.units, missing.fields) == (2, ("b", "c"), ("a row is missing",))
    [more] = found(long, short)
    assert (more.rows, more.units, more.fields) == (2, ("b", "c"), ("a row is too much",))


def test_equal_files_and_equal_rows_differ_in_nothing(tmp_path: Path) -> None:
    kept = written(tmp_path / "kept.jsonl", {"a": 1})
    assert found(kept, kept) == []
    spaced = tmp_path / "spaced.jsonl"
    spaced.write_text('{ "a": 1 }\n')
    assert found(kept, spaced) == []
    assert found(tmp_path / "gone.jsonl", kept) == [Difference(place="place", problem="is missing")]


def test_a_json_file_is_one_value(tmp_path: Path) -> None:
    kept, made = (
        written(tmp_path / name, value)
        for name, value in (("kept.json", {"a": {"b": 1}, "c": 1}), ("made.json", {"a": {"b": 2}}))
    )
    assert found(kept, made) == [Difference(place="place", problem=DIFFERS, fields=("a.b", "c"))]


def test_a_json_file_that_is_cut_is_named(tmp_path: Path) -> None:
    kept, made = tmp_path / "kept.json", written(tmp_path / "made.json", {"rows": 1})
    kept.write_bytes(made.read_bytes()[:-3])
    with pytest.raises(CurateError, match=r"kept\.json"):
        found(kept, made)


def test_a_broken_line_is_named_with_its_number(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_text('{"a": 1}\n{broken\n')
    made = written(tmp_path / "made.jsonl", {"a": 1}, {"a": 2})
    with pytest.raises(CurateError, match=r"kept\.jsonl:2"):
        found(kept, made)


@pytest.mark.parametrize(
    ("kept", "made", "fields"),
    [
        ({"a": 1}, {"a": 1}, []),
        (None, {"a": 1}, ["a row is missing"]),
        ({"a": 1}, None, ["a row is too much"]),
        ([1], [2], []),
    ],
)
def test_the_keys_that_two_values_say_differently(kept: Any, made: Any, fields: list[str]) -> None:
    assert list(different_fields(kept, made)) == fields


def test_of_many_rows_the_first_twenty_are_named() -> None:
    tally = RowDifferences("place", "is wrong")
    assert list(tally.differences()) == []
    for number in range(25):
        tally.add(f"row {number}", [f"field {number}"])
    [difference] = tally.differences()
    assert difference.rows == 25
    assert difference.units == tuple(f"row {number}" for number in range(20))
    assert difference.fields == tuple(f"field {number}" for number in range(20))
