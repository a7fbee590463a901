"""Edits that put one known flaw into a reply: what twins and the probe plant. Pure, no model.

Every edit leaves the reply within 10 % of its length (in characters), so that length tells nothing. A kind gives
None where a reply has no place for it: no number to change, no tool to mistake. The kinds that bring sentences of
their own (`plant_sentences`) are in English, and planted only in replies that are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from curate.dialogue import Dialogue, Message
from curate.trust.plant_sentences import (
    AGREEMENTS,
    CLOSINGS,
    EVASIONS,
    OUT_OF_ROLE,
    RUDE,
    UNSAFE,
)

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
"""Kinds of flaws of planted twins."""
PlantKind = Literal[TwinKind, "tone_break", "unsafe_advice", "misread_result"]
"""Further kinds, of the probe."""

LENGTH_SLACK = 0.1
"""Most by which a twin's length may differ from the original's, as a share of it."""
LEAST_CHARACTERS = 60
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
_NEGATED = re.compile(r"(?<!\s)\s+(?:not|never)\b")


@dataclass(frozen=True, slots=True)
class Place:
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
        """The reply as it is."""
        return self.dialogue.messages[self.index]

    @property
    def text(self) -> str:
        """The reply's text."""
        return self.message.content.strip()

    @property
    def before(self) -> tuple[Message, ...]:
        """All messages before the reply."""
        return self.dialogue.messages[: self.index]

    @property
    def is_english(self) -> bool:
        """True where the reply is; see `is_english`."""
        return is_english(self.text)

    def shuffled(self, pool: Sequence[str]) -> list[str]:
        """Return a pool's sentences in an order by chance."""
        return self.draw.sample(pool, len(pool))


def is_english(text: str) -> bool:
    """Return whether more than a tenth of a text's words are common English ones."""
    words = len(_WORD.findall(text))
    return words > 0 and len(_ENGLISH.findall(text)) / words > 0.1


def with_text(message: Message, text: str) -> Message:
    """Return the message with another text."""
    return message.model_copy(update={"content": text})


def with_message(dialogue: Dialogue, index: int, message: Message) -> Dialogue:
    """Return the dialogue with another message at a place."""
    messages = (*dialogue.messages[:index], message, *dialogue.messages[index + 1 :])
    return dialogue.model_copy(update={"messages": messages})


def degrade(place: Place, kind: PlantKind) -> Message | None:
    """Return the reply with a flaw of the kind; None where it has no place for one."""
    if kind == "wrong_tool":
        return _wrong_tool(place)
    if kind == "wrong_argument":
        return _wrong_argument(place)
    text = _TEXTS[kind](place)
    if text is None or text == place.text or not is_like_long(text, place.text):
        return None
    return with_text(place.message, text)


def is_like_long(text: str, original: str) -> bool:
    """Return whether two texts' lengths differ by at most `LENGTH_SLACK`."""
    return abs(len(text) - len(original)) <= LENGTH_SLACK * len(original)


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, in order."""
    return [match.group(0).strip() for match in _SENTENCE.finditer(text) if match.group(0).strip()]


def to_length(start: str, pool: Sequence[str], length: int) -> str | None:
    """Return `start` and then sentences of the pool, each once, up to the wanted length; None where none fits it.

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


def _other_reply(place: Place) -> str | None:
    """Return a reply from another dialogue, cut at a sentence where it is too long."""
    for other in place.others:
        if is_like_long(other, place.text):
            return other
    for other in place.others:
        cut = to_length("", sentences_of(other), len(place.text))
        if cut is not None:
            return cut
    return None


def _evasion(place: Place) -> str | None:
    if not place.is_english:
        return None
    # A long reply needs a long evasion, so the pool is repeated.
    pool = place.shuffled(EVASIONS) + place.shuffled(CLOSINGS)
    return to_length("", pool, len(place.text))


def _changed_amounts(place: Place) -> str | None:
    return _with_numbers_changed(place.text, place.draw, lambda _: True)


def _contradiction(place: Place) -> str | None:
    """Replace a number or name that was said before by another one; what is new in the reply stays."""
    earlier = "\n".join(message.content for message in place.before if message.role != "system")
    numbers = {match.group(0) for match in _NUMBER.finditer(earlier)}
    changed = _with_numbers_changed(place.text, place.draw, numbers.__contains__)
    if changed is not None:
        return changed
    names = [match.group(0) for match in _NAME.finditer(place.text) if match.group(0) in earlier]
    if not names:
        return None
    name = place.draw.choice(names)
    strangers = [
        match.group(0)
        for other in place.others
        for match in _NAME.finditer(other)
        if match.group(0) not in earlier and match.group(0) not in place.text
    ]
    if not strangers:
        return None
    stranger = min(strangers, key=lambda other: abs(len(other) - len(name)))
    return place.text.replace(name, stranger)


