"""An OpenAI-compatible server that answers from a function and counts what it was asked.

It is a real HTTP server, because what the tests want to know (was a reply asked for twice, does a cut
body lose a row) happens on the wire. In a test it is an async context manager; for a test that kills
the client it runs as a process of its own, which survives: `python -m tests.servers --port-file F
--log F`. By default a reply depends only on the request body: equal bodies, equal replies.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import os
import random
import re
import signal
import string
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aiohttp import web

Body = dict[str, Any]
Answer = Callable[
    [Body], "str | Body | web.StreamResponse | Awaitable[str | Body | web.StreamResponse]"
]
"""Request body to reply text, to a whole reply body, or to any HTTP response."""

WORDS = [
    "order",
    "refund",
    "ticket",
    "address",
    "window",
    "table",
    "kitchen",
    "river",
    "garden",
    "letter",
    "morning",
    "teacher",
    "doctor",
    "engine",
    "summary",
    "account",
    "delay",
    "booking",
    "invoice",
    "offer",
    "travel",
    "museum",
    "recipe",
    "station",
    "holiday",
]


def body_hash(body: Body) -> str:
    """32 hex digits; equal for bodies that are equal as JSON."""
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()


def make_instance(schema: Body, rng: random.Random, root: Body | None = None) -> Any:
    """A value that is valid for `schema` (the subset of JSON schema that servers take)."""
    root = root if root is not None else schema
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return make_instance(target, rng, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return make_instance(rng.choice(schema[union]), rng, root)
    if "allOf" in schema:
        merged: Body = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            merged.update(part)
        return make_instance(merged, rng, root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = rng.choice(kind)
    if kind == "object":
        return _make_object(schema, rng, root)
    if kind == "array":
        low = int(schema.get("minItems", 0))
        high = int(schema.get("maxItems", low + 2))
        items = schema.get("items", {"type": "string"})
        return [make_instance(items, rng, root) for _ in range(rng.randint(low, max(low, high)))]
    if kind == "integer":
        low = int(schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1))
        high = int(schema.get("maximum", schema.get("exclusiveMaximum", low + 6) - 1))
        return rng.randint(low, max(low, high))
    if kind == "number":
        low = schema.get("minimum", 0.0)
        return round(rng.uniform(low, schema.get("maximum", low + 1.0)), 3)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "null":
        return None
    return " ".join(rng.sample(WORDS, 3))


def _make_object(schema: Body, rng: random.Random, root: Body) -> Body:
    properties = schema.get("properties", {})
    names = [*properties, *(name for name in schema.get("required", ()) if name not in properties)]
    return {name: make_instance(properties.get(name, {}), rng, root) for name in names}


def label_distribution(text: str, count: int, rng: random.Random) -> list[tuple[str, float]]:
    """(token, log-probability), most likely first, summing to just under 1.

    Which kind of label gets the mass follows from the end of the prompt: yes and no, letters, digits; role
    adherence asks before the dialogue.
    """
    tail = text[-600:].lower()
    yes_no = ["yes", "no", "Yes", "No", " yes", " no"]
    asked = re.search(r"one letter, ([A-Z, or]+)\.", text[-600:])
    letters = re.findall("[A-Z]", asked[1]) if asked else list(string.ascii_uppercase)
    digits = [*"12345"]
    if "ONLY with YES" in text or (re.search(r"\byes\b", tail) and re.search(r"\bno\b", tail)):
        wanted = yes_no
    elif re.search(r"\b1\b", tail) and re.search(r"\b5\b", tail):
        # A letter or two for "does not apply", and the score with a leading space.
        wanted = [*digits, *(f" {digit}" for digit in digits), "N", "X", "0"]
    elif "letter" in tail or re.search(r"\ba\b[^.]{0,20}\bb\b", tail):
        wanted = letters
    else:
        wanted = [*digits, *yes_no[:4], *letters]
    rest = [token for token in [*digits, *yes_no, *letters, "The", "I"] if token not in wanted]
    weights = {token: rng.random() ** 3 + 1e-3 for token in wanted} | dict.fromkeys(rest, 1e-5)
    total = sum(weights.values()) * 1.001
    ranked = sorted(weights, key=lambda token: (-weights[token], token))
    return [(token, math.log(weights[token] / total)) for token in ranked[:count]]


def answer_by_hash(body: Body) -> Body | str:
    """The default answer: valid for the schema, a label distribution, or a few words."""
    rng = random.Random(body_hash(body))
    texts = "\n".join(str(message.get("content") or "") for message in body["messages"])
    if body.get("logprobs"):
        top = label_distribution(texts, int(body.get("top_logprobs", 0)) or 1, rng)
        return {"text": top[0][0], "first_token": top}
    schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema is not None:
        return json.dumps(make_instance(schema, rng))
    return f"Here is what I can do about the {' '.join(rng.choices(WORDS, k=12))}."


@dataclass
class CountingServer:
    """`async with CountingServer(answer) as server: ... server.base_url`.

    Attributes:
        answer: what to reply; see `Answer`. A dict with `text` may add `first_token` (pairs), `finish`,
            `usage`, `tool_calls`.
        delay: seconds before a reply, or (low, high) to draw from.
        is_held: replies wait for as long as this is true.
        crowd: replies about a dialogue (`chat …`) wait until this many calls have been open at once.
        owned_by: what /v1/models says, by which clients know the flavour of a server.
        token_prompts: what /v1/completions does with lists of token ids: `exact` gives the log-probabilities
            of `logprob_token_ids` as vLLM does, `top` does not know that field, None has no such path.
        refuse_lists: the HTTP status that /v1/completions answers with instead.
        tokenize: how many tokens /tokenize makes of a text, None where the server has no such path.
        key: when set, the bearer token that is asked for.
        log: file that gets a JSON line when a request arrives and when its reply has been written.
        requests: bodies in order of arrival.
        counts: how often each body came, by `body_hash`.
        largest_in_flight: the most calls that were open at once.
        tokenized: how often /tokenize was asked.
    """

    answer: Answer = answer_by_hash
    delay: float | tuple[float, float] = 0.0
    is_held: bool = False
    crowd: int = 0
    models: tuple[str, ...] = ("fake-judge",)
    owned_by: str = "llamacpp"
    context: int | None = None
    token_prompts: str | None = None
    refuse_lists: int | None = None
    tokenize: Callable[[str], int] | None = None
    key: str | None = None
    log: Path | None = None
    port: int = 0
    requests: list[Body] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    largest_in_flight: int = 0
    tokenized: int = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def base_url(self) -> str:
        """Root of the API, with /v1."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        """Listen; `port` 0 takes a free one."""
        self._in_flight = 0
        self._log = (
            os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            if self.log is not None
            else None
        )
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._complete)
        if self.token_prompts is not None:
            app.router.add_post("/v1/completions", self._complete)
        if self.tokenize is not None:
            app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and the log."""
        await self._runner.cleanup()
        if self._log is not None:
            os.close(self._log)

    def _note(self, event: str, digest: str) -> None:
        if self._log is not None:
            os.write(
                self._log,
                json.dumps({"event": event, "hash": digest, "time": time.time()}).encode() + b"\n",
            )

    def _refuse(self, request: web.Request) -> web.Response | None:
        if self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}":
            return None
        error = {"message": "Incorrect API key provided.", "code": "invalid_api_key"}
        return web.json_response({"error": error}, status=401)

    async def _models(self, request: web.Request) -> web.Response:
        refusal = self._refuse(request)
        if refusal is not None:
            return refusal
        data = [
            {"id": name, "object": "model", "owned_by": self.owned_by}
            | ({"max_model_len": self.context} if self.context else {})
            for name in self.models
        ]
        return web.json_response({"object": "list", "data": data})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.tokenized += 1
        assert self.tokenize is not None
        return web.json_response(
            {"tokens": [7] * self.tokenize(body.get("content") or body["prompt"])}
        )

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        refusal = self._refuse(request)
        if refusal is not None:
            return refusal
        body: Body = await request.json()
        digest = body_hash(body)
        self.requests.append(body)
        self.counts[digest] += 1
        self._note("request", digest)
        self._in_flight += 1
        self.largest_in_flight = max(self.largest_in_flight, self._in_flight)
        try:
            if self.delay:
                low, high = (
                    self.delay if isinstance(self.delay, tuple) else (self.delay, self.delay)
                )
                await asyncio.sleep(random.uniform(low, high))
            is_about_one = "chat " in json.dumps(body)  # not the question that opens an engine
            while self.is_held or (is_about_one and self.largest_in_flight < self.crowd):  # noqa: ASYNC110 (set by another thread, where an event could not be)
                await asyncio.sleep(0.01)
            if request.path.endswith("/v1/completions"):
                if self.refuse_lists is not None:
                    return web.json_response({"error": "busy"}, status=self.refuse_lists)
                if self.context and any(len(prompt) > self.context for prompt in body["prompt"]):
                    said = f"longer than the maximum model length of {self.context}"
                    return web.json_response({"error": {"message": said}}, status=400)
                is_exact = self.token_prompts == "exact"
                return web.json_response(token_completion(body, is_exact=is_exact))
            answer = self.answer(body)
            if isinstance(answer, Awaitable):
                answer = await answer
            if isinstance(answer, web.StreamResponse):
                return answer
            response = web.json_response(chat_completion(answer, body))
            await response.prepare(request)
            await response.write_eof()
            self._note("reply", digest)
            return response
        finally:
            self._in_flight -= 1


