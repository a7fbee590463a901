"""Label Studio and Argilla: writes items to label as these tools import them, and reads their exports as rows of labels.

An item is a dialogue, a dialogue up to a turn, or a pair; a project of either tool asks the same questions of each. What an
item is about goes along with it and comes back, so an export needs nothing beside it. Formats: Label Studio's JSON of
tasks and annotations (labelstud.io/guide/task_format) and its labelling configuration; the folder that Argilla's
`Dataset.from_disk` reads, and the records that its `to_disk` writes (Argilla 2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from xml.sax.saxutils import quoteattr

import orjson

from curate.errors import UsageError
from curate.records import TURN_DIMENSIONS, VERDICTS
from curate.wording import plural

TOOLS: Final = ("label-studio", "argilla")
_LEVELS = ("1", "2", "3", "4", "5")
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "accept": ("accept", "reject"),
    "verdict": tuple(reversed(VERDICTS)),
    "adherence": ("yes", "no"),
    "better": ("a", "b", "tie"),
    "task_completion": (*_LEVELS, "n/a"),
    "repair_handling": (*_LEVELS, "n/a"),
}
_MOST_MESSAGES, _MOST_CHARACTERS = 500, 20_000
"""Lengths of a dialogue and of a message that Argilla's server accepts."""


@dataclass(frozen=True, slots=True)
class LabellingItem:
    """A text to show to an annotator, and the dialogue or pair it is about.

    Attributes:
        about: `draw`, `content`, `dialogue_id`, where there is one `turn` or `pair_id`; comes back with the answers.
        messages: what is shown, `role` and `content` each.
        sides: of a pair its two sides, in an order that says nothing.
    """

    about: Mapping[str, Any]
    messages: Sequence[Mapping[str, str]]
    sides: tuple[str, str] | None = None


