"""Conversations found by structure: lists of items with something like a speaker and something like a text.

Nothing here knows a format. A list is looked for at any depth up to three, under any key; in its items a speaker is
a field of few values that alternate, and a text the field that reads most like one. What is found is a mapping as a
recipe writes it, and whether it is certain; `proposal` tries it on the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from curate.sources.messages import ROLES
from curate.sources.parties import guess_roles
from curate.sources.selectors import Parse, parsed, selector_of
from curate.sources.structure_objects import (
    LIST_KEYS,
    ItemField,
    Path,
    ProposedMapping,
    is_said_by,
    mean_words,
    of_objects,
    reads_like_text,
    text_path,
)
from curate.sources.transcripts import find_marks, opens_lines_with_names, speaker_of
from curate.sources.unit_result import SourceRow

DEPTH = 3
_MOST_KEYS = 60
_LONG = 20_000
"""Characters of a text that are looked at for speakers' marks."""

Values = dict[Path, dict[int, Any]]
"""The values other than null at each path of keys, by the place of their row."""


def candidates(rows: Sequence[SourceRow]) -> Iterator[ProposedMapping]:
    """Yield ways to read rows as conversations, in no order; text is parsed only where rows as they are give none."""
    for parse in (None, "json", "python"):
        values = _values(rows, parse)
        ways = [
            way
            for path, by_row in values.items()
            if len(by_row) * 2 >= len(rows)
            for way in _of_path(path, list(by_row.values()), values)
        ]
        read_as = {"parse": parse} if parse else {}
        doubt = ("the list is python text",) if parse == "python" else ()
        for way in ways:
            yield replace(way, mapping=read_as | way.mapping, doubts=way.doubts + doubt)
        if ways:
            return


def _values(rows: Sequence[SourceRow], parse: Parse | None) -> Values:
    values: Values = {}

    def walk(row: int, value: Any, path: Path) -> None:
        if parse and isinstance(value, str):
            value = parsed(value, parse)
        if path and value is not None:
            values.setdefault(path, {})[row] = value
        if isinstance(value, dict) and len(path) < DEPTH:
            for key, inner in list(value.items())[:_MOST_KEYS]:
                if '"' not in key:  # no selector has such a key
                    walk(row, inner, (*path, key))

    for number, row in enumerate(rows):
        walk(number, row, ())
    return values


def _of_path(path: Path, there: list[Any], values: Values) -> Iterator[ProposedMapping]:
    """Yield ways to read conversations at a path, by what most of the values there are."""
    lists = [value for value in there if isinstance(value, list) and value]
    tables = [value for value in there if isinstance(value, dict) and _is_table(value)]
    texts = [value for value in there if isinstance(value, str) and value.strip()]
    if len(lists) * 2 >= len(there):
        yield from _of_lists(path, lists, values)
    elif len(tables) * 2 >= len(there):
        names = list(tables[0])
        objects = [
            [
                dict(zip(names, entry, strict=True))
                for entry in zip(*(table.get(name, []) for name in names), strict=False)
            ]
            for table in tables
        ]
        yield from of_objects({name: selector_of((*path, name, None)) for name in names}, objects)
    elif len(texts) * 2 >= len(there):
        yield from _of_transcripts(selector_of(path), texts)


def _of_lists(path: Path, lists: list[list[Any]], values: Values) -> Iterator[ProposedMapping]:
    items = [item for value in lists for item in value]
    each = selector_of((*path, None))
    yield from _of_exchanges(path, lists, values)
    if _most(items, dict):
        yield from of_objects(each, [_only(value, dict) for value in lists])
    elif _most(items, list) and all(len(item) == 2 for item in _only(items, list)):
        yield from _of_pairs(each, [_only(value, list) for value in lists])
    elif _most(items, str):
        yield from _of_texts(path, lists, values)


def _most(items: Sequence[Any], kind: type) -> bool:
    return bool(items) and len(_only(items, kind)) >= 0.9 * len(items)


def _only(items: Sequence[Any], kind: type) -> list[Any]:
    return [item for item in items if isinstance(item, kind)]


def _is_table(value: dict[str, Any]) -> bool:
    """Return whether a value is an object of lists of one length, as column stores keep a list of objects."""
    lengths = {len(inner) if isinstance(inner, list) else 0 for inner in value.values()}
    return len(value) >= 2 and len(lengths) == 1 and lengths.pop() >= 2


def _of_pairs(each: str, lists: list[list[list[Any]]]) -> Iterator[ProposedMapping]:
    """Yield the way to read pairs of a speaker and a text, or of a question and an answer."""
    first, second = (
        ItemField((str(at),), [[pair[at] for pair in pairs] for pairs in lists]) for at in (0, 1)
    )
    longer = ItemField(first.path, [column for column in first.columns if len(column) >= 2])
    if second.is_text and longer.is_speaker:
        roles, doubts = guess_roles(first.names)
        messages = [{"role_from": "[0]", "text": "[1]"}]
        mapping = {"each": each, "messages": messages} | roles
        yield ProposedMapping(mapping, "pairs of speaker and text", tuple(doubts))
    elif second.is_text and first.is_text:
        messages = [{"role": "user", "text": "[0]"}, {"role": "assistant", "text": "[1]"}]
        doubts = ["the first is taken for the user"]
        mapping = {"each": each, "messages": messages}
        yield ProposedMapping(mapping, "pairs of texts", tuple(doubts))


