"""From what a reader read to dialogues: ids, lineage, fallbacks, and quarantined rows with their raw data.

Ids come from the data, else from the source's name and the row. An id that is taken becomes `id~2`; what
it was stands in `metadata['duplicate_of_id']`. In memory are the ids given so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from curate.dialogue import Dialogue, Lineage, Message, RoleOrigin, leading_system_text
from curate.records import QuarantinedRow
from curate.sources.config import RoleFrom, SourceConfig
from curate.sources.unit_result import Draft, RawRow, RowFault, Unit, UnitResult


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A file, or what stands for one: a label, the prefix of ids made for its rows, and its rows."""

    label: str
    prefix: str
    rows: Callable[[], Iterator[RawRow]]


@dataclass(slots=True)
class UnitMaker:
    """Turns readings into units: ids, lineage, roles and scenarios; see `Source.read`."""

    config: SourceConfig
    role: str | None
    scenario: str | None
    role_from: RoleFrom = "data"
    ids: set[str] = field(default_factory=set)

    def unit(
        self, part: SourcePart, rows: tuple[int, ...], raws: dict[int, Any], read: UnitResult
    ) -> Unit:
        """The unit of a reading. `rows` are its rows, `raws` their raw values for the quarantine."""
        said = read.id or f"{part.prefix}-{rows[0]}"
        base = self._free(said) if read.drafts else said
        renamed = {"duplicate_of_id": said} if base != said else {}
        dialogues = tuple(
            self._dialogue(part, rows, base, draft, read, renamed) for draft in read.drafts
        )
        faults = [self.aside(part, fault, raws.get(fault.row)) for fault in read.rows]
        parts = [
            self.aside(part, RowFault(rows[0], item.reason, item.detail), None, item.part)
            for item in read.parts
        ]
        return Unit(rows, part.label, dialogues, (*faults, *parts), items_left_out=read.left_out)

    def _free(self, said: str) -> str:
        """The id, or the first of `id~2`, `id~3`, … that is not taken."""
        base, number = said, 2
        while base in self.ids:
            base, number = f"{said}~{number}", number + 1
        self.ids.add(base)
        return base

    def _dialogue(
        self,
        part: SourcePart,
        rows: tuple[int, ...],
        base: str,
        draft: Draft,
        read: UnitResult,
        renamed: dict[str, str],
    ) -> Dialogue:
        fields = dict(draft.fields)
        fields["metadata"] = {**fields.get("metadata", {}), **renamed}
        if read.siblings:
            fields.setdefault("group", base)
        fields.setdefault("scenario", self.scenario)
        fields["role_definition"], origin = self._role(
            fields.get("role_definition"), draft.messages
        )
        return Dialogue(
            id=f"{base}/{draft.part}" if draft.part else base,
            messages=draft.messages,
            lineage=Lineage(
                source=self.config.source_name,
                file=part.label,
                rows=draft.rows or rows,
                part=draft.part,
                role_from=origin,
            ),
            **fields,
        )

    def _role(
        self, said: str | None, messages: tuple[Message, ...]
    ) -> tuple[str | None, RoleOrigin | None]:
        """The first role definition that is not blank, and where it is from."""
        data: list[tuple[str | None, RoleOrigin]] = [
            (said, "field"),
            (leading_system_text(messages), "system"),
        ]
        recipe: list[tuple[str | None, RoleOrigin]] = [(self.role, "recipe")]
        order = data + recipe if self.role_from == "data" else recipe + data
        return next(
            ((text, origin) for text, origin in order if text and text.strip()), (None, None)
        )

    def aside(
        self, part: SourcePart, fault: RowFault, raw: Any, name: str | None = None
    ) -> QuarantinedRow:
        """The quarantine's record of a row, or of its part `name`."""
        return QuarantinedRow(
            source=self.config.source_name,
            file=part.label,
            row=fault.row,
            part=name,
            reason=fault.reason,
            detail=fault.detail,
            raw=_writable(raw),
        )


def capped(unit: Unit, left: int) -> Unit:
    """The unit with at most `left` dialogues; what is left out is named, and its rows stay accounted for."""
    if len(unit.dialogues) <= left:
        return unit
    kept, over = unit.dialogues[:left], unit.dialogues[left:]
    standing = {row for dialogue in kept if dialogue.lineage for row in dialogue.lineage.rows}
    aside: list[QuarantinedRow] = []
    loose: set[int] = set()
    for dialogue in over:
        lineage = dialogue.lineage
        if lineage is None:
            continue
        note = {"source": lineage.source, "file": lineage.file, "reason": "over_cap"}
        aside.append(QuarantinedRow(row=lineage.rows[0], part=lineage.part or dialogue.id, **note))
        for row in lineage.rows:
            if row not in standing and row not in loose:
                loose.add(row)
                aside.append(QuarantinedRow(row=row, **note))
    return replace(unit, dialogues=kept, quarantined=(*unit.quarantined, *aside))


def _writable(raw: Any) -> Any:
    """The raw row if JSON can hold it, else its text."""
    try:
        orjson.dumps(raw)
    except (orjson.JSONEncodeError, TypeError, RecursionError):
        return repr(raw)[:10_000]
    return raw
