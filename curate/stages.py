"""The stages that make rows: the one place that binds a recipe, its models and the functions of the rooms.

A stage is settled once (which mode an engine can serve, who scores, the fingerprint of what comes of it) and then
run by any executor, here or in a worker that has bound the same stage to engines of its own. Rooms do not import
each other, so what a fork needs of the judge is handed to it here.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import compress
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from curate.adherence.adherence_prompts import REASON_VERSION
from curate.adherence.adherence_prompts import prompt_version as adherence_prompts
from curate.adherence.calibration_match import settle_calibration
from curate.adherence.config import AdherenceConfig, resolve_output_mode
from curate.adherence.llm import score_adherence
from curate.adherence.reference.scorer import ReferenceScorer
from curate.adherence.turn_adherence import score_turn as score_role_of_turn
from curate.dialogue import Dialogue, Message
from curate.engines.base import Ask, Capability, Completion, EngineIdentity, Request
from curate.engines.pool import Asks, Described, ModelPool, ModelsByRole
from curate.engines.stand_in import Expected, LookUp, StandIn, nothing_kept, settled
from curate.errors import CurateError, EngineError, UsageError
from curate.judging.calibrated_levels import (
    calibrated_identity,
    check_adherence,
    check_good_metrics,
    check_judge,
    with_levels,
)
from curate.judging.cascade import CascadeRule, check_cascade, judge_by_cascade
from curate.judging.config import RubricConfig, reading_options, resolve_mode, scoring_mode
from curate.judging.factuality import FactualityConfig, claims_of_turn, score_factuality
from curate.judging.factuality import prompt_version as factuality_prompts
from curate.judging.jury import combine
from curate.judging.metrics import MetricsConfig, score_metrics
from curate.judging.metrics import prompt_version as metrics_prompts
from curate.judging.metrics.metric_levels import (
    calibrated_metrics_identity,
    check_metric_judge,
    with_metric_levels,
)
from curate.judging.opinions import Juror, Metered
from curate.judging.rubric import describe_issue, judge_dialogue, prompt_version, score_turn
from curate.pairs.asks import ForkAsks, JudgeAsks
from curate.pairs.config import ForkConfig, NaturalConfig, VerifyConfig
from curate.pairs.expected import ask_as_a_fork, ask_as_a_verification, with_a_bad_turn
from curate.pairs.fork import fork_dialogue
from curate.pairs.natural import verify_natural
from curate.pairs.pair_prompts import PROMPT_VERSION as FORK_PROMPTS
from curate.pairs.prefix import pair_id, with_messages
from curate.recipe import Recipe, judge_roles
from curate.records import (
    AdherenceScore,
    AdherenceTurn,
    CutPoints,
    FactualityScore,
    JudgeIdentity,
    Judgment,
    MetricsScore,
    PairCheck,
    PreferencePair,
    ScoringMode,
    StageName,
    TurnClaims,
    TurnReading,
    Unscored,
    UnscoredReason,
)
from curate.records.calibration_file import OtherJudge, described
from curate.storage.files import disk_error
from curate.storage.stage_rows import fingerprint

R = TypeVar("R")

Scored = AdherenceScore | Unscored
Judged = Judgment | Unscored
Measured = MetricsScore | Unscored
Checked = FactualityScore | Unscored
Forks = list[PreferencePair]
Row = Judged | Scored | Measured | Checked | PreferencePair | Forks

_FULL = (errno.ENOSPC, errno.EDQUOT)
_DETAIL_CHARS = 500


@dataclass(frozen=True, slots=True)
class WorkItem:
    """What a row is made of; it pickles.

    Attributes:
        dialogue: which the row is about.
        judgment: of that dialogue; needed by `fork`, nothing else reads it.
        faults: by turn what poor metrics found; read by `fork` alone.
        pair: to be verified, the dialogue being its prompt; needed by `natural`, nothing else reads it.
        again: the judge's kept replies about this dialogue could not be used, ask anew.
        turns: the turns that `again` is said of, the replies about the others being kept; empty: all.
    """

    dialogue: Dialogue
    judgment: Judgment | None = None
    faults: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    again: bool = False
    turns: frozenset[int] = frozenset()
    pair: PreferencePair | None = None

    @property
    def key(self) -> str:
        """What the row is kept by: 32 hex digits."""
        return self.dialogue.content_hash if self.pair is None else self.pair.pair_id


@dataclass(frozen=True, slots=True)
class Calibrated(Generic[R]):
    """What a calibration makes of a stage's rows once they are there; no model calls.

    Attributes:
        apply: the judge's own row in, the calibrated one out.
        identity: stands in the calibrated rows.
        fingerprint: names the folder of the calibrated rows.
    """

    apply: Callable[[R], R]
    identity: JudgeIdentity
    fingerprint: str


Expects = Callable[[Dialogue, int, LookUp], list[Expected]]


@dataclass(frozen=True, slots=True)
class Stage(Generic[R]):
    """A stage ready to run.

    Attributes:
        name: which stage.
        fingerprint: names the folder of its rows; changes with whatever would change a row.
        identity: who scores, and how.
        run: makes the row of an item; the asks decide about kept replies and retries.
        expects: as `expected_load`.
        mode: the resolved scoring mode, of the rubric judge and of metrics.
        warning: something the user must hear, once.
        calibrated: what is made of its rows before anything reads them; None where they stay.
        judges: who scores, of a jury or a cascade; empty where it is one judge.
    """

    name: StageName
    fingerprint: str
    identity: JudgeIdentity
    run: Callable[[WorkItem, Asks], Awaitable[R]]
    expects: Expects
    mode: ScoringMode | None = None
    warning: str | None = None
    calibrated: Calibrated[R] | None = None
    judges: tuple[JudgeIdentity, ...] = ()

    def expected_load(
        self, dialogue: Dialogue, *, at: int = 0, look_up: LookUp = nothing_kept
    ) -> list[Expected]:
        """The calls that a dialogue's row is expected to take, in order; pure, no model calls.

        Of `fork` those of a fork that gives a pair; of `natural` those of a pair that passes, its chosen side like
        the dialogue's last answer.

        Args:
            dialogue: what the row is about.
            at: counts round the turns to fork at.
            look_up: answers of `judge` and `adherence` that need no call.
        """
        return self.expects(dialogue, at, look_up)

    @property
    def result(self) -> str:
        """Fingerprint of the rows that others read."""
        return self.fingerprint if self.calibrated is None else self.calibrated.fingerprint


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a recipe that ask models; None where it leaves one out."""

    judge: Stage[Judged] | None = None
    persona: Stage[Judged] | None = None
    adherence: Stage[Scored] | None = None
    metrics: Stage[Measured] | None = None
    factuality: Stage[Checked] | None = None
    fork: Stage[Forks] | None = None
    natural: Stage[PreferencePair] | None = None

    def __iter__(self) -> Iterator[Stage[Any]]:
        """Those there are, in the order of a run."""
        scoring = (self.judge, self.persona, self.adherence, self.metrics, self.factuality)
        return filter(None, (*scoring, self.fork, self.natural))

    def of(self, name: StageName, fingerprint: str) -> Stage[Any]:
        """The stage of a name, as it was bound elsewhere.

        Args:
            name: of a stage that the recipe has.
            fingerprint: of that stage there.

        Raises:
            EngineError: it has another one here.
        """
        stage = {stage.name: stage for stage in self}[name]
        if stage.fingerprint != fingerprint:
            raise EngineError(
                f"the stage '{name}' of a worker is not the run's; their rows would not compare",
                got=stage.fingerprint,
                expected=fingerprint,
                fix="put the same version of curate and the same models on every machine",
            )
        return stage


