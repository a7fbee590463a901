"""Stage functions bound to the models they ask.

A stage takes a dialogue, an `ask` and its config. What is bound here, once a run and for the Python API
alike: which mode the engine can serve, the identity that goes into every record, and for forks the
functions of the judge that verification needs (stages do not import each other).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from curate.adherence.calibrated import settle_calibration
from curate.adherence.config import AdherenceConfig, resolve_output_mode
from curate.adherence.llm import score_adherence
from curate.adherence.prompting import REASON_VERSION
from curate.adherence.prompting import prompt_version as adherence_prompts
from curate.adherence.reference.scorer import ReferenceScorer
from curate.adherence.single_turn import score_turn as score_role_of_turn
from curate.dialogue import Dialogue
from curate.engines.base import Ask, Capability, Completion, EngineIdentity, Request
from curate.errors import UsageError
from curate.judging.calibrated import calibrated_identity, check_judge, with_levels
from curate.judging.config import RubricConfig, resolve_mode
from curate.judging.rubric import describe_issue, judge_dialogue, prompt_version, score_turn
from curate.models import Described, ForkModels, ModelFacts
from curate.pairs.asks import ForkAsks, JudgeAsks
from curate.pairs.config import ForkConfig, NaturalConfig, VerifyConfig
from curate.pairs.fork import fork_dialogue
from curate.pairs.natural import verify_natural
from curate.pairs.prompting import PROMPT_VERSION as FORK_PROMPTS
from curate.records import (
    AdherenceScore,
    AdherenceTurn,
    CutPoints,
    JudgeIdentity,
    Judgment,
    PreferencePair,
    ScoringMode,
    TurnReading,
    Unscored,
)
from curate.storage.store import fingerprint

R = TypeVar("R")

ForkWork = Callable[[Dialogue, Judgment, Ask, Ask, Ask], Awaitable[list[PreferencePair]]]
"""Dialogue, its judgment, and the judge's, policy's and reviser's ask; all records of the fork out."""

NaturalWork = Callable[[PreferencePair, Dialogue, Ask], Awaitable[PreferencePair]]
"""A pair, its dialogue cut to the pair's prompt, and the judge's ask; the pair as verified out."""


@dataclass(frozen=True, slots=True)
class Calibrated(Generic[R]):
    """What a calibration makes of a stage's rows once they are there; nobody is asked.

    Attributes:
        apply: the judge's own row in, the calibrated one out.
        identity: stands in the calibrated rows.
        fingerprint: names the folder of the calibrated rows.
    """

    apply: Callable[[R], R]
    identity: JudgeIdentity
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Step(Generic[R]):
    """A stage ready to run.

    Attributes:
        work: dialogue and ask in, record out; the ask decides about cache and retries.
        identity: who scores, and how.
        fingerprint: names the stage's folder; changes with whatever would change a row.
        mode: the rubric judge's resolved scoring mode.
        warning: something the user must hear, once.
        calibrated: what is made of its rows before anything reads them; None where they stay.
    """

    work: Callable[[Dialogue, Ask], Awaitable[R]]
    identity: JudgeIdentity
    fingerprint: str
    mode: ScoringMode | None = None
    warning: str | None = None
    calibrated: Calibrated[R] | None = None

    @property
    def result(self) -> str:
        """Fingerprint of the rows that others read."""
        return self.fingerprint if self.calibrated is None else self.calibrated.fingerprint


def judge_step(config: RubricConfig, engine: Described) -> Step[Judgment | Unscored]:
    """The multi-turn rubric judge on an engine.

    A calibration is no part of what is asked: the judge's own rows are the same with and without it.

    Raises:
        UsageError: a mode that the engine cannot serve, or a calibration of another judge.
    """
    mode = resolve_mode(config, engine.capabilities)
    resolved = _asked(config, mode)
    identity = _identity(engine.identity, mode, prompt_version(resolved))

    async def work(dialogue: Dialogue, ask: Ask) -> Judgment | Unscored:
        return await judge_dialogue(dialogue, _about(dialogue, ask), resolved, identity)

    asked = resolved.model_dump(mode="json", exclude={"calibration"})
    print_ = _fingerprint("judging", asked, identity)
    return Step(
        work, identity, print_, mode=mode, calibrated=calibrate_judge(config, identity, print_)
    )


