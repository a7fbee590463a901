"""Train and validation as they are exported, pairs too: nothing of one is in the other."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest

from curate.dialogue import Dialogue, Message
from curate.recipe import parse_recipe
from curate.records import PreferencePair
from curate.run.leaks import find_leaks
from curate.run.pipeline import RunResult, run_recipe
from curate.selection.config import NearConfig
from curate.selection.dedup import view_text
from curate.selection.shingles import tokenise

LONG = "when does your shop open on Monday and on all of the other days of the week"


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def row(name: str, *texts: str, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"id": name, "messages": messages, **fields}


def run(folder: Path, given: list[dict[str, Any]], **split: Any) -> RunResult:
    data = folder / "chats.jsonl"
    data.write_bytes(b"".join(orjson.dumps(item) + b"\n" for item in given))
    recipe = {
        "name": "test",
        "source": {"path": str(data)},
        "judge": False,
        "adherence": False,
        "select": {"where": {}, "active": None, "split": {"validation": 0.4} | split},
        "pair_checks": False,
    }
    return run_recipe(parse_recipe(recipe), out=folder / "run")


def shingles(messages: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    said = Dialogue(id="-", messages=tuple(Message.model_validate(message) for message in messages))
    tokens = tokenise(view_text(said, "dialogue"))
    runs = {tuple(tokens[n : n + 3]) for n in range(len(tokens) - 2)}
    return runs or ({tuple(tokens)} if tokens else set())


def texts_of(folder: Path) -> list[set[tuple[str, ...]]]:
    """Every text of a side of the split that something could be learnt from by heart."""
    found = [shingles(item["messages"]) for item in lines(folder / "sft.jsonl")]
    for pair in lines(folder / "dpo_natural.jsonl"):
        found += [shingles(pair["prompt"] + pair[side]) for side in ("chosen", "rejected")]
        if len(tokenise(" ".join(message["content"] for message in pair["prompt"]))) >= 8:
            found.append(shingles(pair["prompt"]))
    return found


def logs(seed: int) -> list[dict[str, Any]]:
    """Tasks with trials, copies with a few words changed, and conversations cut at any of their turns."""
    draw = random.Random(seed)

    def words(count: int) -> str:
        return " ".join(f"w{draw.randrange(400)}" for _ in range(count))

    rows: list[dict[str, Any]] = []
    for task in range(14):
        opening = [draw.choice(["hi", "hello there", words(12)])]
        for _ in range(draw.randrange(3)):
            opening += [words(6), words(draw.choice((2, 14)))]
        for trial in range(draw.choice((1, 2, 2))):
            texts = [*opening, words(draw.choice((3, 25)))]
            rows.append(row(f"t{task}-{trial}", *texts, group=f"g{task}", reward=float(trial)))
    for copy in range(12):
        texts = [message["content"] for message in draw.choice(rows[:20])["messages"]]
        texts = texts[: 2 * draw.randrange(1, len(texts) // 2 + 1)]
        at = draw.randrange(len(texts))
        changed = texts[at].split()
        changed[draw.randrange(len(changed))] = "changed"
        texts[at] = " ".join(changed)
        for trial in range(2):
            given = {"group": f"c{copy}", "reward": float(trial)}
            rows.append(row(f"c{copy}-{trial}", *texts[:-1], words(12 + 3 * trial), **given))
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_no_text_of_an_export_is_on_both_sides(tmp_path: Path, seed: int) -> None:
    result = run(tmp_path, logs(seed), seed=seed)
    folder = tmp_path / "run/export/trl"
    train, held_out = texts_of(folder), texts_of(folder / "validation")
    assert len(train) > 20
    assert len(held_out) > 10
    for one, other in product(train, held_out):
        # 0.85: of pairs that far above the threshold MinHash misses next to none
        assert len(one & other) < 0.85 * len(one | other)
    side = {d["dialogue_id"]: d["split"] for d in lines(tmp_path / "run/select/decisions.jsonl")}
    passed = lines(tmp_path / "run/pairs/natural_pairs.jsonl")
    dropped = lines(tmp_path / "run/pairs/dropped_pairs.jsonl")
    exported = Counter(side[pair["dialogue_id"]] for pair in passed)
    counts = result.manifest.exports
    assert exported["train"] == counts["trl"]["dpo_natural"]
    assert exported["validation"] == counts["trl/validation"]["dpo_natural"]
    assert result.manifest.natural_pairs == len(passed)
    assert Counter(pair["drop_reason"] for pair in dropped) == result.manifest.natural_drop_reasons


def leaky(number: int, prompt: str) -> list[dict[str, Any]]:
    """A task whose dialogues are far from every other task's, but for the prompt of their pair."""
    tail = [" ".join(f"{word}{number}" for word in "abcdefghijklmnopqrstuvwxyz") for _ in range(3)]
    return [
        row(
            f"t{number}-{trial}",
            "hi",
            "hello",
            prompt,
            f"answer {trial} of {number}",
            *tail[:2],
            group=f"g{number}",
            reward=float(trial),
        )
        for trial in range(2)
    ]


def test_a_held_out_pair_with_nearly_the_prompt_of_a_training_pair_is_refused(
    tmp_path: Path,
) -> None:
    given = [item for n in range(8) for item in leaky(n, f"{LONG}{' please' * (n % 2)}")]
    result = run(tmp_path, given, by=["group", "near_duplicates"])
    manifest = result.manifest
    assert manifest.exports["trl/validation"]["sft"] > 0
    assert manifest.natural_drop_reasons["split_leak"] == manifest.drop_reasons["split_leak"] == 3
    assert manifest.natural_pairs + sum(manifest.natural_drop_reasons.values()) == 8
    assert manifest.exports["trl/validation"]["dpo_natural"] == 0
    assert manifest.exports["trl"]["dpo_natural"] == 5
    passed = {pair["pair_id"] for pair in lines(tmp_path / "run/pairs/natural_pairs.jsonl")}
    for pair in lines(tmp_path / "run/pairs/dropped_pairs.jsonl"):
        named = pair["detail"].rpartition("training pair ")[2].split()[0]
        assert named in passed
    # where the split is not asked to keep near-duplicates together, pairs are not compared either
    loose = run(tmp_path, given, by=["group"]).manifest
    assert loose.natural_drop_reasons == {}
    assert loose.exports["trl/validation"]["dpo_natural"] == 3


def pair(name: str, prompt: str, chosen: str, rejected: str) -> PreferencePair:
    return PreferencePair(
        pair_id=name,
        dialogue_id=name,
        content_hash="",
        source="resample",
        basis="judge",
        prompt=(Message(role="user", content=prompt),),
        chosen=Message(role="assistant", content=chosen),
        rejected=Message(role="assistant", content=rejected),
    )


def test_a_side_that_a_policy_wrote_twice_is_a_leak() -> None:
    same = " ".join(f"word{n}" for n in range(20))
    pairs = [
        pair("train", "hi", same, "go away"),
        pair("same side", "hi", same, "what do you want"),
        pair("other", "hi", "hello", "no"),
    ]
    found = find_leaks(lambda: pairs, lambda p: p.pair_id != "train", NearConfig())
    assert found == {"same side": "train"}
    assert find_leaks(lambda: pairs, lambda _: True, NearConfig()) == {}
    assert find_leaks(list, lambda _: True, NearConfig()) == {}
