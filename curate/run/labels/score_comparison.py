"""Compare people's labels with a run's scores, dimension by dimension.

The statistics are in `trust.ordinal_agreement`, `trust.juries` and `trust.corrected_share`; this module joins labels,
dialogues and scores for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from curate.dialogue import Dialogue
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
)
from curate.records.agreement import CorrectedShare, DimensionAgreement, SliceBy
from curate.records.readings import METRIC
from curate.run.labels.pair_votes import preference_of, votes_by_pair
from curate.run.labels.run_scores import (
    adherence_of,
    highest_levels,
    item_reading,
    judgments_of,
    one_judge,
)
from curate.run.outputs import DROPPED_PAIRS, NATURAL_PAIRS, PAIRS, read_pairs
from curate.selection.table import facts_row
from curate.trust.corrected_share import ShareName, Trials, correct_share, counted
from curate.trust.gold import Gold, GoldItem, Label, Votes
from curate.trust.juries import jury_worth
from curate.trust.label_rows import PairVote
from curate.trust.ordinal_agreement import Compared, measure_dimension
from curate.trust.scales import Scale

R = TypeVar("R")
LEVELS = ("1", "2", "3", "4", "5")
YES_NO = ("no", "yes")
SIDES = ("rejected", "chosen")


class ScoreComparison:
    """Compares people's labels with the scores of one run, dimension by dimension.

    Attributes:
        dimensions: what was measured.
        judges: by stage, whose scores were compared.
        not_measured: dimensions with labels that allow no figure, each with the reason.
        shares: of the whole run, corrected by the judge's errors on labelled items.
    """

    def __init__(
        self,
        run: Path,
        manifest: Manifest,
        dialogues: Mapping[str, Dialogue],
        gold: Gold,
        epsilon: float,
    ) -> None:
        """Take the run's dialogues by content hash, labels matched to them, and the epsilon of the test against people."""
        self._run = run
        self._manifest = manifest
        self._dialogues = dialogues
        self._gold = gold
        self._agreement_of = partial(measure_dimension, epsilon=epsilon)
        self._groups = {key: one.group or key for key, one in dialogues.items()}
        self.dimensions: dict[str, DimensionAgreement] = {}
        self.judges: dict[str, JudgeIdentity] = {}
        self.not_measured: dict[str, str] = {}
        self.shares: list[CorrectedShare] = []

    # ---- the rubric: six dimensions, the verdict, and whether it is good

    def add_rubric(self) -> None:
        """Compare the judge's levels, its verdicts, and whether a dialogue is good."""
        gold = self._gold
        if not (gold.levels or gold.verdicts or gold.good_votes):
            return
        if StageName.JUDGE not in self._manifest.fingerprints:
            labelled: list[Label | Votes] = [*gold.levels.values(), *gold.good_votes.values()]
            for label in labelled:
                self._leave_out(label, "the run has no rubric judge")
            return
        judgments = self._in_order(judgments_of(self._run))
        self.judges[StageName.JUDGE] = one_judge(judgments.values(), "judgments")
        fitted = self._calibrated_levels()
        is_calibrated = any(j.identity != j.identity.uncalibrated() for j in judgments.values())
        for name in (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS):
            labels = {item: label for item, label in gold.levels.items() if item.dimension == name}
            scale = gold.scales.get(name, Scale())
            items = self._items(labels, judgments, {})
            measured = self._agreement_of(
                items,
                LEVELS,
                scale=str(scale),
                compared="calibrated levels" if is_calibrated and name in fitted else "digits",
                scales_differ=scale != Scale() and not fitted.get(name, False),
                is_fitted=fitted.get(name, False) and self._may_be_fitted("judge", labels),
            )
            self._add(name, items, measured)
            self._add_jury(name, _means(labels), judgments)
        if any(fitted.values()):
            self._leave_out_fitted()
        self._add_verdicts(judgments)
        self._add_good(judgments)

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

    def _leave_out_fitted(self) -> None:
        """Remove the verdicts of dialogues that the calibration was fitted to: it does too well on them."""
        gold = self._gold
        labelled = set(self._calibration("judge").get("labelled") or ())
        for key in labelled & {*gold.good_votes, *gold.verdicts}:
            gold.verdicts.pop(key, None)
            why = "the run's levels are fitted to labels of the dialogue, so its verdict proves nothing"
            self._leave_out(gold.good_votes.pop(key), why)

    def _items(
        self,
        labels: Mapping[GoldItem, Label],
        judgments: Mapping[str, Judgment],
        metrics: Mapping[str, MetricsScore],
    ) -> list[Compared]:
        """Return labels beside the judge's levels of the same items; count those that it could not score."""
        items = []
        for item, label in labels.items():
            reading = item_reading(item, judgments, metrics)
            if isinstance(reading, str):
                self._leave_out(label, reading)
                continue
            # Levels from 0 are put on levels from 1.
            first = 1 if item.dimension.startswith(METRIC) else 0
            level = None if reading.level is None else reading.level + first
            value = None if reading.value is None else reading.value + first
            items.append(self._compared(item.content_hash, label.shifted(first), level, value))
        return items

    def _compared(self, key: str, label: Label, level: int | None, value: float | None) -> Compared:
        return Compared(
            judge=level,
            value=value,
            people=label.level,
            mean=label.mean,
            group=self._groups[key],
            raters=label.raters,
            each=label.each,
            slices=self._slices(key),
        )

    def _add_verdicts(self, judgments: Mapping[str, Judgment]) -> None:
        """Compare verdicts, given in the rubric's four words."""
        items = []
        for key, label in self._gold.verdicts.items():
            if key in judgments:
                level = VERDICTS.index(judgments[key].verdict) + 1
                items.append(self._compared(key, label, level, level))
        measured = self._agreement_of(
            items, VERDICTS, scale=", ".join(VERDICTS), compared="verdicts"
        )
        self._add("verdict", items, measured)

    def _add_good(self, judgments: Mapping[str, Judgment]) -> None:
        """Compare whether a dialogue is good: by its verdict, and by people's `verdict` or `accept`."""
        items = []
        for key, votes in self._gold.good_votes.items():
            if key not in judgments:
                self._leave_out(votes, "the judge could not score the dialogue")
                continue
            is_good = judgments[key].verdict in GOOD_VERDICTS
            items.append(self._voted(key, votes, is_good, float(is_good)))
        measured = self._agreement_of(items, YES_NO, scale="no, yes", compared="decisions")
        self._add("good", items, measured)
        pool = [
            (judgment.verdict in GOOD_VERDICTS, self._groups[key])
            for key, judgment in judgments.items()
        ]
        self._correct("good dialogues", pool, items)

    def _voted(self, key: str, votes: Votes, decision: bool, value: float) -> Compared:
        """Return an item of a yes-or-no question: no is level 1, yes is level 2."""
        return Compared(
            judge=1 + decision,
            value=value,
            people=1 + votes.is_yes,
            mean=1 + fmean(votes.by_rater.values()),
            group=self._groups[key],
            raters={name: 1 + votes.by_rater[name] for name in sorted(votes.named)},
            each=[1 + is_yes for is_yes in votes.by_rater.values()],
            slices=self._slices(key),
        )

    # ---- weighted metrics

    def add_metrics(self, metrics: Mapping[str, MetricsScore]) -> None:
        """Compare each labelled metric on its own scale: 0-5, or fail and pass."""
        gold = self._gold
        if not gold.metrics:
            return
        self.judges[StageName.METRICS] = one_judge(metrics.values(), "metrics")
        is_calibrated = any(row.identity != row.identity.uncalibrated() for row in metrics.values())
        by_name: dict[str, dict[GoldItem, Label]] = defaultdict(dict)
        for item, label in gold.metrics.items():
            by_name[item.dimension][item] = label
        for dimension, labels in by_name.items():
            top = highest_levels(metrics)[dimension.removeprefix(METRIC)]
            items = self._items(labels, {}, metrics)
            measured = self._agreement_of(
                items,
                ("fail", "pass") if top == 1 else [str(level) for level in range(top + 1)],
                scale=str(gold.scales[dimension]),
                compared="calibrated levels" if is_calibrated else "digits",
                is_fitted=is_calibrated and self._may_be_fitted("metrics", labels),
            )
            self._add(dimension, items, measured)
            self._add_jury(dimension, _means(labels), metrics)

    # ---- role adherence

    def add_adherence(self) -> None:
        """Compare whether turns keep their role; whole dialogues where the judge was asked about those."""
        by_item = self._gold.adherent_votes
        if not by_item:
            return
        if StageName.ADHERENCE not in self._manifest.fingerprints:
            for votes in by_item.values():
                self._leave_out(votes, "the run has no role adherence")
            return
        scores = self._in_order(adherence_of(self._run, needed=True))
        self.judges[StageName.ADHERENCE] = one_judge(scores.values(), "adherence scores")
        items = []
        for item, votes in by_item.items():
            answer = _adherence_answer(scores.get(item.content_hash), item.turn)
            if isinstance(answer, str):
                self._leave_out(votes, answer)
                continue
            items.append(self._voted(item.content_hash, votes, *answer))
        measured = self._agreement_of(
            items, YES_NO, scale="violation, adherent", compared="decisions"
        )
        self._add("adherence", items, measured)
        means = ((item, fmean(votes.by_rater.values())) for item, votes in by_item.items())
        self._add_jury("adherence", means, scores)
        whole = any(score.conversation is not None for score in scores.values())
        pool = [
            (is_adherent, self._groups[key])
            for key, score in scores.items()
            for is_adherent in _adherent_answers(score)
        ]
        self._correct("adherent dialogues" if whole else "adherent turns", pool, items)

    # ---- pairs

    def add_pairs(self, votes: Sequence[PairVote]) -> None:
        """Compare the side of a pair that the judge prefers with the side that people call better."""
        if not votes:
            return
        pairs = {
            pair.pair_id: pair
            for name in (PAIRS, NATURAL_PAIRS, DROPPED_PAIRS)
            for pair in read_pairs(self._run, name)
        }
        items = []
        for pair_id, pair_votes in votes_by_pair(votes, self._gold.unused).items():
            pair = pairs.get(pair_id)
            if pair is None:
                self._leave_out(pair_votes, "no pair of the run has that id")
                continue
            preferred = preference_of(pair)
            if preferred is None:
                why = "the judge did not compare the pair in a way that prefers a side"
                self._leave_out(pair_votes, why)
                continue
            self._groups.setdefault(pair.content_hash, pair.content_hash)
            items.append(self._voted(pair.content_hash, pair_votes, preferred > 0, preferred))
        judge = self._manifest.identities.get(StageName.JUDGE)
        if items and judge is not None:
            for stage in (StageName.FORK, StageName.NATURAL):
                if stage in self._manifest.fingerprints:
                    self.judges[stage] = judge
        measured = self._agreement_of(items, SIDES, scale="rejected, chosen", compared="decisions")
        self._add("preference", items, measured)

    # ---- what all have in common

    def _leave_out(self, label: Label | Votes, why: str) -> None:
        self._gold.unused.add(why, label.place, label.rows)

    def _add(
        self, name: str, items: Sequence[Compared], measured: DimensionAgreement | None
    ) -> None:
        if measured is not None:
            self.dimensions[name] = measured
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
        return {key: records[key] for key in self._dialogues if key in records}

    def _slices(self, key: str) -> dict[SliceBy, str]:
        dialogue = self._dialogues.get(key)
        if dialogue is None:
            return {}
        facts = facts_row(dialogue)
        labelled_language = facts["labels"].get("language")
        language = self._gold.languages.get(key) or facts["language"] or labelled_language
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
