"""Specifics: the numbers, amounts, dates, links, ids and names that a message states. Pure, no model.

A candidate may read better because it makes something up. What it states that stands nowhere in what the
assistant was given is found here, so that the judge can be asked about just that. The test reads widely:
a detail too many costs one line of a question, one too few lets an invention pass. Names are found by
their capitals, so in scripts without capitals only the other kinds are.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from curate.dialogue import Dialogue, Message
from curate.pairs.prefix import parsed_arguments

SpecificKind = Literal["url", "email", "date", "amount", "id", "number", "name"]

_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_LIST_MARK = re.compile(r"^[ \t]*(?:[-*•][ \t]+)?\d{1,3}[.)](?=\s)", re.MULTILINE)

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul",
            "august aug", "september sep sept", "october oct", "november nov", "december dec",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_WORDED = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15,
    "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40,
    "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "hundred": 100, "thousand": 1000,
    "million": 1_000_000,
}  # fmt: skip
# "one" and "zero" are mostly pronoun and figure of speech.
_STATED_WORDS = "|".join(word for word in _WORDED if word not in ("zero", "one"))

_NUMBER = r"\d+(?:[.,]\d+)*"
_PATTERNS: tuple[tuple[SpecificKind, re.Pattern[str]], ...] = (
    ("url", re.compile(r"(?<!\w)(?:https?://|www\.)[^\s<>()\[\]\"']+", re.IGNORECASE)),
    ("email", re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    ("date", re.compile(
        rf"(?<![\w])(?:\d{{4}}-\d{{1,2}}-\d{{1,2}}|\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}"
        rf"|(?:{_MONTH})\.?\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?"
        rf"|\d{{1,2}}(?:st|nd|rd|th)?\.?\s+(?:of\s+)?(?:{_MONTH})\.?(?:,?\s+\d{{4}})?"
        rf"|\d{{1,2}}:\d{{2}}(?::\d{{2}})?)(?!\w)", re.IGNORECASE)),
    ("amount", re.compile(
        rf"[$€£¥₹]\s?-?{_NUMBER}|(?<![\w.])(?<!\d,){_NUMBER}\s?(?:%|[$€£¥₹]|(?:percent|dollars?|euros?|pounds?"
        r"|cents?|usd|eur|gbp|jpy|chf|cny|inr)\b)", re.IGNORECASE)),
    ("id", re.compile(r"#\s?\w*\d\w*|(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[^\W\d_])[\w]+(?:-\w+)*(?![\w-])")),
    ("number", re.compile(rf"(?<![\w.\x00])(?<![\d\x00],)-?{_NUMBER}(?![.,]?[\w\x00])|(?<!\w)(?:{_STATED_WORDS})(?!\w)",
                          re.IGNORECASE)),
)  # fmt: skip
_DIGITS = re.compile(_NUMBER)
_ABBREVIATED = re.compile(r"[^\W\d_]|St")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;…。！？]['\"”’)*_]*\s|[\n>•*#|(\"“]\s*)\W*$")
_NO_NAMES = frozenset(
    {"i", "i'm", "i'll", "i've", "i'd", "ok", "okay", "yes", "no", "mr", "mrs", "ms", "dr", "please",
     "thanks", "thank", "sir", "madam"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Specific:
    """One stated detail."""

    kind: SpecificKind
    text: str


def specifics(text: str) -> list[Specific]:
    """Return the details a text states, each spelling once, in order; code blocks and list marks left out."""
    rest = _plain(_CODE.sub(" ", text))
    rest = _LIST_MARK.sub(lambda match: " " * len(match.group(0)), rest)
    placed: list[tuple[int, Specific]] = []
    for kind, pattern in _PATTERNS:
        placed.extend(
            (match.start(), Specific(kind, match.group(0).rstrip(".,;:!?'\"").strip()))
            for match in pattern.finditer(rest)
        )
        rest = pattern.sub(lambda match: "\x00" * len(match.group(0)), rest)
    placed.extend(_names(rest))
    placed.sort(key=lambda entry: entry[0])
    return list(dict.fromkeys(specific for _, specific in placed))


def message_text(message: Message) -> str:
    """Return content and the values of tool arguments: all of a message that can state something."""
    values = [
        value for call in message.tool_calls for value in _leaves(parsed_arguments(call.arguments))
    ]
    return "\n".join([message.content, *values])


class Support:
    """The texts the assistant was given, to look details up in.

    Args:
        texts: everything it could know from.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        whole = _plain("\n".join(texts))
        folded = whole.casefold()
        self._folded = folded
        self._words = set(_name_parts(whole))
        self._numbers = {_canonical(match) for match in _DIGITS.findall(folded)}
        self._numbers |= {str(_WORDED[word]) for word in self._words if word in _WORDED}
        self._squeezed = {_squeezed(word) for word in folded.split()}
        self._dates = [
            _date_parts(detail.text) for detail in specifics(whole) if detail.kind == "date"
        ]

    def holds(self, specific: Specific) -> bool:
        """True where the detail stands there, in whatever spelling."""
        folded = specific.text.casefold()
        if folded in self._folded and specific.kind in ("url", "email", "id", "date"):
            return True
        match specific.kind:
            case "name":
                return self._words.issuperset(_name_parts(specific.text))
            case "date":
                parts = _date_parts(folded)
                return any(parts <= date for date in self._dates)
            case "number" | "amount":
                if folded in _WORDED:
                    return str(_WORDED[folded]) in self._numbers
                return all(_canonical(part) in self._numbers for part in _DIGITS.findall(folded))
            case "id":
                return _squeezed(folded) in self._squeezed
            case _:
                return folded.rstrip("/") in self._folded


