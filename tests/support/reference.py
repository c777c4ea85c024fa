"""The public package `bcos`: the reference implementation that tests compare with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import nn

from bcos_sdk.cli.benchmark import import_torchvision
from bcos_sdk.registry import NormConfig
from bcos_sdk.registry.architectures import PlainConfig, ResNetConfig

import_torchvision()

import bcos.models.pretrained  # noqa: E402
import bcos.models.resnet  # noqa: E402
from bcos.modules import norms  # noqa: E402
from bcos.modules.bcosconv2d import BcosConv2d, BcosConv2dWithScale  # noqa: E402
from bcos.modules.bcoslinear import BcosLinear  # noqa: E402
from bcos.modules.logitlayer import LogitLayer  # noqa: E402

__all__ = [
    "BcosConv2d",
    "BcosLinear",
    "LogitLayer",
    "build",
    "cifar_resnet",
    "entry_points",
    "fine_tuned_resnet18",
    "norm_layer",
    "norms",
    "plain",
    "published",
    "urls",
]

_NORMS = {
    ("all", True): norms.AllNorm2d,
    ("batch", True): norms.BatchNorm2d,
    ("group", True): norms.DetachableGroupNorm2d,
    ("instance", True): norms.DetachableGNInstanceNorm2d,
    ("layer", True): norms.DetachableGNLayerNorm2d,
    ("position", True): norms.DetachablePositionNorm2d,
    ("all", False): norms.AllNormUncentered2d,
    ("batch", False): norms.BatchNormUncentered2d,
    ("group", False): norms.GroupNormUncentered2d,
    ("instance", False): norms.GNInstanceNormUncentered2d,
    ("layer", False): norms.GNLayerNormUncentered2d,
    ("position", False): norms.PositionNormUncentered2d,
}


def build(name: str, **options: Any) -> Any:
    """Return the published network of that name, with random weights."""
    return getattr(bcos.models.pretrained, name)(pretrained=False, **options)


def entry_points() -> list[str]:
    """The names of all published entry points."""
    names: list[str] = bcos.models.pretrained.list_available()
    return names


def urls() -> set[str]:
    """The URLs of all published weights."""
    return {url for models in bcos.models.pretrained.URLS.values() for url in models.values()}


def published(name: str) -> tuple[str, Any]:
    """Return the URL of the weights and the preprocessing of a published network.

    The entry point itself is called. Only building the network and downloading the weights are replaced by mocks.
    """
    with (
        mock.patch.object(bcos.models.pretrained.Experiment, "get_model", return_value=nn.Module()),
        mock.patch.object(torch.hub, "load_state_dict_from_url", return_value={}) as fetch,
    ):
        model = getattr(bcos.models.pretrained, name)(pretrained=True)
    (url,) = fetch.call_args.args
    return url, model.transform


def norm_layer(config: NormConfig) -> Callable[[int], Any]:
    """Return the class in the reference package that corresponds to one of our norms."""
    if config.kind == "none":
        return nn.Identity
    layer: Any = _NORMS[config.kind, config.centred]
    if config.groups is not None:
        layer = partial(layer, config.groups)
    if not config.affine:
        return norms.Unaffine(layer)  # type: ignore[no-any-return]
    return layer if config.bias else norms.NoBias(layer)  # type: ignore[no-any-return]


def cifar_resnet(config: ResNetConfig) -> Any:
    depth = 6 * config.blocks[0] + 2
    return getattr(bcos.models.resnet, f"cifar10_resnet{depth}")(
        num_classes=config.classes,
        norm_layer=norm_layer(config.norm),
        conv_layer=partial(BcosConv2d, b=config.b, max_out=config.max_out),
        logit_bias=config.logit_bias,
    )


def plain(config: PlainConfig) -> Any:
    """Return the plain network, built from layers of the reference package."""
    conv = partial(BcosConv2dWithScale, b=config.b, max_out=config.max_out, scale=config.scale)
    channels, layers = config.channels, []
    for width, stride in zip(config.widths, config.strides, strict=True):
        layers.append(conv(channels, width, 3, stride=stride, padding=1))
        channels = width
    layers.append(conv(channels, config.classes, 1))
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), LogitLayer(config.temperature, config.logit_bias)]
    return nn.Sequential(*layers, *head)


def fine_tuned_resnet18(classes: int) -> Any:
    """A ResNet-18 with that many classes, made as users of the package make it, with the statistics of one batch."""
    network = build("resnet18", num_classes=classes)
    for norm in network.modules():
        if hasattr(norm, "momentum"):
            norm.momentum = 1.0
    rgb = torch.rand(2, 3, 64, 64)
    network.train()(torch.cat([rgb, 1 - rgb], dim=1))
    return network.eval()
