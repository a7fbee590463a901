"""A server that fails by a plan: what it does to a call follows from a seed, the body, and how often it came.

`Plan` is an `answer` of `tests.servers.CountingServer`. Every fault here is one that passes: the same body gets its right
answer after at most two. What a model says wrongly (a refusal, text of another form) is a reply, and no fault.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.servers import Body, answer_by_hash, body_hash, chat_completion


class Truncated(web.Response):
    """Promises more than it sends, then hangs up."""

    async def prepare(self, request: web.BaseRequest) -> Any:
        assert request.transport is not None
        request.transport.write(  # type: ignore[attr-defined]
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
            b'{"choices": [{"message": {"content": "half'
        )
        request.transport.close()
        return await super().prepare(request)


class Reset(web.Response):
    """Hangs up without a word."""

    async def prepare(self, request: web.BaseRequest) -> Any:
        assert request.transport is not None
        request.transport.abort()  # type: ignore[attr-defined]
        return await super().prepare(request)


class Pieces(web.StreamResponse):
    """A body in pieces with pauses between; one that does not end is blanks until the server hangs up."""

    def __init__(self, data: bytes, pause: float, *, ends: bool) -> None:
        super().__init__(headers={"Content-Type": "application/json"})
        self._data, self._pause, self._ends = data, pause, ends

    async def prepare(self, request: web.BaseRequest) -> Any:
        writer = await super().prepare(request)
        step = max(1, len(self._data) // 5)
        for start in range(0, len(self._data), step):
            await self.write(self._data[start : start + step])
            await asyncio.sleep(self._pause)
        for _ in range(0 if self._ends else 40):
            await self.write(b" " * 1000)
            await asyncio.sleep(0.05)
        if not self._ends and request.transport is not None:
            request.transport.abort()  # type: ignore[attr-defined]
        return writer


def _status(status: int, body: Any, **headers: str) -> Callable[[Body], web.Response]:
    return lambda _: web.json_response(body, status=status, headers=headers)


def _text(text: str) -> Callable[[Body], web.Response]:
    return lambda _: web.Response(text=text, content_type="application/json")


def _whole(body: Body) -> Body:
    return chat_completion(answer_by_hash(body), body)


def _changed(*path: str | int, to: Any) -> Callable[[Body], web.Response]:
    """The right reply with one field of another type or value."""

    def answer(body: Body) -> web.Response:
        reply = json.loads(json.dumps(_whole(body)))
        inner = reply
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to
        return web.Response(text=json.dumps(reply), content_type="application/json")

    return answer


async def _hang(_: Body) -> web.StreamResponse:
    await asyncio.sleep(2)
    return Reset()


_TOP = ("choices", 0, "logprobs", "content", 0, "top_logprobs", 0, "logprob")
FAULTS: dict[str, Callable[[Body], Any]] = {
    "429 with Retry-After": _status(429, {"error": {"message": "slow"}}, **{"Retry-After": "0"}),
    "429": _status(429, {"error": {"message": "slow"}}),
    "500": _status(500, {"error": {"message": "oops"}}),
    "502": _status(502, "<html>"),
    "503": _status(503, {}),
    "hang": _hang,
    "cut": lambda _: Truncated(),
    "reset": lambda _: Reset(),
    "without end": lambda body: Pieces(json.dumps(_whole(body)).encode(), 0.0, ends=False),
    "invalid JSON": _text("{'choices': nothing}"),
    "truncated JSON": lambda body: web.Response(body=json.dumps(_whole(body)).encode()[:-20]),
    "HTML": lambda _: web.Response(text="<html>Welcome</html>", content_type="text/html"),
    "empty": _text(""),
    "no choices": _changed("choices", to=[]),
    "choices of another type": _changed("choices", to="x"),
    "a choice of another type": _changed("choices", 0, to=7),
    "no message": _changed("choices", 0, "message", to=None),
    "a message of another type": _changed("choices", 0, "message", to=["x"]),
    "content of another type": _changed("choices", 0, "message", "content", to={"a": 1}),
    "usage of another type": _changed("usage", to=[1]),
    "counts below 0": _changed("usage", "prompt_tokens", to=-5),
    "counts of another type": _changed("usage", "completion_tokens", to="many"),
}
OF_LABELS: dict[str, Callable[[Body], Any]] = {
    "logprobs missing": _changed("choices", 0, "logprobs", to=None),
    "logprobs of another type": _changed("choices", 0, "logprobs", to=[1]),
    "logprobs empty": _changed("choices", 0, "logprobs", "content", to=[]),
    "NaN": _changed(*_TOP, to=float("nan")),
    "infinite": _changed(*_TOP, to=float("-inf")),
    "huge": _changed(*_TOP, to=1e300),
    "a logprob of another type": _changed(*_TOP, to="-1"),
}
OF_WORDS: dict[str, Callable[[Body], Any]] = {
    "null content": _changed("choices", 0, "message", "content", to=None),
}


@dataclass
class Plan:
    """Answers calls about dialogues right after none, one or two faults; all other calls at once.

    Attributes:
        seed: of the plan.
        faults: how often each was used.
        given: right answers by body: one that comes twice was asked for again.
        is_calm: no faults at all.
    """

    seed: int
    is_calm: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    given: Counter[str] = field(default_factory=Counter)
    _asked: Counter[str] = field(default_factory=Counter)

    def __call__(self, body: Body) -> Body | str | web.StreamResponse | Awaitable[Any]:
        """The answer to a call."""
        key = body_hash(body)
        if self.is_calm or "chat " not in json.dumps(body["messages"]):
            self.given[key] += 1
            return answer_by_hash(body)
        draw = random.Random(f"{self.seed} {key}")
        kinds = {**FAULTS, **(OF_LABELS if body.get("logprobs") else OF_WORDS)}
        # What takes a second is rare, or a test would take minutes.
        names = [name for name in kinds if name not in ("hang", "without end")] * 8 + list(kinds)
        planned = draw.choices(names, k=draw.choice((0, 0, 1, 2)))
        at, self._asked[key] = self._asked[key], self._asked[key] + 1
        if at < len(planned):
            self.faults[planned[at]] += 1
            answer: Any = kinds[planned[at]](body)
            return answer  # type: ignore[no-any-return]
        self.given[key] += 1
        if draw.random() < 0.05:
            return Pieces(json.dumps(_whole(body)).encode(), 0.02, ends=True)
        return answer_by_hash(body)
