"""The part of a run that makes pairs: forks, natural pairs, the dropped ones of both, and their files.

It is separate from the loop over stages because pairs follow rules of their own: what may be forked depends on scores and
eval sets, a fork gives several records, and pairs that passed are checked once more when all pairs are there.
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
    settle_pair,
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
from curate.run.scoring import ScoreRows
from curate.run.staging import Job, fork_rows, verified_rows
from curate.selection.rules import matching, narrowed
from curate.stages import Stage, WorkItem
from curate.storage.stage_rows import StageRows

Records = Callable[[], Iterator[PreferencePair]]
"""Gives the records of pairs, each time from the start."""


def no_records() -> Iterator[PreferencePair]:
    """Yield nothing: for a run that forks nothing."""
    return iter(())


@dataclass(slots=True)
class Pairing:
    """The pairs of one run.

    Attributes:
        cleaning: finds what shares text with an eval set; None where nothing is cleaned.
        forked: gives the records of the forks.
        natural: the natural pairs of the data, where a judge verifies them.
        verified: the judge's rows about them.
    """

    job: Job
    cleaning: CleaningInputs | None = None
    forked: Records = no_records
    natural: NaturalRows | None = None
    verified: StageRows[PreferencePair] | None = None

    def find_natural(self) -> NaturalRows:
        """Find the natural pairs for a judge to verify, and store them in `natural`."""
        job = self.job
        with job.log.timed("find_natural"):
            self.natural = NaturalRows.found(job.path, job.recipe.natural, self.cleaning)
        return self.natural

    async def fork(
        self,
        config: ForkConfig,
        stage: Stage[list[PreferencePair]],
        table: pl.LazyFrame,
        scores: ScoreRows,
        runner: Runner,
    ) -> None:
        """Fork the dialogues that `fork.where` admits, except those that were forked before."""
        job, judgments = self.job, scores.judgments
        if judgments is None:
            raise ValueError("forks are made of judged dialogues")
        rows = fork_rows(job.path, stage.fingerprint)
        columns = narrowed(table, {"fork.where": config.where})
        admitted = matching(columns, config.where) & columns["verdict"].is_not_null()
        hashes = columns["content_hash"]
        # Of equal dialogues the first that is admitted; a condition may read more than the content.
        is_first = pl.struct("hash", "admitted").is_first_distinct() & pl.col("admitted")
        first = pl.DataFrame({"hash": hashes, "admitted": admitted}).select(is_first).to_series()
        # A dialogue that is in an eval set gives no pair, so no model is asked to fork it.
        tainted = self._contaminated(first)
        clean = first & ~pl.int_range(len(first), eager=True).is_in(list(tainted))
        keys = hashes.filter(clean)
        again: frozenset[str] = frozenset()
        if job.retry_unscored:
            again = rows.forget_where(lambda pairs: _unscored(pairs) is not None)
            rows.forget(scores.rejudged)
        missing = clean & ~hashes.is_in(rows.done().implode())
        no_metrics = repeat(None, int(missing.sum()))
        metric_rows = scores.metrics.aligned(hashes, missing) if scores.metrics else no_metrics
        items = (
            WorkItem(
                dialogue,
                judgment,
                faults=metrics.faults if isinstance(metrics, MetricsScore) else {},
                again=dialogue.content_hash in again,
            )
            for dialogue, judgment, metrics in zip(
                job.dialogues(missing),
                judgments.aligned(hashes, missing),
                metric_rows,
                strict=True,
            )
            if isinstance(judgment, Judgment)
        )
        await job.make_rows(stage, rows, keys, items, runner)
        job.log.stage(stage.name).count(_unscored(pairs or ()) for pairs in rows.aligned(keys))

        def records() -> Iterator[PreferencePair]:
            forks = (pair for pairs in rows.aligned(keys) for pair in pairs or ())
            return chain(forks, self._drop_tainted(config, tainted, hashes, judgments))

        self.forked = records

    def _contaminated(self, mask: pl.Series) -> dict[int, str]:
        """Return, by their place, what the dialogues in `mask` share with eval sets, in words."""
        if self.cleaning is None or not self.cleaning.evals:
            return {}
        details = self.cleaning.contaminations(self.job.dialogues(mask))
        places = zip(mask.arg_true(), details, strict=True)
        return {place: detail for place, detail in places if detail is not None}

    def _drop_tainted(
        self,
        config: ForkConfig,
        tainted: Mapping[int, str],
        hashes: pl.Series,
        judgments: StageRows[Judgment | Unscored],
    ) -> Iterator[PreferencePair]:
        """Yield the records of the forks that no model was asked for."""
        mask = pl.int_range(len(hashes), eager=True).is_in(list(tainted))
        rows = zip(
            self.job.dialogues(mask),
            judgments.aligned(hashes, mask),
            tainted.values(),
            strict=True,
        )
        for dialogue, judgment, detail in rows:
            if isinstance(judgment, Judgment):
                yield from drop_forks(dialogue, judgment, config, DropReason.CONTAMINATED, detail)

    async def verify_natural(self, stage: Stage[PreferencePair], runner: Runner) -> None:
        """Ask the judge to verify the natural pairs that have no row yet."""
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
        """Decide about the pairs, write them, and report on the whole set of them."""
        job, recipe = self.job, self.job.recipe
        evidence = self._survey_judge()
        forked, natural = self._settle_pairs(evidence)
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
                label_agreement=evidence.agreement,
                position_spread=evidence.spread,
                pair_decisions={
                    kind: describe_decisions(by, verified[kind], evidence)
                    for kind, by in counts.decided_by.items()
                },
                pair_checks=check_pairs(job.path, recipe.pair_checks) if recipe.pair_checks else {},
            )
        )

    def _survey_judge(self) -> Survey:
        """Return what all pairs of the run show of the judge; warn of what the user must know."""
        log, evidence = self.job.log, survey(self.forked())
        if self.verified is not None and self.natural is not None:
            for pair in filter(None, self.verified.aligned(self.natural.keys)):
                evidence.add(pair)
        log.warn(UNCALIBRATED if "uncalibrated" in evidence.decided_by else None)
        log.warn(BY_LETTERS if "letters" in evidence.decided_by else None)
        if evidence.agreement is not None and not evidence.agreement.is_shown:
            log.warn(agreement_warning(evidence.agreement))
        return evidence

    def _settle_pairs(
        self, evidence: Survey
    ) -> tuple[Iterable[PreferencePair], Iterable[PreferencePair]]:
        """Return forked and natural pairs, decided by what all of the run's pairs show of the judge."""
        recipe = self.job.recipe
        fork, verify = recipe.fork, recipe.natural.verification
        forked: Iterable[PreferencePair] = self.forked()
        if fork:
            forked = (settle_pair(pair, evidence, fork) for pair in forked)
            if fork.certificate is not None:
                certificate = fork.certificate
                forked = (hold_to_certificate(pair, certificate) for pair in forked)
        natural = self._natural()
        if evidence.agreement is not None and not evidence.agreement.is_shown:
            natural = map(leave_to_the_data, natural)
        elif verify is not None:
            natural = (settle_pair(pair, evidence, verify) for pair in natural)
        return forked, natural

    def _natural(self) -> Iterator[PreferencePair]:
        """Return the natural pairs with the judge's checks, or as they are in the data where no judge verifies them."""
        if self.natural is not None and self.verified is not None:
            return self.natural.pairs(self.verified)
        natural = find_natural(self.job.path, self.job.recipe.natural, self.cleaning)
        return (pair for pair, _ in natural)


def _unscored(row: Sequence[PreferencePair]) -> str | None:
    """Return the reason code of a row that has no pair because the judge gave no answer; None for any other row.

    A fork that gave a pair is settled, whatever became of its other candidates. Where a fork is dropped because an
    earlier turn has no score, no model was asked: that turn is counted in the stage `judge`.
    """
    if any(pair.drop_reason is None for pair in row):
        return None
    for pair in row:
        if pair.check is not None and pair.check.unscored is not None:
            return pair.check.unscored
    return None
