"""Scripted models for the pairs room: replies are handed in, requests are kept."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Fault, Request
from curate.pairs.config import NaturalConfig
from curate.pairs.funnel import Funnel, FunnelKind
from curate.pairs.judge_functions import ForkAsks, JudgeAsks
from curate.pairs.natural import gather_groups, natural_candidates
from curate.records import (
    ConversationLevel,
    ConversationScore,
    FunnelStage,
    JudgeIdentity,
    Judgment,
    PairCurve,
    PreferencePair,
    RubricScores,
    TurnReading,
    TurnScores,
    Unscored,
)


def natural_pairs(dialogues: Iterable[Dialogue], config: NaturalConfig) -> list[PreferencePair]:
    """All natural pairs of dialogues in any order."""
    return [pair for pair, _ in natural_candidates(gather_groups(dialogues), config)]


Values = tuple[float, float, float]
FINE: Values = (5, 5, 5)
WEAK: Values = (2, 2, 5)


PAIR_CURVE = PairCurve(
    identity=JudgeIdentity(engine="scripted", model="m"),
    fitted_on="twins",
    preference_weight=2.0,
    margin_weight=1.0,
    precision=0.9,
    threshold=0.8807970779778823,
    pairs=60,
    dialogues=60,
    auc=0.9,
    auc_interval=(0.8, 1.0),
    reached_precision=0.9,
    precision_interval=(0.8, 1.0),
    recall=0.5,
    recall_interval=(0.4, 0.6),
)
"""Evidence 2 passes: a preference of 1, or a margin of 2."""


def say(role: str, content: str = "", **more: object) -> Message:
    return Message.model_validate({"role": role, "content": content, **more})


def chat(*texts: str, **fields: object) -> Dialogue:
    """User and assistant in turn."""
    roles = ("user", "assistant")
    messages = tuple(say(roles[i % 2], text) for i, text in enumerate(texts))
    return Dialogue.model_validate({"id": "d1", "messages": messages, **fields})


def judged(
    dialogue: Dialogue,
    turns: dict[int, tuple[int, int, int]],
    weakest: int | None,
    issues: tuple[str, ...] = ("names the wrong amount",),
) -> Judgment:
    score = ConversationScore(score=3)
    return Judgment(
        dialogue_id=dialogue.id,
        content_hash=dialogue.content_hash,
        identity=JudgeIdentity(engine="scripted", model="m"),
        per_turn=tuple(
            TurnScores(
                turn=number,
                scores=RubricScores(context_use=c, helpfulness=h, safety=s),
                issues=issues if number == weakest else (),
            )
            for number, (c, h, s) in turns.items()
        ),
        conversation_level=ConversationLevel(
            coherence=score, task_completion=score, repair_handling=score
        ),
        verdict="borderline",
        weakest_turn=weakest,
    )


def reply(text: str, finish: str = "stop") -> Completion:
    return Completion(text=text, finish=finish)  # type: ignore[arg-type]


def letter(label: str) -> Completion:
    other = "A" if label != "A" else "B"
    return Completion(
        text=label, first_token=((f" {label}", math.log(0.9)), (other, math.log(0.05)))
    )


def weighed(log_odds: float) -> Completion:
    """An answer A or B with so much log-odds for A."""
    a = 1 / (1 + math.exp(-log_odds))
    return Completion(
        text="A" if a > 0.5 else "B",
        first_token=tuple((name, math.log(share)) for name, share in (("A", a), ("B", 1 - a))),
    )


def candidates_of(request: Request) -> tuple[str, str]:
    """The two texts a comparison shows, A then B."""
    first, second = re.findall(
        r"Candidate [AB]\n<candidate>\n(.*?)\n</candidate>",
        request.messages[0]["content"],
        re.DOTALL,
    )
    return first, second


@dataclass
class World:
    """All models a fork asks.

    Attributes:
        scores: text of the last message to its values, one for all wordings or one a wording.
        resamples, revision: what policy and reviser answer.
        prefer: the better of two texts (A, B), as the judge sees it, or the log-odds that it is A.
        made_up: details the judge calls made up.
        suffices, failed: how the option starts that the judge takes.
    critique: what it answers.
        judged_again: scores of turns that are not fine when judged again, or why there are none.
    """

    scores: dict[str, Values | list[Values] | str]
    resamples: Sequence[str | Completion] = ()
    revision: str | Completion = ""
    prefer: Callable[[str, str], str | float] = field(default=lambda a, b: "A")
    issue: str = "names the wrong amount"
    can_read_labels: bool = True
    made_up: Collection[str] = ()
    suffices: str = "yes"
    failed: str = "none"
    critique: str = "none"
    judged_again: dict[int, tuple[int, int, int]] | str = field(default_factory=dict)
    rejudged: list[Dialogue] = field(default_factory=list)
    policy_requests: list[Request] = field(default_factory=list)
    reviser_requests: list[Request] = field(default_factory=list)
    judge_calls: list[list[Request]] = field(default_factory=list)
    scored: list[tuple[Dialogue, int, int]] = field(default_factory=list)
    described: list[tuple[Dialogue, int]] = field(default_factory=list)

    def asked(self, step: str) -> list[list[Request]]:
        """The judge's calls with this purpose."""
        return [call for call in self.judge_calls if call[0].purpose == f"pairs.{step}"]

    @property
    def calls(self) -> int:
        return (
            len(self.policy_requests)
            + len(self.reviser_requests)
            + sum(map(len, self.judge_calls))
            + len(self.scored)
            + len(self.described)
            + len(self.rejudged)
        )

    async def policy(self, requests: Sequence[Request]) -> list[Completion]:
        self.policy_requests.extend(requests)
        return [_completion(self.resamples[request.sample]) for request in requests]

    async def reviser(self, requests: Sequence[Request]) -> list[Completion]:
        self.reviser_requests.extend(requests)
        return [_completion(self.revision) for _ in requests]

    async def judge(self, requests: Sequence[Request]) -> list[Completion]:
        self.judge_calls.append(list(requests))
        answers = []
        for request in requests:
            if request.purpose == "pairs.critique":
                answers.append(reply(self.critique))
                continue
            label = self.letter_for(request)
            if isinstance(label, float):
                answers.append(weighed(label))
                continue
            if request.schema is not None:
                answers.append(reply(f'{{"answer": "{label}"}}'))
            elif self.can_read_labels:
                answers.append(letter(label))
            else:
                answers.append(reply(label))
        return answers

    def letter_for(self, request: Request) -> str | float:
        text = request.messages[0]["content"]
        options = {meaning: found for found, meaning in re.findall(r"(?m)^([A-Z]) = (.+)$", text)}
        none = next((found for meaning, found in options.items() if meaning[:5] == "none "), "")
        if request.purpose == "pairs.specifics":
            return next((options[made] for made in self.made_up if made in options), none)
        if request.purpose in ("pairs.suffices", "pairs.failed"):
            wanted = self.suffices if request.purpose == "pairs.suffices" else self.failed
            return next(found for meaning, found in options.items() if meaning.startswith(wanted))
        first, second = candidates_of(request)
        preferred = self.prefer(first, second)
        return preferred if isinstance(preferred, float) else "A" if preferred == "A" else "B"

    async def score_turn(self, part: Dialogue, turn: int, wording: int) -> TurnReading | Unscored:
        self.scored.append((part, turn, wording))
        found = self.scores[part.messages[-1].content]
        if isinstance(found, str):
            return Unscored(dialogue_id=part.id, content_hash="", stage="judge", reason=found)
        c, h, s = found[wording] if isinstance(found, list) else found
        return TurnReading(
            turn=turn, values={"context_use": c, "helpfulness": h, "safety": s}, wording=wording
        )

    async def describe_issue(self, part: Dialogue, turn: int) -> str:
        self.described.append((part, turn))
        return self.issue

    async def rejudge(self, dialogue: Dialogue) -> Judgment | Unscored:
        self.rejudged.append(dialogue)
        if isinstance(self.judged_again, str):
            return Unscored(
                dialogue_id=dialogue.id, content_hash="", stage="judge", reason=self.judged_again
            )
        numbers = [turn.number for turn in dialogue.turns if turn.in_rubric]
        return judged(dialogue, dict.fromkeys(numbers, (5, 5, 5)) | self.judged_again, None)

    def asks(self, **more: object) -> ForkAsks:
        return ForkAsks(
            judging=self.judging(**more),
            policy=self.policy,
            reviser=self.reviser,
            describe_issue=self.describe_issue,
            rejudge=self.rejudge,
            policy_id="policy",
            reviser_id="reviser",
        )

    def judging(self, **more: object) -> JudgeAsks:
        return JudgeAsks(
            judge=self.judge,
            score_turn=self.score_turn,
            judge_id="judge",
            **more,  # type: ignore[arg-type]
        )


def _completion(answer: str | Completion) -> Completion:
    return answer if isinstance(answer, Completion) else reply(answer)


def fault(kind: str) -> Completion:
    return Completion(finish="error", fault=Fault(kind))  # type: ignore[arg-type]


def by_text(good: str) -> Callable[[str, str], str]:
    """A judge that prefers one text wherever it stands."""
    return lambda first, second: "A" if first == good else "B"


def count_funnel(
    records: Iterable[PreferencePair], kind: FunnelKind = "fork"
) -> tuple[FunnelStage, ...]:
    """The funnel of records, passed and dropped ones, in any order."""
    funnel = Funnel()
    for pair in records:
        funnel.add(pair)
    return funnel.stages(kind)