def questions_about(
    dimensions: Sequence[str], metrics: Mapping[str, int] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the possible answers about each dimension; of levels the worst first.

    Args:
        dimensions: asked, `better` of pairs.
        metrics: highest level of each metric of a run by its dimension, 1 of pass and fail.
    """
    answers = {name: _WORDS.get(name, _LEVELS) for name in dimensions}
    for name, highest in (metrics or {}).items():
        if name in answers:
            levels = tuple(str(level) for level in range(highest + 1))
            answers[name] = (*(("fail", "pass") if highest == 1 else levels), "n/a")
    return answers


def check_one_kind(dimensions: Collection[str]) -> None:
    """Raise a UsageError where some dimensions are of turns and others of dialogues: a project asks all of each item."""
    of_turns = [name for name in dimensions if name in TURN_DIMENSIONS]
    if of_turns and len(of_turns) < len(dimensions):
        others = [name for name in dimensions if name not in TURN_DIMENSIONS]
        raise UsageError(
            "a project in that tool asks the same questions about every item",
            got=f"{', '.join(of_turns)} of turns, and {', '.join(others)} of dialogues",
            expected="dimensions of turns or of dialogues, chosen with --dimension",
            fix="draw twice with one --seed: the same dialogues come, once for each kind of question",
        )


def tool_files(
    tool: str, items: Sequence[LabellingItem], questions: Mapping[str, Sequence[str]], name: str
) -> dict[str, bytes]:
    """Return the files that a tool imports, by name.

    Args:
        tool: one of `TOOLS`.
        items: in the order in which they are to be answered.
        questions: asked of each item, with what may be answered.
        name: of the project.

    Raises:
        UsageError: an item is larger than the tool takes.
    """
    if tool == "label-studio":
        return {
            "tasks.json": orjson.dumps([_task(item) for item in items]),
            "config.xml": _label_config(questions).encode(),
        }
    return {
        "dataset.json": orjson.dumps({"name": name}),
        "settings.json": orjson.dumps(_argilla_settings(questions)),
        "records.json": orjson.dumps([_record(item) for item in items]),
    }


# ---- Label Studio


def _task(item: LabellingItem) -> dict[str, Any]:
    sides = {} if item.sides is None else dict(zip("ab", item.sides, strict=True))
    return {"data": {**item.about, "dialogue": item.messages, **sides}}


def _label_config(questions: Mapping[str, Sequence[str]]) -> str:
    """Return the interface of a project: the dialogue, where it is of pairs both sides, and one choice for each dimension."""
    shown = '  <Paragraphs name="dialogue" value="$dialogue" layout="dialogue" nameKey="role" textKey="content"/>\n'
    if "better" in questions:
        shown += "".join(
            f'  <Header value="{side}"/>\n  <Text name="{side}" value="${side}"/>\n'
            for side in "ab"
        )
    controls = "".join(
        f"  <Header value={quoteattr(name.replace('_', ' '))}/>\n"
        f'  <Choices name={quoteattr(name)} toName="dialogue" choice="single-radio" showInline="true" required="true">\n'
        + "".join(f"    <Choice value={quoteattr(one)}/>\n" for one in choices)
        + "  </Choices>\n"
        for name, choices in questions.items()
    )
    return f"<View>\n  <Style>.htx-text {{ white-space: pre-wrap; }}</Style>\n{shown}{controls}</View>\n"


def _annotated(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the answers of a task, skipped ones left out; of two by one person the last."""
    about = {name: value for name, value in task["data"].items() if name in _ABOUT}
    for annotation in task.get("annotations", ()):
        if annotation.get("was_cancelled"):
            continue
        who = annotation.get("completed_by")
        rater = who.get("email") or who.get("id") if isinstance(who, Mapping) else who
        time = annotation.get("updated_at") or annotation.get("created_at")
        for result in annotation.get("result", ()):
            for value in (result.get("value") or {}).get("choices", ()):
                yield _row(about, result["from_name"], value, rater) | {"time": time}


# ---- Argilla


def _record(item: LabellingItem) -> dict[str, Any]:
    # a message may not be empty, and has a maximum length
    pieces = [
        {"role": message["role"], "content": text[start : start + _MOST_CHARACTERS]}
        for message in item.messages
        for text in (message["content"] or " ",)
        for start in range(0, len(text), _MOST_CHARACTERS)
    ]
    if len(pieces) > _MOST_MESSAGES:
        raise UsageError(
            "a dialogue is longer than Argilla shows",
            got=f"{item.about['dialogue_id']}: {len(pieces):,} messages",
            expected=f"at most {_MOST_MESSAGES}, each of at most {_MOST_CHARACTERS:,} characters",
            fix="write a page instead (--out labels.html), or draw from shorter ones, such as --of 'n_turns <= 100'",
        )
    sides = {} if item.sides is None else dict(zip("ab", item.sides, strict=True))
    about = {name: value for name, value in item.about.items() if value is not None}
    key = "-".join(str(about[name]) for name in ("content", "turn", "pair_id") if name in about)
    return {"id": key, "fields": {"dialogue": pieces, **sides}, "metadata": about, "responses": {}}


def _argilla_settings(questions: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    def field(name: str, kind: str) -> dict[str, Any]:
        return {"name": name, "title": name, "settings": {"type": kind, "use_markdown": False}}

    sides = [field(side, "text") for side in "ab"] if "better" in questions else []
    fields_asked = [
        {
            "name": name,
            "title": name.replace("_", " "),
            "settings": {
                "type": "label_selection",
                "options": [{"value": one, "text": one} for one in choices],
            },
        }
        for name, choices in questions.items()
    ]
    return {
        "guidelines": None,
        "allow_extra_metadata": True,
        "fields": [
            {**field("dialogue", "chat"), "type": "chat"},
            *({**side, "type": "text"} for side in sides),
        ],
        "questions": [{**question, "type": "label_selection"} for question in fields_asked],
        "vectors": [],
        "metadata": [],
    }


def _responded(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the answers of a record; none of one that nobody submitted, whose answers are drafts or discarded."""
    if record.get("status") == "pending":
        return
    for name, responses in (record["responses"] or {}).items():
        for response in responses or ():
            yield _row(record["metadata"], name, response["value"], response.get("user_id"))


# ---- what they export

_ABOUT = ("draw", "content", "dialogue_id", "turn", "pair_id")


def _row(about: Mapping[str, Any], dimension: str, value: Any, rater: Any) -> dict[str, Any]:
    """Return a row of labels, as the file of `curate sample` has them."""
    row = {name: about.get(name) for name in _ABOUT if about.get(name) is not None}
    row |= {"dimension": dimension, "value": value, "rater": None if rater is None else str(rater)}
    return row | {"better": value} if dimension == "better" else row


def exported_rows(export: Any, path: object) -> list[dict[str, Any]]:
    """Return the answers of an export of either tool, as rows of labels.

    Args:
        export: the JSON of a file.
        path: of it, for the message.

    Raises:
        UsageError: it is none of these, or of a project that `curate sample` did not make.
    """
    entries = export if isinstance(export, list) else [export]
    rows: list[dict[str, Any]] = []
    for number, entry in enumerate(entries, 1):
        try:
            if "data" in entry:
                rows += _annotated(entry)
            else:
                rows += _responded(entry)
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                "the file is not an export of Label Studio or Argilla",
                got=f"{path}, entry {number}: {type(error).__name__} {error}",
                expected="Label Studio's export as JSON (not JSON-MIN), or records.json of Argilla's Dataset.to_disk",
            ) from error
    if entries and not any("content" in row or "pair_id" in row for row in rows):
        raise UsageError(
            "the export has no answers about dialogues that `curate sample` wrote",
            got=f"{path}: {plural(len(entries), 'entry', 'entries')}, {plural(len(rows), 'answer')}",
            expected="answers in a project made from `curate sample RUN --tool label-studio` or argilla",
        )
    return rows
