"""The script `benchmarks/facts_of_twins.py`: which cases it takes, and its table on judges that see all or nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from curate.engines.base import Completion, Request
from curate.engines.scripted import ScriptedEngine
from curate.recipe import load_recipe
from curate.run.probe_plan import CASES, draw_cases
from curate.trust.probe_cases import ProbeCase


@pytest.fixture(scope="module")
def script(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("facts_of_twins")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("facts") / "recipe.yaml"
    judge = {"engine": "scripted", "replies": []}
    fields = {"name": "facts", "source": {"path": "chats.jsonl"}, "models": {"judge": judge}}
    file.write_text(yaml.safe_dump(fields))
    return file


@pytest.fixture(scope="module")
def cases(recipe: Path) -> Sequence[ProbeCase]:
    return draw_cases(load_recipe(recipe), limit=CASES).cases


def test_false_claims_are_taken_of_many_dialogues_before_two_of_one(
    script: ModuleType, cases: Sequence[ProbeCase]
) -> None:
    taken = script.spread(cases, 20)
    assert {case.kind for case in taken} == set(script.KINDS)
    assert len({case.group for case in taken}) == 20
    assert len(script.spread(cases, 1000)) > 40


@pytest.mark.parametrize(
    ("sees", "figures"),
    [(True, "| 1.00 | 0.00 | 0 | 20 |"), (False, "| 1.00 | 1.00 | 0 | 0 |")],
)
def test_a_judge_that_sees_all_is_told_from_one_that_sees_nothing(
    sees: bool,
    figures: str,
    script: ModuleType,
    recipe: Path,
    cases: Sequence[ProbeCase],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    taken = script.spread(cases, 20)
    planted = {case.planted.messages[case.index].content.strip() for case in taken}

    def reply(request: Request) -> Completion:
        text = "\n".join(str(message["content"]) for message in request.messages)
        flawed = next((said for said in planted if said in text), None)
        if not sees or flawed is None:
            return Completion(text='{"claims": []}')
        claim = {"words": flawed[:40], "label": "false", "evidence": "model_knowledge"}
        return Completion(text=json.dumps({"claims": [claim]}))

    async def opened(_: object) -> ScriptedEngine:
        return ScriptedEngine(reply)

    monkeypatch.setattr("curate.engines.model_pool.open_engine", opened)
    arguments = [str(recipe), "--limit", "20", "--replies", str(tmp_path / "kept.sqlite")]
    monkeypatch.setattr(sys, "argv", ["facts_of_twins.py", *arguments])
    script.main()
    said = capsys.readouterr().out
    (cells,) = [line for line in said.splitlines() if line.startswith("| all | 20, 20 |")]
    assert cells.endswith(figures)
    share = float(cells.split("|")[3].split()[0])
    assert share == (1.0 if sees else 0.5)
    assert "0 of 40 turns unscored" in said
