"""`curate agreement`: compare a run's scores with people's labels.

The statistics are in `trust.ordinal_agreement`, `trust.raters` and `trust.corrected_share`. This module joins labels,
dialogues and scores, and keeps the report in the run folder. No model calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.judging.opinions import scores_of
from curate.records import (
    CONVERSATION_DIMENSIONS,
    GOOD_VERDICTS,
    TURN_DIMENSIONS,
    VERDICTS,
    AdherenceScore,
    JudgeIdentity,
    Judgment,
    Manifest,
    MetricsScore,
    StageName,
    TrustKind,
)
from curate.records.agreement import (
    Agreement,
    CorrectedShare,
    DimensionAgreement,
    SliceBy,
    agreement_sentence,
)
from curate.records.readings import METRIC
from curate.run.ingest import read_dialogues
from curate.run.labels.agreement_marks import write_marks
from curate.run.labels.drawn_labels import check_hold_out, given_labels, keep_labels, without_kept
from curate.run.labels.pair_votes import preference_of, votes_by_pair
from curate.run.labels.run_scores import (
    adherence_of,
    highest_levels,
    item_reading,
    judgments_of,
    metrics_of,
    one_judge,
)
from curate.run.outputs import DROPPED_PAIRS, NATURAL_PAIRS, PAIRS, read_pairs
from curate.run.read_back import read_manifest
from curate.run.trust_reports import write_trust_report
from curate.selection.table import facts_row
from curate.trust.corrected_share import ShareName, Trials, correct_share, counted
from curate.trust.gold import Gold, GoldItem, Label, Scale, Votes, match_gold
from curate.trust.juries import jury_worth
from curate.trust.label_rows import GivenLabels, PairVote, Unused, split_labels
from curate.trust.ordinal_agreement import Compared, Levels, measure_dimension
from curate.trust.raters import EPSILONS

R = TypeVar("R")
LEVELS = ("1", "2", "3", "4", "5")
YES_NO = ("no", "yes")
SIDES = ("rejected", "chosen")


@dataclass(frozen=True, slots=True)
class MeasuredAgreement:
    """A report of agreement, and the labels that could not be used."""

    report: Agreement
    unused: Unused


def measure_agreement(
    run: str | Path,
    gold: str | Path | GivenLabels,
    *,
    scales: Mapping[str, Scale] | None = None,
    raters: str = "skilled",
    hold_out: float = 0.0,
) -> MeasuredAgreement:
    """Measure how far a run's scores agree with people's labels; the report is kept in the run folder. No model calls.

    Args:
        run: folder of a run.
        gold: file of labels of dialogues and pairs, see `trust.label_rows.split_labels`; or labels as `given_labels` reads them.
        scales: as `trust.gold.parse_scales` gives them.
        raters: kind of people who gave the labels, for the alternative annotator test: experts, skilled or crowd.
        hold_out: share of the labelled dialogues to leave out, so that they can certify what the others chose; with
            them go the dialogues that were drawn to certify. 0 leaves out none.

    Raises:
        UsageError: no run, no label about it, labels that contradict themselves, or no score to compare them with.
        RunLockedError: another process is writing the folder.
    """
    run = Path(run)
    labels = gold if isinstance(gold, GivenLabels) else given_labels(run, Path(gold))
    measured = agreement_of(run, labels, scales=scales, raters=raters, hold_out=hold_out)
    keep_labels(run, TrustKind.AGREEMENT, labels)
    write_trust_report(run, measured.report)
    write_marks(run, measured.report)
    return measured


def agreement_of(
    run: Path,
    labels: GivenLabels,
    *,
    scales: Mapping[str, Scale] | None,
    raters: str,
    hold_out: float,
) -> MeasuredAgreement:
    """Return the agreement of a run's scores with people's labels; arguments and errors as of `measure_agreement`."""
    if raters not in EPSILONS:
        raise UsageError("no such kind of rater", got=raters, expected=", ".join(EPSILONS))
    check_hold_out(hold_out)
    rows, pairs, unused = split_labels(labels)
    manifest = read_manifest(run)
    if hold_out and rows:
        rows, held_out = without_kept(run, rows, hold_out)
        unused.merge(held_out)
    join = _Join(run, manifest, EPSILONS[raters])
    matched = Gold(unused=unused)
    if rows or not pairs:
        metrics = metrics_of(run)
        matched = match_gold(
            rows, join.dialogues.values(), scales, matched.unused, highest_levels(metrics)
        )
        join.add_rubric(matched)
        join.add_metrics(matched, metrics)
        join.add_adherence(matched)
    if pairs:
        join.add_pairs(pairs, matched.unused)
    if not join.dimensions:
        raise UsageError(
            "no label can be compared with a score",
            got="; ".join(
                [
                    *matched.unused.reasons(),
                    *(f"{name}: {why}" for name, why in join.not_measured.items()),
                ]
            ),
            expected="labels of dialogues, turns or pairs that the judge scored",
        )
    report = Agreement(
        sentence=agreement_sentence(join.dimensions, join.shares),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprints={stage: manifest.fingerprints[stage] for stage in join.judges},
        gold=labels.origin,
        rows=len(labels.rows),
        raters=raters,
        scales={name: str(scale) for name, scale in (scales or {}).items()},
        hold_out=hold_out,
        unused=matched.unused.counts,
        judges=join.judges,
        dimensions=join.dimensions,
        not_measured=join.not_measured,
        assumed_scales=matched.assumed_scales,
        shares=tuple(join.shares),
    )
    return MeasuredAgreement(report, matched.unused)


class _Join:
    """Compares labels with the scores of one run, dimension by dimension."""

    def __init__(self, run: Path, manifest: Manifest, epsilon: float) -> None:
        self._run = run
        self._manifest = manifest
        self._epsilon = epsilon
        self.dialogues = {dialogue.content_hash: dialogue for dialogue in read_dialogues(run)}
        self._groups = {key: one.group or key for key, one in self.dialogues.items()}
        self.dimensions: dict[str, DimensionAgreement] = {}
        self.judges: dict[str, JudgeIdentity] = {}
        self.not_measured: dict[str, str] = {}
        self.shares: list[CorrectedShare] = []

    # ---- the rubric: six dimensions, the verdict, and whether it is good

    def add_rubric(self, gold: Gold) -> None:
        """Compare the judge's levels, its verdicts, and whether a dialogue is good."""
        if not (gold.levels or gold.verdicts or gold.good_votes):
            return
        if StageName.JUDGE not in self._manifest.fingerprints:
            for label in gold.levels.values():
                gold.unused.add("the run has no rubric judge", label.place, label.rows)
            for votes in gold.good_votes.values():
                gold.unused.add("the run has no rubric judge", votes.place, len(votes.by_rater))
            return
        judgments = self._in_order(judgments_of(self._run))
        self.judges[StageName.JUDGE] = one_judge(judgments.values(), "judgments")
        fitted = self._calibrated_levels()
        is_calibrated = any(j.identity != j.identity.uncalibrated() for j in judgments.values())
        for name in (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS):
            labels = {item: label for item, label in gold.levels.items() if item.dimension == name}
            scale = gold.scales.get(name, Scale())
            self._measure(
                name,
                self._items(labels, gold, judgments, {}),
                LEVELS,
                scale=str(scale),
                compared="calibrated levels" if is_calibrated and name in fitted else "digits",
                scales_differ=scale != Scale() and not fitted.get(name, False),
                is_fitted=fitted.get(name, False) and self._may_be_fitted("judge", labels),
                can_calibrate=True,
            )
            self._add_jury(name, _means(labels), judgments)
        if any(fitted.values()):
            self._leave_out_fitted(gold)
        self._add_verdicts(gold, judgments)
        self._add_good(gold, judgments)

    def _add_jury(
        self,
        name: str,
        means: Iterable[tuple[GoldItem, float | None]],
        records: Mapping[str, Judgment] | Mapping[str, MetricsScore] | Mapping[str, AdherenceScore],
    ) -> None:
        """Add what the judges of a jury are worth on the labels of a dimension; do nothing for one judge or a cascade.

        Args:
            means: of people's labels of each item; None for n/a.
            records: of the run, by content hash.
        """
        rows: list[tuple[str, float, float, dict[str, float]]] = []
        for item, mean in means:
            record = records.get(item.content_hash)
            if record is None or mean is None or record.identity.engine != "jury":
                continue
            key = _opinion_key(item, record)
            each = {one.judge: one.scores[key] for one in record.opinions if key in one.scores}
            value = scores_of(record).get(key)
            if len(each) == len(record.opinions) and value is not None:
                rows.append((self._groups[item.content_hash], mean, value, each))
        measured = self.dimensions.get(name)
        if not rows or measured is None:
            return
        groups, people, jury, opinions = zip(*rows, strict=True)
        figures = jury_worth(
            {judge: np.array([each[judge] for each in opinions]) for judge in opinions[0]},
            np.array(jury),
            np.array(people),
            np.unique(groups, return_inverse=True)[1],
        )
        self.dimensions[name] = measured.model_copy(update={"jury": figures})

    def _calibrated_levels(self) -> dict[str, bool]:
        """Return the dimensions whose levels the recipe's calibration cuts, each with whether the cuts were fitted to labels."""
        levels = self._calibration("judge").get("levels") or {}
        return {name: bool(cuts.get("labels")) for name, cuts in levels.items()}

    def _calibration(self, section: str) -> Mapping[str, Any]:
        section_config = self._manifest.recipe.get(section)
        calibration = (
            section_config.get("calibration") if isinstance(section_config, dict) else None
        )
        return calibration if isinstance(calibration, dict) else {}

    def _may_be_fitted(self, section: str, items: Iterable[GoldItem]) -> bool:
        """Return whether the calibration was fitted to labels of one of these dialogues, or does not name its dialogues."""
        labelled = self._calibration(section).get("labelled")
        return not labelled or not {item.content_hash for item in items}.isdisjoint(labelled)

    def _leave_out_fitted(self, gold: Gold) -> None:
        """Remove the verdicts of dialogues that the calibration was fitted to: it does too well on them."""
        labelled = set(self._calibration("judge").get("labelled") or ())
        for key in labelled & {*gold.good_votes, *gold.verdicts}:
            gold.verdicts.pop(key, None)
            votes = gold.good_votes.pop(key)
            why = "the run's levels are fitted to labels of the dialogue, so its verdict proves nothing"
            gold.unused.add(why, votes.place, len(votes.by_rater))

    def _items(
        self,
        labels: Mapping[GoldItem, Label],
        gold: Gold,
        judgments: Mapping[str, Judgment],
        metrics: Mapping[str, MetricsScore],
    ) -> list[Compared]:
        """Return labels beside the judge's levels of the same items; count those that it could not score."""
        items = []
        for item, label in labels.items():
            reading = item_reading(item, judgments, metrics)
            if isinstance(reading, str):
                gold.unused.add(reading, label.place, label.rows)
                continue
            # Levels from 0 are put on levels from 1.
            first = 1 if item.dimension.startswith(METRIC) else 0
            level = None if reading.level is None else reading.level + first
            value = None if reading.value is None else reading.value + first
            items.append(
                self._compared(item.content_hash, label.shifted(first), level, value, gold)
            )
        return items

    def _compared(
        self, key: str, label: Label, level: int | None, value: float | None, gold: Gold
    ) -> Compared:
        return Compared(
            judge=level,
            value=value,
            people=label.level,
            mean=label.mean,
            group=self._groups[key],
            raters=label.raters,
            each=label.each,
            slices=self._slices(key, gold),
        )

    def _add_verdicts(self, gold: Gold, judgments: Mapping[str, Judgment]) -> None:
        """Compare verdicts, given in the rubric's four words."""
        items = []
        for key, label in gold.verdicts.items():
            if key in judgments:
                level = VERDICTS.index(judgments[key].verdict) + 1
                items.append(self._compared(key, label, level, level, gold))
        self._measure("verdict", items, VERDICTS, scale=", ".join(VERDICTS), compared="verdicts")

    def _add_good(self, gold: Gold, judgments: Mapping[str, Judgment]) -> None:
        """Compare whether a dialogue is good: by its verdict, and by people's `verdict` or `accept`."""
        items = []
        for key, votes in gold.good_votes.items():
            if key not in judgments:
                rows = len(votes.by_rater)
                gold.unused.add("the judge could not score the dialogue", votes.place, rows)
                continue
            is_good = judgments[key].verdict in GOOD_VERDICTS
            items.append(self._voted(key, votes, is_good, float(is_good), gold))
        self._measure("good", items, YES_NO, scale="no, yes", compared="decisions")
        pool = [
            (judgment.verdict in GOOD_VERDICTS, self._groups[key])
            for key, judgment in judgments.items()
        ]
        self._correct("good dialogues", pool, items)

    def _voted(self, key: str, votes: Votes, decision: bool, value: float, gold: Gold) -> Compared:
        """Return an item of a yes-or-no question: no is level 1, yes is level 2."""
        return Compared(
            judge=1 + decision,
            value=value,
            people=1 + votes.is_yes,
            mean=1 + sum(votes.by_rater.values()) / len(votes.by_rater),
            group=self._groups[key],
            raters={name: 1 + votes.by_rater[name] for name in sorted(votes.named)},
            each=[1 + is_yes for is_yes in votes.by_rater.values()],
            slices=self._slices(key, gold),
        )

    # ---- weighted metrics

    def add_metrics(self, gold: Gold, metrics: Mapping[str, MetricsScore]) -> None:
        """Compare each labelled metric on its own scale: 0-5, or fail and pass."""
        if not gold.metrics:
            return
        self.judges[StageName.METRICS] = one_judge(metrics.values(), "metrics")
        is_calibrated = any(row.identity != row.identity.uncalibrated() for row in metrics.values())
        by_name: dict[str, dict[GoldItem, Label]] = defaultdict(dict)
        for item, label in gold.metrics.items():
            by_name[item.dimension][item] = label
        for dimension, labels in by_name.items():
            top = highest_levels(metrics)[dimension.removeprefix(METRIC)]
            self._measure(
                dimension,
                self._items(labels, gold, {}, metrics),
                ("fail", "pass") if top == 1 else [str(level) for level in range(top + 1)],
                scale=str(gold.scales[dimension]),
                compared="calibrated levels" if is_calibrated else "digits",
                is_fitted=is_calibrated and self._may_be_fitted("metrics", labels),
                can_calibrate=True,
            )
            self._add_jury(dimension, _means(labels), metrics)

    # ---- role adherence

    def add_adherence(self, gold: Gold) -> None:
        """Compare whether turns keep their role; whole dialogues where the judge was asked about those."""
        if not gold.adherent_votes:
            return
        if StageName.ADHERENCE not in self._manifest.fingerprints:
            for votes in gold.adherent_votes.values():
                why = "the run has no role adherence"
                gold.unused.add(why, votes.place, len(votes.by_rater))
            return
        scores = self._in_order(adherence_of(self._run, needed=True))
        self.judges[StageName.ADHERENCE] = one_judge(scores.values(), "adherence scores")
        items = []
        for item, votes in gold.adherent_votes.items():
            answer = _adherence_answer(scores.get(item.content_hash), item.turn)
            if isinstance(answer, str):
                gold.unused.add(answer, votes.place, len(votes.by_rater))
                continue
            items.append(self._voted(item.content_hash, votes, *answer, gold))
        self._measure("adherence", items, YES_NO, scale="violation, adherent", compared="decisions")
        means = (
            (item, fmean(votes.by_rater.values())) for item, votes in gold.adherent_votes.items()
        )
        self._add_jury("adherence", means, scores)
        whole = any(score.conversation is not None for score in scores.values())
        pool = [
            (is_adherent, self._groups[key])
            for key, score in scores.items()
            for is_adherent in _adherent_answers(score)
        ]
        self._correct("adherent dialogues" if whole else "adherent turns", pool, items)

    # ---- pairs

    def add_pairs(self, votes: Sequence[PairVote], unused: Unused) -> None:
        """Compare the side of a pair that the judge prefers with the side that people call better."""
        pairs = {
            pair.pair_id: pair
            for name in (PAIRS, NATURAL_PAIRS, DROPPED_PAIRS)
            for pair in read_pairs(self._run, name)
        }
        items = []
        for pair_id, pair_votes in votes_by_pair(votes, unused).items():
            pair = pairs.get(pair_id)
            preferred = None if pair is None else preference_of(pair)
            if pair is None or preferred is None:
                why = "no pair of the run has that id"
                if pair is not None:
                    why = "the judge did not compare the pair in a way that prefers a side"
                unused.add(why, pair_votes.place, len(pair_votes.by_rater))
                continue
            self._groups.setdefault(pair.content_hash, pair.content_hash)
            items.append(
                self._voted(pair.content_hash, pair_votes, preferred > 0, preferred, Gold())
            )
        if items:
            for stage in (StageName.FORK, StageName.NATURAL):
                if (
                    stage in self._manifest.fingerprints
                    and StageName.JUDGE in self._manifest.identities
                ):
                    self.judges[stage] = self._manifest.identities[StageName.JUDGE]
        self._measure("preference", items, SIDES, scale="rejected, chosen", compared="decisions")

    # ---- what all have in common

    def _measure(
        self,
        name: str,
        items: Sequence[Compared],
        names: Sequence[str],
        *,
        scale: str,
        compared: Levels,
        scales_differ: bool = False,
        is_fitted: bool = False,
        can_calibrate: bool = False,
    ) -> None:
        if any(item.judge is not None and item.people is not None for item in items):
            self.dimensions[name] = measure_dimension(
                items,
                names,
                scale=scale,
                compared=compared,
                scales_differ=scales_differ,
                is_fitted=is_fitted,
                can_calibrate=can_calibrate,
                epsilon=self._epsilon,
            )
        elif items:
            self.not_measured[name] = (
                f"of {len(items)} labelled items none has a level by both judge and people: the others are n/a"
            )

    def _correct(
        self,
        name: ShareName,
        pool: Sequence[tuple[bool, str]],
        items: Sequence[Compared],
    ) -> None:
        """Add a share of the whole run, corrected by the judge's errors on the labelled items (`_voted`)."""
        if not items:
            return
        reported = _trials(pool)
        people = _trials([(item.people == 2, item.group) for item in items])
        yes = _trials([(item.judge == 2, item.group) for item in items if item.people == 2])
        no = _trials([(item.judge == 1, item.group) for item in items if item.people == 1])
        assert reported is not None
        assert people is not None
        self.shares.append(correct_share(name, reported, people, yes, no))

    def _in_order(self, records: Mapping[str, R]) -> dict[str, R]:
        """Return the records in the order of the run's dialogues."""
        return {key: records[key] for key in self.dialogues if key in records}

    def _slices(self, key: str, gold: Gold) -> dict[SliceBy, str]:
        dialogue = self.dialogues.get(key)
        if dialogue is None:
            return {}
        facts = facts_row(dialogue)
        labelled_language = facts["labels"].get("language")
        language = gold.languages.get(key) or facts["language"] or labelled_language
        values: dict[SliceBy, str | None] = {
            "language": language and str(language),
            "role": facts["role"],
            "length": _length(dialogue),
            "source": facts["source"],
        }
        return {by: value for by, value in values.items() if value}


