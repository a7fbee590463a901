"""The score table: one row a dialogue, one column a score, null where there is none.

Selection reads scores only from this table, so a changed threshold needs no model calls. The columns and their types
are fixed (`selection.columns`); only the dialogues' own labels and the recipe's metrics add columns.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, TypeVar

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    AdherenceScore,
    FactualityScore,
    GoodModel,
    JudgeIdentity,
    Judgment,
    MetricsScore,
    ScoringStage,
    Unscored,
)
from curate.records.readings import (
    ADHERENCE,
    all_readings,
    dialogue_readings,
    known_mean,
    mean_spread,
)
from curate.selection.columns import (
    COLUMNS,
    LABEL_PREFIX,
    METRIC_PARTS,
    METRIC_PREFIX,
    NOT_SCORED,
    SCHEMA,
    UNSCORED_OF,
    VIOLATIONS,
    Column,
    metric_type,
)

CHUNK = 5_000
"""Rows held as Python objects before they become a frame: tens of MB."""
_LARGEST_INT = 2**63 - 1
_FACTS = [
    column for column in COLUMNS if not column.stages and column.name not in UNSCORED_OF.values()
]
_SCORES = [column for column in COLUMNS if column not in _FACTS]

TableRow = dict[str, Any]
Score = TypeVar("Score")
JudgeRecord = Judgment | Unscored | None
AdherenceRecord = AdherenceScore | Unscored | None
MetricsRecord = MetricsScore | Unscored | None
FactualityRecord = FactualityScore | Unscored | None


def score_table(
    dialogues: Iterable[Dialogue],
    judgments: Mapping[str, Judgment | Unscored] | None = None,
    adherence: Mapping[str, AdherenceScore | Unscored] | None = None,
    good: GoodModel | None = None,
    metrics: Mapping[str, MetricsScore | Unscored] | None = None,
    factuality: Mapping[str, FactualityScore | Unscored] | None = None,
) -> pl.DataFrame:
    """Build the score table of dialogues.

    Args:
        dialogues: in the order of the rows; read once and not kept.
        judgments: judgments by content hash; None where the stage is not part of the run. A dialogue without one is
            unscored with reason `not_scored`.
        adherence: role adherence, likewise.
        good: model that gives the column `p_good`; None leaves it null.
        metrics: weighted metrics, likewise.
        factuality: factuality, likewise.

    Returns:
        A frame of one row a dialogue with the columns of `selection.columns.COLUMNS`, then one column
        `label_<name>` for each label with a scalar value, by name (booleans, integers, reals, or text
        where values are of several kinds), and those of single metrics (`selection.columns.METRIC_PREFIX`).
    """
    frames = []
    for chunk in _chunks(dialogues):
        facts = facts_frame([facts_row(dialogue) for dialogue in chunk])
        keys = facts["content_hash"]
        frames.append(
            with_scores(
                facts,
                None if judgments is None else [judgments.get(key) for key in keys],
                None if adherence is None else [adherence.get(key) for key in keys],
                good,
                metrics=None if metrics is None else [metrics.get(key) for key in keys],
                factuality=None if factuality is None else [factuality.get(key) for key in keys],
            )
        )
    if not frames:
        return pl.DataFrame(schema=SCHEMA)
    table = pl.concat(frames, how="diagonal_relaxed") if len(frames) > 1 else frames[0]
    return table.select(*SCHEMA, *sorted(set(table.columns) - set(SCHEMA)))


def facts_frame(rows: Sequence[TableRow]) -> pl.DataFrame:
    """Return the frame of rows from `facts_row`: the columns that no stage makes, then the labels."""
    labels = {name: None for row in rows for name in row["labels"]}
    return pl.DataFrame(
        [
            *_series(_FACTS, rows),
            *(_label_series(name, [row["labels"].get(name) for row in rows]) for name in labels),
        ]
    )


def with_scores(
    facts: pl.DataFrame,
    judgments: Sequence[JudgeRecord] | None,
    adherence: Sequence[AdherenceRecord] | None,
    good: GoodModel | None = None,
    *,
    metrics: Sequence[MetricsRecord] | None = None,
    metric_names: Sequence[str] = (),
    factuality: Sequence[FactualityRecord] | None = None,
) -> pl.DataFrame:
    """Add the columns of the scores to `facts`, in the order of `SCHEMA`.

    Args:
        facts: a frame from `facts_frame`.
        judgments: the judge's record of each row, None where there is none yet; None instead of the sequence where
            the stage is not part of the run.
        adherence: records of role adherence, likewise.
        good: model that gives the column `p_good`; None leaves it null.
        metrics: records of weighted metrics, likewise.
        metric_names: metrics that get columns even where no row has a score of theirs.
        factuality: records of factuality, likewise.
    """
    rows: list[TableRow] = [{} for _ in range(facts.height)]
    _add(rows, "judge", judgments, _judge_values)
    _add(rows, "adherence", adherence, _adherence_values)
    _add(rows, "metrics", metrics, _metrics_values)
    _add(rows, "factuality", factuality, _factuality_values)
    nothing: list[None] = [None] * facts.height
    records = zip(judgments or nothing, adherence or nothing, metrics or nothing, strict=True)
    for row, (judgment, score, measures) in zip(rows, records, strict=True):
        row |= _doubts(row, judgment, score)
        if good is not None:
            row["p_good"] = _p_good(good, judgment, score, measures)
    columns = _metric_columns(rows, metric_names)
    table = facts.hstack([*_series(_SCORES, rows), *_series(columns, rows)])
    return table.select(*SCHEMA, *(name for name in table.columns if name not in SCHEMA))


def mixed_identities(table: pl.DataFrame | pl.LazyFrame) -> dict[str, list[str]]:
    """Return the stages whose scores come from several judge identities, with the identities' keys.

    Scores of two identities are not comparable, so a filter or ranking on such a column should carry a warning.
    """
    keys = {
        stage: table.lazy()
        .select(pl.col(f"{stage}_key").drop_nulls().unique().sort())
        .collect()
        .to_series()
        .to_list()
        for stage in UNSCORED_OF
    }
    return {stage: identities for stage, identities in keys.items() if len(identities) > 1}


def _chunks(dialogues: Iterable[Dialogue]) -> Iterator[list[Dialogue]]:
    dialogues = iter(dialogues)
    while chunk := list(islice(dialogues, CHUNK)):
        yield chunk


def _series(columns: Iterable[Column], rows: Sequence[TableRow]) -> list[pl.Series]:
    return [
        pl.Series(
            column.name, [row.get(column.name) for row in rows], dtype=column.dtype, strict=True
        )
        for column in columns
    ]


def _label_series(name: str, values: list[Any]) -> pl.Series:
    """Return one label's values in the narrowest type that holds them all; text if no other does."""
    column = LABEL_PREFIX + name
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {bool}:
        return pl.Series(column, values, dtype=pl.Boolean)
    if kinds <= {bool, int, float} and all(abs(value) <= _LARGEST_INT for value in present):
        kind: type[int | float] = float if float in kinds else int
        numbers = [None if value is None else kind(value) for value in values]
        return pl.Series(column, numbers, dtype=pl.Float64 if float in kinds else pl.Int64)
    texts = [str(v).lower() if isinstance(v, bool) else v if v is None else str(v) for v in values]
    return pl.Series(column, texts, dtype=pl.String)


