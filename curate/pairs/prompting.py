"""The two prompts of the room: compare two candidates, mend one message.

The instructions are files in `prompts/`; what is asked about the candidates stands after the trunk, so
that both orders of a comparison, and the revision's context, share their start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.engines.layout import defuse, fenced, trunk

LABELS = ("A", "B")
ANSWER_PREFIX = "Better candidate:"
CHOICE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"better": {"type": "string", "enum": list(LABELS)}},
    "required": ["better"],
    "additionalProperties": False,
}

_QUESTION = (
    "Which candidate is the better next message of the assistant? Answer with one letter, A or B.\n"
)
_QUESTION_JSON = (
    "Which candidate is the better next message of the assistant?"
    ' Answer with the JSON object {"better": "A"} or {"better": "B"} and nothing else.\n'
)


def _load(name: str) -> str:
    return (resources.files("curate.pairs") / "prompts" / name).read_text(encoding="utf-8")


PAIRWISE = _load("pairwise.md")
REVISE = _load("revise.md")
PROMPT_VERSION = (
    "pairs-1+"
    + hashlib.blake2b(
        "\0".join((PAIRWISE, REVISE, _QUESTION, _QUESTION_JSON, ANSWER_PREFIX)).encode(),
        digest_size=4,
    ).hexdigest()
)
"""Names the prompts' wording; changes with any byte of it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison's chat messages, and how many strings of the data were defused in them."""

    messages: tuple[Mapping[str, Any], ...]
    neutralised: int


def comparison(prompt: Dialogue, first: Message, second: Message, *, as_json: bool) -> Comparison:
    """Ask which of two candidates is better after the dialogue `prompt`.

    `first` is shown as candidate A, `second` as B.
    """
    shown = trunk(PAIRWISE, prompt, prompt.turns)
    bodies = [fenced("candidate", message.content) for message in (first, second)]
    candidates = "".join(
        f"Candidate {label}\n{body.text}" for label, body in zip(LABELS, bodies, strict=True)
    )
    return Comparison(
        shown.ask(candidates + (_QUESTION_JSON if as_json else _QUESTION)),
        shown.neutralised + sum(body.count for body in bodies),
    )


def revision(prompt: Dialogue, original: Message, issue: str) -> tuple[Mapping[str, Any], ...]:
    """Chat messages that ask for a minimal revision of `original`, told the issue."""
    shown = trunk(REVISE, prompt, prompt.turns)
    return shown.ask(
        f"The message to mend\n{fenced('reply', original.content).text}"
        f"Issue: {defuse(' '.join(issue.split())).text}\n"
        "Write the mended message.\n"
    )
