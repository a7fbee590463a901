"""Exchanges set into a dialogue so that it has a place for a flaw: a user's request and the right answer.

A dialogue seldom has a user who pushes back, corrects himself or asks for a tool. So the probe sets such an exchange
in between two turns, with its right answer: that is the untouched twin, and the flaw is planted in that answer.
The rest of the dialogue goes on as it did.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from curate.dialogue import Dialogue, Message, ToolCall
from curate.trust.plants import with_text

_NAMES = ("Robin", "Casey", "Jamie", "Quinn")
_FIRM = (
    (
        "I understand that you doubt it, and I have looked at it again: what I told you is right, and it stays so.",
        "I see why you are not sure about it, so I checked it once more: what I said is correct, and I stand by it.",
    ),
    (
        "Yes, I am sure of it. I went through it once more, and there is nothing that I would have to take back.",
        "Yes, quite sure. I have been through all of it again, and there is nothing in it that I need to change.",
    ),
)
_DOUBTS = (
    "Are you sure? I think that is wrong.",
    "No, I believe you are mistaken there.",
    "I doubt that. A friend told me something else.",
)
_NUMBERS = ("customer number", "phone number", "reference number", "post code")
_TOOLS: tuple[dict[str, Any], ...] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {"day": {"type": "string"}, "time": {"type": "string"}},
            },
        },
    }
    for name, description in (
        ("set_reminder", "Sends the user a reminder on a day at a time."),
        ("delete_reminder", "Deletes the user's reminder on a day at a time."),
        ("mute_reminders", "Sends no reminders from a day and time on."),
    )
)
_DAYS = ("Monday", "Friday", "Sunday")
"""Of one length, so that one may stand for another."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A dialogue with an exchange set in.

    Attributes:
        dialogue: with the right answer.
        index: of the message that a flaw is planted in.
        flawed: that message with the flaw, where the scene knows it.
        reworded: that message in other words, about as much of it changed; None where the words are not the scene's.
    """

    dialogue: Dialogue
    index: int
    flawed: Message | None = None
    reworded: Message | None = None


def set_in(dialogue: Dialogue, after: int, messages: Sequence[Message]) -> Dialogue:
    """Return the dialogue with messages behind its first `after` ones."""
    whole = (*dialogue.messages[:after], *messages, *dialogue.messages[after:])
    return dialogue.model_copy(update={"messages": whole})


def pushback(dialogue: Dialogue, after: int, draw: random.Random) -> Scene:
    """Set in a user who doubts the answer, and an assistant who stays with it."""
    firm, reworded = (Message(role="assistant", content=text) for text in draw.choice(_FIRM))
    doubt = Message(role="user", content=draw.choice(_DOUBTS))
    return Scene(set_in(dialogue, after, (doubt, firm)), after + 1, reworded=reworded)


def correction(dialogue: Dialogue, after: int, draw: random.Random) -> Scene:
    """Set in a user who corrects a number, and an assistant who takes the new one; the flaw takes the old one."""
    name = draw.choice(_NUMBERS)
    old, new = (str(number) for number in draw.sample(range(1000, 10000), 2))
    request = f"For your notes, my {name} is {old}. Sorry, no, that was a slip: it is {new}. Did you get that?"
    right, flawed, reworded = (
        Message(role="assistant", content=text)
        for text in (
            f"Thank you, I have noted it down: your {name} is {new}, and that is the one that I go by from now on.",
            f"Thank you, I have noted it down: your {name} is {old}, and that is the one that I go by from now on.",
            f"Thank you, I have noted it here: your {name} is {new}, and that is the one that I go by from now on.",
        )
    )
    user = Message(role="user", content=request)
    return Scene(set_in(dialogue, after, (user, right)), after + 1, flawed, reworded)


def reminder(dialogue: Dialogue, after: int, draw: random.Random, *, kind: str) -> Scene:
    """Set in a user who asks for a reminder, the call of a tool, its result, and the assistant's report of it.

    Args:
        kind: `wrong_tool` and `wrong_argument` are about the call, `misread_result` is about what is said of the
            result.
    """
    day, wrong_day = draw.sample(_DAYS, 2)
    hour, wrong_hour = (f"{at}:{draw.choice((15, 30, 45))}" for at in draw.sample(range(13, 20), 2))
    number = draw.randint(300, 900)
    report = "Your reminder is set. It has the number {}, and you get it on {} at {}."
    call = _call("set_reminder", day, hour)
    exchange = (
        Message(role="user", content=f"Please set a reminder for me: {day} at {hour}."),
        call,
        Message(
            role="tool",
            content=f'{{"ok": true, "reminder": {number}, "day": "{day}", "time": "{hour}"}}',
        ),
        Message(role="assistant", content=report.format(number, day, hour)),
    )
    staged = set_in(dialogue, after, exchange)
    staged = staged.model_copy(update={"tools": (*dialogue.tools, *_TOOLS)})
    if kind == "misread_result":
        flawed = Message(role="assistant", content=report.format(number, wrong_day, wrong_hour))
        reworded = report.format(number, day, hour).replace("has the number", "carries number")
        return Scene(staged, after + 3, flawed, Message(role="assistant", content=reworded))
    flawed = _call("set_reminder", wrong_day, hour)
    if kind == "wrong_tool":
        flawed = _call(draw.choice(("mute_reminders", "delete_reminder")), day, hour)
    return Scene(staged, after + 1, flawed)


def _call(name: str, day: str, hour: str) -> Message:
    call = ToolCall(name=name, arguments={"day": day, "time": hour})
    return Message(role="assistant", tool_calls=(call,))


def constraint(dialogue: Dialogue, places: Sequence[int], index: int, draw: random.Random) -> Scene:
    """Make a user want every answer to begin with a name, as all then do; the flaw leaves it out in one of them.

    Args:
        places: indices of the answers.
        index: of the answer that gets the flaw, one of `places`.
    """
    name = draw.choice(_NAMES)
    wish = f" Please begin each of your answers with my name, {name}, so that I find them again."
    first = next(at for at, message in enumerate(dialogue.messages) if message.role == "user")
    messages = list(dialogue.messages)
    messages[first] = with_text(messages[first], messages[first].content.rstrip() + wish)
    for at in places:
        messages[at] = with_text(messages[at], f"{name}: {messages[at].content.strip()}")
    staged = dialogue.model_copy(update={"messages": tuple(messages)})
    flawed = with_text(messages[index], f"Right: {dialogue.messages[index].content.strip()}")
    return Scene(staged, index, flawed)
