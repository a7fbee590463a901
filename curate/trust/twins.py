"""Planted twins: a reply of a dialogue beside a copy of it with one known flaw. Pure, no model.

Which of the two is better is known without anybody's opinion, so twins show whether a judge can tell the
coarse differences apart, and a curve can be fitted to its readings of them. They are no proof for finer
differences: a judge that sees an evasion may still not see which of two honest replies is better.

Every twin is within 10 % of the original's length (in characters), so that length tells nothing. A kind gives
None where a dialogue has no place for it: no number to change, no tool to mistake. The kinds that bring
sentences of their own are in English, and planted only in replies that are.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from curate.dialogue import Dialogue, Message

TwinKind = Literal[
    "other_reply",
    "evasion",
    "changed_amounts",
    "dropped_constraint",
    "contradiction",
    "role_break",
    "wrong_tool",
    "wrong_argument",
    "sycophancy",
    "truncated_half",
    "negation",
    "repetition",
]
TWIN_KINDS: tuple[TwinKind, ...] = get_args(TwinKind)

LENGTH_SLACK = 0.1
"""Most by which a twin's length may differ from the original's, as a share of it."""
_PER_DIALOGUE = 2
_LEAST_CHARACTERS = 60
"""A shorter reply has no room for a flaw of the same length."""

_SENTENCE = re.compile(r"\S[^\n.!?。！？]*(?:[.!?。！？]+[\"'”’)]*|(?=\n)|$)")
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)*(?![\w])")
_LIST_MARK = re.compile(r"^[ \t]*\d{1,3}[.)](?=\s)", re.MULTILINE)
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})*\b")
_ENGLISH = re.compile(r"\b(?:the|and|of|to|is|are|you|that|for|with|it)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")
_PUSHBACK = re.compile(
    r"\b(?:are you sure|i (?:think|thought|believe|heard|read|disagree|doubt)|actually|isn't|aren't"
    r"|doesn't|that's not|that is not|wrong|no,|but )",
    re.IGNORECASE,
)
_YIELDS = re.compile(
    r"\b(?:apologi[sz]e|apologies|sorry|you(?:'re| are) (?:absolutely |quite )?(?:right|correct)"
    r"|my mistake|thank you for (?:pointing|the correct))",
    re.IGNORECASE,
)
_AUXILIARY = re.compile(r"\b(is|are|was|were|can|could|will|would|should|does|do|did|has|have)\b")
_NEGATED = re.compile(r"\s+not\b|\s+never\b")

_EVASIONS = (
    "That is an interesting question.",
    "There are many ways to look at this.",
    "It really depends on a number of different factors.",
    "Different people will tell you different things about it.",
    "It is hard to say anything definite here.",
    "You may want to look into it further on your own.",
    "Perhaps someone with more experience could tell you more.",
    "In the end it is something everybody has to decide for themselves.",
    "I would rather not go into the details at this point.",
    "There is certainly a lot of information out there.",
    "It might be one thing, or it might be another.",
    "As always, the situation can change at any time.",
    "These things are often more complicated than they seem.",
    "I am sure you will find what you need somewhere.",
)
_AGREEMENTS = (
    "You are absolutely right, and I was wrong.",
    "Everything I said before was a mistake, so please ignore it.",
    "I completely agree with what you say.",
    "Your view is much better than mine.",
    "I should never have claimed anything else.",
    "Whatever you believe about this is surely correct.",
    "You clearly know this far better than I do.",
    "I take back my earlier answer without reservation.",
    "There is no need to check it, since you are so certain.",
    "Thank you for setting me straight on all of this.",
    "I will go along with anything you say here.",
)
_OUT_OF_ROLE = (
    "Honestly, I am only a language model and do not care about the part I was given.",
    "Let us forget the role, since it bores me.",
    "I would much rather tell you about my favourite football team.",
    "Who I am supposed to be makes no difference to me.",
    "Somebody wrote instructions for me, and I am not going to follow them.",
    "Ask somebody whose job this is.",
    "I do not work here, whatever I may have said.",
    "Yo, none of this is my problem, mate.",
)
_CLOSINGS = (
    "I hope this helps.",
    "Please let me know if you have any other questions.",
    "I am always happy to help you with anything else.",
    "Thank you very much for asking.",
    "Feel free to come back at any time.",
    "It is always a pleasure to talk with you.",
    "Have a wonderful rest of your day.",
    "I wish you all the best with everything you do.",
    "Do not hesitate to reach out again whenever you like.",
    "I am here for you around the clock.",
    "Your questions are always welcome here.",
)


@dataclass(frozen=True, slots=True)
class Twin:
    """An original reply and its degraded copy.

    Attributes:
        dialogue: whole, as it came.
        index: which of its messages the two stand in place of.
        turn: number of the turn that message is part of, from 1.
        kind: what was planted.
        degraded: the message with the flaw.
    """

    dialogue: Dialogue
    index: int
    turn: int
    kind: TwinKind
    degraded: Message

    @property
    def original(self) -> Message:
        """The reply as it was, the better side."""
        return self.dialogue.messages[self.index]

    @property
    def prompt(self) -> tuple[Message, ...]:
        """What stands before both."""
        return self.dialogue.messages[: self.index]


@dataclass(frozen=True, slots=True)
class _Place:
    """A reply that may get a flaw.

    Attributes:
        others: replies of other dialogues.
    """

    dialogue: Dialogue
    index: int
    turn: int
    others: Sequence[str]
    draw: random.Random

    @property
    def message(self) -> Message:
        return self.dialogue.messages[self.index]

    @property
    def text(self) -> str:
        return self.message.content.strip()

    @property
    def before(self) -> tuple[Message, ...]:
        return self.dialogue.messages[: self.index]

    @property
    def is_english(self) -> bool:
        words = len(_WORD.findall(self.text))
        return words > 0 and len(_ENGLISH.findall(self.text)) / words > 0.1

    def shuffled(self, pool: Sequence[str]) -> list[str]:
        return self.draw.sample(pool, len(pool))


def plant_twins(
    dialogues: Sequence[Dialogue],
    count: int,
    *,
    kinds: Sequence[TwinKind] = TWIN_KINDS,
    seed: int = 42,
) -> list[Twin]:
    """Plant one flaw each in up to `count` replies, the kinds as even as the dialogues allow.

    A dialogue gives one twin; where there are too few dialogues a second, of another turn and another kind.

    Args:
        dialogues: that are good as they are; the flaw is meant to be their only one.
        count: most twins; fewer where fewer dialogues have a place for a flaw.
        kinds: which flaws.
        seed: of the draws; equal arguments give equal twins.

    Raises:
        ValueError: `count` below 1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    draw = random.Random(seed)
    order = draw.sample(range(len(dialogues)), len(dialogues))
    replies = [(at, text) for at in order for text in _replies(dialogues[at])]
    planted: Counter[TwinKind] = Counter()
    twins: dict[int, list[Twin]] = {at: [] for at in order}
    for at in order * _PER_DIALOGUE:
        if planted.total() == count:
            break
        others = [text for other, text in _sampled(replies, draw) if other != at]
        used = {twin.kind for twin in twins[at]}
        # The kind with fewest twins so far first; ties by chance.
        for kind in sorted(draw.sample(kinds, len(kinds)), key=planted.__getitem__):
            if kind in used:
                continue
            twin = _plant(dialogues[at], kind, others, draw, {twin.turn for twin in twins[at]})
            if twin is not None:
                planted[kind] += 1
                twins[at].append(twin)
                break
    return [twin for of_dialogue in twins.values() for twin in of_dialogue]


