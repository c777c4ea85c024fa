"""What does not fit into the memory of a GPU runs in halves, and leaves nothing behind that later calls lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import MAX_BATCH, copy_of, cpu_backend, encoded_batch, small_bundle
from support.gpu_machine import GpuMachine

from bcos_sdk.backends import Backend, open_backend
from bcos_sdk.backends.tensorrt import EngineGraph
from bcos_sdk.bundle import Bundle, builtin_bundle, open_bundle
from bcos_sdk.errors import OutOfMemoryError

Call = Callable[[Backend], Any]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(copy_of(small_bundle(), tmp_path / "bundle"))


def explain(count: int, targets: int) -> Call:
    rows = np.arange(count * targets).reshape(count, targets) % 7
    return lambda backend: backend.explain(encoded_batch(count), rows, weights=True)


def predict(count: int) -> Call:
    return lambda backend: backend.predict(encoded_batch(count))


def needed(machine: GpuMachine, bundle: Bundle, call: Call) -> int:
    """The bytes that a client needs for a call, if nothing is kept from its self-test."""
    backend = open_backend(bundle, "tensorrt")
    make_room(backend)
    before = machine.cuda.room
    call(backend)
    used = before - machine.cuda.room
    backend.close()
    return used


def make_room(backend: Any) -> None:
    for graph in backend._backend._graphs.values():
        graph.make_room()


def limited(machine: GpuMachine, bundle: Bundle, memory: int, **options: Any) -> Backend:
    """A client on a GPU with this much memory for all buffers of its graphs."""
    backend = open_backend(bundle, "tensorrt", **options)
    make_room(backend)
    machine.cuda.room = memory
    return backend


def agree(got: Any, want: Any) -> None:
    for name, value in vars(want).items() if hasattr(want, "__dict__") else [("logits", want)]:
        found = getattr(got, name, got)
        for one, other in zip(found, value, strict=True) if isinstance(value, tuple) else [(found, value)]:
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("call", [predict(MAX_BATCH), explain(MAX_BATCH, 2), explain(1, MAX_BATCH)])
def test_every_call_runs_in_halves(machine: GpuMachine, bundle: Bundle, call: Call) -> None:
    memory = needed(machine, bundle, call) * 3 // 4
    backend = limited(machine, bundle, memory)
    machine.trt.runs.clear()
    agree(call(backend), call(cpu_backend(bundle)))
    assert len(machine.trt.runs) >= 2
    backend.close()
    assert machine.cuda.memory == {"device": {}, "pinned": {}}


LAYERS: dict[str, Call] = {
    "features": lambda backend: backend.features(encoded(3), (1,)),
    "relay": lambda backend: backend.relay(encoded(3), np.array([[0, 1], [2, 3], [4, 10]]), 1),
    "relay for one image": lambda backend: backend.relay(encoded(1), np.array([[0, 1, 2, 3]]), 1),
    "explain_layer": lambda backend: backend.explain_layer(encoded(1), 1, np.array([[0, 1, 2, 3]]), directions()),
}


def encoded(count: int) -> Any:
    return np.random.default_rng(0).uniform(0, 1, (count, 6, 32, 32)).astype(np.float32)


def directions() -> Any:
    channels = open_bundle(builtin_bundle()).manifest.layer_records[1].channels
    return np.random.default_rng(1).standard_normal((1, 4, channels)).astype(np.float32)


@pytest.mark.parametrize("name", LAYERS)
def test_calls_for_inner_layers_run_in_halves(machine: GpuMachine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, call = open_backend(open_bundle(builtin_bundle()), "tensorrt"), LAYERS[name]
    want = call(backend)
    sizes: list[int] = []
    start = EngineGraph._start

    def refuse_large(self: EngineGraph, feed: Any, outputs: Any) -> Any:
        rows = max(int(np.prod(one.shape[:2])) if one.ndim < 4 else len(one) for one in feed.values())
        sizes.append(rows)
        if rows > 2:
            raise OutOfMemoryError("too large")
        return start(self, feed, outputs)

    monkeypatch.setattr(EngineGraph, "_start", refuse_large)
    agree(call(backend), want)
    assert max(sizes) > 2 >= sizes[-1]


def test_one_image_fits_after_a_batch_did_not(machine: GpuMachine, bundle: Bundle) -> None:
    """Nothing that a failed attempt has allocated may lack later."""
    one = explain(1, 3)
    backend = limited(machine, bundle, needed(machine, bundle, one) * 5 // 4)
    agree(one(backend), one(cpu_backend(bundle)))
    for _ in range(2):
        many = explain(MAX_BATCH, 3)
        agree(many(backend), many(cpu_backend(bundle)))
        agree(one(backend), one(cpu_backend(bundle)))


def test_what_another_graph_keeps_is_freed(machine: GpuMachine, bundle: Bundle) -> None:
    one, many = explain(1, 1), predict(MAX_BATCH)
    memory = max(needed(machine, bundle, one), needed(machine, bundle, many))
    backend = limited(machine, bundle, memory)
    for _ in range(2):
        agree(many(backend), many(cpu_backend(bundle)))
        agree(one(backend), one(cpu_backend(bundle)))


@pytest.mark.parametrize("cuda_graphs", [False, True])
def test_runs_in_flight_keep_their_results(machine: GpuMachine, bundle: Bundle, cuda_graphs: bool) -> None:
    """Memory suffices for one run, but not for two at once. The simulated GPU notices what is freed too early."""
    call = explain(3, 1)
    memory = needed(machine, bundle, call) * 3 // 2
    backend, truth = limited(machine, bundle, memory, cuda_graphs=cuda_graphs), cpu_backend(bundle)
    targets = np.array([[0], [1], [2]])
    for seed in range(4):
        batches = [encoded_batch(3) * np.float32(1 - 0.1 * (seed + place)) for place in range(3)]
        started = [backend.start_explain(batch, targets, weights=True) for batch in batches]
        for batch, finish in zip(batches, started, strict=True):
            agree(finish(), truth.explain(batch, targets, weights=True))
    backend.close()
    assert machine.cuda.memory == {"device": {}, "pinned": {}}
    assert machine.cuda.graphs == {}


def test_captured_graphs_are_forgotten_with_their_memory(machine: GpuMachine, bundle: Bundle) -> None:
    small, large = explain(1, 1), explain(MAX_BATCH, 4)
    memory = needed(machine, bundle, large) * 3 // 4
    backend, truth = limited(machine, bundle, memory, cuda_graphs=True), cpu_backend(bundle)
    for call in [*[small] * 6, large, *[small] * 6, large]:
        agree(call(backend), call(truth))
    assert "launch" in machine.cuda.log
    backend.close()
    assert machine.cuda.graphs == {}


def test_a_graph_is_loaded_after_others_have_freed_their_memory(
    machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend: Any = open_backend(bundle, "tensorrt")
    backend._backend._graphs.pop(bundle.explain_graph).close()
    load, refused = machine.trt._load, []

    def load_if_empty(plan: bytes) -> Any:
        if machine.cuda.memory["device"]:
            refused.append(plan)
            machine.trt.full = True
        try:
            return load(plan)
        finally:
            machine.trt.full = False

    monkeypatch.setattr(machine.trt, "_load", load_if_empty)
    agree(explain(2, 1)(backend), explain(2, 1)(cpu_backend(bundle)))
    assert len(refused) == 1


def test_an_error_of_cuda_frees_nothing(machine: GpuMachine, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it, nobody knows what is still in flight."""
    backend = open_backend(bundle, "tensorrt")
    kept = dict(machine.cuda.memory["device"])
    assert kept
    monkeypatch.setattr(machine.cuda, "cudaStreamSynchronize", lambda _stream: (700,))
    monkeypatch.setattr(machine.cuda, "cudaMalloc", lambda _size: (2, None))
    with pytest.raises(OutOfMemoryError):
        explain(MAX_BATCH, 1)(backend)
    assert machine.cuda.memory["device"].keys() == kept.keys()
