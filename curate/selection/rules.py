"""Who goes where: conditions and shares over the score table, with a reason for every rejection.

Every dialogue is in exactly one of `sft` and `rejected`. `review` and `active` are marks for humans; they
are set apart from that and may fall on dialogues of either. Nothing here asks a model.

What has no score does not pass. A condition that reads a stage's columns fails for every dialogue the
stage could not score, whatever SQL would make of the null (`NOT`, `CASE … ELSE true` and `OR` can turn one
into true). Only a stage that the recipe itself leaves out for a dialogue (reason `skipped`) waives the
conditions that read its columns and no other stage's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import polars as pl

from curate.errors import UsageError
from curate.records import Collision, Decision, ScoringStage
from curate.selection.columns import SCORE_OF, SKIPPED, UNSCORED_OF
from curate.selection.config import Removal, SelectConfig, Share
from curate.selection.expressions import check_columns, columns_of, evaluate, parse, stages_of

if TYPE_CHECKING:  # it takes its time to import
    from curate.selection.cleaning import Cleaner

DEFAULT_CONDITIONS: dict[ScoringStage, tuple[str, str]] = {
    "judge": ("good_verdict", "verdict >= 'good'"),
    "adherence": ("in_role", "adherent"),
    "metrics": ("passed_metrics", "metrics_passed"),
    "factuality": ("no_false_claims", "n_false_claims = 0"),
}
"""Per stage: name and SQL of the condition where the recipe gives none. That of the judge holds for calibrated
levels only: without, a verdict says little, and `DEFAULT_TOP` goes by rank."""

CERTIFIED = "certified"
"""Name of the certificate's condition."""

DEFAULT_TOP = Share(fraction=0.5, by="mean_score")
"""What is selected where the recipe gives neither conditions nor a share, and levels are not calibrated."""


_REMOVALS: tuple[Removal, ...] = get_args(Removal)
_COLLISIONS = pl.List(
    pl.Struct(
        {
            "reason": pl.String(),
            "other": pl.String(),
            "similarity": pl.Float64(),
            "text": pl.String(),
        }
    )
)

