"""The dialogues that a page of the report shows, each with its records and its pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from curate.dialogue import Dialogue
from curate.records import SCORING, Manifest
from curate.run.ingest import read_dialogues, read_index
from curate.run.outputs import DROPPED_PAIRS, NATURAL_PAIRS, PAIRS, pair_file
from curate.run.read_back import read_decisions, stage_records
from curate.storage.whole_files import damaged


def dialogue_bodies(
    run: Path, manifest: Manifest, pairs: RunPairs
) -> Iterator[tuple[Dialogue, dict[str, Any]]]:
    """Yield each dialogue of a run, in order, and all that the page shows of it."""
    keys = read_index(run, "content_hash").to_series()
    records = {name.value: stage_records(run, manifest, name, keys) for name in SCORING}
    decisions = read_decisions(run)
    with pairs:
        for dialogue in read_dialogues(run):
            body: dict[str, Any] = _dialogue(dialogue)
            for name, stage in records.items():
                record = next(stage)
                if record is not None:
                    body[name] = _record(record)
            decision = next(decisions, {})
            if decision.get("dialogue_id") == dialogue.id and decision.get("collisions"):
                body["collisions"] = decision["collisions"]
            if its_pairs := pairs.read(dialogue.id):
                body["pairs"] = its_pairs
            yield dialogue, body


def _dialogue(dialogue: Dialogue) -> dict[str, Any]:
    """Return the dialogue's own data without empty fields."""
    body = dialogue.model_dump(mode="json", exclude_defaults=True, exclude={"references"})
    body["hash"] = dialogue.content_hash
    body["turns"] = dialogue.turn_spans
    return body


def _record(record: dict[str, Any]) -> dict[str, Any]:
    """Return a stage's record without the fields that every record of the stage shares or the dialogue has already."""
    shown = {
        name: value
        for name, value in record.items()
        if name not in ("dialogue_id", "content_hash", "identity", "requests", "neutralised")
        and value not in (None, [], {}, "")
    }
    if record["kind"] == "judgment":
        shown["per_turn"] = [_without_probabilities(turn) for turn in record["per_turn"]]
    return shown


def _without_probabilities(turn: dict[str, Any]) -> dict[str, Any]:
    readings = {
        name: {key: reading[key] for key in ("mean", "spread") if reading.get(key) is not None}
        for name, reading in turn.get("readings", {}).items()
    }
    return {**turn, "readings": readings}


@dataclass(slots=True)
class RunPairs:
    """All pairs of a run: a row of the page's table for each, and by dialogue the file and offset of its pairs."""

    rows: list[dict[str, Any]]
    places: dict[str, list[tuple[Path, int]]]
    _files: dict[Path, IO[bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Path) -> RunPairs:
        """Read the rows and the places of all pairs.

        Raises:
            CurateError: a line is damaged.
        """
        rows, places = [], defaultdict(list)
        for name in (PAIRS, NATURAL_PAIRS, DROPPED_PAIRS):
            path = pair_file(run, name)
            if not path.is_file():
                continue
            offset = 0
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    try:
                        pair = orjson.loads(line)
                        rows.append(_pair_row(pair))
                    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                        raise damaged(f"{path}:{number}", error) from error
                    places[pair["dialogue_id"]].append((path, offset))
                    offset += len(line)
        return cls(rows, places)

    def read(self, dialogue_id: str) -> list[dict[str, Any]]:
        """Return the pairs of a dialogue, without the prompt, which is the beginning of the dialogue."""
        pairs = []
        for path, offset in self.places.get(dialogue_id, ()):
            file = self._files.get(path) or self._files.setdefault(path, path.open("rb"))
            file.seek(offset)
            pair = orjson.loads(file.readline())
            hidden = ("kind", "dialogue_id", "content_hash", "prompt", "tools", "lineage")
            pairs.append(
                {
                    name: value
                    for name, value in pair.items()
                    if name not in hidden and value not in (None, [], {}, "")
                }
            )
        return pairs

    def __enter__(self) -> RunPairs:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


def _pair_row(pair: Mapping[str, Any]) -> dict[str, Any]:
    check = pair.get("check") or {}
    return {
        "id": pair["pair_id"],
        "dialogue": pair["dialogue_id"],
        "turn": pair.get("turn"),
        "kind": "made" if pair["basis"] == "judge" else "in the data",
        "basis": pair["basis"],
        "source": pair["source"],
        "dropped": pair.get("drop_reason"),
        "decided_by": check.get("decided_by"),
        "probability": check.get("probability"),
        "preference": check.get("preference"),
        "margin": check.get("margin"),
    }
