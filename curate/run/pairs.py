"""The part of a run that makes pairs: forks, natural pairs, what is refused of either, and their files.

Apart from the loop over stages because it has a life of its own: what may be forked follows from scores and eval
sets, a fork gives several records, and what passed is looked at once more when all pairs are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import polars as pl

from curate.executors.work import Executor, WorkItem
from curate.pairs.config import ForkConfig
from curate.pairs.fork import refuse_forks
from curate.pairs.funnel import FUNNEL_KINDS
from curate.pairs.settle import (
    BY_LETTERS,
    UNCALIBRATED,
    Survey,
    agreement_warning,
    describe_decisions,
    leave_to_the_data,
    settle,
    survey,
)
from curate.recipe import Recipe
from curate.records import Judgment, PreferencePair, Unscored
from curate.run.cleaning_inputs import Cleaning
from curate.run.ingest import read_dialogues
from curate.run.natural_pairs import NaturalPairs
from curate.run.outputs import held_out_ids, write_pairs
from curate.run.pair_checks import check_pairs
from curate.run.staging import RowMaker, fork_rows, verified_rows
from curate.selection.rules import matching, narrowed
from curate.storage.store import StageRows

Records = Callable[[], Iterator[PreferencePair]]
"""Gives the records of pairs, each time from the start."""


def no_records() -> Iterator[PreferencePair]:
    """Of a run that forks nothing."""
    return iter(())


@dataclass(slots=True)
class Pairing:
    """The pairs of one run.

    Attributes:
        run: the run folder.
        cleaning: finds what shares text with an eval set; None where nothing is cleaned.
        retry_unscored: ask again where an earlier run's judge could not answer.
        rejudged: content hashes of the dialogues that were judged again, so that their forks are made anew.
        verified: rows of the natural pairs that the judge was asked about.
    """

    recipe: Recipe
    run: Path
    maker: RowMaker
    cleaning: Cleaning | None = None
    retry_unscored: bool = False
    rejudged: frozenset[str] = frozenset()
    verified: StageRows[PreferencePair] | None = None

    @property
    def natural(self) -> NaturalPairs:
        """What the data itself holds."""
        return NaturalPairs(self.run, self.recipe.natural, self.cleaning)

    async def fork(
        self,
        config: ForkConfig,
        print_: str,
        table: pl.LazyFrame,
        judgments: StageRows[Judgment | Unscored],
        executor: Executor,
    ) -> Records:
        """Fork the dialogues that `fork.where` admits; those forked before are not asked for again."""
        self.maker.log.fingerprints["fork"] = print_
        rows = fork_rows(self.run, print_)
        read = narrowed(table, {"fork.where": config.where})
        admitted = matching(read, config.where) & read["verdict"].is_not_null()
        hashes = read["content_hash"]
        # Of equal dialogues the first that is admitted; a condition may read more than the content.
        both = pl.struct("hash", "admitted").is_first_distinct() & pl.col("admitted")
        first = pl.DataFrame({"hash": hashes, "admitted": admitted}).select(both).to_series()
        # What is in an eval set gives no pair, so nobody is asked to fork it.
        tainted = self._contaminated(first)
        clean = first & ~pl.int_range(len(first), eager=True).is_in(list(tainted))
        keys = hashes.filter(clean)
        again: frozenset[str] = frozenset()
        if self.retry_unscored:
            again = rows.forget_where(lambda pairs: _unscored(pairs) is not None)
            rows.forget(self.rejudged)
        owed = clean & ~hashes.is_in(rows.done().implode())
        judged = judgments.aligned(hashes, owed)
        items = (
            WorkItem("fork", dialogue, judgment, again=dialogue.content_hash in again)
            for dialogue, judgment in zip(read_dialogues(self.run, owed), judged, strict=True)
            if isinstance(judgment, Judgment)
        )
        await self.maker.make("fork", rows, keys, items, executor)
        self.maker.log.count_rows("fork", (_unscored(pairs or ()) for pairs in rows.aligned(keys)))

        def records() -> Iterator[PreferencePair]:
            made = (pair for pairs in rows.aligned(keys) for pair in pairs or ())
            return chain(made, self._refuse_tainted(config, tainted, hashes, judgments))

        return records

    def _contaminated(self, wanted: pl.Series) -> dict[int, str]:
        """What dialogues share with eval sets, by their place, of those marked in `wanted`."""
        if self.cleaning is None or not self.cleaning.evals:
            return {}
        found = self.cleaning.contaminations(read_dialogues(self.run, wanted))
        places = wanted.arg_true()
        return {at: said for at, said in zip(places, found, strict=True) if said is not None}

    def _refuse_tainted(
        self,
        config: ForkConfig,
        tainted: Mapping[int, str],
        hashes: pl.Series,
        judgments: StageRows[Judgment | Unscored],
    ) -> Iterator[PreferencePair]:
        """The records of the forks that were not asked for."""
        marked = pl.int_range(len(hashes), eager=True).is_in(list(tainted))
        judged = judgments.aligned(hashes, marked)
        held = zip(read_dialogues(self.run, marked), judged, tainted.values(), strict=True)
        for dialogue, judgment, said in held:
            if isinstance(judgment, Judgment):
                yield from refuse_forks(dialogue, judgment, config, "contaminated", said)

    async def verify_natural(self, print_: str, executor: Executor) -> None:
        """Have the judge verify the natural pairs that it has not seen."""
        self.maker.log.fingerprints["natural"] = print_
        rows = verified_rows(self.run, print_)
        again: frozenset[str] = frozenset()
        if self.retry_unscored:
            again = rows.forget_where(lambda pair: _unscored([pair]) is not None)
        natural = self.natural
        keys = natural.keys()
        done = frozenset(rows.done())
        await self.maker.make("natural", rows, keys, natural.items(done, again), executor)
        verified = (_unscored([pair] if pair else ()) for pair in rows.aligned(keys))
        self.maker.log.count_rows("natural", verified)
        self.maker.log.warn_about_data("natural", "natural pairs")
        self.verified = rows

    def write(self, records: Records, decided: pl.DataFrame | None) -> None:
        """Decide about the pairs, and write them, what the whole set of them says, and their counts."""
        found = self._surveyed(records)
        forked, natural = self._settled(records, found)
        if self.cleaning is not None:
            forked = self.cleaning.refuse_contaminated(forked)
        counts = write_pairs(self.run, forked, natural)
        if self.recipe.select and self.recipe.select.split_near and decided is not None:
            from curate.run.leaks import refuse_leaks

            counts = (
                refuse_leaks(self.run, held_out_ids(decided), self.recipe.select.split_near)
                or counts
            )
        self.maker.log.pairs, self.maker.log.natural_pairs = counts.pairs, counts.natural
        self.maker.log.natural_refusals.update(counts.natural_refusals)
        self.maker.log.refusals.update(counts.refusals)
        verified = {"fork": self.recipe.fork or None, "natural": self.recipe.natural.verification}
        self.maker.log.pair_decisions = {
            kind: describe_decisions(decided, verified[kind], found)
            for kind, decided in counts.decided.items()
        }
        for kind in FUNNEL_KINDS:
            if stages := counts.funnel.stages(kind):
                self.maker.log.funnels[kind] = stages
        if self.recipe.pair_checks:
            self.maker.log.pair_checks = check_pairs(self.run, self.recipe.pair_checks)

    def _surveyed(self, records: Records) -> Survey:
        """What all pairs of the run show of the judge, and what the user must hear of it."""
        log, found = self.maker.log, survey(records())
        if self.verified is not None:
            for pair in self.natural.pairs(self.verified):
                found.add(pair)
        log.position_spread, log.label_agreement = found.spread, found.agreement
        log.warn(UNCALIBRATED if "uncalibrated" in found.decided_by else None)
        log.warn(BY_LETTERS if "letters" in found.decided_by else None)
        if found.agreement is not None and not found.agreement.is_shown:
            log.warn(agreement_warning(found.agreement))
        return found

    def _settled(
        self, records: Records, found: Survey
    ) -> tuple[Iterable[PreferencePair], Iterable[PreferencePair]]:
        """Forked and natural pairs, decided by what all of the run's pairs show of the judge."""
        fork, verify = self.recipe.fork, self.recipe.natural.verification
        forked: Iterable[PreferencePair] = records()
        if fork:
            forked = (settle(pair, found, fork) for pair in forked)
        natural: Iterable[PreferencePair] = self.natural.pairs(self.verified)
        if found.agreement is not None and not found.agreement.is_shown:
            natural = map(leave_to_the_data, natural)
        elif verify is not None:
            natural = (settle(pair, found, verify) for pair in natural)
        return forked, natural


def _unscored(row: Sequence[PreferencePair]) -> str | None:
    """Why a row of pairs came to nothing for want of the judge's answer, as a reason code; else None.

    A fork that gave a pair is settled, whatever became of its other candidates. Where it is refused for an
    earlier turn without a score nobody was asked: that turn is counted in the stage `judge`.
    """
    if any(pair.refusal is None for pair in row):
        return None
    for pair in row:
        if pair.check is not None and pair.check.unscored is not None:
            return pair.check.unscored
    return None
