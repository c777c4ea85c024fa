"""Operators that move, copy or drop elements: y = x[index]. The index is the same for every image.

One rule covers flips, rolls, repeats, indexing, pads by reflection, patches, nearest-neighbour resizing and the like:
the operator itself is applied to the numbers of the elements, which tells where each element of the result comes from.
The transpose adds up, for every element of the input, the cotangents of its copies.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.onnx import Emitter
from bcos_sdk.exporters.operators._batch_rules import along_axes
from bcos_sdk.exporters.operators._operator import Kind, Operator
from bcos_sdk.exporters.program import Program, bind, is_constant, path_of, sample_shape, shape_of
from bcos_sdk.exporters.transpose import Transposition

__all__ = ["MOVES", "rewrite_move", "rewrite_pad", "take"]

aten = torch.ops.aten


def take(x: Tensor, axis: int, index: Tensor, has_zeros: bool) -> Tensor:
    """The elements of `x` at `index` along an axis. With `has_zeros`, an index beyond the last element gives zero."""
    if has_zeros:
        x = F.pad(x, [0, 0] * (x.ndim - 1 - axis) + [0, 1])
    return x.index_select(axis, index)


def _transpose_take(t: Transposition, node: fx.Node, ct: fx.Node) -> None:
    """Every element gets the sum of the cotangents of its copies; one without copies gets zero."""
    a = bind(node)
    size = shape_of(a.x)[a.axis]
    places = copies_of(t.program.value_of(a.index), size)
    index = t.constant(path_of(node), places.flatten())
    length = shape_of(node)[a.axis]
    moved = t.call(take, ct, t.axis(a.axis), index, bool((places == length).any()))
    if (most := places.shape[1]) > 1:
        sample = list(sample_shape(a.x))
        moved = t.reshape(moved, (*sample[: a.axis - 1], size, most, *sample[a.axis :]))
        moved = t.call(aten.sum.dim_IntList, moved, [t.axis(a.axis) + 1])
    t.add(a.x, moved)


def copies_of(index: Tensor, size: int) -> Tensor:
    """[size, most]: the places at which each of `size` elements occurs in the index, filled up with its length."""
    kept = index < size
    places = kept.nonzero().flatten()
    source, order = index[kept].sort(stable=True)
    counts = torch.bincount(source, minlength=size)
    starts = counts.cumsum(0) - counts
    table = torch.full((size, max(int(counts.max()), 1)), len(index), dtype=torch.int64)
    table[source, torch.arange(len(source)) - starts[source]] = places[order]
    return table


def _spell_take(e: Emitter, node: fx.Node) -> str:
    a = bind(node)
    x = e.value(a.x)
    if a.has_zeros:
        rank = len(shape_of(a.x))
        x = e.op("Pad", x, e.ints(*[0] * rank, *(int(i == a.axis) for i in range(rank))))
    return e.op("Gather", x, a.index, axis=a.axis)


# --------------------------------------------------------------------------------------------- rewrites at capture


def rewrite_move(program: Program, node: fx.Node) -> None:
    """Replace the operator by `take` along one axis after another, or along the only axis of the flattened input."""
    source: Any = node.args[0]
    if is_constant(source):
        return
    index = _sources(program, node)
    shape = shape_of(node)
    value = source
    by_axis = _by_axis(index, (1,) * (index.ndim - len(shape_of(source))) + shape_of(source))
    if by_axis is None:
        count = prod(shape_of(source))
        value = program.compute(node, aten.reshape.default, value, [count])
        flat = torch.where(index < 0, count, index).flatten()
        value = _take(program, node, value, 0, flat, has_zeros=bool((index < 0).any()))
    else:
        if len(shape) != len(shape_of(source)):
            value = program.compute(
                node, aten.reshape.default, value, [1] * (len(shape) - len(shape_of(source))) + [*shape_of(source)]
            )
        for axis, places in enumerate(by_axis):
            if not torch.equal(places, torch.arange(shape_of(value)[axis])):
                value = _take(program, node, value, axis, places, has_zeros=False)
    if shape_of(value) != shape:
        value = program.compute(node, aten.reshape.default, value, list(shape))
    program.substitute(node, value)


def _take(program: Program, node: fx.Node, x: fx.Node, axis: int, index: Tensor, *, has_zeros: bool) -> fx.Node:
    constant = program.constant(path_of(node), index, anonymous=True)
    return program.compute(node, take, x, axis, constant, has_zeros)


def _sources(program: Program, node: fx.Node) -> Tensor:
    """For each element of the result the number of the element that it is a copy of, −1 for a zero."""
    source: Any = node.args[0]
    shape = shape_of(source)
    numbers = torch.arange(1, prod(shape) + 1, dtype=torch.float64).reshape(shape)

    def value(used: fx.Node) -> Tensor:
        if used is source:
            return numbers
        if not is_constant(used):
            raise _moved_by_image(node)
        return program.value_of(used)

    args, kwargs = fx.map_arg((node.args, node.kwargs), value)
    moved: Tensor = node.target(*args, **kwargs)  # type: ignore[operator]
    return moved.round().long() - 1


def _moved_by_image(node: fx.Node) -> CaptureError:
    return CaptureError(
        f"operator {node.target} in module '{path_of(node)}' moves elements by an index that depends on the image",
        source=path_of(node),
        hint="Use torch.gather or torch.take_along_dim.",
    )


def _by_axis(index: Tensor, shape: tuple[int, ...]) -> list[Tensor] | None:
    """One index per axis, if each coordinate of the source depends on the same coordinate of the result alone."""
    if index.ndim != len(shape) or not index.numel() or bool((index < 0).any()):
        return None
    found = []
    for axis, coordinate in enumerate(torch.unravel_index(index, shape)):
        along = coordinate[tuple(slice(None) if i == axis else 0 for i in range(index.ndim))]
        view = along.reshape([-1 if i == axis else 1 for i in range(index.ndim)])
        if not torch.equal(coordinate, view.expand_as(coordinate)):
            return None
        found.append(along)
    return found


def rewrite_pad(program: Program, node: fx.Node) -> None:
    """Zeros stay a pad; another constant is added to the border of zeros; the other modes copy elements."""
    a = bind(node)
    mode = getattr(a, "mode", "constant")
    if mode != "constant":
        rewrite_move(program, node)
    elif a.value:
        zeros = program.compute(node, aten.pad.default, a.self, a.pad)
        inner = torch.ones(shape_of(a.self), dtype=a.self.meta["val"].dtype)
        border = program.constant(path_of(node), (1 - F.pad(inner, a.pad)) * a.value, anonymous=True)
        program.replace(node, aten.add.Tensor, zeros, border)
    elif node.target is not aten.pad.default:
        program.replace(node, aten.pad.default, a.self, a.pad)


def rewrite_fold(program: Program, node: fx.Node) -> None:
    """col2im adds up overlapping patches: the transpose of im2col, which copies them."""
    a = bind(node)
    numbers = torch.arange(1, prod(shape_of(node)) + 1, dtype=torch.float64).reshape(shape_of(node))
    patches = aten.im2col.default(numbers, a.kernel_size, a.dilation, a.padding, a.stride).round().long() - 1
    size, count = prod(shape_of(node)), patches.numel()
    places = copies_of(torch.where(patches < 0, size, patches).flatten(), size)
    value = program.compute(node, aten.reshape.default, a.self, [count])
    value = _take(program, node, value, 0, places.flatten(), has_zeros=bool((places == count).any()))
    value = program.compute(node, aten.reshape.default, value, list(places.shape))
    value = program.compute(node, aten.sum.dim_IntList, value, [1])
    program.replace(node, aten.reshape.default, value, list(shape_of(node)))


def rewrite_overwrite(program: Program, node: fx.Node) -> None:
    """A copy of x with some elements replaced by those of `src`: both are moved, with zeros elsewhere, and added."""
    given = vars(bind(node))
    if given.get("accumulate"):
        rewrite_accumulation(program, node)
        return
    name = "values" if "values" in given else "src"
    x, src = given["self"], given[name]
    if (mask := _mask_of_image(given)) is not None and prod(shape_of(src)) == 1:
        axes = len(shape_of(x)) - len(shape_of(mask))
        mask = program.compute(node, aten.reshape.default, mask, [*shape_of(mask), *[1] * axes])
        value = program.compute(node, aten.reshape.default, src, [1] * len(shape_of(x)))
        program.replace(node, aten.where.self, mask, value, x)
        return
    placed = _constants(program, node, given, self=torch.zeros(shape_of(x)).double(), **{name: _numbers(src)})
    placed = placed.round().long() - 1
    kept = (placed < 0).to(x.meta["val"].dtype)
    mask = program.constant(path_of(node), kept, anonymous=True)
    rest = program.compute(node, aten.mul.Tensor, x, mask)
    count = prod(shape_of(src))
    moved = program.compute(node, aten.reshape.default, src, [count])
    moved = _take(program, node, moved, 0, torch.where(placed < 0, count, placed).flatten(), has_zeros=True)
    moved = program.compute(node, aten.reshape.default, moved, list(shape_of(node)))
    program.replace(node, aten.add.Tensor, rest, moved)


def _mask_of_image(given: dict[str, Any]) -> fx.Node | None:
    """The mask of `x[mask] = value`, if it depends on the image."""
    indices = given.get("indices") or [None]
    mask = indices[0]
    is_mask = isinstance(mask, fx.Node) and mask.meta["val"].dtype is torch.bool
    return mask if is_mask and len(indices) == 1 and not is_constant(mask) else None


def rewrite_accumulation(program: Program, node: fx.Node) -> None:
    """x plus the elements of `src` at the places that a constant index names; several may go to one place."""
    given = vars(bind(node))
    name = "values" if "values" in given else "src"
    x, src = given["self"], given[name]
    size = prod(shape_of(x))
    if name == "values":
        # The places are those that the same index reads. Values broadcast to them.
        places = aten.index.Tensor(_numbers(x), _known(program, node, given["indices"])).long() - 1
        source = _numbers(src).expand(places.shape).long() - 1
    else:
        index = _known(program, node, given["index"])
        places = _numbers(x).gather(given["dim"], index).long() - 1
        source = _numbers(src)[tuple(map(slice, index.shape))].long() - 1
    copies = copies_of(places.flatten(), size)
    count = prod(shape_of(src))
    picked = torch.cat([source.flatten(), torch.tensor([count])])[copies]
    value = program.compute(node, aten.reshape.default, src, [count])
    value = _take(program, node, value, 0, picked.flatten(), has_zeros=bool((picked == count).any()))
    value = program.compute(node, aten.reshape.default, value, list(copies.shape))
    value = program.compute(node, aten.sum.dim_IntList, value, [1])
    value = program.compute(node, aten.reshape.default, value, list(shape_of(node)))
    program.replace(node, aten.add.Tensor, x, value)


def _numbers(node: fx.Node) -> Tensor:
    """The numbers of the elements of a value, from 1."""
    return torch.arange(1, prod(shape_of(node)) + 1, dtype=torch.float64).reshape(shape_of(node))


def _constants(program: Program, node: fx.Node, given: dict[str, Any], **replaced: Tensor) -> Tensor:
    """The result of the node's operator, with some of its operands replaced."""
    target: Any = node.target
    result: Tensor = target(
        **{name: replaced.get(name, _known(program, node, one)) for name, one in given.items() if name not in replaced},
        **replaced,
    )
    return result


