"""The sizes that OpenVINO compiles a graph for, and sums of squares that become norms."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.bundles import copy_of, encoded_batch, small_bundle
from support.tiny_onnx import write_onnx

from bcos_sdk._telemetry import import_openvino
from bcos_sdk.backends import Arrays, Device, TensorSpec, explain_specs, open_backend, open_graph
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.backends.openvino import OpenvinoGraph, images_per_run, join_norms
from bcos_sdk.bundle import open_bundle
from bcos_sdk.errors import SelfTestError

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="pip install 'bcos-sdk[openvino]'")


@pytest.mark.parametrize(("images", "sizes"), [(None, {7}), (1, {1}), (2, {1, 2}), (4, {1, 2, 4})])
def test_batches_run_in_parts_of_a_few_compiled_sizes(images: int | None, sizes: set[int]) -> None:
    path = small_bundle().explain_rows_graph
    assert path is not None
    graph = OpenvinoGraph(path, threads=2, images_per_run=images)
    feed: Arrays = {"image": encoded_batch(7), "targets": np.arange(7) - 1}
    specs = explain_specs(small_bundle().manifest, 7, (7,), weights=True)
    got = graph.run(feed, specs)
    assert {size for compiled in graph._requests for _name, size in compiled} == sizes
    expected = open_graph(path, Device(CPU), threads=1).run(feed, specs)
    for name, array in got.items():
        assert array.shape == specs[name].shape
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("threads", "size", "images"),
    [
        (1, (224, 224), 1),
        (2, (224, 224), 2),
        (3, (224, 224), 2),
        (2, (192, 192), 2),
        (2, (448, 224), 1),
        (2, (448, 448), 1),
        (8, (224, 224), 8),
        (64, (224, 224), 8),
        (1, (32, 32), 8),
    ],
)
def test_more_threads_and_smaller_images_give_larger_runs(threads: int, size: tuple[int, int], images: int) -> None:
    assert images_per_run(threads, size) == images


@pytest.mark.parametrize(("images", "targets"), [(2, 1), (1, 2)])
def test_each_size_is_self_tested_before_its_first_use(
    images: int, targets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled graph of one size is wrong, but its explanations are complete, so no certificate shows it."""
    run_part = OpenvinoGraph._run_part

    def faulty(self: OpenvinoGraph, feed: Arrays, sizes: Any, results: Arrays, part: slice) -> None:
        run_part(self, feed, sizes, results, part)
        if max(len(array) for array in feed.values()) == 2:
            for name in {"logits", "contributions", "bias_terms", "weights"} & results.keys():
                results[name][part] *= 1.2

    monkeypatch.setattr(OpenvinoGraph, "_run_part", faulty)
    backend = open_backend(small_bundle(), "openvino", threads=4)
    backend.explain(encoded_batch(1), np.array([[0]]), weights=False)
    with pytest.raises(SelfTestError):
        backend.explain(encoded_batch(images), np.zeros((images, targets), np.int64), weights=False)


def test_files_that_change_after_loading_have_no_effect(tmp_path: Path) -> None:
    folder = copy_of(small_bundle(), tmp_path / "bundle")
    backend = open_backend(open_bundle(folder), "openvino", threads=4)
    before = backend.explain(encoded_batch(1), np.array([[0]]), weights=False)
    for name in ("explain_rows.onnx", "weights.bin"):
        (folder / name).unlink()
        (folder / name).write_bytes(b"another export")
    after = backend.explain(encoded_batch(2), np.array([[0], [1]]), weights=False)
    np.testing.assert_allclose(after.contributions[0], before.contributions[0], rtol=1e-4, atol=1e-6)


def test_any_number_of_targets_of_one_image_share_a_compiled_graph() -> None:
    path = small_bundle().explain_rows_graph
    assert path is not None
    graph = OpenvinoGraph(path, threads=1)
    for count in (2, 5, 3):
        specs = explain_specs(small_bundle().manifest, 1, (count,), weights=False)
        assert graph.run({"image": encoded_batch(1), "targets": np.arange(count)}, specs)["classes"].tolist() == [
            *range(count)
        ]
    assert set(graph._requests) == {(("image", 1), ("targets", -1))}


def test_a_size_that_ran_only_once_makes_room_for_another() -> None:
    graph = OpenvinoGraph(small_bundle().predict_graph, threads=1, images_per_run=8)

    def compiled_after(count: int) -> set[int]:
        graph.run({"image": encoded_batch(count)}, {})
        return {size for sizes in graph._requests for _name, size in sizes}

    assert compiled_after(1) == {1}
    assert compiled_after(2) == {2}, "the graph for one image has run once"
    assert compiled_after(2) == {2}
    assert compiled_after(3) == {1, 2}, "that for two images has run more than once"
    assert compiled_after(4) == {1, 2, 4}


def test_sums_of_squares_become_norms() -> None:
    model = import_openvino().Core().read_model(small_bundle().predict_graph)
    kinds = [node.get_type_name() for node in model.get_ordered_ops()]
    assert (joined := join_norms(model)) > 0
    assert join_norms(model) == 0, "a second call finds no sum of squares"
    assert [node.get_type_name() for node in model.get_ordered_ops()].count("ReduceL2") == joined
    assert kinds.count("ReduceL2") == 0


@pytest.mark.parametrize("shared", [False, True])
def test_squares_with_another_consumer_are_not_joined(tmp_path: Path, shared: bool) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "axes"], ["total"], keepdims=1),
        helper.make_node("Div", ["squares" if shared else "x", "total"], ["y"]),
    ]
    path = write_onnx(tmp_path / "graph.onnx", nodes, x=[24], y=[24], weights={"axes": np.array([1])})
    assert join_norms(import_openvino().Core().read_model(path)) == (not shared)
    x = np.random.default_rng(0).random((3, 24), np.float32)
    got = OpenvinoGraph(path, threads=1).run({"x": x}, {"y": TensorSpec((3, 24), "float32")})["y"]
    total = (x.astype(np.float64) ** 2).sum(1, keepdims=True)
    np.testing.assert_allclose(got, (x**2 if shared else x) / total, rtol=1e-6)
