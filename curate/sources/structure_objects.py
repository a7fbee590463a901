"""Items of a conversation that are objects: which field names the speaker, and which holds the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from statistics import fmean
from typing import Any

from curate.dialogue import Role
from curate.sources.chats import REPLY_KEYS, USER_KEYS
from curate.sources.messages import CONTENT_KEYS, READ_KEYS, ROLE_KEYS, speaker_name
from curate.sources.parties import MOST_NAMES, Raw, guess_roles, known_role
from curate.sources.selectors import selector_of

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
_PARTIES: dict[Role, tuple[Sequence[str], re.Pattern[str]]] = {
    "user": (
        USER_KEYS,
        re.compile(r"(user|query|question|human|input|prompt)(s|es)?", re.I),
    ),
    "assistant": (
        REPLY_KEYS,
        re.compile(
            r"(bot|chatbot|assistant|system|agent|response|answer|reply|output|model)(s|es)?", re.I
        ),
    ),
}
"""Keys of what a party says: whole ones, and words in others."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProposedMapping:
    """A mapping that may read the rows.

    Attributes:
        mapping: as a recipe has it.
        description: the structure, in words.
        doubts: why it is not certain; none where it is.
    """

    mapping: Raw
    description: str
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemField:
    """One field of the items of conversations.

    Attributes:
        path: keys that lead to it within an item.
        columns: its value in each item, one list per conversation; None where an item has none.
    """

    path: Path
    columns: list[list[Any]]

    @classmethod
    def at(cls, path: Path, lists: list[list[Raw]]) -> ItemField:
        """Return the field at a path of the items in these lists."""
        return cls(path, [[_at_path(item, path) for item in items] for items in lists])

    @property
    def selector(self) -> str:
        """Return the field's selector within an item."""
        return selector_of(self.path)

    @property
    def values(self) -> list[Any]:
        """Return the values of all items."""
        return list(chain.from_iterable(self.columns))

    @property
    def is_partial(self) -> bool:
        """Return whether some items have no text here."""
        return not all(isinstance(value, str) for value in self.values)

    @property
    def is_text(self) -> bool:
        """Return whether the values differ from item to item and read like text."""
        texts = [value for value in self.values if isinstance(value, str) and value.strip()]
        distinct = len(set(texts)) / (len(texts) or 1)
        is_varied = distinct > 0.3 or self.path[-1].lower() in TEXT_KEYS
        return bool(texts) and is_varied and reads_like_text(texts)

    @property
    def words(self) -> float:
        """Return the mean number of words of the texts; one without spaces counts six characters as one."""
        return mean_words([value for value in self.values if isinstance(value, str)])

    @property
    def text_score(self) -> float:
        """Return how likely this is the text of the items, to be compared with other fields of them."""
        values = self.values
        covered = sum(isinstance(value, str) for value in values) / len(values)
        is_named = self.path[-1].lower() in TEXT_KEYS
        depth = len(self.path) - 1
        return 2 * is_named + 2 * covered + min(self.words, 20) / 20 - 0.5 * depth

    @property
    def names(self) -> list[list[str | None]]:
        """Return the values as speakers' names, by conversation."""
        return [[speaker_name(value) for value in column] for column in self.columns]

    @property
    def is_speaker(self) -> bool:
        """Return whether nearly every item has a short value, and conversations have a few that alternate."""
        covered = alternating = total = changes = 0
        lengths: list[int] = []
        for column in self.names:
            names = [name for name in column if name is not None]
            covered += len(names) * 10 >= len(column) * 9
            alternating += 2 <= len(set(names)) <= max(2, min(6, len(names) // 2 + 1))
            changes += sum(one != other for one, other in pairwise(names))
            total += max(0, len(names) - 1)
            lengths += map(len, names)
        enough = 0.8 * len(self.columns)
        is_short = bool(lengths) and fmean(lengths) <= 40
        return is_short and min(covered, alternating) >= enough and changes >= 0.3 * total

    @property
    def has_speakers_key(self) -> bool:
        """Return whether a word of the field's key names speakers."""
        return not SPEAKER_KEYS.isdisjoint(re.split(r"[_\s-]", self.path[-1].lower()))

    @property
    def speaker_score(self) -> float:
        """Return how likely this names the speakers, to be compared with other fields of the same items."""
        names = {str(name).lower() for name in chain.from_iterable(self.names)}
        n_known = sum(known_role(name) is not None for name in names)
        depth = len(self.path) - 1
        share = n_known / len(names)
        return 3 * share + 2 * self.has_speakers_key - 0.2 * depth - 0.1 * len(names)


def of_objects(each: str | Raw, lists: list[list[Raw]]) -> Iterator[ProposedMapping]:
    """Yield the way to read lists of objects as conversations, if any; `each` is where a mapping finds them."""
    lists = [items for items in lists if len(items) >= 2]
    if not lists:
        return
    fields = _scalar_fields(lists)
    texts = _texts(fields)
    question = next((text for text in texts if is_said_by("user", text.path)), None)
    replies = (text for text in texts if is_said_by("assistant", text.path))
    answer = next((text for text in replies if text is not question), None)
    speakers = [field for field in fields if field.is_speaker]
    if question and answer:  # then a label that changes from item to item is no speaker
        speakers = [
            field
            for field in speakers
            if field.path not in (question.path, answer.path) and field.speaker_score >= 1
        ]
    if speakers and texts:
        speaker = max(speakers, key=lambda field: field.speaker_score)
        others = [text for text in texts if text.path != speaker.path]
        if others:
            yield _spoken(each, lists, speaker, others)
            return
        texts = []
    if question and answer:
        messages = [_message(question, "user"), _message(answer, "assistant")]
        if _opens_without(answer) and not _opens_without(question):
            messages.reverse()  # an item is an answer and what the user says to it
        description = f"questions under '{question.selector}' and answers under '{answer.selector}'"
        doubts = ("roles are guessed from the keys",)
        yield ProposedMapping({"each": each, "messages": messages}, description, doubts)
    elif texts and LIST_KEYS.search(str(each)) and texts[0].words >= 3:
        message = {"role_in_turn": ["user", "assistant"], "text": texts[0].selector}
        description = f"texts under '{texts[0].selector}' and nobody named who speaks"
        doubts = ("roles are taken in turn",)
        yield ProposedMapping({"each": each, "messages": [message]}, description, doubts)


def text_path(items: list[Raw]) -> Path | None:
    """Return where the text of objects most likely is; None where none of them has one."""
    return next((text.path for text in _texts(_scalar_fields([items]))), None)


def _texts(fields: list[ItemField]) -> list[ItemField]:
    """Return the fields with texts, the likeliest first."""
    return sorted((field for field in fields if field.is_text), key=lambda text: -text.text_score)


def _scalar_fields(lists: list[list[Raw]]) -> list[ItemField]:
    """Return the fields of one key or two at which 40 % of the items have a text, a number or a truth value."""
    items = list(islice(chain.from_iterable(lists), 2000))
    counts: Counter[Path] = Counter()
    for item in items:
        for key, value in item.items():
            if isinstance(value, dict):
                counts.update(
                    (key, name) for name, at in value.items() if isinstance(at, str | int)
                )
            elif isinstance(value, str | int):
                counts[key,] += 1
    return [
        ItemField.at(path, lists)
        for path, number in counts.items()
        if number >= 0.4 * len(items) and not any('"' in key for key in path)
    ]  # no selector has a key with a quotation mark


def _at_path(item: Any, path: Path) -> Any:
    for key in path:
        item = item.get(key) if isinstance(item, dict) else None
    return item


def reads_like_text(values: Sequence[str]) -> bool:
    """Return whether a third of the texts have several words, or are long as in scripts without spaces."""
    long = sum(" " in value.strip() or len(value) > 12 for value in values)
    identifiers = sum(
        bool(re.fullmatch(r"(?:[^\W\d]|[:.+-])*+\d[\w:.+-]*+|https?://\S+", value))
        for value in values
    )
    return long * 3 >= len(values) and identifiers * 2 < len(values)


def mean_words(texts: Sequence[str]) -> float:
    """Return the mean number of words; six characters count as at least one. 0 without texts."""
    return fmean(max(len(text.split()), len(text) / 6) for text in texts) if texts else 0.0


def is_said_by(role: Role, path: Path) -> bool:
    """Return whether a path's last key is a usual one for what a party says, or a word in any of its keys is."""
    keys, pattern = _PARTIES[role]
    words = [word for key in path for word in re.split(r"[_\s-]", key.lower())]
    return path[-1].lower() in keys or any(map(pattern.fullmatch, words))


def _message(text: ItemField, role: Role) -> Raw:
    return {"role": role, "text": text.selector} | ({"optional": True} if text.is_partial else {})


def _opens_without(field: ItemField) -> bool:
    """Return whether the first items of most conversations have no value."""
    return sum(not column[0] for column in field.columns) * 2 > len(field.columns)


def _spoken(
    each: str | Raw, lists: list[list[Raw]], speaker: ItemField, texts: list[ItemField]
) -> ProposedMapping:
    """Return the way to read items with a speaker and a text; of `texts` the first is taken."""
    text = texts[0]
    where, matching = _where(text, lists)
    roles, doubts = guess_roles(ItemField.at(speaker.path, matching).names)
    used = {speaker.path[0], text.path[0]}
    inner_keys = {
        key
        for items in lists
        for item in items
        for key, value in item.items()
        if key not in used and isinstance(value, list | dict) and value
    }
    is_usual = speaker.path[-1] in ROLE_KEYS and text.path[-1] in CONTENT_KEYS
    is_usual = is_usual and not where and isinstance(each, str)
    if is_usual and not doubts and inner_keys <= READ_KEYS:
        mapping: Raw = {"each": each}
    else:
        message: Raw = {"role_from": speaker.selector, "text": text.selector}
        if ItemField.at(text.path, matching).is_partial:
            message["optional"] = True
            doubts.append(f"some items have no text under '{text.selector}'")
        condition = {"where": where} if where else {}
        mapping = {"each": each} | condition | {"messages": [message]} | roles
        if odd := sorted(filter(MAY_MATTER.search, inner_keys)):
            doubts.append(f"items also hold {', '.join(odd[:4])}, kept in the metadata")
    if where:
        doubts.append(f"items without '{text.selector}' are left out by `where`")
    close = [other for other in texts[1:] if other.words >= 0.5 * text.words]
    if close and text.path[-1].lower() not in TEXT_KEYS:
        doubts.append(f"the text may also be '{close[0].selector}'")
    if not speaker.has_speakers_key and (doubts or roles):
        doubts.append(f"'{speaker.selector}' may name no speaker")
    description = f"speakers under '{speaker.selector}', texts under '{text.selector}'"
    return ProposedMapping(mapping, description, tuple(doubts))


def _where(text: ItemField, lists: list[list[Raw]]) -> tuple[Raw, list[list[Raw]]]:
    """Return a condition on a field of few values that items with a text meet, and the items that meet it."""
    if not text.is_partial:
        return {}, lists
    for field in _scalar_fields(lists):
        values = field.values
        if field.path == text.path or any(isinstance(value, list | dict) for value in values):
            continue
        totals = Counter(values)
        with_text = Counter(
            value for value, at in zip(values, text.values, strict=True) if isinstance(at, str)
        )
        passing = [value for value in totals if with_text[value] == totals[value]]
        is_clear = all(with_text[v] * 10 <= totals[v] for v in totals if v not in passing)
        if len(totals) <= MOST_NAMES and passing and is_clear:
            matching = [
                [item for item, value in zip(items, column, strict=True) if value in passing]
                for items, column in zip(lists, field.columns, strict=True)
            ]
            return {field.selector: passing[0] if len(passing) == 1 else passing}, matching
    return {}, lists
