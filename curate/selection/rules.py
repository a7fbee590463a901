"""Conditions and shares over the score table: the sets of every dialogue, with a reason for every rejection.

Every dialogue is in exactly one of the sets `sft` and `rejected`. `review` and `active` mark dialogues of either set
for people. Selection makes no model calls.

A dialogue without a score does not pass: a condition that reads a stage's columns fails for every dialogue that the
stage could not score, even where SQL would turn the null into true (`NOT`, `CASE … ELSE true` and `OR` can). Only where
the recipe itself leaves a stage out for a dialogue (reason `skipped`) are conditions waived that read that stage's
columns and no other's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import polars as pl

from curate.errors import UsageError
from curate.records import Collision, Decision, ScoringStage
from curate.selection.columns import SCORE_OF, SKIPPED, UNSCORED_OF
from curate.selection.config import Removal, SelectConfig, Share
from curate.selection.expressions import (
    check_columns,
    columns_of,
    evaluate,
    evaluate_condition,
    parse,
    stages_of,
)

if TYPE_CHECKING:  # slow to import
    from curate.selection.cleaning import Cleaner

DEFAULT_CONDITIONS: dict[ScoringStage, tuple[str, str]] = {
    "judge": ("good_verdict", "verdict >= 'good'"),
    "adherence": ("in_role", "adherent"),
    "metrics": ("passed_metrics", "metrics_passed"),
    "factuality": ("no_false_claims", "n_false_claims = 0"),
}
"""Name and SQL of each stage's default condition, used where the recipe gives none. The judge's is used only with
calibrated levels; without them a verdict means little, and `DEFAULT_TOP` selects by rank."""

CERTIFIED = "certified"
"""Name of the certificate's condition."""

DEFAULT_TOP = Share(fraction=0.5, by="mean_score")
"""The share selected where the recipe gives neither conditions nor a share, and levels are not calibrated."""


_REMOVALS: tuple[Removal, ...] = get_args(Removal)
_COLLISIONS = pl.List(
    pl.Struct(
        {"reason": pl.String, "other": pl.String, "similarity": pl.Float64, "text": pl.String}
    )
)
_REVIEWED = pl.Struct(
    {
        "accept": pl.Boolean,
        "raters": pl.List(pl.String),
        "time": pl.String,
        "rule_reasons": pl.List(pl.String),
    }
)
DECISION_SCHEMA: dict[str, pl.DataType] = {
    "dialogue_id": pl.String(),
    "content_hash": pl.String(),
    "sets": pl.List(pl.String),
    "reasons": pl.List(pl.String),
    "collisions": _COLLISIONS,
    "split": pl.String(),
    "reviewed": _REVIEWED,
}
"""Columns of the frame that `decision_columns` returns."""

Collisions = Mapping[int, Sequence[Collision]]
"""Collisions of each row of the table that has some."""


def select(
    table: pl.DataFrame, config: SelectConfig, cleaning: Cleaner | None = None
) -> list[Decision]:
    """Sort the dialogues of a score table into sets.

    Reasons of a rejected dialogue, in this order:

    - `unscored` once, if any score it needed is missing;
    - one of `selection.columns.REJECTED_SIDES`, unless `config.rejected_sides`;
    - for each condition it does not meet, in the recipe's order, the condition's name. Where the condition has no value
      the name has a suffix: `<name>:unscored` (the stage failed), `<name>:skipped` (left out by the recipe, in a
      condition that also reads another stage's columns), `<name>:null` (the value is n/a, or a label that the dialogue
      does not have);
    - `contaminated`;
    - for duplicates among the dialogues without any reason so far, one or more of the other codes of
      `selection.config.Removal`;
    - for a dialogue without any reason so far that is not in the top share, `top`, or one of `top:unscored`,
      `top:skipped`, `top:null`.

    Args:
        table: a frame from `selection.table.score_table`.
        config: checked against the columns every table has.
        cleaning: made from the same dialogues; needed where `config.needs_cleaning`.

    Returns:
        One decision a row, in the table's order.

    Raises:
        UsageError: a condition names a label that no dialogue has, or does not fit its values; or
            `cleaning` is needed and not given.
    """
    rows = decision_columns(decide(table, config, cleaning)).iter_rows(named=True)
    return [Decision.model_validate(row) for row in rows]


def decision_columns(decided: pl.DataFrame) -> pl.DataFrame:
    """Convert the frame of `decide` to the fields of `records.Decision`; its rows as JSON are the records."""
    sets = [
        pl.when(pl.col("reasons").list.len() == 0)
        .then(pl.lit("sft"))
        .otherwise(pl.lit("rejected")),
        *(pl.when(pl.col(name)).then(pl.lit(name)) for name in ("review", "active")),
    ]
    return decided.select(
        pl.col("id").alias("dialogue_id"),
        "content_hash",
        _listed(sets).alias("sets"),
        "reasons",
        "collisions",
        "split",
        "reviewed",
    )


