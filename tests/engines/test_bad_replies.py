"""Which questions are asked again, how often, with which sample index, and what is left of their replies."""

from collections.abc import Iterable, Sequence

import pytest

from curate.engines.bad_replies import ask_until_read
from curate.engines.base import Completion, Request
from curate.engines.layout import Trunk


class Replies:
    """Answers each question with its replies in turn, and keeps the calls as (question, sample)."""

    def __init__(self, **replies: Iterable[str]) -> None:
        self.replies = {name: iter(texts) for name, texts in replies.items()}
        self.calls: list[list[tuple[str, int]]] = []

    async def ask(self, requests: Sequence[Request]) -> list[Completion]:
        self.calls.append([(request.question, request.sample) for request in requests])
        names = [request.question.split(":")[0] for request in requests]
        return [Completion(text=next(self.replies[name])) for name in names]

    async def read(
        self, retries: int, *, first: int = 0, **samples: int
    ) -> tuple[dict[str, str], int]:
        """Ask again where a reply starts with "bad"; the first question has the sample index `first`, the next one more."""
        indices = {name: first + at for at, name in enumerate(self.replies)}

        def request(name: str, problem: str | None) -> Request:
            question = name if problem is None else f"{name}: {problem}"
            return Request(Trunk(""), question, max_tokens=1, sample=indices[name])

        def read(name: str, completion: Completion) -> tuple[str, str | None]:
            said = f"{name} says {completion.text}"
            return said, f"not {completion.text}" if completion.text.startswith("bad") else None

        return await ask_until_read(self.replies, request, read, self.ask, retries, **samples)


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_a_question_is_asked_once_and_again_as_often_as_the_retries(retries: int) -> None:
    replies = Replies(a=["bad 1", "bad 2", "bad 3", "good"])
    readings, sent = await replies.read(retries)
    asked = [[("a", 0)], [("a: not bad 1", 1)], [("a: not bad 2", 2)]]
    assert replies.calls == asked[: retries + 1]
    assert (readings, sent) == ({"a": f"a says bad {retries + 1}"}, retries + 1)


async def test_only_what_could_not_be_read_is_asked_again_and_nothing_once_all_is_read() -> None:
    replies = Replies(a=["good"], b=["bad 1", "bad 2", "fine"], c=["bad", "well"])
    readings, sent = await replies.read(5, first=3, samples=10)
    assert replies.calls == [
        [("a", 3), ("b", 4), ("c", 5)],
        [("b: not bad 1", 14), ("c: not bad", 15)],
        [("b: not bad 2", 24)],
    ]
    assert readings == {"a": "a says good", "b": "b says fine", "c": "c says well"}
    assert sent == 6


async def test_where_nothing_is_asked_no_call_is_made() -> None:
    replies = Replies()
    assert await replies.read(2) == ({}, 0)
    assert replies.calls == []
