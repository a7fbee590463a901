"""The Python API: the command line's steps as synchronous functions.

    loaded = load_dialogues("chats.jsonl")
    judgments = judge_dialogues(loaded.dialogues, {"engine": "openai", "model": …, "base_url": …})

A model is an open engine, or the content of a recipe's `models.judge`; a config is the content of the recipe's
section for that stage. Both may be a mapping, the config's own class, or the path of a recipe, of which that part is
read. Redaction, prices and the budget apply as in a run. Nothing is written to disk unless a `replies` folder is
named; use `run_recipe` for run folders and resuming.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import polars as pl
from pydantic import BaseModel

from curate.adherence.config import AdherenceConfig
from curate.adherence.decay import AdherenceTally
from curate.adherence.reference.scorer import ReferenceScorer
from curate.adherence.reference.scorer import check as check_method
from curate.dialogue import Dialogue, Message
from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Engine
from curate.engines.config import (
    EngineConfig,
    LlamaCppConfig,
    OpenAIConfig,
    ScriptedConfig,
    TransformersConfig,
    VllmConfig,
)
from curate.engines.model_pool import Asks, ModelPool
from curate.engines.personal_data import PersonalData
from curate.errors import (
    BudgetReached,
    CurateError,
    EngineError,
    RunLockedError,
    SourceError,
    UsageError,
)
from curate.executors.first_rows import FirstRows
from curate.executors.local import for_each
from curate.executors.loop import run as run_in_loop
from curate.export.config import ExportConfig
from curate.judging.cascade import CascadeRule
from curate.judging.config import RubricConfig
from curate.judging.factuality import FactualityConfig
from curate.judging.metrics import MetricsConfig, OwnMetric
from curate.judging.metrics import draft as drafting
from curate.notebook import progress_bars
from curate.pairs.config import ForkConfig, NaturalConfig
from curate.pairs.settle import settle, survey
from curate.recipe import (
    BudgetConfig,
    Recipe,
    as_recipe,
    check_budget,
    judge_roles,
    load_recipe,
    parse_source,
)
from curate.records import (
    AdherenceScore,
    Agreement,
    AuditReport,
    Calibration,
    Certificate,
    Decision,
    FactualityScore,
    Judgment,
    MetricsScore,
    PreferencePair,
    ProbeReport,
    QuarantinedRow,
    StageName,
    Unscored,
)
from curate.records.calibration_file import read_calibration
from curate.records.several_judges import JuryRule
from curate.records.validation_errors import validated
from curate.run.audit import audit_run, plan_second_judging
from curate.run.cleaning_inputs import prepare_cleaning
from curate.run.diff import diff_runs
from curate.run.labels.agreement import measure_agreement
from curate.run.labels.calibrate import Labels, calibrate, calibrate_with_gold
from curate.run.labels.certify import certify_run, keep_certificate
from curate.run.labels.drawn_labels import given_labels
from curate.run.labels.question import Question
from curate.run.labels.sample import sample
from curate.run.pipeline import run_recipe
from curate.run.probe import plan_probe, probe_judge, write_probe
from curate.run.probe_plan import CASES
from curate.run.result import RunResult
from curate.run.trust_reports import write_trust_report
from curate.run.verify import verify_run
from curate.selection.config import SelectConfig
from curate.selection.rules import select as select_rows
from curate.selection.table import score_table
from curate.sources import Detection, RowCounts, Source, SourceConfig, open_rows, open_source
from curate.stages import (
    Stage,
    WorkItem,
    adherence_by,
    factuality_stage,
    fork_stage,
    metrics_by,
    rubric_stage,
    scorers,
)
from curate.storage.whole_files import write_record
from curate.trust.gold import parse_scales
from curate.trust.label_rows import read_gold

__all__ = [
    "AdherenceConfig",
    "AdherenceScore",
    "BudgetReached",
    "Calibration",
    "CurateError",
    "Decision",
    "Dialogue",
    "EngineError",
    "ExportConfig",
    "FactualityConfig",
    "FactualityScore",
    "ForkConfig",
    "Judgment",
    "Labels",
    "LlamaCppConfig",
    "LoadedDialogues",
    "Message",
    "MetricsConfig",
    "MetricsScore",
    "NaturalConfig",
    "OpenAIConfig",
    "OwnMetric",
    "PreferencePair",
    "QuarantinedRow",
    "Recipe",
    "RubricConfig",
    "RunLockedError",
    "RunResult",
    "ScriptedConfig",
    "SelectConfig",
    "SourceConfig",
    "SourceError",
    "TransformersConfig",
    "Unscored",
    "UsageError",
    "VllmConfig",
    "agreement",
    "audit",
    "calibrate",
    "calibrate_with_gold",
    "certify",
    "diff_runs",
    "draft_metric",
    "fork_pairs",
    "judge_dialogues",
    "load_dialogues",
    "load_recipe",
    "probe",
    "read_gold",
    "run_recipe",
    "sample",
    "score_adherence",
    "score_factuality",
    "score_metrics",
    "select",
    "verify_run",
]

R = TypeVar("R")
C = TypeVar("C", bound=BaseModel)

Given = Mapping[str, Any] | str | Path | None
"""A section of a recipe: a mapping, or the path of a recipe that has it; None for its defaults."""

Redact = Sequence[PersonalData] | None
"""Kinds of personal data; None for those of the recipe that a model is named by."""

Bounds = BudgetConfig | Mapping[str, Any] | None
"""A recipe's section `budget`; None for that of the recipe that a model is named by."""

