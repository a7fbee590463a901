"""A server that fails by a plan: what it does to a call follows from a seed, the body, and how often it came.

`Plan` is an `answer` of `tests.servers.CountingServer`. Every fault here is one that passes: the same body gets its right
answer after at most two. What a model says wrongly (a refusal, text of another form, scores of other turns) is a reply,
and no fault; a server that replies as another model ends a run. Both have tests of their own.
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


class Repeated(web.Response):
    """The right reply, and the same one again right behind it, to a question that nobody asked."""

    async def prepare(self, request: web.BaseRequest) -> Any:
        assert request.transport is not None
        assert isinstance(self.body, bytes)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(self.body)}\r\n\r\n"
        request.transport.write((head.encode() + self.body) * 2)  # type: ignore[attr-defined]
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


def _with(**fields: Any) -> Callable[[Body], web.Response]:
    """The right reply with further fields in its choice."""

    def answer(body: Body) -> web.Response:
        reply = json.loads(json.dumps(_whole(body)))
        reply["choices"][0] |= fields
        return web.json_response(reply)

    return answer


def _choice_twice(body: Body) -> web.Response:
    reply = _whole(body)
    return web.json_response(reply | {"choices": reply["choices"] * 2})


async def _hang(_: Body) -> web.StreamResponse:
    await asyncio.sleep(2)
    return Reset()


async def _wait(body: Body) -> web.StreamResponse:
    await asyncio.sleep(0.3)
    return web.json_response(_whole(body))


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
    "finish_reason of another type": _changed("choices", 0, "finish_reason", to=["stop"]),
    "the server's own failure": _changed("choices", 0, "finish_reason", to="abort"),
    "tool calls of another type": _changed("choices", 0, "message", "tool_calls", to="none"),
    "a tool call of another type": _changed("choices", 0, "message", "tool_calls", to=["find"]),
    "a tool call without a function": _changed(
        "choices", 0, "message", "tool_calls", to=[{"id": 7}]
    ),
}
OF_LABELS: dict[str, Callable[[Body], Any]] = {
    "logprobs missing": _changed("choices", 0, "logprobs", to=None),
    "logprobs of another type": _changed("choices", 0, "logprobs", to=[1]),
    "logprobs empty": _changed("choices", 0, "logprobs", "content", to=[]),
    "NaN": _changed(*_TOP, to=float("nan")),
    "minus infinity": _changed(*_TOP, to=float("-inf")),
    "plus infinity": _changed(*_TOP, to=float("inf")),
    "beyond a double": lambda body: web.Response(
        text=_changed(*_TOP, to=12345678.5)(body).text.replace("12345678.5", "1e999"),  # type: ignore[union-attr]
        content_type="application/json",
    ),
    "a probability for a logprob": _changed(*_TOP, to=0.9),
    "huge": _changed(*_TOP, to=1e300),
    "a logprob of another type": _changed(*_TOP, to="-1"),
}
OF_WORDS: dict[str, Callable[[Body], Any]] = {
    "null content": _changed("choices", 0, "message", "content", to=None),
}
HARMLESS: dict[str, Callable[[Body], Any]] = {
    "slow": _wait,
    "in pieces": lambda body: Pieces(json.dumps(_whole(body)).encode(), 0.02, ends=True),
    "sent twice": lambda body: Repeated(text=json.dumps(_whole(body))),
    "a choice twice": _choice_twice,
    "an id of another type": _changed("id", to={"a": 1}),
    "an index of another type": _with(index="first"),
    "a role of another type": _changed("choices", 0, "message", "role", to=7),
    "another role": _changed("choices", 0, "message", "role", to="user"),
    "an unknown finish_reason": _with(finish_reason="done"),
    "no finish_reason": _with(finish_reason=None),
    "no tool calls": _changed("choices", 0, "message", "tool_calls", to=[]),
    "a model of another type": _changed("model", to=[7]),
    "no model": _changed("model", to=None),
    "unknown fields": _with(fields={"a": [None]}),
}
"""Right answers in an odd way. None is asked for again."""
_SLOW = frozenset({"hang", "without end", "slow", "in pieces"})
"""These take a second or so and are rare, or a test would take minutes."""


@dataclass
class Plan:
    """Answers calls about dialogues right after none, one or two faults; all other calls at once.

    A kind that has not occurred yet comes first, so that all do where there are calls enough.

    Attributes:
        seed: of the plan.
        faults: how often each was used, harmless oddities of right answers among them.
        given: right answers by body: one that comes twice was asked for again.
        is_calm: no faults at all.
    """

    seed: int
    is_calm: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    given: Counter[str] = field(default_factory=Counter)
    _planned: dict[str, list[str]] = field(default_factory=dict)
    _drawn: set[str] = field(default_factory=set)

    def __call__(self, body: Body) -> Body | str | web.StreamResponse | Awaitable[Any]:
        """The answer to a call."""
        key = body_hash(body)
        if self.is_calm or "chat " not in json.dumps(body["messages"]):
            self.given[key] += 1
            return answer_by_hash(body)
        kinds = {**FAULTS, **(OF_LABELS if body.get("logprobs") else OF_WORDS)}
        draw = random.Random(f"{self.seed} {key}")
        if key not in self._planned:
            self._planned[key] = self._draw(draw, list(kinds), draw.choice((0, 0, 1, 2)))
        if self._planned[key]:
            kind = self._planned[key].pop()
            self.faults[kind] += 1
            answer: Any = kinds[kind](body)
            return answer  # type: ignore[no-any-return]
        self.given[key] += 1
        [oddity] = self._draw(draw, list(HARMLESS), draw.random() < 0.2) or [""]
        if not oddity:
            return answer_by_hash(body)
        self.faults[oddity] += 1
        return HARMLESS[oddity](body)

    def _draw(self, draw: random.Random, names: list[str], count: int) -> list[str]:
        """Draw kinds: those that have not been drawn before first, slow ones rarely."""
        new = [name for name in names if name not in self._drawn]
        draw.shuffle(new)
        usual = [name for name in names if name not in _SLOW] * 8 + names
        drawn = [*new, *draw.choices(usual, k=count)][:count]
        self._drawn.update(drawn)
        return drawn