def bind_stages(recipe: Recipe, models: ModelsByRole) -> Stages:
    """The stages of a recipe on its models, or on what is known of models that are open elsewhere.

    Raises:
        UsageError: an engine cannot serve what the recipe asks of it, or a calibration or a curve is another judge's.
    """
    judge, adherence, cascade = recipe.judge, recipe.judged_adherence, recipe.models.cascade
    judged = rubric_stage(judge, models.judges, cascade) if judge else None
    persona = None
    if judge and judge.persona_check:
        persona = persona_stage(rubric_stage(_wordless(judge), models.judges, cascade))
    if judge and judged is not None and judged.judges:
        judge = judge.model_copy(update={"calibration": None})  # which is not the lead judge's
    scored = adherence_stage(adherence, models.judge) if adherence else None
    if recipe.judge:
        check_adherence(recipe.judge.calibration, scored.identity if scored else None)
    measured = metrics_stage(recipe.metrics, models.metrics) if recipe.metrics else None
    if recipe.judge:
        check_good_metrics(recipe.judge.calibration, measured.identity if measured else None)
    checked = factuality_stage(recipe.factuality, models.judge) if recipe.factuality else None
    forked = verified = None
    if recipe.fork and judge and judged is not None:
        forked = fork_stage(
            recipe.fork, judge, judged, models, adherence, measured, recipe.factuality, cascade
        )
    if recipe.natural.verification is not None:
        verified = natural_stage(recipe.natural, judge, models.judge, adherence)
    return Stages(judged, persona, scored, measured, checked, forked, verified)


