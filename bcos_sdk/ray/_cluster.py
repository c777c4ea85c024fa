"""Start a Ray cluster on this machine, reachable from this machine only, or connect to one that runs."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bcos_sdk._extras import require
from bcos_sdk.errors import ClusterError
from bcos_sdk.ray._resources import Node

__all__ = [
    "address_of_cluster",
    "connect",
    "connected",
    "is_connected",
    "nodes_of_cluster",
    "quiet_data_context",
    "require_ray",
]

_OBJECT_STORE = 256 << 20
"""Bytes of the object store of a local cluster. It holds shards and outcomes, and perhaps a bundle."""
_LOCAL_ONLY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
"""Ray would give its workers the lowest priority but four."""
_QUIET = {"RAY_BACKEND_LOG_LEVEL": "fatal"}
"""Ray's C++ parts print to the terminal of the command, also what is harmless."""


def require_ray() -> None:
    """Raise a `MissingExtraError` unless Ray Data is installed."""
    require("ray", "pyarrow", "fsspec", purpose="The engine ray")


def address_of_cluster(address: str | None) -> str | None:
    """The cluster to connect to: the option, else RAY_ADDRESS; None for one of our own."""
    chosen = address or os.environ.get("RAY_ADDRESS")
    return None if chosen in (None, "", "local") else chosen


def is_connected() -> bool:
    """Whether this process is connected to a cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


@contextmanager
def connected(address: str | None, local_cpus: int, store_bytes: int = 0) -> Iterator[None]:
    """`with connected(address, cpus):` Ray is connected, to a local cluster with so many CPUs if there is no address.

    A cluster that was started here ends here. If this process is connected already, nothing is changed.
    """
    require_ray()
    if is_connected():
        yield
        return
    try:
        connect(address, num_cpus=local_cpus, object_store_memory=_OBJECT_STORE + 2 * store_bytes)
        yield
    finally:
        import ray

        ray.shutdown()


def connect(address: str | None, **of_local_cluster: Any) -> None:
    """Connect to a cluster, or start one on this machine with these options of `ray.init`."""
    for name, value in (_LOCAL_ONLY | _QUIET).items():  # Ray reads them when it is imported
        os.environ.setdefault(name, value)
    import ray

    handlers = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "address": address}
    if address is None:
        options |= {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1", **of_local_cluster}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        what = "start a local Ray cluster" if address is None else f"connect to the Ray cluster at {address}"
        raise ClusterError(
            f"cannot {what}: {error}",
            source=address,
            hint="`ray status --address …` tells whether a cluster runs there. Ray and Python must have the same "
            "versions here and there.",
        ) from error
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():  # Ray has set its own, which exit at once
            signal.signal(number, handler)


def nodes_of_cluster() -> list[Node]:
    """The machines of the cluster that are alive."""
    import ray

    return [
        Node(float(node["Resources"].get("CPU", 0)), float(node["Resources"].get("GPU", 0)))
        for node in ray.nodes()
        if node["Alive"]
    ]


@contextmanager
def quiet_data_context() -> Iterator[None]:
    """Ray Data without its own progress bars and logs: the command shows its own."""
    import ray

    context = ray.data.DataContext.get_current()
    shown, logger = context.enable_progress_bars, logging.getLogger("ray.data")
    level = logger.level
    context.enable_progress_bars = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = shown
        logger.setLevel(level)