_REVIEWED = pl.Struct(
    {
        "accept": pl.Boolean(),
        "raters": pl.List(pl.String),
        "time": pl.String(),
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
"""Of `decision_columns`."""

Collisions = Mapping[int, Sequence[Collision]]
"""By row of the table."""


def select(
    table: pl.DataFrame, config: SelectConfig, cleaning: Cleaner | None = None
) -> list[Decision]:
    """Sort the dialogues of a score table into sets.

    Reasons of a rejected dialogue, in this order: `unscored` once, if any score it needed is missing; one of
    `selection.columns.REJECTED_SIDES`, unless `config.rejected_sides`; then for each condition it does not meet, by the recipe's order, its name, or its name with why it has no
    value: `<name>:unscored` (the stage failed), `<name>:skipped` (left out by the recipe, in a condition
    that also reads another stage's columns), `<name>:null` (the value is n/a, or a label the dialogue does
    not carry); then `contaminated`. Of the dialogues that meet all this, duplicates have one or more of
    the other codes of `selection.config.Removal`. A dialogue that is none and is not in the top share has
    the reason `top`, or one of `top:unscored`, `top:skipped`, `top:null`.

    Args:
        table: as `selection.table.score_table` gives it.
        config: checked against the columns every table has.
        cleaning: of the same dialogues; needed where `config.needs_cleaning`.

    Returns:
        One decision a row, in the table's order.

    Raises:
        UsageError: a condition names a label that no dialogue has, or does not suit its values; or
            `cleaning` is needed and not given.
    """
    rows = decision_columns(decide(table, config, cleaning)).iter_rows(named=True)
    return [Decision.model_validate(row) for row in rows]


def decision_columns(decided: pl.DataFrame) -> pl.DataFrame:
    """Return what `decide` gives, in the fields of `records.Decision`: its rows as JSON are the records."""
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
    """The inverse of `decision_columns`: decisions as `decide` gives them."""
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
    """As `select`, but columnar: `id`, `content_hash`, `reasons` (list of text, empty for the SFT set),
    `review` and `active` (booleans), `collisions` (list of structs), `split` (text) and `reviewed` (struct,
    null here: people come after the rules, see `run.reviews`), in the table's order.
    """
    if cleaning is None and config.needs_cleaning:
        raise UsageError(
            "duplicates, contamination and splits cannot be told from scores",
            got="select.dedup, decontaminate or split, and no texts",
            expected="a curate.selection.cleaning.Cleaner of the same dialogues",
        )
    ran = stages_run(table)
    work = _scored(table)
    columns: list[str] = []
    if not config.rejected_sides:
        columns.append("why rejected side")
        work = work.with_columns(table["rejected_as"].alias(columns[-1]))
    for name, sql in conditions(table, config).items():
        where = f"select.where.{name}"
        value = evaluate(table, sql, where).cast(pl.Boolean)
        stages = stages_of(columns_of(parse(sql, where)), ran)
        reason = _reason(name, stages, may_waive=True)
        # a space keeps the column apart from every other: no condition's name has one
        columns.append(f"why {name}")
        work = work.with_columns(value.alias("value")).with_columns(reason.alias(columns[-1]))
    collisions: dict[int, list[Collision]] = {}
    if cleaning is not None:
        _collide(collisions, cleaning.contaminated)
        work = _removals(work, cleaning.contaminated, columns, _REMOVALS[:1])
        met = work.with_columns(met=_met(columns))["met"].arg_true().to_list()
        duplicates = cleaning.duplicates(table, met)
        _collide(collisions, duplicates)
        work = _removals(work, duplicates, columns, _REMOVALS[1:])
    top = share_taken(table, config)
    if top is not None:
        work = _top(table, work.with_columns(met=_met(columns)), top, ran)
        columns.append("why top")
    missing = pl.any_horizontal(
        pl.lit(False),
        *(pl.col(name).str.ends_with(":unscored").fill_null(False) for name in columns),
    )
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
    """The words that are not null, as a list. No word has a space; nulls taken out of lists cost 8 times more."""
    text = pl.concat_str(words, separator=" ", ignore_nulls=True)
    nothing = pl.lit([], dtype=pl.List(pl.String))
    return pl.when(text != "").then(text.str.split(" ")).otherwise(nothing)


def _met(columns: Sequence[str]) -> pl.Expr:
    return pl.all_horizontal(pl.lit(True), *(pl.col(name).is_null() for name in columns))


def _collide(collisions: dict[int, list[Collision]], more: Collisions) -> None:
    for row, found in more.items():
        collisions.setdefault(row, []).extend(found)


def _removals(
    work: pl.DataFrame, found: Collisions, columns: list[str], reasons: Sequence[Removal]
) -> pl.DataFrame:
    """`work` with a column for each reason that occurs; its name is appended to `columns`."""
    for reason in reasons:
        rows = [row for row, held in found.items() if any(c.reason == reason for c in held)]
        if not rows:
            continue
        columns.append(f"why {reason}")
        removed = pl.int_range(pl.len(), dtype=pl.Int64).is_in(
            pl.Series(rows, dtype=pl.Int64).implode()
        )
        work = work.with_columns(
            pl.when(removed).then(pl.lit(reason)).otherwise(None).alias(columns[-1])
        )
    return work


def _collision_column(collisions: Collisions, height: int) -> pl.Series:
    none: list[dict[str, Any]] = []
    if not collisions:
        return pl.Series("collisions", [none], dtype=_COLLISIONS).new_from_index(0, height)
    values = [
        [c.model_dump() for c in collisions[row]] if row in collisions else none
        for row in range(height)
    ]
    return pl.Series("collisions", values, dtype=_COLLISIONS)


def matches(table: pl.DataFrame, expression: str) -> set[str]:
    """Content hashes of the dialogues for which a condition is true; see `matching`."""
    return set(table["content_hash"].filter(matching(table, expression)))


def matching(table: pl.DataFrame, expression: str, where: str = "fork.where") -> pl.Series:
    """For each dialogue whether a condition is true (null is not, nor is one on scores there are not).

    Args:
        where: names the condition in an error.

    Raises:
        UsageError: bad SQL, an unknown column or a value the data does not allow.
    """
    true = evaluate(table, expression, where).cast(pl.Boolean).fill_null(False)
    stages = stages_of(columns_of(parse(expression, where)), stages_run(table))
    scored = _scored(table).select(~_any(f"{stage}_missing" for stage in stages)).to_series()
    return true & scored


def narrowed(table: pl.LazyFrame, expressions: Mapping[str, str]) -> pl.DataFrame:
    """The columns of a score table on disk that a decision reads: as a rule a tenth of it.

    Args:
        expressions: SQL by its place in the recipe, as `questions` gives it.

    Raises:
        UsageError: bad SQL, or a column that the table does not have.
    """
    schema = table.collect_schema()
    needed = {"id", "content_hash", "rejected_as", "levels_calibrated"}
    needed |= {*SCORE_OF.values(), *UNSCORED_OF.values()}
    for where, sql in expressions.items():
        read = columns_of(parse(sql, where))
        check_columns(read, where, schema, labels_known=True)
        needed |= read
    return table.select(name for name in schema if name in needed).collect()


def questions(config: SelectConfig) -> dict[str, str]:
    """All SQL of a selection by its place in the recipe; columns to group by are expressions, too."""
    where = dict(DEFAULT_CONDITIONS.values()) if config.named is None else config.named
    if config.certified_rule is not None:
        where = {**where, CERTIFIED: config.certified_rule}
    top = DEFAULT_TOP if config.named is None and config.top is None else config.top
    asked = {f"select.where.{name}": sql for name, sql in where.items()}
    for place, rule in (("top", top), ("review", config.review), ("active", config.active)):
        if isinstance(rule, Share):
            asked[f"select.{place}.by"] = rule.by
            asked |= {f"select.{place}.within.{name}": f'"{name}"' for name in rule.within}
        elif rule is not None:
            asked[f"select.{place}"] = rule
    if config.dedup is not None and config.dedup.ranking is not None:
        asked["select.dedup.keep"] = config.dedup.ranking
    return asked


def filters(table: pl.DataFrame, config: SelectConfig) -> dict[str, str]:
    """Return the filters of the SFT set, as SQL by its place in the recipe: the conditions and the ranking that apply."""
    asked = {f"select.where.{name}": sql for name, sql in conditions(table, config).items()}
    share = share_taken(table, config)
    return asked if share is None else {**asked, "select.top.by": share.by}


def conditions(table: pl.DataFrame, config: SelectConfig) -> dict[str, str]:
    """The conditions that apply: the recipe's, else the default one of each stage that ran, and the certificate's.

    Of a judge whose levels are not calibrated there is none: see `share_taken`.
    """
    certified = {} if config.certified_rule is None else {CERTIFIED: config.certified_rule}
    if config.named is not None:
        return config.named | certified
    if config.leaves_it_to_the_certificate:
        return certified
    ran = stages_run(table) - (frozenset() if _has_levels(table) else {"judge"})
    defaults = dict(DEFAULT_CONDITIONS[stage] for stage in DEFAULT_CONDITIONS if stage in ran)
    return defaults | certified


def share_taken(table: pl.DataFrame, config: SelectConfig) -> Share | None:
    """The share that applies: the recipe's, else of a judge whose levels are not calibrated the better half."""
    given = config.named is not None or config.leaves_it_to_the_certificate
    if config.top is not None or given or "judge" not in stages_run(table):
        return config.top
    return None if _has_levels(table) else DEFAULT_TOP


def _has_levels(table: pl.DataFrame) -> bool:
    """Tell whether all scores of the judge are calibrated levels."""
    found = table["levels_calibrated"].drop_nulls()
    return bool(len(found) and found.all())


def stages_run(table: pl.DataFrame) -> frozenset[ScoringStage]:
    """The stages a table has scores of, or reasons why it has none."""
    return frozenset(
        stage
        for stage, score in SCORE_OF.items()
        if not (table[score].is_null() & table[UNSCORED_OF[stage]].is_null()).all()
    )


def _scored(table: pl.DataFrame) -> pl.DataFrame:
    """Ids, and per stage whether a dialogue's scores are `missing`, and whether that is since `skipped`."""
    flags = {}
    for stage, score in SCORE_OF.items():
        flags[f"{stage}_missing"] = pl.col(score).is_null()
        flags[f"{stage}_skipped"] = pl.col(UNSCORED_OF[stage]).eq_missing(pl.lit(SKIPPED))
    return table.select("id", "content_hash", **flags)


def _any(columns: Iterable[str]) -> pl.Expr:
    return pl.any_horizontal(pl.lit(False), *columns)


def _reason(name: str, stages: frozenset[ScoringStage], *, may_waive: bool) -> pl.Expr:
    """Null where the column `value` is true or the condition is waived, else why the dialogue fails."""
    skipped = _any(f"{stage}_skipped" for stage in stages)
    failed = pl.any_horizontal(
        pl.lit(False),
        *(pl.col(f"{stage}_missing") & ~pl.col(f"{stage}_skipped") for stage in stages),
    )
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
        .otherwise(pl.lit(None, dtype=pl.String))
    )


def _top(
    table: pl.DataFrame, work: pl.DataFrame, share: Share, ran: frozenset[ScoringStage]
) -> pl.DataFrame:
    """`work` with a column `why top`: null where in the share or failed before (not `met`), else the reason."""
    by = _ranking(table, share, "select.top")
    stages = stages_of(columns_of(parse(share.by, "select.top.by")), ran)
    usable = pl.col("met") & by.is_not_null() & ~_any(f"{stage}_missing" for stage in stages)
    among = work.select(usable).to_series()
    inside = _share(table, share, among, "select.top")
    return work.with_columns(value=pl.when(by.is_not_null()).then(inside)).with_columns(
        pl.when("met").then(_reason("top", stages, may_waive=False)).alias("why top")
    )


def _mark(table: pl.DataFrame, rule: str | Share | None, where: str) -> pl.Series:
    """Per row: whether a dialogue is in the set; null makes it no member."""
    if rule is None:
        return pl.Series([False]).new_from_index(0, table.height)
    if isinstance(rule, Share):
        return _share(table, rule, _ranking(table, rule, where).is_not_null(), where)
    return evaluate(table, rule, where).cast(pl.Boolean).fill_null(False)


def _ranking(table: pl.DataFrame, share: Share, where: str) -> pl.Series:
    """Return what a share is ranked by; NaN, which sorts above every number, is no value."""
    by = evaluate(table, share.by, f"{where}.by")
    return by.fill_nan(None) if by.dtype.is_float() else by


def _share(table: pl.DataFrame, share: Share, among: pl.Series, where: str) -> pl.Series:
    """Which rows are in a share of those `among`: the first ceil(fraction * n) of each group.

    Ties are broken by content hash and id, so the outcome does not depend on the order of the rows.
    """
    check_columns(share.within, f"{where}.within", table.schema, labels_known=True)
    groups = {f"group{place}": pl.col(name) for place, name in enumerate(share.within)}
    ranked = table.select(
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
    taken = ranked.sort(
        "by", "content_hash", "id", descending=[share.descending, False, False]
    ).filter(inside.over(list(groups)) if groups else inside)
    return pl.Series(range(table.height), dtype=pl.UInt32).is_in(taken["row"].implode())
