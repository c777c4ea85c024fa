"""`export`: compile a torch module, write its graphs, verify them against the module, and finish the bundle."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import onnx
import torch
from torch import nn

from bcos_sdk._logs import log
from bcos_sdk.bundle import (
    MOST_CLASSES,
    MOST_LAYERS,
    MOST_SIZES,
    Bundle,
    BundleWriter,
    GoldenLayer,
    LayerRecord,
    LayersRecord,
    Manifest,
    ModelRecord,
    Parity,
    SizeRecord,
)
from bcos_sdk.contract import (
    EXPLAIN_INPUTS,
    EXPLAIN_METADATA,
    EXPLAIN_OUTPUTS,
    LAYER_INPUTS,
    LAYER_OUTPUTS,
    MOST_RANKS,
    TOLERANCES,
    GraphPrecision,
    InputSpec,
    Probability,
)
from bcos_sdk.errors import ExportError
from bcos_sdk.exporters.capture import check_named_layers, map_shape
from bcos_sdk.exporters.compiler import Compiled, compile_module
from bcos_sdk.exporters.layer_compiler import CompiledLayer, CompiledLayers, compile_layers
from bcos_sdk.exporters.onnx import IR_VERSION, OPSET, WeightsFile, emit, find_refusals
from bcos_sdk.exporters.operators import SPELLINGS
from bcos_sdk.exporters.passes import HalfAnalysis, choose_half
from bcos_sdk.exporters.program import sample_shape
from bcos_sdk.exporters.verify import (
    Expected,
    GraphFiles,
    LayerFiles,
    Trial,
    compare,
    judge_layers,
    read_expectation,
    sessions_end,
)

__all__ = ["export", "hash_of_weights"]

PREDICT, EXPLAIN, EXPLAIN_ROWS = "predict.onnx", "explain.onnx", "explain_rows.onnx"
FEATURES, RELAY, RELAY_ROWS = "features.onnx", "relay.onnx", "relay_rows.onnx"
WEIGHTS, GOLDEN, LAYERS_GOLDEN = "weights.bin", "golden.npz", "golden_layers.npz"
_MOST_BIAS = 0.5
"""Above this bias share, a warning says that pixels explain the smaller part of the logits."""


def export(
    module: nn.Module,
    path: Path | str,
    *,
    input_size: tuple[int, int] = (224, 224),
    labels: Sequence[str] | None = None,
    max_batch: int = 8,
    name: str | None = None,
    preprocessing: InputSpec | None = None,
    probability: Probability = "sigmoid",
    precision: GraphPrecision = "fp32",
    output: str | None = None,
    expected: Expected | None = None,
    layers: Sequence[str] = (),
    more_sizes: Sequence[tuple[int, int]] = (),
    force: bool = False,
    without: Collection[str] = (),
    progress: Callable[[str], None] = lambda _stage: None,
    on_bias_share: Callable[[float], None] = lambda _share: None,
) -> Bundle:
    """Export a dynamic-linear module to a bundle in the folder `path`, and return the opened bundle.

    `module` maps [batch, channels, *input_size] to logits, in eval mode and float32. It is a network of this package,
    one of the public `bcos` package, or any module that detaches its input-dependent weights.

    With `precision="fp16"`, convolutions and matrix products run in fp16. Layers for which a certificate or the
    comparison with torch would fail stay in float32; the manifest names them.

    `probability` says how logits become probabilities. With "none" they have none, as the results of a regression (one
    value per image) or of an embedding. A target is then a component of the result.

    A module that returns a map [batch, classes, height, width] has one label per class. A target is then a class at a
    pixel of the map, or the mean of a class over a mask.

    `output` names the logits if the module returns several tensors: a key, a field, or "0" for the first of a tuple.

    `preprocessing` says how a picture becomes the input. The default resizes the shorter side to 256/224 of the input
    size and crops the centre: `InputSpec.for_photographs(input_size)`. `InputSpec.exact(input_size)` does neither.
    Both have six channels; pass `channels="rgb"`, "grey" or "grey+complement" for others. `InputSpec.arrays(12, size)`
    is for networks that take no pictures, but arrays with 12 channels of any finite values.

    `expected` is an image and the logits that your own code gives for it: a mapping with "image" (uint8 [H, W, 3]
    before preprocessing, or float [6, H, W]) and "logits", or an .npz file with these arrays. If the logits of the
    module or of the graph differ, the export fails with an `ExpectationError`.

    `layers` are paths of modules, such as "layer3": the bundle gets further graphs that explain their activations by
    pixels, and logits by their activations. They need `precision="fp32"`.

    `more_sizes` are further sizes of the input, height and width. Fully convolutional networks take several. Each has
    its own graphs over the same weights, and is compared with torch. They need `precision="fp32"`
    and no `layers`. `Client(…, input_size=…)` chooses one.

    `without` names simplifications to leave out. `progress` is called with the name of each stage when it begins, and
    `on_bias_share` with the part of the logits that bias terms explain instead of pixels: Σ|bias term| /
    (Σ|contribution| + Σ|bias term|), the mean over the images of the comparison, without constants that
    are the same for all classes. It is small for B-cos networks. For a conventional network with ReLU it is large: then
    the explanation is input × gradient, and pixels are a small part.
    """
    if max_batch < 1 or min(input_size) < 1 or isinstance(labels, str):
        raise ExportError(
            f"invalid arguments: max_batch={max_batch}, input_size={input_size}, labels={labels!r}",
            hint="max_batch and both sides of input_size must be at least 1, and labels a list of names.",
        )
    if precision not in get_args(GraphPrecision):
        known = ", ".join(get_args(GraphPrecision))
        raise ExportError(f"graphs cannot be written in precision {precision!r}", hint=f"Choose from {known}.")
    if isinstance(layers, str) or len(layers) > MOST_LAYERS or (layers and precision != "fp32"):
        raise ExportError(
            f"layers={layers!r} cannot be exported with precision={precision!r}",
            hint=f'Pass a list of at most {MOST_LAYERS} paths of modules, and precision="fp32": graphs of layers are '
            "not written in fp16.",
        )
    spec = preprocessing or InputSpec.for_photographs(input_size)
    _check_sizes([spec.size, *more_sizes], precision, layers)
    expectation = None if expected is None else read_expectation(expected)
    with BundleWriter(path, force=force) as writer, sessions_end():
        if expectation is not None:
            progress("comparing with the expected logits")
            expectation.check_module(module, spec, output)
        if layers:
            check_named_layers(module, spec.size, layers, channels=spec.depth, output=output)
        progress("capturing and transposing")
        compiled = compile_module(module, spec.size, channels=spec.depth, output=output, without=without)
        (classes,) = sample_shape(compiled.predict.results[0])
        shape = _map_of(module, spec, output)
        if classes > MOST_CLASSES:
            raise ExportError(
                f"the module returns {classes:,} values per image, the limit is {MOST_CLASSES:,}",
                hint="Return the map before it is enlarged, or fewer classes.",
            )
        named = classes if shape is None else shape[0]
        if labels is not None and len(labels) != named:
            raise ExportError(
                f"{len(labels)} labels for {named} classes, expected one per class",
                hint="Pass one label per class, in class order.",
            )
        further = [
            _Further(other, compile_module(module, other.size, channels=other.depth, output=output, without=without))
            for other in map(spec.scaled_to, more_sizes)
        ]
        progress("writing ONNX")
        inner = compile_layers(module, spec.size, tuple(layers), channels=spec.depth, output=output) if layers else None
        graphs = _write_graphs(writer.folder, compiled, inner, further)
        for refusal in find_refusals(graphs.predict, graphs.explain):
            log.warning("TensorRT cannot build an engine for this bundle: %s", refusal)
        progress("checking against torch")
        trial, parity = compare(module, compiled, graphs, spec, max_batch, output=output, without=without)
        _report_bias_share(trial.bias_share, on_bias_share)
        records = None if inner is None else _judged(module, trial, inner, writer.folder, output)
        size_records = [one.judged(module, writer.folder, max_batch, output, without) for one in further]
        float_layers: tuple[str, ...] = ()
        if precision == "fp16":
            progress("converting to fp16")

            def attempt(analysis: HalfAnalysis, keep: Sequence[str]) -> tuple[Parity, ...]:
                half = compiled.in_half(analysis, keep)
                return trial.judge(_write_graphs(writer.folder, half), half, "fp16")

            float_layers, parity = choose_half(compiled.explain, trial.images, attempt)
        if expectation is not None:
            expectation.check_graph(graphs.predict, spec, precision)
        progress("finishing the bundle")
        trial.golden.write(writer.folder / GOLDEN)
        return writer.finish(
            Manifest(
                model=ModelRecord(
                    name=name or type(module).__name__,
                    module=_class_name(module),
                    weights_sha256=hash_of_weights(module),
                ),
                input=spec,
                classes=classes,
                map=shape,
                labels=None if labels is None else tuple(labels),
                probability=probability,
                bias_terms=compiled.bias_terms,
                ranks=min(classes, MOST_RANKS),
                max_batch=max_batch,
                precision=precision,
                float_layers=float_layers,
                tolerance=TOLERANCES[precision],
                predict_graph=PREDICT,
                explain_graph=EXPLAIN,
                explain_rows_graph=EXPLAIN_ROWS,
                weights=WEIGHTS,
                golden=GOLDEN,
                opset=OPSET,
                ir_version=IR_VERSION,
                versions={package: version(package) for package in ("bcos-sdk", "torch", "onnx", "onnxruntime")},
                rewrites=compiled.rewrites,
                parity=parity,
                parity_limits=trial.limits[precision],
                layers=records,
                more_sizes=tuple(size_records),
            )
        )


def _map_of(module: nn.Module, spec: InputSpec, output: str | None) -> tuple[int, int, int] | None:
    tensors = (*module.parameters(), *module.buffers())
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), torch.zeros(()))
    return map_shape(module, torch.zeros(1, *spec.shape).to(like), output)


def _judged(module: nn.Module, trial: Trial, inner: CompiledLayers, folder: Path, output: str | None) -> LayersRecord:
    """Compare the graphs of the layers with the module, write their golden record, and describe them."""
    files = LayerFiles(
        folder / FEATURES,
        folder / RELAY,
        folder / RELAY_ROWS,
        tuple(
            (folder / _layer_file(place, layer), folder / _layer_file(place, layer, "_rows"))
            for place, layer in enumerate(inner.layers)
        ),
    )
    limits, target = trial.limits_of_layers, trial.target
    judged = judge_layers(module, trial.images, inner, files, limits, target, output)
    GoldenLayer.write(folder / LAYERS_GOLDEN, [golden for _, golden in judged])
    return LayersRecord(
        features_graph=FEATURES,
        relay_graph=RELAY,
        relay_rows_graph=RELAY_ROWS,
        golden=LAYERS_GOLDEN,
        layers=tuple(
            LayerRecord(
                path=layer.path,
                kind=type(module.get_submodule(layer.path)).__name__,
                shape=layer.shape,
                explain_graph=grid.name,
                explain_rows_graph=rows.name,
                bias_terms=layer.bias_terms,
                complete=layer.complete,
                bias_above=layer.bias_above,
                parity=parity,
            )
            for layer, (grid, rows), (parity, _) in zip(inner.layers, files.explain, judged, strict=True)
        ),
    )


def _layer_file(place: int, layer: CompiledLayer, layout: str = "") -> str:
    """A name that is valid on every system for any module path. The number makes it unique."""
    return f"explain_{place}_{re.sub('[^A-Za-z0-9]+', '-', layer.path)[:40]}{layout}.onnx"


def _check_sizes(sizes: Sequence[tuple[int, int]], precision: GraphPrecision, layers: Sequence[str]) -> None:
    if len(sizes) == 1:
        return
    shown = ", ".join(f"{height}x{width}" for height, width in sizes)
    if len(set(sizes)) != len(sizes) or len(sizes) > MOST_SIZES or min(map(min, sizes)) < 1:
        raise ExportError(
            f"the sizes of the input are {shown}, expected at most {MOST_SIZES} different ones",
            hint="Name each size once.",
        )
    if precision != "fp32" or layers:
        raise ExportError(
            f"several sizes of the input ({shown}) cannot be exported with fp16 or with inner layers",
            hint="Export one bundle for each size.",
        )


@dataclass(frozen=True)
class _Further:
    """A further size of the input."""

    spec: InputSpec
    compiled: Compiled

    def name(self, file: str) -> str:
        stem, _, suffix = file.rpartition(".")
        return f"{stem}_{self.spec.size[0]}x{self.spec.size[1]}.{suffix}"

    def judged(
        self, module: nn.Module, folder: Path, max_batch: int, output: str | None, without: Collection[str]
    ) -> SizeRecord:
        """Compare the graphs of this size with the module, write their golden record, and describe them."""
        (classes,) = sample_shape(self.compiled.predict.results[0])
        predict, explain, rows, golden = map(self.name, (PREDICT, EXPLAIN, EXPLAIN_ROWS, GOLDEN))
        graphs = GraphFiles(folder / predict, folder / explain, folder / rows)
        trial, parity = compare(module, self.compiled, graphs, self.spec, max_batch, output=output, without=without)
        trial.golden.write(folder / golden)
        return SizeRecord(
            input=self.spec,
            classes=classes,
            map=_map_of(module, self.spec, output),
            ranks=min(classes, MOST_RANKS),
            bias_terms=self.compiled.bias_terms,
            predict_graph=predict,
            explain_graph=explain,
            explain_rows_graph=rows,
            golden=golden,
            parity=parity,
            parity_limits=trial.limits["fp32"],
        )


def _write_graphs(
    folder: Path, compiled: Compiled, inner: CompiledLayers | None = None, further: Sequence[_Further] = ()
) -> GraphFiles:
    (folder / WEIGHTS).unlink(missing_ok=True)  # a session of an earlier attempt may still map the old file
    with WeightsFile(folder / WEIGHTS) as weights:
        models = _emit(compiled, weights)
        for one in further:
            models |= {one.name(file): model for file, model in _emit(one.compiled, weights).items()}
        if inner is not None:
            models |= _emit_layers(inner, weights)
    for name, model in models.items():
        path = folder / name
        path.write_bytes(model.SerializeToString(deterministic=True))
        try:
            onnx.checker.check_model(str(path), full_check=True)
        except Exception as error:  # the errors of onnx have no narrower common base
            raise ExportError(
                f"{name} is not valid ONNX: {error}",
                source=name,
                hint="This is a fault in the exporter. Please report it.",
            ) from error
    return GraphFiles(folder / PREDICT, folder / EXPLAIN, folder / EXPLAIN_ROWS)


def _emit(compiled: Compiled, weights: WeightsFile) -> dict[str, onnx.ModelProto]:
    metadata = {EXPLAIN_METADATA: json.dumps({"bias_terms": compiled.bias_terms})}
    return {
        PREDICT: emit(compiled.predict, "predict", weights, SPELLINGS),
        EXPLAIN: emit(compiled.explain, "explain", weights, SPELLINGS, metadata=metadata),
        EXPLAIN_ROWS: emit(compiled.explain_rows, "explain_rows", weights, SPELLINGS, metadata=metadata),
    }


def _emit_layers(inner: CompiledLayers, weights: WeightsFile) -> dict[str, onnx.ModelProto]:
    ports = (*EXPLAIN_INPUTS, *EXPLAIN_OUTPUTS, *inner.ports)
    models = {
        FEATURES: emit(inner.features, "features", weights, SPELLINGS, ports=ports),
        RELAY: emit(inner.relay, "relay", weights, SPELLINGS, ports=ports),
        RELAY_ROWS: emit(inner.relay_rows, "relay_rows", weights, SPELLINGS, ports=ports),
    }
    ports = (*LAYER_INPUTS, *LAYER_OUTPUTS)
    for place, layer in enumerate(inner.layers):
        metadata = {EXPLAIN_METADATA: json.dumps({"bias_terms": layer.bias_terms, "layer": layer.path})}
        for program, layout in ((layer.explain, ""), (layer.explain_rows, "_rows")):
            models[_layer_file(place, layer, layout)] = emit(
                program, f"explain_layer{layout}", weights, SPELLINGS, metadata=metadata, ports=ports
            )
    return models


def _report_bias_share(share: float, on_bias_share: Callable[[float], None]) -> None:
    on_bias_share(share)
    if share > _MOST_BIAS:
        log.warning(
            "bias terms are %.0f %% of each explanation, and pixels the rest: W(x)·x is input × gradient here, not an "
            "explanation of B-cos quality",
            100 * share,
        )


def _class_name(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def hash_of_weights(module: nn.Module) -> str:
    """The SHA-256 of the state dict: names, types, shapes and values. It is `weights_sha256` of the manifest."""
    digest = hashlib.sha256()
    for key, value in sorted(module.state_dict().items()):
        digest.update(f"{key} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
