"""An engine whose replies are given beforehand; otherwise an ordinary engine.

For tests of the stages, and for replaying a recording where there is no model. A script that runs out
raises, because a made-up reply would look like a judgment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from curate.engines.base import Capability, Completion, EngineIdentity, Fault, Request
from curate.engines.replies import completion_from_json, completion_to_json
from curate.errors import EngineError, UsageError
from curate.storage.files import atomic_file

Reply = Completion | str | Fault
DEFAULT_CAPABILITIES = frozenset(
    {Capability.JSON_SCHEMA, Capability.PREFILL, Capability.SEED, Capability.PARALLEL}
)


class ScriptedEngine:
    """Replies from a list (in order), a function, or a recorded file.

    Args:
        replies: a list of texts, completions or faults, consumed in the order of the calls; a function
            of the request; or the path of a file that `write_recording` wrote.
        capabilities: what the engine claims to have; without TOP_LOGPROBS first tokens are withheld.
        model: name in the identity.
        open_dialogues: how many dialogues a driver should keep open.
        context_tokens: size of the claimed context window.
        keep_requests: False for runs too long to hold every prompt in memory.

    Attributes:
        requests: all requests, in the order they came; empty where they are not kept.

    Raises:
        EngineError: from `complete`, when there is no reply left for a request.
    """

    def __init__(
        self,
        replies: Sequence[Reply] | Callable[[Request], Reply] | Path | str,
        *,
        capabilities: Iterable[Capability] = DEFAULT_CAPABILITIES,
        model: str = "scripted",
        open_dialogues: int = 4,
        context_tokens: int | None = None,
        keep_requests: bool = True,
    ) -> None:
        self.requests: list[Request] = []
        self._keep_requests = keep_requests
        self._asked = 0
        self._function = replies if callable(replies) else None
        self._queue: list[Reply] = []
        self._recorded: dict[str, Completion] = {}
        self.capabilities = frozenset(capabilities)
        self.open_dialogues = open_dialogues
        self.context_tokens = context_tokens
        revision = ""
        if isinstance(replies, (Path, str)):
            revision = self._load(Path(replies))
        elif not callable(replies):
            self._queue.extend(replies)
        self._given = len(self._queue)
        self.identity = EngineIdentity("scripted", model, revision)

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer from the script.

        Raises:
            EngineError: the script has no reply for a request.
        """
        completions = []
        for request in requests:
            self._asked += 1
            if self._keep_requests:
                self.requests.append(request)
            completion = _as_completion(self._reply(request))
            if Capability.TOP_LOGPROBS not in self.capabilities and completion.first_token:
                raise EngineError(
                    "the script gives first-token log-probabilities, which the engine says it has not",
                    fix="add Capability.TOP_LOGPROBS to its capabilities",
                )
            completions.append(completion)
        return completions

    async def close(self) -> None:
        """Nothing to free."""

    def _reply(self, request: Request) -> Reply:
        if self._function is not None:
            return self._function(request)
        recorded = self._recorded.get(request_digest(request))
        if recorded is not None:
            return recorded
        if not self._queue:
            question = str(request.messages[-1].get("content") or "") if request.messages else ""
            raise EngineError(
                f"the script has no reply for request {self._asked}",
                got=f"purpose {request.purpose!r}, ending {question[-120:]!r}",
                expected=f"at most {self._given} requests"
                + (f" beside {len(self._recorded)} recorded ones" if self._recorded else ""),
            )
        return self._queue.pop(0)

    def _load(self, path: Path) -> str:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(
                f"the recorded replies cannot be read: {path}", got=error.strerror
            ) from error
        for number, line in enumerate(data.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row: dict[str, Any] = orjson.loads(line)
                digest = row.pop("request", None)
                completion = completion_from_json(row)
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise UsageError(
                    f"line {number} of {path} is not a recorded reply",
                    got=line[:120].decode(errors="replace"),
                    expected='{"text": ..., "request": digest or absent}',
                ) from error
            if digest is None:
                self._queue.append(completion)
            else:
                self._recorded[digest] = completion
        return hashlib.blake2b(data, digest_size=16).hexdigest()


def request_digest(request: Request) -> str:
    """What a recording knows a request by: its key without an engine's identity."""
    return request.key(EngineIdentity("", ""))


def write_recording(path: Path, calls: Iterable[tuple[Request, Completion]]) -> None:
    """Write requests and replies as JSON lines that `ScriptedEngine` replays in any order."""
    with atomic_file(path) as out:
        for request, completion in calls:
            row = {"request": request_digest(request), **completion_to_json(completion)}
            out.write(orjson.dumps(row) + b"\n")


def _as_completion(reply: Reply) -> Completion:
    if isinstance(reply, Completion):
        return reply
    if isinstance(reply, Fault):
        return Completion(finish="error", fault=reply)
    return Completion(text=reply)
