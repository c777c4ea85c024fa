"""Conventional networks of the same architectures: torchvision's, exported to ONNX the usual way."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends import TensorSpec, open_graph, parse_device
from bcos_sdk.cli.benchmark._torchvision import import_torchvision
from bcos_sdk.registry import ModelSpec
from bcos_sdk.registry.architectures import ViTConfig

__all__ = ["build_conventional", "export_conventional", "has_conventional", "open_conventional"]

Floats: TypeAlias = npt.NDArray[np.float32]

_BUILDERS = {
    **{name: name for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d")},
    **{name: name for name in ("densenet121", "densenet161", "densenet169", "densenet201")},
    "vgg11_bnu": "vgg11_bn",
    "convnext_tiny": "convnext_tiny",
    "convnext_tiny_bnu": "convnext_tiny",
    "convnext_base": "convnext_base",
    "convnext_base_bnu": "convnext_base",
    "densenet121_long": "densenet121",
    "resnet50_long": "resnet50",
    "resnet152_long": "resnet152",
}
"""Registry name → torchvision's builder. Transformers are not here: they are built to the registry's own figures."""


def has_conventional(spec: ModelSpec, size: tuple[int, int]) -> bool:
    """Whether there is a network to compare with; torchvision's transformers take square images only."""
    if isinstance(spec.architecture, ViTConfig):
        return size[0] == size[1]
    return spec.name in _BUILDERS


def build_conventional(spec: ModelSpec, size: tuple[int, int]) -> Any:
    """The network in torch with random weights, in eval mode; it takes [B, 3, *size]."""
    torchvision = import_torchvision()
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = spec.architecture
        if isinstance(config, ViTConfig):
            network = _transformer(torchvision, config, size)
        else:
            network = getattr(torchvision.models, _BUILDERS[spec.name])(weights=None, num_classes=config.classes)
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.ndim > 1 and not parameter.any():  # an optimiser could leave out what multiplies by zero
                    parameter.normal_(std=0.02)
    return network.eval()


def _transformer(torchvision: Any, config: ViTConfig, size: tuple[int, int]) -> Any:
    """Same width, depth, heads and tokens; early convolutions as ours, with batch norm."""
    vit = torchvision.models.vision_transformer
    height, _width = size
    stem = [
        vit.ConvStemConfig(out_channels=width, kernel_size=3, stride=stride)
        for width, stride in zip(config.stem, config.stem_strides, strict=True)
    ]
    return vit.VisionTransformer(
        image_size=height,
        patch_size=config.size_step,
        num_layers=config.depth,
        num_heads=config.heads,
        hidden_dim=config.dim,
        mlp_dim=config.mlp_dim,
        num_classes=config.classes,
        conv_stem_configs=stem or None,
    )


def export_conventional(network: Any, size: tuple[int, int], path: Path) -> None:
    """Write the network to ONNX as torch does it, for any batch size."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        torch.onnx.export(
            network,
            (torch.zeros(2, 3, *size),),
            path,
            input_names=["image"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )


def open_conventional(path: Path, device: str, threads: int, classes: int) -> Callable[[Floats], Floats] | None:
    """The forward of whole batches on that device; None if it is not run there."""
    named = parse_device(device)
    if named is None or named.runtime.on_gpu:
        return None
    graph = open_graph(path, named, threads=threads)

    def forward(images: Floats) -> Floats:
        logits = {"logits": TensorSpec((len(images), classes), "float32")}
        return graph.run({"image": images}, logits)["logits"]

    return forward
