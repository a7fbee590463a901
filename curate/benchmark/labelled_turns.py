"""Reads a labelled file as the turns that methods score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from curate.adherence.reference.cases import Case, cases_of
from curate.dialogue import Dialogue, Message
from curate.errors import SourceError, UsageError
from curate.sources import SourceConfig, open_source
from curate.sources.config import RoleFrom
from curate.wording import plural

ADHERENT = "adherent"
VIOLATION = "violation"
"""Kind of violation where the label is only true or false."""

_HISTORY = TypeAdapter(tuple[Message, ...])


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """The last assistant turn of a dialogue, with its label."""

    dialogue: Dialogue
    case: Case
    label: str

    @property
    def is_adherent(self) -> bool:
        """True for the positive class."""
        return self.label == ADHERENT


def read_turns(
    source: SourceConfig,
    *,
    role: str | None = None,
    role_from: RoleFrom = "data",
    field: str = "label",
    adherent: str = ADHERENT,
) -> list[LabelledTurn]:
    """Read a benchmark: any shape that curate reads, the last assistant turn of each dialogue labelled.

    Args:
        source: the file and how to read it.
        role: role definition of dialogues that carry none.
        role_from: `recipe` puts `role` before what the data says.
        field: label that says what the turn is.
        adherent: value of that label for a turn that keeps to its role; any other names a violation.

    Raises:
        UsageError: a row has no label, or all have the same class.
        SourceError: nothing can be read, or a row is quarantined: rows must keep their numbers.
    """
    dialogues: list[Dialogue] = []
    for unit in open_source(source).read(role, role_from=role_from):
        dialogues.extend(unit.dialogues)
        if unit.quarantined:
            bad = unit.quarantined[0]
            raise SourceError(
                f"row {bad.row} of the benchmark cannot be read",
                got=f"{bad.reason}: {bad.detail}",
                expected="a benchmark without bad rows, since figures on the rest would not compare",
                fix="fix or remove the row; `curate ingest` lists every such row",
            )
    turns = labelled_turns(dialogues, field, adherent)
    counts = Counter(turn.is_adherent for turn in turns)
    if len(counts) < 2:
        raise UsageError(
            "the benchmark has only one class of turns",
            got=", ".join(sorted({turn.label for turn in turns})) or "no turns",
            expected=f"'{adherent}' and at least one kind of violation in '{field}'",
            fix="name the positive label with --adherent",
        )
    return turns


def labelled_turns(
    dialogues: Sequence[Dialogue], field: str = "label", adherent: str = ADHERENT
) -> list[LabelledTurn]:
    """Take the turns to be scored, and their labels, from the dialogues of a benchmark.

    A label is that of the last assistant turn; a list has one for each of them, null for those that are not
    part of the benchmark. A turn is scored in the dialogue up to it.

    Raises:
        UsageError: a dialogue has no label, no assistant turn, or more references than turns.
    """
    labelled = []
    for number, dialogue in enumerate(map(_with_history, dialogues), start=1):
        cases = cases_of(dialogue)
        labels = _labels(dialogue.labels.get(field), len(cases or ()), adherent)
        if not cases or labels is None:
            raise UsageError(
                f"row {number} of the benchmark cannot be used",
                got=f"label {repr(dialogue.labels.get(field))[:80]}, {_turns_said(dialogue, cases)}",
                expected=f"a text in '{field}' (`{adherent}` or a kind of violation, or true and false) "
                "and a last assistant turn, or a list with a label for each assistant turn",
                fix=_other_labels(dialogue, field),
            )
        labelled += [
            LabelledTurn(_until(dialogue, place), case, label)
            for place, (case, label) in enumerate(zip(cases, labels, strict=True))
            if label is not None
        ]
    return labelled


def _labels(raw: object, turns: int, adherent: str) -> list[str | None] | None:
    """Return a label for each assistant turn, None for those without; None instead of all where it cannot be read."""
    values = raw if isinstance(raw, list) else [None] * (turns - 1) + [raw]
    labels = [_label(value, adherent) for value in values]
    unread = any(
        label is None and value is not None for label, value in zip(labels, values, strict=True)
    )
    return None if unread or len(labels) != turns or not any(labels) else labels


def _until(dialogue: Dialogue, place: int) -> Dialogue:
    """Return the dialogue up to its assistant turn at that place, which sees no later one."""
    ends = [turn.stop for turn in dialogue.turns if turn.has_assistant]
    if place == len(ends) - 1:
        return dialogue
    return dialogue.model_copy(
        update={
            "messages": dialogue.messages[: ends[place]],
            "references": dialogue.references[: place + 1],
        }
    )


def _with_history(dialogue: Dialogue) -> Dialogue:
    """Return a dialogue with the turns before it that a flat row of one reply names in `history` and `user`.

    Its references are then all of that one reply. Rows of other shapes come back as they are.
    """
    metadata = dialogue.metadata
    if any(message.role == "user" for message in dialogue.messages) or not (
        isinstance(metadata.get("user"), str) or metadata.get("history")
    ):
        return dialogue
    try:
        before = _HISTORY.validate_python(metadata.get("history") or ())
    except ValidationError as error:
        raise UsageError(
            f"the history of '{dialogue.id}' cannot be read",
            got=str(error.errors()[0]["msg"]),
            expected="a list of {role, content} under 'history'",
        ) from error
    if isinstance(metadata.get("user"), str):
        before += (Message(role="user", content=metadata["user"]),)
    messages = before + dialogue.messages
    whole = dialogue.model_copy(update={"messages": messages, "references": ()})
    turns = sum(turn.has_assistant for turn in whole.turns)
    own = tuple(text for texts in dialogue.references for text in texts)
    references = ((),) * (turns - 1) + (own,)
    return whole.model_copy(update={"references": references})


def _label(value: object, adherent: str) -> str | None:
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return ADHERENT if value else VIOLATION
    if not isinstance(value, str) or not value.strip():
        return None
    if value == adherent:
        return ADHERENT
    return VIOLATION if value == ADHERENT else value


def _turns_said(dialogue: Dialogue, cases: Sequence[Case] | None) -> str:
    if cases is None:
        return f"{len(dialogue.references)} lists of references and fewer assistant turns"
    return plural(len(cases), "assistant turn")


def _other_labels(dialogue: Dialogue, field: str) -> str | None:
    others = [name for name in dialogue.labels if name != field]
    return f"name the label with --label; the row has {', '.join(others)}" if others else None
