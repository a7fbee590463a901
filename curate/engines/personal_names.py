"""Names that a text itself marks as names: by an introduction, a title, a greeting, a signature or a form's field.

No list of names and no model: a name is a capitalised word or several behind such a mark, and the same words wherever
else they stand in the text. A name that nothing marks is not found (docs/reliability.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_MOST_PARTS = 6  # of a word such as `Jean-Luc`
_WORD = (
    rf"[^\W\d_a-zß-öø-ÿ](?:\.|[^\W\d_]*(?:['’-][^\W\d_]+){{0,{_MOST_PARTS - 1}}})"  # `J.` or a word
)
_PART = re.compile(r"\w+")
_JOINED_PART = re.compile(r"['’-]\w+")
_PARTICLE = r"(?:van|von|der|den|de|del|della|da|das|do|dos|di|du|la|le|bin|ibn|el|al|ter|af|av|y)"
_NAME = re.compile(
    rf"(?:{_PARTICLE}[ \u00a0]){{0,2}}{_WORD}(?:[ \u00a0](?:{_PARTICLE}[ \u00a0]){{0,2}}{_WORD}){{0,3}}"
)
_GAP = re.compile(rf"[ \u00a0](?:{_PARTICLE}[ \u00a0]){{0,2}}")
_INTRODUCTIONS = (
    "my name is|my name's|my full name is|the name is|name is|name's|i am called"
    "|mein name ist|ich heiße|ich heisse|je m'appelle|je m’appelle|mon nom est"
    "|me llamo|mi nombre es|mi chiamo|il mio nome è|meu nome é|me chamo|chamo-me"
    "|mijn naam is|ik heet|nazywam się|mam na imię|jag heter|mitt namn är"
    "|jeg hedder|jeg heter|mit navn er|mitt navn er|nimeni on|minun nimeni on"
)
_TITLES = (
    "Mr|Mrs|Ms|Miss|Dr|Prof|Herr|Herrn|Frau|Monsieur|Madame|Mme"
    "|Señor|Señora|Sr|Sra|Signor|Signora|Sig|Senhor|Senhora|Dhr|Mevrouw|Mevr|Meneer|Pan|Pani|Hr|Fru|Rouva"
)
_FIELDS = r"(?:first|last|full|given|family|middle|customer|passenger|guest|contact|user)?[ _]?name"
_MARK = re.compile(
    rf"(?i:\b(?:{_INTRODUCTIONS})[ \u00a0:]+)"
    rf"|\b(?:{_TITLES})\b\.?[ \u00a0]"
    rf"|\bDear[ ](?!(?:{_TITLES})\b)|\b(?i:regards|sincerely|grüßen|cordialement|saludos|groeten),?\s{{1,3}}"
    rf"|(?<![\w$])(?i:{_FIELDS})[\"']?[ ]?[:=][ ]?[\"']?"
)
_OTHER_WORDS = (
    "All|Sir|Madam|Customer|Customers|Team|Support|Friend|Everyone|Agent|Assistant|User"
    "|I|It|The|A|An|My|Your|Yes|No|None|Null|True|False|And|But|Thanks|Thank|Hello|Hi"
)
_NOT_NAMES = frozenset(f"{_TITLES}|{_OTHER_WORDS}".split("|"))


def find_names(text: str, words: Collection[str] | None = None) -> Iterator[tuple[int, int]]:
    """Yield start and end of each name in a text: of the words that it marks as names, wherever they stand.

    Words one blank or a particle apart are one name. Linear in the text, however many names it marks.

    Args:
        text: any text.
        words: words that are names, such as `marked_words` of texts about the same people; None for the text's own.
    """
    words = marked_words(text) if words is None else words
    firsts = {part[0] for word in words if (part := _PART.match(word))}
    start = end = -1
    for part in _PART.finditer(text) if words else ():
        if part.start() < end or part[0] not in firsts:
            continue
        word_end = _longest_word(text, part, words)
        if word_end is None:
            continue
        if start < 0 or not _GAP.fullmatch(text, end, part.start()):
            if start >= 0:
                yield start, end
            start = part.start()
        end = word_end
    if start >= 0:
        yield start, end


def marked_words(text: str) -> set[str]:
    """Return the words of all names behind a mark, without titles and words that are no names."""
    words: set[str] = set()
    for mark in _MARK.finditer(text):
        name = _NAME.match(text, mark.end())
        if name is not None:
            words.update(word.rstrip(".") for word in re.findall(_WORD, name[0]))
    return {word for word in words if len(word) > 1} - _NOT_NAMES


def _longest_word(text: str, first: re.Match[str], words: Collection[str]) -> int | None:
    """Return the end of the longest of the words that begin with this part; None where none does."""
    longest, end = None, first.end()
    for _ in range(_MOST_PARTS):
        if text[first.start() : end] in words:
            longest = end
        joined = _JOINED_PART.match(text, end)
        if joined is None:
            break
        end = joined.end()
    return longest
