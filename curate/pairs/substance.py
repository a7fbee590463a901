"""Tests whether two sides differ in substance. Pure functions, no model.

A pair whose sides differ in a comma or a "please" teaches style noise. The test is made to miss rather
than to overreach: what survives normalisation (names, numbers, negations, modal verbs, pronouns, code,
every content word, in order) counts as substance, and a difference in any of it goes on to the judge.
Only articles, forms of "to be" in the present tense and set politeness phrases are taken as empty.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import zip_longest

from curate.dialogue import Message
from curate.pairs.prefix import canonical

# None of them can hold a fact. Negations inside are part of a fixed phrase.
_PHRASES = (
    "please", "kindly", "thanks", "thank you", "thank you so much", "thank you very much",
    "thanks a lot", "many thanks", "you are welcome", "sure thing", "certainly", "of course",
    "absolutely", "definitely", "great question", "good question", "no worries", "hi", "hello",
    "hey", "hi there", "hello there", "just", "really", "very", "actually", "simply",
    "i am happy to help", "i would be happy to help", "happy to help", "glad to help",
    "i am glad to help", "i hope this helps", "hope this helps", "hope that helps",
    "i apologize for the inconvenience", "i apologise for the inconvenience",
    "i apologize for any inconvenience", "i apologise for any inconvenience",
    "sorry for the inconvenience", "i am sorry for the inconvenience",
    "let me know if you have any questions", "let me know if you have any other questions",
    "let me know if you have any further questions", "let me know if you need anything else",
    "feel free to ask", "feel free to reach out", "is there anything else i can help you with",
    "is there anything else i can do for you", "have a great day", "have a nice day",
    "por favor", "gracias", "muchas gracias", "por supuesto", "hola", "con gusto",
    "bitte", "danke", "vielen dank", "gerne", "hallo", "merci", "bonjour", "bien sûr",
    "s'il vous plaît",
)  # fmt: skip
# Courtesy only where a pause follows: "Great, done" but not "the Great Wall".
_OPENERS = ("great", "perfect", "sure", "well", "okay", "ok", "alright", "no problem", "claro",
            "perfecto", "natürlich")  # fmt: skip


def _longest_first(phrases: tuple[str, ...]) -> str:
    return "|".join(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True))


_FILLER = re.compile(
    rf"(?<!\w)(?:{_longest_first(_PHRASES)})(?!\w)|(?<!\w)(?:{_longest_first(_OPENERS)})(?=\s*[!,.])"
)
_FILLER_CJK = re.compile("非常感谢|谢谢您|谢谢你|谢谢|您好|你好|好的|当然|请|呢|啊|哦")

_EMPTY_WORDS = frozenset({"a", "an", "the", "is", "are"})

_CONTRACTIONS = (
    (re.compile(r"\bcan't\b|\bcannot\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\bshan't\b"), "shall not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"'m\b"), " am"),
    (re.compile(r"'re\b"), " are"),
    (re.compile(r"'ve\b"), " have"),
    (re.compile(r"'ll\b"), " will"),
    (re.compile(r"\b(it|that|there|here|what|he|she)'s\b"), r"\1 is"),
)

# Taken out before folding and compared as they stand: code, and a capital A inside a sentence
# ("plan A"), which is a name and no article.
_VERBATIM = re.compile(r"```.*?```|`[^`\n]+`|(?<=\w )A(?!\w)", re.DOTALL)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_TOKEN = re.compile(
    r"\x00\d+\x00"  # a verbatim piece
    r"|(?<![\w.])-?\d+(?:[.,:/-]\d+)*%?"  # 12, -3.5, 10:30, 2026-01-31, 50%
    r"|\d+(?:[.,:/-]\d+)*%?"
    r"|[\u3040-\u30ff\u4e00-\u9fff]"  # scripts without spaces, a character each
    r"|[^\W\d_\u3040-\u30ff\u4e00-\u9fff]+"  # words
    r"|[<>=+^%$€£¥₹°&@~|\\/]"  # symbols that carry meaning in prose
)

_PAUSE = re.compile(r"(?<=[.!?,;:])\s")
_PIECE = 1_000  # characters, at least, that are looked at together


def is_identical(left: Message, right: Message) -> bool:
    """True when both say the same, letter by letter, apart from surrounding space and call ids."""
    return canonical(left) == canonical(right)


def is_cosmetic(left: Message, right: Message) -> bool:
    """True when no entity, number, negation, tool argument or sentence differs in substance.

    Case, punctuation, white space, markdown emphasis, articles and politeness phrases are set aside;
    tool calls are compared as parsed objects and code verbatim. What remains is compared in order,
    since "Ann pays Ben" is not "Ben pays Ann".
    """
    return same_calls(left, right) and _is_same(left.content, right.content)


def same_calls(left: Message, right: Message) -> bool:
    """True when both make the same tool calls with the same arguments, ids aside."""
    calls_left, calls_right = canonical(left)[3], canonical(right)[3]
    return bool(calls_left == calls_right)


def substance(text: str) -> tuple[str, ...]:
    """Return the content tokens of a text, folded and in order.

    A text of nothing but courtesy keeps its words, so that "Sure." still differs from "Thanks.".
    """
    return tuple(_tokens(text))


def is_courtesy(text: str) -> bool:
    """True for a text of nothing but courtesy and empty words."""
    return not any(_content(piece) for piece in _pieces(_folded(text, [])))


def _is_same(left: str, right: str) -> bool:
    """True where two texts have the same substance; long ones are read only as far as they are alike."""
    both = zip_longest(_tokens(left), _tokens(right))
    return left == right or all(one == other for one, other in both)


def _tokens(text: str) -> Iterator[str]:
    """Yield the tokens of `substance`, made as they are asked for."""
    verbatim: list[str] = []
    text = _folded(text, verbatim)
    has_substance = False
    for piece in _pieces(text):
        for token in _content(piece):
            has_substance = True
            yield verbatim[int(token.strip("\x00"))] if token[0] == "\x00" else token
    if not has_substance:
        yield from (token for piece in _pieces(text) for token in _TOKEN.findall(_plain(piece)))


def _folded(text: str, verbatim: list[str]) -> str:
    """Return the text in one case; what is compared as it stands is put into `verbatim` and marked."""

    def put_aside(match: re.Match[str]) -> str:
        verbatim.append("\n".join(line.rstrip() for line in match.group(0).splitlines()))
        return f" \x00{len(verbatim) - 1}\x00 "

    text = unicodedata.normalize("NFKC", text).replace("’", "'").replace("−", "-")
    return _VERBATIM.sub(put_aside, text.replace("\x00", "")).casefold()


def _pieces(text: str) -> Iterator[str]:
    """Yield a folded text cut at pauses: no phrase, contraction or token reaches over such a place."""
    start = 0
    while start < len(text):
        pause = _PAUSE.search(text, start + _PIECE)
        stop = pause.end() if pause else len(text)
        yield text[start:stop]
        start = stop


def _plain(piece: str) -> str:
    """Return a piece with contractions written out, single spaces and no commas in numbers."""
    for pattern, plain in _CONTRACTIONS:
        piece = pattern.sub(plain, piece)
    return _THOUSANDS.sub("", " ".join(piece.split()))


def _content(piece: str) -> list[str]:
    """Return the tokens of a piece without courtesy and empty words; verbatim pieces as their marks."""
    bare = _FILLER_CJK.sub(" ", _FILLER.sub(" ", _plain(piece)))
    return [token for token in _TOKEN.findall(bare) if token not in _EMPTY_WORDS]
