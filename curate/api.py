"""The Python API: the command line's steps as synchronous functions.

    loaded = load_dialogues("chats.jsonl")
    judgments = judge_dialogues(loaded.dialogues, {"engine": "openai", "model": …, "base_url": …})

Models are given as an engine config (the same keys as in a recipe) or as an open engine. Nothing is
written to disk unless a `replies` folder is named; `run_recipe` is the way to run folders and resume.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from curate.adherence.config import AdherenceConfig
from curate.adherence.decay import AdherenceTally
from curate.adherence.reference.scorer import ReferenceScorer
from curate.adherence.reference.scorer import check as check_method
from curate.calibrating import Labels, calibrate
from curate.cleaning import prepare_cleaning
from curate.dialogue import Dialogue
from curate.engines.accounting import Accounting
from curate.engines.asking import Asker
from curate.engines.base import Ask, Engine
from curate.engines.cache import ReplyCache
from curate.engines.config import EngineConfig, OpenAIConfig, open_engine
from curate.errors import UsageError
from curate.executors.local import for_each
from curate.executors.loop import run as run_in_loop
from curate.judging.config import RubricConfig
from curate.models import ForkModels
from curate.pairs.config import ForkConfig
from curate.pipeline import RunResult, run_recipe
from curate.recipe import Recipe, load_recipe
from curate.records import (
    AdherenceScore,
    Decision,
    Judgment,
    PreferencePair,
    QuarantinedRow,
    Unscored,
)
from curate.selection.config import SelectConfig
from curate.selection.rules import select as select_rows
from curate.selection.table import score_table
from curate.sources import Detection, SourceConfig, Tally, open_rows, open_source
from curate.steps import Step, adherence_step, fork_step, judge_step

__all__ = [
    "Labels",
    "LoadedDialogues",
    "Recipe",
    "RunResult",
    "calibrate",
    "fork_pairs",
    "judge_dialogues",
    "load_dialogues",
    "load_recipe",
    "run_recipe",
    "score_adherence",
    "select",
]

R = TypeVar("R")

Model = Engine | EngineConfig | Mapping[str, Any]
"""An open engine (which stays open), or the config of one."""

_ENGINE: TypeAdapter[EngineConfig] = TypeAdapter(EngineConfig)


@dataclass(frozen=True, slots=True)
class LoadedDialogues:
    """What a source held: `tally.rows_in == tally.rows_used + tally.quarantined`."""

    dialogues: list[Dialogue]
    quarantined: list[QuarantinedRow]
    detection: Detection
    tally: Tally


def load_dialogues(
    source: str | Path | SourceConfig | Iterable[Mapping[str, Any]],
    *,
    role: str | None = None,
    scenario: str | None = None,
    role_from: Literal["data", "recipe"] = "data",
) -> LoadedDialogues:
    """Read a file, folder, glob, Hub id or rows in memory; the shape is detected unless it is named.

    Args:
        source: a path; a `SourceConfig` for shape, mapping and the rest; or rows: a list of mappings, a
            `datasets.Dataset` or a polars frame.
        role: role definition of dialogues that carry none, in a field or a system message.
        scenario: scenario of dialogues that carry none.
        role_from: `recipe` puts `role` before what the data says.

    Raises:
        UsageError: the shape is ambiguous; names the candidates.
        SourceError: nothing can be read there.
    """
    if isinstance(source, SourceConfig):
        opened = open_source(source)
    elif isinstance(source, str | Path):
        opened = open_source(SourceConfig(path=str(source)))
    else:
        opened = open_rows(source, SourceConfig(path="rows"))
    tally = Tally()
    dialogues: list[Dialogue] = []
    quarantined: list[QuarantinedRow] = []
    for unit in opened.read(role, scenario, role_from):
        tally.add(unit)
        dialogues.extend(unit.dialogues)
        quarantined.extend(unit.quarantined)
    return LoadedDialogues(dialogues, quarantined, opened.detection, tally)


def judge_dialogues(
    dialogues: Iterable[Dialogue],
    model: Model,
    config: RubricConfig | None = None,
    *,
    replies: str | Path | None = None,
) -> list[Judgment | Unscored]:
    """Judge dialogues turn by turn; one record a dialogue, in order.

    Args:
        dialogues: what to judge.
        model: the judge.
        config: rubric, windows, mode; defaults as in a recipe.
        replies: folder of a reply log; a reply in it is not asked for again.

    Raises:
        UsageError: the engine cannot serve the scoring mode asked for.
        EngineError: the model cannot be reached or used.
    """
    return _score(
        dialogues, model, lambda engine: judge_step(config or RubricConfig(), engine), replies
    )


def score_adherence(
    dialogues: Iterable[Dialogue],
    model: Model | None = None,
    config: AdherenceConfig | None = None,
    *,
    replies: str | Path | None = None,
    embeddings: str | Path | None = None,
) -> list[AdherenceScore | Unscored]:
    """Score how well the assistant keeps its role; errors as in `judge_dialogues`.

    What a run would say in its manifest (a fall-back to binary, a calibration that does not hold, answers
    given for want of evidence) is a Python warning here, each once.

    Args:
        dialogues: what to score.
        model: the judge; not needed where `scoring_method` compares with references.
        config: as the recipe's section `adherence`.
        replies: folder of a reply log; a reply in it is not asked for again.
        embeddings: file that keeps what the encoders of reference methods made; memory by default.
    """
    chosen = config or AdherenceConfig()
    if chosen.scoring_method != "llm_judge":
        check_method(chosen)
        held = list(dialogues)
        scorer = ReferenceScorer(
            chosen, lambda: held, None if embeddings is None else Path(embeddings)
        )
        if scorer.warning:
            warnings.warn(scorer.warning, stacklevel=2)
        return [scorer.score(dialogue) for dialogue in held]
    if model is None:
        raise UsageError("scoring_method llm_judge needs a judge", expected="model")
    found = _score(dialogues, model, lambda engine: adherence_step(chosen, engine), replies)
    tally = AdherenceTally()
    if chosen.on_missing == "half" or chosen.include_reason:
        for record in found:
            if isinstance(record, AdherenceScore):
                tally.add(record.model_dump())
    for warning in tally.warnings():
        warnings.warn(warning, stacklevel=2)
    return found


def select(
    dialogues: Iterable[Dialogue],
    judgments: Iterable[Judgment | Unscored],
    adherence: Iterable[AdherenceScore | Unscored] | None = None,
    config: SelectConfig | None = None,
) -> list[Decision]:
    """Put every dialogue into sets by named conditions; no model is asked.

    With `dedup`, `decontaminate` or `split` in the config all dialogues are held at once.
    """
    config = config or SelectConfig()
    given = dialogues if not config.needs_cleaning else list(dialogues)
    table = score_table(
        given,
        {record.content_hash: record for record in judgments},
        None if adherence is None else {record.content_hash: record for record in adherence},
    )
    cleaning = prepare_cleaning(config)
    if cleaning is None:
        return select_rows(table, config)
    with cleaning.open(lambda: given) as cleaner:
        return select_rows(table, config, cleaner)


def fork_pairs(
    dialogues: Iterable[Dialogue],
    judgments: Iterable[Judgment | Unscored],
    *,
    judge: Model,
    policy: Model,
    reviser: Model | None = None,
    config: ForkConfig | None = None,
    judging: RubricConfig | None = None,
    adherence: AdherenceConfig | None = None,
    replies: str | Path | None = None,
) -> list[PreferencePair]:
    """Fork every judged dialogue given; refused pairs come back too, with their `refusal` code.

    Args:
        dialogues: candidates; those whose judgment is unscored are left out.
        judgments: of these dialogues, by the same judge.
        judge: verifies both sides of each pair.
        policy: writes the resamples.
        reviser: writes the guided revision; the policy where None.
        config: see `ForkConfig`; `where` is not applied here, choose the dialogues yourself.
        judging: the rubric config the judgments were made with.
        adherence: how the judge scores role adherence; without it the role is not checked.
        replies: folder of a reply log.
    """
    scored = {record.content_hash: record for record in judgments if isinstance(record, Judgment)}
    rubric, fork = judging or RubricConfig(), config or ForkConfig()

    async def run() -> list[PreferencePair]:
        async with contextlib.AsyncExitStack() as stack:
            models = ForkModels(
                await _opened(judge, stack),
                await _opened(policy, stack),
                await _opened(reviser if reviser is not None else policy, stack),
            )
            cache = _cache(replies, stack)
            judged = judge_step(rubric, models.judge)
            work, _ = fork_step(fork, rubric, judged, models, adherence or False)
            asks: list[Ask] = [
                _asker(engine, model, cache)
                for engine, model in (
                    (models.judge, judge),
                    (models.policy, policy),
                    (models.reviser, policy if reviser is None else reviser),
                )
            ]

            async def one(dialogue: Dialogue) -> list[PreferencePair]:
                return await work(dialogue, scored[dialogue.content_hash], *asks)

            chosen = [dialogue for dialogue in dialogues if dialogue.content_hash in scored]
            made = await _in_order(chosen, one, models.judge.open_dialogues)
        return [pair for pairs in made for pair in pairs]

    return run_in_loop(run())


def _score(
    dialogues: Iterable[Dialogue],
    model: Model,
    bind: Callable[[Engine], Step[R]],
    replies: str | Path | None,
) -> list[R]:
    async def run() -> list[R]:
        async with contextlib.AsyncExitStack() as stack:
            engine = await _opened(model, stack)
            step = bind(engine)
            if step.warning:
                warnings.warn(step.warning, stacklevel=2)
            ask = _asker(engine, model, _cache(replies, stack))
            return await _in_order(
                list(dialogues), lambda dialogue: step.work(dialogue, ask), engine.open_dialogues
            )

    return run_in_loop(run())


async def _in_order(
    dialogues: Sequence[Dialogue], work: Callable[[Dialogue], Awaitable[R]], open_at_once: int
) -> list[R]:
    results: dict[int, R] = {}

    async def numbered(item: tuple[int, Dialogue]) -> R:
        return await work(item[1])

    def done(item: tuple[int, Dialogue], result: R) -> None:
        results[item[0]] = result

    await for_each(enumerate(dialogues), numbered, done, open_at_once=open_at_once)
    return [results[index] for index in range(len(dialogues))]


def _asker(engine: Engine, model: Model, cache: ReplyCache | None) -> Asker:
    """As patient as the config says; an open engine has none, so that it gets the defaults."""
    if isinstance(model, Engine):
        return Asker(engine, cache, accounting=Accounting())
    config = _config_of(model)
    return Asker(
        engine,
        cache,
        accounting=Accounting(),
        retries=config.retries,
        deadline=config.deadline if isinstance(config, OpenAIConfig) else None,
    )


async def _opened(model: Model, stack: contextlib.AsyncExitStack) -> Engine:
    if isinstance(model, Engine):
        return model
    engine = await open_engine(_config_of(model))
    stack.push_async_callback(engine.close)
    return engine


def _config_of(model: EngineConfig | Mapping[str, Any]) -> EngineConfig:
    if not isinstance(model, Mapping):
        return model
    try:
        return _ENGINE.validate_python(model)
    except ValidationError as error:
        raise UsageError(
            "not an engine config",
            got=str(error.errors()[0]["msg"]),
            expected="keys as in models.judge",
        ) from error


def _cache(replies: str | Path | None, stack: contextlib.AsyncExitStack) -> ReplyCache | None:
    return (
        None
        if replies is None
        else stack.enter_context(contextlib.closing(ReplyCache(Path(replies))))
    )
