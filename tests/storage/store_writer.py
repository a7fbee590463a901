"""Child process of a kill test: puts values for ever, and says so after each one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from curate.storage.store import Store


def main() -> None:
    """`python -m tests.storage.store_writer PATH ROUND`."""
    store, number = Store(Path(sys.argv[1])), int(sys.argv[2])
    for index in range(10**9):
        store.put([(f"{number:016x}{index:016x}", f"value {number} {index} é\n".encode())])
        os.write(1, b"%d\n" % index)


if __name__ == "__main__":
    main()
