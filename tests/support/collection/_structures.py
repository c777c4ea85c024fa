"""Networks by structure: attention, norms of the public package, B-cos layers of the first release, conventional."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcos_sdk.models.layers import BcosConv2d, BcosLinear
from support.collection._parts import Make, Of, Table, holding, net
from support.families import FAMILIES, SIZES, SwitchedConv
from support.reference import BcosConv2d as PublicConv
from support.reference import BcosLinear as PublicLinear
from support.reference import norms

__all__ = ["ATTENTION", "CONVENTIONAL", "FIRST_RELEASE", "NORMS", "PUBLIC_LAYERS", "PUBLISHED", "SIZES"]

PUBLISHED: Table = dict(FAMILIES)

_NORMS: dict[str, Callable[..., nn.Module]] = {
    name: getattr(norms, name) for name in dir(norms) if name.endswith("2d") or name == "DetachableLayerNorm"
}


def _norm(make: Callable[..., nn.Module], **options: bool) -> Make:
    def build() -> nn.Module:
        groups = (2,) if "Group" in getattr(make, "__name__", "") else ()
        return make(*groups, 8, **options)

    return net(build)


NORMS: Table = {name: _norm(make) for name, make in _NORMS.items()} | {
    f"{name} without bias": _norm(norms.NoBias(make)) for name, make in _NORMS.items() if "Group" not in name
}

PUBLIC_LAYERS: Table = {
    f"{kind.__name__}, b={b}, max_out={units}, {more}": net(
        lambda kind=kind, b=b, units=units, more=more: kind(8, 4, **sizes(kind), b=b, max_out=units, **more)  # type: ignore[misc]
    )
    for kind in (PublicConv, PublicLinear)
    for b in (1, 1.5, 2, 2.5)
    for units in (1, 2)
    for more in ({}, {"normalize_weights": False})
    if kind is PublicConv or not more
}


def sizes(kind: object) -> dict[str, int]:
    return {"kernel_size": 3, "padding": 1} if kind is PublicConv else {}


FIRST_RELEASE: Table = {
    "plain": lambda: nn.Sequential(SwitchedConv(6, 8, 3), SwitchedConv(8, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "strided": lambda: nn.Sequential(
        SwitchedConv(6, 8, 3, 2), SwitchedConv(8, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ),
    "scaled head": lambda: nn.Sequential(SwitchedConv(6, 5, 3), Of(lambda x: x.mean((2, 3)) / 10 - 3.0)),
}


class _Attention(nn.Module):
    """Tokens of width 8, attention of some kind, and a mean over tokens or the first token."""

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor], tokens: int = 0) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.attend = attend
        self.tokens = nn.Parameter(torch.randn(1, tokens, 8)) if tokens else None

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(x, 2).flatten(2).transpose(1, 2)
        if self.tokens is not None:
            x = torch.cat([self.tokens.expand(len(x), -1, -1), x], 1)
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = self.attend(q.detach(), k.detach(), v).transpose(1, 2).flatten(2)
        return mixed[:, 0] if self.tokens is not None else mixed.mean(1)


sdpa = F.scaled_dot_product_attention
_MASK = torch.ones(16, 16).tril().bool()
_ANGLES = torch.outer(torch.arange(16.0), torch.tensor([1.0, 0.1]))
_TURNS = torch.polar(torch.ones_like(_ANGLES), _ANGLES)
_ATTENTION: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "sdpa": sdpa,
    "sdpa, causal": lambda q, k, v: sdpa(q, k, v, is_causal=True),
    "sdpa, boolean mask": lambda q, k, v: sdpa(q, k, v, attn_mask=_MASK),
    "sdpa, added mask": lambda q, k, v: sdpa(q, k, v, attn_mask=torch.linspace(-1, 1, 256).view(16, 16)),
    "sdpa, scale": lambda q, k, v: sdpa(q, k, v, scale=0.3),
    "sdpa, grouped": lambda q, k, v: sdpa(q, k[:, :1], v[:, :1], enable_gqa=True),
    "sdpa, frozen mask of image": lambda q, k, v: sdpa(q, k, v, attn_mask=(q @ k.mT > 0) | torch.eye(16).bool()),
    "softmax": lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
    "einsum": lambda q, k, v: torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1), v),
    "sigmoid": lambda q, k, v: (q @ k.mT).sigmoid() @ v / 16,
    "relu": lambda q, k, v: (q @ k.mT).relu().square() @ v / 16,
    "linear attention": lambda q, k, v: (F.elu(q) + 1) @ ((F.elu(k) + 1).mT @ v),
    "cosine": lambda q, k, v: (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * 5).softmax(-1) @ v,
    "top-k": lambda q, k, v: _top(q @ k.mT).softmax(-1) @ v,
    "RoPE": lambda q, k, v: sdpa(_rotated(q), _rotated(k), v),
    "RoPE, complex": lambda q, k, v: sdpa(_turned(q, _TURNS), _turned(k, _TURNS), v),
    "RoPE, complex, of values": lambda q, k, v: _turned(sdpa(q, k, _turned(v, _TURNS)), _TURNS.conj()),
    "talking heads": lambda q, k, v: torch.einsum("bhij,hg->bgij", (q @ k.mT).softmax(-1), torch.ones(2, 2)) @ v,
    "distance": lambda q, k, v: (-torch.cdist(q, k)).softmax(-1) @ v,
    "masked_fill": lambda q, k, v: (q @ k.mT).masked_fill(~_MASK, float("-inf")).softmax(-1) @ v,
    "alibi": lambda q, k, v: (q @ k.mT - (torch.arange(16)[:, None] - torch.arange(16)).abs()).softmax(-1) @ v,
}


def _rotated(x: Tensor) -> Tensor:
    """The first half of the channels and the second half are turned against each other."""
    cosine, sine = torch.cat([_ANGLES.cos()] * 2, -1), torch.cat([_ANGLES.sin()] * 2, -1)
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    """Pairs of neighbouring channels are complex numbers, multiplied by numbers on the unit circle."""
    return torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:-1], -1, 2)) * turns).flatten(-2).type_as(x)


def _top(scores: Tensor) -> Tensor:
    return scores.masked_fill(scores < scores.topk(4, -1)[0][..., -1:], -1e9)


ATTENTION: Table = (
    {name: net(partial(_Attention, attend)) for name, attend in _ATTENTION.items()}
    | {f"{count} tokens": net(partial(_Attention, sdpa, count)) for count in (1, 4)}
    | {
        "MultiheadAttention, weights": holding(
            lambda m, x: m.a(x.flatten(2).mT.detach(), x.flatten(2).mT.detach(), x.flatten(2).mT)[0].mean(1),
            a=lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        ),
        "MultiheadAttention, bias_kv": holding(
            lambda m, x: m.a(x.flatten(2).mT.detach(), x.flatten(2).mT.detach(), x.flatten(2).mT, need_weights=False)[
                0
            ],
            a=lambda: nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True),
        ),
        "RoPE, complex, from a buffer": holding(
            lambda m, x: _turned(x, m.turns), turns=lambda: _TURNS[:8].repeat(1, 2)
        ),
        "channel attention": holding(
            lambda m, x: x * m.b(F.relu(m.a(x.detach().mean((2, 3))))).sigmoid()[..., None, None],
            a=lambda: nn.Linear(8, 2),
            b=lambda: nn.Linear(2, 8),
        ),
        "spatial attention": holding(
            lambda m, x: x * m.a(torch.cat([x.mean(1, True), x.amax(1, True)], 1).detach()).sigmoid(),
            a=lambda: nn.Conv2d(2, 1, 3, padding=1),
        ),
    }
)


def _plain(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


CONVENTIONAL: Table = {
    "VGG": lambda: _plain(
        nn.Conv2d(6, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(128, 5),
    ),
    "MobileNet": lambda: _plain(
        nn.Conv2d(6, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(True),
        nn.Conv2d(8, 8, 3, 1, 1, groups=8),
        nn.ReLU6(True),
        nn.Conv2d(8, 5, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ),
    "SqueezeNet": lambda: _plain(
        nn.Conv2d(6, 8, 3),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(8, 5, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ),
    "MLP": lambda: _plain(
        nn.Flatten(), nn.Linear(384, 16), nn.ReLU(), nn.Linear(16, 16, bias=False), nn.LeakyReLU(), nn.Linear(16, 5)
    ),
    "B-cos MLP": lambda: _plain(nn.Flatten(), BcosLinear(384, 16), BcosLinear(16, 5)),
    "recurrent in space": lambda: _Recurrent(),
    "weights shared": lambda: _plain(*[BcosConv2d(6, 6, 3, padding=1)] * 3, nn.AdaptiveAvgPool2d(1), nn.Flatten()),
}


class _Recurrent(nn.Module):
    """A ReLU recurrence over the rows of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.step, self.head = nn.Linear(48, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 8)
        for row in x.unbind(2):
            state = F.relu(self.enter(row.flatten(1)) + self.step(state))
        logits: Tensor = self.head(state)
        return logits