def _add(
    rows: Sequence[TableRow],
    stage: ScoringStage,
    records: Sequence[Score | Unscored | None] | None,
    values: Callable[[Score], TableRow],
) -> None:
    """Add to each row the values of a stage's record, or why it has no scores; nothing if the stage is not part of the run."""
    for row, record in zip(rows, records, strict=True) if records is not None else ():
        if record is None or isinstance(record, Unscored):
            row[UNSCORED_OF[stage]] = NOT_SCORED if record is None else record.reason
        else:
            row |= values(record)


def _doubts(row: TableRow, judgment: JudgeRecord, score: AdherenceRecord) -> TableRow:
    """Return the columns made of the judge's and the adherence scores of a row."""
    uncertainty = _largest(
        mean_spread(judgment) if isinstance(judgment, Judgment) else None,
        _adherence_doubt(score) if isinstance(score, AdherenceScore) else None,
    )
    lowest, session = row.get("lowest_score"), row.get("adherence")
    attention = _largest(
        uncertainty,
        None if lowest is None else (5 - lowest) / 4,
        None if session is None else 1 - session,
    )
    return {"uncertainty": uncertainty, "attention": attention}


def _metrics_values(score: MetricsScore) -> TableRow:
    row: TableRow = {
        "overall_score": score.overall_score,
        "metrics_passed": score.passed,
        "overall_low": score.overall_range[0],
        "overall_high": score.overall_range[1],
        "n_poor_metrics": sum(metric.is_poor for metric in score.metrics),
        "n_na_metrics": sum(metric.score is None for metric in score.metrics),
        "metrics_disagreement": score.disagreement,
        "metrics_key": _key(score.identity, score.weights_key),
    }
    for metric in score.metrics:
        row[METRIC_PREFIX + metric.name] = metric.score
        if metric.reading is not None:
            row[f"{METRIC_PREFIX}{metric.name}_expected"] = metric.reading.mean
    return row