Model = Engine | EngineConfig | Mapping[str, Any] | str | Path
"""An open engine (which stays open), its config, or the path of a recipe that names it."""

Judges = Model | Sequence[Engine | EngineConfig | Mapping[str, Any]]
"""One judge; a list of several, which form a jury; or a mapping with `cascade`, as in a recipe's `models.judge`. All judges
of a jury score and verify; in a cascade the small judge only scores by the rubric, and the large one does the rest."""


@dataclass(frozen=True, slots=True)
class LoadedDialogues:
    """The content of a source: `tally.rows_in == tally.rows_used + tally.quarantined`."""

    dialogues: list[Dialogue]
    quarantined: list[QuarantinedRow]
    detection: Detection
    tally: RowCounts


def load_dialogues(
    source: str | Path | SourceConfig | Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    role: str | None = None,
    scenario: str | None = None,
    role_from: Literal["data", "recipe"] = "data",
    **keys: Any,
) -> LoadedDialogues:
    """Read a file, folder, glob, Hub id or rows in memory; the shape is detected unless it is named.

    Args:
        source: a path or Hub id; rows: a list of mappings, a `datasets.Dataset`, a pandas or polars frame; or the
            content of a recipe's `source`, as a mapping or a `SourceConfig`.
        role: role definition of dialogues that have none.
        scenario: scenario of dialogues that have none.
        role_from: `recipe` uses `role` for all dialogues, also those with a role of their own.
        keys: other keys of a recipe's `source`: `shape`, `mapping`, `columns`, `limit`, `split`, …

    Raises:
        UsageError: a key is wrong; the shape is ambiguous (names the candidates); or a `shape` or `mapping` reads no
            row (lists the keys of the data).
        SourceError: nothing can be read there.
    """
    opened = _open(source, keys)
    tally = RowCounts()
    dialogues: list[Dialogue] = []
    quarantined: list[QuarantinedRow] = []
    for unit in opened.read(role, scenario, role_from):
        tally.add(unit)
        dialogues.extend(unit.dialogues)
        quarantined.extend(unit.quarantined)
    opened.check_read(tally)
    return LoadedDialogues(dialogues, quarantined, opened.detection, tally)


