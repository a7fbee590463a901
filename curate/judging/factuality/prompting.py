"""Prompts of the factuality judge: one question a turn, on the trunk that ends with that turn.

The trunks of a dialogue are nested, so a prefix cache reads it once, and no claim is checked against what came later.
A long turn is asked about in parts, each repeated behind the dialogue: split, never cut.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, get_args

from curate.dialogue import Dialogue, Turn
from curate.engines.base import Request
from curate.engines.layout import Defused, Trunk, defuse, fenced, lay_out, nested
from curate.engines.prompt_files import fill, prompt_file, prompt_sections
from curate.engines.structured import closed_object
from curate.judging.factuality.config import FactualityConfig
from curate.records.factuality import ClaimLabel, Evidence

PURPOSE = "factuality.claims"
LABELS: tuple[ClaimLabel, ...] = get_args(ClaimLabel)
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|\S+")
# A piece ends behind a blank line, else a line, else a sentence, else a blank.
_ENDS = (r"\n\s*\n", r"\n", r"[.!?…](?=\s)|[。!?]", r"\s")
_CLAIM_TOKENS = 80
"""Bound of one claim in JSON: its words, its label and evidence."""


def prompt_version() -> str:
    """Return the version of the texts; for the judge's identity and the stage's fingerprint."""
    content = prompt_file("judging", "factuality_instructions") + prompt_file(
        "judging", "factuality_questions"
    )
    return f"factuality-1-{hashlib.blake2b(content.encode(), digest_size=4).hexdigest()}"


def trunks(dialogue: Dialogue, config: FactualityConfig) -> dict[int, Trunk]:
    """Return, by turn number, the shared start of the questions about that turn."""
    parts = [
        ("role", dialogue.role_definition),
        ("scenario", dialogue.scenario),
        ("evidence", "\n\n".join(dialogue.evidence)),
    ]
    bare = lay_out(prompt_file("judging", "factuality_instructions"), parts, Defused("", 0))
    nested_trunks = nested(bare, dialogue.turns, show_reasoning=config.show_reasoning)
    return {turn.number: trunk for turn, trunk in zip(dialogue.turns, nested_trunks, strict=True)}


def said_in(turn: Turn) -> str:
    """Return all text of the assistant in a turn; tool calls claim nothing."""
    texts = (m.content.strip() for m in turn.messages if m.role == "assistant")
    return "\n\n".join(filter(None, texts))


def split(text: str, words: int) -> list[str]:
    """Cut a text into pieces of at most so many words; joined they are the text.

    Cut behind paragraphs where that is enough, else lines, else sentences, else anywhere between words (or characters).
    """
    return _split(text, words, 0) if text else []


def _split(text: str, words: int, level: int) -> list[str]:
    if _words(text) <= words:
        return [text]
    if level == len(_ENDS):
        # One word of a script without spaces, or without an end: by its characters.
        return [text[at : at + words] for at in range(0, len(text), words)]
    ends = [match.end() for match in re.finditer(_ENDS[level], text)]
    pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True) if a < b]
    parts: list[str] = []
    for piece in pieces:
        if parts and _words(parts[-1]) + _words(piece) <= words:
            parts[-1] += piece
        else:
            parts += _split(piece, words, level + 1)
    return parts


def _words(text: str) -> int:
    return len(_WORD.findall(text))


def evidence_of(dialogue: Dialogue, turn: Turn) -> tuple[Evidence, ...]:
    """Return the evidence that claims of a turn are checked against, the judge's own knowledge last."""
    turns_so_far = [other for other in dialogue.turns if other.number <= turn.number]
    kinds: list[Evidence] = []
    if any(message.role == "tool" for other in turns_so_far for message in other.messages):
        kinds.append("tool_result")
    if any(text.strip() for text in dialogue.evidence):
        kinds.append("document")
    # The user's message opens the turn, so what it says stands before the assistant's.
    if any(message.role == "user" for other in turns_so_far for message in other.messages):
        kinds.append("earlier_turn")
    return (*kinds, "model_knowledge")


def schema(config: FactualityConfig, evidence: Sequence[Evidence]) -> dict[str, Any]:
    """Return the JSON schema of a reply. No string lengths: they are costly in grammars."""
    claim = closed_object(
        {
            "words": {"type": "string"},
            "label": {"type": "string", "enum": list(LABELS)},
            "evidence": {"type": "string", "enum": list(evidence)},
        }
    )
    claims = {"type": "array", "items": claim, "maxItems": config.max_claims}
    return closed_object({"claims": claims})


def request(
    trunk: Trunk,
    turn: int,
    part: str | None,
    config: FactualityConfig,
    evidence: Sequence[Evidence],
    *,
    problem: str | None = None,
) -> Request:
    """Return the request for the claims of a turn.

    Args:
        part: of its text; None for all of it.
        problem: why the last reply could not be used.
    """
    sections = prompt_sections("judging", "factuality_questions")
    form = json.dumps({"claims": [{"words": "...", "label": "...", "evidence": "..."}]})
    text = fill(
        sections["question"],
        turn=turn,
        part="" if part is None else " " + sections["part"],
        most=config.max_claims,
        form=form,
        evidence=", ".join(evidence),
    )
    retry = [] if problem is None else [fill(sections["again"], reason=defuse(problem).text)]
    part_text = "" if part is None else fenced("part", part).text
    return Request(
        trunk,
        part_text + "\n".join([text, *retry]),
        max_tokens=64 + _CLAIM_TOKENS * config.max_claims,
        schema=schema(config, evidence),
        purpose=PURPOSE,
        turns=(turn,),
    )
