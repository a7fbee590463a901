"""Prompts of the role adherence judge: rendering only, nothing here reads a reply.

The prompts of a dialogue's turns are nested: each is the one before and the turns since. What is asked stands
before the dialogue, which ends the prompt, since a small judge loses sight of a turn behind anything more. The
reason for an answer is asked behind the same dialogue. An engine with a prefix cache reads every turn once.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, get_args

from curate.adherence.config import AdherenceConfig, Definition
from curate.dialogue import Dialogue
from curate.engines.base import Request
from curate.engines.layout import Trunk, nested, trunk
from curate.engines.prompt_files import fill, prompt_file
from curate.engines.structured import closed_object
from curate.records import ViolationKind

LABELS = ("yes", "Yes", "YES", "no", "No", "NO")
"""Spellings asked for by name, for engines that look up exact labels; others are found in the top-k."""

_HEADINGS = {"user": "user message", "assistant": "assistant response"}
"""The words of the prompt files."""

_TURN_FILES = ("constructive", "restrictive", "retry")
_CONVERSATION_FILES = ("conversation_constructive", "conversation_restrictive", "retry")
_REASON_FILES = ("reason_adherent", "reason_violation", "reason_retry")
_SUBJECTS = {
    "turn": "The assistant's last response does",
    "conversation": "The assistant's responses do",
}
_KINDS: dict[ViolationKind, str] = {
    "scope": "scope (outside what the role covers)",
    "tone": "tone (not in the manner the role asks for)",
    "constructive": "constructive (what the role demands is not done)",
    "other": "other",
}


def prompt(name: str) -> str:
    """Return the text of one prompt file."""
    return prompt_file("adherence", name)


def _version(name: str, files: tuple[str, ...]) -> str:
    digest = hashlib.blake2b(digest_size=4)
    for file in files:
        digest.update(prompt(file).encode() + b"\0")
    return f"{name}+{digest.hexdigest()}"


PROMPT_VERSION = _version("adherence-3", _TURN_FILES)
"""Version of what is asked about turns and a hash of its text; part of every score's identity."""
CONVERSATION_VERSION = _version("adherence-conversation-2", _CONVERSATION_FILES)
"""The same of the question about the whole conversation."""
REASON_VERSION = _version("adherence-reason-2", _REASON_FILES)
"""The same of the request for a reason. No part of a score's identity, since it follows the answer."""


def prompt_version(config: AdherenceConfig) -> str:
    """Return the version of the prompts that determine this config's scores."""
    is_turn = config.evaluation_granularity == "turn"
    return PROMPT_VERSION if is_turn else CONVERSATION_VERSION


def nested_trunks(
    dialogue: Dialogue, config: AdherenceConfig, rubric: str | None = None
) -> list[Trunk]:
    """Return the trunk that ends with each assistant turn, in order.

    Args:
        rubric: what is asked, in place of the definition's question about a turn.
    """
    instructions = rubric or prompt(config.definition)
    bare = trunk(instructions, dialogue, (), show_scenario=False)
    trunks = nested(bare, dialogue.turns, show_reasoning=config.show_reasoning, headings=_HEADINGS)
    return [
        turn_trunk
        for turn, turn_trunk in zip(dialogue.turns, trunks, strict=True)
        if turn.has_assistant
    ]


def answer_request(on: Trunk, config: AdherenceConfig, problem: str | None = None) -> Request:
    """Return the request for the answer about a trunk's last turn, or all of it (`evaluation_granularity`).

    Args:
        on: the trunk that ends with this turn.
        problem: why an earlier reply could not be read; makes this a retry.
    """
    continuous = config.output_mode == "continuous"
    if problem is None:
        step, trunk_to_ask, question = (
            str(config.evaluation_granularity),
            on.ending_with_dialogue(),
            "",
        )
    else:
        step, trunk_to_ask, question = "retry", on, fill(prompt("retry"), problem=problem)
    return Request(
        trunk_to_ask,
        question,
        max_tokens=1 if continuous else config.max_reply_tokens,
        prefill=config.answer_prefix or "",
        labels=LABELS if continuous else (),
        purpose=f"adherence.{step}",
    )


def violation_kinds(definition: Definition) -> tuple[ViolationKind, ...]:
    """Return the kinds of violation; under the restrictive definition, leaving out a demand is none."""
    kinds: tuple[ViolationKind, ...] = get_args(ViolationKind)
    return tuple(k for k in kinds if definition == "constructive" or k != "constructive")


def reason_schema(config: AdherenceConfig, *, adherent: bool) -> dict[str, Any]:
    """Return the JSON schema of a reason."""
    text = {"type": "string"}
    properties: dict[str, Any] = {}
    if not adherent:
        kinds = list(violation_kinds(config.definition))
        properties = {"violation": {"type": "string", "enum": kinds}, "role_words": text}
    properties["reason"] = text
    return closed_object(properties)


def reason_request(
    on: Trunk, config: AdherenceConfig, *, adherent: bool, problem: str | None = None
) -> Request:
    """Return the request for the reason of an answer, on the trunk of its question.

    Args:
        problem: why an earlier reply could not be used; makes this a retry.
    """
    schema = reason_schema(config, adherent=adherent)
    subject = _SUBJECTS[config.evaluation_granularity]
    if adherent:
        question = fill(prompt("reason_adherent"), subject=subject)
    else:
        kinds = ", ".join(_KINDS[kind] for kind in violation_kinds(config.definition))
        question = fill(prompt("reason_violation"), subject=subject, kinds=kinds)
    question += json.dumps(dict.fromkeys(schema["properties"], "...")) + "\n"
    if problem is not None:
        question += fill(prompt("reason_retry"), problem=problem)
    return Request(
        on,
        question,
        max_tokens=config.max_reason_tokens,
        schema=schema,
        purpose="adherence.reason",
    )
