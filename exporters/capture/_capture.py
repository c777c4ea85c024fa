"""torch module → `Program`: its forward pass as a graph with dynamic batch, constants folded, `detach` kept.

`detach` separates frozen values (behind one) from live values (which depend on the image on a path without one). The
`detach` nodes stay in the program until it has been transposed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.utils._pytree import tree_leaves

from bcos_sdk.contract import CHANNELS, IMAGE, LOGITS
from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters.batching import Batching
from bcos_sdk.exporters.capture._canonical import canonicalise
from bcos_sdk.exporters.capture._decompose import decompose
from bcos_sdk.exporters.capture._explanation_mode import explanation_mode
from bcos_sdk.exporters.capture._tracing import traced
from bcos_sdk.exporters.operators import BATCH_RULES
from bcos_sdk.exporters.program import Program

__all__ = ["capture"]

_SAME = 1e-3
"""Largest difference between the results of an image alone and in a batch, relative to the largest result."""
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
    image = torch.rand(1, channels, *size, dtype=dtype)
    try:
        with explanation_mode(module), traced(module):
            exported = torch.export.export(module, (image,), strict=False)
        with torch.no_grad():
            exported = decompose(exported)
    except CaptureError:
        raise
    except Exception as error:  # torch.export raises errors of many unrelated types
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CaptureError(
            f"torch.export cannot capture {type(module).__name__}: {reason}",
            hint="The forward pass must not branch on values of tensors.",
        ) from error
    program = _to_program(exported)
    canonicalise(program)
    program = Batching(program, BATCH_RULES).run()
    _check_signature(program)
    _refuse_mixed_images(module, channels, size, dtype)
    return program


def _refuse_mixed_images(module: nn.Module, channels: int, size: tuple[int, int], dtype: torch.dtype) -> None:
    """Refuse a module whose result for one image depends on the other images of the batch.

    The module is captured with one image, which cannot show this. A module that takes one image only is accepted.
    """
    images = torch.rand(2, channels, *size, dtype=dtype, generator=torch.Generator().manual_seed(0))
    with explanation_mode(module), torch.no_grad():
        try:
            together = module(images.clone())
        except Exception:  # the module itself decides what it raises for two images
            return
        alone = [module(image[None].clone()) for image in images]
    for both, first, second in zip(*map(tree_leaves, (together, *alone)), strict=False):
        if not isinstance(both, Tensor) or both.shape[:1] != (2,):
            continue
        apart = torch.stack([one.reshape(both.shape[1:]) for one in (first, second)])
        if bool((both - apart).abs().max() > _SAME * apart.abs().max()):
            raise CaptureError(
                "the result for an image depends on the other images of its batch",
                hint="Normalise and reduce over the axes of one image, not over the batch axis.",
            )


def _to_program(exported: ExportedProgram) -> Program:
    """Copy the graph; turn parameters and buffers into constants, and note the module path of each node."""
    signature = exported.graph_signature
    tensors = {**exported.state_dict, **exported.constants}
    sources = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    graph = fx.Graph()
    program = Program(graph, {}, (LOGITS.name,))
    copied: dict[fx.Node, fx.Node] = {}
    for node in exported.graph.nodes:
        if node.op == "output":
            logits = _logits(exported)
            graph.output((copied[logits],))
        elif node.name in sources:
            source = sources[node.name]
            # The number keeps `a.b` and `a_b` apart: an fx attribute cannot have a dot.
            name = f"{source.replace('.', '_')}_{len(program.constants)}"
            program.constants[name] = value = tensors[source].detach()
            copied[node] = graph.create_node("get_attr", name)
            copied[node].meta = {"val": value, "path": source}
        elif node.op == "placeholder" and not program.inputs:
            copied[node] = graph.placeholder(IMAGE.name)
            copied[node].meta = {"val": node.meta["val"], "path": ""}
        else:
            copied[node] = graph.node_copy(node, copied.__getitem__)
            copied[node].meta = _described(node)
    return program


def _described(node: fx.Node) -> dict[str, Any]:
    """The metadata of a node of a program: its value, the path of its module, and the name of a bias that it adds."""
    stack = node.meta.get("nn_module_stack") or {"": ("", "")}
    path, kind = list(stack.values())[-1]
    meta = {"val": node.meta.get("val"), "path": path}
    if (bias_name := _BIAS_NAMES.get(str(kind).rsplit(".")[-1])) is not None:
        meta["bias_name"] = bias_name
    return meta


def _logits(exported: ExportedProgram) -> fx.Node:
    """The result of the module. Results that only update a buffer or an input are left out."""
    (output,) = exported.graph.find_nodes(op="output")
    specs = exported.graph_signature.output_specs
    results = [
        result for result, spec in zip(output.args[0], specs, strict=True) if spec.kind is OutputKind.USER_OUTPUT
    ]
    if len(results) != 1 or not isinstance(results[0], fx.Node):
        raise CaptureError(
            f"the module returns {len(results)} tensors, expected the logits",
            hint="Wrap it in a module that returns the logits and nothing else.",
        )
    return results[0]


def _check_signature(program: Program) -> None:
    (logits,) = program.results
    shape = logits.meta["val"].shape
    if len(program.inputs) != 1:
        raise CaptureError(
            f"the module takes {len(program.inputs)} inputs, expected one image",
            hint="Wrap it in a module that takes the image and nothing else.",
        )
    if len(shape) != 2:
        raise CaptureError(
            f"the module returns shape {list(shape)}, expected logits of shape [batch, classes]",
            hint="Return one row of logits per image, for any batch size.",
        )


def _dtype_of(module: nn.Module) -> torch.dtype:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32