def _asked(config: RubricConfig, mode: ScoringMode | None) -> RubricConfig:
    """The config as the judge is asked by: its mode resolved, and nothing that is done to its answers later."""
    update: dict[str, Any] = {"mode": mode, "calibration": None}
    if config.calibration is not None and config.on_mismatch == "reject":
        update["on_mismatch"] = "use_rule"  # what is rejected follows from the levels
    return config.model_copy(update=update)


def calibrate_judge(
    config: RubricConfig, identity: JudgeIdentity, print_: str
) -> Calibrated[Judgment | Unscored] | None:
    """What the config's calibration makes of rows by a judge; None where it has no levels.

    Args:
        config: of the recipe.
        identity: the judge's own.
        print_: fingerprint of its rows.

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

    def apply(row: Judgment | Unscored) -> Judgment | Unscored:
        if isinstance(row, Unscored):
            return row
        return with_levels(row, calibration.levels, named, reject_mismatch=reject)

    marks = (named.model_dump(mode="json"), reject, code_version("curate.judging"))
    return Calibrated(apply, named, fingerprint(print_, *marks))


def adherence_step(config: AdherenceConfig, engine: Described) -> Step[AdherenceScore | Unscored]:
    """Role adherence on an engine; falls back to binary with a warning where it must."""
    resolved, identity, warnings = _settle_adherence(config, engine)

    async def work(dialogue: Dialogue, ask: Ask) -> AdherenceScore | Unscored:
        return await score_adherence(dialogue, _about(dialogue, ask), resolved, identity)

    print_ = _fingerprint(
        "adherence", resolved.model_dump(mode="json", exclude={"reference"}), identity
    )
    if config.include_reason:
        print_ = fingerprint(print_, REASON_VERSION)
    return Step(work, identity, print_, warning="\n".join(warnings) or None)


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


def reference_step(
    config: AdherenceConfig,
    dialogues: Callable[[], Iterable[Dialogue]],
    store: Path | None = None,
) -> Step[AdherenceScore | Unscored]:
    """Role adherence by comparison with references: asks nobody, and is fitted on all dialogues first.

    Args:
        config: with a `scoring_method` other than `llm_judge`.
        dialogues: gives all dialogues of the run each time it is called.
        store: file that keeps embeddings; None keeps them in memory.
    """
    scorer = ReferenceScorer(config, dialogues, store)

    async def work(dialogue: Dialogue, _: Ask) -> AdherenceScore | Unscored:
        return scorer.score(dialogue)

    print_ = fingerprint(
        _fingerprint("adherence", scorer.config.model_dump(mode="json"), scorer.identity),
        code_version("curate.adherence.reference"),
    )
    return Step(work, scorer.identity, print_, warning=scorer.warning)


def fork_step(
    config: ForkConfig,
    judging: RubricConfig,
    judged: Step[Judgment | Unscored],
    models: ForkModels | ModelFacts,
    adherence: AdherenceConfig | Literal[False] = False,
) -> tuple[ForkWork, str]:
    """Forking bound to its judge; returns the work (dialogue, judgment, asks) and its fingerprint.

    `adherence` is how a judge scores role adherence in this run; without it the role is not checked.
    `where` is left out of the fingerprint: a changed condition admits other dialogues and leaves the
    forks that exist as they are.
    """
    resolved = _asked(judging, judged.mode)
    whole = resolved.model_copy(update={"text": "off"})
    levels = judging.calibration.levels if judging.calibration else {}
    check_curve(config, judged.identity, "fork")
    role = _settle_adherence(adherence, models.judge)[:2] if adherence else None

    async def work(
        dialogue: Dialogue, judgment: Judgment, judge: Ask, policy: Ask, reviser: Ask
    ) -> list[PreferencePair]:
        judge, policy, reviser = (
            _about(dialogue, ask, stage="fork") for ask in (judge, policy, reviser)
        )

        async def issue(part: Dialogue, turn: int) -> str:
            return await describe_issue(part, turn, judge, resolved)

        async def rejudge(part: Dialogue) -> Judgment | Unscored:
            row = await judge_dialogue(part, judge, whole, judged.identity)
            return row if judged.calibrated is None else judged.calibrated.apply(row)

        asks = ForkAsks(
            judging=bind_judge(judge, resolved, models.judge, role[0] if role else None, levels),
            policy=policy,
            reviser=reviser,
            describe_issue=issue,
            rejudge=rejudge,
            policy_id=_label(models.policy.identity),
            reviser_id=_label(models.reviser.identity),
        )
        return await fork_dialogue(dialogue, judgment, asks, config)

    print_ = fingerprint(
        config.model_dump(mode="json", exclude={"where"}),
        judged.result,
        models.policy.identity.key,
        models.reviser.identity.key,
        FORK_PROMPTS,
        code_version("curate.pairs"),
        *([role[0].model_dump(mode="json"), role[1].model_dump(mode="json")] if role else []),
    )
    return work, print_


def natural_step(
    config: NaturalConfig,
    judging: RubricConfig | Literal[False],
    engine: Described,
    adherence: AdherenceConfig | Literal[False] = False,
) -> tuple[NaturalWork, str]:
    """Verification of natural pairs bound to its judge; returns the work and its fingerprint.

    `judging` and `adherence` are how the judge scores in this run; the rubric's defaults where it is left out.
    Which pairs are found is not in the fingerprint: the rows of pairs that are found again are kept.
    """
    rubric = judging or RubricConfig()
    judged = judge_step(rubric, engine)
    resolved = _asked(rubric, judged.mode)
    levels = rubric.calibration.levels if rubric.calibration else {}
    verification = config.verification
    if verification is not None:
        check_curve(verification, judged.identity, "natural.verify")
    role = _settle_adherence(adherence, engine)[:2] if adherence else None

    async def work(pair: PreferencePair, prompt: Dialogue, judge: Ask) -> PreferencePair:
        judge = _about(prompt, judge, stage="natural")
        asks = bind_judge(judge, resolved, engine, role[0] if role else None, levels)
        return await verify_natural(pair, prompt, asks, config)

    print_ = fingerprint(
        None if verification is None else verification.model_dump(mode="json"),
        config.may_be_fine,
        judged.result,
        FORK_PROMPTS,
        code_version("curate.pairs"),
        *([role[0].model_dump(mode="json"), role[1].model_dump(mode="json")] if role else []),
    )
    return work, print_


def pair_identity(judge: JudgeIdentity) -> JudgeIdentity:
    """Who compares two sides: the rubric's judge, with the prompts of both rooms."""
    return judge.model_copy(update={"prompt_version": f"{judge.prompt_version} {FORK_PROMPTS}"})


