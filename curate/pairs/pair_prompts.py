"""The prompts of the room: closed questions to the judge about a message, and requests to revise one.

What is asked stands behind the trunk, and every question to the judge opens with the same short
instructions: both orders of a comparison, the question about details and those about where a dialogue
fails share their start, so that an engine with a prefix cache reads the dialogue once for all of them.
The texts are files in `prompts/`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.engines.label_mass import LETTER_PREFIX
from curate.engines.layout import Defused, Trunk, defuse, fenced, trunk
from curate.engines.prompt_files import fill, prompt_file, prompt_sections
from curate.engines.structured import closed_object
from curate.pairs.prefix import said_text
from curate.wording import joined

COMPARED = ("A", "B")
NONE = "none"
"""What an option that names nothing stands for."""
_LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Letters are single tokens in all common tokenizers."""
MAX_OPTIONS = len(_LETTERS) - 1
"""Most options of a question beside "none of them"."""


_FILES = ("examine", "revise", "revise_call", "questions")
EXAMINE, REVISE, REVISE_CALL, _QUESTIONS = (prompt_file("pairs", name) for name in _FILES)
PROMPT_VERSION = (
    "pairs-2+"
    + hashlib.blake2b(
        "\0".join((EXAMINE, REVISE, REVISE_CALL, _QUESTIONS, LETTER_PREFIX)).encode(),
        digest_size=4,
    ).hexdigest()
)
"""Names the prompts' wording; changes with any byte of it."""


@dataclass(frozen=True, slots=True)
class ClosedQuestion:
    """A question that is answered with one of a few letters.

    Attributes:
        text: what is asked, without how to answer.
        meanings: what each letter stands for, in the letters' order.
        purpose: `pairs.<step>`, for accounting.
        neutralised: strings of the data that were defused, trunk included.
    """

    trunk: Trunk
    text: str
    labels: tuple[str, ...]
    meanings: tuple[str, ...]
    purpose: str
    neutralised: int

    def question(self, *, as_json: bool) -> str:
        """Return the question behind the trunk, ending with how to answer."""
        name = "answer.json" if as_json else "answer"
        how = _section(name, labels=joined(self.labels, "or"), example='{"answer": "#"}')
        return f"{self.text}{how}\n"

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the reply."""
        return closed_object({"answer": {"type": "string", "enum": list(self.labels)}})


def examined(dialogue: Dialogue) -> Trunk:
    """Return the trunk of all questions about a dialogue, or a part of it up to some message."""
    return trunk(EXAMINE, dialogue, dialogue.turns)


def comparison(prompt: Dialogue, first: Message, second: Message) -> ClosedQuestion:
    """Ask which of two candidates is better after the dialogue `prompt`.

    `first` is shown as candidate A, `second` as B.
    """
    bodies = [fenced_message("candidate", message) for message in (first, second)]
    candidates = "".join(
        f"Candidate {label}\n{body.text}" for label, body in zip(COMPARED, bodies, strict=True)
    )
    return closed(
        prompt,
        _section("compare", candidates=candidates),
        dict(zip(COMPARED, COMPARED, strict=True)),
        "pairs.compare",
        sum(body.count for body in bodies),
    )


def specifics_questions(
    prompt: Dialogue, message: Message, details: Sequence[str]
) -> list[ClosedQuestion]:
    """Ask, in every order, which of the details of a message, at most 25, is made up.

    A detail's meaning is the detail itself; `NONE` says that none is.
    """
    body = fenced_message("candidate", message)
    defused = {detail: defuse(" ".join(detail.split())) for detail in details}
    count = body.count + sum(detail.count for detail in defused.values())
    texts = {detail: text.text for detail, text in defused.items()}
    texts[NONE] = "none of them is made up"
    return _in_every_order(prompt, "specifics", texts, count, candidate=body.text)


def suffices_questions(dialogue: Dialogue, turn: int, later: Sequence[int]) -> list[ClosedQuestion]:
    """Ask, in every order, whether repairing a turn would repair the later bad ones: `yes` or `no`."""
    texts = {
        "yes": "yes, its later faults follow from it",
        "no": "no, at least one of them is a fault of its own",
    }
    later_turns = f"turn{'s' if len(later) > 1 else ''} {joined(later)}"
    return _in_every_order(dialogue, "suffices", texts, 0, turn=str(turn), later=later_turns)


def failed_questions(
    dialogue: Dialogue, turn: int, messages: Sequence[Message], options: Mapping[str, str]
) -> list[ClosedQuestion]:
    """Ask, in every order, which message of a turn failed first, and how.

    Args:
        dialogue: cut after the turn.
        options: meaning to its words; `NONE`, that none can be named, is added.
    """
    bodies = [fenced_message("reply", message) for message in messages]
    texts = {**options, NONE: "none of them can be named"}
    tools = fenced_tools(dialogue)
    count = tools.count + sum(body.count for body in bodies)
    numbered_messages = "".join(
        f"Message {at}\n{body.text}" for at, body in enumerate(bodies, start=1)
    )
    values = {"tools": tools.text, "turn": str(turn), "messages": numbered_messages}
    return _in_every_order(dialogue, "failed", texts, count, **values)


def critique(prompt: Dialogue, original: Message, principles: Sequence[str]) -> tuple[Trunk, str]:
    """Return trunk and question that ask the judge which principles a message breaks, in words."""
    text = _section(
        "critique",
        message=fenced_message("reply", original).text,
        principles=_numbered(principles),
    )
    return examined(prompt), f"{text}\n"


def revision(
    prompt: Dialogue, original: Message, issue: str, principles: Sequence[str] = ()
) -> tuple[Trunk, str]:
    """Return trunk and question that ask for a minimal revision of `original`, told the issue.

    Where a message calls tools its calls are revised, and asked for as JSON objects.
    """
    is_call = bool(original.tool_calls)
    start = trunk(REVISE_CALL if is_call else REVISE, prompt, prompt.turns)
    tools = fenced_tools(prompt).text if is_call else ""
    rules = f"Principles it must hold to:\n{_numbered(principles)}\n" if principles else ""
    return start, (
        f"{tools}The message to mend\n{fenced_message('reply', original).text}"
        f"{rules}Issue: {defuse(' '.join(issue.split())).text}\n"
        f"Write the mended {'calls' if is_call else 'message'}.\n"
    )


def fenced_message(tag: str, message: Message) -> Defused:
    """Return a message's text and tool calls between tags."""
    return fenced(tag, said_text(message) or "(empty)")


