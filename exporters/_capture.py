"""torch module → `Program`: its forward pass as a graph with dynamic batch, weights folded, marks kept.

The marks are `detach` calls: what lies behind one is *frozen*, what depends on the image without one
is *live*. They stay in the program until it has been transposed.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

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
    dtype = _dtype_of(module)
    if dtype not in (torch.float32, torch.float64):
        raise CaptureError(f"the module is in {dtype}", hint="Call .float() on it; precision is chosen after capture.")
    image = torch.rand(2, channels, *size, dtype=dtype)
    # torch 2.6 captures a slice only if the batch size cannot be the largest int64.
    batch = torch.export.Dim("batch", min=1, max=2**31)
    try:
        with explanation_mode(module), torch.no_grad():
            exported = torch.export.export(module, (image,), dynamic_shapes=({0: batch},), strict=False)
            captured = _unguarded_module(exported)
    except Exception as error:  # torch.export fails in as many ways as there are modules
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CaptureError(
            f"torch.export cannot capture {type(module).__name__}: {reason}",
            hint="The forward pass must take any batch size and not branch on the values of tensors.",
        ) from error
    assert isinstance(captured, fx.GraphModule)
    if not exported.call_spec.out_spec.is_leaf():
        raise CaptureError(
            "the module returns more than one tensor", hint="Wrap it so that it returns the logits and nothing else."
        )
    program = _to_program(captured)
    canonicalise(program)
    _check_signature(program)
    return program


@contextmanager
def explanation_mode(module: nn.Module) -> Iterator[None]:
    """The switch of the public `bcos` package, on the module or on its layers; it is left as it was found."""
    with ExitStack() as stack:
        if hasattr(module, "explanation_mode"):
            stack.enter_context(module.explanation_mode())  # type: ignore[operator]
        else:
            for layer in module.modules():
                if getattr(layer, "is_in_explanation_mode", None) is False:
                    layer.set_explanation_mode(True)  # type: ignore[operator]
                    stack.callback(layer.set_explanation_mode, False)  # type: ignore[arg-type]
        yield


def _unguarded_module(exported: torch.export.ExportedProgram) -> nn.Module:
    """The exported program as a module that contains no checks of its input's shape.

    Since torch 2.9 the graph contains these checks by default. Earlier versions have no such argument and no checks.
    """
    if "check_guards" in inspect.signature(exported.module).parameters:
        return exported.module(check_guards=False)
    return exported.module()


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