async def make_row(stage: Stage[Any], item: WorkItem, asks: Asks) -> Row:
    """The row of an item; where a bug keeps it from being made, an unscored one that says so.

    A bug costs one dialogue, not the run, and its row is owed again by the next run (`staging.is_settled`).

    Raises:
        CurateError: what ends a run, such as a budget, a model that cannot be reached or a full disk.
    """
    try:
        row: Row = await stage.run(item, _past_kept_replies(item, asks))
        return row
    except CurateError:
        raise
    except Exception as error:  # broad on purpose
        if isinstance(error, OSError) and error.errno in _FULL:
            raise disk_error(Path(error.filename or "."), error) from error
        return _unmade(stage.name, item, f"{type(error).__name__}: {error}"[:_DETAIL_CHARS])


def _past_kept_replies(item: WorkItem, asks: Asks) -> Asks:
    """The asks for an item; those of one that is asked again pass over the kept replies that it names."""
    if not item.again:
        return asks
    if not item.turns:
        return replace(asks, judge=asks.judge_again, metrics=asks.metrics_again)

    async def ask(requests: Sequence[Request]) -> list[Completion]:
        is_again = [not item.turns.isdisjoint(request.turns) for request in requests]
        answers: dict[bool, Iterator[Completion]] = {}
        for again, judge in ((False, asks.judge), (True, asks.judge_again)):
            if again in is_again:
                asked = compress(requests, (one == again for one in is_again))
                answers[again] = iter(await judge(list(asked)))
        return [next(answers[again]) for again in is_again]

    return replace(asks, judge=ask)


def _unmade(stage: StageName, item: WorkItem, detail: str) -> Row:
    check = PairCheck(unscored=UnscoredReason.INTERNAL_ERROR)
    if item.pair is not None:
        detail = f"{item.pair.detail}; {UnscoredReason.INTERNAL_ERROR}: {detail}".removeprefix("; ")
        changed = {"drop_reason": "unscored", "detail": detail, "check": check}
        return item.pair.model_copy(update=changed)
    dialogue = item.dialogue
    if stage is not StageName.FORK:
        return Unscored(
            dialogue_id=dialogue.id,
            content_hash=dialogue.content_hash,
            stage=stage,
            reason=UnscoredReason.INTERNAL_ERROR,
            detail=detail,
        )
    rejected = Message(role="assistant")
    salt = f"{dialogue.id}/{dialogue.content_hash}/{UnscoredReason.INTERNAL_ERROR}"
    return [
        PreferencePair(
            pair_id=pair_id((), dialogue.tools, None, rejected, salt=salt),
            dialogue_id=dialogue.id,
            content_hash=dialogue.content_hash,
            source="none",
            basis="judge",
            turn=item.judgment.weakest_turn if item.judgment else None,
            prompt=(),
            tools=dialogue.tools,
            chosen=None,
            rejected=rejected,
            drop_reason="unscored",
            detail=f"{UnscoredReason.INTERNAL_ERROR}: {detail}",
            check=check,
            lineage=dialogue.lineage,
        )
    ]


def model_pool(recipe: Recipe) -> ModelPool:
    """The models that a recipe names; the policy's and the reviser's only where it forks, that of metrics where it
    has some.

    Raises:
        UsageError: no judge is named.
    """
    models = recipe.models
    lead = models.lead
    if lead is None:
        raise UsageError("no judge is named", expected="models.judge")
    writers = (models.policy, models.reviser) if recipe.fork else ()
    measuring = models.metrics if recipe.metrics else None
    return ModelPool(
        lead, *writers, metrics=measuring, judges=models.judges_by_role, redact=recipe.redact
    )


def judge_stage(config: RubricConfig, engine: Described) -> Stage[Judged]:
    """The multi-turn rubric judge on an engine.

    A calibration is no part of what is asked: the judge's own rows are the same with and without it.

    Raises:
        UsageError: a mode that the engine cannot serve, or a calibration of another judge.
    """
    mode = resolve_mode(config, engine.capabilities)
    resolved = _asked(config, mode)
    plain = _identity(engine.identity, mode, prompt_version(resolved))
    identity = plain.model_copy(
        update={"sampling": plain.sampling | reading_options(resolved, mode)}
    )

    async def run(item: WorkItem, asks: Asks) -> Judged:
        ask = _about(item.dialogue, asks.judge)
        return await judge_dialogue(item.dialogue, ask, resolved, identity)

    asked = resolved.model_dump(mode="json", exclude={"calibration", "persona_check", "jury"})
    rows_fingerprint = _fingerprint("judging", asked, identity)
    return Stage(
        StageName.JUDGE,
        rows_fingerprint,
        identity,
        run,
        _as_it_runs(run),
        mode=mode,
        calibrated=calibrate_judge(config, identity, rows_fingerprint),
    )


