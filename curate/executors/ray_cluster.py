"""The Ray cluster that a recipe names: joining or starting it, and what fits on it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from curate.errors import CurateError, EngineError, UsageError, first_line, missing_extra
from curate.executors.loop import run as run_in_loop
from curate.recipe import ExecutorConfig

T = TypeVar("T")

_KNOCK_SECONDS = 10.0


@contextmanager
def joined(config: ExecutorConfig) -> Iterator[Any]:
    """Ray with this process on the cluster; left at the end, unless the process was on it before.

    Raises:
        UsageError: Ray is missing, or the cluster cannot be joined.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise missing_extra("ray", "ray") from error
    is_ours = _connect(ray, config)
    try:
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


def _connect(ray: Any, config: ExecutorConfig) -> bool:
    """Join the cluster, or start one; False where this process was in one already."""
    address = config.address
    if address is not None and address.startswith("ray://"):
        raise UsageError(
            "a Ray client cannot run a recipe: the reply log must be on a machine of the cluster",
            got=address,
            expected="`auto` or host:port, on a machine of the cluster",
            fix="start curate on the head node, or with `ray job submit`",
        )
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options["include_dashboard"] = False
    try:
        if address is not None and ":" in address:
            # Ray itself would knock for minutes at a door that is not there.
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()
        on_sigterm = signal.getsignal(signal.SIGTERM)
        ray.init(address=address, **options)
        if threading.current_thread() is threading.main_thread():
            # Ray's own handler leaves at once, without a word.
            signal.signal(signal.SIGTERM, on_sigterm)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"the Ray cluster {address or ''} cannot be joined",
            got=first_line(error),
            expected="the address of a running cluster: `auto` on one of its machines, or host:port",
            fix="`ray status` shows whether one runs here",
        ) from error
    return True


def count_workers(ray: Any, config: ExecutorConfig) -> int:
    """As many as the recipe says, or as fit now."""
    there = ray.cluster_resources()
    needs = {"CPU": config.cpus_per_worker, "GPU": config.gpus_per_worker}
    fit = min(
        (int(there.get(name, 0) / number) for name, number in needs.items() if number), default=1
    )
    # A cluster that is joined may grow when it is asked for more; one that is started here cannot.
    if fit < (config.workers or 1) and (config.address is None or config.workers is None):
        raise UsageError(
            "the workers do not fit on the Ray cluster",
            got={name: there.get(name, 0) for name in needs},
            expected=f"{config.workers or 1} times {needs}",
            fix="lower executor.workers, gpus_per_worker or cpus_per_worker",
        )
    return config.workers or fit


def losses(ray: Any) -> tuple[type[Exception], ...]:
    """Return the errors that Ray raises when the process or the machine that was at work is gone."""
    errors = ray.exceptions
    return (
        errors.RayActorError,
        errors.OutOfMemoryError,
        errors.NodeDiedError,
        errors.WorkerCrashedError,
    )


async def call_on_worker(
    config: ExecutorConfig, work: Callable[..., Awaitable[T]], *arguments: Any
) -> T:
    """`await work(*arguments)` in a process of the cluster that has what a worker gets.

    Args:
        work: a function of a module; it, its arguments and its result are pickled.

    Raises:
        UsageError: as `joined`; a worker does not fit.
        EngineError: the process died.
        CurateError: whatever `work` raises.
    """
    with joined(config) as ray:
        count_workers(ray, config)
        task = ray.remote(_in_worker).options(
            num_cpus=config.cpus_per_worker, num_gpus=config.gpus_per_worker, max_retries=0
        )
        try:
            result: T | CurateError = await task.remote(work, arguments, Path.cwd())
        except losses(ray) as error:
            raise EngineError(
                "the worker that opened the models died",
                got=first_line(error),
                fix="look for the reason in Ray's logs (memory, most often) and run again",
            ) from error
    if isinstance(result, CurateError):
        raise result
    return result


def _in_worker(work: Callable[..., Any], arguments: tuple[Any, ...], folder: Path) -> Any:
    """An error with a name comes back as a value, so that it stays what it is."""
    if folder.is_dir():
        os.chdir(folder)  # paths in the recipe are meant from there
    try:
        return run_in_loop(work(*arguments))
    except CurateError as error:
        return error