def _of_texts(path: Path, lists: list[list[Any]], values: Values) -> Iterator[ProposedMapping]:
    """Yield ways to read texts: beside a list of their speakers, each after its speaker's mark, or in turn."""
    texts = _only([text for value in lists for text in value], str)
    if not reads_like_text(texts) or mean_words(texts) < 2:
        return
    each = selector_of((*path, None))
    for other, columns in _beside(path, values):
        speaker = ItemField(("speaker",), columns)
        if speaker.is_speaker and not speaker.is_text:
            roles, doubts = guess_roles(speaker.names)
            speakers = selector_of((*other, None))
            message = {"role_from": "speaker", "text": "text"}
            mapping = {"each": {"speaker": speakers, "text": each}, "messages": [message]} | roles
            description = f"texts in '{each}', their speakers in '{speakers}'"
            yield ProposedMapping(mapping, description, tuple(doubts))
            return
    marked = list(
        _of_transcripts(selector_of(path), ["\n".join(map(str, value)) for value in lists])
    )
    for way in marked:
        yield replace(way, mapping=way.mapping | {"each": each})
    if not marked and LIST_KEYS.search(".".join(path)) and fmean(map(len, lists)) >= 2:
        messages = [{"role_in_turn": ["user", "assistant"], "text": "."}]
        doubts = ["roles are taken in turn"]
        yield ProposedMapping(
            {"each": each, "messages": messages}, f"texts in '{each}'", tuple(doubts)
        )


def _of_exchanges(path: Path, lists: list[list[Any]], values: Values) -> Iterator[ProposedMapping]:
    """Yield the way to read questions beside a list of their answers, both texts or objects with a text."""
    question = _text_in(lists) if is_said_by("user", path) else None
    if question is None:
        return
    for other, columns in _beside(path, values):
        answer = _text_in(columns) if is_said_by("assistant", other) else None
        if answer is not None:
            questions, answers = selector_of((*path, None)), selector_of((*other, None))
            messages = [
                {"role": "user", "text": selector_of(("question", *question))},
                {"role": "assistant", "text": selector_of(("answer", *answer))},
            ]
            mapping = {"each": {"question": questions, "answer": answers}, "messages": messages}
            description = f"questions in '{questions}' and answers in '{answers}'"
            yield ProposedMapping(mapping, description, ("roles are guessed from the keys",))
            return


def _text_in(lists: list[list[Any]]) -> Path | None:
    """Return the path of the text within the items, which is empty for texts; None without text."""
    items = [item for value in lists for item in value]
    if _most(items, str):
        return () if reads_like_text(items) else None
    return text_path(_only(items, dict))


def _beside(path: Path, values: Values) -> Iterator[tuple[Path, list[list[Any]]]]:
    """Yield the lists under the same parent as the one at a path that are as long in nearly every row."""
    own = {row: value for row, value in values[path].items() if isinstance(value, list)}
    for other in sorted(values):
        if other[:-1] == path[:-1] and other != path:
            columns = [
                value
                for row, value in values[other].items()
                if isinstance(value, list) and row in own and len(value) == len(own[row])
            ]
            if len(columns) >= 0.9 * len(own):
                yield other, columns


def _of_transcripts(each: str, texts: list[str]) -> Iterator[ProposedMapping]:
    """Yield the way to read texts with speakers' marks, or with names that open the lines."""
    starts = [text[:_LONG] for text in texts]
    marks = find_marks(starts)
    if not marks:
        if opens_lines_with_names(starts):
            mapping = {"each": each, "split": "names", "in_order": ["user", "assistant"]}
            description = f"a transcript in '{each}' with people's names"
            yield ProposedMapping(mapping, description, ("who speaks first is taken for the user",))
        return
    openers = {mark for text in texts for mark in marks if text.lstrip().startswith(mark)}
    names = [speaker_of(mark) for mark in marks]
    first = {speaker_of(mark) for mark in openers}
    roles, _ = guess_roles([sorted(names, key=lambda name: name not in first)])
    guessed = roles.get("roles", {})
    usual_roles = [ROLES.get(name.lower()) for name in names]
    split = {
        mark: guessed.get(name) or role or "skip"
        for mark, name, role in zip(marks, names, usual_roles, strict=True)
    }
    doubts = []
    if not all("\n" in text for text in texts):
        doubts.append("speakers' marks stand within lines")
    if not {"user", "assistant"} <= set(usual_roles) or None in usual_roles:
        doubts.append("roles are guessed from the marks")
    description = f"a transcript in '{each}' with the marks {', '.join(marks)}"
    yield ProposedMapping({"each": each, "split": split}, description, tuple(doubts))


def row_selectors(value: Any) -> Iterator[str]:
    """Yield where rows may be within a file that holds one object: its values, or those of a key."""
    if not isinstance(value, dict):
        return
    if _holds_many(value) and all(value.values()):
        yield "*"
    for key, inner in list(value.items())[:_MOST_KEYS]:
        if '"' in key:
            continue
        if isinstance(inner, list) and _most(inner, dict):
            yield selector_of((key, None))
        elif isinstance(inner, dict) and _holds_many(inner):
            yield f"{selector_of((key,))}.*"


def _holds_many(value: dict[str, Any]) -> bool:
    return len(value) >= 2 and all(isinstance(inner, dict | list) for inner in value.values())
