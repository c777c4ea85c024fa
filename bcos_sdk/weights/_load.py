"""From a registry name to a network with its weights, in one call."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from bcos_sdk.models import build_model
from bcos_sdk.registry import ModelSpec, builtin_registry
from bcos_sdk.weights._download import download_weights
from bcos_sdk.weights._fit import load_weights
from bcos_sdk.weights._packaged import packaged_weights

__all__ = ["load_model"]


def load_model(model: str | ModelSpec, *, weights: Path | str | None = None, prefer_ema: bool = True) -> nn.Module:
    """The network with weights from a file, or without one the built-in or published weights, in eval mode.

    Published weights are downloaded once and kept in the cache. Of a training checkpoint that holds
    an averaged copy (EMA) that copy is taken, unless `prefer_ema` is false.
    """
    spec = builtin_registry().find(model) if isinstance(model, str) else model
    network = build_model(spec)
    if weights is None and spec.packaged is not None:
        weights = packaged_weights(spec.packaged)
    path = download_weights(spec) if weights is None else Path(weights)
    load_weights(network, path, name=spec.name, prefer_ema=prefer_ema)
    return network
