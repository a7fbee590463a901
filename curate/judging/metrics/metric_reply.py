"""Reading a JSON reply about metrics, metric by metric: what can be used of it is, the rest is asked again.

A score outside its scale is no score; it is never moved to the nearest level. A diagnosis that does not fit its score
leaves the score usable: asked again it may still be wrong, and is then left out and flagged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curate.engines.structured import as_shown
from curate.judging.metrics.catalogue import Metric
from curate.judging.session import BadReplyError
from curate.records.metrics import DiagnosisFlag, is_poor

_SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_LONGEST_CODE = 80


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The flaw behind a poor metric. `flags` name the parts of it that could not be used."""

    failure_code: str | None = None
    turns: tuple[int, ...] = ()
    flags: tuple[DiagnosisFlag, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """The part of a reply about one metric.

    Attributes:
        score: 0-5, or 0 and 1 for fail and pass; None for n/a.
        diagnosis: what of it could be used.
        problem: why it is asked again; None where all of it could be used.
    """

    score: int | None
    diagnosis: Diagnosis = Diagnosis()
    problem: str | None = None


def read_entry(reply: Mapping[str, Any], metric: Metric, turns: Sequence[int]) -> Entry:
    """Return one metric's score and diagnosis.

    Args:
        turns: numbers of the turns that a diagnosis may name.

    Raises:
        BadReplyError: the metric is missing, or its score is none of its scale.
    """
    if metric.name not in reply:
        raise BadReplyError(f"{metric.name} is missing")
    entry = reply[metric.name]
    if not isinstance(entry, Mapping):
        raise BadReplyError(f"{metric.name} is {as_shown(entry)}, not an object")
    score = read_score(entry.get("score"), metric)
    diagnosis, problem = read_diagnosis(entry, metric, score, turns)
    return Entry(score, diagnosis, problem)


def read_score(value: Any, metric: Metric) -> int | None:
    """Return a score as it stands in a reply; None for n/a.

    Raises:
        BadReplyError: it is not one of the metric's scale.
    """
    if metric.na and value == "n/a":
        return None
    if metric.scale == "binary" and value in ("pass", "fail"):
        return int(value == "pass")
    if metric.scale == "scored" and type(value) is int and 0 <= value <= 5:
        return value
    scale = "an integer from 0 to 5" if metric.scale == "scored" else '"pass" or "fail"'
    raise BadReplyError(f"the score of {metric.name} is {as_shown(value)}, not {scale}")


def read_diagnosis(
    entry: Mapping[str, Any], metric: Metric, score: int | None, turns: Sequence[int]
) -> tuple[Diagnosis, str | None]:
    """Return the usable parts of a diagnosis, and why the rest cannot be used.

    A poor metric has a failure code and names turns that exist; any other has no failure code.
    """
    poor = is_poor(score, metric.scale)
    code, entries = entry.get("failure_code"), entry.get("turns", [])
    flags: list[DiagnosisFlag] = []
    problems: list[str] = []
    if code == "null":
        code = None
    if code is not None and not poor:
        flags.append("failure_code_dropped")
        problems.append(f"{metric.name} is not poor and has the failure_code {as_shown(code)}")
        code = None
    elif poor and code is None:
        flags.append("failure_code_missing")
        problems.append(f"{metric.name} is poor and has no failure_code")
    elif code is not None and not _is_code(code):
        flags.append("failure_code_dropped")
        problems.append(f"the failure_code {as_shown(code)} of {metric.name} is not in snake_case")
        code = None
    valid = []
    wrong = entries
    if isinstance(entries, list):
        valid = [turn for turn in entries if type(turn) is int and turn in turns]
        wrong = [turn for turn in entries if turn not in valid]
    if not isinstance(entries, list) or len(valid) < len(entries):
        flags.append("turns_dropped")
        problems.append(
            f"turns of {metric.name} names {as_shown(wrong)}, which is no turn of the dialogue"
        )
    elif poor and not valid:
        flags.append("turns_missing")
        problems.append(f"{metric.name} is poor and names no turn")
    diagnosis = Diagnosis(code, tuple(sorted({*valid})), tuple(flags))
    return diagnosis, "; ".join(problems) or None


def part_of(reply: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a reply's part about a metric; empty where there is none."""
    value = reply.get(name)
    return value if isinstance(value, Mapping) else {}


def _is_code(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= _LONGEST_CODE
        and _SNAKE_CASE.fullmatch(value) is not None
    )