def _open(source: object, keys: Mapping[str, Any]) -> Source:
    if isinstance(source, SourceConfig):
        return open_source(parse_source(source.model_dump(exclude_unset=True) | dict(keys)))
    if isinstance(source, str | Path):
        return open_source(parse_source({"path": str(source), **keys}))
    if isinstance(source, Mapping):
        if hasattr(source, "column_names"):
            raise UsageError(
                "a DatasetDict holds several datasets",
                got=", ".join(source),
                expected="one of them",
            )
        return open_source(parse_source({**source, **keys}))
    if not isinstance(source, Iterable) and not isinstance(source, pl.LazyFrame):
        raise UsageError(
            "dialogues cannot be read from this",
            got=type(source).__name__,
            expected="a path, rows, a frame, a Dataset, or the content of a recipe's `source`",
        )
    rows: Any = list(source) if isinstance(source, Iterator) else source
    return open_rows(rows, parse_source({"path": "rows", **keys}))


def judge_dialogues(
    dialogues: Iterable[Dialogue],
    model: Judges,
    config: RubricConfig | Given = None,
    *,
    replies: str | Path | None = None,
    redact: Redact = None,
    budget: Bounds = None,
    keep_going: bool = False,
) -> list[Judgment | Unscored]:
    """Judge dialogues turn by turn; return one record per dialogue, in order.

    Args:
        dialogues: the dialogues to judge.
        model: the judge, a jury or a cascade.
        config: as the recipe's section `judge`.
        replies: folder of a response cache; a reply in it is not asked for again.
        redact: kinds of personal data removed from what is sent to a hosted model, as a recipe's `redact`; None: those
            of the recipe that `model` names, if it names one.
        budget: as a recipe's section `budget`, for this call; None: that of the recipe that `model` names.
        keep_going: do not stop when the first 50 dialogues all fail for the same reason.

    Raises:
        UsageError: a key is wrong, or the engine does not support the scoring mode.
        EngineError: the model cannot be reached or used, or the first 50 dialogues all failed.
        BudgetReached: a limit is reached; what was received is in `replies`.
    """
    rubric = _section(RubricConfig, config, "judge")
    models = _Models.of(redact, budget, judge=model)
    return _score(
        dialogues,
        models,
        lambda pool: rubric_stage(rubric, pool.judges, models.cascade),
        replies,
        FirstRows(StageName.JUDGE, keep_going=keep_going),
    )


def score_adherence(
    dialogues: Iterable[Dialogue],
    model: Judges | None = None,
    config: AdherenceConfig | Given = None,
    *,
    replies: str | Path | None = None,
    redact: Redact = None,
    budget: Bounds = None,
    embeddings: str | Path | None = None,
    keep_going: bool = False,
) -> list[AdherenceScore | Unscored]:
    """Score how well the assistant keeps to its role; errors as in `judge_dialogues`.

    What a run would write into its manifest (falling back to binary, a calibration that does not apply, scores
    imputed because yes and no had too little probability) is issued as a Python warning, each once.

    Args:
        dialogues: the dialogues to score.
        model: the judge, or a jury; not needed where `scoring_method` compares with references.
        config: as the recipe's section `adherence`.
        replies: folder of a response cache; a reply in it is not asked for again.
        redact, budget: as in `judge_dialogues`.
        embeddings: file for the embeddings of reference methods; by default they are kept in memory.
        keep_going: as in `judge_dialogues`.
    """
    chosen = _section(AdherenceConfig, config, "adherence")
    if chosen.scoring_method != "llm_judge":
        check_method(chosen)
        listed = list(dialogues)
        scorer = ReferenceScorer(
            chosen, lambda: listed, None if embeddings is None else Path(embeddings)
        )
        if scorer.warning:
            warnings.warn(scorer.warning, stacklevel=2)
        return [scorer.score(dialogue) for dialogue in listed]
    if model is None:
        raise UsageError("scoring_method llm_judge needs a judge", expected="model")
    judge = _Models.of(redact, budget, judge=model)
    rule = _jury_rules(config)["adherence"]
    first = FirstRows(StageName.ADHERENCE, keep_going=keep_going)
    scores = _score(
        dialogues,
        judge,
        lambda pool: adherence_by(chosen, scorers(pool, judge.cascade), rule),
        replies,
        first,
    )
    tally = AdherenceTally()
    if chosen.on_missing == "half" or chosen.include_reason:
        for record in scores:
            if isinstance(record, AdherenceScore):
                tally.add(record.model_dump())
    for warning in tally.warnings():
        warnings.warn(warning, stacklevel=2)
    return scores


