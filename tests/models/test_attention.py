"""Compare attention and positional embedding with slow literal implementations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bcos_sdk.models.layers import Attention, PositionalEmbedding


def literal_attention(layer: Attention, tokens: Tensor) -> Tensor:
    """Return the input of `to_out`, computed one query at a time."""
    count, dim = tokens.shape
    size = dim // layer.heads
    q, k, v = (layer.norm(tokens) @ layer.to_qkv.weight.T).split(dim, dim=1)
    out = torch.zeros_like(tokens)
    for head in range(layer.heads):
        part = slice(head * size, (head + 1) * size)
        for query in range(count):
            scores = [float(q[query, part] @ k[key, part]) / math.sqrt(size) for key in range(count)]
            total = sum(math.exp(score) for score in scores)
            for key, score in enumerate(scores):
                out[query, part] += math.exp(score) / total * v[key, part]
    return out


def test_attention_is_the_literal_formula() -> None:
    layer = Attention(8, heads=2).double().eval()
    tokens = torch.randn(3, 5, 8, dtype=torch.float64)
    with torch.no_grad():
        expected = torch.stack([layer.to_out(literal_attention(layer, sample)) for sample in tokens])
        torch.testing.assert_close(layer(tokens), expected, rtol=1e-12, atol=1e-14)


def test_attention_is_linear_in_eval_mode_only() -> None:
    layer = Attention(8, heads=2).double()
    tokens = torch.randn(1, 5, 8, dtype=torch.float64)
    for mode, is_linear in ((False, True), (True, False)):
        layer.train(mode)
        jacobian = torch.func.jacrev(layer)(tokens)
        product = torch.tensordot(jacobian, tokens, dims=tokens.ndim)
        assert torch.allclose(product, layer(tokens), rtol=1e-9) is is_linear


def test_positions_are_sines_and_cosines_of_column_then_row() -> None:
    table = PositionalEmbedding()(torch.zeros(15, 16, dtype=torch.float64), rows=3, columns=5)
    for row in range(3):
        for column in range(5):
            for j in range(4):
                frequency = 10000 ** (-j / 3)
                expected = [
                    math.sin(column * frequency),
                    math.cos(column * frequency),
                    math.sin(row * frequency),
                    math.cos(row * frequency),
                ]
                torch.testing.assert_close(table[row * 5 + column, j::4].tolist(), expected, rtol=1e-6, atol=1e-7)
