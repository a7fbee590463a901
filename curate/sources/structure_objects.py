"""Items of a conversation that are objects: which field names the speaker, and which holds the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from curate.sources.chats import REPLY_KEYS, USER_KEYS
from curate.sources.messages import CONTENT_KEYS, READ_KEYS, ROLE_KEYS, ROLES, speaker_name
from curate.sources.parties import ASSISTANTS, MOST_NAMES, USERS, guess_roles
from curate.sources.selectors import select, selector_of

SPEAKER_KEYS = frozenset(
    [
        "role",
        "from",
        "speaker",
        "sender",
        "author",
        "agent",
        "who",
        "participant",
        "source",
        "side",
        "party",
        "actor",
        "persona",
    ]
)
TEXT_KEYS = frozenset(
    [
        "text",
        "content",
        "value",
        "utterance",
        "message",
        "body",
        "says",
        "said",
        "transcript",
        "line",
        "msg",
        "data",
    ]
)
MAY_MATTER = re.compile(r"call|api|tool|func|action|param|result|attach|image|media|part", re.I)
"""Keys of items under which calls or other parts of what was said may stand."""
LIST_KEYS = re.compile(r"dialog|conv|turn|utter|messag|chat|log|history|context|event|line", re.I)
QUESTIONS = re.compile(r"(user|query|question|human|input|prompt)(s|es)?", re.I)
ANSWERS = re.compile(
    r"(bot|chatbot|assistant|system|agent|response|answer|reply|output|model)(s|es)?", re.I
)

Path = tuple[str, ...]
Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProposedMapping:
    """A mapping that may read the rows.

    Attributes:
        mapping: as a recipe has it.
        found: what was seen, in words.
        doubts: why it is not certain; none where it is.
    """

    mapping: Raw
    found: str
    doubts: tuple[str, ...] = ()


def of_objects(each: str | Raw, lists: list[list[Raw]]) -> Iterator[ProposedMapping]:
    """The way to read lists of objects as conversations, if there is one; `each` is where a mapping finds them."""
    lists = [items for items in lists if len(items) >= 2]
    if not lists:
        return
    items = [item for value in lists for item in value]
    paths = _scalar_paths(items)
    texts = _text_paths(paths, items)
    speakers = [path for path in paths if is_speaker(path, lists)]
    asked = next((path for path in texts if is_named(path, USER_KEYS, QUESTIONS)), None)
    replied = next(
        (path for path in texts if is_named(path, REPLY_KEYS, ANSWERS) and path != asked), None
    )
    if asked and replied:  # then a label that changes from item to item is no speaker
        speakers = [
            path
            for path in speakers
            if path not in (asked, replied) and _speaker_score(path, lists) >= 1
        ]
    if speakers and texts:
        speaker = max(speakers, key=lambda path: _speaker_score(path, lists))
        texts = [path for path in texts if path != speaker]
        if texts:
            yield _spoken(each, lists, speaker, texts)
            return
    if asked and replied:
        messages = [_message(asked, "user", items), _message(replied, "assistant", items)]
        if _opens_without(replied, lists) and not _opens_without(asked, lists):
            messages.reverse()  # an item is an answer and what the user says to it
        words = f"questions under '{selector_of(asked)}' and answers under '{selector_of(replied)}'"
        yield ProposedMapping(
            {"each": each, "messages": messages}, words, ("roles are guessed from the keys",)
        )
    elif texts and LIST_KEYS.search(str(each)) and _words(texts[0], items) >= 3:
        message = {"role_in_turn": ["user", "assistant"], "text": selector_of(texts[0])}
        words = f"texts under '{selector_of(texts[0])}' and nobody named who speaks"
        yield ProposedMapping(
            {"each": each, "messages": [message]}, words, ("roles are taken in turn",)
        )


def _text_paths(paths: list[Path], items: list[Raw]) -> list[Path]:
    """Those of the paths at which a text stands, the likeliest first."""
    texts = [path for path in paths if is_text(path, items)]
    return sorted(texts, key=lambda path: -_text_score(path, items))


def text_path(items: list[Raw]) -> Path | None:
    """Find where the text of objects stands, most likely; None where none of them has one."""
    return next(iter(_text_paths(_scalar_paths(items), items)), None)


def _message(path: Path, role: str, items: list[Raw]) -> Raw:
    message: Raw = {"role": role, "text": selector_of(path)}
    lacking = any(not isinstance(at_path(item, path), str) for item in items)
    return message | ({"optional": True} if lacking else {})


def _scalar_paths(items: list[Raw]) -> list[Path]:
    """Paths of one key or two, at which half of the items have a text, a number or a truth value."""
    counts: Counter[Path] = Counter()
    for item in items[:2000]:
        for key, value in item.items():
            if isinstance(value, dict):
                counts.update(
                    (key, inner) for inner, at in value.items() if isinstance(at, str | int)
                )
            elif isinstance(value, str | int):
                counts[key,] += 1
    least = 0.4 * min(len(items), 2000)
    return [
        path
        for path, number in counts.items()
        if number >= least and not any('"' in key for key in path)  # no selector says such a key
    ]


def at_path(item: Any, path: Path) -> Any:
    """Return the value at a path of keys, or None."""
    for key in path:
        item = item.get(key) if isinstance(item, dict) else None
    return item


def is_text(path: Path, items: list[Raw]) -> bool:
    """True where the values differ from item to item and read like text."""
    values = [
        value for item in items if isinstance(value := at_path(item, path), str) and value.strip()
    ]
    distinct = len(set(values)) / len(values) if values else 0
    return (
        bool(values)
        and (distinct > 0.3 or path[-1].lower() in TEXT_KEYS)
        and reads_like_text(values)
    )


def reads_like_text(values: Sequence[str]) -> bool:
    """More than one word, or one of a script that writes none apart, in at least a third of the texts."""
    long = sum(" " in value.strip() or len(value) > 12 for value in values)
    identifiers = sum(
        bool(re.fullmatch(r"(?:[^\W\d]|[:.+-])*+\d[\w:.+-]*+|https?://\S+", value))
        for value in values
    )
    return long * 3 >= len(values) and identifiers * 2 < len(values)


def _words(path: Path, items: list[Raw]) -> float:
    values = [value for item in items if isinstance(value := at_path(item, path), str)]
    return fmean(max(len(value.split()), len(value) / 6) for value in values) if values else 0.0


def _text_score(path: Path, items: list[Raw]) -> float:
    covered = sum(isinstance(at_path(item, path), str) for item in items) / len(items)
    named = path[-1].lower() in TEXT_KEYS
    return 2 * named + 2 * covered + min(_words(path, items), 20) / 20 - 0.5 * (len(path) - 1)


def is_named(path: Path, keys: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """True where a path's last key is one of `keys`, or a word in any of its keys fits the pattern."""
    parts = [part for key in path for part in re.split(r"[_\s-]", key.lower())]
    return path[-1].lower() in keys or any(pattern.fullmatch(part) for part in parts)


