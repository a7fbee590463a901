"""The natural pairs of a run: found in its dialogues, looked at without a model, verified where asked for.

They are found anew whenever they are wanted, one group of dialogues at a time, in the same order; only what
a judge said of one is kept, in the rows of the stage `natural`, by `pair_id`. So a changed rule of finding or
a changed eval set asks nothing for pairs that were verified before.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from curate.dialogue import Dialogue
from curate.executors.work import WorkItem
from curate.pairs.config import NaturalConfig
from curate.pairs.natural import natural_candidates
from curate.pairs.prefix import with_messages
from curate.records import PreferencePair
from curate.run.cleaning_inputs import Cleaning
from curate.run.outputs import grouped_dialogues
from curate.storage.store import StageRows


@dataclass(frozen=True, slots=True)
class NaturalPairs:
    """What the dialogues of a run folder hold.

    Attributes:
        run: the run folder, its dialogues read.
        config: the recipe's section `natural`.
        cleaning: refuses pairs that share text with an eval set, before a judge is asked.
    """

    run: Path
    config: NaturalConfig
    cleaning: Cleaning | None

    def found(self) -> Iterator[tuple[PreferencePair, Dialogue]]:
        """Every record, passed or refused without a model, with its dialogue."""
        for pair, dialogue in natural_candidates(grouped_dialogues(self.run), self.config):
            if self.cleaning is None:
                yield pair, dialogue
            else:
                yield next(self.cleaning.refuse_contaminated([pair])), dialogue

    def keys(self) -> pl.Series:
        """The ids of the pairs that a judge is to verify, in order."""
        ids = [pair.pair_id for pair, _ in self.found() if pair.refusal is None]
        return pl.Series("pair_id", ids, dtype=pl.String)

    def items(self, done: Container[str], again: Container[str]) -> Iterator[WorkItem]:
        """The pairs that are owed: those not in `done`; of `again` no kept reply is used."""
        for pair, dialogue in self.found():
            if pair.refusal is None and pair.pair_id not in done:
                prompt = with_messages(dialogue, pair.prompt)
                yield WorkItem("natural", prompt, pair=pair, again=pair.pair_id in again)

    def pairs(self, verified: StageRows[PreferencePair] | None) -> Iterator[PreferencePair]:
        """Every record, those that passed as the judge left them.

        Args:
            verified: the rows of all `keys`, in their order; None where nobody was asked.
        """
        rows = iter(()) if verified is None else verified.aligned(self.keys())
        for pair, _ in self.found():
            if verified is None or pair.refusal is not None:
                yield pair
            elif (row := next(rows)) is not None:
                yield row
            else:
                # an early end left it without a row: it is not to pass for verified
                yield pair.model_copy(update={"refusal": "unscored", "detail": "not verified yet"})
