"""The rows of a stage that are still missing when a run is resumed, and why rows of another run cannot be reused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl

from curate.planning.estimate import AssumedShare
from curate.recipe import parse_recipe
from curate.records import JudgeIdentity, Manifest, StageName
from curate.run.rows_left import KeptRows, Reused


def test_a_fork_is_owed_of_what_is_judged_and_of_the_rest_by_its_share(tmp_path: Path) -> None:
    """There are five dialogues: three are scored, two of these by this judge, and one of the two has its row."""
    share = AssumedShare(0.25, "assumed")
    recipe = parse_recipe({"name": "r", "source": {"path": "x"}})
    kept = KeptRows(
        recipe,
        tmp_path,
        pl.DataFrame({"id": list("abcde"), "content_hash": list("ABCDE")}),
        share,
        share,
        _done={
            (StageName.FORK, "f"): pl.Series(["A"]),
            (StageName.JUDGE, "j"): pl.Series(["A", "B", "D"]),
        },
        _forks=(pl.Series(["A", "B", "C"]), pl.Series(["A", "B", "C"])),
    )
    judge = kept.owed(StageName.JUDGE, "j")
    assert (judge.count, sorted(judge.missing)) == (2, ["C", "E"])
    fork = kept.owed(StageName.FORK, "f")
    assert (fork.count, len(fork.missing)) == (1 + 0.25 * 3, 0)


def test_rows_of_another_way_of_asking_say_what_differs(tmp_path: Path) -> None:
    identity = JudgeIdentity(engine="openai", model="one", prompt_version="3")

    def differences(name: StageName, there: dict[str, Any], here: dict[str, Any], **ours: str) -> list[str]:  # fmt: skip
        manifest = Manifest.model_validate(
            {"name": "r", "status": "done", "started": "", "recipe": {name: there}}
            | {"identities": {name: identity}, "versions": {"curate-dialogues": "0.9"}}
        )
        stage: Any = SimpleNamespace(name=name, identity=identity.model_copy(update=ours))
        return list(Reused(tmp_path, manifest, None)._differences(stage, here))

    chosen = {"mode": "auto", "output_mode": "auto", "reference": None, "jury": None}
    other = {"mode": "json", "output_mode": "binary", "reference": "nli", "jury": "median"}
    code = "the code of the stage differs (that run: curate 0.9)"
    assert differences(StageName.JUDGE, chosen, other) == [code]
    adherence = differences(StageName.ADHERENCE, chosen, other)
    assert adherence == ["config adherence.jury is null there, median here"]
    long = {"words": "x" * 99}
    assert differences(StageName.JUDGE, long, {}, model="two", prompt_version="4") == [
        "judge model is one there, two here",
        "prompts is 3 there, 4 here",
        "config judge.words differs",
    ]