def _factuality_values(score: FactualityScore) -> TableRow:
    turns = [turn.precision for turn in score.per_turn if turn.precision is not None]
    return {
        "factual_precision": score.precision,
        "min_factual_precision": min(turns, default=None),
        "n_claims": score.count("true", "false", "unverifiable"),
        "n_false_claims": score.count("false"),
        "n_unverifiable_claims": score.count("unverifiable"),
        "factuality_key": _key(score.identity),
    }


def _metric_columns(rows: Iterable[TableRow], metric_names: Iterable[str]) -> list[Column]:
    """Return the columns of the named metrics, then of other metrics that rows have scores of."""
    required = [METRIC_PREFIX + name + part for name in metric_names for part in METRIC_PARTS]
    scored = (name for row in rows for name in row if name.startswith(METRIC_PREFIX))
    names = dict.fromkeys([*required, *scored])
    return [Column(name, metric_type(name) or METRIC_PARTS[""], "") for name in names]


def _p_good(
    good: GoodModel, judgment: JudgeRecord, adherence: AdherenceRecord, metrics: MetricsRecord
) -> float | None:
    """Return the probability that a dialogue is good; None where a score that the model needs is missing.

    A score that is n/a counts as its mean.
    """
    if not isinstance(judgment, Judgment):
        return None
    readings = dialogue_readings(
        judgment,
        adherence if isinstance(adherence, AdherenceScore) else None,
        metrics if isinstance(metrics, MetricsScore) else None,
    )
    if ADHERENCE in good.features and readings.get(ADHERENCE) is None:
        return None
    if good.metrics is not None and not isinstance(metrics, MetricsScore):
        return None
    return good.probability(readings)


def facts_row(dialogue: Dialogue) -> TableRow:
    """Return a dialogue's values by column, before any stage scores it; its scalar labels are under `labels`."""
    language = dialogue.metadata.get("language", dialogue.metadata.get("lang"))
    lineage = dialogue.lineage
    shown = [message for message in dialogue.messages if message.role != "system"]
    return {
        "id": dialogue.id,
        "content_hash": dialogue.content_hash,
        "source": lineage.source if lineage else None,
        "file": lineage.file if lineage else None,
        "group": dialogue.group,
        "role": _short(dialogue.role_definition),
        "language": language if isinstance(language, str) else None,
        "reward": _finite(dialogue.reward),
        "rejected_as": rejected_side(dialogue),
        "n_turns": sum(turn.number > 0 for turn in dialogue.turns),
        "n_assistant_turns": sum(turn.has_assistant for turn in dialogue.turns),
        "n_tool_calls": sum(len(message.tool_calls) for message in dialogue.messages),
        "characters": sum(len(message.content) for message in shown),
        "labels": {
            name: _finite(value) if isinstance(value, float) else value
            for name, value in dialogue.labels.items()
            if isinstance(value, (bool, int, float, str))
        },
    }


def rejected_side(dialogue: Dialogue) -> str | None:
    """Return the code of `REJECTED_SIDES` for a dialogue that the data calls the worse alternative; None for others.

    Ranks count from the best; where the best rank among the siblings is not known it is 0, as in OASST.
    """
    labels = dialogue.labels
    if labels.get("preference") == "rejected":
        return "rejected_side"
    ranks, best = labels.get("message_ranks"), labels.get("best_ranks")
    if isinstance(ranks, (list, tuple)):
        bests = best if isinstance(best, (list, tuple)) else ()
        for message, rank, least in zip_longest(dialogue.messages, ranks, bests):
            is_reply = message is not None and message.role == "assistant"
            if is_reply and isinstance(rank, (int, float)) and rank > (least or 0):
                return "lower_ranked"
    reward = _finite(dialogue.reward)
    return "failed_trajectory" if reward is not None and reward <= 0 else None


