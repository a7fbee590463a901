"""Stages scored by several judges: a jury, or a cascade of two."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

from curate.adherence.config import AdherenceConfig, settle_calibration
from curate.adherence.joint_score import combine_scores
from curate.dialogue import Dialogue
from curate.engines.model_pool import Asks, Described, ModelsByRole
from curate.engines.stand_in import Expected, LookUp, StandIn, settled
from curate.errors import UsageError
from curate.judging.cascade import CascadeRule, check_cascade, judge_by_cascade
from curate.judging.config import (
    DimensionName,
    RubricConfig,
)
from curate.judging.jury import combine, combine_metrics
from curate.judging.metrics import MetricsConfig
from curate.judging.opinions import Juror, Metered, MeteredRecord, OpinionRecord, together
from curate.recipe import judge_roles
from curate.records import (
    JudgeIdentity,
    Unscored,
)
from curate.records.several_judges import JuryRule
from curate.stages.scoring_stages import (
    adherence_stage,
    calibrate_judge,
    calibrate_metrics,
    judge_stage,
    metrics_stage,
)
from curate.stages.stage import (
    Calibrated,
    Judged,
    Measured,
    R,
    Scored,
    Stage,
    WorkItem,
    label_of,
    past_kept_replies,
)
from curate.storage.stage_rows import fingerprint


def scorers(models: ModelsByRole, cascade: CascadeRule | None) -> Sequence[Described]:
    """Return the models that score everything but the rubric: all judges of a jury, or the large one of a cascade.

    A cascade's threshold is fitted to the small judge's doubt about rubric scores, not about other scores.
    """
    return (models.judge,) if cascade is not None else models.judges


def rubric_stage(
    config: RubricConfig, engines: Sequence[Described], cascade: CascadeRule | None = None
) -> Stage[Judged]:
    """Return the stage of the rubric judge: one judge, a jury of several, or a cascade of two.

    Args:
        config: its calibration applies to the combined judgments.
        cascade: how two judges divide the dialogues; without it several judges form a jury.

    Raises:
        UsageError: as `judge_stage`; two judges are the same; a cascade's first judge has no readings, or its fit is
            for other judges.
    """
    if len(engines) == 1:
        return judge_stage(config, engines[0])
    alone = [judge_stage(config.model_copy(update={"calibration": None}), one) for one in engines]
    judges = tuple(stage.identity for stage in alone)
    if cascade is None:
        rules = {name: config.jury_rules[name] for name in get_args(DimensionName)}
        rule: Any = rules if len({*rules.values()}) > 1 else config.jury_rules["helpfulness"]
        least = config.min_scored_share
        labels = _labels(engines)
        return _by_jury(
            alone,
            engines,
            _joint_identity("jury", judges, {"rule": rule}),
            lambda rows: combine(rows, rules, labels, least),
            partial(calibrate_judge, config),
        )
    rule_of_cascade = {"doubt": cascade.asked_doubt, "threshold": cascade.highest_sure}
    identity = _joint_identity("cascade", judges, rule_of_cascade)

    async def by_cascade(item: WorkItem, asks: Asks) -> Judged:
        small, large = _jurors(alone, engines, item, asks)
        content_hash = item.dialogue.content_hash
        return await judge_by_cascade(small, large, cascade, identity, content_hash=content_hash)

    check_cascade(cascade, alone[0].mode, config.samples, judges)
    options = cascade.model_dump(mode="json", include={"check"})
    return _joint_stage(
        alone,
        identity,
        by_cascade,
        options,
        partial(calibrate_judge, config),
        shares=(1.0, cascade.expected_share),
    )


def _by_jury(
    alone: Sequence[Stage[OpinionRecord | Unscored]],
    engines: Sequence[Described],
    identity: JudgeIdentity,
    combined: Callable[[Sequence[OpinionRecord]], OpinionRecord | Unscored],
    calibrate: Callable[[JudgeIdentity, str], Calibrated[OpinionRecord | Unscored] | None],
) -> Stage[OpinionRecord | Unscored]:
    """Return a stage in which each judge makes a row of its own, and the rows are combined into one."""

    async def run(item: WorkItem, asks: Asks) -> OpinionRecord | Unscored:
        jurors = _jurors(alone, engines, item, asks)
        return together([await juror() for juror in jurors], combined, identity)

    return _joint_stage(alone, identity, run, {}, calibrate)


def _joint_stage(
    alone: Sequence[Stage[R]],
    identity: JudgeIdentity,
    run: Callable[[WorkItem, Asks], Awaitable[R]],
    options: Mapping[str, Any],
    calibrate: Callable[[JudgeIdentity, str], Calibrated[R] | None],
    shares: Sequence[float] = (),
) -> Stage[R]:
    """Return the stage of several judges.

    Args:
        options: what else its rows depend on.
        shares: for a cascade, the share of the dialogues (0-1) that each judge is asked about; empty: all.
    """
    if len({stage.fingerprint for stage in alone}) < len(alone):
        models = ", ".join(stage.identity.model for stage in alone)
        raise UsageError(
            "two of the judges are the same model",
            got=models,
            expected="different models, or one judge",
        )
    roles = judge_roles(len(alone), is_cascade=bool(shares))

    def expected(dialogue: Dialogue, _: int, look_up: LookUp) -> list[Expected]:
        calls: list[Expected] = []
        for role, stage, share in zip(roles, alone, shares or [1.0] * len(alone), strict=True):
            stand_in = StandIn(role, look_up, calls, share=share)
            settled(stage.run(WorkItem(dialogue), Asks.of(stand_in)))
        return calls

    fingerprints = [stage.fingerprint for stage in alone]
    rows_fingerprint = fingerprint(fingerprints, identity.model_dump(mode="json"), dict(options))
    warning = "\n".join(dict.fromkeys(stage.warning for stage in alone if stage.warning))
    return Stage(
        alone[0].name,
        rows_fingerprint,
        identity,
        run,
        expected,
        mode=alone[0].mode,
        warning=warning or None,
        calibrated=calibrate(identity, rows_fingerprint),
        judges=tuple(stage.identity for stage in alone),
    )


def _labels(engines: Sequence[Described]) -> list[str]:
    return [label_of(engine.identity) for engine in engines]


def _jurors(
    alone: Sequence[Stage[Any]], engines: Sequence[Described], item: WorkItem, asks: Asks
) -> list[Juror[Any]]:
    return [
        partial(_hear, label, stage, item, asks.of_judge(index))
        for index, (label, stage) in enumerate(zip(_labels(engines), alone, strict=True))
    ]


async def _hear(label: str, stage: Stage[Any], item: WorkItem, asks: Asks) -> MeteredRecord[Any]:
    """Return one judge's record; if the item is to be asked again, only what this judge failed at is."""
    metered = Metered(asks.judge)
    row = await stage.run(replace(item, again=False), replace(asks, judge=metered, metrics=metered))
    missing = frozenset() if isinstance(row, Unscored) else row.missing_turns
    if not item.again or not (isinstance(row, Unscored) or missing):
        return MeteredRecord(label, row, metered)
    again = past_kept_replies(replace(item, turns=missing), asks)
    metered = Metered(again.judge)
    row = await stage.run(item, replace(again, judge=metered, metrics=metered))
    return MeteredRecord(label, row, metered)


