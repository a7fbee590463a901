"""The response cache: a request whose reply was received is never sent again, even after kill -9.

Replies are stored in a `storage.store.Store` by request key, durably once `put` has been awaited. A damaged reply
is skipped, so its request is sent again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Self

import orjson

from curate.engines.base import Completion
from curate.engines.replies import completion_to_json, read_stored
from curate.storage.store import Store


class ReplyCache:
    """Replies by request key, for one event loop; other processes may use the same file.

    Args:
        path: file of the store, on a local disk; created when missing.

    Attributes:
        store: holds the replies as JSON.

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
        """Number of replies found damaged so far; they count as not received."""
        return self.store.damaged + len(self._unreadable)

    def put(self, replies: Mapping[str, Completion]) -> Awaitable[None]:
        """Keep replies, durably once the result has been awaited.

        Args:
            replies: by request key, as received; an earlier reply under a key is replaced.

        Raises:
            CurateError: when awaited; the disk is full or the store cannot be written. Earlier replies stay intact.
        """
        return self.store.put_soon(
            (key, orjson.dumps(completion_to_json(reply))) for key, reply in replies.items()
        )

    def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        """Return the kept replies of these keys, without damaged ones (see `damaged`).

        Raises:
            CurateError: the store as a whole is damaged.
        """
        completions: dict[str, Completion] = {}
        for key, reply in self.store.get(keys).items():
            completion = read_stored(reply)
            if completion is None:
                self._unreadable.add(key)
            else:
                completions[key] = completion
        return completions

    def first_served(self, identity: str, served: str) -> str:
        """Return the name under which a model's first kept reply came.

        Args:
            identity: key of the model's identity.
            served: the name that its replies have now; stored where there is none yet.

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
