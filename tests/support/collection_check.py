"""Export a small network and compare ONNX Runtime and OpenVINO with autograd in float64, at batch 1 and 3."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bcos_sdk.backends import Device, TensorSpec, open_graph
from bcos_sdk.backends.onnxruntime import CPU
from bcos_sdk.backends.openvino import OpenvinoGraph
from bcos_sdk.bundle import Bundle
from bcos_sdk.contract import CHANNELS, InputSpec
from bcos_sdk.exporters import export
from bcos_sdk.exporters.verify import Truth, consult

__all__ = ["errors_of"]

_RUNTIMES: dict[str, Callable[[Path], Any]] = {
    "onnxruntime": lambda path: open_graph(path, Device(CPU), threads=1),
    "openvino": lambda path: OpenvinoGraph(path, threads=1),
}


def errors_of(module: nn.Module, size: tuple[int, int] = (8, 8), channels: int = CHANNELS) -> dict[str, float]:
    """The largest error of logits, W(x) and bias in each runtime, relative to the norm of the truth."""
    images = torch.rand(3, channels, *size, generator=torch.Generator().manual_seed(1))
    with TemporaryDirectory() as folder:
        spec = InputSpec.exact(size) if channels == CHANNELS else InputSpec.arrays(channels, size)
        bundle = export(module, Path(folder) / "bundle", preprocessing=spec, max_batch=3)
        return _errors_of(bundle, module, images)


def _errors_of(bundle: Bundle, module: nn.Module, images: Tensor) -> dict[str, float]:
    classes, terms = bundle.manifest.classes, len(bundle.manifest.bias_terms)
    targets = torch.tensor([[0, classes - 1, classes]] * 3)  # the first and the last class, and the mean
    truth = consult(module, images, targets)
    worst: dict[str, float] = {}
    for runtime, load in _RUNTIMES.items():
        run = partial(_run, load(bundle.explain_graph), images, targets, terms, classes)
        for count in (1, 3):
            part = truth.part([*range(count)], targets.shape[1])
            for name, error in _compare(run(count), part).items():
                worst[f"{runtime}: {name}"] = max(error, worst.get(f"{runtime}: {name}", 0.0))
    return worst


def _run(graph: Any, images: Tensor, targets: Tensor, terms: int, classes: int, count: int) -> dict[str, Any]:
    aims = targets[:count].shape
    shapes = {"logits": (count, classes), "weights": (*aims, *images.shape[1:]), "bias_terms": (*aims, terms)}
    feed = {"image": images[:count].numpy(), "targets": targets[:count].numpy()}
    results: dict[str, Any] = graph.run(feed, {name: TensorSpec(shape, "float32") for name, shape in shapes.items()})
    return results


def _compare(got: dict[str, Any], truth: Truth) -> dict[str, float]:
    weights = np.linalg.norm((got["weights"] - truth.weights.numpy()).reshape(*truth.bias.shape, -1), axis=-1)
    bias = np.abs(got["bias_terms"].sum(-1) - truth.bias.numpy())
    logits = np.linalg.norm(got["logits"] - truth.logits.numpy(), axis=1)
    scales = truth.scales
    terms = np.maximum(scales.bias.numpy(), np.abs(got["bias_terms"]).sum(-1))
    return {
        "logits": float((logits / np.maximum(scales.logits.numpy(), terms.max())).max()),
        "weights": float((weights / scales.weights.numpy()).max()),
        "bias": float((bias / terms).max()),
    }
