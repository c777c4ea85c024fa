"""How fp16 affects each layer: the range of its values, and the error of its products on exact inputs.

Both are measured while the explain program runs on the probe images in its own dtype, usually float32. A product in
fp16 is simulated: round the factors to fp16, multiply and add in that dtype, round the result.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.contract import mean_target, rank_target
from bcos_sdk.exporters.operators import to_half
from bcos_sdk.exporters.passes._half import is_cotangent, layer_of, operands, products, settings
from bcos_sdk.exporters.passes._half_sums import LONG_SUM, half_sum, sum_length
from bcos_sdk.exporters.program import Program, is_constant, sample_shape

__all__ = ["HalfAnalysis"]

_LARGEST = torch.finfo(torch.float16).max
# The largest cotangent of the probes is scaled to at most 2^8. Cotangents of other images may be more than 2^7 times
# larger before they overflow, and values down to 2^-14 keep all their digits.
_COTANGENTS = 8
_MOST = 100  # float32 has powers of two up to 2^127
_HEADROOM = 4  # in the forward pass, for images with larger values than the probes
# A quarter of what an export in fp16 allows W(x). Sums of 2,000 to 5,000 products of the published networks are off by
# 2e-3 to 4e-3 with random weights, so that several layers together stay within it.
_LARGEST_SUM_ERROR = 1e-2

Watcher = Callable[[fx.Node, list[Tensor], Tensor], None]


class HalfAnalysis:
    """What fp16 does to the products of a program.

    `exponents`: powers of two for the cotangents of each product. `overflowing`: layers beyond the range of fp16.
    `inexact`: layers with long sums that leave the tolerance if the device keeps their running total in fp16.
    """

    def __init__(self, program: Program, images: Tensor) -> None:
        self._program, self._images = program, images
        self.exponents: dict[fx.Node, int] = {}
        self.overflowing: set[str] = set()
        sizes: defaultdict[fx.Node, float] = defaultdict(float)

        def measure(node: fx.Node, factors: list[Tensor], result: Tensor) -> None:
            for one, value in zip((*operands(node), node), (*factors, result), strict=True):
                sizes[one] = max(sizes[one], float(value.abs().max()))

        self._watch(measure)
        for node in products(program):
            cotangents = [one for one in (*operands(node), node) if is_cotangent(one)]
            largest = max((sizes[one] for one in cotangents), default=0.0)
            if largest:
                self.exponents[node] = max(-_MOST, min(_COTANGENTS - math.ceil(math.log2(largest)), _MOST))
            room = {one: 1 if is_constant(one) else _HEADROOM for one in (*operands(node), node)}
            if any(sizes[one] * factor > _LARGEST for one, factor in room.items() if one not in cotangents):
                self.overflowing.add(layer_of(node))
        self.inexact = self._inexact_layers()

    @property
    def must_stay(self) -> set[str]:
        """The layers that stay in float32 in any case."""
        return self.overflowing | self.inexact

    def _inexact_layers(self) -> set[str]:
        long = {node for node in products(self._program) if sum_length(node) > LONG_SUM}
        found: set[str] = set()

        def compare(node: fx.Node, factors: list[Tensor], _result: Tensor) -> None:
            if node not in long or layer_of(node) in self.overflowing | found:
                return
            exact, halves, scale = self._in_half(node, factors)
            error = (half_sum(node, *halves) / scale - exact).norm()
            if bool(exact.any()) and not float(error / exact.norm()) <= _LARGEST_SUM_ERROR:
                found.add(layer_of(node))

        if long:
            self._watch(compare, self._images[:1])
        return found

    def _in_half(self, node: fx.Node, factors: list[Tensor]) -> tuple[Tensor, list[Tensor], float]:
        """The exact product, its factors rounded to fp16 and scaled, and the scale of their product."""
        operator: Any = node.target
        exact = operator(*factors, *settings(node))
        scale = 2.0 ** self.exponents.get(node, 0)
        scaled = [
            value * scale if is_cotangent(one) else value for one, value in zip(operands(node), factors, strict=True)
        ]
        return exact, [to_half(value).to(exact.dtype) for value in scaled], scale

    def exponents_of(self, program: Program) -> dict[fx.Node, int]:
        """The exponents for the same program in another layout, whose products come in the same order."""
        pairs = zip(products(self._program), products(program), strict=True)
        return {theirs: self.exponents[ours] for ours, theirs in pairs if ours in self.exponents}

    def ranking(self) -> list[str]:
        """All layers: first those that must stay in float32, then by the relative error of their products in fp16."""
        errors = dict.fromkeys(map(layer_of, products(self._program)), 0.0)

        def compare(node: fx.Node, factors: list[Tensor], _result: Tensor) -> None:
            operator: Any = node.target
            exact, halves, scale = self._in_half(node, factors)
            rounded = operator(*halves, *settings(node))
            error = (to_half(rounded).to(exact.dtype) / scale - exact).norm()
            layer = layer_of(node)
            errors[layer] = max(errors[layer], float(error / exact.norm()) if bool(exact.any()) else 0.0)

        self._watch(compare)
        return sorted(errors, key=lambda layer: (layer not in self.must_stay, -errors[layer]))

    def _watch(self, see: Watcher, images: Tensor | None = None) -> None:
        """Call `see` for every product: one image at a time, for its predicted class and the mean of all logits."""
        (classes,) = sample_shape(self._program.results[0])
        interpreter = _Interpreter(self._program, see)
        for image in (self._images if images is None else images).to(self._program.inputs[0].meta["val"].dtype):
            with torch.no_grad():
                interpreter.run(image[None], torch.tensor([[rank_target(1), mean_target(classes)]]))


class _Interpreter(fx.Interpreter):
    """Runs a program node by node and drops each value after its last use."""

    def __init__(self, program: Program, see: Watcher) -> None:
        super().__init__(program.module())
        self._see = see
        self._products = set(products(program))

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n in self._products:
            self._see(n, [self.env[one] for one in operands(n)], result)
        return result
