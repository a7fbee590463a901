"""What became of the rows: counts of an export, flat in a manifest, and read back from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class ExportCounts:
    """What was written and what was not. For each file: rows in = rows written + rows refused.

    Attributes:
        rows: rows written, by file.
        refused: rows refused, by file and reason.
        dialogues_cut: SFT rows that lost messages after their last assistant message.
        roles_added: SFT rows whose role definition was written as a system message.
        salvaged_dialogues: mixed dialogues with a good turn.
        salvaged_turns: good turns of these.
    """

    rows: dict[str, int]
    refused: dict[str, Counter[str]]
    dialogues_cut: int = 0
    roles_added: int = 0
    salvaged_dialogues: int = 0
    salvaged_turns: int = 0

    def as_dict(self) -> dict[str, int]:
        """Flat, for a manifest; reasons as `refused_<file>_<reason>`."""
        flat = {**self.rows, "dialogues_cut": self.dialogues_cut, "roles_added": self.roles_added}
        if self.salvaged_dialogues:
            flat["salvaged_dialogues"] = self.salvaged_dialogues
            flat["salvaged_turns"] = self.salvaged_turns
        for name, reasons in self.refused.items():
            flat[f"refused_{name}"] = reasons.total()
            flat.update({f"refused_{name}_{reason}": n for reason, n in sorted(reasons.items())})
        return flat


def files(counts: Mapping[str, int]) -> dict[str, int]:
    """Rows by file, of counts as `ExportCounts.as_dict` gives them."""
    return {name: rows for name, rows in counts.items() if f"refused_{name}" in counts}


def refusals(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Reasons with their numbers by file, of the same counts; files without refusals are left out."""
    found: dict[str, dict[str, int]] = {}
    # The reasons of `sft` are not those of `sft_salvaged`, which begins alike: longest names first.
    names = sorted(files(counts), key=len, reverse=True)
    totals = {f"refused_{name}" for name in names}
    for key in counts.keys() - totals:
        name = next((name for name in names if key.startswith(f"refused_{name}_")), None)
        if name is not None:
            found.setdefault(name, {})[key.removeprefix(f"refused_{name}_")] = counts[key]
    return {name: dict(sorted(found[name].items())) for name in files(counts) if name in found}
