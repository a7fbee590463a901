"""Questions that are asked again, with the reason, where a reply cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from curate.engines.base import Ask, Completion, Request

Key = TypeVar("Key")
Reading = TypeVar("Reading")


async def ask_until_read(
    keys: Iterable[Key],
    request: Callable[[Key, str | None], Request],
    read: Callable[[Key, Completion], tuple[Reading, str | None]],
    ask: Ask,
    retries: int,
    *,
    samples: int = 1,
) -> tuple[dict[Key, Reading], int]:
    """Ask about each key in one call, then again in further calls about those whose reply had a problem.

    The sample index is raised, or the response cache would answer a second retry with the reply to the first.

    Args:
        request: the question about a key, told the problem of the reply before.
        read: what a reply says, and why it is asked for again; None where it is not.
        samples: replies to one question that `request` tells apart by their sample index; each further call
            raises it by so many.

    Returns:
        The last reading of each key, and the number of requests.
    """
    readings: dict[Key, Reading] = {}
    problems: dict[Key, str | None] = dict.fromkeys(keys)
    sent = 0
    for attempt in range(retries + 1):
        if not problems:
            break
        questions = [request(key, problem) for key, problem in problems.items()]
        requests = [
            replace(question, sample=question.sample + attempt * samples) for question in questions
        ]
        sent += len(requests)
        completions = await ask(requests)
        unread: dict[Key, str | None] = {}
        for key, completion in zip(problems, completions, strict=True):
            readings[key], problem = read(key, completion)
            if problem is not None:
                unread[key] = problem
        problems = unread
    return readings, sent
