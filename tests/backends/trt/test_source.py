"""The graph that an engine is built from computes what the graph of the bundle does, with each weight once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
import torch
from support.bundles import small_bundle
from support.members import MEMBERS, images, member_graphs
from support.walking import execute, parse

from bcos_sdk.backends.tensorrt import engine_source
from bcos_sdk.images import encode

# Both compute the same sums of products in another order.
TOLERANCE = 2e-5


def run(contents: bytes, folder: Path, feed: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    session = onnxruntime.InferenceSession(contents, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def computed_kernels(contents: bytes) -> list[str]:
    """The convolutions at stride one whose weight is not a tensor of the file."""
    graph = onnx.load_from_string(contents).graph
    stored = {tensor.name for tensor in graph.initializer}
    return [node.name for node in graph.node if node.op_type == "Conv" and node.input[1] not in stored]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", MEMBERS)
def test_no_engine_holds_a_flipped_copy_of_a_weight(name: str, half: bool) -> None:
    contents = member_graphs(name, half=half).explain.read_bytes()
    shared = engine_source(contents)
    assert computed_kernels(shared) == []
    if name != "SimpleViT":
        assert computed_kernels(contents), "the test needs a graph with flipped weights"
    assert engine_source(shared) == shared


@pytest.mark.parametrize("name", ["ResNeXt", "ConvNeXt", "windows", "small bundle"])
def test_results_are_those_of_the_graph_of_the_bundle(name: str) -> None:
    """Groups, depthwise and dilated convolutions, odd sizes. The parsed networks of all families are compared too."""
    if name == "small bundle":
        path, size = small_bundle().explain_graph, small_bundle().manifest.input.size
    else:
        path, size = member_graphs(name).explain, MEMBERS[name][0]
    feed = {"image": images(2, size).numpy(), "targets": np.array([[0, 3], [2, 1]])}
    contents = path.read_bytes()
    got, want = run(engine_source(contents), path.parent, feed), run(contents, path.parent, feed)
    assert got.keys() == want.keys()
    for output, value in want.items():
        assert np.linalg.norm(got[output] - value) <= TOLERANCE * np.linalg.norm(value), output


def all_levels(count: int, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    pixels = np.arange(count * size[0] * size[1] * 3) * 37 % 256
    assert set(pixels) == set(range(256))
    return pixels.astype(np.uint8).reshape(count, *size, 3)


def blank(name: str, size: tuple[int, int]) -> dict[str, npt.NDArray[Any]]:
    if name == "pixels":
        return {name: np.zeros((1, *size, 3), np.uint8)}
    return {name: np.full((1, 6, *size), -1, np.float32)}


def either(pixels: npt.NDArray[np.uint8]) -> list[dict[str, npt.NDArray[Any]]]:
    """The inputs of an engine for these images: as pixels, and encoded by the client."""
    size = pixels.shape[1], pixels.shape[2]
    encoded = np.stack([encode(one) for one in pixels])
    return [{"pixels": pixels, **blank("encoded", size)}, {"encoded": encoded, **blank("pixels", size)}]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_pixels_give_the_same_bits_as_the_encoding_of_the_client(precision: Any) -> None:
    bundle = small_bundle(precision=precision)
    contents, pixels = bundle.explain_graph.read_bytes(), all_levels(2, bundle.manifest.input.size)
    targets = {"targets": np.array([[0, 3], [2, 1]])}
    encoded = np.stack([encode(one) for one in pixels])
    want = run(engine_source(contents), bundle.path, {"image": encoded, **targets})
    for feed in either(pixels):
        got = run(engine_source(contents, "rgb+complement"), bundle.path, feed | targets)
        for output, value in want.items():
            assert np.array_equal(got[output], value), (list(feed), output)


def test_tensorrt_reads_pixels_as_the_client_encodes_them() -> None:
    """The network of TensorRT's parser, executed layer by layer."""
    pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' parses graphs without a GPU")
    bundle = small_bundle()
    pixels = all_levels(3, bundle.manifest.input.size)
    encoded = np.stack([encode(one) for one in pixels])
    want = run(bundle.predict_graph.read_bytes(), bundle.path, {"image": encoded})["logits"]
    parsed = parse(bundle.predict_graph, for_engine=True, channels="rgb+complement")
    for feed in either(pixels):
        got = execute(parsed, {name: torch.from_numpy(value) for name, value in feed.items()})["logits"].numpy()
        assert np.linalg.norm(got - want) <= TOLERANCE * np.linalg.norm(want)