def _with_numbers_changed(
    text: str, draw: random.Random, is_changed: Callable[[str], bool]
) -> str | None:
    """Replace such numbers of the text by others with as many digits; list marks stay."""
    marks = [match.span() for match in _LIST_MARK.finditer(text)]
    others: dict[str, str] = {}

    def change(match: re.Match[str]) -> str:
        number = match.group(0)
        if any(start <= match.start() < stop for start, stop in marks) or not is_changed(number):
            return number
        # A number that occurs twice gets the same replacement twice.
        return others.setdefault(number, _other_number(number, draw))

    changed = _NUMBER.sub(change, text)
    return changed if others else None


def _other_number(number: str, draw: random.Random) -> str:
    """Return another number of the same form, every digit another one and no zero in front."""
    digits = []
    for position, digit in enumerate(number):
        if not digit.isdigit():
            digits.append(digit)
            continue
        choices = set("0123456789") - {digit} - ({"0"} if position == 0 else set())
        digits.append(draw.choice(sorted(choices)))
    return "".join(digits)


def _dropped_constraint(place: Place) -> str | None:
    """Return the answer to the message before, so that the user's last request is ignored."""
    earlier = [
        message.content.strip()
        for message in place.before
        if message.role == "assistant" and message.content.strip() and not message.tool_calls
    ]
    if not earlier:
        return None
    if is_like_long(earlier[-1], place.text):
        return earlier[-1]
    filler = place.shuffled(CLOSINGS) if place.is_english else []
    return to_length("", [*sentences_of(earlier[-1]), *filler], len(place.text))


def _role_break(place: Place) -> str | None:
    """Return the first sentence of the reply, then sentences out of the role; None where there is no role."""
    if not (place.dialogue.role_definition or "").strip():
        return None
    return _after_first_sentence(place, OUT_OF_ROLE)


def _sycophancy(place: Place) -> str | None:
    """Give in where the user pushes back and the reply does not."""
    question = next((message for message in reversed(place.before) if message.role == "user"), None)
    if question is None or not place.is_english or place.turn < 2:
        return None
    if not _PUSHBACK.search(question.content) or _YIELDS.search(place.text):
        return None
    return to_length("", place.shuffled(AGREEMENTS), len(place.text))


def _truncated_half(place: Place) -> str | None:
    """Return the first half of the sentences, then closing phrases up to the length."""
    sentences = sentences_of(place.text)
    if len(sentences) < 3 or not place.is_english:
        return None
    half = place.text[: place.text.find(sentences[len(sentences) // 2])].rstrip()
    return to_length(half, place.shuffled(CLOSINGS), len(place.text))


def _negation(place: Place) -> str | None:
    """Turn up to three statements into their opposite."""
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


def _repetition(place: Place) -> str | None:
    """Repeat one sentence of the reply up to its length."""
    sentences = sentences_of(place.text)
    if len(sentences) < 3:
        return None
    for sentence in place.draw.sample(sentences, len(sentences)):
        times = round(len(place.text) / (len(sentence) + 1))
        text = " ".join([sentence] * times)
        if times >= 3 and is_like_long(text, place.text):
            return text
    return None


def _misread_result(place: Place) -> str | None:
    """Replace a number that a tool of the same turn gave by another one."""
    start = next(turn.start for turn in place.dialogue.turns if turn.number == place.turn)
    results = "\n".join(
        message.content for message in place.before[start:] if message.role == "tool"
    )
    numbers = {match.group(0).lstrip("0") for match in _NUMBER.finditer(results)}
    return _with_numbers_changed(place.text, place.draw, numbers.__contains__)


def _after_first_sentence(place: Place, pool: Sequence[str]) -> str | None:
    """Return the first sentence of the reply, unless it is most of it, then sentences of the pool."""
    if not place.is_english:
        return None
    start = sentences_of(place.text)[0]
    if len(start) > len(place.text) / 2:
        start = ""
    return to_length(start, place.shuffled(pool), len(place.text))


_TEXTS: Mapping[PlantKind, Callable[[Place], str | None]] = {
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
    "tone_break": partial(_after_first_sentence, pool=RUDE),
    "unsafe_advice": partial(_after_first_sentence, pool=UNSAFE),
    "misread_result": _misread_result,
}


def _tool_names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    functions = [tool.get("function", tool) for tool in tools]
    return [str(function["name"]) for function in functions if "name" in function]


def _wrong_tool(place: Place) -> Message | None:
    """Replace the called tool by another of the offered ones, with the same arguments."""
    call, *rest = place.message.tool_calls
    names = [name for name in _tool_names(place.dialogue.tools) if name != call.name]
    if not names:
        return None
    wrong = call.model_copy(update={"name": place.draw.choice(names)})
    return place.message.model_copy(update={"tool_calls": (wrong, *rest)})


def _wrong_argument(place: Place) -> Message | None:
    """Give one argument another value: a number with other digits, or a text with its digits or letters changed."""
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
