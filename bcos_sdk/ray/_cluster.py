"""Start a Ray cluster on this machine, reachable from this machine only, or connect to one that runs."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
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
_HOST_AND_PORT = re.compile(r"(?P<client>ray://)?(?P<host>\[[^\]]+\]|[^:/\[\]]+)(:(?P<port>\d+))?/?")
"""HOST:PORT or ray://HOST:PORT."""
_PORT_OF_CLIENT = 10001
_SECONDS_TO_CONNECT = 10.0
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
def connected(address: str | None = None, local_cpus: int | None = None, store_bytes: int = 0) -> Iterator[None]:
    """`with connected():` Ray is connected: to `address`, else to RAY_ADDRESS, else to a cluster of this machine.

    That one is started here and ends here. It listens on the loopback interface only, and has `local_cpus` CPUs, by
    default those of the machine and at least two. If this process is connected already, nothing is changed.
    """
    require_ray()
    if is_connected():
        yield
        return
    try:
        connect(
            address_of_cluster(address),
            num_cpus=local_cpus or max(2, os.cpu_count() or 1),
            object_store_memory=_OBJECT_STORE + 2 * store_bytes,
        )
        yield
    finally:
        import ray

        ray.shutdown()


def connect(address: str | None, **of_local_cluster: Any) -> None:
    """Connect to a cluster, or start one on this machine with these options of `ray.init`."""
    if address is not None:
        _check_that_someone_listens(address)
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
        raise _not_connected(address, error) from error
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():  # Ray has set its own, which exit at once
            signal.signal(number, handler)


def _check_that_someone_listens(address: str) -> None:
    """Raise a `ClusterError` if nobody listens at HOST:PORT or ray://HOST:PORT: Ray itself would try for minutes."""
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None or not (found["port"] or found["client"]):  # for example "auto"
        return
    port = int(found["port"] or _PORT_OF_CLIENT)
    try:
        socket.create_connection((found["host"].strip("[]"), port), _SECONDS_TO_CONNECT).close()
    except (OSError, OverflowError, ValueError) as error:
        raise _not_connected(address, error) from error


def _not_connected(address: str | None, error: Exception) -> ClusterError:
    what = "start a local Ray cluster" if address is None else f"connect to the Ray cluster at {address}"
    return ClusterError(
        f"cannot {what}: {error}",
        source=address,
        hint="`ray status --address …` tells whether a cluster runs there. The address comes from --address or "
        "RAY_ADDRESS. Ray and Python must have the same versions here and there.",
    )


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
