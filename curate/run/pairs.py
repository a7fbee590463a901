"""The part of a run that makes pairs: forks, natural pairs, what is dropped of either, and their files.

Apart from the loop over stages because it has a life of its own: what may be forked follows from scores and eval
sets, a fork gives several records, and what passed is looked at once more when all pairs are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import polars as pl

from curate.executors.opening import Runner
from curate.pairs.config import ForkConfig
from curate.pairs.fork import drop_forks
from curate.pairs.funnel import FUNNEL_KINDS
from curate.pairs.settle import (
    BY_LETTERS,
    UNCALIBRATED,
    Survey,
    agreement_warning,
    describe_decisions,
    hold_to_certificate,
    leave_to_the_data,
    settle,
    survey,
)
from curate.records import (
    DropReason,
    Judgment,
    MetricsScore,
    PairsReport,
    PreferencePair,
    Unscored,
)
from curate.run.cleaning_inputs import CleaningInputs
from curate.run.natural_pairs import NaturalRows, find_natural
from curate.run.outputs import (
    NATURAL_PAIRS,
    PAIRS,
    held_out_ids,
    read_pairs,
    set_fingerprint,
    write_pairs,
)
from curate.run.pair_checks import check_pairs
from curate.run.scoring import Scores
from curate.run.staging import Job, fork_rows, verified_rows
from curate.selection.rules import matching, narrowed
from curate.stages import Stage, WorkItem
from curate.storage.stage_rows import StageRows

Records = Callable[[], Iterator[PreferencePair]]
"""Gives the records of pairs, each time from the start."""


def no_records() -> Iterator[PreferencePair]:
    """Of a run that forks nothing."""
    return iter(())


@dataclass(slots=True)
class Pairing:
    """The pairs of one run.

    Attributes:
        cleaning: finds what shares text with an eval set; None where nothing is cleaned.
        forked: gives the records of the forks.
        natural: the natural pairs as they were found, where a judge is to verify them.
        verified: rows of those that it was asked about.
    """

    job: Job
    cleaning: CleaningInputs | None = None
    forked: Records = no_records
    natural: NaturalRows | None = None
    verified: StageRows[PreferencePair] | None = None

    def find_natural(self) -> NaturalRows:
        """Find the natural pairs that a judge is to verify, and keep them."""
        job = self.job
        with job.log.timed("find_natural"):
            self.natural = NaturalRows.found(job.path, job.recipe.natural, self.cleaning)
        return self.natural

    async def fork(
        self,
        config: ForkConfig,
        stage: Stage[list[PreferencePair]],
        table: pl.LazyFrame,
        scores: Scores,
        runner: Runner,
    ) -> None:
        """Fork the dialogues that `fork.where` admits; those forked before are not asked for again."""
        job, judgments = self.job, scores.judgments
        if judgments is None:
            raise ValueError("forks are made of judged dialogues")
        rows = fork_rows(job.path, stage.fingerprint)
        read = narrowed(table, {"fork.where": config.where})
        admitted = matching(read, config.where) & read["verdict"].is_not_null()
        hashes = read["content_hash"]
        # Of equal dialogues the first that is admitted; a condition may read more than the content.
        both = pl.struct("hash", "admitted").is_first_distinct() & pl.col("admitted")
        first = pl.DataFrame({"hash": hashes, "admitted": admitted}).select(both).to_series()
        # What is in an eval set gives no pair, so no model is asked to fork it.
        tainted = self._contaminated(first)
        clean = first & ~pl.int_range(len(first), eager=True).is_in(list(tainted))
        keys = hashes.filter(clean)
        again: frozenset[str] = frozenset()
        if job.retry_unscored:
            again = rows.forget_where(lambda pairs: _unscored(pairs) is not None)
            rows.forget(scores.rejudged)
        owed = clean & ~hashes.is_in(rows.done().implode())
        judged = judgments.aligned(hashes, owed)
        no_metrics = repeat(None, int(owed.sum()))
        measured = scores.metrics.aligned(hashes, owed) if scores.metrics else no_metrics
        items = (
            WorkItem(
                dialogue,
                judgment,
                faults=metrics.faults if isinstance(metrics, MetricsScore) else {},
                again=dialogue.content_hash in again,
            )
            for dialogue, judgment, metrics in zip(
                job.dialogues(owed), judged, measured, strict=True
            )
            if isinstance(judgment, Judgment)
        )
        await job.make_rows(stage, rows, keys, items, runner)
        job.log.stage(stage.name).count(_unscored(pairs or ()) for pairs in rows.aligned(keys))

        def records() -> Iterator[PreferencePair]:
            made = (pair for pairs in rows.aligned(keys) for pair in pairs or ())
            return chain(made, self._drop_tainted(config, tainted, hashes, judgments))

        self.forked = records

    def _contaminated(self, wanted: pl.Series) -> dict[int, str]:
        """What dialogues share with eval sets, by their place, of those marked in `wanted`."""
        if self.cleaning is None or not self.cleaning.evals:
            return {}
        found = self.cleaning.contaminations(self.job.dialogues(wanted))
        places = wanted.arg_true()
        return {at: said for at, said in zip(places, found, strict=True) if said is not None}

    def _drop_tainted(
        self,
        config: ForkConfig,
        tainted: Mapping[int, str],
        hashes: pl.Series,
        judgments: StageRows[Judgment | Unscored],
    ) -> Iterator[PreferencePair]:
        """The records of the forks that were not asked for."""
        marked = pl.int_range(len(hashes), eager=True).is_in(list(tainted))
        judged = judgments.aligned(hashes, marked)
        held = zip(self.job.dialogues(marked), judged, tainted.values(), strict=True)
        for dialogue, judgment, said in held:
            if isinstance(judgment, Judgment):
                yield from drop_forks(dialogue, judgment, config, DropReason.CONTAMINATED, said)

    async def verify_natural(self, stage: Stage[PreferencePair], runner: Runner) -> None:
        """Have the judge verify the natural pairs that it has not seen."""
        job, natural = self.job, self.natural
        if natural is None:
            raise ValueError("natural pairs are found before they are verified")
        rows = verified_rows(job.path, stage.fingerprint)
        again: frozenset[str] = frozenset()
        if job.retry_unscored:
            again = rows.forget_where(lambda pair: _unscored([pair]) is not None)
        items = natural.items(frozenset(rows.done()), again)
        report = job.log.stage(stage.name)
        report.identity = stage.identity
        await job.make_rows(stage, rows, natural.keys, items, runner)
        report.count(_unscored([pair] if pair else ()) for pair in rows.aligned(natural.keys))
        job.log.warn_about_data(stage.name, "natural pair")
        self.verified = rows

    def write(self, decided: pl.DataFrame | None) -> None:
        """Decide about the pairs, write them, and report what the whole set of them says."""
        job, recipe = self.job, self.job.recipe
        found = self._surveyed()
        forked, natural = self._settled(found)
        if self.cleaning is not None:
            forked = self.cleaning.drop_contaminated(forked)
        counts = write_pairs(job.path, forked, natural)
        if recipe.select and recipe.select.split_near and decided is not None:
            from curate.run.leaks import drop_leaks

            near = recipe.select.split_near
            counts = drop_leaks(job.path, held_out_ids(decided), near) or counts
        for name in (PAIRS, NATURAL_PAIRS):
            job.log.sets[name] = set_fingerprint(
                pair.pair_id for pair in read_pairs(job.path, name)
            )
        verified = {"fork": recipe.fork or None, "natural": recipe.natural.verification}
        job.log.parts.append(
            PairsReport(
                pairs=counts.pairs,
                natural_pairs=counts.natural,
                dropped=counts.drop_reasons.total(),
                drop_reasons=dict(counts.drop_reasons),
                natural_drop_reasons=dict(counts.natural_drop_reasons),
                funnels={
                    kind: stages for kind in FUNNEL_KINDS if (stages := counts.funnel.stages(kind))
                },
                label_agreement=found.agreement,
                position_spread=found.spread,
                pair_decisions={
                    kind: describe_decisions(decided, verified[kind], found)
                    for kind, decided in counts.decided.items()
                },
                pair_checks=check_pairs(job.path, recipe.pair_checks) if recipe.pair_checks else {},
            )
        )

    def _surveyed(self) -> Survey:
        """What all pairs of the run show of the judge, and what the user must hear of it."""
        log, found = self.job.log, survey(self.forked())
        if self.verified is not None and self.natural is not None:
            for pair in filter(None, self.verified.aligned(self.natural.keys)):
                found.add(pair)
        log.warn(UNCALIBRATED if "uncalibrated" in found.decided_by else None)
        log.warn(BY_LETTERS if "letters" in found.decided_by else None)
        if found.agreement is not None and not found.agreement.is_shown:
            log.warn(agreement_warning(found.agreement))
        return found

    def _settled(self, found: Survey) -> tuple[Iterable[PreferencePair], Iterable[PreferencePair]]:
        """Forked and natural pairs, decided by what all of the run's pairs show of the judge."""
        recipe = self.job.recipe
        fork, verify = recipe.fork, recipe.natural.verification
        forked: Iterable[PreferencePair] = self.forked()
        if fork:
            forked = (settle(pair, found, fork) for pair in forked)
            if fork.certificate is not None:
                certificate = fork.certificate
                forked = (hold_to_certificate(pair, certificate) for pair in forked)
        natural = self._natural()
        if found.agreement is not None and not found.agreement.is_shown:
            natural = map(leave_to_the_data, natural)
        elif verify is not None:
            natural = (settle(pair, found, verify) for pair in natural)
        return forked, natural

    def _natural(self) -> Iterator[PreferencePair]:
        """The natural pairs as the judge left them, or as they are found where it is not asked."""
        if self.natural is not None and self.verified is not None:
            return self.natural.pairs(self.verified)
        found = find_natural(self.job.path, self.job.recipe.natural, self.cleaning)
        return (pair for pair, _ in found)


def _unscored(row: Sequence[PreferencePair]) -> str | None:
    """Why a row of pairs came to nothing for want of the judge's answer, as a reason code; else None.

    A fork that gave a pair is settled, whatever became of its other candidates. Where it is dropped for an
    earlier turn without a score no model was asked: that turn is counted in the stage `judge`.
    """
    if any(pair.drop_reason is None for pair in row):
        return None
    for pair in row:
        if pair.check is not None and pair.check.unscored is not None:
            return pair.check.unscored
    return None