def rubric_stage(
    config: RubricConfig, engines: Sequence[Described], cascade: CascadeRule | None = None
) -> Stage[Judged]:
    """The multi-turn rubric judge: one, a jury of several, or a cascade of two.

    Args:
        config: calibrations are of the judgments that all of them come to.
        engines: of all judges.
        cascade: how two of them divide the dialogues; without it several are a jury.

    Raises:
        UsageError: as `judge_stage`; two judges are the same; a cascade's first judge has no readings, or its fit
            is of other judges.
    """
    if len(engines) == 1:
        return judge_stage(config, engines[0])
    alone = [judge_stage(config.model_copy(update={"calibration": None}), one) for one in engines]
    labels = [_label(engine.identity) for engine in engines]
    judges = tuple(stage.identity for stage in alone)
    if len({stage.fingerprint for stage in alone}) < len(alone):
        raise UsageError("two of several judges are the same model", got=", ".join(labels))
    identity = _joint_identity(config, judges, cascade)

    def jurors(item: WorkItem, asks: Asks) -> list[Juror]:
        return [
            Juror(label, partial(_hear, stage, item, asks.of_judge(index)))
            for index, (label, stage) in enumerate(zip(labels, alone, strict=True))
        ]

    async def by_jury(item: WorkItem, asks: Asks) -> Judged:
        heard = [await juror.hear() for juror in jurors(item, asks)]
        least = config.min_scored_share
        return combine(heard, config.jury_rules, identity, min_scored_share=least)

    async def by_cascade(item: WorkItem, asks: Asks) -> Judged:
        small, large = jurors(item, asks)
        if cascade is None:
            raise ValueError("no cascade")
        content_hash = item.dialogue.content_hash
        return await judge_by_cascade(small, large, cascade, identity, content_hash=content_hash)

    if cascade is not None:
        check_cascade(cascade, alone[0].mode, config.samples, judges)
    shares = [1.0] * len(alone) if cascade is None else [1.0, cascade.expected_share]
    roles = judge_roles(len(alone), is_cascade=cascade is not None)

    def expected(dialogue: Dialogue, _: int, look_up: LookUp) -> list[Expected]:
        calls: list[Expected] = []
        for role, stage, share in zip(roles, alone, shares, strict=True):
            stand_in = StandIn(role, look_up, calls, share=share)
            settled(stage.run(WorkItem(dialogue), Asks.of(stand_in)))
        return calls

    options = {} if cascade is None else cascade.model_dump(mode="json", include={"check"})
    rows_fingerprint = fingerprint(
        [stage.fingerprint for stage in alone], identity.model_dump(mode="json"), options
    )
    return Stage(
        StageName.JUDGE,
        rows_fingerprint,
        identity,
        by_jury if cascade is None else by_cascade,
        expected,
        mode=alone[0].mode,
        calibrated=calibrate_judge(config, identity, rows_fingerprint),
        judges=judges,
    )


async def _hear(stage: Stage[Judged], item: WorkItem, asks: Asks) -> tuple[Judged, Metered]:
    """One of several judges' record; what it failed at is asked for again where the item is, and nothing else."""
    used = Metered(asks.judge)
    row = await stage.run(replace(item, again=False), replace(asks, judge=used))
    missing = frozenset() if isinstance(row, Unscored) else row.missing_turns
    if not item.again or not (isinstance(row, Unscored) or missing):
        return row, used
    again = _past_kept_replies(replace(item, turns=missing), asks)
    used = Metered(again.judge)
    return await stage.run(item, replace(again, judge=used)), used


def _joint_identity(
    config: RubricConfig, judges: Sequence[JudgeIdentity], cascade: CascadeRule | None
) -> JudgeIdentity:
    """The identity of scores that several judges come to: of all of them, and of how they become one."""
    rules = config.jury_rules
    how: dict[str, Any] = {"rule": rules if len({*rules.values()}) > 1 else rules["helpfulness"]}
    if cascade is not None:
        how = {"doubt": cascade.asked_doubt, "threshold": cascade.highest_sure}
    return JudgeIdentity(
        engine="jury" if cascade is None else "cascade",
        model=(" + " if cascade is None else " > ").join(judge.model for judge in judges),
        revision=" ".join(judge.revision for judge in judges if judge.revision),
        quantisation=" ".join(judge.quantisation for judge in judges if judge.quantisation),
        mode="+".join(dict.fromkeys(judge.mode for judge in judges)),
        prompt_version=" ".join(dict.fromkeys(judge.prompt_version for judge in judges)),
        sampling={**how, "judges": [judge.model_dump(mode="json") for judge in judges]},
    )


