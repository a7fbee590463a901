"""A finished run to push, made once: chats, chats with tools and preference rows, judged by the scripted server."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from curate.run.pipeline import run_recipe
from tests.cli.test_commands import ROOT
from tests.hub_server import HubServer, hub_server
from tests.live import live_server
from tests.run.test_pipeline import chat, recipe, write_rows


def preference(number: int) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": f"Where is parcel {number} of the Tanaka family?"}],
        "chosen": [{"role": "assistant", "content": f"It arrives on day {number} at nine."}],
        "rejected": [{"role": "assistant", "content": f"No idea, ask somebody else, {number}."}],
    }


def tool_chat(number: int) -> dict[str, Any]:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "track", "arguments": json.dumps({"parcel": number})},
    }
    return {
        "id": f"tools-{number}",
        "metadata": {"language": "en"},
        "messages": [
            {"role": "user", "content": f"Track parcel {number}, please?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": f"depot {number}"},
            {"role": "assistant", "content": f"Parcel {number} is at depot {number}."},
        ],
    }


def make_run(folder: Path, **sections: Any) -> Path:
    """Run a recipe on 30 chats, 4 with tools, 12 preference rows and two rows that cannot be read."""
    chats = [
        *(chat(n, turns=1 + n % 3) for n in range(30)),
        *map(tool_chat, range(4)),
        "not a row",
        {},
    ]
    data = write_rows(folder / "chats.jsonl", chats)
    prefs = write_rows(folder / "prefs.jsonl", [preference(n) for n in range(12)])
    given = {
        "name": "parcels",
        "source": [
            {"path": str(data), "license": "cc0-1.0"},
            {"path": str(prefs), "license": "cc-by-4.0"},
        ],
        "select": {
            "where": {"not_worst": "mean_helpfulness > 2"},
            "split": {"validation": 0.3, "by": ["group"]},
        },
        "fork": {"resamples": 1, "where": "n_turns = 1"},
    }
    with live_server() as server:
        result = run_recipe(recipe(server, data, **(given | sections)), out=folder / "run")
    assert result.exit_code == 0
    return folder / "run"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, not to be changed."""
    return make_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to push and to change."""
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    return copy


@pytest.fixture
def edit_export(run: Path) -> Callable[[str], None]:
    """Puts a text into the answer of the first exported SFT row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def edit(text: str) -> None:
        path = run / "export/trl/sft.parquet"
        table = pq.read_table(path)
        column = table.column("messages").combine_chunks()
        rows = column.to_pylist()
        first = [json.loads(item) if isinstance(item, str) else item for item in rows[0]]
        first[-1] = first[-1] | {"content": f"{first[-1]['content']} {text}"}
        is_text = isinstance(rows[0][0], str)
        rows[0] = [json.dumps(item) for item in first] if is_text else first
        if is_text:
            storage = pa.array([item for row in rows for item in row], pa.string())
            stops = [0]
            for row in rows:
                stops.append(stops[-1] + len(row))
            values = pa.ExtensionArray.from_storage(column.type.value_type, storage)
            changed = pa.ListArray.from_arrays(stops, values, type=column.type)
        else:
            changed = pa.array(rows, column.type)
        place = table.schema.get_field_index("messages")
        pq.write_table(table.set_column(place, table.schema.field(place), changed), path)

    return edit


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A Hub that takes the token of the environment; the client of this process is online, without Xet."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    close_session()
    with hub_server() as server:
        yield server
    close_session()


@pytest.fixture
def outside(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that talks to this Hub, with caches of its own."""
    online = dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "0")
    own = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_TOKEN": "hf_test",
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": str(ROOT),
    }
    return os.environ | online | own