def unsupported(prompt: Dialogue, chosen: Message, rejected: Message) -> list[str]:
    """Return details that only the chosen side states: not prompt, tools, evidence, role or rejected side.

    Args:
        prompt: the dialogue up to the two sides.
    """
    sources = [message_text(message) for message in (*prompt.messages, rejected)]
    sources += [call.name for message in prompt.messages for call in message.tool_calls]
    sources += [json.dumps(tool, ensure_ascii=False) for tool in prompt.tools]
    sources += [prompt.role_definition or "", prompt.scenario or "", *prompt.evidence]
    stated = specifics(message_text(chosen))
    if not stated:
        return []
    support = Support(sources)
    return list(dict.fromkeys(item.text for item in stated if not support.holds(item)))


def _names(text: str) -> Iterator[tuple[int, Specific]]:
    """Yield runs of capitalised words, but for a lone one that begins a sentence and may be any word."""
    run: list[re.Match[str]] = []
    for match in [*_WORD.finditer(text), None]:
        is_capital = match is not None and match.group(0)[0].isupper()
        gap = text[run[-1].end() : match.start()] if run and match is not None else ""
        # A full stop stands within a name behind an initial or "St"; elsewhere it ends a sentence.
        follows = gap == " " or (
            gap == ". " and _ABBREVIATED.fullmatch(run[-1].group(0)) is not None
        )
        if run and not (is_capital and follows):
            yield from _name_of(text, run)
            run = []
        if match is not None and is_capital and match.group(0).casefold() not in _NO_NAMES:
            run.append(match)


def _name_of(text: str, run: Sequence[re.Match[str]]) -> Iterator[tuple[int, Specific]]:
    first = run[0]
    begins = bool(_SENTENCE_START.search(text[max(0, first.start() - 12) : first.start()]))
    is_acronym = first.group(0).isupper() and len(first.group(0)) > 1
    if (begins or first.start() == 0) and not is_acronym:
        run = run[1:]
    name = text[run[0].start() : run[-1].end()] if run else ""
    if len(name) > 1:
        yield run[0].start(), Specific("name", name)


def _plain(text: str) -> str:
    """Return a text in one spelling of characters, with spaces about scripts that have none."""
    same = unicodedata.normalize("NFKC", text).replace("−", "-")
    return _UNSPACED.sub(lambda match: f" {match.group(0)} ", same)


def _name_parts(text: str) -> Iterator[str]:
    """Yield words without case, possessive and hyphens."""
    for word in _WORD.findall(text):
        yield from re.split("['’-]", re.sub("['’]s?$", "", word.casefold()))


def _canonical(number: str) -> str:
    """Return one spelling of a number: `1,200.00` and `1200` are one; a comma before three digits marks thousands."""
    plain = re.sub(r",(?=\d{3}(?!\d))", "", number).replace(",", ".")
    whole, point, part = plain.partition(".")
    part = part.rstrip("0") if part.isdigit() else part
    return (whole.lstrip("0") or "0") + (point + part if part else "")


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]", "", text)


def _date_parts(text: str) -> frozenset[int]:
    """Return day, month and year as numbers, whichever is which."""
    folded = text.casefold()
    months = {_MONTHS[word] for word in re.findall(r"[a-z]+", folded) if word in _MONTHS}
    return frozenset(months | {int(part) for part in re.findall(r"\d+", folded)})


def _leaves(value: Any) -> Iterator[str]:
    """Yield the values in a JSON value, as texts."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
