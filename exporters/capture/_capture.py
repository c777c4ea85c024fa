"""torch module → `Program`: its forward pass as a graph with dynamic batch, constants folded, `detach` kept.

`detach` separates frozen values (behind one) from live values (which depend on the image on a path without one). The
`detach` nodes stay in the program until it has been transposed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from bcos_sdk.contract import CHANNELS, IMAGE, LOGITS
from bcos_sdk.errors import BcosError, CaptureError
from bcos_sdk.exporters.batching import Batching
from bcos_sdk.exporters.capture._canonical import canonicalise
from bcos_sdk.exporters.capture._decompose import decompose
from bcos_sdk.exporters.capture._explanation_mode import explanation_mode
from bcos_sdk.exporters.capture._layers import LayerOutput, Taps, check_layers, find_layers
from bcos_sdk.exporters.capture._tracing import run_module, traced
from bcos_sdk.exporters.operators import BATCH_RULES, batch_of_foreign
from bcos_sdk.exporters.program import Program, path_of

__all__ = ["capture", "check_named_layers", "nameable_layers"]

_SAME = 1e-3
"""Largest difference between the results of an image alone and in a batch, relative to the largest result."""
_LOGIT_LAYERS = ("bcos_sdk.models.layers._bcos.LogitLayer", "bcos.modules.logitlayer.LogitLayer")
"""The classes that add the logit bias as a plain number, here and in the public `bcos` package."""
LOGIT_BIAS = "logit_bias"
_QUANTISED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")


def capture(
    module: nn.Module,
    size: tuple[int, int],
    *,
    channels: int = CHANNELS,
    output: str | None = None,
    layers: Sequence[str] = (),
) -> Program:
    """The module's forward pass: [batch, channels, *size] → `logits` [batch, classes].

    `output` names the logits if the module returns several tensors. `layers` are paths of modules whose outputs are
    further results of the program, under these names.
    """
    images = _checked_images(module, size, channels, output)
    check_layers(module, images[:1], layers, output)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own deprecated functions and of changed attributes
            with explanation_mode(module), traced(module, output, Taps(layers) if layers else None):
                exported = torch.export.export(module, (images[:1].clone(),), strict=False)
            with torch.no_grad():
                exported = decompose(exported)
    except CaptureError:
        raise
    except Exception as error:  # torch.export raises errors of many unrelated types
        raise CaptureError(
            f"torch.export cannot capture {type(module).__name__}: {_reason(error)}",
            hint="The forward pass must not branch on values of tensors, and must consist of operators of torch.",
        ) from error
    try:
        program = _to_program(exported, layers)
        canonicalise(program)
        _refuse_constant(program)
        program = Batching(program, BATCH_RULES, batch_of_foreign).run()
    except BcosError:
        raise
    except Exception as error:  # torch raises errors of many types where it computes shapes and constants
        raise CaptureError(
            f"the graph of {type(module).__name__} cannot be prepared for a batch of images: {_reason(error)}",
            hint="Sparse tensors, and sizes that depend on the image, are not supported.",
        ) from error
    _check_inputs(program)
    _refuse_mixed_images(module, images, output)
    return program


def _refuse_opaque(module: nn.Module) -> None:
    """Refuse parts that torch.export cannot look into."""
    for path, part in module.named_modules():
        where = f"module '{path}'" if path else "the module"
        if isinstance(part, torch.jit.ScriptModule):
            raise CaptureError(
                f"{where} is scripted or traced by torch.jit, so its layers cannot be captured",
                hint="Export the Python module that it was made from.",
            )
        if type(part).__module__.startswith(_QUANTISED):
            raise CaptureError(
                f"{where} is quantised: {type(part).__name__} rounds what it computes to integers",
                hint="Export the module before it was quantised. precision='fp16' makes it faster.",
            )


def _refuse_constant(program: Program) -> None:
    """Refuse logits that are the same for every image: they have no batch axis."""
    seen, pending = set(), [program.results[0]]
    while pending:
        node = pending.pop()
        if node.op == "placeholder":
            return
        pending += [one for one in node.all_input_nodes if one not in seen]
        seen |= {*pending}
    raise CaptureError(
        "the logits are the same for every image", hint="Return logits that are computed from the image."
    )


def nameable_layers(
    module: nn.Module, size: tuple[int, int], *, channels: int = CHANNELS, output: str | None = None
) -> list[LayerOutput]:
    """The layers of the module that `capture(layers=…)` accepts, in the order of the computation."""
    images = _checked_images(module, size, channels, output)
    return [one for one in find_layers(module, images[:1], output).values() if one.problem is None]


def check_named_layers(
    module: nn.Module,
    size: tuple[int, int],
    layers: Sequence[str],
    *,
    channels: int = CHANNELS,
    output: str | None = None,
) -> None:
    """Raise the error of `capture(layers=…)` if one of the names is wrong. This takes three runs, and no capture."""
    check_layers(module, _checked_images(module, size, channels, output)[:1], layers, output)


def _checked_images(module: nn.Module, size: tuple[int, int], channels: int, output: str | None) -> Tensor:
    """Two random images, after checks that the module can be captured with them."""
    _refuse_opaque(module)
    if any(part.training for part in module.modules()):
        raise CaptureError("the module is in train mode, expected eval mode", hint="Call .eval() before the export.")
    dtype = _dtype_of(module)
    if dtype not in (torch.float32, torch.float64):
        raise CaptureError(
            f"the module is in {dtype}, expected float32 or float64",
            hint="Call .float() first. For fp16 graphs, pass precision='fp16' to the export.",
        )
    images = torch.rand(2, channels, *size, dtype=dtype, generator=torch.Generator().manual_seed(0))
    _refuse_faulty(module, images[:1], output)
    return images


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _refuse_faulty(module: nn.Module, image: Tensor, output: str | None) -> None:
    """Refuse a module that cannot be run on an image of the given shape, or whose logits are random."""
    try:
        with explanation_mode(module), torch.no_grad():
            first, second = (run_module(module, image.clone(), output) for _ in range(2))
    except CaptureError:
        raise
    except Exception as error:  # the module itself decides what it raises
        raise CaptureError(
            f"{type(module).__name__} fails for an image of shape {list(image.shape)}: {_reason(error)}",
            hint="Pass a module that takes one image of this shape and nothing else, or the right input size "
            "(--input-size) and channels (--channels).",
        ) from error
    if not bool(torch.isfinite(first).all()):
        raise CaptureError(
            f"the logits of {type(module).__name__} for an image of random numbers in [0, 1] are not finite",
            hint="Check the weights of the module, and divisions by norms that can be zero.",
        )
    if not torch.equal(first, second):
        raise CaptureError(
            "the module gives other logits for the same image when it is called again, so they are random",
            hint="Switch off dropout, noise and other random operators in eval mode.",
        )


def _refuse_mixed_images(module: nn.Module, images: Tensor, output: str | None) -> None:
    """Refuse a module whose logits for one image depend on the other images of the batch.

    The module is captured with one image, which cannot show this. A module that takes one image only is accepted.
    """
    with explanation_mode(module), torch.no_grad():
        try:
            together = run_module(module, images.clone(), output)
        except Exception:  # the module itself decides what it raises for two images
            return
        alone = torch.cat([run_module(module, image[None].clone(), output) for image in images])
    if together.shape != alone.shape or bool((together - alone).abs().max() > _SAME * alone.abs().max()):
        raise CaptureError(
            "the logits of an image depend on the other images of its batch",
            hint="Normalise and reduce over the axes of one image, not over the batch axis.",
        )


def _to_program(exported: ExportedProgram, layers: Sequence[str] = ()) -> Program:
    """Copy the graph; turn parameters and buffers into constants, and note the module path of each node."""
    signature = exported.graph_signature
    if any(spec.kind is InputKind.TOKEN for spec in signature.input_specs):
        raise CaptureError(
            "the module has an operator that checks values of the image and may raise an error, such as linalg.inv",
            hint="Use the operator without the check, such as torch.linalg.inv_ex.",
        )
    tensors = {**exported.state_dict, **exported.constants}
    sources = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    graph = fx.Graph()
    program = Program(graph, {}, (LOGITS.name, *layers))
    copied: dict[fx.Node, fx.Node] = {}
    for node in exported.graph.nodes:
        if node.op == "output":
            graph.output(tuple(copied[result] for result in _results(exported)))
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
    _name_several_logit_layers(graph)
    return program


def _name_several_logit_layers(graph: fx.Graph) -> None:
    """Call the logit bias of each layer after the layer, if there are several."""
    named = [node for node in graph.nodes if "bias_name" in node.meta]
    if len({path_of(node) for node in named}) > 1:
        for node in named:
            node.meta["bias_name"] = f"{path_of(node)}.{LOGIT_BIAS}"


def _described(node: fx.Node) -> dict[str, Any]:
    """The metadata of a node of a program: its value, the path of its module, and the name of a bias that it adds."""
    stack = node.meta.get("nn_module_stack") or {"": ("", "")}
    path, kind = list(stack.values())[-1]
    meta = {"val": node.meta.get("val"), "path": path}
    if str(kind) in _LOGIT_LAYERS:
        meta["bias_name"] = LOGIT_BIAS
    return meta


def _results(exported: ExportedProgram) -> list[fx.Node]:
    """The results of the module. Results that only update a buffer or an input are left out."""
    (results,) = exported.graph.output_node().args
    specs = exported.graph_signature.output_specs
    return [result for result, spec in zip(results, specs, strict=True) if spec.kind is OutputKind.USER_OUTPUT]


def _check_inputs(program: Program) -> None:
    if len(program.inputs) != 1:
        raise CaptureError(
            f"the module takes {len(program.inputs)} inputs, expected one image",
            hint="Wrap it in a module that takes the image and nothing else.",
        )


def _dtype_of(module: nn.Module) -> torch.dtype:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32
