"""The response cache: a reply that was received is never asked for again, also after kill -9.

Replies lie in a `storage.store.Store` by the key of what was asked, and are there once `put` was awaited. What is
damaged, by a disk or a copy, is passed over and asked for again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Self

import orjson

from curate.engines.base import Completion
from curate.engines.replies import completion_to_json, read_reply
from curate.storage.store import Store


class ReplyCache:
    """Replies by request key. Used by one event loop; safe beside other processes.

    Args:
        path: the store, a file on a local disk; made when missing.

    Attributes:
        store: where the replies lie, as JSON.

    Raises:
        CurateError: as `Store`.
    """

    def __init__(self, path: Path | str) -> None:
        self.store = Store(Path(path))
        self._unreadable: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def damaged(self) -> int:
        """Kept replies that were met and could not be read; they count as never received."""
        return self.store.damaged + len(self._unreadable)

    def put(self, replies: Mapping[str, Completion]) -> Awaitable[None]:
        """Keep replies. They outlive this process from the moment this was awaited.

        Args:
            replies: by request key, as received; an earlier reply under a key is replaced.

        Raises:
            CurateError: when awaited; the disk is full or the store cannot be written. What was kept stays whole.
        """
        return self.store.put_soon(
            (key, orjson.dumps(completion_to_json(reply))) for key, reply in replies.items()
        )

    def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        """The replies that are there, of those asked for; a damaged one is not (see `damaged`).

        Raises:
            CurateError: the store as a whole is damaged.
        """
        found: dict[str, Completion] = {}
        for key, reply in self.store.get(keys).items():
            completion = read_reply(reply)
            if completion is None:
                self._unreadable.add(key)
            else:
                found[key] = completion
        return found

    def first_served(self, identity: str, served: str) -> str:
        """The name under which a model first replied, of those whose replies are kept here.

        Args:
            served: the name it has now; it is remembered where there was none.

        Raises:
            CurateError: the store is damaged or cannot be written.
        """
        key = f"served {identity}"
        first = self.store.get([key]).get(key)
        if first is None:
            self.store.put([(key, served.encode())])
            return served
        return first.decode()

    def close(self) -> None:
        """Release the file. Calling it twice is harmless."""
        self.store.close()
