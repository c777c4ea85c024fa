"""Linear maps along single axes, given by a matrix each: interpolation, uneven average pools, running sums.

The matrix of an axis is found by applying the operator to the unit vectors of this axis, with the other axes unchanged.
Forward and transposed pass are then ordinary matrix products, and equal in every runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.program import Program, bind, is_constant, is_floating, pair, path_of, shape_of

__all__ = ["RESAMPLING", "rewrite_average_pool"]

aten = torch.ops.aten


def _apply(program: Program, node: fx.Node, x: fx.Node, matrices: dict[int, Tensor]) -> fx.Node:
    """Σ_j M[i, j] x[…, j, …] along each axis, counted from the end."""
    for axis, matrix in matrices.items():
        if torch.equal(matrix, torch.eye(len(matrix), dtype=matrix.dtype)):
            continue
        dtype = x.meta["val"].dtype
        if axis == -1:
            constant = _constant(program, node, matrix.T.contiguous().to(dtype))
            x = program.compute(node, aten.matmul.default, x, constant)
        elif axis == -2:
            x = program.compute(node, aten.matmul.default, _constant(program, node, matrix.to(dtype)), x)
        else:
            order = list(range(len(shape_of(x))))
            order[axis], order[-1] = order[-1], order[axis]
            turned = program.compute(node, aten.permute.default, x, order)
            constant = _constant(program, node, matrix.T.contiguous().to(dtype))
            product = program.compute(node, aten.matmul.default, turned, constant)
            x = program.compute(node, aten.permute.default, product, order)
    return x


def _constant(program: Program, node: fx.Node, value: Tensor) -> fx.Node:
    return program.constant(path_of(node), value, anonymous=True)


def _matrix(resize: Callable[[Tensor], Tensor], size: int, axis: int, rank: int) -> Tensor:
    """[out, in]: the results for all unit vectors along an axis; they are the columns or the rows of one image."""
    images = torch.eye(size, dtype=torch.float64).view(*(size, 1) if rank == 1 else (1, 1, size), size)
    results = resize(images).reshape(-1 if axis == -2 else size, size if axis == -2 else -1)
    return results if axis == -2 else results.T


def _rewrite_interpolation(mode: str, rank: int, *, antialias: bool = False) -> Callable[[Program, fx.Node], None]:
    def rewrite(program: Program, node: fx.Node) -> None:
        a = bind(node)
        x = getattr(a, "input", None) or a.self
        align = getattr(a, "align_corners", None)
        factors = _factors(a, rank)
        matrices = {}
        for axis in range(-rank, 0):
            size, wanted = shape_of(x)[axis], shape_of(node)[axis]

            def resize(images: Tensor, axis: int = axis, wanted: int = wanted) -> Tensor:
                target = list(images.shape[2:])
                target[axis] = wanted
                factor = factors[axis]
                if factor is None:
                    return F.interpolate(images, target, mode=mode, align_corners=align, antialias=antialias)
                scales = [1.0] * rank
                scales[axis] = factor
                return F.interpolate(images, scale_factor=tuple(scales), mode=mode, align_corners=align)

            matrices[axis] = _matrix(resize, size, axis, rank)
        program.substitute(node, _apply(program, node, x, matrices))

    return rewrite


def _factors(a: Any, rank: int) -> list[float | None]:
    """The scale factors that the caller gave, which the operator uses instead of the ratio of the sizes."""
    given = getattr(a, "scale_factors", None)
    if given is None:
        named = [getattr(a, name, None) for name in ("scales_d", "scales_h", "scales_w")]
        given = [getattr(a, "scales", None)] if rank == 1 else named[-rank:]
    return list(given) if given is not None else [None] * rank


def rewrite_average_pool(program: Program, node: fx.Node) -> None:
    """Uneven windows: each axis has its own averages. Even ones stay."""
    a = bind(node)
    kernel, padding = pair(a.kernel_size), pair(a.padding)
    if not (a.ceil_mode or a.divisor_override or (not a.count_include_pad and any(padding))):
        return
    stride = pair(a.stride or kernel)
    matrices = {}
    for axis in (-2, -1):
        window = [
            (k, s, p) if axis == -2 + i else (1, 1, 0)
            for i, (k, s, p) in enumerate(zip(kernel, stride, padding, strict=True))
        ]
        kernels, strides, paddings = zip(*window, strict=True)
        divisor = 1 if a.divisor_override else None

        def pool(
            images: Tensor,
            kernels: Any = kernels,
            strides: Any = strides,
            paddings: Any = paddings,
            divisor: Any = divisor,
        ) -> Tensor:
            return F.avg_pool2d(images, kernels, strides, paddings, a.ceil_mode, a.count_include_pad, divisor)

        matrices[axis] = _matrix(pool, shape_of(a.self)[axis], axis, 2)
    if a.divisor_override:
        matrices[-1] = matrices[-1] / a.divisor_override
    program.substitute(node, _apply(program, node, a.self, matrices))


def _rewrite_adaptive_average_pool(program: Program, node: fx.Node) -> None:
    """A pool to 1×1 is a mean, one whose windows have equal sizes is an average pool."""
    a = bind(node)
    sizes, counts = shape_of(a.self)[-2:], shape_of(node)[-2:]
    if counts == (1, 1):
        program.replace(node, aten.mean.dim, a.self, [-2, -1], True)
    elif all(size % count == 0 for size, count in zip(sizes, counts, strict=True)):
        kernel = [size // count for size, count in zip(sizes, counts, strict=True)]
        program.replace(node, aten.avg_pool2d.default, a.self, kernel, kernel)
    else:
        matrices = {}
        for axis in (-2, -1):

            def pool(images: Tensor, axis: int = axis) -> Tensor:
                target = list(images.shape[2:])
                target[axis] = counts[axis]
                return F.adaptive_avg_pool2d(images, (target[0], target[1]))

            matrices[axis] = _matrix(pool, sizes[axis], axis, 2)
        program.substitute(node, _apply(program, node, a.self, matrices))


def _rewrite_running_sum(program: Program, node: fx.Node) -> None:
    a = bind(node)
    if is_constant(a.self):
        return
    axis = a.dim % len(shape_of(node)) - len(shape_of(node))
    size = shape_of(node)[axis]
    source = a.self if is_floating(a.self) else program.compute(node, aten.to.dtype, a.self, torch.get_default_dtype())
    total = _apply(program, node, source, {axis: torch.ones(size, size, dtype=torch.float64).tril()})
    dtype = node.meta["val"].dtype
    program.substitute(node, total if is_floating(node) else program.compute(node, aten.to.dtype, total, dtype))


_INTERPOLATIONS = {
    aten.upsample_linear1d.vec: ("linear", 1, False),
    aten.upsample_bilinear2d.vec: ("bilinear", 2, False),
    aten.upsample_bicubic2d.vec: ("bicubic", 2, False),
    aten._upsample_bilinear2d_aa.vec: ("bilinear", 2, True),
    aten._upsample_bicubic2d_aa.vec: ("bicubic", 2, True),
    aten._upsample_bilinear2d_aa.default: ("bilinear", 2, True),
    aten._upsample_bicubic2d_aa.default: ("bicubic", 2, True),
}

RESAMPLING = (
    *(
        Operator(target, Kind.SPELLING, rewrite=_rewrite_interpolation(mode, rank, antialias=antialias))
        for target, (mode, rank, antialias) in _INTERPOLATIONS.items()
    ),
    Operator(aten.adaptive_avg_pool2d.default, Kind.SPELLING, rewrite=_rewrite_adaptive_average_pool),
    Operator(aten.cumsum.default, Kind.SPELLING, rewrite=_rewrite_running_sum),
)
