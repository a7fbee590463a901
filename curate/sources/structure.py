"""Conversations found by structure: lists of items with something like a speaker and something like a text.

Nothing here knows a format. A list is looked for at any depth up to three, under any key; in its items a speaker is
a field of few values that alternate, and a text the field that reads most like one. What is found is a mapping as a
recipe writes it, and whether it is certain; `proposal` tries it on the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from curate.sources.chats import REPLY_KEYS, USER_KEYS
from curate.sources.messages import ROLES, speaker_name
from curate.sources.parties import guess_roles
from curate.sources.selectors import Parse, parsed, selector_of
from curate.sources.structure_objects import (
    ANSWERS,
    LIST_KEYS,
    QUESTIONS,
    Path,
    ProposedMapping,
    at_path,
    is_named,
    is_speaker,
    is_text,
    of_objects,
    reads_like_text,
    text_path,
)
from curate.sources.transcripts import find_marks, opens_lines_with_names, speaker_of
from curate.sources.unit_result import Row

DEPTH = 3
_MOST_KEYS = 60
_LONG = 20_000
"""Characters of a text that are looked at for speakers' marks."""


def candidates(rows: Sequence[Row]) -> Iterator[ProposedMapping]:
    """Ways to read rows as conversations, in no order."""
    for parse in (None, "json", "python"):
        found = False
        for path, values in _values(rows, parse):
            for candidate in _of_path(path, values, rows):
                found = True
                read_as = {"parse": parse} if parse else {}
                doubts = (
                    (*candidate.doubts, f"the list is {parse} text")
                    if parse == "python"
                    else candidate.doubts
                )
                yield ProposedMapping(read_as | candidate.mapping, candidate.found, doubts)
        if found:
            return


def _values(rows: Sequence[Row], parse: Parse | None) -> Iterator[tuple[Path, list[Any]]]:
    """Collect the values at every path of keys, for the paths that half of the rows have; text parsed where it is to be."""
    values: dict[Path, list[Any]] = {}

    def walk(value: Any, path: Path) -> None:
        if parse and isinstance(value, str):
            value = parsed(value, parse)
        if path:
            values.setdefault(path, []).append(value)
        if isinstance(value, dict) and len(path) < DEPTH:
            for key, inner in list(value.items())[:_MOST_KEYS]:
                if '"' not in key:  # no selector says such a key
                    walk(inner, (*path, key))

    for row in rows:
        walk(row, ())
    for path, there in values.items():
        there = [value for value in there if value is not None]
        if there and len(there) * 2 >= len(rows):
            yield path, there


def _of_path(path: Path, values: list[Any], rows: Sequence[Row]) -> Iterator[ProposedMapping]:
    lists = [value for value in values if isinstance(value, list) and value]
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    columns = [value for value in values if isinstance(value, dict) and _is_columns(value)]
    if len(lists) * 2 >= len(values):
        items = [item for value in lists for item in value]
        each = selector_of((*path, None))
        yield from _of_exchanges(path, lists, rows)
        if _most(items, dict):
            objects = [[item for item in value if isinstance(item, dict)] for value in lists]
            yield from of_objects(each, objects)
        elif _most(items, list) and all(len(item) == 2 for item in items if isinstance(item, list)):
            yield from _of_pairs(each, lists)
        elif _most(items, str):
            yield from _of_texts(path, lists, rows)
    elif len(columns) * 2 >= len(values):
        names = [name for name in columns[0] if isinstance(columns[0][name], list)]
        zipped = [
            [
                dict(zip(names, entry, strict=False))
                for entry in zip(*(value.get(name, []) for name in names), strict=False)
            ]
            for value in columns
        ]
        yield from of_objects({name: selector_of((*path, name, None)) for name in names}, zipped)
    elif len(texts) * 2 >= len(values):
        yield from _of_transcripts(path, texts)


def _most(items: Sequence[Any], kind: type) -> bool:
    return bool(items) and sum(isinstance(item, kind) for item in items) >= 0.9 * len(items)


def _is_columns(value: dict[str, Any]) -> bool:
    """A dict of lists of one length, as column stores keep a list of objects."""
    lengths = {len(inner) for inner in value.values() if isinstance(inner, list)}
    return (
        len(value) >= 2
        and len(lengths) == 1
        and min(lengths) >= 2
        and all(isinstance(inner, list) for inner in value.values())
    )


def _of_pairs(each: str, lists: list[list[Any]]) -> Iterator[ProposedMapping]:
    """Pairs of a speaker and a text, or of a question and an answer."""
    objects = [
        [{"0": item[0], "1": item[1]} for item in value if isinstance(item, list)]
        for value in lists
    ]
    items = [item for value in objects for item in value]
    if not is_text(("1",), items):
        return
    if is_speaker(("0",), [value for value in objects if len(value) >= 2] or objects):
        roles, doubts = guess_roles(
            [[speaker_name(item["0"]) for item in value] for value in objects]
        )
        message = {"role_from": "[0]", "text": "[1]"}
        yield ProposedMapping(
            {"each": each, "messages": [message]} | roles,
            "pairs of speaker and text",
            tuple(doubts),
        )
    elif is_text(("0",), items):
        messages = [{"role": "user", "text": "[0]"}, {"role": "assistant", "text": "[1]"}]
        yield ProposedMapping(
            {"each": each, "messages": messages},
            "pairs of texts",
            ("the first is taken for the user",),
        )


