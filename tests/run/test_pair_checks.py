"""The checks over a run's pairs: from the run folder into the manifest and onto the screen."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from curate.cli.closing import show_run
from curate.dialogue import Message
from curate.recipe import parse_recipe
from curate.records import PreferencePair, SetCheck
from curate.run.ingest import read_dialogues
from curate.run.outputs import write_pairs
from curate.run.pair_checks import check_pairs, count_repeated_prompts
from curate.run.pipeline import RunResult, run_recipe
from curate.run.read_back import read_manifest
from curate.trust.pair_set import PairSetConfig


def rows(n: int, language: str | None = "en") -> list[dict[str, Any]]:
    """n tasks, two trials each, the better one of which always opens with "Sure"."""
    return [
        {
            "id": f"t{k}-{reward}",
            "messages": [
                {"role": "system", "content": "A shop."},
                {
                    "role": "user",
                    "content": f"Where is my order number {k}, placed in week {k % 50}?",
                },
                {
                    "role": "assistant",
                    "content": f"{opening} Order {k} {'is on its way' * (k % 3)}.",
                },
            ],
            "group": f"g{k}",
            "reward": reward,
            **({"lang": language} if language else {}),
        }
        for k in range(n)
        for reward, opening in ((1.0, "Sure!"), (0.0, "Hmm."))
    ]


def run(folder: Path, rows_in_file: list[dict[str, Any]], **sections: Any) -> RunResult:
    data = folder / "chats.jsonl"
    data.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows_in_file))
    recipe = {
        "name": "test",
        "source": {"path": str(data)},
        "judge": False,
        "adherence": False,
        "select": False,
    }
    return run_recipe(parse_recipe(recipe | sections), out=folder / "run")


def by_name(result: RunResult, kind: str = "natural") -> dict[str, SetCheck]:
    return {check.name: check for check in result.manifest.pair_checks[kind].checks}


def test_a_planted_shortcut_reaches_the_manifest_and_drops_no_pair(tmp_path: Path) -> None:
    result = run(tmp_path, rows(60))
    assert result.manifest.natural_pairs == 60
    assert set(result.manifest.pair_checks) == {"natural"}
    checks = by_name(result)
    assert checks["word_auc"].status == "warn"
    assert checks["language_balance"].detail == "only one language: en"
    assert checks["role_balance"].detail == "only one role: A shop."
    assert result.manifest.pair_checks["natural"].mixes["source"] == {"chats": 60}
    assert read_manifest(tmp_path / "run").pair_checks == result.manifest.pair_checks
    assert result.exit_code == 0


def test_a_language_nobody_named_is_unknown(tmp_path: Path) -> None:
    result = run(tmp_path, rows(50, language=None))
    assert by_name(result)["language_balance"].detail == "language unknown for all 50 pairs"


def test_thresholds_are_the_recipes_and_false_leaves_all_out(tmp_path: Path) -> None:
    loose = run(tmp_path, rows(60), pair_checks={"word_auc": 1.0, "length_auc": None})
    assert by_name(loose)["word_auc"].status == "pass"
    assert "length_auc" not in by_name(loose)
    assert run(tmp_path, rows(60), pair_checks=False).manifest.pair_checks == {}


def test_judge_made_and_natural_pairs_are_checked_apart_and_together(tmp_path: Path) -> None:
    run(tmp_path, rows(60))
    folder = tmp_path / "run"
    dialogues = list(read_dialogues(folder))

    def pair(number: int, source: str) -> PreferencePair:
        dialogue = dialogues[number]
        return PreferencePair(
            pair_id=f"{source}{number}",
            dialogue_id=dialogue.id,
            content_hash=dialogue.content_hash,
            source=source,  # type: ignore[arg-type]
            basis="judge",
            prompt=dialogue.messages[:-1],
            chosen=Message(role="assistant", content=f"It left on day {number}."),
            rejected=dialogue.messages[-1],
        )

    judge = [pair(n, "revision") for n in range(55)]
    natural = [pair(n, "natural") for n in range(55, 115)]
    write_pairs(folder, judge, natural)
    reports = check_pairs(folder, PairSetConfig())
    assert {name: report.pairs for name, report in reports.items()} == {
        "judge": 55, "natural": 60, "all": 115,
    }  # fmt: skip
    assert reports["all"].mixes["made_by"] == {"natural": 60, "revision": 55}
    assert reports["all"].mixes["language"] == {"en": 115}
    write_pairs(folder, judge, [])
    assert set(check_pairs(folder, PairSetConfig())) == {"judge"}
    write_pairs(folder, [], [])
    assert check_pairs(folder, PairSetConfig()) == {}


def test_equal_and_nearly_equal_prompts_are_counted(tmp_path: Path) -> None:
    long = "I bought a pair of red running shoes in your shop and now I would like to return them"

    def pair_of(name: str, text: str) -> PreferencePair:
        return PreferencePair(
            pair_id=name,
            dialogue_id=name,
            content_hash="",
            source="natural",
            basis="rank",
            prompt=(Message(role="user", content=text),),
            chosen=Message(role="assistant", content="yes"),
            rejected=Message(role="assistant", content="no"),
        )

    texts = [long, long, f"{long}, please", "Hello", "Hello", "Something else is asked here"]
    pairs = [pair_of(str(n), text) for n, text in enumerate(texts)]
    assert count_repeated_prompts(lambda: pairs) == 3


def test_the_summary_shows_every_check_in_80_columns(tmp_path: Path) -> None:
    result = run(tmp_path, rows(60))
    out = io.StringIO()
    show_run(Console(file=out, width=80), result, verbose=True)
    output = out.getvalue()
    assert [
        line for line in output.splitlines() if len(line) > 80 and str(tmp_path) not in line
    ] == []
    for check in result.manifest.pair_checks["natural"].checks:
        assert f"natural  {check.name}" in output
    assert "warn: 'hmm' as first word only in chosen 0, only in" in " ".join(output.split())
