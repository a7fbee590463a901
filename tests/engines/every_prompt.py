"""Every prompt that curate writes, made of a dialogue by the code that asks it.

A judge that is told what to say answers, so that what quotes its replies is among them: first with an object or words
that cannot be used, then in the form that was asked for, with the given text in each free place.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from curate.adherence.config import AdherenceConfig
from curate.adherence.llm_judge import score_adherence
from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Request
from curate.engines.stand_in import likely_instance, settled
from curate.errors import EngineError
from curate.judging.config import RubricConfig
from curate.judging.factuality import FactualityConfig, score_factuality
from curate.judging.metrics import MetricsConfig, score_metrics
from curate.judging.metrics.catalogue import shipped
from curate.judging.metrics.draft import draft_metric
from curate.judging.rubric import judge_dialogue
from curate.judging.turn_rescoring import describe_issue, score_turn
from curate.pairs import pair_prompts
from curate.pairs.closed_questions import letter_request
from curate.pairs.probe_prompts import kind_question, rewritten
from tests.judging.judge import IDENTITY


class ToldJudge:
    """An `Ask` that keeps what it is asked and answers with a text.

    Args:
        text: stands wherever a reply is free.
        last: of a choice the last is taken, of a scale the best.
    """

    def __init__(self, text: str, *, last: bool = False) -> None:
        self.requests: list[Request] = []
        self.text, self._last = text, last
        self._forms: set[str] = set()

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        self.requests += requests
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Completion:
        if request.labels:
            best = request.labels[-1 if self._last else 0]
            shares = {label: -0.1 if label == best else -4.0 for label in request.labels}
            return Completion(text=best, first_token=tuple(shares.items()))
        if request.schema is None:
            return Completion(text=f"{self.text} {len(self.requests)}")
        form = json.dumps(request.schema, sort_keys=True)
        if form not in self._forms:
            self._forms.add(form)
            return _as_json({self.text: 1})
        value = likely_instance(request.schema, last=self._last)
        return _as_json(self._told(value))

    def _told(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._told(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [*map(self._told, value)]
        return self.text if isinstance(value, str) and " " in value else value


def _as_json(value: Any) -> Completion:
    """An object whose brackets are escaped: marks of a thought would cut it, and it would be asked for again."""
    return Completion(text=json.dumps(value).replace("<", "\\u003c"))


Flow = Callable[[Dialogue, ToldJudge], Awaitable[Any]]


def _as_it_is(dialogue: Dialogue) -> Dialogue:
    return dialogue


def _long(dialogue: Dialogue) -> Dialogue:
    return dialogue.model_copy(update={"messages": dialogue.messages * 10})


def _judged(change: Callable[[Dialogue], Dialogue] = _as_it_is, **options: Any) -> Flow:
    config = RubricConfig(**options)
    return lambda dialogue, ask: judge_dialogue(change(dialogue), ask, config, IDENTITY)


def _in_role(**options: Any) -> Flow:
    config = AdherenceConfig(**options)
    return lambda dialogue, ask: score_adherence(dialogue, ask, config, IDENTITY)


def _measured(mode: str, **options: Any) -> Flow:
    names = [name for name, metric in shipped().items() if metric.weight is not None]
    choose = [*names, {"metric": "task_completion", "weight": 0.2}]
    config = MetricsConfig(mode=mode, choose=choose, show_reasoning=True, **options)
    return lambda dialogue, ask: score_metrics(dialogue, ask, config, IDENTITY)


def _facts(dialogue: Dialogue, ask: ToldJudge) -> Awaitable[Any]:
    config = FactualityConfig(show_reasoning=True, part_words=50)
    said = dialogue.messages[2]
    wordy = said.model_copy(update={"content": f"{said.content}. " + "A plain sentence. " * 40})
    messages = (*dialogue.messages[:2], wordy, *dialogue.messages[3:])
    changed = dialogue.model_copy(update={"messages": messages})
    return score_factuality(changed, ask, config, IDENTITY)


async def _draft(dialogue: Dialogue, ask: ToldJudge) -> None:
    with contextlib.suppress(EngineError):  # such words are no metric
        await draft_metric(f"Weigh {ask.text}", ask)


def _rescored(mode: str) -> Flow:
    config = RubricConfig(mode=mode)

    async def flow(dialogue: Dialogue, ask: ToldJudge) -> None:
        for wording in range(4):
            await score_turn(dialogue, 1, ask, config, wording=wording)

    return flow


async def _issue(dialogue: Dialogue, ask: ToldJudge) -> None:
    await describe_issue(dialogue, 1, ask, RubricConfig(mode="tokens"))


def _message(text: str) -> Message:
    return Message(role="assistant", content=f"Plain. {text} Plain.")


async def _pair_questions(dialogue: Dialogue, ask: ToldJudge) -> None:
    """Every closed question about a pair or a fork, by letters and as JSON."""
    said, options = _message(ask.text), {"slip": "a slip", "lie": "a lie"}
    asked = [
        pair_prompts.comparison(dialogue, said, dialogue.messages[2]),
        pair_prompts.comparison(dialogue, dialogue.messages[2], said),
        *pair_prompts.specifics_questions(dialogue, said, [ask.text, f"{ask.text}\n1"]),
        *pair_prompts.suffices_questions(dialogue, 1, [2]),
        *pair_prompts.failed_questions(dialogue, 1, [dialogue.messages[2], said], options),
        kind_question(dialogue, 1, options, random.Random(1)),
    ]
    for question in asked:
        await ask([letter_request(question)])
        await ask([Request(question.trunk, question.question(as_json=True), max_tokens=1)])


async def _rewriting(dialogue: Dialogue, ask: ToldJudge) -> None:
    """What writes a message anew: critique, revision of words and of calls, a planted flaw, other words."""
    said = _message(ask.text)
    for message in (said, dialogue.messages[2]):
        asked = pair_prompts.critique(dialogue, message, ["Be kind."])
        await ask([Request(*asked, max_tokens=1)])
        asked = pair_prompts.revision(dialogue, message, ask.text, ["Be kind."])
        await ask([Request(*asked, max_tokens=1)])
    for fault in ("It is rude.", None):
        await rewritten(dialogue, said, fault, 0.5, ask)


FLOWS: dict[str, Flow] = {
    "rubric by labels": _judged(mode="tokens", paraphrases=4, text="all", show_reasoning=True),
    "rubric in windows": _judged(_long, mode="tokens", max_turns=4, window_turns=4, text="all"),
    "rubric by JSON": _judged(mode="json", on_mismatch="retry", text="all", show_reasoning=True),
    "rubric by samples": _judged(mode="json", samples=4, text="auto"),
    "rubric by JSON in windows": _judged(_long, mode="json", max_turns=4, window_turns=4),
    "rubric after a thought": _judged(mode="tokens", thought_tokens=64),
    **{
        f"role, {definition}, {granularity}, {mode}": _in_role(
            definition=definition,
            evaluation_granularity=granularity,
            output_mode=mode,
            include_reason=True,
            show_reasoning=True,
        )
        for definition in ("constructive", "restrictive")
        for granularity in ("turn", "conversation")
        for mode in ("binary", "continuous")
    },
    "metrics by labels": _measured("tokens"),
    "metrics in other words": _measured("tokens", min_coverage=1.0),
    "metrics by JSON": _measured("json"),
    "facts": _facts,
    "a drafted metric": _draft,
    "a turn again, by labels": _rescored("tokens"),
    "a turn again, by JSON": _rescored("json"),
    "an issue": _issue,
    "questions about pairs": _pair_questions,
    "rewriting": _rewriting,
}
"""What asks, by name. A prompt that none of these shows fails `test_chat_templates`."""


def prompts_of(flow: str, dialogue: Dialogue, text: str, *, last: bool = False) -> list[Request]:
    """Return the requests of a flow about a dialogue, in order.

    Args:
        text: in each free place of the judge's replies, and in candidates and details.
        last: as `ToldJudge` has it.
    """
    # Words of its own, so that a reply quotes the dialogue with no text and takes the same way with all.
    judge = ToldJudge(f"told {text}", last=last)
    settled(FLOWS[flow](dialogue, judge))
    return judge.requests
