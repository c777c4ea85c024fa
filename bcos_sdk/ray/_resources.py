"""Which workers fit a cluster. A run that does not fit is refused: Ray would wait for resources without an end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bcos_sdk.errors import ClusterError

__all__ = ["Node", "Workers", "choose_workers", "workers_that_fit"]

_MOST_THREADS_OF_GPU_WORKER = 8


@dataclass(frozen=True)
class Node:
    """The logical CPUs and GPUs of one machine of a cluster."""

    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True)
class Workers:
    """How many workers run, and the CPUs and GPUs of each. A worker has one client with as many threads as CPUs."""

    count: int
    cpus: int = 1
    gpus: float = 0.0

    def __str__(self) -> str:
        count = f"{self.count} worker{'' if self.count == 1 else 's'}"
        gpus = f" and {self.gpus:g} GPU" if self.gpus else ""
        return f"{count} with {self.cpus} CPU{'' if self.cpus == 1 else 's'}{gpus} each"


def workers_that_fit(nodes: Iterable[Node], cpus: int, gpus: float, spare: int = 0) -> int:
    """How many workers fit the nodes, so that `spare` CPUs are left. A worker is on one node."""
    listed = list(nodes)
    counts = [_on_node(node, cpus, gpus) for node in listed]
    left = sum(int(node.cpus) - count * cpus for node, count in zip(listed, counts, strict=True))
    total = sum(counts)
    while total and left < spare:
        total -= 1
        left += cpus
    return total


def choose_workers(
    nodes: Sequence[Node], count: int | None, cpus: int | None, gpus: float | None, *, on_gpu: bool, spare: int = 0
) -> Workers:
    """The workers of a run: what was asked for, or as many as fit. A `ClusterError` if that many do not fit.

    `on_gpu` says whether the device is a GPU. By default a worker has one CPU, or one GPU with its share of the CPUs.
    """
    if gpus is None:
        gpus = 1.0 if on_gpu else 0.0
    if cpus is None:
        cpus = _share_of_cpus(nodes, gpus) if gpus else 1
    fitting = workers_that_fit(nodes, cpus, gpus, spare)
    wanted = Workers(fitting if count is None else count, cpus, gpus)
    if fitting < max(1, wanted.count):
        raise _too_few(nodes, Workers(max(1, wanted.count), cpus, gpus), fitting, spare)
    return wanted


def _share_of_cpus(nodes: Sequence[Node], gpus: float) -> int:
    shares = [int(node.cpus * gpus // node.gpus) for node in nodes if node.gpus]
    return max(1, min(_MOST_THREADS_OF_GPU_WORKER, *shares)) if shares else 1


def _on_node(node: Node, cpus: int, gpus: float) -> int:
    by_cpus = int(node.cpus // cpus)
    return min(by_cpus, int(node.gpus / gpus + 1e-9)) if gpus else by_cpus


def _too_few(nodes: Sequence[Node], wanted: Workers, fitting: int, spare: int) -> ClusterError:
    have = f"{sum(node.cpus for node in nodes):g} CPUs"
    if wanted.gpus:
        have += f" and {sum(node.gpus for node in nodes):g} GPUs"
    machines = "one machine" if len(nodes) == 1 else f"{len(nodes)} machines"
    more = f", and {spare} CPU for reading and writing" if spare else ""
    hint = (
        f"{fitting} fit: use --workers {fitting} (concurrency={fitting})."
        if fitting
        else ("Not even one fits: give a worker fewer threads (--threads) or no GPU (--device cpu), or add machines.")
    )
    return ClusterError(
        f"{wanted}{more} do not fit the cluster: it has {have} on {machines}",
        hint=f"{hint} Ray would wait for resources without an end.",
    )