def score_metrics(
    dialogues: Iterable[Dialogue],
    model: Judges,
    config: MetricsConfig | Given = None,
    *,
    replies: str | Path | None = None,
    redact: Redact = None,
    budget: Bounds = None,
    keep_going: bool = False,
) -> list[MetricsScore | Unscored]:
    """Score whole dialogues by weighted metrics; return one record per dialogue, in order.

    Args:
        dialogues: the dialogues to score.
        model: the judge.
        config: as the recipe's section `metrics`; None: the eight default metrics.
        replies, redact, budget, keep_going: as in `judge_dialogues`.

    Raises:
        UsageError, EngineError, BudgetReached: as `judge_dialogues`.
    """
    chosen = _section(MetricsConfig, config, "metrics")
    models, rule = _Models.of(redact, budget, judge=model), _jury_rules(config)["metrics"]
    return _score(
        dialogues,
        models,
        lambda pool: metrics_by(chosen, scorers(pool, models.cascade), rule),
        replies,
        FirstRows(StageName.METRICS, keep_going=keep_going),
    )


def draft_metric(wish: str, model: Model, *, budget: Bounds = None) -> OwnMetric:
    """Draft a metric for a recipe's `metrics.own`, to be edited before it is used.

    Args:
        wish: one sentence that says what it should measure.
        model: the judge.
        budget: as in `judge_dialogues`.

    Raises:
        EngineError: the model cannot be reached, or its reply is not a metric.
    """

    async def run() -> OwnMetric:
        async with _Models.of((), budget, judge=model).asking(None) as (_, asks):
            return await drafting.draft_metric(wish, asks.judge)

    return run_in_loop(run())


def score_factuality(
    dialogues: Iterable[Dialogue],
    model: Model,
    config: FactualityConfig | Given = None,
    *,
    replies: str | Path | None = None,
    redact: Redact = None,
    budget: Bounds = None,
    keep_going: bool = False,
) -> list[FactualityScore | Unscored]:
    """Label the claims of every assistant turn; one record a dialogue, in order.

    Args:
        dialogues: what to look at.
        model: the judge.
        config: as the recipe's section `factuality`.
        replies, redact, budget, keep_going: as in `judge_dialogues`.

    Raises:
        UsageError, EngineError, BudgetReached: as `judge_dialogues`.
    """
    chosen = _section(FactualityConfig, config, "factuality")
    return _score(
        dialogues,
        _Models.of(redact, budget, judge=model),
        lambda pool: factuality_stage(chosen, pool.judge),
        replies,
        FirstRows(StageName.FACTUALITY, keep_going=keep_going),
    )


def select(
    dialogues: Iterable[Dialogue],
    judgments: Iterable[Judgment | Unscored],
    adherence: Iterable[AdherenceScore | Unscored] | None = None,
    config: SelectConfig | Given = None,
    *,
    calibration: Calibration | str | Path | None = None,
    metrics: Iterable[MetricsScore | Unscored] | None = None,
    factuality: Iterable[FactualityScore | Unscored] | None = None,
) -> list[Decision]:
    """Put every dialogue into sets by named conditions; no model calls.

    Args:
        dialogues: the dialogues; each gets one decision.
        judgments: judgments of these dialogues.
        adherence: adherence scores of these dialogues, if conditions use them.
        config: as the recipe's section `select`. With `dedup`, `decontaminate` or `split` all dialogues are held in
            memory.
        calibration: file written by `curate calibrate`, or its content; gives the column `p_good`.
        metrics, factuality: scores of these dialogues, if conditions use them.

    Raises:
        UsageError: a key is wrong, or a condition names a column that does not exist.
    """
    config = _section(SelectConfig, config, "select")
    fitted = read_calibration(calibration, "calibration")
    read = dialogues if not config.needs_cleaning else list(dialogues)
    table = score_table(
        read,
        {record.content_hash: record for record in judgments},
        None if adherence is None else {record.content_hash: record for record in adherence},
        None if fitted is None else fitted.good,
        None if metrics is None else {record.content_hash: record for record in metrics},
        None if factuality is None else {record.content_hash: record for record in factuality},
    )
    cleaning = prepare_cleaning(config)
    if cleaning is None:
        return select_rows(table, config)
    with cleaning.open(lambda: read) as cleaner:
        return select_rows(table, config, cleaner)


