"""One small function per operator and use of it; together they contain every operator of the exporter's table."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]


class Flat(nn.Module):
    """The function, with its result flattened into logits."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("precision", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x).flatten(1)


def image(channels: int = 4, height: int = 5, width: int = 6) -> Tensor:
    return torch.randn(2, channels, height, width, dtype=torch.float64)


def constant(*shape: int) -> Tensor:
    return torch.arange(1, prod(shape) + 1, dtype=torch.float64).sin().view(shape)


def positive(x: Tensor) -> Tensor:
    """A frozen value that is never zero or negative."""
    return x.detach().abs() + 0.5


def windows_of(x: Tensor) -> Tensor:
    """Windows of two columns, folded into the batch: [batch · 3, 20, 2]."""
    return x.reshape(-1, 4, 5, 3, 2).permute(0, 3, 1, 2, 4).reshape(-1, 20, 2)


def changed_view(x: Tensor) -> Tensor:
    y = x * 2
    y[:, :2].mul_(0)
    return y


def replaced_below_zero(x: Tensor) -> Tensor:
    y = x.clone()
    y[x.detach() < 0] = 0.5
    return y


def changed_after_detach(x: Tensor) -> Tensor:
    y = x * 2
    frozen = y.detach()
    y.mul_(3)
    return y * frozen


def without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        gate = x.sigmoid()
        with torch.enable_grad():
            gate = gate + 1
    return gate


def changed_behind_dropout(x: Tensor) -> Tensor:
    """Dropout in eval mode returns its input, which the sum then changes."""
    y = x * 2
    F.dropout(y, 0.5, training=False).add_(1)
    return y * constant(6)


def overwritten(x: Tensor) -> Tensor:
    """Assign to parts of a tensor: a slice, a row and a diagonal."""
    y = x * 2
    y[:, 1:3] = x[:, :2] * 3
    y[:, :, 2] = constant(6)
    y[:, 0, :5, :5].diagonal(dim1=1, dim2=2).copy_(x[:, 0, 0, :5])
    return y


