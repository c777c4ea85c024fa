"""TensorRT's parser reads the graphs of inner layers as ONNX Runtime does, also "max" and "mean" positions."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest
import torch
from support.members import images
from support.walking import execute, parse

from bcos_sdk.bundle import builtin_bundle, open_bundle

pytest.importorskip("tensorrt_rtx", reason="pip install 'bcos-sdk[trt-rtx]' parses graphs without a GPU")

TOLERANCE = 1e-4


def compare(graph: Path, feed: dict[str, torch.Tensor]) -> None:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {name: value.numpy() for name, value in feed.items()})
    got = execute(parse(graph, for_engine=True), feed)
    for name, value in zip(names, values, strict=True):
        truth = torch.from_numpy(value)
        assert got[name].dtype == truth.dtype, name
        if not truth.is_floating_point():
            assert torch.equal(got[name], truth), name
        else:
            assert float((got[name] - truth).norm()) <= TOLERANCE * max(float(truth.norm()), 1e-6), name


@pytest.mark.parametrize("count", [1, 3])
def test_features_and_relay(count: int) -> None:
    torch.manual_seed(0)
    bundle = open_bundle(builtin_bundle())
    layers, batch = bundle.manifest.layers, images(count, bundle.manifest.input.size)
    assert layers is not None
    compare(bundle.path / layers.features_graph, {"image": batch})
    targets = torch.tensor([[0, -1, 10]] * count)
    compare(bundle.path / layers.relay_graph, {"image": batch, "targets": targets})


@pytest.mark.parametrize("place", range(4))
def test_values_of_layers(place: int) -> None:
    torch.manual_seed(0)
    bundle = open_bundle(builtin_bundle())
    record = bundle.manifest.layer_records[place]
    height, width = record.positions
    feed = {
        "image": images(3, bundle.manifest.input.size),
        "positions": torch.tensor([[-1, height * width], [width + 1, 0], [-1, height * width - 1]]),
        "directions": torch.randn(3, 2, record.channels),
    }
    compare(bundle.path / record.explain_graph, feed)
