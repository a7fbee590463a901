"""Scoring mode `json`: one joint reply, scores only, that ends by construction.

On the wire the reply is an object with one required key a turn, which holds its scores in a fixed order, and nothing
but enums: strict modes and constrained decoding can hold a model to it, no turn can be missing, invented or scored
twice, and no name of a dimension is written once a turn. Servers without either still answer in this form, with the
names, or in the judge card's own array form; all are read, and all are checked for completeness here. Words are asked for in another call; those that come along are kept.

Where the engine has no log-probabilities, several replies sampled at temperature 1 give each score a
distribution: its shares among them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from curate.engines.bad_replies import ask_until_read
from curate.engines.base import Completion, Request
from curate.engines.layout import defuse
from curate.engines.structured import as_shown, closed_object
from curate.judging.config import SAMPLE_TEMPERATURE
from curate.judging.rubric_prompts import RubricTexts
from curate.judging.session import (
    CUT_REPLY,
    BadReplyError,
    Failure,
    Page,
    PageReading,
    Scope,
    Session,
    clip_words,
    fault_of,
    mismatch_of,
    reply_object,
)
from curate.judging.tokens_mode import DIGITS, share_reading
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    VERDICTS,
    ConversationLevel,
    ConversationScore,
    ConversationScoreValue,
    LabelReading,
    RubricScores,
    TurnScores,
    UnscoredReason,
    Verdict,
)
from curate.wording import joined

_INTEGER = {"type": "integer", "enum": [1, 2, 3, 4, 5]}
_INTEGER_OR_NA = {"anyOf": [_INTEGER, {"type": "string", "enum": ["n/a"]}]}
_TURN = {
    "type": "array",
    "items": _INTEGER,
    "minItems": len(TURN_DIMENSIONS),
    "maxItems": len(TURN_DIMENSIONS),
}
"""A turn's scores, in the order of `TURN_DIMENSIONS`."""
_TEXT_KEYS = ("issues", "notes", "decision_basis")


def reply_schema(scope: Scope) -> dict[str, Any]:
    """Return the JSON schema of the wire form. No string lengths: they are costly in grammars."""
    properties: dict[str, Any] = {turn_key(turn): _TURN for turn in scope.turns}
    if scope.conversation:
        properties["coherence"] = _INTEGER
        properties["task_completion"] = properties["repair_handling"] = _INTEGER_OR_NA
    if scope.verdict:
        properties["verdict"] = {"type": "string", "enum": list(reversed(VERDICTS))}
    if scope.weakest:
        turns = {"type": "integer", "enum": list(scope.weakest)}
        properties["weakest_turn"] = {"anyOf": [turns, {"type": "null"}]}
    return closed_object(properties)


def turn_key(turn: int) -> str:
    """Return the name of a turn's key on the wire."""
    return f"turn_{turn}"


def question(scope: Scope, texts: RubricTexts, *, wording: int = 0) -> str:
    """Return the question, with the form to fill in, for a model whose reply no schema constrains."""
    subjects = []
    if scope.turns:
        noun = "turn" if len(scope.turns) == 1 else "turns"
        subjects.append(f"what the assistant did in {noun} {joined(scope.turns)}")
    if scope.conversation:
        subjects.append("the conversation as a whole")
    form: dict[str, Any] = {turn_key(turn): ["#"] * len(TURN_DIMENSIONS) for turn in scope.turns}
    lines = [texts.question(f"json.{wording}", what=" and ".join(subjects))]
    rules = []
    if scope.turns:
        rules.append(texts.question("json.turns", dimensions=joined(TURN_DIMENSIONS)))
    if scope.conversation:
        form |= dict.fromkeys(CONVERSATION_DIMENSIONS, "#")
        rules.append(texts.question("json.na"))
    if scope.verdict:
        form["verdict"] = "..."
        rules.append(texts.question("json.verdict", rule=texts.question("rule")))
    if scope.weakest:
        form["weakest_turn"] = "<turn or null>"
        rules.append(texts.question("json.weakest"))
    # Unquoted, because a model that no schema binds copies the quotes and writes "2" for 2.
    lines.append(json.dumps(form).replace('"#"', "#").replace('"<turn or null>"', "<turn or null>"))
    return "\n".join([*lines, *rules])


