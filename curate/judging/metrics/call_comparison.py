"""Expected against actual tool calls, compared exactly: no judge has to count them.

Each expected call is matched with a made call of the same name, one to one, so that as many arguments as possible
agree, and of equal matches the one nearest in order. What is left over on either side is missing or unexpected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from curate.dialogue import Dialogue, ToolCall
from curate.records.metrics import CallComparison, CallMatch


def compare_calls(dialogue: Dialogue) -> CallComparison | None:
    """Compare the expected calls of a dialogue with those that were made; None where none are expected."""
    expected = dialogue.expected_tools
    if not expected:
        return None
    made = [
        (turn.number, call)
        for turn in dialogue.turns
        for message in turn.messages
        for call in message.tool_calls
    ]
    pairs = _matched(expected, [call for _, call in made])
    matches = tuple(
        CallMatch(
            name=expected[at].name,
            expected=at + 1,
            made=place + 1,
            turn=made[place][0],
            **_differences(expected[at].arguments, made[place][1].arguments),
        )
        for at, place in pairs
    )
    matched, used = {at for at, _ in pairs}, {place for _, place in pairs}
    places = [place for _, place in pairs]
    return CallComparison(
        expected=len(expected),
        made=len(made),
        matches=matches,
        missing=tuple(call.name for at, call in enumerate(expected) if at not in matched),
        unexpected=tuple(call.name for place, (_, call) in enumerate(made) if place not in used),
        in_order=places == sorted(places),
    )


def _matched(expected: Sequence[ToolCall], made: Sequence[ToolCall]) -> list[tuple[int, int]]:
    """Pair calls that belong together, as places in the two lists, in the order of the expected ones."""
    if not made:
        return []
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    gain = np.zeros((len(expected), len(made)))
    for at, call in enumerate(expected):
        for place, other in enumerate(made):
            if call.name == other.name:
                nearness = 1 / (1 + abs(at - place))
                gain[at, place] = 1 + _agreement(call.arguments, other.arguments) + nearness * 1e-6
    rows, columns = linear_sum_assignment(gain, maximize=True)
    return [
        (int(at), int(place))
        for at, place in zip(rows, columns, strict=True)
        if gain[at, place] > 0
    ]


def _agreement(expected: Mapping[str, Any] | str, made: Mapping[str, Any] | str) -> float:
    """Return the share of the arguments of either that agree, below 1 unless all do."""
    wrong = sum(len(names) for names in _differences(expected, made).values())
    return 1 / (1 + wrong)


def _differences(
    expected: Mapping[str, Any] | str, made: Mapping[str, Any] | str
) -> dict[str, tuple[str, ...]]:
    if isinstance(expected, str) or isinstance(made, str):
        # Arguments that are no object are compared as one text.
        return {} if expected == made else {"different": ("arguments",)}
    return {
        "different": tuple(
            name
            for name, value in expected.items()
            if name in made and not _same(value, made[name])
        ),
        "missing": tuple(name for name in expected if name not in made),
        "extra": tuple(name for name in made if name not in expected),
    }


def _same(one: Any, other: Any) -> bool:
    """True when two values are equal as JSON: 1 and 1.0 are, 1 and true are not."""
    return bool(one == other) and _kinds(one) == _kinds(other)


def _kinds(value: Any) -> bytes:
    return orjson.dumps(_without_fractions(value), option=orjson.OPT_SORT_KEYS)


def _without_fractions(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_fractions(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_fractions(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def describe_comparison(comparison: CallComparison) -> str:
    """Return the comparison as the lines that a judge is shown."""
    matches = comparison.matches
    exact = sum(match.is_exact for match in matches)
    order = (
        ""
        if len(matches) < 2
        else f", {'' if comparison.in_order else 'not '}in the expected order"
    )
    lines = [
        f"{comparison.expected} calls expected, {comparison.made} made; {len(matches)} of the expected were made "
        f"({exact} with exactly the expected arguments){order}."
    ]
    lines += [f"missing: {', '.join(comparison.missing)}"] if comparison.missing else []
    lines += [f"not among the expected: {', '.join(comparison.unexpected)}"] * bool(
        comparison.unexpected
    )
    for match in matches:
        clauses = [
            f"{how}: {', '.join(names)}"
            for how, names in (
                ("other value of", match.different),
                ("left out", match.missing),
                ("added", match.extra),
            )
            if names
        ]
        arguments = "arguments as expected" if match.is_exact else "; ".join(clauses)
        lines.append(f"{match.name} in turn {match.turn}: {arguments}")
    return "\n".join(lines)
