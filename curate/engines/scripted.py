"""Engines without a model: `ScriptedEngine` has its replies beforehand, `KeptEngine` has none.

The first is for tests of the stages, and for replaying a recording where there is no model. A script that runs out
raises, because a made-up reply would look like a judgment.

A recording of a run (`record_runs`) opens with a line that says who replied, when and by which command. Its engine has that
model's identity and capabilities, so a run sends it the same requests, rows and calibrations serve both, and a
warning of the run says that the replies were recorded.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import zstandard

from curate.engines.base import (
    Capability,
    Completion,
    Engine,
    EngineIdentity,
    Fault,
    FaultKind,
    Request,
)
from curate.engines.replies import completion_from_json, completion_to_json
from curate.errors import EngineError, UsageError
from curate.storage.store import Store
from curate.storage.whole_files import atomic_file, write_atomically

Reply = Completion | str | Fault
DEFAULT_CAPABILITIES = frozenset(
    {Capability.JSON_SCHEMA, Capability.PREFILL, Capability.SEED, Capability.PARALLEL}
)

MOST = 1 << 30
"""Bytes of recorded replies that are held; a small `.zst` may unpack to any number."""
_DISTRIBUTIONS = frozenset({Capability.TOP_LOGPROBS, Capability.LABEL_LOGPROBS})


class ScriptedEngine:
    """Replies from a list (in order), a function, or a recorded file.

    Args:
        replies: a list of texts, completions or faults, consumed in the order of the calls; a function
            of the request; or the path of a file that `write_recording` or `record_runs` wrote.
        capabilities: those that the engine reports; first tokens need TOP_LOGPROBS or LABEL_LOGPROBS.
        keep_requests: False for runs too long to hold every prompt in memory.

    Attributes:
        requests: all requests, in the order they came; empty where they are not kept.
        warnings: that the replies were recorded, where the file says by whom.

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
        self._number = 0
        self._function = replies if callable(replies) else None
        self._queue: list[Reply] = []
        self._recorded: dict[str, Completion] = {}
        self.capabilities = frozenset(capabilities)
        self.open_dialogues = open_dialogues
        self.context_tokens = context_tokens
        self.identity = EngineIdentity("scripted", model)
        self.warnings: tuple[str, ...] = ()
        self._known_by = _NOBODY
        if isinstance(replies, (Path, str)):
            self._load(Path(replies))
        elif not callable(replies):
            self._queue.extend(replies)
        self._length = len(self._queue)

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer from the script.

        Raises:
            EngineError: the script has no reply for a request.
        """
        completions = []
        for request in requests:
            self._number += 1
            if self._keep_requests:
                self.requests.append(request)
            completion = _as_completion(self._reply(request))
            if completion.first_token and not self.capabilities & _DISTRIBUTIONS:
                raise EngineError(
                    "the script gives first-token log-probabilities, which the engine does not declare",
                    fix="add Capability.TOP_LOGPROBS to its capabilities",
                )
            completions.append(completion)
        return completions

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _reply(self, request: Request) -> Reply:
        if self._function is not None:
            return self._function(request)
        recorded = self._recorded.get(request.key(self._known_by))
        if recorded is not None:
            return recorded
        if not self._queue:
            question = str(request.messages[-1].get("content") or "") if request.messages else ""
            if self.warnings:
                raise EngineError(
                    "the recording has no reply for this request: the data, recipe or prompts differ from those recorded",
                    got=f"purpose {request.purpose!r}, ending {question[-120:]!r}",
                    fix="use the recipe unchanged, or name a model to run: "
                    "--set models.judge='{engine: …}' --set models.policy='{engine: …}'",
                )
            raise EngineError(
                f"the script has no reply for request {self._number}",
                got=f"purpose {request.purpose!r}, ending {question[-120:]!r}",
                expected=f"at most {self._length} requests"
                + (f" beside {len(self._recorded)} recorded ones" if self._recorded else ""),
            )
        return self._queue.pop(0)

    def _load(self, path: Path) -> None:
        try:
            data = path.read_bytes()
            if path.suffix == ".zst":
                data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read(MOST + 1)
        except (OSError, zstandard.ZstdError) as error:
            raise UsageError(
                f"the recorded replies cannot be read: {path}",
                got=error.strerror if isinstance(error, OSError) else error,
                fix="check that `replies` of the model names a JSONL file that can be read",
            ) from error
        if len(data) > MOST:
            raise UsageError(
                f"too many recorded replies to hold in memory: {path}",
                got=f"more than {MOST >> 20} MiB",
                fix="record fewer dialogues per file",
            )
        self.identity = EngineIdentity(
            "scripted",
            self.identity.model,
            hashlib.blake2b(data, digest_size=16).hexdigest(),
        )
        for number, line in enumerate(data.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row: dict[str, Any] = orjson.loads(line)
                if number == 1 and "recorded" in row:
                    self._pose_as(row["recorded"])
                    continue
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

    def _pose_as(self, recorded: Mapping[str, Any]) -> None:
        """Take over identity and capabilities from the first line of a file of `record_runs`."""
        detail = tuple((name, value) for name, value in recorded["identity"]["detail"])
        self.identity = self._known_by = EngineIdentity(**recorded["identity"] | {"detail": detail})
        self.capabilities = frozenset(map(Capability, recorded["capabilities"]))
        self.open_dialogues = recorded["open_dialogues"]
        self.context_tokens = recorded["context_tokens"]
        self.warnings = (
            f"Recorded replies: {self.identity.model} gave them on {recorded['date']}, and no model runs now. "
            f"How they were made: {recorded['command']}",
        )


_NOBODY = EngineIdentity("", "")
"""`write_recording` names a request by its key for this identity, so that any engine's name fits."""