def decided_columns(decisions: pl.DataFrame) -> pl.DataFrame:
    """Convert decisions back to the frame of `decide`; the inverse of `decision_columns`."""
    marks = (pl.col("sets").list.contains(name).alias(name) for name in ("review", "active"))
    return decisions.select(
        pl.col("dialogue_id").alias("id"),
        "content_hash",
        "reasons",
        *marks,
        "collisions",
        "split",
        "reviewed",
    )


def decide(
    table: pl.DataFrame, config: SelectConfig, cleaning: Cleaner | None = None
) -> pl.DataFrame:
    """Return the decisions of `select` as a frame, in the table's order.

    Its columns are `id`, `content_hash`, `reasons` (list of text, empty for the SFT set), `review` and `active`
    (booleans), `collisions` (list of structs), `split` (text) and `reviewed` (struct; null here, because reviews are
    applied later by `run.review_answers`).
    """
    if cleaning is None and config.needs_cleaning:
        raise UsageError(
            "duplicates, contamination and splits cannot be decided from scores alone",
            got="select.dedup, decontaminate or split, and no texts",
            expected="the argument `cleaning`, with the same dialogues",
        )
    ran = stages_run(table)
    work = _scored(table)
    columns: list[str] = []
    if not config.rejected_sides:
        columns.append("why rejected side")
        work = work.with_columns(table["rejected_as"].alias(columns[-1]))
    for name, sql in conditions(table, config).items():
        where = f"select.where.{name}"
        value = evaluate_condition(table, sql, where)
        stages = stages_of(columns_of(parse(sql, where)), ran)
        reason = _reason(name, stages, may_waive=True)
        # a space keeps the column apart from every other: no condition's name has one
        columns.append(f"why {name}")
        work = work.with_columns(value.alias("value")).with_columns(reason.alias(columns[-1]))
    collisions: Collisions = {}
    if cleaning is not None:
        work = _removals(work, cleaning.contaminated, columns)
        meets_conditions = work.with_columns(met=_met(columns))["met"].arg_true().to_list()
        duplicates = cleaning.duplicates(table, meets_conditions)
        work = _removals(work, duplicates, columns)
        collisions = cleaning.contaminated | duplicates
    top = share_taken(table, config)
    if top is not None:
        work = _top(table, work.with_columns(met=_met(columns)), top, ran)
        columns.append("why top")
    missing = _any(pl.col(name).str.ends_with(":unscored").fill_null(False) for name in columns)
    why = _listed([pl.when(missing).then(pl.lit("unscored")), *map(pl.col, columns)])
    # with_columns, because without a condition the list is a constant, which must fill the rows there are
    reasons = work.with_columns(why.alias("reasons"))["reasons"]
    split = cleaning.splits(table, (reasons.list.len() == 0).to_list()) if cleaning else None
    return table.select(
        "id",
        "content_hash",
        reasons,
        _mark(table, config.review, "select.review").alias("review"),
        _mark(table, config.active, "select.active").alias("active"),
        _collision_column(collisions, table.height),
        pl.Series("split", split or [None] * table.height, dtype=pl.String),
        pl.lit(None, dtype=_REVIEWED).alias("reviewed"),
    )


def _listed(words: Sequence[pl.Expr]) -> pl.Expr:
    """Return the words that are not null, as a list.

    No word has a space, so they are joined and split again: removing nulls from lists takes 8 times as long.
    """
    text = pl.concat_str(words, separator=" ", ignore_nulls=True)
    nothing = pl.lit([], dtype=pl.List(pl.String))
    return pl.when(text != "").then(text.str.split(" ")).otherwise(nothing)


def _met(columns: Sequence[str]) -> pl.Expr:
    return pl.all_horizontal(pl.lit(True), *(pl.col(name).is_null() for name in columns))


def _removals(work: pl.DataFrame, collisions: Collisions, columns: list[str]) -> pl.DataFrame:
    """Add a column to `work` for each reason of a collision, and its name to `columns`."""
    rows: dict[str, list[int]] = {}
    for row, row_collisions in collisions.items():
        for collision in row_collisions:
            rows.setdefault(collision.reason, []).append(row)
    for reason in sorted(rows, key=_REMOVALS.index):
        columns.append(f"why {reason}")
        is_removed = pl.int_range(pl.len(), dtype=pl.Int64).is_in(
            pl.Series(rows[reason], dtype=pl.Int64).implode()
        )
        work = work.with_columns(pl.when(is_removed).then(pl.lit(reason)).alias(columns[-1]))
    return work


