"""Names that a text itself marks as names: by an introduction, a title, a greeting, a signature or a form's field.

No list of names and no model: a name is a capitalised word or several behind such a mark, and the same words wherever
else they stand in the text. A name that nothing introduces is not found; docs/reliability.md has the share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORD = r"[^\W\d_a-zß-öø-ÿ][^\W\d_]*(?:['’-][^\W\d_]+)*\.?"
_PARTICLE = r"(?:van|von|der|den|de|del|della|da|das|do|dos|di|du|la|le|bin|ibn|el|al|ter|af|av|y)"
_NAME = re.compile(
    rf"(?:{_PARTICLE}[ \u00a0]){{0,2}}{_WORD}(?:[ \u00a0](?:{_PARTICLE}[ \u00a0]){{0,2}}{_WORD}){{0,3}}"
)
_INTRODUCTIONS = (
    *(
        "my name is",
        "my name's",
        "my full name is",
        "the name is",
        "name is",
        "name's",
        "i am called",
    ),
    *("mein name ist", "ich heiße", "ich heisse", "je m'appelle", "je m’appelle", "mon nom est"),
    *(
        "me llamo",
        "mi nombre es",
        "mi chiamo",
        "il mio nome è",
        "meu nome é",
        "me chamo",
        "chamo-me",
    ),
    *("mijn naam is", "ik heet", "nazywam się", "mam na imię", "jag heter", "mitt namn är"),
    *("jeg hedder", "jeg heter", "mit navn er", "mitt navn er", "nimeni on", "minun nimeni on"),
)
_TITLES = (
    *(
        "Mr",
        "Mrs",
        "Ms",
        "Miss",
        "Dr",
        "Prof",
        "Herr",
        "Herrn",
        "Frau",
        "Monsieur",
        "Madame",
        "Mme",
    ),
    *(
        "Señor",
        "Señora",
        "Sr",
        "Sra",
        "Signor",
        "Signora",
        "Sig",
        "Senhor",
        "Senhora",
        "Dhr",
        "Mevrouw",
    ),
    *("Mevr", "Meneer", "Pan", "Pani", "Hr", "Fru", "Rouva"),
)
_FIELDS = r"(?:first|last|full|given|family|middle|customer|passenger|guest|contact|user)?[ _]?name"
_MARK = re.compile(
    rf"(?i:\b(?:{'|'.join(_INTRODUCTIONS)})[ \u00a0:]+)"
    rf"|\b(?:{'|'.join(_TITLES)})\b\.?[ \u00a0]"
    rf"|\bDear[ ](?!(?:{'|'.join(_TITLES)})\b)|\b(?i:regards|sincerely|grüßen|cordialement|saludos|groeten),?\s{{1,3}}"
    rf"|(?<![\w$])(?i:{_FIELDS})[\"']?[ ]?[:=][ ]?[\"']?"
)
_NOT_NAMES = frozenset(
    [
        "All",
        "Sir",
        "Madam",
        "Customer",
        "Customers",
        "Team",
        "Support",
        "Friend",
        "Everyone",
        "Agent",
        "Assistant",
        "User",
        "I",
        "It",
        "The",
        "A",
        "An",
        "My",
        "Your",
        "Yes",
        "No",
        "None",
        "Null",
        "True",
        "False",
        "And",
        "But",
        "Thanks",
        "Thank",
        "Hello",
        "Hi",
    ]
)


def find_names(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each name that is marked as one, and of the same words elsewhere."""
    words: dict[str, None] = {}
    for mark in _MARK.finditer(text):
        name = _NAME.match(text, mark.end())
        if name is None:
            continue
        for word in re.findall(_WORD, name[0]):
            if len(word.rstrip(".")) > 1 and word.rstrip(".") not in _NOT_NAMES:
                words[re.escape(word.rstrip("."))] = None
    if not words:
        return
    word = rf"(?<!\w)(?:{'|'.join(words)})(?!\w)"
    joined = rf"{word}(?:[ \u00a0](?:{_PARTICLE}[ \u00a0]){{0,2}}{word})*"
    for found in re.finditer(joined, text):
        yield found.span()