def _wordless(config: RubricConfig) -> RubricConfig:
    """The rubric judge for its scores alone: no words, no calibration."""
    return config.model_copy(update={"text": "off", "calibration": None})


def persona_stage(judged: Stage[Judged]) -> Stage[Judged]:
    """The rubric judge on dialogues that have been given another one's scenario; `judged` asks for no words."""

    async def run(item: WorkItem, asks: Asks) -> Judged:
        def mark(ask: Ask) -> Ask:
            return _about(item.dialogue, ask, stage=StageName.PERSONA)

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


def _as_it_runs(run: Callable[[WorkItem, Asks], Awaitable[object]], role: str = "judge") -> Expects:
    """The calls of a stage that asks one model, the same whatever is answered."""

    def expected(dialogue: Dialogue, _: int, look_up: LookUp) -> list[Expected]:
        stand_in = StandIn(role, look_up=look_up)
        settled(run(WorkItem(dialogue), Asks.of(stand_in)))
        return stand_in.asked

    return expected


def _asked(config: RubricConfig, mode: ScoringMode | None) -> RubricConfig:
    """The config as the judge is asked by: its mode resolved, and nothing that is done to its answers later."""
    update: dict[str, Any] = {"mode": mode, "calibration": None}
    if config.calibration is not None and config.on_mismatch == "reject":
        update["on_mismatch"] = "use_rule"  # what is rejected follows from the levels
    return config.model_copy(update=update)


def calibrate_judge(
    config: RubricConfig, identity: JudgeIdentity, rows_fingerprint: str
) -> Calibrated[Judged] | None:
    """What the config's calibration makes of rows by a judge; None where it has no levels.

    Args:
        config: of the recipe.
        identity: the judge's own.
        rows_fingerprint: fingerprint of its rows.

    Raises:
        UsageError: the calibration is of another judge.
    """
    calibration = config.calibration
    if calibration is None:
        return None
    check_judge(calibration, identity)
    if not calibration.levels:
        return None
    named = calibrated_identity(calibration, identity)
    reject = config.on_mismatch == "reject"

    def apply(row: Judged) -> Judged:
        if isinstance(row, Unscored):
            return row
        return with_levels(row, calibration.levels, named, reject_mismatch=reject)

    marks = (named.model_dump(mode="json"), reject, code_version("curate.judging"))
    return Calibrated(apply, named, fingerprint(rows_fingerprint, *marks))


def adherence_stage(config: AdherenceConfig, engine: Described) -> Stage[Scored]:
    """Role adherence on an engine; falls back to binary with a warning where it must."""
    resolved, identity, warnings = _settle_adherence(config, engine)

    async def run(item: WorkItem, asks: Asks) -> Scored:
        ask = _about(item.dialogue, asks.judge)
        return await score_adherence(item.dialogue, ask, resolved, identity)

    rows_fingerprint = _fingerprint(
        "adherence", resolved.model_dump(mode="json", exclude={"reference"}), identity
    )
    if config.include_reason:
        rows_fingerprint = fingerprint(rows_fingerprint, REASON_VERSION)
    warning = "\n".join(warnings) or None
    expected = _as_it_runs(run)
    return Stage(StageName.ADHERENCE, rows_fingerprint, identity, run, expected, warning=warning)


def _settle_adherence(
    config: AdherenceConfig, engine: Described
) -> tuple[AdherenceConfig, JudgeIdentity, list[str]]:
    """The config as an engine can serve it, who then scores, and what the user must hear of it."""
    mode, fallback = resolve_output_mode(config, engine.capabilities)
    resolved = config.model_copy(update={"output_mode": mode})
    plain = _identity(engine.identity, mode, adherence_prompts(resolved))
    # What else changes a score and is no part of its record; left out where it is the default.
    prefix = config.answer_prefix if Capability.PREFILL in engine.capabilities else None
    asked = {"answer_prefix": prefix, "show_reasoning": config.show_reasoning}
    told = plain.sampling | {key: value for key, value in asked.items() if value}
    resolved, identity, ignored = settle_calibration(
        resolved, plain.model_copy(update={"sampling": told})
    )
    return resolved, identity, [text for text in (fallback, ignored) if text]


