"""`export`: compile a torch module, write its graphs, verify them against the module, and finish the bundle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args

import onnx
import torch
from torch import nn

from bcos_sdk._logs import log
from bcos_sdk.bundle import Bundle, BundleWriter, Manifest, ModelRecord, Parity
from bcos_sdk.contract import EXPLAIN_METADATA, MOST_RANKS, TOLERANCES, GraphPrecision, InputSpec
from bcos_sdk.errors import ExportError, ParityError
from bcos_sdk.exporters.compiler import Compiled, compile_module
from bcos_sdk.exporters.onnx import IR_VERSION, OPSET, WeightsFile, emit, find_refusals
from bcos_sdk.exporters.operators import SPELLINGS
from bcos_sdk.exporters.passes import HalfAnalysis, choose_half
from bcos_sdk.exporters.program import sample_shape
from bcos_sdk.exporters.verify import Expected, GraphFiles, Trial, read_expectation, with_worst_layer

__all__ = ["export"]

PREDICT, EXPLAIN, EXPLAIN_ROWS = "predict.onnx", "explain.onnx", "explain_rows.onnx"
WEIGHTS, GOLDEN = "weights.bin", "golden.npz"
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
    probability: Literal["sigmoid", "softmax"] = "sigmoid",
    precision: GraphPrecision = "fp32",
    output: str | None = None,
    expected: Expected | None = None,
    force: bool = False,
    without: Collection[str] = (),
    progress: Callable[[str], None] = lambda _stage: None,
    on_bias_share: Callable[[float], None] = lambda _share: None,
) -> Bundle:
    """Export a dynamic-linear module to a bundle in the folder `path`, and return the opened bundle.

    `module` maps [batch, 6, *input_size] to logits, in eval mode and float32. It is a network of this package, one of
    the public `bcos` package, or any module that detaches its input-dependent weights.

    With `precision="fp16"`, convolutions and matrix products run in fp16. Layers for which a certificate or the
    comparison with torch would fail stay in float32; the manifest names them.

    `output` names the logits if the module returns several tensors: a key, a field, or "0" for the first of a tuple.

    `preprocessing` says how a picture becomes the input. The default resizes the shorter side to 256/224 of the input
    size and crops the centre: `InputSpec.for_photographs(input_size)`. `InputSpec.exact(input_size)` does neither.

    `expected` is an image and the logits that your own code gives for it: a mapping with "image" (uint8 [H, W, 3]
    before preprocessing, or float [6, H, W]) and "logits", or an .npz file with these arrays. If the logits of the
    module or of the graph differ, the export fails with an `ExpectationError`.

    `without` names simplifications to leave out. `progress` is called with the name of each stage when it begins, and
    `on_bias_share` with the part of the logits that bias terms explain instead of pixels: Σ|bias term| /
    (Σ|contribution| + Σ|bias term|), the mean over the images of the comparison. It is small for B-cos networks. For a
    conventional network with ReLU it is large: then the explanation is input × gradient, and pixels are a small part.
    """
    if max_batch < 1 or min(input_size) < 1 or isinstance(labels, str):
        raise ExportError(
            f"invalid arguments: max_batch={max_batch}, input_size={input_size}, labels={labels!r}",
            hint="max_batch and both sides of input_size must be at least 1, and labels a list of names.",
        )
    if precision not in get_args(GraphPrecision):
        known = ", ".join(get_args(GraphPrecision))
        raise ExportError(f"graphs cannot be written in precision {precision!r}", hint=f"Choose from {known}.")
    spec = preprocessing or InputSpec.for_photographs(input_size)
    expectation = None if expected is None else read_expectation(expected)
    with BundleWriter(path, force=force) as writer:
        if expectation is not None:
            progress("comparing with the expected logits")
            expectation.check_module(module, spec, output)
        progress("capturing and transposing")
        compiled = compile_module(module, spec.size, output=output, without=without)
        (classes,) = sample_shape(compiled.predict.results[0])
        if labels is not None and len(labels) != classes:
            raise ExportError(
                f"{len(labels)} labels for {classes} classes, expected one per class",
                hint="Pass one label per class, in class order.",
            )
        progress("writing ONNX")
        graphs = _write_graphs(writer.folder, compiled)
        for refusal in find_refusals(graphs.predict, graphs.explain):
            log.warning("TensorRT cannot build an engine for this bundle: %s", refusal)
        progress("checking against torch")
        trial = Trial(module, spec.size, classes, max_batch, has_choices=compiled.has_choices, output=output)
        try:
            parity = trial.judge(graphs)
        except ParityError as error:
            raise with_worst_layer(error, compiled.explain, trial.images[:2]) from error
        _report_bias_share(trial.bias_share, on_bias_share)
        float_layers: tuple[str, ...] = ()
        if precision == "fp16":
            progress("converting to fp16")

            def attempt(analysis: HalfAnalysis, keep: Sequence[str]) -> tuple[Parity, ...]:
                return trial.judge(_write_graphs(writer.folder, compiled.in_half(analysis, keep)), "fp16")

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
                    weights_sha256=_hash_of_weights(module),
                ),
                input=spec,
                classes=classes,
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
            )
        )


def _write_graphs(folder: Path, compiled: Compiled) -> GraphFiles:
    (folder / WEIGHTS).unlink(missing_ok=True)  # a session of an earlier attempt may still map the old file
    metadata = {EXPLAIN_METADATA: json.dumps({"bias_terms": compiled.bias_terms})}
    with WeightsFile(folder / WEIGHTS) as weights:
        models = {
            PREDICT: emit(compiled.predict, "predict", weights, SPELLINGS),
            EXPLAIN: emit(compiled.explain, "explain", weights, SPELLINGS, metadata=metadata),
            EXPLAIN_ROWS: emit(compiled.explain_rows, "explain_rows", weights, SPELLINGS, metadata=metadata),
        }
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


def _hash_of_weights(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for key, value in sorted(module.state_dict().items()):
        digest.update(f"{key} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
