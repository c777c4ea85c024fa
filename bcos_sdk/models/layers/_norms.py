"""Norms: y = γ · (x − mean) / sqrt(var + eps) + β. In eval mode var is frozen, so that y is affine in x.

The mean is linear in x and stays live. *Uncentred* norms do not subtract the mean, but use the same variance around
the mean. An uncentred norm without β adds no bias term.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bcos_sdk.registry.architectures import NormConfig

__all__ = ["TokenNorm", "make_norm"]

_TOKEN_NORM = NormConfig(kind="position", bias=False)


def make_norm(channels: int, config: NormConfig) -> nn.Module:
    """Return the norm that the config describes, for feature maps [N, channels, H, W]."""
    if config.kind == "none":
        return nn.Identity()
    if config.kind in ("batch", "all"):
        return _RunningNorm(channels, config)
    if config.kind == "position":
        return _PositionNorm(channels, config)
    groups = {"layer": 1, "instance": channels, "group": config.groups}[config.kind]
    assert groups is not None
    return _GroupNorm(channels, config, groups)


class _Norm(nn.Module):
    """Base of all norms: γ, β, and normalisation by the statistics over the axes `dims`."""

    dims: tuple[int, ...]

    def __init__(self, features: int, config: NormConfig) -> None:
        super().__init__()
        has_bias = config.affine and config.bias
        self.weight = nn.Parameter(torch.ones(features)) if config.affine else None
        self.bias = nn.Parameter(torch.zeros(features)) if has_bias else None
        self.eps = config.eps
        self.centred = config.centred

    def forward(self, x: Tensor) -> Tensor:
        return self._affine(self._normalise(x))

    def _normalise(self, x: Tensor) -> Tensor:
        variance = x.var(self.dims, correction=0, keepdim=True)
        if not self.training:
            variance = variance.detach()
        if self.centred:
            x = x - x.mean(self.dims, keepdim=True)
        return x / (variance + self.eps).sqrt()

    def _affine(self, x: Tensor) -> Tensor:
        if self.weight is not None:
            x = x * self._per_channel(self.weight)
        return x if self.bias is None else x + self._per_channel(self.bias)

    def _per_channel(self, parameter: Tensor) -> Tensor:
        return parameter.view(-1, 1, 1)

    def extra_repr(self) -> str:
        affine = "none" if self.weight is None else "scale" if self.bias is None else "scale and bias"
        return f"centred={self.centred}, affine={affine}, eps={self.eps:g}"


class TokenNorm(_Norm):
    """Statistics over the features of each token of [..., tokens, features]. It has no β."""

    dims = (-1,)

    def __init__(self, features: int) -> None:
        super().__init__(features, _TOKEN_NORM)

    def _per_channel(self, parameter: Tensor) -> Tensor:
        return parameter


class _PositionNorm(_Norm):
    """Statistics over the channels, separately at each location."""

    dims = (1,)


class _GroupNorm(_Norm):
    """Statistics over each group of channels and all locations. Layer norm: one group. Instance norm: C groups."""

    dims = (2, 3, 4)

    def __init__(self, channels: int, config: NormConfig, groups: int) -> None:
        super().__init__(channels, config)
        if channels % groups:
            raise ValueError(f"{channels} channels cannot be split into {groups} groups")
        self.groups = groups

    def _normalise(self, x: Tensor) -> Tensor:
        return super()._normalise(torch.unflatten(x, 1, (self.groups, -1))).flatten(1, 2)


class _RunningNorm(_Norm):
    """Statistics over the batch, per channel or over all channels. Eval mode uses their running averages."""

    momentum = 0.1
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, channels: int, config: NormConfig) -> None:
        features = channels if config.kind == "batch" else 1
        super().__init__(features, config)
        self.dims = (0, 2, 3) if config.kind == "batch" else (0, 1, 2, 3)
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def _normalise(self, x: Tensor) -> Tensor:
        if self.training:
            self._track(x.detach())
            return super()._normalise(x)
        if self.centred:
            x = x - self._per_channel(self.running_mean)
        return x / self._per_channel((self.running_var + self.eps).sqrt())

    @torch.no_grad()
    def _track(self, x: Tensor) -> None:
        # As in the published models, centred norms track the unbiased variance and uncentred ones the biased
        # variance. Otherwise their stored running variances would have another meaning here.
        self.num_batches_tracked += 1
        self.running_var.lerp_(x.var(self.dims, correction=int(self.centred)).view(-1), self.momentum)
        if self.centred:
            self.running_mean.lerp_(x.mean(self.dims).view(-1), self.momentum)
