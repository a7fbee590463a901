"""A review of people: refused or merged by a stated rule, and seen in decisions, exports, card and manifest."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.records import ReviewAnswer
from curate.run.ingest import read_dialogues
from curate.run.labels.populations import read_members
from curate.run.labels.sample import sample
from curate.run.outputs import set_fingerprint
from curate.run.read_back import read_manifest
from curate.run.review import review_run
from curate.run.review_answers import answers_path, kept_answers, latest_answers, reviews_of
from curate.trust.gold import match_gold
from curate.trust.label_rows import read_gold
from tests.publishing.conftest import make_run
from tests.transcript import check, kept
from tests.trust.test_labelling_tools import EXPORTS

REPORTS = Path(__file__).parent / "reports"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def decisions(run: Path) -> dict[str, dict[str, Any]]:
    return {row["dialogue_id"]: row for row in rows(run / "select" / "decisions.jsonl")}


def answer(run: Path, name: str, value: Any, dimension: str = "accept", **more: Any) -> Any:
    content = next(d.content_hash for d in read_dialogues(run) if d.id == name)
    base = {"id": name, "content": content, "dimension": dimension, "value": value}
    return base | {"rater": "ann", "time": "2026-11-23T10:00:00.000Z", "turn": None} | more


def write(path: Path, *answers: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in answers))
    return path


def of_set(run: Path, name: str) -> list[str]:
    return [key for key, row in decisions(run).items() if name in row["sets"]]


def test_people_stand_in_place_of_the_rules_with_who_and_when(run: Path, tmp_path: Path) -> None:
    chosen, rejected = of_set(run, "sft")[0], of_set(run, "rejected")[0]
    why, of_rules = decisions(run)[rejected]["reasons"], set(of_set(run, "sft"))
    selected, fingerprint = (read_manifest(run).selected, read_manifest(run).fingerprints["select"])
    file = write(
        tmp_path / "r.jsonl", answer(run, chosen, "reject"), answer(run, rejected, "accept")
    )
    done = review_run(run, file)
    after = decisions(run)
    assert after[chosen]["reasons"] == ["reviewed"]
    assert after[rejected]["sets"][0] == "sft"
    assert after[rejected]["reviewed"] == {
        "accept": True,
        "raters": ["ann"],
        "time": "2026-11-23T10:00:00.000Z",
        "rule_reasons": why,
    }
    assert (done.report.accepted, done.report.rejected, done.report.changed) == (1, 1, 2)
    manifest = read_manifest(run)
    assert manifest.fingerprints["select"] != fingerprint, (
        "a certificate of the old set still holds"
    )
    selected_now = (after[name]["content_hash"] for name in of_set(run, "sft"))
    assert manifest.fingerprints["select"] == set_fingerprint(selected_now)
    assert manifest.selected == selected
    assert manifest.review == done.report
    assert manifest.rejections["reviewed"] == 1
    assert (
        set(read_members(run, "sft")["id"]) == of_rules
    )  # what labels changed they do not certify
    text = "".join(p.read_text() for p in (run / "export" / "trl").rglob("sft*.jsonl"))
    last_text = {d.id: d.messages[-1].content for d in read_dialogues(run)}
    assert json.dumps(last_text[rejected]) in text
    assert json.dumps(last_text[chosen]) not in text


def test_taken_again_nothing_changes_and_taken_back_the_rules_hold(
    run: Path, tmp_path: Path
) -> None:
    before = (run / "select" / "decisions.jsonl").read_bytes()
    name = of_set(run, "sft")[0]
    file = write(tmp_path / "r.jsonl", answer(run, name, "reject"))
    review_run(run, file)
    once = (run / "select" / "decisions.jsonl").read_bytes()
    review_run(run, file)
    assert (run / "select" / "decisions.jsonl").read_bytes() == once != before
    answers_path(run).unlink()
    other = write(tmp_path / "note.jsonl", answer(run, name, "fine", "note"))
    review_run(run, other)
    assert (run / "select" / "decisions.jsonl").read_bytes() == before


def test_most_people_win_and_a_tie_leaves_it_to_the_rules(run: Path, tmp_path: Path) -> None:
    first, second = of_set(run, "sft")[:2]
    done = review_run(
        run,
        write(
            tmp_path / "r.jsonl",
            *(
                answer(run, first, value, rater=who)
                for who, value in (("a", "accept"), ("b", "reject"))
            ),
            *(
                answer(run, second, value, rater=who)
                for who, value in (("a", "accept"), ("b", "reject"), ("c", "reject"))
            ),
        ),
    )
    assert done.disagreed == (first,)
    assert done.report.disagreed == 1
    assert first in of_set(run, "sft")
    assert second not in of_set(run, "sft")
    assert decisions(run)[second]["reviewed"]["raters"] == ["a", "b", "c"]


def test_a_run_that_is_done_again_keeps_the_review(tmp_path: Path) -> None:
    from curate.run.pipeline import run_recipe
    from tests.live import live_server
    from tests.run.test_pipeline import chat, recipe, write_rows

    data = write_rows(tmp_path / "chats.jsonl", [chat(n) for n in range(6)])
    select = {"where": {"any": "n_turns > 0"}}
    with live_server() as server:
        same = recipe(server, data, select=select)
        run = run_recipe(same, out=tmp_path / "run").folder
        review_run(run, write(tmp_path / "r.jsonl", answer(run, "chat-3", "reject")))
        again = run_recipe(same, out=tmp_path / "run")
    assert decisions(run)["chat-3"]["reasons"] == ["reviewed"]
    assert again.manifest.review is not None
    assert again.manifest.review.rejected == 1


def test_a_pair_that_people_turn_round_is_exported_nowhere_and_counted(
    run: Path, tmp_path: Path
) -> None:
    pair = rows(run / "pairs" / "natural_pairs.jsonl")[0]
    before = read_manifest(run).exports["trl"]
    more = {"pair_id": pair["pair_id"], "better": "rejected"}
    done = review_run(
        run,
        write(tmp_path / "r.jsonl", answer(run, pair["dialogue_id"], "rejected", "better", **more)),
    )
    assert done.report.pairs_turned == 1
    exports = read_manifest(run).exports
    turned = [counts for counts in exports.values() if counts.get("refused_dpo_natural_reviewed")]
    assert len(turned) == 1
    total = sum(counts["dpo_natural"] for name, counts in exports.items() if name.startswith("trl"))
    assert total == read_manifest(run).natural_pairs - 1
    assert before.keys() <= exports["trl"].keys()


def test_a_chosen_text_is_exported_as_it_was_written(run: Path, tmp_path: Path) -> None:
    pair = rows(run / "pairs" / "natural_pairs.jsonl")[0]
    text = "It comes on Tuesday, I have looked it up."
    edit = answer(run, pair["dialogue_id"], text, "chosen_text", pair_id=pair["pair_id"])
    assert review_run(run, write(tmp_path / "r.jsonl", edit)).report.texts == 1
    exported = "".join(p.read_text() for p in (run / "export").rglob("dpo_natural*.jsonl"))
    assert text in exported
    assert pair["chosen"]["content"] not in exported


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id": "chat-1", "content": "', "not an answer of a review, or is cut off"),
        ('{"id": "chat-1"}', "not an answer of a review"),
        ("[]", "not an answer of a review"),
    ],
)
def test_a_file_that_is_cut_off_changes_nothing(
    run: Path, tmp_path: Path, line: str, problem: str
) -> None:
    before = (run / "manifest.json").read_bytes()
    file = write(tmp_path / "r.jsonl", answer(run, "chat-1", "reject"))
    file.write_text(file.read_text() + line)
    with pytest.raises(UsageError, match=problem):
        review_run(run, file)
    assert (run / "manifest.json").read_bytes() == before
    assert not answers_path(run).exists()


@pytest.mark.parametrize(
    ("update", "problem"),
    [
        ({"content": "0" * 32}, "content has changed"),
        ({"content": "0" * 32, "id": "elsewhere"}, "of another run"),
        (
            {"pair_id": "gone", "dimension": "better", "value": "chosen"},
            "pairs that the run does not have",
        ),
        ({"value": "perhaps"}, "no such answer about accept"),
    ],
)
def test_a_review_of_something_else_is_refused(
    run: Path, tmp_path: Path, update: dict[str, Any], problem: str
) -> None:
    good = answer(run, "chat-2", "reject")
    with pytest.raises(UsageError, match=problem):
        review_run(run, write(tmp_path / "r.jsonl", good, good | update))
    assert not answers_path(run).exists()


def test_a_review_file_is_gold(run: Path, tmp_path: Path) -> None:
    file = write(
        tmp_path / "r.jsonl",
        answer(run, "chat-1", "accept"),
        answer(run, "chat-1", 4, "helpfulness", turn=1),
        answer(run, "chat-1", "n/a", "repair_handling"),
    )
    gold = match_gold(read_gold(file), read_dialogues(run))
    assert list(gold.good.values()) == [True]
    assert {item.dimension: label.level for item, label in gold.levels.items()} == {
        "helpfulness": 4,
        "repair_handling": None,
    }
    assert not gold.unused.counts


ANSWERS = st.lists(
    st.builds(
        ReviewAnswer,
        id=st.just("a"),
        content=st.sampled_from(["0" * 32, "1" * 32]),
        dimension=st.just("accept"),
        value=st.sampled_from(["accept", "reject"]),
        rater=st.sampled_from(["ann", "bob", "cy"]),
        time=st.sampled_from([f"2026-11-23T1{n}:00:00Z" for n in range(10)]),
    ),
    max_size=12,
    unique_by=lambda answer: (answer.content, answer.rater, answer.time),
)


@pytest.mark.hypothesis
@given(ANSWERS, st.integers(0, 12))
def test_files_may_come_in_any_order_and_parts(answers: list[ReviewAnswer], cut: int) -> None:
    all_answers = latest_answers(answers)
    assert len({one.question for one in all_answers}) == len(all_answers)
    for other in (
        latest_answers(answers[cut:], answers[:cut]),
        latest_answers(latest_answers(answers[:cut]), answers),
    ):
        assert {one.model_dump_json() for one in other} == {
            one.model_dump_json() for one in all_answers
        }
        assert reviews_of(other).dialogues.keys() == reviews_of(all_answers).dialogues.keys()
    for content in {one.content for one in answers}:
        votes = [one.value for one in all_answers if one.content == content]
        review = reviews_of(all_answers).dialogues.get(content)
        accepts, rejects = votes.count("accept"), votes.count("reject")
        assert (review is None) == (accepts == rejects)
        assert review is None or review[0] == (accepts > rejects)


def test_nothing_of_a_rejected_dialogue_is_trained_on_in_part(tmp_path: Path) -> None:
    run = make_run(tmp_path, export={"trainers": ["trl"], "salvage": {}, "kto_turns": {}})

    def rows_of(name: str) -> int:
        return sum(counts.get(name, 0) for counts in read_manifest(run).exports.values())

    assert rows_of("kto_turns") > 0
    hashes = {dialogue.id: dialogue.content_hash for dialogue in read_dialogues(run)}
    some = {"dimension": "accept", "value": "reject", "rater": "a", "time": "2026"}
    answers = [{"id": name, "content": content} | some for name, content in hashes.items()]
    review_run(run, write(tmp_path / "r.jsonl", *answers))
    assert (rows_of("sft"), rows_of("sft_salvaged"), rows_of("kto_turns")) == (0, 0, 0)


def test_a_tools_answer_about_a_pair_of_no_draw_is_refused(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    answered = {"better": [{"value": "a", "user_id": "u"}]}
    record = {"metadata": {"pair_id": "p"}, "responses": answered, "status": "completed"}
    file.write_text(json.dumps([record]))
    with pytest.raises(UsageError, match="does not name its draw"):
        review_run(run, file)


@pytest.mark.parametrize(("name", "text"), [("r.jsonl", "\n \n"), ("r.json", "[]")])
def test_a_review_without_an_answer_is_refused(
    run: Path, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError):
        review_run(run, tmp_path / name)
    assert not answers_path(run).exists()


@pytest.mark.parametrize("left_out", [None, "select", "export"])
def test_all_that_a_review_changes(run: Path, tmp_path: Path, left_out: str | None) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    if left_out is not None:
        manifest["recipe"][left_out] = False
        (run / "manifest.json").write_text(json.dumps(manifest))
    first, second, third = of_set(run, "sft")[:3]
    rejected = of_set(run, "rejected")[0]
    natural, dropped = (
        rows(run / "pairs" / f"{name}.jsonl")[0] for name in ("natural_pairs", "dropped_pairs")
    )
    pair, other = (
        {"pair_id": one["pair_id"], "dimension": "better", "value": "rejected"}
        for one in (natural, dropped)
    )
    before = {**decisions(run)}
    done = review_run(
        run,
        write(
            tmp_path / "r.jsonl",
            answer(run, first, "reject"),
            answer(run, second, "accept", rater="bob"),
            answer(run, third, "accept"),
            answer(run, third, "reject", rater="bob"),
            answer(run, rejected, "accept", time="2026-11-23T11:00:00.000Z"),
            answer(run, rejected, "fine by me", "note"),
            answer(run, natural["dialogue_id"], **pair),
            answer(run, dropped["dialogue_id"], **other),
        ),
    )
    assert done.manifest == read_manifest(run)
    after = decisions(run)
    changed = {name: row for name, row in after.items() if row != before[name]}
    changes = done.manifest.model_dump(mode="json")
    found = asdict(done) | {
        "report": done.report.model_dump(mode="json"),
        "manifest": {key: value for key, value in changes.items() if value != manifest.get(key)},
        "decisions": changed,
    }
    check(kept(found, tmp_path), REPORTS / f"review_without_{left_out or 'nothing'}.json")


@pytest.mark.parametrize("tool", sorted(EXPORTS))
@pytest.mark.parametrize("of", ["sft", "natural_pairs"])
def test_a_tools_answers_are_kept_as_a_pages_are(
    run: Path, tmp_path: Path, tool: str, of: str
) -> None:
    """Side a is better in each pair, whichever of the two that is; each other dialogue is rejected."""
    project, export = tmp_path / "project", tmp_path / "export.json"
    sample(run, 6, out=project, of=of, tool=tool, seed=3)
    files = {path.name: path.read_bytes() for path in project.iterdir()}
    said = [{"better": "a"}] * 6 if of == "natural_pairs" else [
        {"accept": ("accept", "reject")[n % 2]} for n in range(6)
    ]  # fmt: skip
    answers = EXPORTS[tool](files, [[("7", one)] for one in said])
    export.write_text(json.dumps(answers))
    os.utime(export, (1_800_000_000.25, 1_800_000_000.25))
    done = review_run(run, export)
    found = [done.answers, *(one.model_dump(exclude_none=True) for one in kept_answers(run))]
    check(kept(found, tmp_path), REPORTS / f"review_by_{tool}_of_{of}.json")
    again = review_run(run, export)
    assert (again.kept, again.report) == (done.kept, done.report) == (6, again.manifest.review)
