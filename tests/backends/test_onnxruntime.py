"""The ONNX Runtime backend, and the binding of buffers, which runs on the CPU's memory here."""

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

from bcos_sdk.backends import Device
from bcos_sdk.backends._graphs import explain_outputs
from bcos_sdk.backends.onnxruntime._binding import BoundGraph
from bcos_sdk.backends.onnxruntime._graph import HostGraph
from bcos_sdk.backends.onnxruntime._sessions import open_session, provider_options
from bcos_sdk.bundle import Bundle, open_bundle
from bcos_sdk.errors import BundleError, ClientClosedError, InferenceError


@pytest.fixture(scope="module")
def session() -> Any:
    bundle = small_bundle()
    return open_session(bundle.explain_graph, Device("cpu"), 1, provider_options(Device("cpu")))


def feed(count: int, targets: int, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    rows = np.random.default_rng(seed).integers(-2, len(LABELS) + 1, (count, targets))
    return {"image": encoded_batch(count, seed), "targets": rows}


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(("count", "targets"), [(1, 1), (3, 2), (4, 1)])
def test_outputs_have_the_shapes_that_were_planned(session: Any, count: int, targets: int, weights: bool) -> None:
    planned = explain_outputs(small_bundle().manifest, count, (count, targets), weights=weights)
    got = HostGraph(session).run(feed(count, targets), planned)
    assert got.keys() == planned.keys()
    assert ("weights" in got) is weights
    for name, array in got.items():
        assert (array.shape, array.dtype.name) == (planned[name].shape, planned[name].dtype), name


def test_bound_buffers_give_the_same_and_are_used_again(session: Any) -> None:
    plain, bound = HostGraph(session), BoundGraph(session, Device("cpu"))
    kept = []
    for seed, (count, targets) in enumerate([(2, 1), (2, 1), (4, 2), (2, 1), (1, 3)]):
        outputs = explain_outputs(small_bundle().manifest, count, (count, targets), weights=True)
        arrays = feed(count, targets, seed)
        got = bound.run(arrays, outputs)
        expected = plain.run(arrays, outputs)
        kept.append((got, {name: array.copy() for name, array in got.items()}))
        for name in outputs:
            np.testing.assert_array_equal(got[name], expected[name], err_msg=name)
    assert len(bound._buffers) == 3, "one set of buffers per shape"
    for got, copy in kept:
        for name, array in got.items():
            np.testing.assert_array_equal(array, copy[name], err_msg="a later run wrote into an earlier result")


def test_buffers_of_many_shapes_do_not_pile_up(session: Any) -> None:
    bound = BoundGraph(session, Device("cpu"))
    for targets in range(1, 20):
        bound.run(feed(1, targets), explain_outputs(small_bundle().manifest, 1, (1, targets), weights=False))
    assert len(bound._buffers) == 8


def test_buffers_are_made_on_the_device_that_was_asked_for(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    asked: list[tuple[Any, ...]] = []

    class Recorder:
        @staticmethod
        def ortvalue_from_shape_and_type(*arguments: Any) -> None:
            asked.append(arguments)

    monkeypatch.setattr(onnxruntime, "OrtValue", Recorder)
    BoundGraph(session, Device("cuda", 1))._allocate((2, 6, *SIZE), "float32")
    assert asked == [([2, 6, *SIZE], np.float32, "cuda", 1)]


def test_who_only_predicts_never_loads_the_explain_graph() -> None:
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
    session = open_session(small_bundle().predict_graph, Device("cpu"), 3, provider_options(Device("cpu")))
    assert session.get_session_options().intra_op_num_threads == 3


def test_failures_while_running_are_typed() -> None:
    backend = cpu_backend(small_bundle())
    with pytest.raises(InferenceError, match="failed on a batch of 2"):
        backend.predict(np.zeros((2, 6, 1, 1), np.float32))
    backend.close()
    with pytest.raises(ClientClosedError):
        backend.predict(encoded_batch(1))


def test_a_graph_that_onnxruntime_refuses(tmp_path: Any) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    (folder / "explain.onnx").write_bytes(b"\x08\x0a garbage")
    sign_again(folder)
    bundle: Bundle = open_bundle(folder)
    with pytest.raises(BundleError, match=r"cannot load .*explain\.onnx"):
        cpu_backend(bundle).explain(encoded_batch(1), np.array([[0]]), weights=False)