def chat_completion(answer: str | Body, body: Body) -> Body:
    """A `/chat/completions` reply body with made-up but consistent token counts."""
    if isinstance(answer, dict) and "choices" in answer:
        return answer
    parts: Body = {"text": answer} if isinstance(answer, str) else answer
    text = parts.get("text", "")
    prompt = sum(len(str(message.get("content") or "")) for message in body["messages"]) // 4 + 1
    words = len(text) // 4 + 1
    choice: Body = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": parts.get("finish", "stop"),
    }
    if parts.get("tool_calls"):
        choice["message"]["tool_calls"] = parts["tool_calls"]
    if parts.get("first_token"):
        top = [{"token": token, "logprob": value} for token, value in parts["first_token"]]
        choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    usage = {"prompt_tokens": prompt, "completion_tokens": words, "total_tokens": prompt + words}
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "model": body.get("model"),
        "choices": [choice],
        "usage": parts.get("usage", usage),
    }


def token_completion(body: Body, *, is_exact: bool) -> Body:
    """A `/completions` reply to a list of token prompts; each prompt's figures follow from its ids alone."""
    choices = []
    for index, prompt in enumerate(body["prompt"]):
        wanted = body.get("logprob_token_ids") if is_exact else None
        top = {
            f"token_id:{token}": -1.0 - (sum(prompt) + token) % 97 / 10
            for token in wanted or range(40, 40 + body["logprobs"])
        }
        if not (wanted and body.get("return_tokens_as_token_ids")):
            top = {name.replace("token_id:", "t"): value for name, value in top.items()}
        logprobs = {"tokens": [next(iter(top))], "top_logprobs": [top]}
        choices.append(
            {"index": index, "text": "x", "logprobs": logprobs, "finish_reason": "length"}
        )
    # As vLLM counts: all prompts together, and what was cached for the last of them.
    usage = {
        "prompt_tokens": sum(map(len, body["prompt"])),
        "completion_tokens": len(choices),
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    choices.reverse()
    return {"id": "cmpl-fake", "object": "text_completion", "choices": choices, "usage": usage}


async def _serve(options: argparse.Namespace) -> None:
    server = CountingServer(
        delay=(options.min_delay, options.max_delay) if options.max_delay else 0.0,
        owned_by=options.owned_by,
        context=options.context,
        key=options.key,
        log=options.log,
        port=options.port,
    )
    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    async with server:
        if options.port_file is not None:
            # Renamed into place, so that whoever waits for the file never reads half a number.
            part = options.port_file.with_suffix(".part")
            part.write_text(str(server.port))
            part.replace(options.port_file)
        await stopped.wait()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port-file", type=Path, help="gets the port number once it listens")
    parser.add_argument("--log", type=Path, help="gets a JSON line a request and a reply")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--min-delay", type=float, default=0.0, help="seconds")
    parser.add_argument("--max-delay", type=float, default=0.0, help="seconds; 0 for none")
    parser.add_argument("--owned-by", default="llamacpp")
    parser.add_argument("--context", type=int)
    parser.add_argument("--key")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
