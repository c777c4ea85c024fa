"""The B-cos transform, y = |cos(x, w)|^(B−1) · ŵᵀx with ŵ = w/‖w‖ for each unit and location; and the logit layer.

In eval mode the factor |cos|^(B−1) is frozen, so that the layer is linear in x.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["BcosConv2d", "BcosLinear", "LogitLayer"]

_COSINE_EPS = 1e-6
_PATCH_EPS = 1e-6  # added under the square root of a convolution's patch norm
_VECTOR_EPS = 1e-12  # added to the norm of a linear layer's input


class BcosConv2d(nn.Module):
    """Convolution with unit-norm filters, each output scaled by |cos|^(B−1) of the angle between filter and patch.

    With `max_out` M each output is the largest of M units. Each group has its own patch norm.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int] = 1,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        *,
        b: float = 2.0,
        max_out: int = 1,
    ) -> None:
        super().__init__()
        _check(b, max_out)
        if out_channels % groups:
            raise ValueError(f"out_channels {out_channels} is not a multiple of groups {groups}")
        self.linear = _UnitConv2d(
            in_channels, out_channels * max_out, kernel_size, stride, padding, dilation, groups, bias=False
        )
        self.b = b
        self.max_out = max_out

    def forward(self, x: Tensor) -> Tensor:
        linear = _largest_unit(self.linear(x), self.max_out, dim=1)
        if self.b == 1:
            return linear
        norm = self._patch_norm(_at_least_float32(x))
        return linear * _dynamic_scale(linear, norm, self.b, frozen=not self.training)

    def _patch_norm(self, x: Tensor) -> Tensor:
        """sqrt(Σ x² + ε) over the patch of each output location. Padding counts as zeros, as in the convolution."""
        conv = self.linear
        groups, units = conv.groups, conv.out_channels // self.max_out // conv.groups
        energy = x.square()
        energy = energy.sum(1, keepdim=True) if groups == 1 else torch.unflatten(energy, 1, (groups, -1)).sum(2)
        window = energy.new_ones(groups, 1, *conv.kernel_size)
        energy = F.conv2d(energy, window, None, conv.stride, conv.padding, conv.dilation, groups)
        norm = (energy + _PATCH_EPS).sqrt()
        if groups == 1 or units == 1:
            return norm
        return norm.unsqueeze(2).expand(-1, -1, units, -1, -1).flatten(1, 2)

    def extra_repr(self) -> str:
        return f"b={self.b:g}, max_out={self.max_out}"


class BcosLinear(nn.Module):
    """The B-cos transform of the vectors along the last axis."""

    def __init__(self, in_features: int, out_features: int, *, b: float = 2.0, max_out: int = 1) -> None:
        super().__init__()
        _check(b, max_out)
        self.linear = _UnitLinear(in_features, out_features * max_out, bias=False)
        self.b = b
        self.max_out = max_out

    def forward(self, x: Tensor) -> Tensor:
        linear = _largest_unit(self.linear(x), self.max_out, dim=-1)
        if self.b == 1:
            return linear
        norm = _at_least_float32(x).norm(dim=-1, keepdim=True) + _VECTOR_EPS
        return linear * _dynamic_scale(linear, norm, self.b, frozen=not self.training)

    def extra_repr(self) -> str:
        return f"b={self.b:g}, max_out={self.max_out}"


class LogitLayer(nn.Module):
    """logits = x / temperature + bias, with constant temperature and bias."""

    def __init__(self, bias: float, temperature: float = 1.0) -> None:
        super().__init__()
        self.bias = bias
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        return x / self.temperature + self.bias

    def extra_repr(self) -> str:
        return f"bias={self.bias:g}, temperature={self.temperature:g}"


class _UnitConv2d(nn.Conv2d):
    """Convolution with filters normalised to unit length. A filter of zeros stays zero."""

    def forward(self, x: Tensor) -> Tensor:
        weight = _unit_rows(self.weight.flatten(1)).view_as(self.weight)
        return F.conv2d(x, weight, None, self.stride, self.padding, self.dilation, self.groups)


class _UnitLinear(nn.Linear):
    """Linear map with rows normalised to unit length. A row of zeros stays zero."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, _unit_rows(self.weight))


def _check(b: float, max_out: int) -> None:
    if b < 1 or max_out < 1:
        raise ValueError(f"B-cos needs b >= 1 and max_out >= 1, got b={b} and max_out={max_out}")


def _largest_unit(units: Tensor, max_out: int, dim: int) -> Tensor:
    """MaxOut: the largest of each `max_out` consecutive units, by signed value."""
    if max_out == 1:
        return units
    return torch.unflatten(units, dim, (-1, max_out)).max(dim + 1 if dim >= 0 else dim).values


def _dynamic_scale(linear: Tensor, norm: Tensor, b: float, *, frozen: bool) -> Tensor:
    """|cos|^(B−1), detached if `frozen`. Frozen, it makes the layer linear in its input."""
    scale = linear.abs() / norm if b == 2 else ((linear / norm).abs() + _COSINE_EPS).pow(b - 1)
    scale = _as_dtype(scale, linear.dtype)
    return scale.detach() if frozen else scale


def _unit_rows(weight: Tensor) -> Tensor:
    return _as_dtype(F.normalize(_at_least_float32(weight)), weight.dtype)


def _at_least_float32(x: Tensor) -> Tensor:
    """Cast fp16 and bfloat16 to float32: in fp16, Σ x² can exceed the largest value 65504, and ε is rounded to zero."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _as_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype else x.to(dtype)  # a cast to the same dtype would still be a node in a captured graph
