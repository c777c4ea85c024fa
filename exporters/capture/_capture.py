"""torch module → `Program`: its forward pass as a graph with dynamic batch, constants folded, `detach` kept.

`detach` separates frozen values (behind one) from live values (which depend on the image on a path without one). The
`detach` nodes stay in the program until it has been transposed.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn

from bcos_sdk.contract import CHANNELS, IMAGE, LOGITS
from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.capture._canonical import canonicalise
from bcos_sdk.exporters.program import Program

__all__ = ["capture", "explanation_mode"]

_BIAS_NAMES = {"LogitLayer": "logit_bias"}
"""Module class → name of the bias that it adds as a plain number, here and in the public `bcos` package."""


def capture(module: nn.Module, size: tuple[int, int], *, channels: int = CHANNELS) -> Program:
    """The module's forward pass: [batch, channels, *size] → `logits` [batch, classes]."""
    if any(part.training for part in module.modules()):
        raise CaptureError("the module is in train mode, expected eval mode", hint="Call .eval() before the export.")
    dtype = _dtype_of(module)
    if dtype not in (torch.float32, torch.float64):
        raise CaptureError(
            f"the module is in {dtype}, expected float32 or float64",
            hint="Call .float() first. For fp16 graphs, pass precision='fp16' to the export.",
        )
    image = torch.rand(2, channels, *size, dtype=dtype)
    # torch 2.6 captures a slice only if the batch size cannot be the largest int64.
    batch = torch.export.Dim("batch", min=1, max=2**31)
    try:
        with explanation_mode(module), torch.no_grad():
            exported = torch.export.export(module, (image,), dynamic_shapes=({0: batch},), strict=False)
            captured = _graph_module(exported)
    except Exception as error:  # torch.export raises errors of many unrelated types
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CaptureError(
            f"torch.export cannot capture {type(module).__name__}: {reason}",
            hint="The forward pass must take any batch size and must not branch on values of tensors.",
        ) from error
    if not exported.call_spec.out_spec.is_leaf():
        raise CaptureError(
            "the module returns more than one tensor, expected the logits",
            hint="Wrap it in a module that returns the logits and nothing else.",
        )
    program = _to_program(captured)
    canonicalise(program)
    _check_signature(program)
    return program


def _graph_module(exported: torch.export.ExportedProgram) -> fx.GraphModule:
    """The exported program as an fx graph without checks of the input shape.

    Since torch 2.9 the graph contains these checks by default. Earlier versions have no such argument and no checks.
    """
    options: dict[str, Any] = {}
    if "check_guards" in inspect.signature(exported.module).parameters:
        options["check_guards"] = False
    captured = exported.module(**options)
    assert isinstance(captured, fx.GraphModule)
    return captured


@contextmanager
def explanation_mode(module: nn.Module) -> Iterator[None]:
    """Switch on the explanation mode of the public `bcos` package, on the module or its layers, and off again."""
    with ExitStack() as stack:
        if hasattr(module, "explanation_mode"):
            stack.enter_context(module.explanation_mode())  # type: ignore[operator]
        else:
            for layer in module.modules():
                if getattr(layer, "is_in_explanation_mode", None) is False:
                    layer.set_explanation_mode(True)  # type: ignore[operator]
                    stack.callback(layer.set_explanation_mode, False)  # type: ignore[arg-type]
        yield


def _to_program(captured: fx.GraphModule) -> Program:
    """Copy the graph; name its constants, and note the module path of each node."""
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
            new = graph.placeholder(IMAGE.name)
        else:
            new = graph.node_copy(node, copied.__getitem__)
        stack = node.meta.get("nn_module_stack") or {"": ("", "")}
        path, kind = list(stack.values())[-1]
        new.meta = {"val": node.meta.get("val"), "path": path}
        if (bias_name := _BIAS_NAMES.get(str(kind).rsplit(".")[-1])) is not None:
            new.meta["bias_name"] = bias_name
        if node.op == "get_attr":
            value = operator.attrgetter(node.target)(captured).detach()
            # The number keeps `a.b` and `a_b` apart: an fx attribute cannot have a dot.
            name = names.setdefault(node.target, f"{node.target.replace('.', '_')}_{len(names)}")
            new.target = name
            new.meta.update(val=value, path=node.target)
            constants[name] = value
        copied[node] = new
    return Program(graph, constants, (LOGITS.name,))


def _check_signature(program: Program) -> None:
    (logits,) = program.results
    shape = logits.meta["val"].shape
    if len(program.inputs) != 1:
        raise CaptureError(
            f"the module takes {len(program.inputs)} inputs, expected one image",
            hint="Wrap it in a module that takes the image and nothing else.",
        )
    if len(shape) != 2 or isinstance(shape[0], int):
        raise CaptureError(
            f"the module returns shape {list(shape)}, expected logits of shape [batch, classes]",
            hint="Return one row of logits per image, for any batch size.",
        )


def _dtype_of(module: nn.Module) -> torch.dtype:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32