def check_curve(config: VerifyConfig, judge: JudgeIdentity, section: str) -> None:
    """Refuse a curve that was fitted to another judge's readings.

    Raises:
        UsageError: names both, before anything is asked.
    """
    curve, reader = config.curve, pair_identity(judge)
    if curve is not None and curve.identity != reader:
        raise UsageError(
            f"{section}.curve was fitted to another judge's readings",
            got=_difference(curve.identity, reader),
            expected=f"one of {reader.model} ({reader.engine}, mode {reader.mode})",
            fix="fit it with this judge: curate calibrate RECIPE --twins 60",
        )


def _difference(held: JudgeIdentity, asked: JudgeIdentity) -> str:
    """What a kept identity has that is another now."""
    ours, theirs = held.model_dump(), asked.model_dump()
    return "; ".join(
        f"{name} {ours[name]!r}, now {theirs[name]!r}"
        for name in ours
        if ours[name] != theirs[name]
    )


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
        judge_mode=None if judging.mode == "auto" else judging.mode,
        levels=levels or {},
        score_role=score_role,
    )


@cache
def code_version(package: str) -> str:
    """Hash of a room's source, subfolders included, so that changed code makes its rows anew (from kept replies)."""
    digest = hashlib.blake2b(digest_size=8)
    for name, source in _sources(resources.files(package)):
        digest.update(name.encode() + b"\n" + source)
    return digest.hexdigest()


def _sources(folder: Traversable, inside: str = "") -> Iterator[tuple[str, bytes]]:
    """Name below the folder and content of each Python file in it, by name."""
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            yield from _sources(entry, f"{inside}{entry.name}/")
        elif entry.name.endswith(".py"):
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


def _about(dialogue: Dialogue, ask: Ask, *, stage: str | None = None) -> Ask:
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
