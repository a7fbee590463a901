"""Transcripts: one text with the speakers' marks in it, `User: … System: …`, with line breaks or without."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import pairwise

from curate.sources.unit_result import UnreadableError

_NAME = r"(?:\#{1,4}[ ]?|\*\*)?%s(?:\*\*|\#)?[ ]?[:：](?:\*\*)?"
_TOKEN = r"<\|[\w ]{1,24}\|>(?:user|assistant|system)?|<[A-Za-z][\w ]{0,24}>|\[\|?[A-Za-z][\w ]{0,24}\|?\]"
_WORD = r"(?:(?:Dr|Mr|Mrs|Ms|Prof)\. ?)?[^\W\d_][\w'’-]{0,23}"
_WORDS = _WORD + r"(?:[ ][\w'’-]{1,24}){0,2}"
_LINED = re.compile(rf"(?:(?<=\s)|\A)({_NAME % _WORDS}|{_TOKEN})")
"""What may be a speaker's mark where it opens a line: a name of one to three words and a colon, a token, a name in
brackets."""
_NAMED_LINE = re.compile(rf"\s*({_WORDS})[ ]?[:：](?!//)")
_INLINE = re.compile(rf"(?:(?<=\s)|\A)({_NAME % _WORD})|({_TOKEN})")
"""The same within a line, where the words before a name are not its own."""
MOST_SPEAKERS = 6
_LEAST_SHARE = 0.1


@lru_cache(maxsize=256)
def _pattern(marks: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(marks, key=len, reverse=True)
    return re.compile(r"(\A|\n|\s|)(" + "|".join(map(re.escape, longest_first)) + ")")


def split_at_marks(text: str, marks: Sequence[str]) -> list[tuple[str, str]]:
    """Split a transcript into marks and the text after each.

    A mark counts at the beginning of the text or a line. Where a text has fewer than two of these, it counts after
    any white space, too; a mark that does not open with a letter counts anywhere.

    Raises:
        UnreadableError: `bad_type` where text stands before the first mark, or there is no mark.
    """
    matches = [
        match
        for match in _pattern(tuple(marks)).finditer(text)
        if match[1] or match.start() == 0 or not match[2][0].isalpha()
    ]
    at_lines = [match for match in matches if _opens_line(text, match.start(2))]
    if len(at_lines) >= 2:
        matches = [match for match in matches if match in at_lines or not match[2][0].isalpha()]
    if not matches:
        raise UnreadableError("bad_type", f"the transcript has none of {', '.join(marks)}")
    if text[: matches[0].start(2)].strip():
        raise UnreadableError("bad_type", "there is text before the first speaker's mark")
    ends = [match.start(2) for match in matches[1:]] + [len(text)]
    return [
        (match[2], text[match.end(2) : end].strip())
        for match, end in zip(matches, ends, strict=True)
    ]


def split_at_names(text: str) -> list[tuple[str, str]]:
    """Split a transcript at the lines that open with a name and a colon; other lines go on with what was said.

    Returns:
        Names and texts.

    Raises:
        UnreadableError: `bad_type` where the first line opens with no name.
    """
    pieces: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        match = _NAMED_LINE.match(line)
        if match is not None:
            pieces.append((match[1].strip(), [line[match.end() :]]))
        elif pieces:
            pieces[-1][1].append(line)
        elif line.strip():
            raise UnreadableError(
                "bad_type", "the transcript does not open with a name and a colon"
            )
    if not pieces:
        raise UnreadableError("bad_type", "the transcript is empty")
    return [(name, "\n".join(lines).strip()) for name, lines in pieces]


def opens_lines_with_names(texts: Collection[str]) -> bool:
    """Return whether most texts are transcripts of two to six named people who speak in turn."""
    fitting = 0
    for text in texts:
        lines = [line for line in text.splitlines() if line.strip()]
        names = [match[1].strip() for line in lines if (match := _NAMED_LINE.match(line))]
        several = 2 <= len(set(names)) <= MOST_SPEAKERS and len(names) >= 3
        turns = sum(one != other for one, other in pairwise(names))
        fitting += several and len(names) * 10 >= len(lines) * 7 and turns * 2 >= len(names) - 1
    return fitting * 2 >= len(texts) > 0


def _opens_line(text: str, position: int) -> bool:
    while position > 0 and text[position - 1] in " \t\r":
        position -= 1
    return position == 0 or text[position - 1] == "\n"


def find_marks(texts: Collection[str]) -> list[str]:
    """Find the speakers' marks of transcripts: those that texts begin with, and others that are as frequent.

    Returns:
        Two to six marks, the commonest first; none where the texts are no transcripts of the same speakers.
    """
    mark_counts: Counter[str] = Counter()
    opening: Counter[str] = Counter()
    marks_by_text: list[set[str]] = []
    for text in texts:
        lined = [m[1] for m in _LINED.finditer(text) if _opens_line(text, m.start(1))]
        marks = lined
        if len(set(lined)) < 2:
            marks = _repeated([m[1] or m[2] for m in _INLINE.finditer(text)])
        if len(marks) >= 2 and text.lstrip().startswith(marks[0]):
            opening[marks[0]] += 1
            # In order of appearance, so that equally common marks keep it.
            mark_counts.update([*dict.fromkeys(marks)])
            marks_by_text.append(set(marks))
    if sum(opening.values()) * 2 < len(texts):
        return []
    least = max(1, _LEAST_SHARE * len(texts))
    usual = [mark for mark, number in mark_counts.most_common() if number >= least]
    usual = [mark for mark in usual if mark in opening or mark_counts[mark] * 2 >= len(texts)]
    covered = sum(len(marks.intersection(usual)) >= 2 for marks in marks_by_text)
    return usual if 2 <= len(usual) <= MOST_SPEAKERS and covered * 2 >= len(texts) else []


def _repeated(marks: list[str]) -> list[str]:
    """Return the marks within a line that come as often as a speaker's: two or more that repeat, or the two there are."""
    counts = Counter(marks)
    repeated = {mark for mark, number in counts.items() if number >= 2}
    speakers = repeated if len(repeated) >= 2 else set(counts) if len(counts) == 2 else set()
    return [mark for mark in marks if mark in speakers]


def speaker_of(mark: str) -> str:
    """Return the name in a mark: `Human` for `### Human:`."""
    return mark.strip("#*<|>[]:： ")
