"""Child process of a kill test: puts values for ever, and says so after each one, or after each few put together."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from curate.storage.store import Store


async def main() -> None:
    """`python -m tests.storage.store_writer PATH ROUND`."""
    store, number = Store(Path(sys.argv[1])), int(sys.argv[2])

    async def put(index: int) -> None:
        await store.put_soon(entries(index))
        os.write(1, b"%d\n" % index)

    def entries(index: int) -> list[tuple[str, bytes]]:
        return [(f"{number:016x}{index:016x}", f"value {number} {index} é\n".encode())]

    for index in range(0, 10**9, 5):
        if number % 2:
            await asyncio.gather(*map(put, range(index, index + 5)))
        else:
            for one in range(index, index + 5):
                store.put(entries(one))
                os.write(1, b"%d\n" % one)


if __name__ == "__main__":
    asyncio.run(main())
