"""Files of a split: cut where they grow large, of one schema, named so that the Hub reads them in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.export.config import ExportConfig
from curate.export.writing import ExportData, write_export
from curate.publishing.local_paths import published, without_folders
from curate.publishing.published_tables import Shards, write_exported
from curate.publishing.row_cleaning import RowCleaner
from curate.publishing.scan import Detector
from tests.export.samples import dialogue, pair, tool_dialogue, tool_pair

SCHEMA = pa.schema([("n", pa.int64())])
CLEANER = RowCleaner(Detector())


def table(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())}, schema=SCHEMA)


def test_a_file_that_has_grown_is_closed_and_rows_keep_their_order(tmp_path: Path) -> None:
    with Shards(tmp_path, "sft", "train", SCHEMA, 1, CLEANER) as shards:
        for start in range(0, 9, 3):
            shards.write(table(start, start + 1, start + 2))
    assert [file.name for file in shards.files] == [
        f"sft/train-0000{n}-of-00003.parquet" for n in range(3)
    ]
    assert [file.rows for file in shards.files] == [3, 3, 3]
    rows = [n for file in shards.files for n in pq.read_table(file.path)["n"].to_pylist()]
    assert rows == list(range(9))
    assert {path.name for path in (tmp_path / "sft").iterdir()} == {
        file.path.name for file in shards.files
    }
    assert all(file.size == file.path.stat().st_size for file in shards.files)


def test_a_split_without_rows_is_a_file_that_can_be_read(tmp_path: Path) -> None:
    with Shards(tmp_path, "dpo", "validation", SCHEMA, 1, CLEANER) as shards:
        pass
    [file] = shards.files
    assert (file.rows, pq.read_table(file.path).schema) == (0, SCHEMA)


def export(folder: Path, **data: Any) -> None:
    options = {"shard_rows": data.pop("shard_rows", None), "kinds": ("sft", "dpo", "reward")}
    write_export(folder, "trl", ExportData(**data), ExportConfig(**options))


def written(run: Path, config: Any, **options: Any) -> list[Any]:
    given = {
        "exported": ("sft", "dpo", "dpo_natural"),
        "shard_bytes": 10**6,
        "cleaner": CLEANER,
    } | options
    files = write_exported(run, run / "out", config, **given)
    return [pq.read_table(file.path) for file in files]


def test_all_files_of_a_config_have_one_schema(tmp_path: Path) -> None:
    """Plain messages on one side and tool calls on the other are both JSON."""
    side = tmp_path / "export/trl"
    export(side, sft=[dialogue("a")], pairs=[pair("p")])
    tools = [tool_dialogue("b")]
    export(side / "validation", sft=tools, pairs=[tool_pair("q"), pair("r")])
    for config, column in (("sft", "messages"), ("dpo", "prompt")):
        first, second = written(tmp_path, config)
        assert first.schema == second.schema
        assert "json" in str(first.schema.field(column).type)
        assert first["tools"].to_pylist() == [None]
        assert any(second["tools"].to_pylist())
    assert second["pair_id"].to_pylist() == ["q", "r"]
    assert first["margin"].to_pylist() == [1.5]


def test_pairs_of_the_judge_and_of_the_data_are_never_in_one_config(tmp_path: Path) -> None:
    export(tmp_path / "export/trl", pairs=[pair("made")], natural=[pair("held")])
    [made], [held] = written(tmp_path, "dpo"), written(tmp_path, "dpo_natural")
    assert (made["pair_id"].to_pylist(), held["pair_id"].to_pylist()) == (["made"], ["held"])


def test_shards_of_the_export_are_read_in_order_beside_their_sidecar(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(7)]
    pairs = [pair(name) for name in names]
    natural = [pair(f"n{number}") for number in range(3)]
    export(tmp_path / "export/trl", pairs=pairs, natural=natural, shard_rows=2)
    assert len(list((tmp_path / "export/trl").glob("dpo-*.parquet"))) == 4
    [natural_table] = written(tmp_path, "dpo_natural")
    assert natural_table["pair_id"].to_pylist() == ["n0", "n1", "n2"]
    [table] = written(tmp_path, "dpo")
    assert table["pair_id"].to_pylist() == names
    assert table["dialogue_id"].to_pylist()[0] == "of-p0"


def test_an_export_without_rows_of_a_kind_gives_no_file(tmp_path: Path) -> None:
    export(tmp_path / "export/trl", sft=[dialogue("a")])
    assert written(tmp_path, "dpo") == []
    assert written(tmp_path, "dpo", exported=("sft",)) == []


def test_places_of_this_machine_are_cut_to_their_last_part() -> None:
    for text, short in {
        "/home/ada/chats.jsonl": "chats.jsonl",
        "llamacpp:/home/ada lovelace/models/judge.gguf@12": "llamacpp:judge.gguf@12",
        "~/data/x.jsonl": "x.jsonl",
        r"C:\Users\ada\x.jsonl": "x.jsonl",
        "3 rows in /home/ada/run; they fail": "3 rows in run; they fail",
        "org/name": "org/name",
        "https://example.com/a/b/c": "https://example.com/a/b/c",
        "runs/mine": "runs/mine",
        "and/or": "and/or",
    }.items():
        assert without_folders(text) == short
    recipe = {
        "models": {"judge": {"model": "/m/a/j.gguf", "base_url": "http://10.0.0.7:1/v1"}},
        "source": [{"path": ("/data/ada/x.jsonl",), "limit": None}],
        "reuse": "/home/ada/run",
    }
    assert published(recipe) == {
        "models": {"judge": {"model": "j.gguf", "base_url": "(not published)"}},
        "source": [{"path": ["x.jsonl"]}],
        "reuse": "(not published)",
    }