def _joint_identity(
    engine: Literal["jury", "cascade"], judges: Sequence[JudgeIdentity], rule: Mapping[str, Any]
) -> JudgeIdentity:
    """Return the identity of scores combined from several judges."""
    return JudgeIdentity(
        engine=engine,
        model=(" + " if engine == "jury" else " > ").join(judge.model for judge in judges),
        revision=" ".join(judge.revision for judge in judges if judge.revision),
        quantisation=" ".join(judge.quantisation for judge in judges if judge.quantisation),
        mode="+".join(dict.fromkeys(judge.mode for judge in judges)),
        prompt_version=" ".join(dict.fromkeys(judge.prompt_version for judge in judges)),
        sampling={**rule, "judges": [judge.model_dump(mode="json") for judge in judges]},
    )


def adherence_by(
    config: AdherenceConfig, engines: Sequence[Described], rule: JuryRule = "median"
) -> Stage[Scored]:
    """Return the stage of role adherence by one judge or a jury; falls back to binary mode with a warning where needed.

    Args:
        config: its calibration applies to the combined scores.
    """
    if len(engines) == 1:
        return adherence_stage(config, engines[0])
    alone = [adherence_stage(config.model_copy(update={"calibration": None}), e) for e in engines]
    joint, identity, ignored = joint_adherence(config, alone, rule)
    stage: Stage[Scored] = _by_jury(
        alone, engines, identity, lambda rows: combine_scores(rows, rule, joint), lambda *_: None
    )
    return replace(stage, warning="\n".join(filter(None, (stage.warning, ignored))) or None)


def joint_adherence(
    config: AdherenceConfig, alone: Sequence[Stage[Scored]], rule: JuryRule
) -> tuple[AdherenceConfig, JudgeIdentity, str | None]:
    """Return a jury's config (without a calibration that does not fit), its identity, and a warning or None."""
    judges = [stage.identity for stage in alone]
    is_binary = rule != "vote" and all(judge.mode == "binary" for judge in judges)
    joint = config.model_copy(update={"output_mode": "binary" if is_binary else "continuous"})
    return settle_calibration(joint, _joint_identity("jury", judges, {"rule": rule}))


def metrics_by(
    config: MetricsConfig, engines: Sequence[Described], rule: JuryRule = "median"
) -> Stage[Measured]:
    """Return the stage of the weighted metrics by one judge or a jury.

    A calibration does not change what is asked: the judges' own rows are the same with and without it.

    Raises:
        UsageError: a mode that an engine does not support, or a calibration for another judge.
    """
    if len(engines) == 1:
        return metrics_stage(config, engines[0])
    alone = [metrics_stage(config.model_copy(update={"calibration": None}), e) for e in engines]
    identity = _joint_identity("jury", [stage.identity for stage in alone], {"rule": rule})
    calibrate = partial(calibrate_metrics, config)
    return _by_jury(alone, engines, identity, lambda rows: combine_metrics(rows, rule), calibrate)