def _known(program: Program, node: fx.Node, argument: Any) -> Any:
    """An argument with the values of its constants."""

    def value(used: fx.Node) -> Tensor:
        if not is_constant(used):
            raise _moved_by_image(node)
        return program.value_of(used)

    return fx.map_arg(argument, value)


_MOVES: tuple[Callable[..., Any], ...] = (
    aten.diagonal.default,
    aten.flip.default,
    aten.im2col.default,
    aten.index.Tensor,
    aten.index_select.default,
    aten.repeat.default,
    aten.repeat_interleave.self_int,
    aten.roll.default,
    aten.tril.default,
    aten.triu.default,
    aten.unfold.default,
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
    aten._upsample_nearest_exact1d.vec,
    aten._upsample_nearest_exact2d.vec,
)
_OVERWRITES = (
    aten.diagonal_scatter.default,
    aten.index_put.default,
    aten.scatter.src,
    aten.select_scatter.default,
    aten.slice_scatter.default,
)

MOVES = (
    Operator(take, Kind.LINEAR, _spell_take, _transpose_take, along_axes),
    *(Operator(target, Kind.SPELLING, rewrite=rewrite_move) for target in _MOVES),
    *(Operator(target, Kind.SPELLING, rewrite=rewrite_overwrite) for target in _OVERWRITES),
    Operator(aten.scatter_add.default, Kind.SPELLING, rewrite=rewrite_accumulation),
    Operator(aten.col2im.default, Kind.SPELLING, rewrite=rewrite_fold),
    Operator(aten.constant_pad_nd.default, Kind.SPELLING, rewrite=rewrite_pad),
)
