"""From a registry name or a config to a network in eval mode, with random or real weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from bcos_sdk.models.convnext import ConvNeXt
from bcos_sdk.models.densenet import DenseNet
from bcos_sdk.models.plain import Plain
from bcos_sdk.models.resnet import ResNet
from bcos_sdk.models.vgg import VGG
from bcos_sdk.models.vit import ViT
from bcos_sdk.registry import ModelSpec, builtin_registry
from bcos_sdk.registry.architectures import ArchitectureConfig

__all__ = ["FAMILIES", "build_model", "load_model"]

FAMILIES: dict[str, Any] = {
    "convnext": ConvNeXt,
    "densenet": DenseNet,
    "plain": Plain,
    "resnet": ResNet,
    "vgg": VGG,
    "vit": ViT,
}


def build_model(model: str | ModelSpec | ArchitectureConfig) -> nn.Module:
    """The network with fresh random weights, in eval mode."""
    if isinstance(model, str):
        model = builtin_registry().find(model)
    config = model.architecture if isinstance(model, ModelSpec) else model
    network: nn.Module = FAMILIES[config.family](config)
    return network.eval()


def load_model(
    model: str | ModelSpec, *, weights: Path | str | None = None, prefer_ema: bool = True
) -> nn.Module:
    """The network with weights from a file, or without one the published weights, in eval mode.

    Published weights are downloaded once and kept in the cache. Of a training checkpoint that holds
    an averaged copy (EMA) that copy is taken, unless `prefer_ema` is false.
    """
    from bcos_sdk.weights import download_weights, load_weights

    spec = builtin_registry().find(model) if isinstance(model, str) else model
    network = build_model(spec)
    path = download_weights(spec) if weights is None else Path(weights)
    load_weights(network, path, name=spec.name, prefer_ema=prefer_ema)
    return network