def fork_pairs(
    dialogues: Iterable[Dialogue],
    judgments: Iterable[Judgment | Unscored],
    *,
    judge: Judges,
    policy: Model,
    reviser: Model | None = None,
    config: ForkConfig | Given = None,
    judging: RubricConfig | Given = None,
    adherence: AdherenceConfig | Given = None,
    replies: str | Path | None = None,
    redact: Redact = None,
    budget: Bounds = None,
    keep_going: bool = False,
) -> list[PreferencePair]:
    """Fork every judged dialogue; dropped pairs are returned too, with their `drop_reason`.

    Args:
        dialogues: candidates; those whose judgment is unscored are left out.
        judgments: judgments of these dialogues, by the same judge.
        judge: verifies both sides of each pair.
        policy: writes the resamples.
        reviser: writes the guided revision; None: the policy.
        config: as the recipe's section `fork`; `where` is not applied here, choose the dialogues yourself.
        judging: the recipe's section `judge` that the judgments were made with.
        adherence: the recipe's section `adherence`, to score role adherence of both sides; None: the role is not
            checked.
        replies: folder of a response cache.
        redact, budget: as in `judge_dialogues`; if models are named by several recipes, everything that any of them
            redacts, and the first one's budget.
        keep_going: as in `judge_dialogues`.
    """
    scored = {record.content_hash: record for record in judgments if isinstance(record, Judgment)}
    rubric, fork = _section(RubricConfig, judging, "judge"), _section(ForkConfig, config, "fork")
    role = None if adherence is None else _section(AdherenceConfig, adherence, "adherence")
    writers = {"policy": policy} | ({} if reviser is None else {"reviser": reviser})
    models = _Models.of(redact, budget, judge=judge, **writers)

    async def run() -> list[PreferencePair]:
        async with models.asking(replies) as (pool, asks):
            judged = rubric_stage(rubric, pool.judges, models.cascade)
            alone = rubric if not judged.judges else rubric.model_copy(update={"calibration": None})
            stage = fork_stage(fork, alone, judged, pool, role or False, cascade=models.cascade)

            async def one(dialogue: Dialogue) -> list[PreferencePair]:
                return await stage.run(WorkItem(dialogue, scored[dialogue.content_hash]), asks)

            chosen = [dialogue for dialogue in dialogues if dialogue.content_hash in scored]
            first = FirstRows(StageName.FORK, keep_going=keep_going)
            made = await _in_order(chosen, one, pool.judge.open_dialogues, first)
        pairs = [pair for pairs in made for pair in pairs]
        overview = survey(pairs)
        return [settle(pair, overview, fork) for pair in pairs]

    return run_in_loop(run())


def agreement(
    run: str | Path,
    gold: str | Path | None = None,
    *,
    dimension: str | None = None,
    label: str = "label",
    scales: Sequence[str] = (),
    raters: str = "skilled",
) -> Agreement:
    """Compare a run's scores with people's labels, as `curate agreement`; the report is saved with the run.

    Args:
        run: run folder.
        gold: CSV, JSONL or Parquet file of labels; None: the labels in the data.
        dimension: the dimension that the data's own labels are about.
        label: the name of those labels.
        scales: scales of the labels, such as `0-2`, `helpfulness=0-2` or `bad,fair,good`.
        raters: `experts`, `skilled` or `crowd`, for the alternative annotator test.

    Raises:
        UsageError: no run, no label about it, or labels that contradict each other.
    """
    labels = given_labels(Path(run), None if gold is None else Path(gold), dimension, label)
    return measure_agreement(run, labels, scales=parse_scales(scales), raters=raters).report


