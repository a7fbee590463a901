"""The stages that make and verify pairs.

Rooms do not import each other, so what a fork needs from the judge is passed to it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from curate.adherence.config import AdherenceConfig
from curate.adherence.joint_score import combine_turns
from curate.adherence.llm_judge import score_role_of_turn
from curate.dialogue import Dialogue
from curate.engines.base import Ask, Capability
from curate.engines.model_pool import Asks, Described, ModelsByRole
from curate.engines.stand_in import Expected, LookUp, StandIn, settled
from curate.judging.cascade import CascadeRule
from curate.judging.config import (
    RubricConfig,
)
from curate.judging.factuality import FactualityConfig, claims_of_turn
from curate.judging.factuality import prompt_version as factuality_prompts
from curate.judging.turn_rescoring import describe_issue, score_turn
from curate.pairs.config import ForkConfig, NaturalConfig, VerifyConfig
from curate.pairs.expected_load import (
    ask_as_a_fork,
    ask_as_a_verification,
    one_word_longer,
    with_a_bad_turn,
)
from curate.pairs.fork import fork_dialogue
from curate.pairs.judge_functions import ForkAsks, JudgeAsks, joint_asks
from curate.pairs.natural import verify_natural
from curate.pairs.pair_prompts import PROMPT_VERSION as FORK_PROMPTS
from curate.pairs.prefix import with_messages
from curate.pairs.verification import Sides
from curate.recipe import judge_roles
from curate.records import (
    AdherenceTurn,
    CutPoints,
    JudgeIdentity,
    PreferencePair,
    ScoringMode,
    StageName,
    TurnClaims,
    TurnReading,
    Unscored,
)
from curate.records.calibration_file import check_same_judge, identity_fields
from curate.stages.joint_stages import adherence_by, joint_adherence, rubric_stage, scorers
from curate.stages.scoring_stages import (
    adherence_stage,
    as_asked,
    judge_stage,
    settle_adherence,
    wordless,
)
from curate.stages.stage import (
    Forks,
    Judged,
    Measured,
    Stage,
    WorkItem,
    asks_about,
    label_of,
    stage_code,
)
from curate.storage.stage_rows import fingerprint

PAIR_ROOMS = ("pairs", "judging", "adherence")
"""Rooms whose code compares two sides: the preference, the rubric's scores of each, and role adherence."""


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
    """Return the stage that forks dialogues, bound to its judge.

    All judges of a jury verify together; in a cascade only the large judge verifies. Judging a whole dialogue again uses
    all judges. Descriptions in words come from the leading judge.

    Args:
        adherence: how a judge scores role adherence in this run; False: the role is not checked.
        measured: the metrics of this run; poor ones name turns to fork at.
        facts: how this run checks factual claims; the chosen side may not have a smaller share of true ones.

    `where` is not part of the fingerprint: a changed condition admits other dialogues and leaves existing forks as they
    are.
    """
    whole = rubric_stage(wordless(judging), models.judges, cascade)
    verifier = bind_verifier(judging, scorers(models, cascade), adherence)
    check_curve(config, verifier.identity, "fork")
    lead = as_asked(judging, judge_stage(judging, models.judge).mode)
    bound = _Forker(lead, judged, whole, verifier, models, facts)

    async def run(item: WorkItem, asks: Asks) -> Forks:
        if item.judgment is None:
            raise ValueError("a fork needs the dialogue's judgment")
        return await fork_dialogue(
            item.dialogue, item.judgment, bound.asks(item.dialogue, asks), config, item.faults
        )

    def expected(dialogue: Dialogue, at: int, _: LookUp) -> list[Expected]:
        judgment = settled(judged.run(WorkItem(dialogue), Asks.of(StandIn())))
        if isinstance(judgment, Unscored) or not judgment.per_turn:
            return []
        calls: list[Expected] = []
        stand_ins = _stand_ins(calls, len(models.judges), is_cascade=cascade is not None)
        asks = bound.asks(dialogue, stand_ins)
        settled(ask_as_a_fork(dialogue, with_a_bad_turn(judgment, at, config), asks, config))
        return calls

    rows_fingerprint = fingerprint(
        config.model_dump(mode="json", exclude={"where", "certificate"}),
        judged.result,
        models.policy.identity.key,
        models.reviser.identity.key,
        FORK_PROMPTS,
        stage_code(*PAIR_ROOMS),
        *verifier.marks,
        *([] if measured is None else [measured.result]),
        *([facts.model_dump(mode="json"), factuality_prompts()] if facts else []),
    )
    return Stage(StageName.FORK, rows_fingerprint, pair_identity(verifier.identity), run, expected)