def _collision_column(collisions: Collisions, height: int) -> pl.Series:
    none: list[dict[str, Any]] = []
    if not collisions:  # a list of a million empty ones takes half a minute
        return pl.Series("collisions", [none], dtype=_COLLISIONS).new_from_index(0, height)
    values = [[c.model_dump() for c in collisions.get(row, ())] for row in range(height)]
    return pl.Series("collisions", values, dtype=_COLLISIONS)


def matches(table: pl.DataFrame, expression: str) -> set[str]:
    """Return the content hashes of the dialogues for which a condition is true; see `matching`."""
    return set(table["content_hash"].filter(matching(table, expression)))


def matching(table: pl.DataFrame, expression: str, where: str = "fork.where") -> pl.Series:
    """Return for each dialogue whether a condition is true; null, or a missing score, counts as false.

    Args:
        where: name of the condition in an error.

    Raises:
        UsageError: bad SQL, an unknown column or a value the data does not allow.
    """
    true = evaluate_condition(table, expression, where).fill_null(False)
    stages = stages_of(columns_of(parse(expression, where)), stages_run(table))
    has_scores = _scored(table).select(~_any(f"{stage}_missing" for stage in stages)).to_series()
    return true & has_scores


def narrowed(table: pl.LazyFrame, expressions: Mapping[str, str]) -> pl.DataFrame:
    """Load only those columns of a score table on disk that a decision reads, usually a tenth of it.

    Args:
        expressions: SQL by its place in the recipe (see `questions`).

    Raises:
        UsageError: bad SQL, or a column that the table does not have.
    """
    schema = table.collect_schema()
    names = {"id", "content_hash", "rejected_as", "levels_calibrated"}
    names |= {*SCORE_OF.values(), *UNSCORED_OF.values()}
    for where, sql in expressions.items():
        columns = columns_of(parse(sql, where))
        check_columns(columns, where, schema, labels_known=True)
        names |= columns
    return table.select(name for name in schema if name in names).collect()


def questions(config: SelectConfig) -> dict[str, str]:
    """Return all SQL of a selection by its place in the recipe, including the columns to group by."""
    where = dict(DEFAULT_CONDITIONS.values()) if config.named is None else config.named
    if config.certified_rule is not None:
        where = {**where, CERTIFIED: config.certified_rule}
    top = DEFAULT_TOP if config.named is None and config.top is None else config.top
    expressions = {f"select.where.{name}": sql for name, sql in where.items()}
    for place, rule in (("top", top), ("review", config.review), ("active", config.active)):
        if isinstance(rule, Share):
            expressions[f"select.{place}.by"] = rule.by
            expressions |= {f"select.{place}.within.{name}": f'"{name}"' for name in rule.within}
        elif rule is not None:
            expressions[f"select.{place}"] = rule
    if config.dedup is not None and config.dedup.ranking is not None:
        expressions["select.dedup.keep"] = config.dedup.ranking
    return expressions


def filters(table: pl.DataFrame, config: SelectConfig) -> dict[str, str]:
    """Return the filters of the SFT set as SQL by its place in the recipe: the conditions and ranking in force."""
    expressions = {f"select.where.{name}": sql for name, sql in conditions(table, config).items()}
    share = share_taken(table, config)
    return expressions if share is None else {**expressions, "select.top.by": share.by}


def conditions(table: pl.DataFrame, config: SelectConfig) -> dict[str, str]:
    """Return the conditions in force: the recipe's, else the defaults of the stages that ran; and the certificate's.

    A judge whose levels are not calibrated has no default condition: see `share_taken`.
    """
    certificate = {} if config.certified_rule is None else {CERTIFIED: config.certified_rule}
    if config.named is not None:
        return config.named | certificate
    if config.leaves_it_to_the_certificate:
        return certificate
    ran = stages_run(table) - (frozenset() if _has_levels(table) else {"judge"})
    defaults = dict(DEFAULT_CONDITIONS[stage] for stage in DEFAULT_CONDITIONS if stage in ran)
    return defaults | certificate


def share_taken(table: pl.DataFrame, config: SelectConfig) -> Share | None:
    """Return the share in force: the recipe's, else `DEFAULT_TOP` if the judge's levels are not calibrated."""
    has_conditions = config.named is not None or config.leaves_it_to_the_certificate
    if config.top is not None or has_conditions or "judge" not in stages_run(table):
        return config.top
    return None if _has_levels(table) else DEFAULT_TOP


