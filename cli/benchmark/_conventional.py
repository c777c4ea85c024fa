"""Conventional networks of the same architectures: from torchvision, exported with torch.onnx.export."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bcos_sdk.backends import TensorSpec, open_graph, parse_device
from bcos_sdk.contract import IMAGE, LOGITS, Floats
from bcos_sdk.registry import ModelSpec
from bcos_sdk.registry.architectures import ViTConfig

__all__ = [
    "TORCHVISION_BUILDERS",
    "build_conventional",
    "export_conventional",
    "has_conventional",
    "import_torchvision",
    "open_conventional",
]


TORCHVISION_BUILDERS = {
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
"""Registry name → name of the builder in torchvision. Transformers are built from their registry config instead."""


def import_torchvision() -> Any:
    """Import torchvision even if its build does not match torch. Packages that import it, such as `bcos`, then work."""
    import torch

    try:
        import torchvision
    except RuntimeError:
        # A CUDA build of torchvision does not find its operators next to a CPU build of torch. Declaring the operators
        # is enough to import it. Classifiers do not use them.
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        import torchvision
    return torchvision


def has_conventional(spec: ModelSpec, size: tuple[int, int]) -> bool:
    """Whether torchvision has such a network. Its transformers take square images only."""
    if isinstance(spec.architecture, ViTConfig):
        return size[0] == size[1]
    return spec.name in TORCHVISION_BUILDERS


def build_conventional(spec: ModelSpec, size: tuple[int, int]) -> Any:
    """Return the network in torch with random weights, in eval mode. Its input is [B, 3, *size]."""
    torchvision = import_torchvision()
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = spec.architecture
        if isinstance(config, ViTConfig):
            network = _transformer(torchvision, config, size)
        else:
            network = getattr(torchvision.models, TORCHVISION_BUILDERS[spec.name])(
                weights=None, num_classes=config.classes
            )
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.ndim > 1 and not parameter.any():  # a graph optimiser could remove products with zeros
                    parameter.normal_(std=0.02)
    return network.eval()


def _transformer(torchvision: Any, config: ViTConfig, size: tuple[int, int]) -> Any:
    """A transformer with the width, depth, heads, tokens and stem convolutions of ours; its stem has batch norms."""
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
    """Write the network to ONNX with torch.onnx.export, for any batch size."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own code
        torch.onnx.export(
            network,
            (torch.zeros(2, 3, *size),),
            path,
            input_names=[IMAGE.name],
            output_names=[LOGITS.name],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )


def open_conventional(
    path: Path, device: str, threads: int, classes: int, size: tuple[int, int], largest: int
) -> Callable[[Floats], Floats]:
    """Return the forward pass of batches of at most `largest` images on that device."""
    named = parse_device(device)
    assert named is not None, "a benchmark names its devices"
    smallest, most = ((count, 3, *size) for count in (1, largest))
    graph = open_graph(path, named, threads=threads, shapes={IMAGE.name: (smallest, most, most)})

    def forward(images: Floats) -> Floats:
        logits = {LOGITS.name: TensorSpec((len(images), classes), LOGITS.dtype)}
        found: Floats = graph.run({IMAGE.name: images}, logits)[LOGITS.name]
        return found

    return forward
