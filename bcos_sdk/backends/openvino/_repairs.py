"""Two things that OpenVINO computes wrongly, without a word, spelled so that it computes them rightly.

Both were found in 2026.0 and 2026.4.1 by comparing W(x) with autograd. They change no value: copies are equal, and
x · 1 = x. An OpenVINO that has neither mistake loses nothing by them but the memory of the copies while it compiles.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["repair"]


def repair(model: Any) -> None:
    """Rewrite the model in place; its inputs and outputs stay as they are."""
    _copy_shared_weights(model)
    _multiply_instead_of_broadcasting(model)


def _copy_shared_weights(model: Any) -> None:
    """W → a copy of W for every further node that takes it.

    Weights that were packed for one node are found again by their address and the shape they have when packed. An
    explain graph takes a weight twice, forwards and transposed: if it is square both are the same to that cache, and
    one of the two gets the weights of the other.
    """
    constant = import_module("openvino").op.Constant
    taken: set[int] = set()
    for node in _nodes(model, "Constant"):
        output = node.output(0)
        if len(output.get_partial_shape()) < 2:
            continue
        for consumer in sorted(output.get_target_inputs(), key=_place):
            address = node.data.ctypes.data
            if address in taken:
                consumer.replace_source_output(constant(node.data.copy()).output(0))
            taken.add(address)


def _multiply_instead_of_broadcasting(model: Any) -> None:
    """Broadcast(x, shape) → x · 1, where the ones have that shape.

    In graphs for any number of images or targets, what comes out of some broadcasts is memory that nobody has written.
    """
    openvino = import_module("openvino")
    multiply = import_module("openvino.opset13").multiply
    for node in _nodes(model, "Broadcast"):
        shape, dtype = node.input_value(1).get_node(), node.get_element_type().to_dtype()
        if shape.get_type_name() != "Constant" or dtype == np.bool_:
            continue  # no case was found where it is wrong, and the self-test would see one
        ones = openvino.op.Constant(np.ones(shape.data, dtype))
        product = multiply(node.input_value(0), ones).output(0)
        product.set_names(node.output(0).get_names())
        for consumer in node.output(0).get_target_inputs():
            consumer.replace_source_output(product)


def _nodes(model: Any, kind: str) -> list[Any]:
    return [node for node in model.get_ordered_ops() if node.get_type_name() == kind]


def _place(consumer: Any) -> tuple[str, int]:
    """They come as a set; which one keeps the original is to be the same in every run."""
    return consumer.get_node().get_friendly_name(), consumer.get_index()
