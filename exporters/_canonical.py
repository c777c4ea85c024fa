"""aten's many spellings → the few operators that rules, passes and ONNX emission know.

One entry per spelling. What has no entry passes unchanged: it is an operator of its own.
"""

from __future__ import annotations

import itertools
import operator as builtins
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters._ops import reshape_sample
from bcos_sdk.exporters._program import Program, bind, path_of, sample_shape, shape_of
from bcos_sdk.exporters.simplify import fold_constants

__all__ = ["canonicalise"]

aten = torch.ops.aten

Rewrite = Callable[[Program, fx.Node], None]


def canonicalise(program: Program) -> None:
    """Rewrite every node that has an entry in the table and depends on the image; the others become constants."""
    for node in list(program.graph.nodes):
        if node.op == "call_function" and _is_in_place(node):
            _out_of_place(program, node)
    fold_constants(program)
    for node in list(program.graph.nodes):
        rewrite = _TABLE.get(node.target) if node.op == "call_function" else None
        if rewrite is not None:
            rewrite(program, node)
    program.clean()


def _is_in_place(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _out_of_place(program: Program, node: fx.Node) -> None:
    """x.op_() → y = x.op(), and y for every later use of x; refused where x is seen under another name."""
    operator: Any = node.target
    changed = bind(node).self
    plain = getattr(aten, operator.overloadpacket.__name__.removesuffix("_"), None)
    others = [user for user in changed.users if user is not node]
    if plain is None or changed.op != "call_function" or any(map(_is_alias, [changed, *others])):
        raise CaptureError(
            f"{operator} in '{path_of(node)}' changes a tensor in place that is seen elsewhere",
            source=path_of(node),
            hint="Write it without the trailing underscore.",
        )
    later = set(itertools.dropwhile(lambda one: one is not node, list(program.graph.nodes)))
    new = program.replace(node, getattr(plain, operator._overloadname), *node.args, **node.kwargs)
    changed.replace_all_uses_with(new, delete_user_cb=lambda user: user in later and user is not new)


def _is_alias(node: fx.Node) -> bool:
    """Whether the value may share its memory with another."""
    schema = getattr(node.target, "_schema", None)
    may_copy = (*_VIEWS, *_COPIES, aten.to.dtype, builtins.getitem)
    return node.target in may_copy or (schema is not None and any(one.alias_info for one in schema.returns))


def _to_input(program: Program, node: fx.Node) -> None:
    node.replace_all_uses_with(node.all_input_nodes[0])
    program.graph.erase_node(node)


def _to_reshape(program: Program, node: fx.Node) -> None:
    source = node.all_input_nodes[0]
    if not (_has_batch(program, source) and _has_batch(program, node)):
        raise CaptureError(
            f"{node.target} in '{path_of(node)}' mixes the batch with another axis: "
            f"{list(shape_of(source))} becomes {list(shape_of(node))}",
            source=path_of(node),
            hint="Keep the batch as the first axis of every tensor.",
        )
    program.replace(node, reshape_sample, source, sample_shape(node))


def _has_batch(program: Program, node: fx.Node) -> bool:
    """The first axis is the batch and all others have known sizes."""
    first, *rest = shape_of(node) or (0,)
    batch = shape_of(program.inputs[0])[0]
    return str(first) == str(batch) and all(isinstance(size, int) for size in rest)


def _to_permute(program: Program, node: fx.Node) -> None:
    a = bind(node)
    order = list(range(len(shape_of(node))))
    order[a.dim0], order[a.dim1] = order[a.dim1], order[a.dim0]
    program.replace(node, aten.permute.default, a.self, order)


def _parts_to_slices(program: Program, node: fx.Node) -> None:
    """Each part of a split is a slice."""
    a = bind(node)
    axis = a.dim % len(shape_of(a.self))
    ends = [0]
    for part in node.meta["val"]:
        ends.append(ends[-1] + int(part.shape[axis]))
    for getitem in list(node.users):
        index: Any = getitem.args[1]
        program.replace(getitem, aten.slice.Tensor, a.self, axis, ends[index], ends[index + 1])
    program.graph.erase_node(node)


def _dropout(program: Program, node: fx.Node) -> None:
    assert not bind(node).train, "the module is in eval mode"
    _to_input(program, node)


def _cast(program: Program, node: fx.Node) -> None:
    if node.meta["val"].dtype == bind(node).self.meta["val"].dtype:
        _to_input(program, node)


def _adaptive_pool(program: Program, node: fx.Node) -> None:
    a = bind(node)
    if tuple(a.output_size) == (1, 1):
        program.replace(node, aten.mean.dim, a.self, [2, 3], True)


def _slice(program: Program, node: fx.Node) -> None:
    """x[:] = x, which is what x[:, 1:] does to its first axis."""
    a = bind(node)
    if not a.start and a.step == 1 and (a.end is None or a.end == sys.maxsize):
        _to_input(program, node)


def _filled(program: Program, node: fx.Node) -> None:
    """A tensor made of one number takes nothing from the tensor it was made beside."""
    operator: Any = node.target
    if len(node.all_input_nodes) > 1:
        raise CaptureError(
            f"{operator} in '{path_of(node)}' makes a tensor of the size of the batch",
            source=path_of(node),
            hint="Make it without the batch axis and let it be broadcast.",
        )
    empty = torch.empty(0, dtype=bind(node).self.meta["val"].dtype)
    value = operator(empty, *node.args[1:], **node.kwargs)
    constant = program.constant(path_of(node), value)
    constant.meta["anonymous"] = True
    node.replace_all_uses_with(constant)
    program.graph.erase_node(node)


def _alpha(program: Program, node: fx.Node) -> None:
    """x + α·y in two steps."""
    a = bind(node)
    if a.alpha != 1:
        with program.graph.inserting_before(node):
            scaled = program.graph.call_function(aten.mul.Tensor, (a.other, a.alpha))
        scaled.meta = dict(a.other.meta) | {"path": path_of(node)}
        program.replace(node, node.target, a.self, scaled)  # type: ignore[arg-type]


def _reversed_sub(program: Program, node: fx.Node) -> None:
    """rsub(x, c) = c − x = −x + c."""
    a = bind(node)
    if a.alpha == 1:
        with program.graph.inserting_before(node):
            negative = program.graph.call_function(aten.neg.default, (a.self,))
        negative.meta = dict(a.self.meta) | {"path": path_of(node)}
        program.replace(node, aten.add.Tensor, negative, a.other)


def _select(program: Program, node: fx.Node) -> None:
    """x[:, i] is a slice of length one without its axis."""
    a = bind(node)
    axis = a.dim % len(shape_of(a.self))
    if axis == 0:
        return
    start = a.index % shape_of(a.self)[axis]
    with program.graph.inserting_before(node):
        part = program.graph.call_function(aten.slice.Tensor, (a.self, axis, start, start + 1))
    value = a.self.meta["val"]
    part.meta = dict(node.meta) | {"val": value.narrow(axis, start, 1)}
    program.replace(node, reshape_sample, part, sample_shape(node))


def _bmm(program: Program, node: fx.Node) -> None:
    a = bind(node)
    program.replace(node, aten.matmul.default, a.self, a.mat2)


def _batch_norm(program: Program, node: fx.Node) -> None:
    """γ (x − mean) / sqrt(var + eps) + β from the running statistics, in its separate steps."""
    a = bind(node)
    if a.training or a.running_mean is None:
        raise CaptureError(
            f"the batch norm '{path_of(node)}' has no running statistics",
            source=path_of(node),
            hint="Statistics of the batch mix the images of a batch: use track_running_stats=True.",
        )
    shape = (-1, *[1] * (len(shape_of(node)) - 2))
    scale = (program.value_of(a.running_var) + a.eps).rsqrt()
    scale = scale if a.weight is None else scale * program.value_of(a.weight)
    steps: list[tuple[Any, Tensor, fx.Node]] = [
        (aten.sub.Tensor, program.value_of(a.running_mean), a.running_mean),
        (aten.mul.Tensor, scale, a.running_var),
    ]
    if a.bias is not None:
        steps.append((aten.add.Tensor, program.value_of(a.bias), a.bias))
    value = a.input
    for operator, operand, source in steps:
        constant = program.constant(path_of(source), operand.reshape(shape))
        with program.graph.inserting_before(node):
            value = program.graph.call_function(operator, (value, constant))
        value.meta = dict(node.meta)
    node.replace_all_uses_with(value)
    program.graph.erase_node(node)


_VIEWS = (
    aten.flatten.using_ints,
    aten.reshape.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unflatten.int,
    aten.unsqueeze.default,
    aten.view.default,
    aten.view_as.default,
)
_COPIES = (aten.alias.default, aten.clone.default, aten.contiguous.default, aten.lift_fresh_copy.default)
_FILLS = (aten.new_full.default, aten.new_ones.default, aten.new_zeros.default)
_SPLITS = (aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default)

_TABLE: dict[Any, Rewrite] = {
    **dict.fromkeys(_VIEWS, _to_reshape),
    **dict.fromkeys(_COPIES, _to_input),
    **dict.fromkeys(_FILLS, _filled),
    **dict.fromkeys(_SPLITS, _parts_to_slices),
    aten.adaptive_avg_pool2d.default: _adaptive_pool,
    aten.add.Tensor: _alpha,
    aten.bmm.default: _bmm,
    aten.rsub.Scalar: _reversed_sub,
    aten.select.int: _select,
    aten.sub.Tensor: _alpha,
    aten.batch_norm.default: _batch_norm,
    aten.dropout.default: _dropout,
    aten.slice.Tensor: _slice,
    aten.to.dtype: _cast,
    aten.transpose.int: _to_permute,
}
