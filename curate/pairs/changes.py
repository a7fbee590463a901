"""The differences between two sides, in facts: tools, arguments, details, negations, sentences. Pure.

It is computed and not asked for, so that a reader of a pair can see what it teaches without trusting a
model's account of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, get_args

from curate.dialogue import Message, ToolCall
from curate.pairs.prefix import parsed_arguments
from curate.pairs.specifics import SpecificKind, specifics
from curate.pairs.substance import is_courtesy, substance
from curate.records import Change, ChangeKind

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_NEGATIONS = frozenset(
    {"not", "no", "never", "none", "nothing", "nobody", "neither", "nor", "without", "nicht", "kein",
     "keine", "nie", "ne", "pas", "jamais", "nunca", "sin", "不", "没"}
)  # fmt: skip
_CLIP = 200


def describe_changes(rejected: Message, chosen: Message) -> tuple[Change, ...]:
    """List what was taken away and added on the way from the rejected to the chosen side.

    Calls are compared place by place, arguments by their path; details (numbers, amounts, dates, names, ids,
    links) and negations as sets; sentences in order and by their substance, so that one that is only put
    more politely is no change. Texts are clipped to 200 characters.
    """
    changes = [*_calls(rejected.tool_calls, chosen.tool_calls)]
    before, after = specifics(rejected.content), specifics(chosen.content)
    for kind in get_args(SpecificKind):
        old = [item.text for item in before if item.kind == kind]
        new = [item.text for item in after if item.kind == kind]
        changes.append(_change(kind, _without(old, new), _without(new, old)))
    words = [Counter(substance(side.content)) for side in (rejected, chosen)]
    lost_words, new_words = words[0] - words[1], words[1] - words[0]
    changes.append(
        _change(
            "negation",
            [word for word in lost_words if word in _NEGATIONS],
            [word for word in new_words if word in _NEGATIONS],
        )
    )
    changes.append(_change("sentence", *_sentences(rejected.content, chosen.content)))
    return tuple(change for change in changes if change.removed or change.added)


def _change(kind: ChangeKind, removed: Sequence[str], added: Sequence[str]) -> Change:
    return Change(kind=kind, removed=tuple(map(_clip, removed)), added=tuple(map(_clip, added)))


def _clip(text: str) -> str:
    return text if len(text) <= _CLIP else text[: _CLIP - 1] + "…"


def _without(texts: Sequence[str], other: Sequence[str]) -> list[str]:
    return [text for text in texts if text not in other]


def _sentences(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return sentences that only the one text has, and that only the other has, in order."""
    old, new = (
        [part.strip() for part in _SENTENCE_END.split(text) if not is_courtesy(part)]
        for text in (before, after)
    )
    keys = [[substance(sentence) for sentence in side] for side in (old, new)]
    removed: list[str] = []
    added: list[str] = []
    matcher = SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    for step, first, last, start, stop in matcher.get_opcodes():
        if step != "equal":
            removed.extend(old[first:last])
            added.extend(new[start:stop])
    return removed, added


def _calls(before: Sequence[ToolCall], after: Sequence[ToolCall]) -> Iterator[Change]:
    for place in range(max(len(before), len(after))):
        old = before[place] if place < len(before) else None
        new = after[place] if place < len(after) else None
        if old is None or new is None or old.name != new.name:
            yield _change("tool", [old.name] if old else [], [new.name] if new else [])
            continue
        was, now = (
            dict(_leaves(call.name, parsed_arguments(call.arguments))) for call in (old, new)
        )
        yield _change(
            "argument",
            [f"{path}: {value}" for path, value in was.items() if now.get(path) != value],
            [f"{path}: {value}" for path, value in now.items() if was.get(path) != value],
        )


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield every value in some arguments, as JSON, by its path."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from _leaves(f"{path}.{place}", inner)
    else:
        yield path, json.dumps(value, ensure_ascii=False)
