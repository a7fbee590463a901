"""The natural pairs of a run: found in its dialogues, checked without a model, and verified by a judge on request.

If a judge is to verify them, they are found once, before any call, and kept in a file: those that pass without a model
each with the dialogue that the judge is shown. A verification is a row of the stage `natural`, by `pair_id`; so after
a change of the search or of an eval set, pairs that were verified before need no calls.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import polars as pl

from curate.dialogue import Dialogue, Frozen
from curate.pairs.config import NaturalConfig
from curate.pairs.natural import natural_candidates
from curate.pairs.prefix import with_messages
from curate.records import DropReason, PreferencePair, StageName
from curate.run.cleaning_inputs import CleaningInputs
from curate.run.outputs import grouped_dialogues
from curate.stages import WorkItem
from curate.storage.line_files import read_records
from curate.storage.stage_rows import KeyLog, StageRows
from curate.storage.whole_files import atomic_file

_FILE = f"{StageName.NATURAL}/candidates.jsonl"


def find_natural(
    run: Path, config: NaturalConfig, cleaning: CleaningInputs | None
) -> Iterator[tuple[PreferencePair, Dialogue]]:
    """Yield every natural pair of a run's dialogues, passed or dropped without a model, with its dialogue.

    Args:
        run: the run folder, its dialogues read.
        config: the recipe's section `natural`.
        cleaning: drops pairs that share text with an eval set.
    """
    for pair, dialogue in natural_candidates(grouped_dialogues(run), config):
        if cleaning is None:
            yield pair, dialogue
        else:
            yield next(cleaning.drop_contaminated([pair])), dialogue


def natural_keys(run: Path, config: NaturalConfig, cleaning: CleaningInputs | None) -> pl.Series:
    """Return the ids of the pairs that a judge is to verify, in order."""
    keys = KeyLog()
    for pair, _ in find_natural(run, config, cleaning):
        if pair.drop_reason is None:
            keys.append(pair.pair_id)
    return keys.column()


class _Candidate(Frozen):
    """A natural pair; if a judge is to verify it, with its dialogue without messages."""

    pair: PreferencePair
    dialogue: Dialogue | None


@dataclass(frozen=True, slots=True)
class NaturalRows:
    """The natural pairs of a run that are to be verified, in a file of the run folder.

    Attributes:
        run: the run folder.
        keys: ids of the pairs that a judge is to verify, in order.
    """

    run: Path
    keys: pl.Series

    @classmethod
    def found(
        cls, run: Path, config: NaturalConfig, cleaning: CleaningInputs | None
    ) -> NaturalRows:
        """Find the pairs (`find_natural`), and write them to the run folder."""
        keys = KeyLog()
        with atomic_file(run / _FILE) as out:
            for pair, dialogue in find_natural(run, config, cleaning):
                shown_dialogue = None
                if pair.drop_reason is None:
                    keys.append(pair.pair_id)
                    shown_dialogue = with_messages(dialogue, ())
                line = {
                    "pair": pair.model_dump(mode="json"),
                    "dialogue": shown_dialogue
                    and shown_dialogue.model_dump(mode="json", exclude_defaults=True),
                }
                out.write(orjson.dumps(line) + b"\n")
        return cls(run, keys.column())

    def items(self, done: Container[str], again: Container[str]) -> Iterator[WorkItem]:
        """Yield the pairs that are not in `done`; for those in `again` no kept reply is used."""
        for candidate in self._read():
            pair, dialogue = candidate.pair, candidate.dialogue
            if dialogue is not None and pair.pair_id not in done:
                prompt = with_messages(dialogue, pair.prompt)
                yield WorkItem(prompt, pair=pair, again=pair.pair_id in again)

    def pairs(self, verified: StageRows[PreferencePair]) -> Iterator[PreferencePair]:
        """Yield every pair, those that passed as the judge left them.

        Args:
            verified: the rows of `keys`, in their order.
        """
        rows = verified.aligned(self.keys)
        for candidate in self._read():
            pair = candidate.pair
            if pair.drop_reason is not None:
                yield pair
            elif (row := next(rows)) is not None:
                yield row
            else:
                # an early end left it without a row: it is not to pass for verified
                yield pair.model_copy(
                    update={"drop_reason": DropReason.UNSCORED, "detail": "not verified yet"}
                )

    def _read(self) -> Iterator[_Candidate]:
        return read_records(self.run / _FILE, _Candidate.model_validate_json)