def _judge_values(judgment: Judgment) -> TableRow:
    turns = judgment.per_turn
    row: TableRow = {
        "verdict": judgment.verdict,
        "judge_verdict": judgment.judge_verdict,
        "verdict_mismatch": judgment.verdict_mismatch,
        "weakest_mismatch": judgment.weakest_mismatch,
        "weakest_turn": judgment.weakest_turn,
        "n_issues": sum(len(turn.issues) for turn in turns),
        "n_unscored_turns": len(judgment.unscored_turns),
        "overlap_disagreement": judgment.overlap_disagreement,
        "jury_disagreement": judgment.disagreement,
        "levels_calibrated": judgment.identity != judgment.identity.uncalibrated(),
        "judge_key": _key(judgment.identity),
    }
    weakest = judgment.weakest_turn
    lowest: list[int] = []
    means: list[float] = []
    for name in CONVERSATION_DIMENSIONS:
        dimension = getattr(judgment.conversation_level, name)
        score = None if dimension.score == "n/a" else dimension.score
        row[name] = score
        if name != "coherence":
            row[f"{name}_na"] = score is None
        if dimension.reading is not None:
            row[f"{name}_expected"], row[f"{name}_spread"] = (
                dimension.reading.mean,
                dimension.reading.spread,
            )
        if score is not None:
            lowest.append(score)
            expected = row.get(f"{name}_expected")
            means.append(score if expected is None else expected)
    for name in TURN_DIMENSIONS:
        scores = {turn.turn: getattr(turn.scores, name) for turn in turns}
        readings = [turn.readings[name] for turn in turns if name in turn.readings]
        expected = known_mean([reading.mean for reading in readings])
        row[f"min_{name}"] = min(scores.values(), default=None)
        row[f"mean_{name}"] = known_mean(scores.values())
        row[f"mean_{name}_expected"] = expected
        row[f"mean_{name}_spread"] = known_mean([reading.spread for reading in readings])
        row[f"weakest_{name}"] = None if weakest is None else scores.get(weakest)
        lowest += scores.values()
        mean = row[f"mean_{name}"] if expected is None else expected
        means += [] if mean is None else [mean]
    row["lowest_score"] = min(lowest, default=None)
    row["mean_score"] = known_mean(means)
    row["judge_coverage"] = min(
        (readings.coverage for readings in all_readings(judgment)), default=None
    )
    return row


def _adherence_values(score: AdherenceScore) -> TableRow:
    scored_turns = [turn for turn in score.per_turn if turn.score is not None]
    off_role = [turn.turn for turn in scored_turns if turn.adherent is False]
    whole, trend = score.conversation, score.trend
    answers = score.per_turn if whole is None else (whole,)
    reasons = [answer.reason for answer in answers if answer.reason is not None]
    identity = [score.scoring_method, score.evaluation_granularity, score.definition]
    row: TableRow = {
        "adherence": score.session_score,
        "adherent": score.adherent,
        "adherence_low": score.interval[0],
        "adherence_high": score.interval[1],
        "min_adherence": min((t.score for t in scored_turns if t.score is not None), default=None),
        "n_off_role_turns": len(off_role) if whole is None else None,
        "first_off_role_turn": min(off_role, default=None),
        "n_turns_in_role": score.turns_in_role,
        "n_adherence_unscored_turns": len(score.per_turn) - len(scored_turns),
        "n_adherence_imputed": sum(answer.imputed for answer in answers),
        "adherence_coverage": min(
            (answer.coverage for answer in answers if answer.coverage is not None), default=None
        ),
        "adherence_disagreement": score.disagreement,
        "adherence_key": _key(score.identity, *identity),
    }
    if trend is not None:
        row["adherence_slope"] = trend.slope
        row["adherence_slope_low"], row["adherence_slope_high"] = trend.interval
        row["adherence_trend_p"] = trend.p_value
    if reasons:
        for kind in VIOLATIONS:
            row[f"n_{kind}_violations"] = sum(reason.violation == kind for reason in reasons)
    return row


def _adherence_doubt(score: AdherenceScore) -> float | None:
    """Return the mean closeness of the turns' P(yes) to one half, 0-1: 1 at 0.5, 0 at 0 and 1."""
    if score.output_mode != "continuous":
        return None
    if score.conversation is not None:
        return 1 - abs(2 * score.session_score - 1)
    return known_mean([1 - abs(2 * t.score - 1) for t in score.per_turn if t.score is not None])


def _key(identity: JudgeIdentity, *more: str) -> str:
    content = orjson.dumps([identity.model_dump(mode="json"), *more], option=orjson.OPT_SORT_KEYS)
    digest = hashlib.blake2b(content, digest_size=4).hexdigest()
    return " ".join(part for part in (identity.model, identity.mode, digest) if part)


def _short(role: str | None) -> str | None:
    """Shorten a role definition to at most 80 characters, a hash keeping it unique, so `within: [role]` groups by it."""
    if role is None or not role.strip():
        return None
    text = " ".join(role.split())
    if len(text) <= 80:
        return text
    return f"{text[:70]}… {hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def _largest(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _finite(value: float | None) -> float | None:
    """Return a finite value, else None: NaN compares above every number in SQL and would pass a threshold."""
    return value if value is not None and math.isfinite(value) else None
