"""Functions on the frozen path, where any operator may stand: each is the gate of a live value."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from support.collection._parts import Step, Table, steps

__all__ = ["FROZEN"]


def _gate(function: Step) -> Step:
    """x ↦ x · function(x), with a frozen gate."""

    def step(x: Tensor) -> Tensor:
        return x * function(x.detach())

    return step


_GATES: dict[str, Step] = {
    "erf": torch.erf,
    "erfc": torch.erfc,
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "softplus": F.softplus,
    "softplus, beta": lambda x: F.softplus(x, 2.0, 1.0),
    "softsign": F.softsign,
    "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "softmin": lambda x: F.softmin(x, 1),
    "logsumexp": lambda x: x.logsumexp(1, keepdim=True),
    "var": lambda x: x.var(1, keepdim=True),
    "std": lambda x: x.std((2, 3), keepdim=True),
    "std_mean": lambda x: torch.std_mean(x, 1, keepdim=True)[0],
    "cdist": lambda x: torch.cdist(x, x.flip(2) + 1),
    "cdist, p=1": lambda x: torch.cdist(x, x.flip(2), p=1),
    "pairwise distance": lambda x: F.pairwise_distance(x, x.flip(1) + 1)[..., None],
    "cosine similarity": lambda x: F.cosine_similarity(x, x.flip(1), dim=1)[:, None],
    "normalize": lambda x: F.normalize(x, dim=1),
    "round": lambda x: (x * 3).round(),
    "round, decimals": lambda x: x.round(decimals=1),
    "floor, ceil, trunc, frac": lambda x: x.floor() + x.ceil() + (3 * x).trunc() + (3 * x).frac(),
    "floor_divide": lambda x: (x * 5).floor_divide(2.0),
    "remainder": lambda x: (x * 5).remainder(1.5),
    "comparisons": lambda x: (x > 0.1).float() + (x <= 0).float() + (x != 0.5) + (x == x.amax((1, 2, 3), keepdim=True)),
    "logic": lambda x: ((x > 0.1) & ~(x > 0.6) | (x < -0.2)).to(x.dtype),
    "isfinite": lambda x: torch.isfinite(x / (x - x.amax(1, keepdim=True))).float(),
    "isinf": lambda x: torch.isinf(x).float() + 1,
    "nan_to_num": lambda x: torch.nan_to_num(x / x.clamp_min(0), 0.0, 1.0, -1.0),
    "integer cast": lambda x: (x * 4).long().float() + (x * 4).int().to(x.dtype),
    "functions of integers": lambda x: _of_integers(x.argmax(1, keepdim=True) + 1),
    "functions of booleans": lambda x: _of_booleans(x > 0),
    "quotient of integers": lambda x: x.argmax(1, keepdim=True) / (x.argmin(1, keepdim=True) + 2),
    "softmax of integers": lambda x: x.argsort(1).softmax(1, dtype=x.dtype),
    "uint8 cast": lambda x: (x.abs() * 4).to(torch.uint8).to(x.dtype),
    "bfloat16": lambda x: x.bfloat16().float(),
    "half": lambda x: x.half().float(),
    "sign, heaviside": lambda x: x.sign() + torch.heaviside(x, x.new_tensor(0.5)),
    "sgn and copysign": lambda x: x.sgn() + torch.copysign(x + 2, x),
    "hypot, atan2": lambda x: torch.hypot(x, x + 1) + torch.atan2(x, x + 2),
    "asinh, acosh, atanh": lambda x: x.asinh() + (x.abs() + 1.5).acosh() + (x / 40).atanh(),
    "exp2, log2, log10": lambda x: x.exp2() + (x.abs() + 1).log2() + (x.abs() + 1).log10(),
    "expm1, log1p": lambda x: (x / 4).expm1() + x.abs().log1p(),
    "logit": lambda x: torch.logit(x.sigmoid(), eps=1e-3),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(1)),
    "xlogy": lambda x: torch.xlogy(x, x.abs() + 1),
    "sinc": torch.sinc,
    "lgamma": lambda x: torch.lgamma(x.abs() + 1),
    "digamma": lambda x: torch.digamma(x.abs() + 1),
    "i0": torch.special.i0,
    "erfinv": lambda x: torch.erfinv(x.tanh() * 0.9),
    "pow of tensors": lambda x: (x.abs() + 0.5) ** x.clamp(-2, 2),
    "float power": lambda x: torch.float_power(x.abs() + 0.1, 0.5).to(x.dtype),
    "cumprod": lambda x: (x / 4).cumprod(1),
    "cumsum": lambda x: x.cumsum(1),
    "cummax": lambda x: x.cummax(1)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "prod": lambda x: x.prod(1, keepdim=True),
    "any, all": lambda x: (x > 0.9).any(1, keepdim=True).float() + (x > -0.9).all(1, keepdim=True).float() + 1,
    "count_nonzero": lambda x: x.relu().count_nonzero(1)[:, None].to(x.dtype),
    "norms": lambda x: (
        x.norm(p=1, dim=1, keepdim=True) + x.norm(p=3, dim=1, keepdim=True) + x.norm(float("inf"), 1, True)
    ),
    "quantile": lambda x: x.flatten(2).quantile(0.3, dim=2)[..., None, None],
    "median": lambda x: x.flatten(2).median(2)[0][..., None, None],
    "top-k mean": lambda x: x.flatten(2).topk(3, 2)[0].mean(2)[..., None, None],
    "sorted": lambda x: x.sort(1, descending=True)[0],
    "argsort": lambda x: x.argsort(1).to(x.dtype),
    "one-hot of argmax": lambda x: F.one_hot(x.argmax(1), 8).permute(0, 3, 1, 2).to(x.dtype),
    "searchsorted": lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x.contiguous()).to(x.dtype),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])).to(x.dtype),
    "embedding": lambda x: F.embedding((x.abs() * 3).long().clamp(max=7), torch.linspace(-1, 1, 8)[:, None])[..., 0],
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "group norm": lambda x: F.group_norm(x, 2),
    "instance norm": F.instance_norm,
    "local response norm": lambda x: F.local_response_norm(x, 3),
    "rms norm": lambda x: F.rms_norm(x, (8,)),
    "glu": lambda x: F.glu(torch.cat([x, x.flip(1)], 1), 1),
    "max unpool": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), [2, 2]),
    "lp pool": lambda x: F.lp_pool2d(x.abs() + 0.1, 2.0, 2).repeat_interleave(2, 2).repeat_interleave(2, 3),
    "grid sample": lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False),
    "inverse": lambda x: torch.linalg.inv(x + 20 * torch.eye(8)),
    "determinant": lambda x: torch.linalg.det(x / 4 + torch.eye(8))[..., None, None],
    "attention weights": lambda x: (x.flatten(2) @ x.flatten(2).mT).softmax(-1).sum(1)[..., None, None],
    "bilinear form": lambda x: torch.einsum("bchw,bdhw->bcd", x, x).mean(2)[..., None, None],
    "polynomial": lambda x: 0.5 * x**3 - x**2 + x.abs() ** 1.5,
}


def _of_integers(n: Tensor) -> Tensor:
    return n.sqrt() + n.rsqrt() + n.log1p() + n**0.5 + n.tanh() + n.clamp(2, 5) + 1 / n


def _of_booleans(mask: Tensor) -> Tensor:
    return (
        mask.exp() + mask.expm1() + mask.sigmoid() + mask.erf() + mask.square() + mask.cumsum(1) + 1 / ~(mask & ~mask)
    )


FROZEN: Table = steps({name: _gate(function) for name, function in _GATES.items()})
