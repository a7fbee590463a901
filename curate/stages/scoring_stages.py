"""The stages that score dialogues: the rubric, the persona check, role adherence, metrics and factual claims.

A stage is set up once: the mode that an engine supports, the identity of the scores, the fingerprint of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from curate.adherence.adherence_prompts import REASON_VERSION
from curate.adherence.adherence_prompts import prompt_version as adherence_prompts
from curate.adherence.config import AdherenceConfig, resolve_output_mode, settle_calibration
from curate.adherence.llm_judge import score_adherence
from curate.adherence.reference.scorer import ReferenceScorer
from curate.dialogue import Dialogue
from curate.engines.base import Ask, Capability
from curate.engines.model_pool import Asks, Described
from curate.engines.stand_in import Expected, LookUp
from curate.judging.calibrated_levels import (
    check_judge,
    check_metric_judge,
    with_levels,
    with_metric_levels,
)
from curate.judging.config import (
    RubricConfig,
    reading_options,
    resolve_mode,
    scoring_mode,
)
from curate.judging.factuality import FactualityConfig, score_factuality
from curate.judging.factuality import prompt_version as factuality_prompts
from curate.judging.metrics import MetricsConfig, score_metrics
from curate.judging.metrics import prompt_version as metrics_prompts
from curate.judging.rubric import judge_dialogue
from curate.judging.rubric_prompts import prompt_version
from curate.records import (
    JudgeIdentity,
    ScoringMode,
    StageName,
    Unscored,
)
from curate.records.calibration import calibrated_identity
from curate.stages.stage import (
    Calibrated,
    Checked,
    Judged,
    Measured,
    Scored,
    Stage,
    WorkItem,
    asks_about,
    calls_as_it_runs,
    identity_of,
    stage_code,
    stage_fingerprint,
)
from curate.storage.stage_rows import fingerprint


def judge_stage(config: RubricConfig, engine: Described) -> Stage[Judged]:
    """Return the stage of the multi-turn rubric judge on one engine.

    A calibration does not change what is asked: the judge's own rows are the same with and without it.

    Raises:
        UsageError: a mode that the engine does not support, or a calibration for another judge.
    """
    mode = resolve_mode(config, engine.capabilities)
    resolved = as_asked(config, mode)
    plain = identity_of(engine.identity, mode, prompt_version(resolved))
    identity = plain.model_copy(
        update={"sampling": plain.sampling | reading_options(resolved, mode)}
    )

    async def run(item: WorkItem, asks: Asks) -> Judged:
        ask = asks_about(item.dialogue, asks.judge)
        return await judge_dialogue(item.dialogue, ask, resolved, identity)

    options = resolved.model_dump(mode="json", exclude={"calibration", "persona_check", "jury"})
    rows_fingerprint = stage_fingerprint("judging", options, identity)
    return Stage(
        StageName.JUDGE,
        rows_fingerprint,
        identity,
        run,
        calls_as_it_runs(run),
        mode=mode,
        calibrated=calibrate_judge(config, identity, rows_fingerprint),
    )


def wordless(config: RubricConfig) -> RubricConfig:
    """Return the config without explanations and without a calibration, for scores alone."""
    return config.model_copy(update={"text": "off", "calibration": None})


def persona_stage(judged: Stage[Judged]) -> Stage[Judged]:
    """Return the rubric judge's stage on dialogues that were given another one's scenario; `judged` asks for no explanations."""

    async def run(item: WorkItem, asks: Asks) -> Judged:
        def mark(ask: Ask) -> Ask:
            return asks_about(item.dialogue, ask, stage=StageName.PERSONA)

        return await judged.run(item, asks.with_judges(mark))

    def expected(dialogue: Dialogue, at: int, look_up: LookUp) -> list[Expected]:
        other = dialogue.model_copy(update={"scenario": f"Not: {dialogue.scenario or ''}"})
        purpose = f"{StageName.PERSONA}."
        return [
            replace(
                call,
                request=replace(
                    call.request, purpose=purpose + call.request.purpose.partition(".")[2]
                ),
            )
            for call in judged.expects(other, at, look_up)
        ]

    return replace(judged, name=StageName.PERSONA, run=run, expects=expected)


def as_asked(config: RubricConfig, mode: ScoringMode | None) -> RubricConfig:
    """Return the config as the judge is asked: its mode resolved, without what is done to its answers later."""
    update: dict[str, Any] = {"mode": mode, "calibration": None}
    if config.calibration is not None and config.on_mismatch == "reject":
        update["on_mismatch"] = "use_rule"  # the calibrated levels decide what is rejected
    return config.model_copy(update=update)


def calibrate_judge(
    config: RubricConfig, identity: JudgeIdentity, rows_fingerprint: str
) -> Calibrated[Judged] | None:
    """Return the calibration of a judge's rows; None where the config has no levels.

    Raises:
        UsageError: the calibration is for another judge.
    """
    calibration = config.calibration
    if calibration is None:
        return None
    check_judge(calibration, identity)
    if not calibration.levels:
        return None
    named = calibrated_identity(calibration.levels, identity)
    reject = config.on_mismatch == "reject"

    def apply(row: Judged) -> Judged:
        if isinstance(row, Unscored):
            return row
        return with_levels(row, calibration.levels, named, reject_mismatch=reject)

    marks = (named.model_dump(mode="json"), reject, stage_code("judging"))
    return Calibrated(apply, named, fingerprint(rows_fingerprint, *marks))


def adherence_stage(config: AdherenceConfig, engine: Described) -> Stage[Scored]:
    """Return the stage of role adherence on one engine; falls back to binary mode with a warning where needed."""
    resolved, identity, warnings = settle_adherence(config, engine)

    async def run(item: WorkItem, asks: Asks) -> Scored:
        ask = asks_about(item.dialogue, asks.judge)
        return await score_adherence(item.dialogue, ask, resolved, identity)

    rows_fingerprint = stage_fingerprint(
        "adherence", resolved.model_dump(mode="json", exclude={"reference"}), identity
    )
    if config.include_reason:
        rows_fingerprint = fingerprint(rows_fingerprint, REASON_VERSION)
    warning = "\n".join(warnings) or None
    expected = calls_as_it_runs(run)
    return Stage(StageName.ADHERENCE, rows_fingerprint, identity, run, expected, warning=warning)


def settle_adherence(
    config: AdherenceConfig, engine: Described
) -> tuple[AdherenceConfig, JudgeIdentity, list[str]]:
    """Return the config as an engine supports it, the identity of the scores, and warnings for the user."""
    mode, fallback = resolve_output_mode(config, engine.capabilities)
    resolved = config.model_copy(update={"output_mode": mode})
    plain = identity_of(engine.identity, mode, adherence_prompts(resolved))
    # Other options that change a score but are not in its record; left out where they are the defaults.
    prefix = config.answer_prefix if Capability.PREFILL in engine.capabilities else None
    options = {"answer_prefix": prefix, "show_reasoning": config.show_reasoning}
    sampling = plain.sampling | {key: value for key, value in options.items() if value}
    resolved, identity, ignored = settle_calibration(
        resolved, plain.model_copy(update={"sampling": sampling})
    )
    return resolved, identity, [text for text in (fallback, ignored) if text]


def metrics_stage(config: MetricsConfig, engine: Described) -> Stage[Measured]:
    """Return the stage of the weighted metrics on one engine."""
    mode = scoring_mode(config.mode, engine.capabilities, "metrics")
    resolved = config.model_copy(update={"mode": mode, "calibration": None})
    identity = identity_of(engine.identity, mode, metrics_prompts(resolved))

    async def run(item: WorkItem, asks: Asks) -> Measured:
        ask = asks_about(item.dialogue, asks.metrics)
        return await score_metrics(item.dialogue, ask, resolved, identity)

    options = resolved.model_dump(mode="json", exclude={"calibration"})
    rows_fingerprint = stage_fingerprint("judging", options, identity)
    return Stage(
        StageName.METRICS,
        rows_fingerprint,
        identity,
        run,
        calls_as_it_runs(run, "metrics"),
        mode=mode,
        calibrated=calibrate_metrics(config, identity, rows_fingerprint),
    )


def calibrate_metrics(
    config: MetricsConfig, identity: JudgeIdentity, rows_fingerprint: str
) -> Calibrated[Measured] | None:
    """Return the calibration of rows of metrics, as `calibrate_judge` does for the rubric's."""
    fitted = config.calibration.metrics if config.calibration else None
    if fitted is None:
        return None
    check_metric_judge(fitted, identity)
    if not fitted.levels:
        return None
    named = calibrated_identity(fitted.levels, identity)

    def apply(row: Measured) -> Measured:
        return row if isinstance(row, Unscored) else with_metric_levels(row, fitted.levels, named)

    marks = (named.model_dump(mode="json"), stage_code("judging"))
    return Calibrated(apply, named, fingerprint(rows_fingerprint, *marks))


