"""`make demo` as it stands in the Makefile: recorded replies through the real commands, with no model and no network."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from curate.cli import app
from curate.engines.config import ScriptedConfig
from curate.engines.open import open_engine
from curate.engines.scripted import ScriptedEngine
from curate.errors import EngineError
from curate.run.pipeline import run_recipe

ROOT = Path(__file__).resolve().parents[2]


def demo_commands() -> list[tuple[list[str], set[int]]]:
    """The arguments of each `curate` line of the target `demo`, and the exit codes that it allows."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    [block] = re.findall(r"^demo:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    commands = []
    for line in block.splitlines():
        words, _, other = line.strip().partition(" || ")
        if words.startswith("$(BIN)/curate "):
            allowed = {0} | {int(code) for code in re.findall(r"-eq (\d)", other)}
            commands.append((shlex.split(words)[1:], allowed))
    return commands


def test_the_demo_replays_to_certified_pairs_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    for arguments, allowed in demo_commands():
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code in allowed, (arguments, result.output, result.exception)
    demo, pairs = (read("runs/demo/manifest.json"), read("runs/demo-pairs/manifest.json"))
    for manifest in (demo, pairs):
        assert any(warning.startswith("Recorded replies: ") for warning in manifest["warnings"])
        assert manifest["status"] == "done"
    assert demo["recipe"]["judge"]["calibration"]
    assert lines("runs/demo/export/trl/sft.jsonl") >= 5
    assert lines("runs/demo-pairs/pairs/natural_pairs.jsonl") >= 3
    assert read("runs/demo-pairs/trust/pair_certificate.json")["issued"]
    assert not read("runs/demo/trust/certificate.json")["issued"]
    assert Path("runs/demo/report.html").stat().st_size > 100_000


def test_what_was_not_recorded_is_refused_and_the_way_on_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no reply for this request") as caught:
        run_recipe(
            {
                "name": "other",
                "source": {"path": str(ROOT / "recipes/sample/support.jsonl")},
                "scenario": "Nobody recorded this.",
                "models": {"judge": recorded()},
                "adherence": False,
                "select": False,
                "export": False,
            },
            out=tmp_path / "run",
        )
    assert "--set models.judge" in str(caught.value)


async def test_a_recording_has_the_identity_of_who_replied() -> None:
    engine = await open_engine(ScriptedConfig(replies=Path(recorded()["replies"])))
    assert isinstance(engine, ScriptedEngine)
    assert engine.identity.engine == "transformers"
    assert engine.identity.model == "Qwen2.5-Coder-1.5B-Instruct"
    [warning] = engine.warnings
    assert "no model runs now" in warning
    assert "recipes/demo/README.md" in warning


def recorded() -> dict[str, str]:
    """The demo's model."""
    return {"engine": "scripted", "replies": str(ROOT / "recipes/demo/replies.jsonl.zst")}


def read(path: str) -> Any:
    """A JSON file."""
    return json.loads(Path(path).read_bytes())


def lines(path: str) -> int:
    """How many lines a file has."""
    return len(Path(path).read_bytes().splitlines())
