"""OpenVINO keeps no copy of the weights beside those that it packs for its kernels."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from support.bundles import small_bundle

from bcos_sdk._telemetry import import_openvino
from bcos_sdk.backends.openvino import OpenvinoGraph, rewrite, transpose_in_place
from bcos_sdk.bundle import external_tensors

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="pip install 'bcos-sdk[openvino]'")


def test_constants_use_the_memory_of_the_weights_file() -> None:
    bundle = small_bundle()
    path = bundle.explain_rows_graph
    assert path is not None
    tensors = external_tensors(path.read_bytes(), bundle.weights)
    graph = OpenvinoGraph(path, weights=bundle.weights)
    constants = {node.get_friendly_name(): node for node in graph._model.get_ops() if not node.inputs()}
    assert len(tensors) >= 3
    addresses = {name: constants[name].data.ctypes.data for name in tensors if name in constants}
    assert addresses == {name: tensors[name].ctypes.data for name in tensors if name in constants}
    assert sum(tensors[name].nbytes for name in addresses) > 0.9 * sum(array.nbytes for array in tensors.values())


def transposed_convolution(weight: Any, stride: int, pad: int) -> Any:
    """x → conv(conv(x, W), Wᵀ): both directions of one weight, as in an explain graph."""
    openvino = import_openvino()
    operators = openvino.opset13
    steps, pads, ones = [stride] * 2, [pad] * 2, [1, 1]
    image = operators.parameter([2, weight.shape[1], 6, 5], np.float32, "image")
    constant = operators.constant(weight)
    forward = operators.convolution(image, constant, ones, [0, 0], [0, 0], ones)
    swapped = operators.transpose(constant, operators.constant(np.array([1, 0, 2, 3])))
    return openvino.Model([operators.convolution(forward, swapped, steps, pads, pads, ones)], [image])


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "pad", "replaced"),
    [
        ((7, 4), 1, 1, 0, True),
        ((64, 64), 1, 1, 0, True),  # OpenVINO could confuse a square weight with its transpose
        ((100, 128), 1, 1, 0, True),
        ((7, 4), 1, 2, 0, False),
        ((7, 4), 1, 1, 1, False),
        ((7, 4), 3, 1, 0, False),
    ],
)
def test_transposed_weights_of_one_pixel_are_not_computed_in_advance(
    channels: tuple[int, int], kernel: int, stride: int, pad: int, replaced: bool
) -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((*channels, kernel, kernel)).astype(np.float32)
    image = random.standard_normal((2, channels[1], 6, 5)).astype(np.float32)
    core = import_openvino().Core()
    model = transposed_convolution(weight, stride, pad)
    assert transpose_in_place(model.clone()) == replaced
    expected = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(image)[0]
    rewrite(model)
    got = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(image)[0]
    if kernel == 1:
        middle = np.einsum("oi,bihw->bohw", weight[:, :, 0, 0].astype(float), image)
        exact = np.einsum("oi,bohw->bihw", weight[:, :, 0, 0].astype(float), middle)
        exact = np.pad(exact, ((0, 0), (0, 0), (pad, pad), (pad, pad)))[:, :, ::stride, ::stride]
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
