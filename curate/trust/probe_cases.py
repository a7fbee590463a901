"""The cases that a judge is probed with: dialogues with one planted flaw, each beside an untouched and a harmlessly edited twin.

The three differ in one message and in nothing else, and all are within 10 % of one length. The harmless edit changes
about as much of the message as the flaw does: without it a judge that scores any edited text lower would seem to
find flaws.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import orjson

from curate.dialogue import Dialogue, Message, ToolCall, Turn
from curate.trust import probe_scenes as scenes
from curate.trust.harmless import changed_share, harmless_edit
from curate.trust.plants import (
    LEAST_CHARACTERS,
    Place,
    PlantKind,
    degrade,
    is_english,
    is_like_long,
    with_message,
    with_text,
)

ProbeKind = Literal[
    "contradiction",
    "forgotten_constraint",
    "evasion",
    "off_topic",
    "role_break",
    "tone_break",
    "unsafe_advice",
    "sycophantic_reversal",
    "ignored_correction",
    "unfinished_task",
    "wrong_tool",
    "wrong_argument",
    "misread_result",
]
PROBE_KINDS: tuple[ProbeKind, ...] = get_args(ProbeKind)
KIND_SENTENCES: Mapping[ProbeKind, str] = {
    "contradiction": "it contradicts what was said before",
    "forgotten_constraint": "it forgets a condition that the user set",
    "evasion": "it avoids the question",
    "off_topic": "it is about something else than what was asked",
    "role_break": "it falls out of its role",
    "tone_break": "it is rude to the user",
    "unsafe_advice": "it gives advice that can do harm",
    "sycophantic_reversal": "it gives up a right answer to please the user",
    "ignored_correction": "it ignores a correction by the user",
    "unfinished_task": "it stops before the task is done",
    "wrong_tool": "it calls the wrong tool",
    "wrong_argument": "it calls a tool with a wrong argument",
    "misread_result": "it reports a tool's result wrongly",
}
LONGEST = 5
"""Turns of a clean dialogue that are used: a longer one costs more and shows no more."""
_EDITS: Mapping[ProbeKind, PlantKind] = {
    "contradiction": "contradiction",
    "evasion": "evasion",
    "off_topic": "other_reply",
    "role_break": "role_break",
    "tone_break": "tone_break",
    "unsafe_advice": "unsafe_advice",
    "unfinished_task": "truncated_half",
    "wrong_tool": "wrong_tool",
    "wrong_argument": "wrong_argument",
    "misread_result": "misread_result",
    "sycophantic_reversal": "sycophancy",
}
"""The edit that plants a kind, where its scene does not bring the flaw itself."""
_STRANGERS = 100
"""Other dialogues whose replies may stand for one that is off topic."""
_OF_CALLS = ("wrong_tool", "wrong_argument")
_WITH_TOOLS = (*_OF_CALLS, "misread_result")


@dataclass(frozen=True, slots=True)
class ProbeCase:
    """One flaw in one turn.

    Attributes:
        kind: of the flaw.
        group: content hash of the clean dialogue: cases of one are not independent.
        turn: number of the turn with the flaw.
        index: of the message that differs.
        untouched, planted: the dialogue without and with the flaw.
        harmless: edited at the same message to the same meaning; None where no such edit is known.
    """

    kind: ProbeKind
    group: str
    turn: int
    index: int
    untouched: Dialogue
    planted: Dialogue
    harmless: Dialogue | None

    @property
    def key(self) -> str:
        """Name of the case, equal wherever it is made again from the same dialogue."""
        return f"{self.group[:12]}/{self.kind}/{self.turn}/{self.planted.content_hash[:8]}"

    def with_messages(self, flawed: Message, reworded: Message | None) -> ProbeCase:
        """Return the case with another flawed message, and another harmless one; the one it has where that is None."""
        planted = with_message(self.untouched, self.index, flawed)
        harmless = self.harmless
        if reworded is not None:
            harmless = with_message(self.untouched, self.index, reworded)
        return replace(self, planted=planted, harmless=harmless)

    def changed(self, other: Dialogue) -> float:
        """Return how much of the message differs in another of the three, 0-1."""
        texts = (_words_of(dialogue.messages[self.index]) for dialogue in (self.untouched, other))
        return changed_share(*texts)


def _words_of(message: Message) -> str:
    calls = " ".join(f"{call.name} {call.arguments}" for call in message.tool_calls)
    return f"{message.content} {calls}".strip()


def first_turns(dialogue: Dialogue) -> Dialogue:
    """Return the dialogue up to its `LONGEST` first turns."""
    if len(dialogue.turns) <= LONGEST:
        return dialogue
    stop = dialogue.turns[LONGEST - 1].stop
    return dialogue.model_copy(update={"messages": dialogue.messages[:stop]})


def plant_cases(
    dialogues: Sequence[Dialogue],
    limit: int,
    *,
    rewordings: Mapping[str, str],
    seed: int = 42,
) -> list[ProbeCase]:
    """Plant up to `limit` flaws, the kinds as even as the dialogues allow, the dialogues as even as the kinds allow.

    Args:
        dialogues: that are good as they are, at most `LONGEST` turns each.
        limit: most cases.
        rewordings: texts of replies and the same in other words.
        seed: of the draws; equal arguments give equal cases, and a smaller limit the first of them.

    Raises:
        ValueError: `limit` below 1.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    draw = random.Random(seed)
    order = draw.sample(range(len(dialogues)), len(dialogues))
    others = [_others(dialogues, at) for at in range(len(dialogues))]
    queues: dict[ProbeKind, list[Iterator[ProbeCase]]] = {}
    for kind in PROBE_KINDS:
        # Each kind cycles through the dialogues, each time with another turn; kinds start far from each other.
        start = len(queues) * max(1, len(order) // len(PROBE_KINDS) - 1) % max(1, len(order))
        turned = order[start:] + order[:start]
        queues[kind] = [
            _cases(dialogues[at], kind, others[at], rewordings, f"{seed} {kind} {at}")
            for at in turned
        ]
    cases: list[ProbeCase] = []
    seen: set[str] = set()
    while queues:
        for kind in [*queues]:
            case = _next(queues[kind], seen)
            if case is None:
                del queues[kind]
            elif len(cases) < limit:
                cases.append(case)
        if len(cases) >= limit:
            break
    return cases


def _next(queue: list[Iterator[ProbeCase]], seen: set[str]) -> ProbeCase | None:
    """Return the next case of a kind; its dialogue goes to the end of the queue."""
    while queue:
        cases = queue.pop(0)
        case = next(cases, None)
        if case is not None:
            queue.append(cases)
            if case.planted.content_hash not in seen:
                seen.add(case.planted.content_hash)
                return case
    return None


def _others(dialogues: Sequence[Dialogue], at: int) -> list[str]:
    """Return the replies that other dialogues have, of another role where there is one."""
    strangers = [other for number, other in enumerate(dialogues) if number != at]
    role = dialogues[at].role_definition
    elsewhere = [other for other in strangers if other.role_definition != role] or strangers
    return [
        message.content.strip()
        for other in elsewhere[:_STRANGERS]
        for message in other.messages
        if message.role == "assistant" and message.content.strip()
    ]


def _cases(
    dialogue: Dialogue,
    kind: ProbeKind,
    others: Sequence[str],
    rewordings: Mapping[str, str],
    seed: str,
) -> Iterator[ProbeCase]:
    """Return the cases of a kind in a dialogue, its turns in an order by chance."""
    draw = random.Random(seed)
    shuffled = draw.sample(others, len(others))
    turns = [turn for turn in dialogue.turns if turn.in_rubric]
    for turn in draw.sample(turns, len(turns)):
        for scene in _scenes(dialogue, turn, kind, draw):
            place = Place(
                scene.dialogue, scene.index, _turn_at(scene.dialogue, scene.index), shuffled, draw
            )
            flawed = scene.flawed or degrade(place, _EDITS[kind])
            if flawed is None or not is_like_long(_words_of(flawed), _words_of(place.message)):
                continue
            yield _case(dialogue, kind, place, flawed, scene.reworded, rewordings)
            break


def _scenes(
    dialogue: Dialogue, turn: Turn, kind: ProbeKind, draw: random.Random
) -> Iterator[scenes.Scene]:
    """Yield where a flaw of the kind may be planted at a turn: in the dialogue as it is, or with an exchange set in."""
    at = partial(_stage, dialogue, turn, draw)
    if kind == "sycophantic_reversal":
        yield from at(scenes.pushback)
    elif kind == "ignored_correction":
        yield from at(scenes.correction)
    elif kind == "forgotten_constraint":
        places = [t.last_assistant_text for t in dialogue.turns if t.in_rubric]
        known = [place for place in places if place is not None]
        if turn.number > 1 and turn.last_assistant_text is not None and _is_english(dialogue):
            yield scenes.constraint(dialogue, known, turn.last_assistant_text, draw)
    else:
        calls = any(message.tool_calls for message in dialogue.messages)
        if kind in _WITH_TOOLS and not calls:
            yield from at(partial(scenes.reminder, kind=kind))
            return
        for offset, message in enumerate(turn.messages):
            is_place = message.role == "assistant" and bool(message.tool_calls) == (
                kind in _OF_CALLS
            )
            is_long = kind in _WITH_TOOLS or len(message.content.strip()) >= LEAST_CHARACTERS
            if is_place and is_long:
                yield scenes.Scene(dialogue, turn.start + offset)


def _stage(
    dialogue: Dialogue,
    turn: Turn,
    draw: random.Random,
    make: Callable[[Dialogue, int, random.Random], scenes.Scene],
) -> Iterator[scenes.Scene]:
    if _is_english(dialogue):
        yield make(dialogue, turn.stop, draw)


def _is_english(dialogue: Dialogue) -> bool:
    """Return whether one of its answers is English: the exchanges that are set in are."""
    return any(is_english(m.content) for m in dialogue.messages if m.role == "assistant")


def _turn_at(dialogue: Dialogue, index: int) -> int:
    return next(turn.number for turn in dialogue.turns if turn.start <= index < turn.stop)


def _case(
    dialogue: Dialogue,
    kind: ProbeKind,
    place: Place,
    flawed: Message,
    reworded: Message | None,
    rewordings: Mapping[str, str],
) -> ProbeCase:
    if reworded is None and place.text:
        share = changed_share(_words_of(place.message), _words_of(flawed))
        text = harmless_edit(place.text, share, rewordings, place.draw)
        if text is not None:
            reworded = with_text(place.message, text)
    elif reworded is None:
        reworded = _with_turned_arguments(place.message)
    return ProbeCase(
        kind=kind,
        group=dialogue.content_hash,
        turn=place.turn,
        index=place.index,
        untouched=place.dialogue,
        planted=with_message(place.dialogue, place.index, flawed),
        harmless=None if reworded is None else with_message(place.dialogue, place.index, reworded),
    )


def _with_turned_arguments(message: Message) -> Message | None:
    """Return the message with the arguments of its calls in reverse order; None where no call has two.

    The order of a JSON object's keys means nothing. As text, since mappings in another order are equal.
    """
    if not any(len(_arguments(call)) > 1 for call in message.tool_calls):
        return None
    calls = tuple(
        call.model_copy(
            update={"arguments": orjson.dumps(dict(reversed([*_arguments(call).items()]))).decode()}
        )
        if _arguments(call)
        else call
        for call in message.tool_calls
    )
    return message.model_copy(update={"tool_calls": calls})


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    return call.arguments if isinstance(call.arguments, dict) else {}


def cases_by_kind(cases: Sequence[ProbeCase]) -> dict[str, int]:
    """Return the cases by kind, in the order of the kinds."""
    counts = Counter(case.kind for case in cases)
    return {kind: counts[kind] for kind in PROBE_KINDS if counts[kind]}