def write_recording(path: Path, calls: Iterable[tuple[Request, Completion]]) -> None:
    """Write requests and replies as JSON lines that `ScriptedEngine` replays in any order."""
    with atomic_file(path) as out:
        for request, completion in calls:
            row = {"request": request.key(_NOBODY), **completion_to_json(completion)}
            out.write(orjson.dumps(row) + b"\n")


def record_runs(
    replies: Iterable[Path], out: Path, engine: Engine, *, date: str, command: str
) -> int:
    """Write the kept replies of runs as a recording that is replayed under their engine's name.

    Args:
        replies: each run's `replies.sqlite`.
        out: the file; compressed where it ends with `.zst`.
        engine: the engine that replied; other engines' replies in the store are written too, and never used.

    Returns:
        The number of replies.
    """
    header = {
        "identity": asdict(engine.identity),
        "capabilities": sorted(engine.capabilities),
        "open_dialogues": engine.open_dialogues,
        "context_tokens": engine.context_tokens,
        "date": date,
        "command": command,
    }
    kept: dict[str, bytes] = {}
    for path in replies:
        with Store(path) as store:
            kept |= {key: reply for _, key, reply in store.items() if " " not in key}
    rows = [{"request": key, **orjson.loads(kept[key])} for key in sorted(kept)]
    data = b"".join(orjson.dumps(row) + b"\n" for row in [{"recorded": header}, *rows])
    write_atomically(
        out, zstandard.ZstdCompressor(19).compress(data) if out.suffix == ".zst" else data
    )
    return len(rows)


def _as_completion(reply: Reply) -> Completion:
    if isinstance(reply, Completion):
        return reply
    if isinstance(reply, Fault):
        return Completion(finish="error", fault=reply)
    return Completion(text=reply)


class KeptEngine:
    """Stands behind a reply cache in place of a model, where rows are made again; every request that reaches it fails.

    Attributes:
        missing: number of requests so far that have no kept reply.
        fault: kind of fault that these requests get; set to that of the run, where a failed call left no reply.
    """

    open_dialogues = 1
    context_tokens = None

    def __init__(self, identity: EngineIdentity, capabilities: Collection[Capability]) -> None:
        self.identity = identity
        self.capabilities = frozenset(capabilities)
        self.missing = 0
        self.fault: FaultKind = "bad_request"

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Return a fault for each request, and count them as missing."""
        self.missing += len(requests)
        fault = Fault(self.fault, "no reply is kept")
        return [Completion(finish="error", fault=fault)] * len(requests)

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""