CASES: dict[str, Function] = {
    "convolution": lambda x: F.conv2d(x, constant(2, 4, 3, 3), constant(2)),
    "average pool": lambda x: F.avg_pool2d(x, 2),
    "max pool": lambda x: F.max_pool2d(x, 2),
    "add live": lambda x: x + 2 * x,
    "add constant": lambda x: x + constant(4, 1, 1),
    "add number": lambda x: x + 3.5,
    "add frozen": lambda x: x + x.detach().sin(),
    "add broadcast live": lambda x: x + x.mean((2, 3), keepdim=True),
    "sub live": lambda x: 3 * x - x.mean(1, keepdim=True),
    "sub from constant": lambda x: constant(4, 5, 6) - x,
    "neg": lambda x: -x,
    "mul constant": lambda x: x * constant(4, 5, 6),
    "mul frozen": lambda x: x * x.abs().detach(),
    "mul frozen smaller": lambda x: x * x.square().sum(1, keepdim=True).detach(),
    "mul frozen larger": lambda x: x.mean((2, 3), keepdim=True) * x.abs().detach(),
    "mul frozen from the left": lambda x: x.detach().abs() * x,
    "div constant": lambda x: x / 7,
    "div frozen": lambda x: x / (x.square().sum(1, keepdim=True) + 1).sqrt().detach(),
    "linear": lambda x: F.linear(x, constant(3, 6)),
    "linear with bias": lambda x: F.linear(x, constant(3, 6), constant(3)),
    "linear of vectors": lambda x: F.linear(x.flatten(1), constant(3, 120), constant(3)),
    "matmul live left": lambda x: x @ constant(6, 3),
    "matmul live right": lambda x: constant(3, 5) @ x,
    "matmul frozen right": lambda x: x @ x.detach().transpose(-1, -2),
    "matmul frozen left": lambda x: x.detach().transpose(-1, -2).softmax(-1) @ x,
    "sum": lambda x: x.sum((1, 3)),
    "sum keepdim": lambda x: x.sum(-1, keepdim=True),
    "mean": lambda x: x.mean((2, 3)),
    "mean keepdim": lambda x: x.mean(1, keepdim=True),
    "var_mean": lambda x: x - torch.var_mean(x, dim=1, keepdim=True)[1],
    "adaptive average pool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "view": lambda x: x.view(-1, 4 * 5, 6) * constant(20, 6),
    "reshape": lambda x: x.reshape(x.shape[0], 2, 2, 30) * constant(2, 2, 30),
    "squeeze and unsqueeze": lambda x: x.unsqueeze(2).squeeze(2) * 2,
    "permute": lambda x: x.permute(0, 2, 3, 1) * constant(5, 6, 4),
    "transpose": lambda x: x.transpose(-1, 1) * constant(6, 5, 4),
    "expand": lambda x: x.mean(1, keepdim=True).expand(-1, 3, -1, -1) * constant(3, 5, 6),
    "cat": lambda x: torch.cat([x, 2 * x, x.detach().abs()], dim=1) * constant(12, 5, 6),
    "chunk": lambda x: x.chunk(3, dim=-1)[1] * 2 + x.chunk(3, dim=-1)[2],
    "split": lambda x: torch.split(x, [1, 3], dim=1)[1],
    "slice": lambda x: x[:, 1:3, :, 2:],
    "slice with step": lambda x: x[:, :, 1::2, ::3],
    "pad": lambda x: F.pad(x, (1, 2, 0, 3)) * constant(4, 8, 9),
    "negative pad": lambda x: F.pad(x, (-1, 0, 1, -2)),
    "relu": F.relu,
    "relu at zero": lambda x: F.relu(x * 0.0),
    "maximum": lambda x: torch.unflatten(x, 1, (2, 2)).max(dim=2).values,
    "maximum keepdim": lambda x: x.max(dim=3, keepdim=True).values,
    "clone and contiguous": lambda x: x.clone().contiguous() * 2,
    "dropout in eval mode": lambda x: F.dropout(x, 0.5, training=False) * 2,
    "in place": lambda x: (x * 2).add_(1.0),
    "number minus live": lambda x: 1 - x,
    "sum with a factor": lambda x: torch.add(x, x.detach().sin(), alpha=2) + torch.sub(x, 3 * x, alpha=0.5),
    "select": lambda x: x[:, 1] * constant(5, 6) + x[:, -1],
    "batched matrix product": lambda x: torch.bmm(x.flatten(2), x.detach().flatten(2).transpose(1, 2)),
    "matmul broadcast over heads": lambda x: x[:, :1] @ constant(3, 6, 2),
    "unit window with a stride": lambda x: F.avg_pool2d(x, 1, 2),
    "boolean mask": lambda x: x * (constant(4, 1, 1) > 0),
    "padded frozen factor": lambda x: x * F.pad(x.detach(), (1, 1, 1, 1), mode="replicate")[:, :, 1:-1, 1:-1],
    "1-norm of a frozen value": lambda x: x / x.detach().norm(p=1, dim=1, keepdim=True),
    "place of the largest": lambda x: x * x.detach().max(dim=1, keepdim=True).indices,
    "frozen per image": lambda x: x * (x.detach().mean((1, 2, 3)) * 0.5).view(-1, 1, 1, 1),
    "frozen functions of one value": lambda x: (
        x * (x.detach().cos() + x.detach().sin() + x.detach().exp() + x.detach().tanh() + x.detach().square())
    ),
    "frozen roots and powers": lambda x: (
        x * (positive(x).log() + positive(x).rsqrt() + positive(x).reciprocal() + positive(x) ** 1.5 + x.detach() ** 2)
        + x * torch.pow(positive(x), x.detach().sigmoid()) * positive(x) ** 0.5
    ),
    "frozen comparisons": lambda x: (
        x * torch.maximum(x.detach(), constant(4, 1, 1)) * torch.minimum(x.detach(), constant(4, 1, 1))
        + x * torch.where(x.detach() > constant(4, 1, 1), x.detach(), x.detach().clamp_min(0.1))
    ),
    "frozen reductions": lambda x: (
        x
        * x.detach().amax(1, keepdim=True)
        / (x.detach().var(1, correction=1, keepdim=True) + x.detach().norm(dim=1, keepdim=True))
        - torch.var_mean(x, dim=1, correction=0)[1].unsqueeze(1)
    ),
    "frozen repeated values": lambda x: x * x.detach()[:, :2].repeat_interleave(2, dim=1),
    "batch norm": lambda x: F.batch_norm(x, constant(4), constant(4).exp(), constant(4), constant(4) + 1),
    # other spellings of linear maps
    "einsum": lambda x: torch.einsum("bchw,dc->bdhw", x, constant(7, 4)),
    "einsum with a frozen value": lambda x: torch.einsum("bchw,bcvw->bhv", x, x.detach().sin()),
    "stack": lambda x: torch.stack([x, 2 * x], 1),
    "unbind": lambda x: x.unbind(1)[0] * 3 - x.unbind(1)[2],
    "matrix with bias": lambda x: torch.addmm(constant(3), x.flatten(1), constant(120, 3)),
    "batched matrix with bias": lambda x: torch.baddbmm(constant(1, 4, 4), x.flatten(2), x.detach().flatten(2).mT),
    "matrix times vector": lambda x: torch.mv(x.flatten(1), constant(120)).unsqueeze(1),
    "vector of channels": lambda x: x @ constant(6),
    "frozen weights of a linear layer": lambda x: torch.stack(
        [F.linear(one[0], one.detach()[1], constant(5)) for one in x]
    ),
    "tensordot": lambda x: torch.tensordot(x, constant(4, 3), dims=([1], [0])),
    "movedim": lambda x: x.movedim(1, -1) * constant(4),
    "rsub with a factor": lambda x: torch.rsub(x, 1.5, alpha=2),
    "interpolated": lambda x: torch.lerp(x, x.detach().sin(), 0.3),
    "sum with a product": lambda x: torch.addcmul(x, x, x.detach(), value=0.5),
    "convolution that keeps the size": lambda x: F.conv2d(x, constant(3, 4, 5, 3), padding="same"),
    "convolution in 1-D": lambda x: F.conv1d(x.flatten(2), constant(3, 4, 3), constant(3), stride=2, padding=1),
    "convolution in 3-D": lambda x: F.conv3d(x[:, None], constant(2, 1, 2, 3, 2), constant(2), (1, 2, 2), 1),
    "transposed convolution": lambda x: F.conv_transpose2d(x, constant(4, 3, 3, 2), constant(3), 2, 1, 1),
    "transposed convolution in 1-D": lambda x: F.conv_transpose1d(x.flatten(2), constant(4, 3, 3), stride=2),
    "transposed convolution with groups": lambda x: F.conv_transpose2d(x, constant(4, 3, 2, 2), groups=2, dilation=2),
    # the batch axis moved, merged or removed
    "batch last": lambda x: (x.permute(1, 2, 3, 0) * constant(4, 5, 6, 1)).permute(3, 0, 1, 2),
    "batch in the middle": lambda x: F.linear(x.flatten(2).permute(2, 0, 1), constant(3, 4)).permute(1, 0, 2),
    "windows in the batch": lambda x: (windows_of(x) * windows_of(x.detach()).softmax(-1)).reshape(x.shape[0], -1),
    "convolved windows in the batch": lambda x: F.conv2d(windows_of(x)[:, None], constant(2, 1, 2, 1)).reshape(
        x.shape[0], -1
    ),
    "pooled windows in the batch": lambda x: F.avg_pool2d(windows_of(x)[:, None], (2, 1)).reshape(x.shape[0], -1),
    "two halves in the batch": lambda x: sum(torch.cat([x, x.flip(3)], 0).sin().detach().mul(2).chunk(2, 0)) * x,
    "halves of the batch convolved": lambda x: (
        F.conv2d(torch.cat([x, x.flip(3)], 0), constant(2, 4, 2, 2)).reshape(2, -1, 2, 4, 5).sum(0)
    ),
    "class token": lambda x: torch.cat([constant(1, 1, 30).expand(x.shape[0], -1, -1), x.flatten(2)], 1),
    "class token first in the batch": lambda x: torch.cat(
        [constant(1, 30).repeat(x.shape[0], 1)[:, None], x.flatten(2)], 1
    ),
    "squeezed to a vector": lambda x: x.mean((2, 3), keepdim=True).squeeze().reshape(-1, 4) * constant(4),
    "one value per image": lambda x: torch.stack([one * one.detach().square().mean() for one in x]),
    "filled for the batch": lambda x: x + x.new_ones(x.shape[0], 4, 1, 1) * constant(4, 1, 1) + torch.zeros_like(x),
    "changed view": lambda x: changed_view(x),
    "changed after detach": lambda x: changed_after_detach(x),
    "no_grad inside": lambda x: x * without_gradient(x),
    "changed behind dropout": lambda x: changed_behind_dropout(x),
    # moves
    "flip": lambda x: x.flip(2, 3) * constant(5, 6),
    "roll": lambda x: x.roll((2, -1), (2, 3)) * constant(5, 6),
    "rotated": lambda x: x.rot90(1, (2, 3)) * constant(6, 5),
    "repeat": lambda x: x.repeat(1, 2, 1, 2) * constant(8, 1, 12),
    "repeat with a new axis": lambda x: x[:, 0].repeat(2, 1, 1, 1).permute(1, 0, 2, 3) * constant(2, 5, 6),
    "tile": lambda x: x.tile(1, 1, 2, 1) * constant(10, 6),
    "repeated channels": lambda x: x.repeat_interleave(2, 1) * constant(8, 1, 1),
    "index": lambda x: x[:, [3, 1, 1, 0]] * constant(4, 1, 1),
    "two indices": lambda x: x[:, :, [3, 1], [0, 2]] * constant(4, 2),
    "index_select": lambda x: x.index_select(3, torch.tensor([1, 4, 4])) * constant(3),
    "constant gather": lambda x: x.gather(1, torch.tensor([0, 2, 2]).view(1, 3, 1, 1).expand(len(x), 3, 5, 6)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2) * constant(10, 12),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[:, :, :4], 2) * constant(16, 2, 3),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2) * constant(4, 1, 1),
    "patches": lambda x: F.unfold(x, 3, padding=1, stride=2) * constant(36, 9),
    "overlapping patches added": lambda x: F.fold(F.unfold(x, 3, padding=1) * constant(36, 30), (5, 6), 3, padding=1),
    "sliding windows": lambda x: x.unfold(2, 2, 2).unfold(3, 3, 1) * constant(2, 4, 2, 3),
    "diagonal": lambda x: x.diagonal(dim1=2, dim2=3) * constant(5),
    "triangle": lambda x: x.tril() + x.triu(1) * constant(5, 6),
    "pad by reflection": lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect") * constant(8, 9),
    "pad by repetition": lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate") * constant(8, 9),
    "pad in a circle": lambda x: F.pad(x, (1, 2, 2, 1), mode="circular") * constant(8, 9),
    "pad with a number": lambda x: F.pad(x, (1, 1, 0, 2), value=0.7) * constant(7, 8),
    "pad of all axes": lambda x: F.pad(x[:, :1].squeeze(1), (1, 0, 0, 1, 0, 0)) * constant(6, 7),
    "nearest": lambda x: F.interpolate(x, scale_factor=2) * constant(10, 12),
    "nearest in 1-D": lambda x: F.interpolate(x.flatten(2), size=45) * constant(45),
    "nearest exact": lambda x: F.interpolate(x, size=(7, 4), mode="nearest-exact") * constant(7, 4),
    "nearest in 3-D": lambda x: F.interpolate(x[:, None], size=(6, 5, 7)) * constant(6, 5, 7),
    "nearest exact in 1-D": lambda x: F.interpolate(x.flatten(2), size=45, mode="nearest-exact") * constant(45),
    "overwritten slice": lambda x: overwritten(x),
    # resampling
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear") * constant(8, 10),
    "bilinear with corners": lambda x: F.interpolate(x, size=(7, 4), mode="bilinear", align_corners=True),
    "bilinear with antialias": lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
    "bicubic": lambda x: F.interpolate(x, size=(7, 4), mode="bicubic"),
    "bicubic with antialias": lambda x: F.interpolate(x, size=(3, 4), mode="bicubic", antialias=True),
    "linear in 1-D": lambda x: F.interpolate(x.flatten(2), size=19, mode="linear"),
    "area": lambda x: F.interpolate(x, size=(3, 4), mode="area"),
    "adaptive average pool to even windows": lambda x: F.adaptive_avg_pool2d(x, (5, 3)),
    "average pool with an incomplete window": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "average pool without its padding": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "average pool with a divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "average pool in 1-D": lambda x: F.avg_pool1d(x.flatten(2), 3, 2),
    "product of complex numbers": lambda x: torch.view_as_real(
        torch.view_as_complex(x.view(*x.shape[:-1], -1, 2) + 0.5) * torch.complex(constant(5, 3), constant(5, 3))
    ),
    "running sum": lambda x: x.cumsum(1) * constant(4, 1, 1) + x.cumsum(2) + x.cumsum(3) * constant(6),
    "differences": lambda x: torch.diff(x, dim=2),
    # piecewise linear
    "clamp": lambda x: x.clamp(-0.4, 0.7),
    "clamp from one side": lambda x: x.clamp_min(0.1) + x.clamp_max(0.2) + x.clamp(min=0.0),
    "clamp to tensors": lambda x: x.clamp(constant(4, 1, 1) - 1, x.detach().abs() / 2),
    "relu6": lambda x: F.relu6(8 * x),
    "hardtanh": lambda x: F.hardtanh(x, -0.2, 0.3),
    "leaky": lambda x: F.leaky_relu(x, 0.2),
    "prelu": lambda x: F.prelu(x, constant(4)),
    "absolute value": lambda x: x.abs() * constant(4, 1, 1),
    "shrinking": lambda x: F.hardshrink(x) + F.softshrink(x) * 2 + F.threshold(x, 0.1, 0.05),
    "where": lambda x: (
        torch.where(x > 0.1, 2 * x, x.detach().sin()) + torch.where(x.detach() > 0, constant(4, 1, 1), x)
    ),
    "masked": lambda x: x.masked_fill(x.detach() < 0, 0.5) + x.masked_fill(constant(5, 6) > 0, 0.0),
    "larger of two": lambda x: torch.maximum(x, 0.5 * x.flip(1)) + torch.minimum(x, constant(4, 1, 1)),
    "equal operands": lambda x: torch.maximum(x, x * 1.0) + torch.minimum(x.detach(), x),
    "steps": lambda x: x * (1 + x.round()) + x.floor() - x.ceil() * x.detach() + x.sign(),
    # selections
    "largest of all places": lambda x: x.amax((2, 3)) + x.amin((2, 3), keepdim=True).flatten(1),
    "smallest": lambda x: x.min(dim=1).values + x.max(1)[0] * 2,
    "largest of all": lambda x: torch.stack([one.max() * constant(3) + one.min() for one in x]),
    "largest three": lambda x: x.topk(3, 1).values * constant(3, 1, 1),
    "sorted": lambda x: x.sort(dim=3).values * constant(6) + x.sort(dim=3, descending=True, stable=True).values,
    "replaced by a mask": lambda x: replaced_below_zero(x),
    "filters of the image": lambda x: F.conv2d(
        x.reshape(1, -1, 5, 6), x.detach()[:, :, :3, :2].reshape(-1, 1, 3, 2), groups=4 * len(x)
    ).view(-1, 4, 3, 5),
    "factor of constants": lambda x: torch.einsum(
        "bchw,cd->bdhw", x, torch.linalg.cholesky(constant(4, 4) @ constant(4, 4).mT + torch.eye(4, dtype=x.dtype))
    ),
    "marks of the largest": lambda x: x * torch.zeros_like(x).scatter(1, x.detach().topk(2, 1).indices, 1.0),
    "median": lambda x: x.median(1).values + x.kthvalue(2, 1).values,
    "gather": lambda x: x.gather(1, x.detach().argsort(1)[:, :2]) * constant(2, 1, 1),
    "taken along an axis": lambda x: torch.take_along_dim(x, x.detach().argmin(1, keepdim=True), 1),
    "adaptive max pool": lambda x: F.adaptive_max_pool2d(x, (2, 4)),
    "max pool with gaps": lambda x: F.max_pool2d(x, 2, 1, dilation=2),
    "max pool with an incomplete window": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "max pool with its indices": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    # attention
    "attention": lambda x: F.scaled_dot_product_attention(x.detach(), x.detach().sin(), x),
    "attention with a mask": lambda x: F.scaled_dot_product_attention(x.detach(), x.detach(), x, constant(5, 5) > 0),
    "causal attention": lambda x: F.scaled_dot_product_attention(x.detach(), x.detach(), x, is_causal=True),
    # frozen values of any kind
    "frozen activations": lambda x: (
        x
        * sum(
            f(x.detach())
            for f in (F.gelu, F.silu, F.mish, F.elu, F.softplus, F.hardsigmoid, F.hardswish, F.logsigmoid, torch.erf)
        )
    ),
    "frozen tangents": lambda x: (
        x
        * (
            torch.atan2(x.detach(), x.detach().cos())
            + x.detach().sinh()
            + x.detach().cosh()
            + x.detach().tanh().asin()
            + x.detach().tanh().acos()
            + x.detach().tanh().tan()
            + x.detach().exp2()
            + x.detach().expm1()
            + positive(x).log1p()
            + x.detach().atan()
        )
    ),
    "frozen norms": lambda x: (
        x
        * (
            F.layer_norm(x.detach(), (6,))
            + F.group_norm(x.detach(), 2)
            + F.instance_norm(x.detach())
            + F.normalize(x.detach(), dim=1)
            + F.rms_norm(x.detach(), (6,))
            + torch.linalg.vector_norm(x.detach(), 3, 1, keepdim=True)
            + torch.linalg.vector_norm(x.detach(), float("inf"), 1, keepdim=True)
            + torch.linalg.vector_norm(x.detach(), 0, 1, keepdim=True)
            + x.detach().std(1, keepdim=True)
        )
    ),
    "frozen logic": lambda x: (
        x
        * (
            ((x > 0) & (x.detach() <= 0.5)) * 1.0
            + ((x.detach() >= 0.2) | ~(x.detach() < -0.1)).float()
            + torch.logical_xor(x > 0, x > 1).double()
            + torch.isnan(x).int()
            + (x.detach() != 0) * (x.detach() == x.detach())
            + (constant(4, 5, 6) >= x.detach()) * (x.detach() <= constant(6)) * (x.detach() < 2 * x.detach())
            + (torch.eq(constant(6), x.detach()) ^ (x > 0))
            + torch.ne(constant(6), x.detach())
            + (x > 0).any(1, keepdim=True)
            + (x > 1).any(dim=(2, 3), keepdim=True)
            + torch.logical_not(x.detach() > 0)
            + torch.logical_or(x > 0, x > 1)
        )
    ),
    "frozen remainders": lambda x: (
        x
        * (
            torch.fmod(x.detach(), 0.3)
            + torch.remainder(x.detach(), 0.3)
            + torch.fmod(x.detach(), constant(6))
            + torch.remainder(x.detach(), constant(6))
            + x.detach().trunc()
            + x.detach().frac()
            + 2 ** x.detach()
            + x.detach().prod(1, keepdim=True)
        )
    ),
    "frozen classes": lambda x: (
        x * F.one_hot(x.detach().argmax(1), 4).permute(0, 3, 1, 2)
        + x * ((10 * x.detach()).int() % 3 + x.detach().argmax(1, keepdim=True) * 2)
    ),
    "distances": lambda x: (
        x * torch.cdist(x.detach().flatten(2), x.detach().flatten(2)).mean((1, 2))[:, None, None, None]
    ),
}