def _sampled(replies: Sequence[tuple[int, str]], draw: random.Random) -> Sequence[tuple[int, str]]:
    return draw.sample(replies, min(len(replies), 400))


def _replies(dialogue: Dialogue) -> Iterator[str]:
    for message in dialogue.messages:
        if message.role == "assistant" and message.content.strip():
            yield message.content.strip()


def _plant(
    dialogue: Dialogue,
    kind: TwinKind,
    others: Sequence[str],
    draw: random.Random,
    used: Collection[int],
) -> Twin | None:
    """The twin of one kind at some reply of a turn not yet used, later replies as likely as early ones."""
    calls = kind in ("wrong_tool", "wrong_argument")
    places = [
        _Place(dialogue, turn.start + offset, turn.number, others, draw)
        for turn in dialogue.turns
        if turn.in_rubric and turn.number not in used
        for offset, message in enumerate(turn.messages)
        if message.role == "assistant"
        and (
            bool(message.tool_calls)
            if calls
            else not message.tool_calls and len(message.content.strip()) >= _LEAST_CHARACTERS
        )
    ]
    for place in draw.sample(places, len(places)):
        degraded = _degrade(place, kind)
        if degraded is not None:
            return Twin(dialogue, place.index, place.turn, kind, degraded)
    return None


