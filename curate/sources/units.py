"""What a source gives: units of rows, and the tally that proves that none was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from curate.dialogue import Dialogue
from curate.records import QuarantinedRow


@dataclass(frozen=True, slots=True)
class Unit:
    """One row, or the rows that form a conversation or a tree, and all that came of them.

    Every row is either used (a dialogue stands on it) or quarantined (exactly one entry without `part`). A
    part of a used row that could not be read is an entry with `part`. A row that `source.where` leaves out is none
    of the unit's: a unit of no rows counts it in `rows_left_out`, by condition; `items_left_out` counts items.
    """

    rows: tuple[int, ...]
    file: str
    dialogues: tuple[Dialogue, ...]
    quarantined: tuple[QuarantinedRow, ...]
    rows_left_out: Mapping[str, int] = field(default_factory=dict)
    items_left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class RowCounts:
    """Counts over units. `rows_in == rows_used + quarantined` is checked with every unit.

    Attributes:
        rows_in: rows read.
        rows_used: rows that at least one dialogue stands on.
        quarantined: rows that none does.
        dialogues: dialogues made, less those not sampled.
        not_sampled: dialogues left out so that the source keeps to its weight; their rows are used.
        parts_quarantined: parts of used rows that could not be read.
        roles: dialogues by where their role definition is from: `field`, `system`, `recipe`, or `none`.
        reasons: quarantined rows by reason code.
        part_reasons: quarantined parts by reason code.
        rows_left_out: rows that `source.where` leaves out, by condition; not among `rows_in`.
        items_left_out: parts of conversations that the mapping leaves out, by what it says.
    """

    rows_in: int = 0
    rows_used: int = 0
    quarantined: int = 0
    dialogues: int = 0
    not_sampled: int = 0
    parts_quarantined: int = 0
    roles: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    part_reasons: Counter[str] = field(default_factory=Counter)
    rows_left_out: Counter[str] = field(default_factory=Counter)
    items_left_out: Counter[str] = field(default_factory=Counter)

    def add(self, unit: Unit) -> None:
        """Count a unit.

        Raises:
            RuntimeError: a row of the unit is neither used nor quarantined, or both; this is our mistake.
        """
        used: set[int] = set()
        for dialogue in unit.dialogues:
            used.update(dialogue.lineage.rows if dialogue.lineage else ())
        whole = [item for item in unit.quarantined if item.part is None]
        put_aside = {item.row for item in whole}
        if (
            len(put_aside) != len(whole)
            or used & put_aside
            or used | put_aside != set(unit.rows)
            or len(set(unit.rows)) != len(unit.rows)
        ):
            raise RuntimeError(
                f"rows of {unit.file} are not accounted for: rows {unit.rows}, used {sorted(used)}, "
                f"quarantined {sorted(item.row for item in whole)}"
            )
        parts = [item for item in unit.quarantined if item.part is not None]
        self.rows_in += len(unit.rows)
        self.rows_used += len(used)
        self.quarantined += len(whole)
        self.dialogues += len(unit.dialogues)
        self.roles.update(map(_role_origin, unit.dialogues))
        self.parts_quarantined += len(parts)
        self.reasons.update(item.reason for item in whole)
        self.part_reasons.update(item.reason for item in parts)
        self.rows_left_out.update(unit.rows_left_out)
        self.items_left_out.update(unit.items_left_out)

    def leave_out(self, dialogue: Dialogue) -> None:
        """Count a dialogue that was made as not sampled."""
        self.dialogues -= 1
        self.roles[_role_origin(dialogue)] -= 1
        self.not_sampled += 1

    def __str__(self) -> str:
        return (
            f"{self.rows_in} rows in = {self.rows_used} used + {self.quarantined} quarantined; "
            f"{self.dialogues} dialogues"
        )


def _role_origin(dialogue: Dialogue) -> str:
    return (dialogue.lineage.role_from if dialogue.lineage else None) or "none"
