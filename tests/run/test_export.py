"""From a judged run to trainers' folders: which dialogues are salvaged, which turns are labelled, and where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.errors import UsageError
from curate.export.counts import files
from curate.recipe import Recipe
from curate.records import StageName, Unscored
from curate.records.config import MinGood
from curate.run.export import _write_judgments
from curate.run.pipeline import RunResult, run_recipe
from curate.run.read_back import read_judged
from curate.run.staging import scored_rows
from tests.live import live_server
from tests.run import test_pipeline
from tests.servers import CountingServer

SELECT = {"where": {}, "top": {"fraction": 0.3, "by": "mean_score"}, "active": None}
LEVELS = MinGood(context_use=3, helpfulness=3, safety=3)


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    with live_server() as running:
        yield running


def write_chats(path: Path, count: int, *, again: int = 0) -> None:
    """Chats of one to three turns, the first `again` of them twice."""

    def chat(number: int) -> dict[str, Any]:
        messages = [
            {"role": role, "content": f"{what} {turn} of chat {number}."}
            for turn in range(1, 2 + number % 3)
            for role, what in (("user", "Question"), ("assistant", "Answer"))
        ]
        return {"id": f"chat-{number}", "messages": messages}

    numbers = [*range(count), *range(again)]
    path.write_text("".join(json.dumps(chat(number)) + "\n" for number in numbers))


def recipe(server: CountingServer, data: Path, **sections: Any) -> Recipe:
    return test_pipeline.recipe(
        server,
        data,
        **{
            "adherence": False,
            "select": SELECT,
            "export": {
                "trainers": ["axolotl", "trl"],
                "formats": ["jsonl"],
                "salvage": {"where": "verdict IS NOT NULL", "min_good": LEVELS.model_dump()},
                "kto_turns": {"min_good": LEVELS.model_dump()},
            },
        }
        | sections,
    )


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def good_turns(run: Path, dialogue: str) -> list[int]:
    """As the judge's record has them, without the code under test."""
    judgment = read_judged(run, dialogue).judgment
    assert judgment is not None
    return [turn["turn"] for turn in judgment["per_turn"] if not LEVELS.flaws(turn["scores"])]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def result(server: CountingServer, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("salvage")
    write_chats(folder / "chats.jsonl", 24, again=3)
    return run_recipe(recipe(server, folder / "chats.jsonl"), out=folder / "run")


def test_judgments_are_written_in_the_cards_form_and_taken_away_again(
    server: CountingServer, tmp_path: Path
) -> None:
    write_chats(tmp_path / "chats.jsonl", 4, again=1)

    def run(*kinds: str) -> RunResult:
        export = {"trainers": ["trl"], "kinds": ["sft", *kinds]}
        asked = recipe(server, tmp_path / "chats.jsonl", export=export)
        return run_recipe(asked, out=tmp_path / "run")

    made = run("judgments")
    file = tmp_path / "run/export/judgments.jsonl"
    rows = lines(file)
    assert len(rows) == made.manifest.dialogues == 5
    assert rows[0] == rows[4] | {"dialogue_id": rows[0]["dialogue_id"]}
    for row in rows:
        judgment = read_judged(made.folder, row["dialogue_id"]).judgment
        assert judgment is not None
        assert row["verdict"] == judgment["verdict"]
        assert row["per_turn"][0]["scores"] == judgment["per_turn"][0]["scores"]
        assert "readings" not in row["per_turn"][0]
    assert made.manifest.exports["judgments"]["judgments"] == 5
    run()
    assert not file.exists()


def test_a_dialogue_without_a_judgment_has_the_reason_in_its_place(tmp_path: Path) -> None:
    index = {"id": ["a", "b", "c", "d"], "content_hash": ["A", "B", "C", "C"]}
    pl.DataFrame(index).write_parquet(tmp_path / "dialogues.parquet")
    (tmp_path / "export").mkdir()
    held = scored_rows(tmp_path, StageName.JUDGE, "f")
    for key, reason in (("A", "bad_reply"), ("C", "reply_cut")):
        held.append(
            key, Unscored(dialogue_id="x", content_hash=key, stage=StageName.JUDGE, reason=reason)
        )
    counts = _write_judgments(tmp_path, held)
    reasons = {"a": "bad_reply", "b": "not_scored", "c": "reply_cut", "d": "reply_cut"}
    assert lines(tmp_path / "export/judgments.jsonl") == [
        {"dialogue_id": name, "unscored": reason} for name, reason in reasons.items()
    ]
    assert counts == {
        "judgments": 0,
        "refused_judgments": 4,
        "refused_judgments_bad_reply": 1,
        "refused_judgments_not_scored": 1,
        "refused_judgments_reply_cut": 2,
        "dialogues_cut": 0,
        "roles_added": 0,
    }


class TestSalvage:
    def test_what_is_not_selected_keeps_its_good_turns(self, result: RunResult) -> None:
        run = result.folder
        known = pl.read_parquet(run / "export/axolotl/turn_provenance.parquet")
        known = known.filter(pl.col("file") == "sft_salvaged")
        rows = lines(run / "export/axolotl/sft_salvaged.jsonl")
        assert 0 < len(rows) == known.height
        for row, about in zip(rows, known.rows(named=True), strict=True):
            good = good_turns(run, about["dialogue_id"])
            assert about["turns"] == good
            trained = [n for n, m in enumerate(row["messages"]) if m["train"]]
            assert trained == [2 * turn - 1 for turn in good] == about["messages"]

    def test_selected_salvaged_and_refused_are_all_there_is_but_repeats(
        self, result: RunResult
    ) -> None:
        run, counts = result.folder, result.manifest.exports["axolotl"]
        decisions = lines(run / "select/decisions.jsonl")
        taken = {d["content_hash"] for d in decisions if "sft" in d["sets"]}
        scored = {d["content_hash"] for d in decisions if "unscored" not in d["reasons"]}
        assert taken < scored
        assert counts["sft_salvaged"] + counts["refused_sft_salvaged"] == len(scored - taken)
        assert counts["refused_sft_salvaged_too_few_good_turns"] > 0
        assert counts["sft"] == result.manifest.selected > 0
        salvaged = pl.read_parquet(run / "export/axolotl/turn_provenance.parquet")["dialogue_id"]
        selected = {d["dialogue_id"] for d in decisions if "sft" in d["sets"]}
        assert not selected & set(salvaged)
        assert salvaged.is_unique().all()

    def test_labels_are_those_of_the_judge(self, result: RunResult) -> None:
        run = result.folder
        rows = lines(run / "export/trl/kto_turns.jsonl")
        known = pl.read_parquet(run / "export/trl/turn_provenance.parquet")
        known = known.filter(pl.col("file") == "kto_turns")
        assert {row["label"] for row in rows} == {True, False}
        for row, about in zip(rows, known.rows(named=True), strict=True):
            [turn] = about["turns"]
            assert row["label"] == about["label"]
            assert len(row["prompt"]) == 2 * turn - 1
            if row["label"]:
                assert turn in good_turns(run, about["dialogue_id"])

    def test_the_manifest_counts_every_file(self, result: RunResult) -> None:
        for trainer, counts in result.manifest.exports.items():
            for name, rows in files(counts).items():
                assert rows == len(lines(result.folder / f"export/{trainer}/{name}.jsonl"))

    def test_the_same_command_gives_the_same_bytes(
        self, result: RunResult, server: CountingServer
    ) -> None:
        before = contents(result.folder / "export")
        data = result.folder.parent / "chats.jsonl"
        run_recipe(recipe(server, data), out=result.folder)
        assert contents(result.folder / "export") == before
        fresh = result.folder.parent / "fresh"
        run_recipe(recipe(server, data), out=fresh)
        assert contents(fresh / "export") == before

    def test_judgments_of_another_run_serve_without_a_model(
        self, result: RunResult, server: CountingServer
    ) -> None:
        data = result.folder.parent / "chats.jsonl"
        reused = recipe(server, data, models={}, reuse=str(result.folder))
        again = run_recipe(reused, out=result.folder.parent / "reused")
        assert contents(again.folder / "export") == contents(result.folder / "export")


def test_salvaged_dialogues_stay_on_their_side_of_a_split(
    server: CountingServer, tmp_path: Path
) -> None:
    write_chats(tmp_path / "chats.jsonl", 18)
    select = {
        **SELECT,
        "split": {"validation": 0.4, "by": ["group"]},
    }
    result = run_recipe(
        recipe(server, tmp_path / "chats.jsonl", select=select), out=tmp_path / "run"
    )
    sides = {d["dialogue_id"]: d["split"] for d in lines(tmp_path / "run/select/decisions.jsonl")}
    for trainer in ("axolotl", "trl"):
        for part, side in (("", "train"), ("validation", "validation")):
            folder = tmp_path / "run/export" / trainer / part
            known = pl.read_parquet(folder / "turn_provenance.parquet")
            assert {sides[name] for name in known["dialogue_id"]} == {side}
    assert result.manifest.exports["axolotl/validation"]["sft_salvaged"] > 0


def test_duplicates_and_contaminated_dialogues_are_not_salvaged(
    server: CountingServer, tmp_path: Path
) -> None:
    write_chats(tmp_path / "chats.jsonl", 9)
    (tmp_path / "eval.txt").write_text("Question 1 of chat 4.\n")
    select = {
        "where": {"none": "mean_score > 5"},
        "active": None,
        "decontaminate": {"path": str(tmp_path / "eval.txt"), "ngram": 5},
    }
    run_recipe(recipe(server, tmp_path / "chats.jsonl", select=select), out=tmp_path / "run")
    decisions = lines(tmp_path / "run/select/decisions.jsonl")
    assert [d["dialogue_id"] for d in decisions if "contaminated" in d["reasons"]] == ["chat-4"]
    for trainer, name in (("axolotl", "sft_salvaged"), ("trl", "kto_turns")):
        folder = tmp_path / "run/export" / trainer
        known = pl.read_parquet(folder / "turn_provenance.parquet")
        refused = [row["dialogue_id"] for row in lines(folder / "refused.jsonl")]
        assert "chat-4" not in {*known["dialogue_id"], *refused}
        assert known.filter(pl.col("file") == name).height > 0


@pytest.mark.parametrize("section", ["salvage", "kto_turns"])
@pytest.mark.parametrize("stage", ["judge", "select"])
def test_turns_are_not_asked_for_without_the_stages_they_are_made_of(
    server: CountingServer, tmp_path: Path, section: str, stage: str
) -> None:
    asked = recipe(server, tmp_path, export={section: {}}, **{stage: False})
    with pytest.raises(UsageError, match=rf"export\.{section}") as error:
        asked.checked()
    assert f"{stage}: false" in str(error.value)


def test_a_condition_that_reads_no_column_is_refused_before_anything_runs(
    server: CountingServer, tmp_path: Path
) -> None:
    asked = recipe(server, tmp_path, export={"salvage": {"where": "verdikt >= 'good'"}})
    with pytest.raises(UsageError, match=r"export\.salvage\.where.*does not have"):
        asked.checked()