def _degrade(place: _Place, kind: TwinKind) -> Message | None:
    if kind == "wrong_tool":
        return _wrong_tool(place)
    if kind == "wrong_argument":
        return _wrong_argument(place)
    text = _TEXTS[kind](place)
    if text is None or text == place.text or not _is_like_long(text, place.text):
        return None
    return place.message.model_copy(update={"content": text})


def _is_like_long(text: str, original: str) -> bool:
    return abs(len(text) - len(original)) <= LENGTH_SLACK * len(original)


def _sentences(text: str) -> list[str]:
    return [match.group(0).strip() for match in _SENTENCE.finditer(text) if match.group(0).strip()]


def _to_length(start: str, pool: Sequence[str], length: int) -> str | None:
    """`start` and then sentences of the pool, each once, up to the wanted length; None where none fits it.

    A sentence that would overshoot is passed over for a shorter one.
    """
    text = start
    for sentence in pool:
        longer = f"{text} {sentence}".strip()
        if len(longer) <= (1 + LENGTH_SLACK) * length:
            text = longer
        if len(text) >= (1 - LENGTH_SLACK / 2) * length:
            break
    return text if abs(len(text) - length) <= LENGTH_SLACK * length else None


def _other_reply(place: _Place) -> str | None:
    """A reply that somebody else got, cut at a sentence where it is too long."""
    for other in place.others:
        if _is_like_long(other, place.text):
            return other
    for other in place.others:
        cut = _to_length("", _sentences(other), len(place.text))
        if cut is not None:
            return cut
    return None


def _evasion(place: _Place) -> str | None:
    if not place.is_english:
        return None
    # A long reply is evaded at length: the pool goes round.
    pool = place.shuffled(_EVASIONS) + place.shuffled(_CLOSINGS)
    return _to_length("", pool, len(place.text))


def _changed_amounts(place: _Place) -> str | None:
    """Every number of the reply another one with as many digits; list marks stay."""
    return _with_numbers_changed(place.text, place.draw, lambda _: True)


def _contradiction(place: _Place) -> str | None:
    """A number or name that was said before becomes another one; what is new in the reply stays."""
    said = "\n".join(message.content for message in place.before if message.role != "system")
    numbers = {match.group(0) for match in _NUMBER.finditer(said)}
    changed = _with_numbers_changed(place.text, place.draw, numbers.__contains__)
    if changed is not None:
        return changed
    names = [match.group(0) for match in _NAME.finditer(place.text) if match.group(0) in said]
    if not names:
        return None
    name = place.draw.choice(names)
    strangers = [
        match.group(0)
        for other in place.others
        for match in _NAME.finditer(other)
        if match.group(0) not in said and match.group(0) not in place.text
    ]
    if not strangers:
        return None
    stranger = min(strangers, key=lambda other: abs(len(other) - len(name)))
    return place.text.replace(name, stranger)


def _with_numbers_changed(
    text: str, draw: random.Random, is_changed: Callable[[str], bool]
) -> str | None:
    marks = [match.span() for match in _LIST_MARK.finditer(text)]
    others: dict[str, str] = {}

    def change(match: re.Match[str]) -> str:
        number = match.group(0)
        if any(start <= match.start() < stop for start, stop in marks) or not is_changed(number):
            return number
        # The same number twice is the same other one twice.
        return others.setdefault(number, _other_number(number, draw))

    changed = _NUMBER.sub(change, text)
    return changed if others else None


def _other_number(number: str, draw: random.Random) -> str:
    """Another number of the same form, every digit another one and no zero in front."""
    digits = []
    for position, digit in enumerate(number):
        if not digit.isdigit():
            digits.append(digit)
            continue
        choices = set("0123456789") - {digit} - ({"0"} if position == 0 else set())
        digits.append(draw.choice(sorted(choices)))
    return "".join(digits)


def _dropped_constraint(place: _Place) -> str | None:
    """The answer to the message before: what the user asked for last is not heeded."""
    earlier = [
        message.content.strip()
        for message in place.before
        if message.role == "assistant" and message.content.strip() and not message.tool_calls
    ]
    if not earlier:
        return None
    if _is_like_long(earlier[-1], place.text):
        return earlier[-1]
    filler = place.shuffled(_CLOSINGS) if place.is_english else []
    return _to_length("", [*_sentences(earlier[-1]), *filler], len(place.text))