def _has_levels(table: pl.DataFrame) -> bool:
    """Return whether all scores of the judge are calibrated levels."""
    flags = table["levels_calibrated"].drop_nulls()
    return bool(len(flags) and flags.all())


def stages_run(table: pl.DataFrame) -> frozenset[ScoringStage]:
    """Return the stages for which a table has scores, or reasons why they are missing."""
    return frozenset(
        stage
        for stage, score in SCORE_OF.items()
        if not (table[score].is_null() & table[UNSCORED_OF[stage]].is_null()).all()
    )


def _scored(table: pl.DataFrame) -> pl.DataFrame:
    """Return ids and, for each stage, whether scores are missing (`<stage>_missing`) and skipped (`<stage>_skipped`)."""
    flags = {}
    for stage, score in SCORE_OF.items():
        flags[f"{stage}_missing"] = pl.col(score).is_null()
        flags[f"{stage}_skipped"] = pl.col(UNSCORED_OF[stage]).eq_missing(pl.lit(SKIPPED))
    return table.select("id", "content_hash", **flags)


def _any(columns: Iterable[str | pl.Expr]) -> pl.Expr:
    return pl.any_horizontal(pl.lit(False), *columns)


def _reason(name: str, stages: frozenset[ScoringStage], *, may_waive: bool) -> pl.Expr:
    """Return an expression: null where column `value` is true or the condition is waived, else the reason code."""
    skipped = _any(f"{stage}_skipped" for stage in stages)
    failed = _any(pl.col(f"{stage}_missing") & ~pl.col(f"{stage}_skipped") for stage in stages)
    waived = skipped if may_waive and len(stages) == 1 else pl.lit(False)
    return (
        pl.when(waived)
        .then(None)
        .when(failed)
        .then(pl.lit(f"{name}:unscored"))
        .when(skipped)
        .then(pl.lit(f"{name}:skipped"))
        .when(pl.col("value").is_null())
        .then(pl.lit(f"{name}:null"))
        .when(~pl.col("value"))
        .then(pl.lit(name))
    )


def _top(
    table: pl.DataFrame, work: pl.DataFrame, share: Share, ran: frozenset[ScoringStage]
) -> pl.DataFrame:
    """Add a column `why top` to `work`: the reason a dialogue is outside the share.

    It is null for dialogues in the share, and for those that fail a condition (not `met`).
    """
    by = _ranking(table, share, "select.top")
    stages = stages_of(columns_of(parse(share.by, "select.top.by")), ran)
    usable = pl.col("met") & by.is_not_null() & ~_any(f"{stage}_missing" for stage in stages)
    among = work.select(usable).to_series()
    inside = _share(table, share, among, "select.top")
    return work.with_columns(value=pl.when(by.is_not_null()).then(inside)).with_columns(
        pl.when("met").then(_reason("top", stages, may_waive=False)).alias("why top")
    )


def _mark(table: pl.DataFrame, rule: str | Share | None, where: str) -> pl.Series:
    """Return for each row whether the dialogue is in the set; null counts as false."""
    if rule is None:
        return pl.Series([False]).new_from_index(0, table.height)
    if isinstance(rule, Share):
        return _share(table, rule, _ranking(table, rule, where).is_not_null(), where)
    return evaluate_condition(table, rule, where).fill_null(False)


def _ranking(table: pl.DataFrame, share: Share, where: str) -> pl.Series:
    """Return the values a share is ranked by; NaN becomes null, because it sorts above every number."""
    by = evaluate(table, share.by, f"{where}.by")
    return by.fill_nan(None) if by.dtype.is_float() else by


def _share(table: pl.DataFrame, share: Share, among: pl.Series, where: str) -> pl.Series:
    """Return for each row whether it is in the share of the rows `among`: the first ceil(fraction * n) of each group.

    Ties are broken by content hash and id, so the result does not depend on the order of the rows.
    """
    check_columns(share.within, f"{where}.within", table.schema, labels_known=True)
    groups = {f"group{place}": pl.col(name) for place, name in enumerate(share.within)}
    ranking = table.select(
        "content_hash",
        "id",
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
        _ranking(table, share, where).alias("by"),
        among.alias("among"),
        **groups,
    ).filter("among")
    # 0.07 * 100 is 7.000000000000001; rounding first keeps that 7
    quota = (pl.len() * share.fraction).round(9).ceil()
    place = pl.int_range(pl.len())
    inside = place < quota
    members = ranking.sort(
        "by", "content_hash", "id", descending=[share.descending, False, False]
    ).filter(inside.over(list(groups)) if groups else inside)
    return pl.Series(range(table.height), dtype=pl.UInt32).is_in(members["row"].implode())
