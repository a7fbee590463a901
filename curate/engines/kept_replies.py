"""An engine that stands for one that is closed: kept replies are all there is of it, so what reaches it has none."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from curate.engines.base import Capability, Completion, EngineIdentity, Fault, FaultKind, Request


class KeptEngine:
    """Behind a reply cache (`engines.client`) it answers what its model answered, and asks no model.

    Attributes:
        missing: requests so far that have no kept reply.
        fault: how calls without a reply fail: a call that failed in the run left none either.
    """

    open_dialogues = 1
    context_tokens = None

    def __init__(self, identity: EngineIdentity, capabilities: Collection[Capability]) -> None:
        self.identity = identity
        self.capabilities = frozenset(capabilities)
        self.missing = 0
        self.fault: FaultKind = "bad_request"

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Fail each call, and count it."""
        self.missing += len(requests)
        fault = Fault(self.fault, "no reply is kept")
        return [Completion(finish="error", fault=fault)] * len(requests)

    async def close(self) -> None:
        """Nothing to free."""
