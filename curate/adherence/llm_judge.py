"""Role adherence by a judge model: one question an assistant turn, or one about the whole conversation.

The judge of a turn sees the role, the turns before it and the turn itself, never a later one. The
prompts of a dialogue are nested (`adherence.adherence_prompts`) and are sent together, shortest first, so that an
engine with a prefix cache reads every turn once. Reasons are asked for after all answers are there and never
change one: a score with its reason is the score without it.

`score_adherence` is the one coroutine; rendering and reading are pure. A turn whose reply cannot be had
or read is unscored with a reason, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from curate.adherence.adherence_prompts import (
    answer_request,
    nested_trunks,
    prompt,
    reason_request,
)
from curate.adherence.answer_reading import AdherenceAnswer, read_answer, read_reason
from curate.adherence.config import AdherenceConfig
from curate.adherence.session_score import (
    STAGE,
    NoSession,
    aggregate,
    score_record,
    without_role,
)
from curate.dialogue import Dialogue
from curate.engines.bad_replies import ask_until_read
from curate.engines.base import Ask, Completion, Request
from curate.engines.layout import Trunk, defuse
from curate.records import (
    AdherenceReason,
    AdherenceScore,
    AdherenceTurn,
    JudgeIdentity,
    Unscored,
    UnscoredReason,
)


async def score_adherence(
    dialogue: Dialogue, ask: Ask, config: AdherenceConfig, identity: JudgeIdentity
) -> AdherenceScore | Unscored:
    """Score how well every assistant turn of a dialogue keeps to its role, or the dialogue as a whole.

    Turn 0 (assistant messages before any user message) is scored; a turn without an assistant message
    is shown in later prompts and not scored.

    Args:
        dialogue: needs a role definition and an assistant turn.
        ask: the judge. All turns are asked in one call, in order; bad replies again in further calls, then
            all reasons in one call.
        config: `output_mode` is the resolved one, see `resolve_output_mode`; a calibration in it is applied.

    Returns:
        The score, or `Unscored` with reason `missing_role` (`skipped` where the config says so),
        `no_assistant_turn`, `weights_mismatch`, or the reason its turns have no score (`bad_reply`,
        `reply_cut`, `low_coverage`, `no_logprobs`, `context_overflow`, `engine_error`, or `unscored_turns`
        where these differ). A reason that cannot be had leaves the score as it is.
    """
    if (refusal := without_role(dialogue, config)) is not None:
        return refusal
    turns = [turn for turn in dialogue.turns if turn.has_assistant]
    if not turns or (config.weights is not None and len(config.weights) != len(turns)):
        # Nothing the judge could say would give a session score, so it is not asked.
        nothing = aggregate([AdherenceTurn(turn=turn.number) for turn in turns], config)
        assert isinstance(nothing, NoSession)
        return Unscored.of(dialogue, STAGE, nothing.reason, nothing.detail)
    by_turn = config.evaluation_granularity == "turn"
    question_at_once = None if by_turn else prompt(f"conversation_{config.definition}")
    trunks = nested_trunks(dialogue, config, question_at_once)[0 if by_turn else -1 :]
    numbers = [turn.number for turn in turns] if by_turn else [turns[-1].number]
    answers, requests = await ask_answers(trunks, ask, config, numbers)
    session = aggregate(
        [turn_of(number, answer) for number, answer in zip(numbers, answers, strict=True)], config
    )
    if isinstance(session, NoSession):
        reply_detail = next((answer.detail for answer in answers if answer.detail), "")
        detail = f"{session.detail}; {reply_detail}" if reply_detail else session.detail
        return Unscored.of(dialogue, STAGE, session.reason, detail, requests)
    reasons: Mapping[int, AdherenceReason] = {}
    if config.include_reason:
        reasons, sent = await _ask_reasons(dialogue, trunks, answers, ask, config)
        requests += sent
    per_turn = [
        turn_of(number, answer, reasons.get(place))
        for place, (number, answer) in enumerate(zip(numbers, answers, strict=True))
    ]
    return score_record(
        dialogue,
        config,
        identity,
        session,
        per_turn,
        neutralised=trunks[-1].neutralised,
        requests=requests,
    )


async def ask_answers(
    trunks: list[Trunk], ask: Ask, config: AdherenceConfig, turns: Sequence[int] = ()
) -> tuple[list[AdherenceAnswer], int]:
    """Ask on every trunk, then again where the reply cannot be read; answers in order.

    `turns` are the numbers of the trunks' last turns, where the requests are to say which they are about.
    """

    def request(place: int, problem: str | None) -> Request:
        plain = answer_request(trunks[place], config, problem)
        return replace(plain, turns=(turns[place],)) if turns else plain

    def read(_: int, completion: Completion) -> tuple[AdherenceAnswer, str | None]:
        answer = read_answer(completion, config)
        # Only words can be put differently on being asked again; a distribution stays what it is.
        return answer, _PROBLEMS.get(answer.reason or "")

    answers, sent = await ask_until_read(range(len(trunks)), request, read, ask, config.retries)
    return [answers[place] for place in range(len(trunks))], sent


_PROBLEMS: dict[str, str] = {
    # The reply itself is not echoed: it is untrusted text, and a small model copies what it is shown.
    UnscoredReason.REPLY_CUT: "it was too long",
    UnscoredReason.BAD_REPLY: "it was neither YES nor NO",
}


async def _ask_reasons(
    dialogue: Dialogue,
    trunks: list[Trunk],
    answers: list[AdherenceAnswer],
    ask: Ask,
    config: AdherenceConfig,
) -> tuple[dict[int, AdherenceReason], int]:
    """Ask for the reason of every answer that says adherent or not, on the trunk it was given on."""
    role = defuse((dialogue.role_definition or "").strip()).text
    verdicts = {
        place: answer.adherent
        for place, answer in enumerate(answers)
        if answer.adherent is not None
    }

    def request(place: int, problem: str | None) -> Request:
        return reason_request(trunks[place], config, adherent=verdicts[place], problem=problem)

    def read(place: int, completion: Completion) -> tuple[AdherenceReason, str | None]:
        return read_reason(completion, config, adherent=verdicts[place], role=role)

    return await ask_until_read(verdicts, request, read, ask, config.retries)


def turn_of(
    number: int, answer: AdherenceAnswer, reason: AdherenceReason | None = None
) -> AdherenceTurn:
    """Return the record of one turn's answer."""
    return AdherenceTurn(
        turn=number,
        score=answer.score,
        adherent=answer.adherent,
        coverage=answer.coverage,
        raw_score=answer.raw_score,
        imputed=answer.imputed,
        reason=reason,
        unscored=answer.reason,
    )


async def score_role_of_turn(
    dialogue: Dialogue, turn_number: int, ask: Ask, config: AdherenceConfig
) -> AdherenceTurn:
    """Score one assistant turn of a dialogue that has a role, shown up to that turn.

    Args:
        dialogue: later turns are not shown.
        turn_number: of a turn with an assistant message (0 included).
        ask: the judge; asked once, and again (`config.retries`) where a reply cannot be read.
        config: its `output_mode` resolved. Whatever its granularity, the turn is asked about; no reason is.

    Returns:
        The turn's score in [0, 1], or `unscored` with the reason code.

    Raises:
        KeyError: the dialogue has no such turn.
    """
    config = config.model_copy(update={"evaluation_granularity": "turn"})
    numbers = [turn.number for turn in dialogue.turns if turn.has_assistant]
    trunk = dict(zip(numbers, nested_trunks(dialogue, config), strict=True))[turn_number]

    async def ask_about_role(requests: Sequence[Request]) -> list[Completion]:
        return await ask([replace(request, purpose="adherence.role") for request in requests])

    [answer], _ = await ask_answers([trunk], ask_about_role, config)
    return turn_of(turn_number, answer)
