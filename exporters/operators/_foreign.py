"""Operators without an entry of their own: on the frozen path, torch's ONNX library spells them.

A frozen value needs no transpose, only a batch axis and an ONNX spelling. Functions of single elements take any batch.
Another operator is run on random values: it can be computed for a batch if the results for two images together are
those for each of them alone.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import onnx.inliner
import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from bcos_sdk.contract import FOREIGN_OPERATORS, ONNX_OPERATORS
from bcos_sdk.errors import UnsupportedOperatorError
from bcos_sdk.exporters.batching import Batching
from bcos_sdk.exporters.onnx import OPSET, Emitter
from bcos_sdk.exporters.operators._batch_rules import elementwise
from bcos_sdk.exporters.program import path_of

__all__ = ["batch_of_foreign", "spell_foreign"]

_RANDOM = (torch.Tag.nondeterministic_seeded, torch.Tag.nondeterministic_bitwise)


def batch_of_foreign(b: Batching, node: fx.Node) -> fx.Node:
    """The same operator for a batch, if its first axis is a batch of independent values or it has no axes."""
    results = [one for one in tree_leaves(node.meta["val"]) if isinstance(one, Tensor)]
    target = node.target
    if not isinstance(target, OpOverload) or any(tag in target.tags for tag in _RANDOM) or not results:
        raise _unsupported(node, "is not supported")
    if any(one.is_complex() for one in results):
        raise _unsupported(node, "is not supported: it returns complex numbers")
    if torch.Tag.pointwise in target.tags and isinstance(node.meta["val"], Tensor):
        return elementwise(b, node)
    if not _takes_batches(b, node):
        raise _unsupported(node, "is not supported for a batch of images")
    args, kwargs = fx.map_arg((node.args, node.kwargs), b.own)
    call = b.call(target, *args, **kwargs)
    call.meta["foreign"] = True
    return call


def _takes_batches(b: Batching, node: fx.Node) -> bool:
    """Whether f([x, y]) = [f(x), f(y)] for random operands x and y of one image each."""
    operands = [one for one in node.all_input_nodes if b.is_per_image(one)]
    values = [one.meta["val"] for one in operands]
    results = tree_leaves(node.meta["val"])
    if not all(isinstance(one, Tensor) and b.keeps_first(tuple(one.shape)) for one in (*values, *results)):
        return False
    draw = torch.Generator().manual_seed(0)
    pairs = {one: _random(one.meta["val"], draw) for one in operands}

    def run(images: slice) -> list[Any]:
        def value(used: fx.Node) -> Tensor:
            return pairs[used][images] if used in pairs else b.old.value_of(used)

        args, kwargs = fx.map_arg((node.args, node.kwargs), value)
        return tree_leaves(node.target(*args, **kwargs))  # type: ignore[operator]

    try:
        together, first, second = run(slice(0, 2)), run(slice(0, 1)), run(slice(1, 2))
    except Exception:  # the operator itself decides what it raises for two images
        return False
    return all(
        torch.allclose(both, torch.cat([one, other]), equal_nan=True)
        for both, one, other in zip(together, first, second, strict=True)
    )


def _random(like: Tensor, draw: torch.Generator) -> Tensor:
    shape = (2, *like.shape[1:])
    if like.is_floating_point():
        return torch.rand(shape, generator=draw).to(like.dtype)
    return torch.randint(0, 2, shape, generator=draw).to(like.dtype)  # valid as an index, and as a truth value


def _unsupported(node: fx.Node, problem: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"operator {node.target} in module '{path_of(node)}' {problem}",
        source=path_of(node),
        hint="Replace it in your module by supported operators: docs/operators.md lists them.",
    )


# ------------------------------------------------------------------------------------------------------- ONNX spelling


class _Call(nn.Module):
    """One operator. Its tensors are the inputs of the module, everything else is fixed."""

    def __init__(self, node: fx.Node) -> None:
        super().__init__()
        self.node = node

    def forward(self, *tensors: Tensor) -> Any:
        values = dict(zip(self.node.all_input_nodes, tensors, strict=True))
        args, kwargs = fx.map_arg((self.node.args, self.node.kwargs), values.__getitem__)
        return self.node.target(*args, **kwargs)  # type: ignore[operator]


def spell_foreign(e: Emitter, node: fx.Node) -> Any:
    """Write the operator as torch's ONNX library does. Inputs that depend on the image have a batch of any size."""
    try:
        with _silence():
            written = torch.onnx.export(
                _Call(node).eval(),
                tuple(_example(one) for one in node.all_input_nodes),
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=(
                    tuple({0: torch.export.Dim.DYNAMIC} if _has_batch(one) else None for one in node.all_input_nodes),
                ),
            )
        graph = onnx.inliner.inline_local_functions(written.model_proto).graph  # type: ignore[union-attr]
    except Exception as error:  # torch.onnx raises errors of many unrelated types
        raise _unsupported(node, "is not supported: torch's ONNX library cannot write it either") from error
    foreign = {
        one.op_type for one in graph.node if one.op_type not in ONNX_OPERATORS | FOREIGN_OPERATORS | {"Constant"}
    }
    if foreign or any(one.domain for one in graph.node):
        raise _unsupported(node, f"is not supported: in ONNX it needs {', '.join(sorted(foreign))}")
    inputs = [e.value(one) for one in node.all_input_nodes]
    results = e.splice(graph, inputs)
    return results[0] if isinstance(node.meta["val"], Tensor) else results


def _has_batch(node: fx.Node) -> bool:
    return node.op != "get_attr" and bool(node.meta["val"].shape)


def _example(node: fx.Node) -> Tensor:
    like = node.meta["val"]
    if node.op == "get_attr":
        return like.float() if like.is_floating_point() else like  # type: ignore[no-any-return]
    dtype = torch.float32 if like.is_floating_point() else like.dtype
    return torch.ones(tuple(map(int, like.shape)), dtype=dtype)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """torch.onnx reports its progress on the standard output and in warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
