"""`curate diff` and `curate runs` on run folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curate.dialogue import Message
from curate.errors import UsageError
from curate.records import PreferencePair, TrustKind
from curate.run.diff import diff_runs
from curate.run.diff_page import write_diff_page
from curate.run.ingest import read_dialogues
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_manifest, read_table
from curate.run.run_list import list_runs
from tests.processes import curate
from tests.report.reading import ReadPage
from tests.run.test_pipeline import chat, recipe, write_rows
from tests.servers import CountingServer


@pytest.fixture
def runs(server: CountingServer, tmp_path: Path) -> Path:
    """Two runs over nearly the same dialogues, judged in other words and selected by other conditions."""
    rows = [chat(n, turns=1 + n % 3) for n in range(8)]
    few = write_rows(tmp_path / "few.jsonl", rows)
    more = write_rows(tmp_path / "more.jsonl", [*rows[1:], chat(9)])
    folder = tmp_path / "runs"
    run_recipe(recipe(server, few, name="first"), out=folder / "first")
    other = {"judge": {"paraphrases": 2}, "select": {"where": {"role": "adherence > 0.3"}}}
    run_recipe(recipe(server, more, name="second", **other), out=folder / "deep" / "second")
    return folder


def test_two_runs_are_compared_by_what_was_asked_and_what_came(runs: Path) -> None:
    first, second = runs / "first", runs / "deep" / "second"
    found = diff_runs(first, second)
    keys = {change.key: (change.before, change.after) for change in found.recipe}
    assert keys["judge.paraphrases"] == (1, 2)
    assert "name" not in keys
    assert found.judges["judge"]
    assert not found.judges["adherence"]
    assert (found.dialogues.both, found.dialogues.only_first) == (7, ("chat-0",))
    sets = {row["id"]: row["sets"] for row in read_table(second)}
    assert found.dialogues.sets["sft"].after == sum("sft" in names for names in sets.values())
    assert "Another judge, or another way to ask it: judge." in found.sentence
    assert not found.trust
    assert curate("audit", second).returncode == 0
    (trust,) = diff_runs(first, second).trust
    assert trust.key == "audit"
    assert trust.after == read_manifest(second).trust[TrustKind.AUDIT]
    found = diff_runs(first, second)
    result = curate("diff", first, second)
    assert result.returncode == 0, result.stderr
    assert trust.after in " ".join(result.stdout.split())
    lines = result.stdout.splitlines()[1:]  # the first names the folders
    assert max(map(len, lines)) <= 80
    assert found.sentence in " ".join(result.stdout.split())
    told = json.loads(curate("diff", first, second, "--json").stdout)
    assert told["dialogues"] == json.loads(found.dialogues.model_dump_json())


def test_the_page_has_each_dialogue_that_changed_with_both_scorings(
    runs: Path, tmp_path: Path
) -> None:
    first, second = runs / "first", runs / "deep" / "second"
    out = tmp_path / "diff.html"
    result = curate("diff", first, second, "--html", out)
    assert result.returncode == 0, result.stderr
    assert str(out) in result.stdout
    page, found = ReadPage.of(out), diff_runs(first, second)
    changed = dict(zip(page.column("id"), page.column("changed"), strict=True))
    moved = {one.id for one in found.dialogues.changed_verdicts}
    assert {name for name, kinds in changed.items() if "verdict" in kinds} == moved
    sets = found.dialogues.sets.values()
    assert {name for name, kinds in changed.items() if "sets" in kinds} == {
        name for change in sets for name in (*change.gained, *change.lost)
    }
    assert all(changed.values())
    before = {row["id"]: set(row["sets"]) for row in read_table(first)}
    after = {row["id"]: set(row["sets"]) for row in read_table(second)}
    for name, gained, lost in zip(
        *map(page.column, ("id", "sets_gained", "sets_lost")), strict=True
    ):
        assert (set(gained), set(lost)) == (after[name] - before[name], before[name] - after[name])
    assert any(page.column("sets_lost"))
    assert any(page.column("sets_gained"))
    assert "chat-0" not in changed  # it is in the first run alone
    assert page.figures["diff"]["dialogues"]["only_first"] == {"count": 1, "ids": ["chat-0"]}
    rows = [
        {row["id"]: row["verdict"] for row in read_table(run) if row["id"] in changed}
        for run in (first, second)
    ]
    assert dict(zip(page.column("id"), page.column("verdict_before"), strict=True)) == rows[0]
    assert dict(zip(page.column("id"), page.column("verdict"), strict=True)) == rows[1]
    for dialogue in page.dialogues:
        judged = [side["judge"].get("verdict") for side in (dialogue["before"], dialogue)]
        assert judged == [side[dialogue["id"]] for side in rows]
        assert "messages" not in dialogue["before"]


def test_a_pair_that_only_the_first_run_had_is_shown_with_those_of_the_second(
    runs: Path, tmp_path: Path
) -> None:
    first, second = runs / "first", runs / "deep" / "second"
    of = next(dialogue for dialogue in read_dialogues(second) if dialogue.id == "chat-1")

    def write(run: Path, name: str, *ids: str) -> None:
        pairs = [
            PreferencePair(
                pair_id=one, dialogue_id=of.id, content_hash=of.content_hash, source="natural",
                basis="rank", turn=1, prompt=of.messages[:1], tools=(), lineage=None,
                confidence=None, chosen=Message(role="assistant", content=f"{one}, good"),
                rejected=Message(role="assistant", content=f"{one}, bad"), check=None,
                drop_reason="identical" if name == "dropped_pairs" else None,
            )
            for one in ids
        ]  # fmt: skip
        (run / "pairs").mkdir(exist_ok=True)
        text = "".join(f"{pair.model_dump_json()}\n" for pair in pairs)
        (run / "pairs" / f"{name}.jsonl").write_text(text)

    write(first, "natural_pairs", "lost", "both", "then dropped")
    write(first, "dropped_pairs", "dropped")
    write(second, "natural_pairs", "both", "gained")
    write(second, "dropped_pairs", "then dropped")
    write_diff_page(diff_runs(first, second), tmp_path / "diff.html")
    page = ReadPage.of(tmp_path / "diff.html")
    at = page.column("id").index("chat-1")
    assert "pairs" in page.column("changed")[at]
    assert (page.column("pairs_gained")[at], page.column("pairs_lost")[at]) == (1, 2)
    (body,) = [body for body in page.dialogues if body["id"] == "chat-1"]
    shown = [pair["pair_id"] for pair in body["pairs"]]
    assert shown == ["both", "gained", "then dropped", "lost"]
    assert body["pairs"][-1]["chosen"]["content"] == "lost, good"
    changes = {"gained": "gained", "lost": "lost", "then dropped": "lost"}
    assert body["pair_changes"] == changes
    assert "pairs" not in body["before"]


def test_what_does_not_fit_into_the_page_keeps_its_figures(runs: Path, tmp_path: Path) -> None:
    found = diff_runs(runs / "first", runs / "deep" / "second")
    written = write_diff_page(found, tmp_path / "diff.html", max_bytes=1)
    page = ReadPage.of(tmp_path / "diff.html")
    assert written.left_out == written.dialogues == len(page.column("id")) > 0
    assert not page.dialogues


def test_a_dialogue_of_another_text_shows_both(server: CountingServer, tmp_path: Path) -> None:
    rows = [chat(1), chat(2)]
    data = write_rows(tmp_path / "data.jsonl", rows)
    run_recipe(recipe(server, data), out=tmp_path / "first")
    rows[0]["messages"][-1]["content"] = "Another answer in chat 1"
    run_recipe(recipe(server, write_rows(data, rows)), out=tmp_path / "second")
    found = diff_runs(tmp_path / "first", tmp_path / "second")
    write_diff_page(found, tmp_path / "diff.html")
    (dialogue,) = ReadPage.of(tmp_path / "diff.html").dialogues
    texts = [side["messages"][-1]["content"] for side in (dialogue["before"], dialogue)]
    assert texts == [chat(1)["messages"][-1]["content"], "Another answer in chat 1"]


def test_runs_without_a_dialogue_in_common_are_refused(
    server: CountingServer, runs: Path, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "other.jsonl", [chat(77)])
    run_recipe(recipe(server, data), out=tmp_path / "other")
    with pytest.raises(UsageError, match="no dialogue in common"):
        diff_runs(runs / "first", tmp_path / "other")


def test_a_folder_of_runs_is_listed_and_the_damaged_one_is_named(runs: Path) -> None:
    (runs / "broken").mkdir()
    (runs / "broken" / "manifest.json").write_text("{")
    listed = list_runs(runs)
    assert [run.folder.name for run in listed] == ["second", "first", "broken"]
    assert listed[-1].manifest is None
    result = curate("runs", runs)
    assert "dialogues" in result.stdout.splitlines()[0]  # a source's row may hold several
    assert result.returncode == 0, result.stderr
    assert "deep/second" in result.stdout
    assert "cannot be read" in result.stdout
    rows = json.loads(curate("runs", runs, "--json").stdout)
    assert rows[1]["dialogues"] == 8
    assert rows[1]["good_share"] == pytest.approx(
        sum(rows[1]["verdicts"].get(name, 0) for name in ("good", "excellent")) / 8
    )
    assert "problem" in rows[2]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("diff", "first", "nothing"), "not a run folder"),
        (("runs", "nothing"), "no such folder"),
        (("runs", "first/judge"), "no run in this folder"),
    ],
)
def test_what_is_no_run_is_refused(runs: Path, command: tuple[str, ...], said: str) -> None:
    name, *folders = command
    result = curate(name, *(runs / folder for folder in folders))
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
