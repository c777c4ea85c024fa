"""(a + ib)(c + id) with a constant c + id, as real numbers: the rotation of rotary position embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.program import Program, is_constant, path_of

__all__ = ["COMPLEX"]

aten = torch.ops.aten


def _rewrite_rotation(program: Program, node: fx.Node) -> None:
    """For x = (a, b) in the last axis: x · (c, c) + (b, a) · (−d, d). Other complex numbers stay, and are refused."""
    product: Any = node.args[0]
    if product.target is not aten.mul.Tensor:
        return
    pairs = [one.args[0] for one in product.args if getattr(one, "target", None) is aten.view_as_complex.default]
    factors = [one for one in product.args if is_constant(one)]
    if len(pairs) != 1 or len(factors) != 1:
        return
    (x,), (factor,) = pairs, factors
    real = torch.view_as_real(program.value_of(factor).resolve_conj()).to(x.meta["val"].dtype)
    c, d = real[..., :1], real[..., 1:]
    straight, crossed = (
        program.constant(f"{path_of(factor)}_{name}", value.contiguous())
        for name, value in (("cosine", torch.cat([c, c], -1)), ("sine", torch.cat([-d, d], -1)))
    )
    along = program.compute(node, aten.mul.Tensor, x, straight)
    across = program.compute(node, aten.mul.Tensor, program.compute(node, aten.flip.default, x, [-1]), crossed)
    program.substitute(node, program.compute(node, aten.add.Tensor, along, across))


COMPLEX = (Operator(aten.view_as_real.default, Kind.SPELLING, rewrite=_rewrite_rotation),)
