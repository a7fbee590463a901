"""The prompts of the room: closed questions to the judge about a message, and the mending of one.

What is asked stands behind the trunk, and every question to the judge opens with the same short
instructions: both orders of a comparison, the question about details and those about where a dialogue
fails share their start, so that an engine with a prefix cache reads the dialogue once for all of them.
The texts are files in `prompts/`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.engines.layout import Defused, Trunk, defuse, fenced, trunk
from curate.pairs.wire import said_text

COMPARED = ("A", "B")
NONE_LETTER = "Z"
OPTION_LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXY")
"""Letters are single tokens in all common tokenizers; Z is kept for "none of them"."""


def _load(name: str) -> str:
    return (resources.files("curate.pairs") / "prompts" / name).read_text(encoding="utf-8")


EXAMINE, REVISE = _load("examine.md"), _load("revise.md")
_QUESTION_FILE = _load("questions.md")
ANSWER_PREFIX = "Answer:"
PROMPT_VERSION = (
    "pairs-2+"
    + hashlib.blake2b(
        "\0".join((EXAMINE, REVISE, _QUESTION_FILE, ANSWER_PREFIX)).encode(), digest_size=4
    ).hexdigest()
)
"""Names the prompts' wording; changes with any byte of it."""


@dataclass(frozen=True, slots=True)
class ClosedQuestion:
    """A question that is answered with one of a few letters.

    Attributes:
        trunk: the shared start.
        text: what is asked, without how to answer.
        labels: the letters, best guess last where one must be first (see `metering`).
        purpose: `pairs.<step>`, for accounting.
        neutralised: strings of the data that were defused, trunk included.
    """

    trunk: Trunk
    text: str
    labels: tuple[str, ...]
    purpose: str
    neutralised: int

    def messages(self, *, as_json: bool) -> tuple[Mapping[str, Any], ...]:
        """The chat messages, ending with how to answer."""
        example = '{"answer": "#"}'
        how = _section(
            "answer.json" if as_json else "answer", labels=listed(self.labels), example=example
        )
        return self.trunk.ask(f"{self.text}{how}\n")

    @property
    def schema(self) -> dict[str, Any]:
        """Of a reply in JSON."""
        return {
            "type": "object",
            "properties": {"answer": {"type": "string", "enum": list(self.labels)}},
            "required": ["answer"],
            "additionalProperties": False,
        }


def examined(dialogue: Dialogue) -> Trunk:
    """The trunk of all questions about a dialogue, or a part of it up to some message."""
    return trunk(EXAMINE, dialogue, dialogue.turns)


def comparison(prompt: Dialogue, first: Message, second: Message) -> ClosedQuestion:
    """Ask which of two candidates is better after the dialogue `prompt`.

    `first` is shown as candidate A, `second` as B.
    """
    bodies = [fenced_message("candidate", message) for message in (first, second)]
    candidates = "".join(
        f"Candidate {label}\n{body.text}" for label, body in zip(COMPARED, bodies, strict=True)
    )
    return _closed(
        prompt,
        _section("compare", candidates=candidates),
        COMPARED,
        "pairs.compare",
        sum(body.count for body in bodies),
    )


def specifics_question(
    prompt: Dialogue, message: Message, details: Sequence[str]
) -> ClosedQuestion:
    """Ask whether one of the details of a message, at most 25, is made up; Z says that none is."""
    body = fenced_message("candidate", message)
    shown = [defuse(" ".join(detail.split())) for detail in details]
    letters = OPTION_LETTERS[: len(details)]
    options = [f"{letter} = {detail.text}" for letter, detail in zip(letters, shown, strict=True)]
    text = _section(
        "specifics",
        candidate=body.text,
        options="\n".join([*options, f"{NONE_LETTER} = none of them is made up"]),
    )
    count = body.count + sum(detail.count for detail in shown)
    return _closed(prompt, text, (*letters, NONE_LETTER), "pairs.specifics", count)


def revision(prompt: Dialogue, original: Message, issue: str) -> tuple[Mapping[str, Any], ...]:
    """Chat messages that ask for a minimal revision of `original`, told the issue."""
    shown = trunk(REVISE, prompt, prompt.turns)
    return shown.ask(
        f"The message to mend\n{fenced('reply', original.content).text}"
        f"Issue: {defuse(' '.join(issue.split())).text}\n"
        "Write the mended message.\n"
    )


def fenced_message(tag: str, message: Message) -> Defused:
    """A message's text and tool calls between tags."""
    return fenced(tag, said_text(message) or "(empty)")


def listed(labels: Sequence[str]) -> str:
    """`A or B`, `A, B or Z`."""
    return " or ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))


def _closed(
    dialogue: Dialogue, text: str, labels: tuple[str, ...], purpose: str, count: int
) -> ClosedQuestion:
    shown = examined(dialogue)
    return ClosedQuestion(shown, f"{text}\n", labels, purpose, shown.neutralised + count)


def _section(name: str, **values: str) -> str:
    """A section of the question file, its `{name}`s filled in at one pass."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), _sections()[name])


@cache
def _sections() -> Mapping[str, str]:
    parts = re.split(r"^## (.+)\n", _QUESTION_FILE, flags=re.MULTILINE)[1:]
    return {name.strip(): body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
