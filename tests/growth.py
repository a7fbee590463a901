"""How the work of a function grows, without a clock: lines of the package that run, or processor time at two sizes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(function: Callable[[], object]) -> int:
    """Lines of curate's own code that ran."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "/curate/" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def growth(function: Callable[[int], object], size: int) -> float:
    """How many times the processor time of `size` that of eight times the size is: 8 where linear, 64 where
    quadratic."""

    def cost(size: int) -> float:
        began = time.process_time()
        function(size)
        return time.process_time() - began

    function(1)  # whatever is done once
    return min(cost(8 * size) for _ in range(2)) / max(min(cost(size) for _ in range(3)), 1e-4)
