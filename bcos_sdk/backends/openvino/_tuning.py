"""Σ x² = ‖x‖²: OpenVINO reads x once for the norm, and squares few numbers; else it would write all of x² first."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["join_norms"]


def join_norms(model: Any) -> int:
    """Rewrite every sum of squares of the model; returns how many there were."""
    operators = import_module("openvino.opset13")
    joined = 0
    for node in model.get_ordered_ops():
        source = _squared(node) if node.get_type_name() == "ReduceSum" else None
        if source is None:
            continue
        norm = operators.reduce_l2(source, node.input_value(1), keep_dims=node.get_attributes()["keep_dims"])
        square = operators.multiply(norm, norm).output(0)
        square.set_names(node.output(0).get_names())
        for consumer in node.output(0).get_target_inputs():
            consumer.replace_source_output(square)
        joined += 1
    return joined


def _squared(total: Any) -> Any:
    """x, where the sum is of x² and nobody else reads that."""
    product = total.input_value(0).get_node()
    if product.get_type_name() != "Multiply" or len(product.output(0).get_target_inputs()) != 1:
        return None
    left, right = product.input_value(0), product.input_value(1)
    is_square = left.get_node() == right.get_node() and left.get_index() == right.get_index()
    return left if is_square else None