def _means(labels: Mapping[GoldItem, Label]) -> Iterable[tuple[GoldItem, float | None]]:
    return ((item, label.mean) for item, label in labels.items())


def _opinion_key(item: GoldItem, record: Judgment | MetricsScore | AdherenceScore) -> str:
    """Return the name of an item's score in `JudgeOpinion.scores`."""
    if isinstance(record, MetricsScore):
        return item.dimension.removeprefix(METRIC)
    if isinstance(record, AdherenceScore):
        return str(item.turn) if record.conversation is None else "conversation"
    return item.dimension if item.turn is None else f"{item.turn}.{item.dimension}"


def _adherence_answer(record: AdherenceScore | None, turn: int | None) -> tuple[bool, float] | str:
    """Return the judge's answer about a turn and its score, or the reason why there is none."""
    if record is None:
        return "role adherence of the dialogue could not be scored"
    if record.conversation is not None:
        return record.adherent, record.session_score
    for turn_score in record.per_turn:
        if (
            turn_score.turn == turn
            and turn_score.score is not None
            and turn_score.adherent is not None
        ):
            return turn_score.adherent, turn_score.score
    return "role adherence of that turn could not be scored"


def _adherent_answers(record: AdherenceScore) -> Iterable[bool]:
    if record.conversation is not None:
        return [record.adherent]
    return [turn.adherent for turn in record.per_turn if turn.adherent is not None]


def _trials(outcomes: Sequence[tuple[bool, str]]) -> Trials | None:
    if not outcomes:
        return None
    return counted([answer for answer, _ in outcomes], [group for _, group in outcomes])


def _length(dialogue: Dialogue) -> str:
    turns = sum(turn.number > 0 for turn in dialogue.turns)
    if turns <= 4:
        return "1-4 turns"
    return "5-10 turns" if turns <= 10 else "over 10 turns"