def metrics_stage(config: MetricsConfig, engine: Described) -> Stage[Measured]:
    """The weighted metrics on an engine.

    A calibration is no part of what is asked: the judge's own rows are the same with and without it.

    Raises:
        UsageError: a mode that the engine cannot serve, or a calibration of another judge.
    """
    mode = scoring_mode(config.mode, engine.capabilities, "metrics")
    resolved = config.model_copy(update={"mode": mode, "calibration": None})
    identity = _identity(engine.identity, mode, metrics_prompts(resolved))

    async def run(item: WorkItem, asks: Asks) -> Measured:
        ask = _about(item.dialogue, asks.metrics)
        return await score_metrics(item.dialogue, ask, resolved, identity)

    asked = resolved.model_dump(mode="json", exclude={"calibration"})
    rows_fingerprint = _fingerprint("judging", asked, identity)
    return Stage(
        StageName.METRICS,
        rows_fingerprint,
        identity,
        run,
        _as_it_runs(run, "metrics"),
        mode=mode,
        calibrated=calibrate_metrics(config, identity, rows_fingerprint),
    )


def calibrate_metrics(
    config: MetricsConfig, identity: JudgeIdentity, rows_fingerprint: str
) -> Calibrated[Measured] | None:
    """What the config's calibration makes of rows of metrics, as `calibrate_judge` does of the rubric's."""
    fitted = config.calibration.metrics if config.calibration else None
    if fitted is None:
        return None
    check_metric_judge(fitted, identity)
    if not fitted.levels:
        return None
    named = calibrated_metrics_identity(fitted, identity)

    def apply(row: Measured) -> Measured:
        return row if isinstance(row, Unscored) else with_metric_levels(row, fitted.levels, named)

    marks = (named.model_dump(mode="json"), code_version("curate.judging"))
    return Calibrated(apply, named, fingerprint(rows_fingerprint, *marks))


def factuality_stage(config: FactualityConfig, engine: Described) -> Stage[Checked]:
    """The claims of assistant turns on an engine, one JSON reply a turn."""
    identity = _identity(engine.identity, "json", factuality_prompts())

    async def run(item: WorkItem, asks: Asks) -> Checked:
        ask = _about(item.dialogue, asks.judge)
        return await score_factuality(item.dialogue, ask, config, identity)

    rows_fingerprint = _fingerprint("judging", config.model_dump(mode="json"), identity)
    return Stage(StageName.FACTUALITY, rows_fingerprint, identity, run, _as_it_runs(run))


def reference_stage(
    config: AdherenceConfig,
    dialogues: Callable[[], Iterable[Dialogue]],
    store: Path | None = None,
) -> Stage[Scored]:
    """Role adherence by comparison with references: no model calls; it is fitted on all dialogues first.

    Args:
        config: with a `scoring_method` other than `llm_judge`.
        dialogues: gives all dialogues of the run each time it is called.
        store: file that keeps embeddings; None keeps them in memory.
    """
    scorer = ReferenceScorer(config, dialogues, store)

    async def run(item: WorkItem, _: Asks) -> Scored:
        return scorer.score(item.dialogue)

    rows_fingerprint = fingerprint(
        _fingerprint("adherence", scorer.config.model_dump(mode="json"), scorer.identity),
        code_version("curate.adherence.reference"),
    )
    return Stage(
        StageName.ADHERENCE,
        rows_fingerprint,
        scorer.identity,
        run,
        lambda *_: [],
        warning=scorer.warning,
    )


