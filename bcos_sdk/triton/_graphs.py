"""The graphs of a bundle, changed for a server that merges the requests of callers who do not know each other.

What one caller sends must not change or fail the answers of others in the same batch:

- A rank beyond those of the graph would be an index out of range, which fails the whole batch. It becomes a class
  that does not exist, as every number beyond the classes is one. Its contributions are 0.
- Memory grows with the number of targets. More than the limit fail the batch, in which all requests have as many.
"""

from __future__ import annotations

import numpy as np

from bcos_sdk.backends import with_only_pixels
from bcos_sdk.bundle import Bundle, EditableGraph, constant, node
from bcos_sdk.contract import TARGETS, mean_target
from bcos_sdk.triton._tensors import output_tensors, wire_encoding

__all__ = ["MODEL_FILE", "served_graph"]

MODEL_FILE = "model.onnx"
_PREFIX = "served/"


def served_graph(bundle: Bundle, *, explains: bool, pixels: bool, weights: bool, max_targets: int | None) -> bytes:
    """The ONNX file of a model. It reads the weights file of the bundle, which must lie beside it.

    `max_targets` is None where the server limits their number itself.
    """
    manifest = bundle.manifest
    contents = bundle.graph_contents(bundle.explain_graph if explains else bundle.predict_graph)
    if pixels:
        contents = with_only_pixels(contents, wire_encoding(manifest.input.channels))
    if not explains:
        return contents
    graph = EditableGraph(contents)
    _check_targets(graph, manifest.ranks, mean_target(manifest.classes) + 1, max_targets)
    graph.keep_outputs(one.name for one in output_tensors(manifest, explains=True, weights=weights))
    return graph.contents()


def _check_targets(graph: EditableGraph, ranks: int, no_class: int, most: int | None) -> None:
    """Let the graph read checked targets: `no_class` for ranks beyond the last, and at most so many per image."""
    lowest, unknown, checked = (f"{_PREFIX}{name}" for name in ("lowest", "no_class", TARGETS.name))
    graph.rename_reads(TARGETS.name, checked)
    bounded = TARGETS.name
    nodes = []
    if most is not None:
        start, end, first, second = (f"{_PREFIX}{name}" for name in ("start", "end", "first", "second"))
        axis = f"{_PREFIX}axis"
        for name, value in ((start, [0]), (end, [most]), (axis, [1]), (first, [0])):
            graph.tensors[name] = constant(name, np.array(value, np.int64))
        graph.tensors[second] = constant(second, np.array(1, np.int64))
        head, part, whole, both = (f"{_PREFIX}{name}" for name in ("head", "part", "whole", f"at_most_{most}_targets"))
        bounded = f"{_PREFIX}bounded"
        # The first `most` columns and all columns have equal shapes, or they cannot be joined and the run fails.
        nodes += [
            node("Slice", [TARGETS.name, start, end, axis], head),
            node("Unsqueeze", [head, first], part),
            node("Unsqueeze", [TARGETS.name, first], whole),
            node("Concat", [part, whole], both, axis=0),
            node("Gather", [both, second], bounded, axis=0),
        ]
    graph.tensors[lowest] = constant(lowest, np.array(-ranks, np.int64))
    graph.tensors[unknown] = constant(unknown, np.array(no_class, np.int64))
    nodes += [
        node("Less", [bounded, lowest], f"{_PREFIX}is_too_low"),
        node("Where", [f"{_PREFIX}is_too_low", unknown, bounded], checked),
    ]
    graph.nodes = [*nodes, *graph.nodes]
