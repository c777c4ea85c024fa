"""From a registry name or a config to a network in eval mode, with random weights."""

from __future__ import annotations

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

__all__ = ["FAMILIES", "build_model"]

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
