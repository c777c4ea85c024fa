"""torch module → `Program`: its forward pass as a graph with dynamic batch, weights folded, marks kept.

The marks are `detach` calls: what lies behind one is *frozen*, what depends on the image without one
is *live*. They stay in the program until it has been transposed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, fx, nn

from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters._canonical import canonicalise
from bcos_sdk.exporters._program import Program

__all__ = ["capture", "explanation_mode"]


def capture(module: nn.Module, size: tuple[int, int], *, channels: int = 6) -> Program:
    """The module's forward pass: [batch, channels, *size] → `logits` [batch, classes]."""
    if any(part.training for part in module.modules()):
        raise CaptureError("the module is in train mode", hint="Call .eval() on it before the export.")
    image = torch.rand(2, channels, *size, dtype=_dtype_of(module))
    batch = torch.export.Dim("batch", min=1)
    try:
        with explanation_mode(module), torch.no_grad():
            exported = torch.export.export(module, (image,), dynamic_shapes=({0: batch},), strict=False)
            captured = exported.module(check_guards=False)
    except Exception as error:  # torch.export fails in as many ways as there are modules
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CaptureError(
            f"torch.export cannot capture {type(module).__name__}: {reason}",
            hint="The forward pass must take any batch size and not branch on the values of tensors.",
        ) from error
    assert isinstance(captured, fx.GraphModule)
    program = _to_program(captured)
    canonicalise(program)
    _check_signature(program)
    return program


@contextmanager
def explanation_mode(module: nn.Module) -> Iterator[None]:
    """The switch of the public `bcos` package, where a module has one; it is left as it was found."""
    switch = getattr(module, "explanation_mode", None)
    if switch is None:
        yield
    else:
        with switch():
            yield


def _to_program(captured: fx.GraphModule) -> Program:
    """Copy the graph, with constants by name and the path of each node's module."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    constants: dict[str, Tensor] = {}
    names: dict[str, str] = {}
    for node in captured.graph.nodes:
        if node.op == "output":
            (results,) = node.args
            flat = torch.utils._pytree.tree_leaves(results)
            graph.output(tuple(copied[result] for result in flat))
            continue
        if node.op == "placeholder" and not graph.find_nodes(op="placeholder"):
            new = graph.placeholder("image")
        else:
            new = graph.node_copy(node, copied.__getitem__)
        stack = node.meta.get("nn_module_stack") or {"": ("", "")}
        path, kind = list(stack.values())[-1]
        new.meta = {"val": node.meta.get("val"), "path": path, "kind": str(kind).rsplit(".")[-1]}
        if node.op == "get_attr":
            value = operator.attrgetter(node.target)(captured).detach()
            # `a.b` and `a_b` must not become one name, and an fx attribute cannot have a dot.
            name = names.setdefault(node.target, f"{node.target.replace('.', '_')}_{len(names)}")
            new.target = name
            new.meta.update(val=value, path=node.target)
            constants[name] = value
        copied[node] = new
    (output,) = graph.find_nodes(op="output")
    if len(output.args[0]) != 1:
        raise CaptureError(
            f"the module returns {len(output.args[0])} values",
            hint="Wrap it so that it returns the logits alone.",
        )
    return Program(graph, constants, ("logits",))


def _check_signature(program: Program) -> None:
    (logits,) = program.results
    shape = logits.meta["val"].shape
    if len(program.inputs) != 1:
        raise CaptureError(f"the module takes {len(program.inputs)} inputs", hint="Wrap it so that it takes the image.")
    if len(shape) != 2 or isinstance(shape[0], int):
        raise CaptureError(
            f"the module returns {list(shape)}, not logits of shape [batch, classes]",
            hint="Return one row of logits per image, and keep the batch size free.",
        )


def _dtype_of(module: nn.Module) -> torch.dtype:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32
