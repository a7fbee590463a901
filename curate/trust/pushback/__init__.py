"""Detects users who correct, object or redirect, by words that people do it with: lists in files, one for each language.

The words are a coarse net: they let things through and catch some that are harmless, so a figure made of them is
for a whole run, and the dialogues behind it are for people to read. A dialogue in a language without a list is
said to have none, never to be free of pushback.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache
from importlib import resources

from curate.dialogue import Dialogue

_NAMES = {
    "en": ("en", "eng", "english"),
    "es": ("es", "spa", "spanish", "español", "castellano"),
    "zh": ("zh", "zho", "chi", "cmn", "chinese", "mandarin", "中文"),
    "de": ("de", "deu", "ger", "german", "deutsch"),
    "fr": ("fr", "fra", "fre", "french", "français"),
}
_CODE = {name: code for code, names in _NAMES.items() for name in names}
LANGUAGES = tuple(_NAMES)
_OF_SCRIPT = {"LATIN": ("en", "es", "de", "fr"), "CJK": ("zh",)}
"""Lists for a message whose language is not stated, by its script."""
_LETTERS = 400
"""So many letters tell a script."""
_QUOTES = str.maketrans({"’": "'", "‘": "'", "\uff0c": ","})
"""Curly apostrophes and full-width commas as the lists write them."""


def has_pushback(dialogue: Dialogue) -> bool | str:
    """Return whether a user pushes back after an answer; or the language or script that there is no list for.

    The language is that of the dialogue's metadata (`language` or `lang`); where it says none, all lists of a
    message's script are tried.
    """
    openings = [
        message.content
        for before, turn in zip(dialogue.turns, dialogue.turns[1:], strict=False)
        if before.has_assistant
        for message in turn.messages
        if message.role == "user"
    ]
    unknown = ""
    for text in openings:
        languages = _languages(dialogue, text)
        if isinstance(languages, str):
            unknown = languages
        elif any(_pattern(name).search(text.translate(_QUOTES)) for name in languages):
            return True
    return unknown or False


def _languages(dialogue: Dialogue, text: str) -> tuple[str, ...] | str:
    stated = dialogue.metadata.get("language", dialogue.metadata.get("lang"))
    if isinstance(stated, str) and stated.strip():
        name = re.split(r"[-_ (]", stated.strip().lower())[0]
        return (_CODE[name],) if name in _CODE else stated.strip()[:40]
    script = _script(text)
    return _OF_SCRIPT[script] if script in _OF_SCRIPT else f"{script.capitalize()} script"


def _script(text: str) -> str:
    """Return the commonest script of the first letters; Japanese where there is kana, whatever else there is."""
    if text.isascii():
        return "LATIN"
    letters = [char for char in text[: 4 * _LETTERS] if char.isalpha()][:_LETTERS]
    scripts = Counter(unicodedata.name(char, "UNKNOWN").split()[0] for char in letters)
    for kana in ("HIRAGANA", "KATAKANA"):
        if kana in scripts:
            return "JAPANESE"
    return scripts.most_common(1)[0][0] if scripts else "LATIN"


@cache
def _pattern(language: str) -> re.Pattern[str]:
    """Return a pattern of all words of a list: whole words where the script has spaces, `^` at the start of a sentence."""
    file = resources.files(__package__) / f"{language}.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    words = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    text = {word: re.escape(word.removeprefix("^").translate(_QUOTES)) for word in words}
    first = "|".join(text[word] for word in text if word.startswith("^"))
    anywhere = "|".join(text[word] for word in text if not word.startswith("^"))
    # What stands before a word is looked at once for all of them: a list of whole patterns takes ten times as long.
    begin, end = ("", "") if language == "zh" else (r"(?<!\w)", r"(?!\w)")
    sentence = r"(?:^|[.!?\u3002\uff01\uff1f…]\s*)"
    parts = [
        f"{sentence}(?:{first})" if first else "",
        f"{begin}(?:{anywhere})" if anywhere else "",
    ]
    pattern = f"(?:{'|'.join(filter(None, parts))}){end}"
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)