def certify(
    run: str | Path,
    gold: str | Path | None = None,
    *,
    dimension: str | None = None,
    label: str = "label",
    bad: str | None = None,
    risk: float = 0.1,
    confidence: float = 0.9,
    of: str | None = None,
    column: str | None = None,
    may_stop: bool = False,
    out: str | Path | None = None,
) -> Certificate:
    """Test what people's labels prove about a set of a run, as `curate certify`; the answer is saved with the run.

    Args:
        run, gold, dimension, label: as in `agreement`.
        bad, risk, confidence, of, column, may_stop: as `curate.run.labels.certify.Question`.
        out: file to write an issued certificate to, for `select.certificate`.

    Returns:
        A certificate, or one that is not `issued` and says why.

    Raises:
        UsageError: a question that labels cannot answer, or labels that do not fit the run.
    """
    question = Question(bad, risk, confidence, of, column, may_stop)
    question.check()
    labels = given_labels(Path(run), None if gold is None else Path(gold), dimension, label)
    certificate = keep_certificate(Path(run), certify_run(run, labels, question), labels)
    if out is not None and certificate.issued:
        write_record(Path(out), certificate)
    return certificate


def probe(
    recipe: str | Path | Recipe | Mapping[str, Any],
    *,
    data: str | None = None,
    limit: int = CASES,
    seed: int = 42,
    by_policy: int = 0,
    out: str | Path | None = None,
) -> ProbeReport:
    """Test a recipe's judge on planted flaws, as `curate probe`; card and replies are saved in the run folder.

    Args:
        recipe: path, mapping or Recipe.
        data, limit, seed, by_policy: as `curate.run.probe.plan_probe`.
        out: run folder; None: `runs/<name>`.

    Raises:
        UsageError, EngineError, BudgetReached: as `judge_dialogues`.
    """
    named = as_recipe(recipe)
    run = Path("runs") / named.name if out is None else Path(out)
    plan = plan_probe(named, data, limit, seed, by_policy)
    probed = probe_judge(named, plan, run / "replies.sqlite")
    write_probe(run, probed)
    return probed.report


def audit(run: str | Path, again: float | None = None) -> AuditReport:
    """Look for problems of a run without labels, as `curate audit`; the report is saved with the run.

    Args:
        run: run folder.
        again: share of the dialogues (0-1) to judge a second time; None makes no model calls.

    Raises:
        UsageError: no run, or one without scores; or the judge is not the one of the run.
    """
    run = Path(run)
    report = audit_run(run, None if again is None else plan_second_judging(run, again))
    write_trust_report(run, report)
    return report


def _jury_rules(config: object) -> dict[str, JuryRule]:
    """Return how a jury's scores are combined: by the recipe that a section is read from, else the median."""
    judge = load_recipe(config).judge if isinstance(config, str | Path) else None
    return (judge or RubricConfig()).jury_rules


def _score(
    dialogues: Iterable[Dialogue],
    models: _Models,
    bind: Callable[[ModelPool], Stage[R]],
    replies: str | Path | None,
    first: FirstRows,
) -> list[R]:
    async def run() -> list[R]:
        async with models.asking(replies) as (pool, asks):
            stage = bind(pool)
            if stage.warning:
                warnings.warn(stage.warning, stacklevel=2)
            rows = await _in_order(
                list(dialogues),
                lambda dialogue: stage.run(WorkItem(dialogue), asks),
                pool.facts.open_dialogues(stage.name),
                first,
            )
            return (
                rows if stage.calibrated is None else [stage.calibrated.apply(row) for row in rows]
            )

    return run_in_loop(run())


async def _in_order(
    dialogues: Sequence[Dialogue],
    work: Callable[[Dialogue], Awaitable[R]],
    open_at_once: int,
    first: FirstRows,
) -> list[R]:
    results: dict[int, R] = {}

    async def numbered(item: tuple[int, Dialogue]) -> R:
        return await work(item[1])

    with progress_bars() as show:

        def done(item: tuple[int, Dialogue], result: R) -> None:
            results[item[0]] = result
            show(first.stage, len(results), len(dialogues))
            first.see(result)

        await for_each(enumerate(dialogues), numbered, done, open_at_once=open_at_once)
    return [results[index] for index in range(len(dialogues))]


