"""Scripts of `make bench` that need no model, small: they run, and what they check of both sides holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from curate.engines.tokens import PromptTokens

Load = Callable[[str], ModuleType]


def test_filtering_again_writes_what_a_plain_loop_writes(load: Load, tmp_path: Path) -> None:
    ours, loop = load("columnar").measure(tmp_path, 60, rounds=1)
    assert ours > 0 < loop


def test_tokenising_once_gives_the_ids_of_whole_prompts(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load("tokenise_once")
    monkeypatch.setattr(script, "ROUNDS", 1)
    requests = [one + other for one, other in zip(*script.gather(3).values(), strict=True)]
    assert [len(dialogue) for dialogue in requests] == [len(requests[0])] * 3
    slow, fast = script.compare(script.small_tokenizer(), requests)
    assert slow > 0 < fast


@pytest.mark.parametrize("stage", ["adherence", "rubric"])
def test_prompts_share_their_trunk(load: Load, stage: str) -> None:
    script = load("trunk_sharing")
    share, _ = asyncio.run(script.counted(PromptTokens(script.small_tokenizer()), stage, 1))
    assert share <= 1.05  # of what has to be prefilled once