def reply_tokens(scope: Scope) -> int:
    """Return the bound of the reply: twice what the compact form takes in common tokenizers.

    Generous enough for an indented reply and for the card's array form, whose notes are text.
    """
    return 256 + 80 * len(scope.turns)


def read_reply(text: str, scope: Scope) -> PageReading:
    """Check a reply and read it.

    Args:
        text: the reply; code fences and prose around the one object are passed over.

    Raises:
        BadReplyError: not JSON, a key missing, unknown or twice, a score outside its scale, a turn
            missing, invented or scored twice, or a weakest turn that was not scored.
    """
    reply = reply_object(text)
    if "per_turn" in reply or "conversation_level" in reply:
        reply = _from_card(reply, scope)
    _check_keys(reply, scope)
    issues = _mapping(reply.get("issues", {}), "issues")
    turns = tuple(
        TurnScores(
            turn=turn,
            scores=_turn_scores(reply[turn_key(turn)], turn),
            issues=_strings(issues.get(turn_key(turn), []), f"issues of turn {turn}"),
        )
        for turn in scope.turns
    )
    verdict: Verdict | None = None
    if scope.verdict:
        if reply["verdict"] not in VERDICTS:
            raise BadReplyError(
                f"verdict is {as_shown(reply['verdict'])}, not one of {', '.join(VERDICTS)}"
            )
        verdict = reply["verdict"]
    weakest = reply["weakest_turn"] if scope.weakest else None
    if weakest is not None and (type(weakest) is not int or weakest not in scope.weakest):
        raise BadReplyError(f"weakest_turn is {as_shown(weakest)}, not a scored turn or null")
    basis = reply.get("decision_basis", "")
    if not isinstance(basis, str):
        raise BadReplyError("decision_basis is not text")
    return PageReading(
        turns=turns,
        conversation=_conversation(reply) if scope.conversation else None,
        verdict=verdict,
        weakest=weakest,
        has_weakest=bool(scope.weakest),
        basis=clip_words(basis, 40),
    )


