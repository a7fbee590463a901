"""Child process of the kill test: keeps replies for ever, and says so after each one."""

from __future__ import annotations

import os
import sys

from curate.engines.base import Completion
from curate.engines.cache import ReplyCache


def main() -> None:
    """`python -m tests.engines.log_writer CACHE ROUND`."""
    cache, number = ReplyCache(sys.argv[1]), int(sys.argv[2])
    for index in range(10**9):
        cache.put(f"{number:016x}{index:016x}", Completion(text=f"reply {number} {index} é\n"))
        os.write(1, b"%d\n" % index)


if __name__ == "__main__":
    main()
