"""Joining or starting the Ray cluster that a recipe names, and what fits on it."""

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

_CONNECT_SECONDS = 10.0


@contextmanager
def joined_cluster(config: ExecutorConfig) -> Iterator[Any]:
    """Join the cluster and yield `ray`; leave it at the end, unless this process had joined it before.

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
    """Join the cluster, or start one; return False if this process had joined one before."""
    address = config.address
    if address is not None and address.startswith("ray://"):
        raise UsageError(
            "a Ray client cannot run a recipe: the response cache must be on a machine of the cluster",
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
            # Ray itself would try for minutes to reach an address that does not answer.
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        on_sigterm = signal.getsignal(signal.SIGTERM)
        ray.init(address=address, **options)
        if threading.current_thread() is threading.main_thread():
            # Ray's own handler would exit at once, without a message.
            signal.signal(signal.SIGTERM, on_sigterm)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"the Ray cluster{f' {address}' if address else ''} cannot be joined",
            got=first_line(error),
            expected="the address of a running cluster: `auto` on one of its machines, or host:port",
            fix="`ray status` shows whether one runs here",
        ) from error
    return True


def count_workers(ray: Any, config: ExecutorConfig) -> int:
    """Return the number of workers: as the recipe says, or as many as fit now."""
    there = ray.cluster_resources()
    needs = {"CPU": config.cpus_per_worker, "GPU": config.gpus_per_worker}
    fit = min(
        (int(there.get(name, 0) / number) for name, number in needs.items() if number), default=1
    )
    # A cluster that is joined may scale up; one that is started here cannot.
    if fit < (config.workers or 1) and (config.address is None or config.workers is None):
        raise UsageError(
            "the workers do not fit on the Ray cluster",
            got={name: there.get(name, 0) for name in needs},
            expected=f"{config.workers or 1} × {needs}",
            fix="lower executor.workers, gpus_per_worker or cpus_per_worker",
        )
    return config.workers or fit


def losses(ray: Any) -> tuple[type[Exception], ...]:
    """Return the errors that Ray raises when a process or machine has died."""
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
    """Return `await work(*arguments)`, run in a process of the cluster with a worker's resources.

    Args:
        work: a function of a module; it, its arguments and its result are pickled.

    Raises:
        UsageError: as `joined`; a worker does not fit.
        EngineError: the process died.
        CurateError: whatever `work` raises.
    """
    with joined_cluster(config) as ray:
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
                fix="look for the reason in Ray's logs (most often, memory ran out) and run again",
            ) from error
    if isinstance(result, CurateError):
        raise result
    return result


def _in_worker(work: Callable[..., Any], arguments: tuple[Any, ...], folder: Path) -> Any:
    """Run the work; return a CurateError as a value, so that it keeps its type."""
    if folder.is_dir():
        os.chdir(folder)  # paths in the recipe are relative to it
    try:
        return run_in_loop(work(*arguments))
    except CurateError as error:
        return error
