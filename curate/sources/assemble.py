"""From readings to dialogues: ids, lineage, fallback roles and scenarios, and quarantined rows with their raw data.

Ids come from the data, else from the source's name and the row number. An id that is already used becomes `id~2`, and
the original is kept in `metadata['duplicate_of_id']`. All ids of a source are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from curate.dialogue import Dialogue, Lineage, Message, RoleOrigin, leading_system_text
from curate.records import QuarantinedRow
from curate.sources.config import RoleFrom, SourceConfig
from curate.sources.unit_result import Draft, RawRow, Unit, UnitResult


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A file, a Hub dataset or rows in memory.

    Attributes:
        label: its name in lineage and messages.
        prefix: prefix of ids made for its rows.
        rows: reads its rows from the start at every call.
    """

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
        self, part: SourcePart, rows: tuple[int, ...], raws: dict[int, Any], reading: UnitResult
    ) -> Unit:
        """Return the unit of a reading; `rows` are its row numbers, `raws` their raw values for the quarantine."""
        own_id = reading.id or f"{part.prefix}-{rows[0]}"
        base = self._free(own_id) if reading.drafts else own_id
        original_id = {"duplicate_of_id": own_id} if base != own_id else {}
        dialogues = tuple(
            self._dialogue(part, rows, base, draft, reading, original_id)
            for draft in reading.drafts
        )
        quarantined = tuple(
            QuarantinedRow(
                source=self.config.source_name,
                file=part.label,
                row=fault.row or rows[0],
                part=fault.part,
                reason=fault.reason,
                detail=fault.detail,
                raw=None if fault.row is None else _writable(raws.get(fault.row)),
            )
            for fault in reading.faults
        )
        return Unit(rows, part.label, dialogues, quarantined, items_left_out=reading.left_out)

    def _free(self, wanted_id: str) -> str:
        """Return the id, or the first of `id~2`, `id~3`, … that is not used yet; mark it as used."""
        base, number = wanted_id, 2
        while base in self.ids:
            base, number = f"{wanted_id}~{number}", number + 1
        self.ids.add(base)
        return base

    def _dialogue(
        self,
        part: SourcePart,
        rows: tuple[int, ...],
        base: str,
        draft: Draft,
        reading: UnitResult,
        original_id: dict[str, str],
    ) -> Dialogue:
        fields = dict(draft.fields)
        fields["metadata"] = {**fields.get("metadata", {}), **original_id}
        if reading.siblings:
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
        self, definition: str | None, messages: tuple[Message, ...]
    ) -> tuple[str | None, RoleOrigin | None]:
        """Return the first role definition that is not blank, and its origin."""
        data: list[tuple[str | None, RoleOrigin]] = [
            (definition, "field"),
            (leading_system_text(messages), "system"),
        ]
        recipe: list[tuple[str | None, RoleOrigin]] = [(self.role, "recipe")]
        order = data + recipe if self.role_from == "data" else recipe + data
        return next(
            ((text, origin) for text, origin in order if text and text.strip()), (None, None)
        )


def capped(unit: Unit, most: int) -> Unit:
    """Return the unit with at most `most` dialogues; the others and their unused rows are quarantined as `over_cap`."""
    if len(unit.dialogues) <= most:
        return unit
    dialogues, over = unit.dialogues[:most], unit.dialogues[most:]
    used_rows = {row for dialogue in dialogues if dialogue.lineage for row in dialogue.lineage.rows}
    quarantined: list[QuarantinedRow] = []
    unused_rows: set[int] = set()
    for dialogue in over:
        lineage = dialogue.lineage
        if lineage is None:
            continue
        note = {"source": lineage.source, "file": lineage.file, "reason": "over_cap"}
        quarantined.append(
            QuarantinedRow(row=lineage.rows[0], part=lineage.part or dialogue.id, **note)
        )
        for row in lineage.rows:
            if row not in used_rows and row not in unused_rows:
                unused_rows.add(row)
                quarantined.append(QuarantinedRow(row=row, **note))
    return replace(unit, dialogues=dialogues, quarantined=(*unit.quarantined, *quarantined))


def _writable(raw: Any) -> Any:
    """Return the raw row if JSON can represent it, else the start of its `repr`."""
    try:
        orjson.dumps(raw)
    except (orjson.JSONEncodeError, TypeError, RecursionError):
        return repr(raw)[:10_000]
    return raw