def fork_stage(
    config: ForkConfig,
    judging: RubricConfig,
    judged: Stage[Judged],
    models: ModelsByRole,
    adherence: AdherenceConfig | Literal[False] = False,
    measured: Stage[Measured] | None = None,
    facts: FactualityConfig | Literal[False] = False,
    cascade: CascadeRule | None = None,
) -> Stage[Forks]:
    """Forking bound to its judge: of several judges the lead one verifies, all judge a whole dialogue anew.

    `measured` are the metrics of this run, whose poor ones name turns to fork at; `facts` is how it looks at claims,
    of which a chosen side may not have a smaller share that is true.

    `adherence` is how a judge scores role adherence in this run; without it the role is not checked.
    `where` is left out of the fingerprint: a changed condition admits other dialogues and leaves the
    forks that exist as they are.
    """
    lead = judge_stage(judging, models.judge)
    resolved = _asked(judging, lead.mode)
    whole = rubric_stage(_wordless(judging), models.judges, cascade)
    levels = judging.calibration.levels if judging.calibration else {}
    check_curve(config, lead.identity, "fork")
    role = _settle_adherence(adherence, models.judge)[:2] if adherence else None

    def forking(dialogue: Dialogue, asks: Asks) -> ForkAsks:
        judge, policy, reviser = (
            _about(dialogue, ask, stage=StageName.FORK)
            for ask in (asks.judge, asks.policy, asks.reviser)
        )

        async def issue(part: Dialogue, turn: int) -> str:
            return await describe_issue(part, turn, judge, resolved)

        async def rejudge(part: Dialogue) -> Judged:
            def mark(ask: Ask) -> Ask:
                return _about(dialogue, ask, stage=StageName.FORK)

            row = await whole.run(WorkItem(part), asks.with_judges(mark))
            return row if judged.calibrated is None else judged.calibrated.apply(row)

        async def score_facts(part: Dialogue, turn: int) -> TurnClaims | Unscored:
            return await claims_of_turn(part, turn, judge, facts or FactualityConfig())

        verifier = bind_judge(judge, resolved, models.judge, role[0] if role else None, levels)
        return ForkAsks(
            judging=replace(verifier, score_facts=score_facts if facts else None),
            policy=policy,
            reviser=reviser,
            describe_issue=issue,
            rejudge=rejudge,
            policy_id=_label(models.policy.identity),
            reviser_id=_label(models.reviser.identity),
        )

    async def run(item: WorkItem, asks: Asks) -> Forks:
        if item.judgment is None:
            raise ValueError("a fork needs the dialogue's judgment")
        return await fork_dialogue(
            item.dialogue, item.judgment, forking(item.dialogue, asks), config, item.faults
        )

    def expected(dialogue: Dialogue, at: int, _: LookUp) -> list[Expected]:
        found = settled(judged.run(WorkItem(dialogue), Asks.of(StandIn())))
        if isinstance(found, Unscored) or not found.per_turn:
            return []
        calls: list[Expected] = []
        judge, policy, reviser = (
            StandIn(name, asked=calls, gives_last=True) for name in ("judge", "policy", "reviser")
        )
        asks = forking(dialogue, Asks(judge, judge, policy, reviser, judge, judge))
        settled(ask_as_a_fork(dialogue, with_a_bad_turn(found, at, config), asks, config))
        return calls

    rows_fingerprint = fingerprint(
        config.model_dump(mode="json", exclude={"where", "certificate"}),
        judged.result,
        models.policy.identity.key,
        models.reviser.identity.key,
        FORK_PROMPTS,
        code_version("curate.pairs"),
        *([role[0].model_dump(mode="json"), role[1].model_dump(mode="json")] if role else []),
        *([] if measured is None else [measured.result]),
        *([facts.model_dump(mode="json"), factuality_prompts()] if facts else []),
    )
    return Stage(StageName.FORK, rows_fingerprint, pair_identity(lead.identity), run, expected)


def natural_stage(
    config: NaturalConfig,
    judging: RubricConfig | Literal[False],
    engine: Described,
    adherence: AdherenceConfig | Literal[False] = False,
) -> Stage[PreferencePair]:
    """Verification of natural pairs bound to its judge.

    `judging` and `adherence` are how the judge scores in this run; the rubric's defaults where it is left out.
    Which pairs are found is not in the fingerprint: the rows of pairs that are found again are kept.
    """
    rubric = judging or RubricConfig()
    judged = judge_stage(rubric, engine)
    resolved = _asked(rubric, judged.mode)
    levels = rubric.calibration.levels if rubric.calibration else {}
    verification = config.verification
    if verification is not None:
        check_curve(verification, judged.identity, "natural.verify")
    role = _settle_adherence(adherence, engine)[:2] if adherence else None

    def bound(dialogue: Dialogue, ask: Ask) -> JudgeAsks:
        judge = _about(dialogue, ask, stage=StageName.NATURAL)
        return bind_judge(judge, resolved, engine, role[0] if role else None, levels)

    async def run(item: WorkItem, asks: Asks) -> PreferencePair:
        if item.pair is None:
            raise ValueError("nothing to verify without a pair")
        judge = bound(item.dialogue, asks.judge)
        return await verify_natural(item.pair, item.dialogue, judge, config)

    def expected(dialogue: Dialogue, _: int, __: LookUp) -> list[Expected]:
        turn = next((turn for turn in reversed(dialogue.turns) if turn.in_rubric), None)
        place = None if turn is None else turn.last_assistant_text
        if turn is None or place is None or verification is None:
            return []
        rejected = dialogue.messages[place]
        chosen = rejected.model_copy(update={"content": f"{rejected.content} granted"})
        prompt = with_messages(dialogue, dialogue.messages[:place])
        stand_in = StandIn(gives_last=True)
        judge = bound(prompt, stand_in)
        settled(ask_as_a_verification(prompt, chosen, rejected, turn.number, judge, verification))
        return stand_in.asked

    rows_fingerprint = fingerprint(
        None if verification is None else verification.model_dump(mode="json"),
        config.may_be_fine,
        judged.result,
        FORK_PROMPTS,
        code_version("curate.pairs"),
        *([role[0].model_dump(mode="json"), role[1].model_dump(mode="json")] if role else []),
    )
    return Stage(StageName.NATURAL, rows_fingerprint, pair_identity(judged.identity), run, expected)