def _of_texts(path: Path, lists: list[list[Any]], rows: Sequence[Row]) -> Iterator[ProposedMapping]:
    """Texts beside a list of their speakers, texts that open with their speaker, or texts taken in turn."""
    texts = [text for value in lists for text in value if isinstance(text, str)]
    words = [max(len(text.split()), len(text) / 6) for text in texts]
    if not reads_like_text(texts) or fmean(words) < 2:
        return
    each = selector_of((*path, None))
    for other, columns in _beside(path, rows):
        names = [[{"speaker": name} for name in column] for column in columns]
        flat = [item for column in names for item in column]
        if is_speaker(("speaker",), names) and not is_text(("speaker",), flat):
            spoken = [[speaker_name(name) for name in column] for column in columns]
            roles, doubts = guess_roles(spoken)
            parallel = selector_of((*other, None))
            message = {"role_from": "speaker", "text": "text"}
            mapping = {"each": {"speaker": parallel, "text": each}, "messages": [message]} | roles
            words_of = f"texts in '{each}', their speakers in '{parallel}'"
            yield ProposedMapping(mapping, words_of, tuple(doubts))
            return
    marked = list(_of_transcripts(path, ["\n".join(map(str, value)) for value in lists]))
    for candidate in marked:
        yield ProposedMapping(candidate.mapping | {"each": each}, candidate.found, candidate.doubts)
    if not marked and LIST_KEYS.search(".".join(path)) and fmean(map(len, lists)) >= 2:
        in_turn = {"role_in_turn": ["user", "assistant"], "text": "."}
        in_order = ("roles are taken in turn",)
        yield ProposedMapping({"each": each, "messages": [in_turn]}, f"texts in '{each}'", in_order)


def _of_exchanges(
    path: Path, lists: list[list[Any]], rows: Sequence[Row]
) -> Iterator[ProposedMapping]:
    """Questions beside a list of their answers, both of them texts or objects with a text."""
    if not is_named(path, USER_KEYS, QUESTIONS):
        return
    for other, columns in _beside(path, rows):
        asked, replied = _text_in(lists), _text_in(columns)
        if is_named(other, REPLY_KEYS, ANSWERS) and asked is not None and replied is not None:
            questions, answers = selector_of((*path, None)), selector_of((*other, None))
            messages = [
                {"role": "user", "text": selector_of(("question", *asked))},
                {"role": "assistant", "text": selector_of(("answer", *replied))},
            ]
            mapping = {"each": {"question": questions, "answer": answers}, "messages": messages}
            words = f"questions in '{questions}' and answers in '{answers}'"
            yield ProposedMapping(mapping, words, ("roles are guessed from the keys",))
            return


def _text_in(lists: list[list[Any]]) -> Path | None:
    """Find where the text of the items stands: nowhere below texts, or at a path within objects; None without text."""
    items = [item for value in lists for item in value]
    if _most(items, str):
        return () if reads_like_text(items) else None
    return text_path([item for item in items if isinstance(item, dict)])


def _beside(path: Path, rows: Sequence[Row]) -> Iterator[tuple[Path, list[list[Any]]]]:
    """Lists beside the one at a path that are as long in nearly every row."""
    parents = [
        (parent, own)
        for row in rows
        if isinstance(parent := at_path(row, path[:-1]), dict)
        and isinstance(own := at_path(row, path), list)
    ]
    names = {
        key
        for parent, _ in parents
        for key, value in parent.items()
        if isinstance(value, list) and key != path[-1]
    }
    for name in sorted(names):
        columns = [
            parent[name]
            for parent, own in parents
            if isinstance(parent.get(name), list) and len(parent[name]) == len(own)
        ]
        if len(columns) >= 0.9 * len(parents):
            yield (*path[:-1], name), columns


def _of_transcripts(path: Path, texts: list[str]) -> Iterator[ProposedMapping]:
    marks = find_marks([text[:_LONG] for text in texts])
    each = selector_of(path)
    if not marks:
        if opens_lines_with_names([text[:_LONG] for text in texts]):
            mapping = {"each": each, "split": "names", "in_order": ["user", "assistant"]}
            doubts = ["who speaks first is taken for the user"]
            yield ProposedMapping(
                mapping, f"a transcript in '{each}' with people's names", tuple(doubts)
            )
        return
    openers = Counter(mark for text in texts for mark in marks if text.lstrip().startswith(mark))
    first = [speaker_of(mark) for mark, _ in openers.most_common()]
    names = [speaker_of(mark) for mark in marks]
    order = sorted(names, key=lambda name: name not in first)
    roles, _ = guess_roles([order])
    given = roles.get("roles", {})
    split = {
        mark: given.get(name) or ROLES.get(name.lower(), "skip")
        for mark, name in zip(marks, names, strict=True)
    }
    lined = all("\n" in text for text in texts)
    parties = [ROLES.get(name.lower()) for name in names]
    doubts = [] if lined else ["speakers' marks stand within lines"]
    if not {"user", "assistant"} <= set(parties) or None in parties:
        doubts.append("roles are guessed from the marks")
    yield ProposedMapping(
        {"each": each, "split": split},
        f"a transcript in '{each}' with the marks {', '.join(marks)}",
        tuple(doubts),
    )


def row_selectors(value: Any) -> Iterable[str]:
    """List where rows may be within a file that holds one object: its values, or those of a key."""
    if not isinstance(value, dict):
        return
    if len(value) >= 2 and all(
        isinstance(inner, dict | list) and inner for inner in value.values()
    ):
        yield "*"
    for key, inner in list(value.items())[:_MOST_KEYS]:
        if '"' in key:
            continue
        if isinstance(inner, list) and _most(inner, dict):
            yield selector_of((key, None))
        elif (
            isinstance(inner, dict)
            and len(inner) >= 2
            and all(isinstance(one, dict | list) for one in inner.values())
        ):
            yield f"{selector_of((key,))}.*"