def _from_card(reply: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Turn the card's array form into the wire form; what was not requested is left out."""
    wire: dict[str, Any] = {"issues": {}, "notes": {}}
    entries = reply.get("per_turn", [])
    if not isinstance(entries, list):
        raise BadReplyError("per_turn is not a list")
    for entry in entries:
        entry = _mapping(entry, "an entry of per_turn")
        turn = entry.get("turn")
        if type(turn) is not int:
            raise BadReplyError(f"an entry of per_turn has turn {as_shown(turn)}")
        if entry.get("role", "assistant") != "assistant":
            raise BadReplyError(f"an entry of per_turn has role {as_shown(entry['role'])}")
        if turn_key(turn) in wire:
            raise BadReplyError(f"turn {turn} is scored twice")
        wire[turn_key(turn)] = entry.get("scores")
        wire["issues"][turn_key(turn)] = entry.get("issues", [])
    if scope.conversation:
        level = _mapping(reply.get("conversation_level"), "conversation_level")
        for name in CONVERSATION_DIMENSIONS:
            part = _mapping(level.get(name), name)
            score = part.get("score")
            # The card itself writes these scores as strings ("1-5 or n/a").
            is_digit = isinstance(score, str) and score in ("1", "2", "3", "4", "5")
            wire[name] = int(score) if is_digit and score is not None else score
            wire["notes"][name] = part.get("note", "")
    requested = {"verdict": scope.verdict, "weakest_turn": bool(scope.weakest)}
    wire |= {key: reply[key] for key, is_asked in requested.items() if is_asked and key in reply}
    wire["decision_basis"] = reply.get("decision_basis", "")
    return wire


def _check_keys(reply: Mapping[str, Any], scope: Scope) -> None:
    expected = reply_schema(scope)["required"]
    missing = [key for key in expected if key not in reply]
    if missing:
        raise BadReplyError(f"{', '.join(missing)} missing")
    for key in reply:
        if key in expected or key in _TEXT_KEYS:
            continue
        if key.startswith("turn_"):
            raise BadReplyError(f"{as_shown(key)} is not a turn to be scored")
        raise BadReplyError(f"the key {as_shown(key)} was not asked for")


def _turn_scores(value: Any, turn: int) -> RubricScores:
    if isinstance(value, list) and len(value) == len(TURN_DIMENSIONS):
        value = dict(zip(TURN_DIMENSIONS, value, strict=True))
    scores = _mapping(value, f"turn {turn}")
    if set(scores) != set(TURN_DIMENSIONS):
        raise BadReplyError(f"turn {turn} must have exactly {', '.join(TURN_DIMENSIONS)}")
    return RubricScores(
        **{name: _score(scores[name], f"{name} of turn {turn}") for name in TURN_DIMENSIONS}
    )


def _score(value: Any, name: str) -> int:
    if type(value) is not int or not 1 <= value <= 5:
        raise BadReplyError(f"{name} is {as_shown(value)}, not an integer from 1 to 5")
    return value


def _conversation(reply: Mapping[str, Any]) -> ConversationLevel:
    notes = _mapping(reply.get("notes", {}), "notes")

    def scored(name: str) -> ConversationScore:
        note = notes.get(name, "")
        if not isinstance(note, str):
            raise BadReplyError(f"the note on {name} is not text")
        may_be_na = name != "coherence" and reply[name] == "n/a"
        return ConversationScore(score="n/a" if may_be_na else _score(reply[name], name), note=note)

    return ConversationLevel(**{name: scored(name) for name in CONVERSATION_DIMENSIONS})


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadReplyError(f"{name} is {as_shown(value)}, not an object")
    return value


def _strings(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise BadReplyError(f"{name} is not a list of texts")
    return tuple(text.strip() for text in value if text.strip())


async def ask_json(
    session: Session, page: Page, scope: Scope, *, wording: int = 0
) -> PageReading | Failure:
    """Ask for one joint reply, or for `samples` of them; one that cannot be used is asked again with the reason.

    The reason stands at the end of the question, so the trunk is reused. Of several samples those that stay bad are
    counted out; where fewer than half are left, or fewer than two, nothing is read.
    """
    config, texts = session.config, session.texts
    plain = Request(
        session.trunk(page),
        question(scope, texts, wording=wording),
        max_tokens=reply_tokens(scope),
        temperature=SAMPLE_TEMPERATURE if config.samples > 1 else 0.0,
        schema=reply_schema(scope),
        purpose="judge.turns" if scope.turns else "judge.conversation",
        turns=scope.turns,
    )
    usable: dict[int, PageReading] = {}

    def request(number: int, problem: str | None) -> Request:
        if problem is None:
            return replace(plain, sample=number)
        return replace(plain, sample=number, question=f"{plain.question}\n{problem}")

    def read(number: int, completion: Completion) -> tuple[PageReading | Failure, str | None]:
        outcome, problem = _read_completion(completion, plain, scope, session)
        if isinstance(outcome, PageReading):
            usable[number] = outcome
        # A reading whose verdict was to be asked again stands where the next reply is worse.
        return usable.get(number, outcome), problem

    outcomes, _ = await ask_until_read(
        range(config.samples), request, read, session.ask, config.retries, samples=config.samples
    )
    if config.samples == 1:
        return outcomes[0]
    readings = [*usable.values()]
    failures = [each for each in outcomes.values() if isinstance(each, Failure)]
    if len(readings) >= max(2, math.ceil(config.samples / 2)):
        if failures:
            session.remark(f"samples_lost: {failures[0].reason}")
        return pool_readings(readings, scope, config.samples)
    # A prompt that does not fit can be split, whatever became of other samples.
    failure = next((each for each in failures if each.is_overflow), failures[0])
    detail = f"{len(readings)} of {config.samples} samples could be used: {failure.detail}"
    return replace(failure, detail=detail.rstrip(": "))


def _read_completion(
    completion: Completion, request: Request, scope: Scope, session: Session
) -> tuple[PageReading | Failure, str | None]:
    """Read a reply, and return with it what the judge is told where it is asked again; None where it is not."""
    fault = fault_of(completion)
    if fault is not None:  # the client below has asked again where that helps
        return fault, None
    texts = session.texts
    if completion.finish == "length":
        limit = request.max_tokens + session.config.thought_tokens
        failure = Failure(UnscoredReason.REPLY_CUT, f"cut at {limit} tokens")
        return failure, texts.question("retry", reason=defuse(CUT_REPLY).text)
    try:
        reading = read_reply(completion.text, scope)
    except BadReplyError as error:
        failure = Failure(UnscoredReason.BAD_REPLY, str(error))
        return failure, texts.question("retry", reason=defuse(str(error)).text)
    by_rule = mismatch_of(reading, scope)
    if by_rule is None or session.config.on_mismatch != "retry":
        return reading, None
    return reading, texts.question("mismatch", got=reading.verdict, rule=by_rule)


def pool_readings(readings: Sequence[PageReading], scope: Scope, samples: int) -> PageReading:
    """Join several samples into one reading: the shares of the replies are the probabilities of each answer.

    The most frequent answer is the digit, the verdict and the weakest turn; of equally frequent ones the
    lower score, a digit before n/a, the worse verdict, the earlier turn.

    Args:
        readings: of one scope, at least one.
        samples: how many replies were sampled; the share of them that could be used is the coverage.
    """
    coverage = len(readings) / samples

    def pooled(answers: Iterable[ConversationScoreValue]) -> tuple[str, LabelReading]:
        shares = _shares(map(str, answers), (*DIGITS, "n/a"))
        return _most_frequent(shares), share_reading(shares, coverage)

    turns = []
    for number, turn in enumerate(scope.turns):
        each = [reading.turns[number].scores for reading in readings]
        answers_by_name = {
            name: pooled(getattr(sample, name) for sample in each) for name in TURN_DIMENSIONS
        }
        turns.append(
            TurnScores(
                turn=turn,
                scores=RubricScores(
                    **{name: int(best) for name, (best, _) in answers_by_name.items()}
                ),
                readings={name: reading for name, (_, reading) in answers_by_name.items()},
            )
        )
    levels = [sample.conversation for sample in readings if sample.conversation is not None]
    conversation = None
    if levels:
        scores: dict[str, ConversationScore] = {}
        for name in CONVERSATION_DIMENSIONS:
            best, reading = pooled(getattr(level, name).score for level in levels)
            score: ConversationScoreValue = "n/a" if best == "n/a" else int(best)
            scores[name] = ConversationScore(score=score, reading=reading)
        conversation = ConversationLevel(**scores)
    verdicts = _shares(
        (sample.verdict for sample in readings if sample.verdict is not None), VERDICTS
    )
    weakest = _shares(
        (str(sample.weakest or "none") for sample in readings if sample.has_weakest),
        [*map(str, scope.weakest), "none"],
    )
    worst = _most_frequent(weakest) if weakest else "none"
    return PageReading(
        turns=tuple(turns),
        conversation=conversation,
        verdict=_most_frequent(verdicts) if verdicts else None,
        weakest=None if worst == "none" else int(worst),
        has_weakest=bool(weakest),
        weakest_probabilities=weakest,
    )


_Answer = TypeVar("_Answer", bound=str)


def _shares(answers: Iterable[_Answer], order: Sequence[_Answer]) -> dict[_Answer, float]:
    """Return the share of each answer that was given, in the order of `order`."""
    counts = Counter(answers)
    return {answer: counts[answer] / counts.total() for answer in order if counts[answer]}


def _most_frequent(shares: Mapping[_Answer, float]) -> _Answer:
    """Return the most frequent answer, ties to the first."""
    return max(shares, key=lambda answer: shares[answer])
