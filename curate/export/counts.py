"""Counts of the rows of an export: written flat to a manifest, and read back from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class ExportCounts:
    """Counts of rows written and refused. For each file: rows in = rows written + rows refused.

    Attributes:
        rows: rows written, by file.
        refused: rows refused, by file and reason.
        dialogues_cut: SFT rows that lost messages after their last assistant message.
        roles_added: SFT rows whose role definition was written as a system message.
        salvaged_dialogues: mixed dialogues with a good turn.
        salvaged_turns: good turns of those dialogues.
    """

    rows: dict[str, int]
    refused: dict[str, Counter[str]]
    dialogues_cut: int = 0
    roles_added: int = 0
    salvaged_dialogues: int = 0
    salvaged_turns: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return flat counts for a manifest; reasons as `refused_<file>_<reason>`."""
        flat = {**self.rows, "dialogues_cut": self.dialogues_cut, "roles_added": self.roles_added}
        if self.salvaged_dialogues:
            flat["salvaged_dialogues"] = self.salvaged_dialogues
            flat["salvaged_turns"] = self.salvaged_turns
        for name, reasons in self.refused.items():
            flat[f"refused_{name}"] = reasons.total()
            flat.update({f"refused_{name}_{reason}": n for reason, n in sorted(reasons.items())})
        return flat


def files(counts: Mapping[str, int]) -> dict[str, int]:
    """Return rows by file, from counts as `ExportCounts.as_dict` returns them."""
    return {name: rows for name, rows in counts.items() if f"refused_{name}" in counts}


def refusals(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return counts of refusals by file and reason, from the same counts; files without refusals are left out."""
    reasons: dict[str, dict[str, int]] = {}
    # Longest names first: `sft` is also the beginning of `sft_salvaged`.
    names = sorted(files(counts), key=len, reverse=True)
    totals = {f"refused_{name}" for name in names}
    for key in counts.keys() - totals:
        name = next((name for name in names if key.startswith(f"refused_{name}_")), None)
        if name is not None:
            reasons.setdefault(name, {})[key.removeprefix(f"refused_{name}_")] = counts[key]
    return {name: dict(sorted(reasons[name].items())) for name in files(counts) if name in reasons}
