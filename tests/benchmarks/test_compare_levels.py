"""The report of `benchmarks/compare_levels.py` on readings whose right answers are known."""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.judging.test_calibrated_levels import judged

DIALOGUES = 50
TURNS = 6


@pytest.fixture(scope="module")
def script(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("compare_levels")


@pytest.fixture(autouse=True)
def few_draws(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "RESAMPLES", 20)
    monkeypatch.setattr(script, "SEEDS", 3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ConTurE's shape; a dialogue's raters and turns all say the same of it, 0 to 2."""
    path = tmp_path_factory.mktemp("conture") / "data.json"
    draw = random.Random(1)
    rows = []
    for number in range(DIALOGUES):
        quality = number % 3
        turns = [
            {
                "user": f"User: {number} {turn}",
                "chatbot": "Chatbot: Yes.",
                "overall impression": draw.randrange(3) if quality else 0,
            }
            for turn in range(TURNS)
        ]
        rating = {"coherent": 1 + quality, "human (overall)": 1 + 2 * quality}
        rows.append({"dialog_id": number, "turns": turns, "dialog_ratings": [rating] * 3})
    path.write_text(json.dumps(rows))
    return path


def write_readings(script: ModuleType, data: Path, out: Path, noise: float, few: int = 0) -> Path:
    """A judge that says 4 of everything, and whose expectations follow people's labels up to noise."""
    draw = random.Random(2)
    lines = []
    for row, item in zip(json.loads(data.read_text()), script.load_gold(data), strict=True):
        means = [
            3.4 + 0.2 * turn["overall impression"] + draw.gauss(0, noise) for turn in row["turns"]
        ]
        whole = 3.4 + 0.2 * row["dialog_ratings"][0]["coherent"] + draw.gauss(0, noise)
        record = judged(*((m, m, 4.9) for m in means), coherence=whole, task=whole).model_copy(
            update={"content_hash": item.dialogue.content_hash, "dialogue_id": item.dialogue.id}
        )
        lines.append({"dialogue": item.dialogue.id, "judgment": record.model_dump(mode="json")})
    out.write_text("".join(json.dumps(line) + "\n" for line in lines[few:]))
    return out


def tables(said: str) -> list[dict[str, dict[str, str]]]:
    """Every Markdown table, its rows by their first cell and the label count, if there is one."""
    found = []
    for block in said.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        if cells:
            head, _, *rows = cells
            found.append(
                {
                    f"{row[0]} {row[1]}" if head[1] == "labels" else row[0]: dict(zip(head, row, strict=True))
                    for row in rows
                }
            )  # fmt: skip
    return found


def test_levels_and_p_good_find_what_the_likeliest_digit_hides(
    script: ModuleType, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readings = write_readings(script, data, tmp_path / "a.jsonl", noise=0.0)
    script.report(Namespace(readings=[readings], beside=[], data=data))
    said = capsys.readouterr().out
    assert said.startswith(f"{DIALOGUES} dialogues, 0 more")
    levels, good = tables(said)
    assert set(levels) == {"coherence", "task_completion", "helpfulness", "context_use"}
    turns = levels["helpfulness"]
    assert turns["labels there are"] == str(DIALOGUES * TURNS)
    assert turns["alpha of the raters"] == "-"
    assert turns["likeliest digit"] == "0.00 (0.00 to 0.00)"
    for column in ("expectation, Spearman", "25 labels", "100 labels"):
        assert turns[column] == "1.00 (1.00 to 1.00)", column
    assert turns["gain of 25 labels over the digit"] == "1.00 (1.00 to 1.00)"
    whole = levels["coherence"]
    assert whole["alpha of the raters"] == "1.00"
    assert whole["25 labels"] == "1.00 (1.00 to 1.00)"
    assert whole["100 labels"] == "-"  # there are not so many dialogues
    few, many = (
        good[f"overall rating, mean of the raters, 3.00 or more (66%) {labels}"]
        for labels in (25, 100)
    )
    assert few["held out"] == "25"
    assert few["p_good, AUC"] == "1.00 (1.00 to 1.00)"
    assert few["verdict, AUC"] == "0.50 (0.50 to 0.50)"
    brier, plain = (float(few[f"{name}, Brier"].split()[0]) for name in ("p_good", "share of good labels"))  # fmt: skip
    assert brier < plain / 2
    assert many["p_good, AUC"] == "-"


def test_labels_and_tests_never_share_a_dialogue(
    script: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = script.read([write_readings(script, data, tmp_path / "a.jsonl", 0.3)], data)
    given = [held.dialogues[key].items["helpfulness"] for key in sorted(held.dialogues)]
    known, rest = script._draw_turns(given, given, 25, seed=3)
    assert len(known) == 25
    assert len({item.group for item in known}) == 25 / script.TURNS_LABELLED
    assert not {item.group for item in known} & {item.group for items in rest for item in items}
    assert script._draw_turns(given, given, DIALOGUES * TURNS, seed=3) is None


def test_two_readings_of_the_same_dialogues_are_paired(
    script: ModuleType, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sharp = write_readings(script, data, tmp_path / "a.jsonl", noise=0.0)
    dull = write_readings(script, data, tmp_path / "b.jsonl", noise=5.0, few=8)
    script.report(Namespace(readings=[sharp], beside=[sharp], data=data))
    same = tables(capsys.readouterr().out)[-1]
    assert same["coherence: 25 labels"]["difference"] == "0.00 (0.00 to 0.00)"
    script.report(Namespace(readings=[sharp], beside=[dull], data=data))
    said = capsys.readouterr().out
    assert said.startswith(f"{DIALOGUES - 8} dialogues")
    row = tables(said)[-1]["helpfulness: 100 labels"]
    assert row["readings"] == "1.00 (1.00 to 1.00)"
    low = float(row["difference"].split("(")[1].split()[0])
    assert low > 0.5


def test_readings_of_other_data_and_too_few_are_refused(
    script: ModuleType, data: Path, tmp_path: Path
) -> None:
    few = write_readings(script, data, tmp_path / "a.jsonl", 0.3, few=DIALOGUES - 9)
    with pytest.raises(SystemExit, match="9 scored dialogues are too few"):
        script.report(Namespace(readings=[few], beside=[], data=data))
    other = tmp_path / "data.json"
    other.write_text(json.dumps(json.loads(data.read_text())[:3]))
    with pytest.raises(SystemExit, match="9 readings are of dialogues that"):
        script.read([few], other)


def test_a_worked_example_is_short_and_says_what_people_say(script: ModuleType, data: Path) -> None:
    people = script.load_people(data)
    shown = script.worked_example(people.dialogues[3], people)
    assert shown.startswith("[1.user] 3 0\n[1.assistant] Yes.\n[2.user] 3 1\n")
    assert "[4." not in shown
    assert "turn 4" not in shown
    assert "- helpfulness of turn 1: 1\n" in shown
    assert shown.endswith(
        "- coherence of the conversation: 1\n- task_completion of the conversation: 1"
    )


def test_llm_rubrics_own_distributions_are_read(script: ModuleType, tmp_path: Path) -> None:
    data = tmp_path / "real_data.json"
    data.write_text("[]")
    (tmp_path / script.RATINGS).write_text("text_id\tQ0\tQ1\nx\t4\t0\n")
    masses = "\t".join(f"answer{n}_prob" for n in (1, 2, 3, 4))
    path = tmp_path / "judge.tsv"
    path.write_text(
        f"text_id\tcriterion\t{masses}\nx\tQ0\t0\t0\t0.5\t0.5\nx\tQ1\t1\t0\t0\t0\ny\tQ0\t1\t0\t0\t0\n"
    )
    found = script.read([path], data).dialogues
    assert set(found) == {"x"}
    [overall], [absent] = found["x"].items["Q0"], found["x"].items["Q1"]
    assert (overall.value, overall.digit, overall.level) == (pytest.approx(13 / 3), 4, 5)
    assert (absent.digit, absent.level) == (1, None)
    assert found["x"].ratings == {"overall satisfaction": 4.0}