@dataclass(frozen=True, slots=True)
class _Forker:
    """The models of a fork.

    Attributes:
        lead: how the leading judge, which describes flaws and checks facts, is asked.
        judged: the stage that judged the dialogues.
        whole: the stage that judges a dialogue with a candidate in it, without words.
        facts: how claims are checked; False: not at all.
    """

    lead: RubricConfig
    judged: Stage[Judged]
    whole: Stage[Judged]
    verifier: Verifier
    models: ModelsByRole
    facts: FactualityConfig | Literal[False]

    def asks(self, dialogue: Dialogue, asks: Asks) -> ForkAsks:
        """Bind what forking asks to open models; calls are marked as being about this dialogue."""

        def about(ask: Ask) -> Ask:
            return asks_about(dialogue, ask, stage=StageName.FORK)

        marked = asks.with_judges(about)

        async def describe(part: Dialogue, turn: int) -> str:
            return await describe_issue(part, turn, marked.judge, self.lead)

        async def rejudge(part: Dialogue) -> Judged:
            row = await self.whole.run(WorkItem(part), marked)
            calibrated = self.judged.calibrated
            return row if calibrated is None else calibrated.apply(row)

        async def score_facts(part: Dialogue, turn: int) -> TurnClaims | Unscored:
            config = self.facts or FactualityConfig()
            return await claims_of_turn(part, turn, marked.judge, config)

        return ForkAsks(
            judging=replace(
                self.verifier.asks(marked), score_facts=score_facts if self.facts else None
            ),
            policy=about(asks.policy),
            reviser=about(asks.reviser),
            describe_issue=describe,
            rejudge=rejudge,
            policy_id=label_of(self.models.policy.identity),
            reviser_id=label_of(self.models.reviser.identity),
        )


def natural_stage(
    config: NaturalConfig,
    judging: RubricConfig | Literal[False],
    models: ModelsByRole,
    adherence: AdherenceConfig | Literal[False] = False,
    cascade: CascadeRule | None = None,
) -> Stage[PreferencePair]:
    """Return the stage that verifies natural pairs, by one judge, a jury together, or the large judge of a cascade.

    Args:
        judging: how the judge scores in this run; False: the rubric's defaults.
        adherence: how it scores role adherence; False: the role is not checked.

    Which pairs are found is not part of the fingerprint: rows of pairs that are found again are kept.
    """
    rubric = judging or RubricConfig()
    several = scorers(models, cascade)
    judged = rubric_stage(rubric, several)
    verifier = bind_verifier(rubric, several, adherence)
    verification = config.verification
    if verification is not None:
        check_curve(verification, verifier.identity, "natural.verify")

    def bound(dialogue: Dialogue, asks: Asks) -> JudgeAsks:
        return verifier.asks(
            asks.with_judges(lambda ask: asks_about(dialogue, ask, stage=StageName.NATURAL))
        )

    async def run(item: WorkItem, asks: Asks) -> PreferencePair:
        if item.pair is None:
            raise ValueError("nothing to verify without a pair")
        judge = bound(item.dialogue, asks)
        return await verify_natural(item.pair, item.dialogue, judge, config)

    def expected(dialogue: Dialogue, _: int, __: LookUp) -> list[Expected]:
        turn = next((turn for turn in reversed(dialogue.turns) if turn.in_rubric), None)
        place = None if turn is None else turn.last_assistant_text
        if turn is None or place is None or verification is None:
            return []
        rejected = dialogue.messages[place]
        chosen = one_word_longer(rejected)
        prompt = with_messages(dialogue, dialogue.messages[:place])
        calls: list[Expected] = []
        judge = bound(prompt, _stand_ins(calls, len(several)))
        sides = Sides(prompt, chosen, rejected, turn.number)
        settled(ask_as_a_verification(sides, judge, verification))
        return calls

    rows_fingerprint = fingerprint(
        None if verification is None else verification.model_dump(mode="json"),
        config.may_be_fine,
        judged.result,
        FORK_PROMPTS,
        stage_code(*PAIR_ROOMS),
        *verifier.marks,
    )
    identity = pair_identity(verifier.identity)
    return Stage(StageName.NATURAL, rows_fingerprint, identity, run, expected)


def _stand_ins(calls: list[Expected], judges: int, *, is_cascade: bool = False) -> Asks:
    """Return stand-ins for all models and a number of judges, which add what they are asked to `calls`."""

    def stand_in(role: str) -> StandIn:
        return StandIn(role, calls=calls, gives_last=True)

    several = judge_roles(judges, is_cascade=is_cascade) if judges > 1 else []
    return replace(
        Asks.of(stand_in("judge")),
        policy=stand_in("policy"),
        reviser=stand_in("reviser"),
        judges=tuple((stand_in(role), stand_in(role)) for role in several),
    )


