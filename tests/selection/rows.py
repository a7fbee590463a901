"""Dialogues, judgments and adherence scores for the tests of this room."""

from __future__ import annotations

from typing import Any

from curate.dialogue import Dialogue, Lineage, Message
from curate.records import (
    AdherenceScore,
    AdherenceTurn,
    ConversationLevel,
    ConversationScore,
    JudgeIdentity,
    Judgment,
    LabelReading,
    RubricScores,
    TurnScores,
    Unscored,
    Verdict,
)

IDENTITY = JudgeIdentity(engine="scripted", model="judge", mode="json", prompt_version="1")


def dialogue(name: str, **fields: Any) -> Dialogue:
    given = {
        "messages": (
            Message(role="system", content="hidden"),
            Message(role="user", content=f"hello {name}"),
            Message(role="assistant", content="hi"),
        ),
        "lineage": Lineage(source="logs", file="a.jsonl", rows=(1,)),
    }
    return Dialogue(id=name, **(given | fields))


def judgment(
    of: Dialogue,
    *turns: tuple[int, int, int],
    verdict: Verdict = "good",
    conversation: tuple[Any, Any, Any] = (4, 4, "n/a"),
    spread: float | None = None,
    weakest: int | None = None,
    identity: JudgeIdentity = IDENTITY,
) -> Judgment:
    def reading(score: int) -> LabelReading | None:
        if spread is None:
            return None
        return LabelReading(mean=score - 0.25, spread=spread, coverage=0.9)

    def scored(value: Any) -> ConversationScore:
        return ConversationScore(
            score=value, reading=None if value == "n/a" else reading(int(value))
        )

    names = ("context_use", "helpfulness", "safety")
    coherence, task_completion, repair_handling = map(scored, conversation)
    return Judgment(
        dialogue_id=of.id,
        content_hash=of.content_hash,
        identity=identity,
        per_turn=tuple(
            TurnScores(
                turn=number,
                scores=RubricScores(**dict(zip(names, scores, strict=True))),
                issues=("vague",) if min(scores) < 4 else (),
                readings={
                    name: held
                    for name, score in zip(names, scores, strict=True)
                    if (held := reading(score)) is not None
                },
            )
            for number, scores in enumerate(turns or [(4, 4, 5)], start=1)
        ),
        conversation_level=ConversationLevel(
            coherence=coherence, task_completion=task_completion, repair_handling=repair_handling
        ),
        verdict=verdict,
        weakest_turn=weakest,
    )


def adherence(
    of: Dialogue, *scores: float | None, mode: Any = "continuous", threshold: float = 0.5
) -> AdherenceScore:
    known = [score for score in scores if score is not None]
    mean = sum(known) / len(known)
    return AdherenceScore(
        dialogue_id=of.id,
        content_hash=of.content_hash,
        identity=IDENTITY,
        scoring_method="llm_judge",
        output_mode=mode,
        evaluation_granularity="turn",
        definition="constructive",
        per_turn=tuple(
            AdherenceTurn(
                turn=number,
                score=score,
                adherent=None if score is None else score >= threshold,
                coverage=None if mode == "binary" else 0.8,
                unscored="bad_reply" if score is None else None,
            )
            for number, score in enumerate(scores, start=1)
        ),
        session_score=mean,
        interval=(max(0.0, mean - 0.1), min(1.0, mean + 0.1)),
        interval_method="bootstrap",
        adherent=mean >= threshold,
    )


def unscored(of: Dialogue, reason: str = "bad_reply", stage: str = "judge") -> Unscored:
    return Unscored(dialogue_id=of.id, content_hash=of.content_hash, stage=stage, reason=reason)
