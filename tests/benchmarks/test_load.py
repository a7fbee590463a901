"""The scripts `load.py` and `kill_and_resume.py` of `benchmarks/`, on little: all is held, and they see when it is not."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import ModuleType

REPLIES, WIDTH = 10_000, 32
MOST_GROWTH = 3_000.0
"""Bytes a reply. A kept reply takes twice as much, and on so few the memory still settles."""


def test_nothing_grows_with_the_replies(load: Callable[[str], ModuleType], tmp_path: Path) -> None:
    script = load("load")
    measured = script.measure(REPLIES, WIDTH, 0.02, tmp_path)
    first = measured["first"]
    assert first["answers"] == REPLIES
    assert first["faults"] > REPLIES / 100
    assert len(first["samples"]) == script.SAMPLES
    # How fast it was is for the script to say, on a machine left alone.
    slow = "the last tenth took half as much CPU again as the first"
    assert set(script.problems(measured, MOST_GROWTH)) <= {slow}

    worse = deepcopy(measured)
    worse["first"]["again"] = 1
    worse["again"]["requests"] += 3
    for number, sample in enumerate(worse["first"]["samples"]):
        sample["rss"] += number * 5_000 * REPLIES / script.SAMPLES
    worse["first"]["samples"][-1] |= {"missing": 2, "descriptors": WIDTH + 33}
    said = " ".join(script.problems(worse, MOST_GROWTH))
    for words in ("once each", "without their log-prob", "asked for again", "grew by", "descript"):
        assert words in said


def test_a_run_that_is_killed_again_and_again_is_the_undisturbed_one(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    script = load("kill_and_resume")
    measured = script.measure(60, 3, tmp_path)
    assert script.problems(measured) == []
    assert measured["calls"] > 60
    assert measured["files"] > 10
    assert any(one["killed"] for one in measured["rounds"])

    worse = deepcopy(measured)
    worse["other_calls"] = 1
    worse["rounds"][0]["asked"] += script.IN_FLIGHT + 1 + worse["rounds"][0]["kept"]
    worse["different"] = ["sets/selected.parquet"]
    worse["counts"][1]["selected"] += 1
    said = " ".join(script.problems(worse))
    for words in ("did not make", "made again", "a kill cost", "files differ", "counts differ"):
        assert words in said
