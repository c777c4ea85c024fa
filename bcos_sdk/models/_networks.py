"""Build networks from registry names or configs: with fresh weights, or with calibrated random weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bcos_sdk.models.convnext import ConvNeXt
from bcos_sdk.models.densenet import DenseNet
from bcos_sdk.models.plain import Plain
from bcos_sdk.models.resnet import ResNet
from bcos_sdk.models.vgg import VGG
from bcos_sdk.models.vit import ViT
from bcos_sdk.registry import ArchitectureConfig, ModelSpec, model_registry

__all__ = ["FAMILIES", "build_model", "calibrate", "random_network"]

FAMILIES: dict[str, Any] = {
    "convnext": ConvNeXt,
    "densenet": DenseNet,
    "plain": Plain,
    "resnet": ResNet,
    "vgg": VGG,
    "vit": ViT,
}


def build_model(model: str | ModelSpec | ArchitectureConfig) -> nn.Module:
    """Return the network with fresh random weights, in eval mode."""
    if isinstance(model, str):
        model = model_registry().find(model)
    config = model.architecture if isinstance(model, ModelSpec) else model
    network: nn.Module = FAMILIES[config.family](config)
    return network.eval()


def random_network(spec: ModelSpec) -> nn.Module:
    """Return the network with calibrated random weights, in eval mode. Every call returns the same weights.

    Tests and benchmarks use it where trained weights are not needed: run time does not depend on the weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build_model(spec)
        rgb = torch.rand(4, 3, *spec.input.size)
        calibrate(network, torch.cat([rgb, 1 - rgb], dim=1))
    return network


def calibrate(network: nn.Module, x: Tensor) -> None:
    """Set γ and layer scales to random values near 1, and running statistics to those of the batch `x`.

    With fresh weights the signal shrinks from layer to layer. Errors are then smaller than rounding errors, and values
    become denormal, which slows a CPU down.
    """
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("layer_scale"):
                parameter.uniform_(0.3, 1.0)
            elif parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5)
        momenta = {module: module.momentum for module in network.modules() if hasattr(module, "momentum")}
        for module in momenta:
            module.momentum = 1.0  # type: ignore[assignment]
        network.train()(x)
        network.eval()
        for module, momentum in momenta.items():
            module.momentum = momentum
