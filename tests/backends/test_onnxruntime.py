"""ONNX Runtime. IO binding, which is for GPUs, is tested here with buffers in the memory of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.bundles import (
    LABELS,
    SIZE,
    copy_of,
    cpu_backend,
    encoded_batch,
    sign_again,
    small_bundle,
)

from bcos_sdk.backends import explain_specs
from bcos_sdk.backends.onnxruntime import CPU, BoundGraph, HostGraph
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import BundleError, ClientClosedError, InferenceError


@pytest.fixture(scope="module")
def session() -> Any:
    return CPU.open_session(small_bundle().explain_graph, threads=1)


def feed(count: int, targets: int, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    rows = np.random.default_rng(seed).integers(-2, len(LABELS) + 1, (count, targets))
    return {"image": encoded_batch(count, seed), "targets": rows}


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(("count", "targets"), [(1, 1), (3, 2), (4, 1)])
def test_outputs_have_the_specified_shapes(session: Any, count: int, targets: int, weights: bool) -> None:
    specs = explain_specs(small_bundle().manifest, count, (count, targets), weights=weights)
    got = HostGraph(session).run(feed(count, targets), specs)
    assert got.keys() == specs.keys()
    assert ("weights" in got) is weights
    for name, array in got.items():
        assert (array.shape, array.dtype.name) == (specs[name].shape, specs[name].dtype), name


def test_bound_buffers_give_the_same_results_and_are_reused(session: Any) -> None:
    plain, bound = HostGraph(session), BoundGraph(session, "cpu", 0)
    kept = []
    for seed, (count, targets) in enumerate([(2, 1), (2, 1), (4, 2), (2, 1), (1, 3)]):
        outputs = explain_specs(small_bundle().manifest, count, (count, targets), weights=True)
        arrays = feed(count, targets, seed)
        got = bound.run(arrays, outputs)
        expected = plain.run(arrays, outputs)
        kept.append((got, {name: array.copy() for name, array in got.items()}))
        for name in outputs:
            np.testing.assert_array_equal(got[name], expected[name], err_msg=name)
    assert len(bound._buffers) == 3, "one set of buffers per shape"
    for got, copy in kept:
        for name, array in got.items():
            np.testing.assert_array_equal(array, copy[name], err_msg="a later run overwrote an earlier result")


def test_buffers_of_8_shapes_are_kept_at_most(session: Any) -> None:
    bound = BoundGraph(session, "cpu", 0)
    for targets in range(1, 20):
        bound.run(feed(1, targets), explain_specs(small_bundle().manifest, 1, (1, targets), weights=False))
    assert len(bound._buffers) == 8


def test_buffers_are_allocated_on_the_given_gpu(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    allocated: list[tuple[Any, ...]] = []

    class Recorder:
        @staticmethod
        def ortvalue_from_shape_and_type(*arguments: Any) -> None:
            allocated.append(arguments)

    monkeypatch.setattr(onnxruntime, "OrtValue", Recorder)
    BoundGraph(session, "cuda", 1)._allocate((2, 6, *SIZE), "float32")
    assert allocated == [([2, 6, *SIZE], np.float32, "cuda", 1)]


def test_the_explain_graph_is_loaded_on_first_use() -> None:
    backend = cpu_backend(small_bundle())
    backend.predict(encoded_batch(2))
    assert [path.name for path in backend._graphs] == ["predict.onnx"]
    backend.explain(encoded_batch(1), np.array([[-1]]), weights=False)
    assert [path.name for path in backend._graphs] == ["predict.onnx", "explain.onnx"]


def test_both_graphs_agree_on_the_logits() -> None:
    backend = cpu_backend(small_bundle())
    logits = backend.predict(encoded_batch(3))
    np.testing.assert_allclose(
        backend.explain(encoded_batch(3), np.full((3, 1), -1), weights=False).logits, logits, rtol=1e-5
    )


def test_threads_reach_the_session() -> None:
    session = CPU.open_session(small_bundle().predict_graph, threads=3)
    assert session.get_session_options().intra_op_num_threads == 3


def test_a_failed_run_is_an_inference_error() -> None:
    backend = cpu_backend(small_bundle())
    with pytest.raises(InferenceError, match="failed on a batch of 2"):
        backend.predict(np.zeros((2, 6, 1, 1), np.float32))
    backend.close()
    with pytest.raises(ClientClosedError):
        backend.predict(encoded_batch(1))


def test_a_damaged_graph_is_a_bundle_error(tmp_path: Any) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    path = folder / "explain.onnx"
    path.write_bytes(path.read_bytes().replace(b"MatMul", b"Concat"))  # Concat needs an axis
    sign_again(folder)
    bundle: Bundle = open_bundle(folder)
    with pytest.raises(BundleError, match=r"cannot load explain\.onnx"):
        cpu_backend(bundle).explain(encoded_batch(1), np.array([[0]]), weights=False)