def pair_identity(judge: JudgeIdentity) -> JudgeIdentity:
    """Who compares two sides: the rubric's judge, with the prompts of both rooms.

    Without the options that mean nothing for sides: each is scored as the last turn, wording by wording.
    """
    sampling = {name: value for name, value in judge.sampling.items() if name != "paraphrases"}
    return judge.model_copy(
        update={
            "prompt_version": f"{judge.prompt_version} {FORK_PROMPTS}",
            "sampling": sampling,
        }
    )


def check_curve(config: VerifyConfig, judge: JudgeIdentity, section: str) -> None:
    """Refuse a curve that was fitted to another judge's readings.

    Raises:
        UsageError: names what differs, before anything is asked.
    """
    if config.curve is None:
        return
    other = OtherJudge.between(described(config.curve.identity), described(pair_identity(judge)))
    if other is not None:
        fix = "fit it with this judge: curate calibrate RECIPE --twins 60"
        raise other.refused(f"{section}.curve", fix)


def bind_judge(
    ask: Ask,
    judging: RubricConfig,
    engine: Described,
    adherence: AdherenceConfig | None = None,
    levels: Mapping[str, CutPoints] | None = None,
) -> JudgeAsks:
    """What verification asks of a judge.

    Args:
        ask: the judge's, marked as being about the dialogue.
        judging: its mode resolved.
        engine: who answers.
        adherence: how it scores role adherence, its mode resolved; None where that is not checked.
        levels: cut points by dimension, where its levels are calibrated.
    """
    score_role = None
    if adherence is not None:

        async def score_role(part: Dialogue, turn: int) -> AdherenceTurn:
            return await score_role_of_turn(part, turn, ask, adherence)

    async def rescore(part: Dialogue, turn: int, wording: int) -> TurnReading | Unscored:
        return await score_turn(part, turn, ask, judging, wording=wording)

    return JudgeAsks(
        judge=ask,
        score_turn=rescore,
        judge_id=_label(engine.identity),
        judge_mode=_letter_mode(judging, engine),
        levels=levels or {},
        score_role=score_role,
    )


def _letter_mode(judging: RubricConfig, engine: Described) -> ScoringMode | None:
    """How letters are read: with whole JSON scores, too, from the first token where the engine can."""
    can_read = engine.capabilities & {Capability.TOP_LOGPROBS, Capability.LABEL_LOGPROBS}
    if judging.mode == "auto" or (judging.mode == "json" and can_read):
        return None
    return judging.mode


@cache
def code_version(package: str) -> str:
    """Hash of a room's source and prompts, subfolders included: what changed makes its rows anew (from kept replies)."""
    digest = hashlib.blake2b(digest_size=8)
    for name, source in _sources(resources.files(package)):
        digest.update(name.encode() + b"\n" + source)
    return digest.hexdigest()


def _sources(folder: Traversable, inside: str = "") -> Iterator[tuple[str, bytes]]:
    """Name below the folder and content of each Python file and prompt in it, by name."""
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            yield from _sources(entry, f"{inside}{entry.name}/")
        elif entry.name.endswith((".py", ".md")):
            yield inside + entry.name, entry.read_bytes()


def _fingerprint(room: str, config: dict[str, Any], identity: JudgeIdentity) -> str:
    return fingerprint(
        config,
        identity.model_dump(mode="json"),
        code_version(f"curate.{room}"),
        code_version("curate.engines"),
    )


def _identity(engine: EngineIdentity, mode: str, prompts: str) -> JudgeIdentity:
    return JudgeIdentity(
        engine=engine.engine,
        model=engine.model,
        revision=engine.revision,
        quantisation=engine.quantisation,
        mode=mode,
        prompt_version=prompts,
        sampling={"temperature": 0.0, **dict(engine.detail)},
    )


def _about(dialogue: Dialogue, ask: Ask, *, stage: StageName | None = None) -> Ask:
    """The same ask, its requests marked as being about a dialogue, so that one server gets them all.

    With a stage they are accounted to it, whatever stage wrote them.
    """
    affinity = dialogue.content_hash

    def mark(request: Request) -> Request:
        if stage is None:
            return replace(request, affinity=affinity)
        purpose = f"{stage}.{request.purpose.partition('.')[2]}"
        return replace(request, affinity=affinity, purpose=purpose)

    async def marked(requests: Sequence[Request]) -> list[Completion]:
        return await ask([mark(request) for request in requests])

    return marked


def _label(identity: EngineIdentity) -> str:
    revision = f"@{identity.revision[:12]}" if identity.revision else ""
    return f"{identity.engine}:{identity.model}{revision}"