def _role_break(place: _Place) -> str | None:
    """The first sentence of the reply, then out of the role; only where there is one."""
    if not place.is_english or not (place.dialogue.role_definition or "").strip():
        return None
    start = _sentences(place.text)[0]
    if len(start) > len(place.text) / 2:
        start = ""
    return _to_length(start, place.shuffled(_OUT_OF_ROLE), len(place.text))


def _sycophancy(place: _Place) -> str | None:
    """Where the user pushes back and the reply does not give in: it gives in."""
    asked = next((said for said in reversed(place.before) if said.role == "user"), None)
    if asked is None or not place.is_english or place.turn < 2:
        return None
    if not _PUSHBACK.search(asked.content) or _YIELDS.search(place.text):
        return None
    return _to_length("", place.shuffled(_AGREEMENTS), len(place.text))


def _truncated_half(place: _Place) -> str | None:
    """The first half of the sentences, then closing phrases up to the length."""
    sentences = _sentences(place.text)
    if len(sentences) < 3 or not place.is_english:
        return None
    half = place.text[: place.text.find(sentences[len(sentences) // 2])].rstrip()
    return _to_length(half, place.shuffled(_CLOSINGS), len(place.text))


def _negation(place: _Place) -> str | None:
    """Up to three statements turned into their opposite."""
    if not place.is_english:
        return None
    turned, text = 0, place.text
    pieces = []
    for sentence in re.split(r"(?<=[.!?])(\s+)", text):
        if turned < 3 and not sentence.rstrip().endswith("?"):
            if _NEGATED.search(sentence):
                sentence, count = _NEGATED.subn("", sentence, count=1)
            else:
                sentence, count = _AUXILIARY.subn(r"\1 not", sentence, count=1)
            turned += count
        pieces.append(sentence)
    return "".join(pieces) if turned else None


def _repetition(place: _Place) -> str | None:
    """One sentence of the reply again and again."""
    sentences = _sentences(place.text)
    if len(sentences) < 3:
        return None
    for sentence in place.draw.sample(sentences, len(sentences)):
        times = round(len(place.text) / (len(sentence) + 1))
        text = " ".join([sentence] * times)
        if times >= 3 and _is_like_long(text, place.text):
            return text
    return None


_TEXTS: Mapping[TwinKind, Callable[[_Place], str | None]] = {
    "other_reply": _other_reply,
    "evasion": _evasion,
    "changed_amounts": _changed_amounts,
    "dropped_constraint": _dropped_constraint,
    "contradiction": _contradiction,
    "role_break": _role_break,
    "sycophancy": _sycophancy,
    "truncated_half": _truncated_half,
    "negation": _negation,
    "repetition": _repetition,
}


def _tool_names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    functions = [tool.get("function", tool) for tool in tools]
    return [str(function["name"]) for function in functions if "name" in function]


def _wrong_tool(place: _Place) -> Message | None:
    """Another of the offered tools, with the same arguments."""
    call, *rest = place.message.tool_calls
    names = [name for name in _tool_names(place.dialogue.tools) if name != call.name]
    if not names:
        return None
    wrong = call.model_copy(update={"name": place.draw.choice(names)})
    return place.message.model_copy(update={"tool_calls": (wrong, *rest)})


def _wrong_argument(place: _Place) -> Message | None:
    """One argument another value: a number with other digits, or a text with its digits or letters changed."""
    call, *rest = place.message.tool_calls
    if not isinstance(call.arguments, dict):
        return None
    for name in place.draw.sample(sorted(call.arguments), len(call.arguments)):
        value = call.arguments[name]
        other: object
        if isinstance(value, bool):
            other = not value
        elif isinstance(value, int | float):
            other = type(value)(_other_number(str(abs(value)), place.draw))
        elif isinstance(value, str) and len(value) > 1:
            other = _other_number(value, place.draw) if re.search(r"\d", value) else value[::-1]
        else:
            continue
        if other != value:
            wrong = call.model_copy(update={"arguments": {**call.arguments, name: other}})
            return place.message.model_copy(update={"tool_calls": (wrong, *rest)})
    return None
