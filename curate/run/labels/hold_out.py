"""Labels that are kept for a certificate: those drawn to certify, and a share held out. Nothing is fitted to them or chosen by them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.run.ingest import read_dialogues
from curate.run.labels.populations import UNIT, is_of_pairs, read_drawn, read_draws
from curate.trust.gold import DialogueFinder
from curate.trust.label_rows import GoldRow, Unused


def without_kept(
    run: Path, rows: Sequence[GoldRow], hold_out: float
) -> tuple[list[GoldRow], Unused]:
    """Return the rows to fit to, and those kept for a certificate."""
    reserved: set[str] = set()
    for draw in read_draws(run):
        if draw.purpose == "certify" and not is_of_pairs(draw.of):
            reserved |= set(read_drawn(run, draw).filter("drawn")[UNIT])
    find = DialogueFinder(rows, read_dialogues(run))
    usable: list[GoldRow] = []
    kept_rows = Unused()
    for row in rows:
        dialogue = find(row)
        key = dialogue.content_hash if isinstance(dialogue, Dialogue) else ""
        if key in reserved:
            kept_rows.add("drawn to certify, and kept for that", row.place)
        elif key and is_held_out(key, hold_out):
            kept_rows.add("held out for a certificate", row.place)
        else:
            usable.append(row)
    if rows and not usable:
        raise UsageError(
            "all labels are reserved for a certificate",
            got="; ".join(kept_rows.reasons()),
            expected="labels of other dialogues",
            fix=f"curate sample {run} --for calibrate",
        )
    return usable, kept_rows


def check_hold_out(share: float) -> None:
    """Raise a UsageError for a share that leaves nothing, or is none."""
    if not 0 <= share < 1:
        raise UsageError("--hold-out must be a share", got=share, expected="0 or more and below 1")


def is_held_out(content_hash: str, share: float) -> bool:
    """Return whether a dialogue is among the `share` that is kept for a certificate; the same dialogues each time."""
    digest = hashlib.blake2b(f"hold out {content_hash}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64