def _opens_without(path: Path, lists: list[list[Raw]]) -> bool:
    """True where the first items of most lists have nothing at a path."""
    return sum(not at_path(items[0], path) for items in lists) * 2 > len(lists)


def is_speaker(path: Path, lists: list[list[Raw]]) -> bool:
    """Few distinct values in a dialogue, which alternate, in nearly every item."""
    met = alternating = total = changes = 0
    for items in lists:
        names = [speaker_name(at_path(item, path)) for item in items]
        said = [name for name in names if name is not None]
        met += len(said) * 10 >= len(names) * 9
        alternating += 2 <= len(set(said)) <= max(2, min(6, len(said) // 2 + 1))
        changes += sum(one != other for one, other in pairwise(said))
        total += max(0, len(said) - 1)
    shown = [
        name for items in lists for item in items if (name := speaker_name(at_path(item, path)))
    ]
    short = bool(shown) and fmean(map(len, shown)) <= 40
    enough = 0.8 * len(lists)
    return short and met >= enough and alternating >= enough and changes >= 0.3 * total


def _speaker_score(path: Path, lists: list[list[Raw]]) -> float:
    names = {str(speaker_name(at_path(item, path))).lower() for items in lists for item in items}
    known = sum(name in ROLES or name in USERS or name in ASSISTANTS for name in names) / len(names)
    parts = set(re.split(r"[_\s-]", path[-1].lower()))
    return 3 * known + 2 * bool(parts & SPEAKER_KEYS) - 0.2 * (len(path) - 1) - 0.1 * len(names)


def _spoken(
    each: str | Raw, lists: list[list[Raw]], speaker: Path, texts: list[Path]
) -> ProposedMapping:
    """A candidate of items with a speaker and a text."""
    items = [item for value in lists for item in value]
    text = texts[0]
    where = _where(text, items)
    kept = [[item for item in value if _meets(where, item)] for value in lists]
    roles, doubts = guess_roles(
        [[speaker_name(at_path(item, speaker)) for item in value] for value in kept]
    )
    used = {speaker[0], text[0]}
    others = {
        key
        for item in items
        for key, value in item.items()
        if key not in used and isinstance(value, list | dict) and value
    }
    is_vendors = (
        speaker[-1] in ROLE_KEYS
        and text[-1] in CONTENT_KEYS
        and not where
        and isinstance(each, str)
    )
    if is_vendors and not doubts and not others - READ_KEYS:
        mapping: Raw = {"each": each}
    else:
        message: Raw = {"role_from": selector_of(speaker), "text": selector_of(text)}
        if any(not isinstance(at_path(item, text), str) for value in kept for item in value):
            message["optional"] = True
            doubts.append(f"some items have no text under '{selector_of(text)}'")
        mapping = (
            {"each": each} | ({"where": where} if where else {}) | {"messages": [message]} | roles
        )
        others = {key for key in others if MAY_MATTER.search(key)}
        if others:
            doubts.append(f"items also hold {', '.join(sorted(others)[:4])}, kept in the metadata")
    if where:
        doubts.append(f"items without '{selector_of(text)}' are left out by `where`")
    close = [path for path in texts[1:] if _words(path, items) >= 0.5 * _words(text, items)]
    if close and text[-1].lower() not in TEXT_KEYS:
        doubts.append(f"the text may also be '{selector_of(close[0])}'")
    parts = set(re.split(r"[_\s-]", speaker[-1].lower()))
    if not parts & SPEAKER_KEYS and (doubts or roles):
        doubts.append(f"'{selector_of(speaker)}' may name no speaker")
    names = f"speakers under '{selector_of(speaker)}', texts under '{selector_of(text)}'"
    return ProposedMapping(mapping, names, tuple(doubts))


def _where(text: Path, items: list[Raw]) -> Raw:
    """A condition that tells items with a text from those without, where a field of few values does."""
    lacking = [item for item in items if not isinstance(at_path(item, text), str)]
    if not lacking:
        return {}
    for path in _scalar_paths(items):
        if any(isinstance(at_path(item, path), list | dict) for item in items):
            continue
        said: Counter[Any] = Counter()
        texts: Counter[Any] = Counter()
        for item in items:
            value = at_path(item, path)
            said[value] += 1
            texts[value] += isinstance(at_path(item, text), str)
        if path == text or len(said) > MOST_NAMES:
            continue
        kept = [value for value in said if texts[value] == said[value]]
        if kept and all(texts[value] * 10 <= said[value] for value in said if value not in kept):
            return {selector_of(path): kept[0] if len(kept) == 1 else kept}
    return {}


def _meets(where: Raw, item: Raw) -> bool:
    return all(
        select(item, selector) in (wanted if isinstance(wanted, list) else [wanted])
        for selector, wanted in where.items()
    )
