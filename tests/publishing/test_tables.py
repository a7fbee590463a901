"""Files of a split: cut where they grow large, of one schema, named so that the Hub reads them in order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.export.config import ExportConfig
from curate.export.trl import export_trl
from curate.publishing.places import published, shortened
from curate.publishing.tables import Shards, write_exported
from tests.export.samples import dialogue, pair, tool_dialogue, tool_pair

SCHEMA = pa.schema([("n", pa.int64())])


def table(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())}, schema=SCHEMA)


def test_a_file_that_has_grown_is_closed_and_rows_keep_their_order(tmp_path: Path) -> None:
    with Shards(tmp_path, "sft", "train", SCHEMA, shard_bytes=1) as shards:
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
    with Shards(tmp_path, "dpo", "validation", SCHEMA, shard_bytes=1) as shards:
        pass
    [file] = shards.files
    assert (file.rows, pq.read_table(file.path).schema) == (0, SCHEMA)


def test_all_files_of_a_config_have_one_schema(tmp_path: Path) -> None:
    """Plain messages on one side and tool calls on the other are both JSON; natural pairs follow."""
    train, validation = tmp_path / "export/trl", tmp_path / "export/trl/validation"
    export_trl(train, sft=[dialogue("a")], pairs=[pair("p")], natural=[], config=ExportConfig())
    tools = [tool_dialogue("b")]
    export_trl(
        validation, sft=tools, pairs=[], natural=[tool_pair("q"), pair("r")], config=ExportConfig()
    )
    for config, columns in (("sft", ["messages"]), ("dpo", ["prompt", "chosen", "rejected"])):
        files = write_exported(tmp_path, tmp_path / "out", config, shard_bytes=10**6)
        first, second = (pq.read_table(file.path) for file in files)
        assert first.schema == second.schema
        assert all("json" in str(first.schema.field(name).type) for name in columns[:1])
        assert first["tools"].to_pylist() == [None]
        assert any(second["tools"].to_pylist())
    assert second["pair_id"].to_pylist() == ["q", "r"]
    assert first["margin"].to_pylist() == [1.5]


def test_an_export_without_rows_of_a_kind_gives_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "export/trl"
    export_trl(folder, sft=[dialogue("a")], pairs=[], natural=[], config=ExportConfig())
    assert write_exported(tmp_path, tmp_path / "out", "dpo", shard_bytes=1) == []


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
        assert shortened(text) == short
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