def pair_identity(judge: JudgeIdentity) -> JudgeIdentity:
    """Return the identity of pair comparisons: the rubric's judge, with the prompts of both rooms.

    Options that do not matter for pairs are left out: each side is scored as the last turn, wording by wording.
    """
    sampling = {name: value for name, value in judge.sampling.items() if name != "paraphrases"}
    return judge.model_copy(
        update={
            "prompt_version": f"{judge.prompt_version} {FORK_PROMPTS}",
            "sampling": sampling,
        }
    )


def check_curve(config: VerifyConfig, judge: JudgeIdentity, section: str) -> None:
    """Raise where a curve was fitted to another judge's readings.

    Raises:
        UsageError: names what differs, before any model call.
    """
    if config.curve is not None:
        fitted, here = identity_fields(config.curve.identity), identity_fields(pair_identity(judge))
        fix = "fit it with this judge: curate calibrate RECIPE --twins 60"
        check_same_judge(fitted, here, f"{section}.curve", fix)


@dataclass(frozen=True, slots=True)
class Verifier:
    """The judge or jury that verifies pairs.

    Attributes:
        identity: identity of its combined rubric scores.
        asks: binds it to open models.
        marks: what else its answers depend on, for a fingerprint.
    """

    identity: JudgeIdentity
    asks: Callable[[Asks], JudgeAsks]
    marks: tuple[Any, ...]


def bind_verifier(
    judging: RubricConfig,
    engines: Sequence[Described],
    adherence: AdherenceConfig | Literal[False] = False,
) -> Verifier:
    """Return the verifier for one judge or a jury.

    Args:
        adherence: how they score role adherence; False where the role is not checked.
    """
    levels = judging.calibration.levels if judging.calibration else {}
    plain = judging.model_copy(update={"calibration": None})
    resolved = [as_asked(judging, judge_stage(plain, engine).mode) for engine in engines]
    roles = [settle_adherence(adherence, engine)[:2] if adherence else None for engine in engines]
    if len(engines) == 1:
        (engine,), (config,), (role,) = engines, resolved, roles

        def alone(asks: Asks) -> JudgeAsks:
            return bind_judge(asks.judge, config, engine, role[0] if role else None, levels)

        marks: tuple[Any, ...] = (
            () if role is None else tuple(one.model_dump(mode="json") for one in role)
        )
        return Verifier(judge_stage(plain, engine).identity, alone, marks)
    rules = judging.jury_rules
    scored = adherence_by(adherence, engines, rules["adherence"]) if adherence else None
    joint = None
    if adherence:
        each = [
            adherence_stage(adherence.model_copy(update={"calibration": None}), e) for e in engines
        ]
        joint = joint_adherence(adherence, each, rules["adherence"])[0]

    def joined(turns: Sequence[AdherenceTurn]) -> AdherenceTurn:
        assert joint is not None
        return combine_turns(turns, rules["adherence"], joint)

    def jury(asks: Asks) -> JudgeAsks:
        judges = tuple(
            bind_judge(asks.of_judge(at).judge, config, engine, role[0] if role else None)
            for at, (engine, config, role) in enumerate(zip(engines, resolved, roles, strict=True))
        )
        return joint_asks(judges, rules, levels, None if joint is None else joined)

    marks = (rules, *([] if scored is None else [scored.fingerprint]))
    return Verifier(rubric_stage(plain, engines).identity, jury, marks)


def bind_judge(
    ask: Ask,
    judging: RubricConfig,
    engine: Described,
    adherence: AdherenceConfig | None = None,
    levels: Mapping[str, CutPoints] | None = None,
) -> JudgeAsks:
    """Bind what verification asks of a judge.

    Args:
        ask: the judge's, marked as being about the dialogue.
        judging: its mode resolved.
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
        judge_id=label_of(engine.identity),
        judge_mode=_letter_mode(judging, engine),
        levels=levels or {},
        score_role=score_role,
    )


def _letter_mode(judging: RubricConfig, engine: Described) -> ScoringMode | None:
    """Decide how letters are read: with whole JSON scores, too, from the first token where the engine can."""
    can_read = engine.capabilities & {Capability.TOP_LOGPROBS, Capability.LABEL_LOGPROBS}
    if judging.mode == "auto" or (judging.mode == "json" and can_read):
        return None
    return judging.mode