def _in_every_order(
    dialogue: Dialogue, name: str, texts: Mapping[str, str], count: int, **values: str
) -> list[ClosedQuestion]:
    """Return a question once per option, so that each option (meaning to words) is at every place once."""
    meanings = list(texts)
    questions = []
    for at in range(len(meanings)):
        order = [*meanings[at:], *meanings[:at]]
        letters, options = lettered_options({meaning: texts[meaning] for meaning in order})
        text = _section(name, options=options, **values)
        questions.append(closed(dialogue, text, letters, f"pairs.{name}", count))
    return questions


def lettered_options(texts: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return letter to meaning, and the options as they are shown, both in the given order."""
    letters = dict(zip(_LETTERS, texts, strict=False))
    lines = [f"{letter} = {texts[meaning]}" for letter, meaning in letters.items()]
    return letters, "\n".join(lines)


def _numbered(principles: Sequence[str]) -> str:
    """Number the principles, which come from the recipe as the instructions do: nothing in them is defused."""
    return "\n".join(f"{at}. {' '.join(text.split())}" for at, text in enumerate(principles, 1))


def fenced_tools(dialogue: Dialogue) -> Defused:
    """Return the dialogue's tools between fences, or nothing where it has none."""
    lines = [json.dumps(tool, ensure_ascii=False) for tool in dialogue.tools]
    return fenced("tools", "\n".join(lines))


def closed(
    dialogue: Dialogue, text: str, letters: Mapping[str, str], purpose: str, count: int
) -> ClosedQuestion:
    """Return a question behind the dialogue, its letters with their meanings, strings defused in its text."""
    start = examined(dialogue)
    return ClosedQuestion(
        start,
        f"{text}\n",
        tuple(letters),
        tuple(letters.values()),
        purpose,
        start.neutralised + count,
    )


def _section(name: str, **values: str) -> str:
    return fill(prompt_sections("pairs", "questions")[name], **values)
