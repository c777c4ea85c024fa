"""Attention that is linear in its values, and the positional embedding of tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bcos_sdk.models.layers._bcos import BcosLinear
from bcos_sdk.models.layers._norms import TokenNorm

__all__ = ["Attention", "PositionalEmbedding"]


class Attention(nn.Module):
    """to_out(A(x) · v(x)) with A = softmax(q kᵀ / √d) per head. In eval mode A is frozen, so A · v is linear in x."""

    def __init__(self, dim: int, heads: int, *, b: float = 2.0, max_out: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.norm = TokenNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = BcosLinear(dim, dim, b=b, max_out=max_out)

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = (self._split_heads(part) for part in self.to_qkv(self.norm(tokens)).chunk(3, dim=-1))
        attention = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        if not self.training:
            attention = attention.detach()
        out: Tensor = self.to_out((attention @ v).transpose(1, 2).flatten(2))
        return out

    def _split_heads(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, -1, (self.heads, -1)).transpose(1, 2)


class PositionalEmbedding(nn.Module):
    """Add [sin cω, cos cω, sin rω, cos rω] to the token at row r and column c. Tokens are in row-major order.

    The table is computed in float32 for every dtype, because the published models were trained with such a table.
    """

    def forward(self, tokens: Tensor, rows: int, columns: int) -> Tensor:
        device, quarter = tokens.device, tokens.shape[-1] // 4
        frequencies = 1 / 10000 ** (torch.arange(quarter, device=device) / (quarter - 1))
        r = torch.arange(rows, device=device).repeat_interleave(columns)[:, None] * frequencies
        c = torch.arange(columns, device=device).repeat(rows)[:, None] * frequencies
        return tokens + torch.cat([c.sin(), c.cos(), r.sin(), r.cos()], dim=1).to(tokens.dtype)