def factuality_stage(config: FactualityConfig, engine: Described) -> Stage[Checked]:
    """Return the stage of factual claims on one engine, with one JSON reply per turn."""
    identity = identity_of(engine.identity, "json", factuality_prompts())

    async def run(item: WorkItem, asks: Asks) -> Checked:
        ask = asks_about(item.dialogue, asks.judge)
        return await score_factuality(item.dialogue, ask, config, identity)

    rows_fingerprint = stage_fingerprint("judging", config.model_dump(mode="json"), identity)
    return Stage(StageName.FACTUALITY, rows_fingerprint, identity, run, calls_as_it_runs(run))


def reference_stage(
    config: AdherenceConfig,
    dialogues: Callable[[], Iterable[Dialogue]],
    store: Path | None = None,
) -> Stage[Scored]:
    """Return the stage of role adherence by comparison with references: no model calls; fitted on all dialogues first.

    Args:
        config: with a `scoring_method` other than `llm_judge`.
        dialogues: returns all dialogues of the run each time it is called.
        store: file for embeddings; None keeps them in memory.
    """
    scorer = ReferenceScorer(config, dialogues, store)

    async def run(item: WorkItem, _: Asks) -> Scored:
        return scorer.score(item.dialogue)

    rows_fingerprint = stage_fingerprint(
        "adherence", scorer.config.model_dump(mode="json"), scorer.identity
    )
    return Stage(
        StageName.ADHERENCE,
        rows_fingerprint,
        scorer.identity,
        run,
        lambda *_: [],
        warning=scorer.warning,
    )
