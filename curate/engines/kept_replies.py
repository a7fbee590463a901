"""An engine that makes no calls, for rows that are computed again from kept replies."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from curate.engines.base import Capability, Completion, EngineIdentity, Fault, FaultKind, Request


class KeptEngine:
    """Stands behind a reply cache (`engines.client`) in place of a model; every request that reaches it fails.

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
