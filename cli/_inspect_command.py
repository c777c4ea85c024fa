"""`bcos-sdk inspect`: show the contents of a bundle or of an ONNX file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from bcos_sdk._extras import require
from bcos_sdk._untrusted import parse_json, read_bounded, typed_errors
from bcos_sdk.backends.tensorrt import EngineRecord, list_engines
from bcos_sdk.bundle import Bundle, LayerRecord, Manifest, find_bundle, signature_kind
from bcos_sdk.cli._common import json_option, pairs
from bcos_sdk.cli._terminal import print_json, print_lines
from bcos_sdk.contract import EXPLAIN_METADATA, InputSpec
from bcos_sdk.errors import BundleError

__all__ = ["inspect"]

_LARGEST_FILE = 2 << 30
"""Protobuf reads no larger file."""


@click.command()
@click.argument("model", metavar="DIR|NAME|FILE.onnx")
@json_option
def inspect(model: str, as_json: bool) -> None:
    """Show a bundle, or one ONNX graph: inputs, outputs, operators, sizes, and whether it explains.

    \b
    Examples:
      bcos-sdk inspect resnet50
      bcos-sdk inspect out/resnet50/explain.onnx --json
    """
    if model.lower().endswith(".onnx"):
        found = describe_graph(Path(model))
        if as_json:
            print_json(json.dumps(found, indent=2))
        else:
            print_lines(*_graph_lines(found))
        return
    bundle = find_bundle(model)
    if as_json:
        graphs = {path.name: describe_graph(path) for path in bundle.graphs}
        engines = {
            name: found if isinstance(found, str) else found.model_dump(mode="json")
            for name, found in list_engines(bundle.engines).items()
        }
        manifest = bundle.manifest.model_dump(mode="json")
        document = {
            "path": str(bundle.path),
            "sha256": bundle.sha256,
            "signature": None if bundle.signature is None else signature_kind(bundle.signature),
            "manifest": manifest,
            "graphs": graphs,
            "engines": engines,
        }
        print_json(json.dumps(document, indent=2))
        return
    print_lines(*_bundle_lines(bundle))
    for path in bundle.graphs:
        print_lines("", path.name, *_graph_lines(describe_graph(path)))


def describe_graph(path: Path) -> dict[str, Any]:
    """Return inputs, outputs and operators of an ONNX file. Its weights are not loaded."""
    require("onnx", purpose="Inspecting a graph")
    import onnx

    def unreadable(reason: str) -> BundleError:
        return BundleError(
            f"cannot read {path} as ONNX: {reason}", source=str(path), hint="Pass the path of a valid ONNX file."
        )

    with typed_errors(unreadable):
        contents = read_bounded(path, _LARGEST_FILE)
        model = onnx.load_from_string(contents)
        if not model.opset_import or not model.HasField("graph"):
            raise ValueError("it has no graph or no operator set")
        metadata = {_text(entry.key): _text(entry.value) for entry in model.metadata_props}
        explains = EXPLAIN_METADATA in metadata
        return {
            "explains": explains,
            "bias_terms": _bias_terms(metadata[EXPLAIN_METADATA]) if explains else [],
            "opset": model.opset_import[0].version,
            "ir_version": model.ir_version,
            "inputs": {_text(value.name): _kind(value) for value in model.graph.input},
            "outputs": {_text(value.name): _kind(value) for value in model.graph.output},
            "operators": dict(Counter(_text(node.op_type) for node in model.graph.node).most_common()),
            "bytes": len(contents),
        }


def _bias_terms(metadata: str) -> list[str]:
    names = parse_json(metadata)["bias_terms"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the names of its bias terms are not a list of names")
    return names


def _kind(value: Any) -> str:
    import onnx

    tensor = value.type.tensor_type
    sides = [_text(side.dim_param) or str(side.dim_value) for side in tensor.shape.dim]
    known = tensor.elem_type in onnx.TensorProto.DataType.values()
    kind = onnx.TensorProto.DataType.Name(tensor.elem_type).lower() if known else f"type {tensor.elem_type}"
    return f"{kind}[{', '.join(sides)}]"


def _text(text: str | bytes) -> str:
    """A text of the file; protobuf returns bytes if they are no UTF-8."""
    return text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")


def _output_text(manifest: Manifest) -> str:
    probability = "no probability" if manifest.probability == "none" else manifest.probability
    if manifest.map is not None:
        classes, height, width = manifest.map
        return f"a map of {classes} classes, {height}×{width}, {probability}"
    return f"{manifest.classes} {'values' if manifest.probability == 'none' else 'classes'}, {probability}"


def _channels_text(spec: InputSpec) -> str:
    return f"{spec.depth} channels, arrays only" if spec.channels == "none" else spec.channels


def _bundle_lines(bundle: Bundle) -> list[str]:
    manifest = bundle.manifest
    spec = manifest.input
    steps = [f"resize {spec.resize}" if spec.resize else "", f"crop {spec.crop[0]}×{spec.crop[1]}" if spec.crop else ""]
    size = sum(record.size for record in manifest.files.values()) / 1e6
    worst = max((row.residual for row in manifest.parity), default=0.0)
    further = ", ".join(f"{height}×{width}" for height, width in manifest.input_sizes[1:])
    rows = [
        ("bundle", str(bundle.path)),
        ("sha256", bundle.sha256),
        ("signature", _signature_text(bundle)),
        ("model", f"{manifest.model.name}  ({manifest.model.module})"),
        ("weights", f"sha256 {manifest.model.weights_sha256[:16]}…"),
        ("input", f"{spec.size[0]}×{spec.size[1]} {_channels_text(spec)}  {', '.join(filter(None, steps))}".rstrip()),
        *([("further sizes", further)] if further else []),
        ("output", _output_text(manifest)),
        ("bias terms", ", ".join(manifest.bias_terms)),
        *((f"layer {one.path}", _layer_text(one)) for one in manifest.layer_records),
        ("largest batch", str(manifest.max_batch)),
        ("precision", f"{manifest.precision}, residual at export {worst:.1e}, tolerance {manifest.tolerance:.0e}"),
        *([("in float32", ", ".join(manifest.float_layers))] if manifest.float_layers else []),
        ("made with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())),
        ("files", f"{len(manifest.files)}, {size:.1f} MB"),
        *(("engine", _engine_text(name, found)) for name, found in list_engines(bundle.engines).items()),
    ]
    return pairs(rows)


def _layer_text(layer: LayerRecord) -> str:
    shape = "×".join(map(str, layer.shape))
    return f"{layer.kind} {shape}, {'complete' if layer.complete else 'partial'}, bias {', '.join(layer.bias_terms)}"


def _signature_text(bundle: Bundle) -> str:
    if bundle.signature is None:
        return "none"
    return f"{signature_kind(bundle.signature)}, not checked: `bcos-sdk validate` checks it"


def _engine_text(name: str, found: EngineRecord | str) -> str:
    if isinstance(found, str):
        return f"{name}: {found}"
    key = found.key
    where = key.gpu or f"compute capability {', '.join(key.compute_capabilities)}"
    return f"{name}: {key.precision}, {where}, {key.flavour} {key.version}, {found.size / 1e6:.1f} MB"


def _graph_lines(found: dict[str, Any]) -> list[str]:
    operators = ", ".join(f"{name} {count}" for name, count in found["operators"].items())
    rows = [
        ("explains", f"yes; bias terms {', '.join(found['bias_terms'])}" if found["explains"] else "no"),
        ("inputs", ", ".join(f"{name} {kind}" for name, kind in found["inputs"].items())),
        ("outputs", ", ".join(f"{name} {kind}" for name, kind in found["outputs"].items())),
        ("operators", operators),
        ("opset", f"{found['opset']}, IR {found['ir_version']}"),
    ]
    return pairs(rows)
