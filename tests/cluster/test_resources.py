"""Which workers fit a cluster, against a search through all placements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcos_sdk.errors import ClusterError
from bcos_sdk.ray._dataset import is_gpu
from bcos_sdk.ray._job import local_cpus
from bcos_sdk.ray._resources import Node, Workers, choose_workers, workers_that_fit

NODES = st.lists(st.builds(Node, st.integers(0, 6).map(float), st.integers(0, 2).map(float)), max_size=3)


def most_by_search(nodes: Sequence[Node], cpus: int, gpus: int, spare: int) -> int:
    """Try every number of workers on every node."""
    best = 0
    for counts in itertools.product(range(7), repeat=len(nodes)):
        pairs = list(zip(counts, nodes, strict=True))
        fits = all(count * cpus <= node.cpus and count * gpus <= node.gpus for count, node in pairs)
        left = sum(node.cpus - count * cpus for count, node in pairs)
        if fits and left >= spare:
            best = max(best, sum(counts))
    return best


@given(NODES, st.integers(1, 4), st.integers(0, 1), st.integers(0, 2))
def test_as_many_as_a_search_finds(nodes: list[Node], cpus: int, gpus: int, spare: int) -> None:
    assert workers_that_fit(nodes, cpus, gpus, spare) == most_by_search(nodes, cpus, gpus, spare)


def test_defaults_fit_the_machine() -> None:
    assert choose_workers([Node(4), Node(2)], None, None, None, on_gpu=False) == Workers(6, 1, 0)
    assert choose_workers([Node(4)], None, None, None, on_gpu=False, spare=1) == Workers(3, 1, 0)
    assert choose_workers([Node(16, 4), Node(4)], None, None, None, on_gpu=True) == Workers(4, 4, 1)
    assert choose_workers([Node(64, 2)], None, None, None, on_gpu=True) == Workers(2, 8, 1)
    assert choose_workers([Node(8, 1)], None, 2, 0.25, on_gpu=True) == Workers(4, 2, 0.25)
    assert choose_workers([Node(8)], 2, 3, None, on_gpu=False) == Workers(2, 3, 0)


@pytest.mark.parametrize(
    ("nodes", "count", "cpus", "message", "hint"),
    [
        (
            [Node(2)],
            4,
            1,
            "4 workers with 1 CPU each do not fit the cluster: it has 2 CPUs on one machine",
            "--workers 2",
        ),
        (
            [Node(2), Node(2)],
            1,
            3,
            "1 worker with 3 CPUs each do not fit the cluster: it has 4 CPUs on 2",
            "fewer threads",
        ),
        ([], None, None, "1 worker with 1 CPU each do not fit the cluster: it has 0 CPUs", "Not even one fits"),
    ],
)
def test_too_few_cpus_are_refused(
    nodes: list[Node], count: int | None, cpus: int | None, message: str, hint: str
) -> None:
    with pytest.raises(ClusterError, match=message) as caught:
        choose_workers(nodes, count, cpus, None, on_gpu=False)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_reading_needs_a_cpu_of_its_own() -> None:
    message = "2 workers with 1 CPU each, and 1 CPU for reading and writing do not fit the cluster: it has 2 CPUs"
    with pytest.raises(ClusterError, match=message):
        choose_workers([Node(2)], 2, None, None, on_gpu=False, spare=1)
    with pytest.raises(ClusterError, match="GPU each do not fit the cluster: it has 8 CPUs and 1 GPUs"):
        choose_workers([Node(8, 1)], 2, None, None, on_gpu=True)


def test_gpus_are_for_devices_that_are_one() -> None:
    assert is_gpu("cuda:1", [])
    assert is_gpu("tensorrt", [])
    assert is_gpu("auto", [Node(1), Node(1, 1)])
    assert not is_gpu("auto", [Node(1)])
    assert not is_gpu("openvino", [Node(1, 1)])


def test_a_local_cluster_has_the_cpus_that_were_asked_for() -> None:
    assert local_cpus(None, None, 2) == 2
    assert local_cpus(4, None, 2) == 4
    assert local_cpus(1, 8, 4) == 8