@dataclass(frozen=True, slots=True)
class _Models:
    """The models that a call of this API uses, and their limits."""

    pool: ModelPool
    limits: BudgetConfig
    cascade: CascadeRule | None = None

    @classmethod
    def of(cls, redact: Redact, budget: Bounds, *, judge: Judges, **given: Model) -> _Models:
        """Return the models of a call by role.

        Redaction and budget are those of the recipes that models are named by, unless the call gives its own.
        """
        recipes = {
            str(model): load_recipe(model)
            for model in (judge, *given.values())
            if isinstance(model, str | Path)
        }
        judges, cascade = _judges(judge, recipes)
        named = {role: _model(model, role, recipes) for role, model in given.items()}
        if redact is None:
            redact = tuple(kind for recipe in recipes.values() for kind in recipe.redact)
        kinds = validated(tuple[PersonalData, ...], redact, "not kinds of personal data")
        if budget is None:
            limits = next((recipe.budget for recipe in recipes.values()), BudgetConfig())
        else:
            limits = validated(BudgetConfig, budget, "not a section `budget`")
        every = {**judges, **named}
        unpriced = [role for role, model in every.items() if getattr(model, "prices", None) is None]
        check_budget(limits, unpriced)
        pool = ModelPool(
            judges["judge"],
            named.get("policy"),
            named.get("reviser"),
            judges=judges,
            redact=kinds,
        )
        return cls(pool, limits, cascade)

    @contextlib.asynccontextmanager
    async def asking(self, replies: str | Path | None) -> AsyncIterator[tuple[ModelPool, Asks]]:
        """Open the models; yield them and how they are asked."""
        kept = None if replies is None else Path(replies)
        budget = Budget(**self.limits.model_dump())
        async with self.pool as pool, pool.asking(kept, Accounting(), budget) as asks:
            yield pool, asks


def _judges(
    given: Judges, recipes: Mapping[str, Recipe]
) -> tuple[dict[str, Engine | EngineConfig], CascadeRule | None]:
    """Return the judges by role, the leading one as `judge`, and the rule of a cascade of two."""
    if isinstance(given, str | Path):
        models = recipes[str(given)].models
        if models.lead is None:
            raise UsageError(f"{given} names no models.judge", expected="models.judge")
        return dict(models.judges_by_role), models.cascade
    cascade: CascadeRule | None = None
    several: list[Model]
    if isinstance(given, Mapping) and "cascade" in given:
        several = list(given["cascade"])
        rest = {key: value for key, value in given.items() if key != "cascade"}
        cascade = validated(CascadeRule, rest, "the options of the cascade are not valid")
        if len(several) != 2:
            raise UsageError("a cascade needs two judges", got=len(several), expected="two")
    elif isinstance(given, Sequence) and not isinstance(given, str):
        several = list(given)
        if len(several) < 2:
            raise UsageError(
                "a jury needs several judges", got=len(several), expected="two or more"
            )
    else:
        several = [given]
    roles = judge_roles(len(several), is_cascade=cascade is not None)
    return {
        role: _model(one, role, recipes) for role, one in zip(roles, several, strict=True)
    }, cascade


def _model(given: Model, role: str, recipes: Mapping[str, Recipe]) -> Engine | EngineConfig:
    """Return an open engine or an engine's config; for a recipe its model of that role."""
    if isinstance(given, str | Path):
        named: EngineConfig | None = getattr(recipes[str(given)].models, role)
        if named is None:
            raise UsageError(f"{given} names no models.{role}", expected=f"models.{role}")
        return named
    if isinstance(given, Engine):
        return given
    config: EngineConfig = validated(EngineConfig, given, f"the {role} is not an engine's config")
    return config


def _section(kind: type[C], given: C | Given, section: str) -> C:
    """Return a section of a recipe from whatever it was given as."""
    if isinstance(given, str | Path):
        named: C | Literal[False] = getattr(load_recipe(given), section)
        if named is False:
            raise UsageError(f"{given} leaves out `{section}`", expected=f"a section `{section}`")
        return named
    config: C = validated(kind, {} if given is None else given, f"not a section `{section}`")
    return config
