"""Rewrites of a model before OpenVINO compiles it: three work around bugs, two save memory, one saves time.

The bugs were found in 2026.0 and 2026.4.1: two by comparing W(x) with autograd, because OpenVINO reports no error, and
one by a segmentation fault. The workarounds change no value: copies are equal, x · 1 = x, and an axis of length one
holds the same elements. For a version without the bugs they only cost memory during compilation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["join_norms", "rewrite", "share_weights", "transpose_in_place"]


def rewrite(model: Any) -> None:
    """Apply all rewrites but `share_weights` to the model in place. Its inputs and outputs stay the same."""
    transpose_in_place(model)
    _copy_shared_weights(model)
    _multiply_instead_of_broadcasting(model)
    _separate_choices_from_products(model)
    join_norms(model)


def share_weights(model: Any, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Let constants use the memory of the tensors with their names.

    OpenVINO copies what it reads from the memory of the process, and keeps the copies as long as the model.
    """
    constant = import_module("openvino").op.Constant
    for node in _nodes(model, "Constant"):
        tensor = tensors.get(node.get_friendly_name())
        if tensor is not None and (tensor.shape, tensor.dtype) == (node.data.shape, node.data.dtype):
            same = constant(_as_writable(tensor), shared_memory=True)
            same.set_friendly_name(node.get_friendly_name())
            _replace(node, same.output(0))


def _as_writable(tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same memory as an array that may be written. OpenVINO takes no other, and does not write to constants."""
    memory: Any = (ctypes.c_char * tensor.nbytes).from_address(tensor.ctypes.data)
    memory.owner = tensor  # keeps the memory
    return np.frombuffer(memory, tensor.dtype).reshape(tensor.shape)


def transpose_in_place(model: Any) -> int:
    """conv(x, Wᵀ) → transposed conv(x, W), for windows of one pixel. Return the number of convolutions replaced.

    Both read W in one pass, but OpenVINO computes Wᵀ in advance and keeps it beside the weights that it packs from it.
    """
    transposed = import_module("openvino.opset13").convolution_backprop_data
    replaced = 0
    for node in _nodes(model, "Convolution"):
        transpose = node.input_value(1).get_node()
        if transpose.get_type_name() != "Transpose" or not _takes_every_pixel(node):
            continue
        weight, order = transpose.input_value(0), transpose.input_value(1).get_node()
        if order.data.tolist() == [1, 0, 2, 3] and list(weight.get_shape())[2:] == [1, 1]:
            other = transposed(
                node.input_value(0), weight, strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1]
            )
            _replace(node, other.output(0))
            replaced += 1
    return replaced


def _takes_every_pixel(convolution: Any) -> bool:
    """Whether it has no stride and no padding."""
    known = convolution.get_attributes()
    return list(known["strides"]) == [1, 1] and list(known["pads_begin"]) == list(known["pads_end"]) == [0, 0]


def _copy_shared_weights(model: Any) -> None:
    """Give every node its own copy of a weight W that several nodes use, if OpenVINO could confuse them.

    OpenVINO caches packed weights by their address and packed shape. An explain graph uses each weight twice, as W
    and as its transpose. If W is square, both have the same cache key, so one node would get the weights of the other.
    """
    constant = import_module("openvino").op.Constant
    used: set[int] = set()
    for node in _nodes(model, "Constant"):
        output = node.output(0)
        if len(output.get_partial_shape()) < 2:
            continue
        for consumer in sorted(output.get_target_inputs(), key=_sort_key):
            if _is_told_apart(consumer.get_node().get_type_name(), tuple(output.get_shape())):
                continue
            address = node.data.ctypes.data
            if address in used:
                consumer.replace_source_output(constant(node.data.copy()).output(0))
            used.add(address)


_LARGEST_BLOCK = 64
"""Packing rounds channels up to a multiple of this, or of a smaller power of two."""


def _is_told_apart(consumer: str, shape: tuple[int, ...]) -> bool:
    """Whether the packed weights of this kind of consumer have a cache key of their own."""
    if consumer == "Transpose" and len(shape) > 2:
        return True  # transposed kernels are computed once, to an address of their own
    if consumer not in ("Convolution", "ConvolutionBackpropData", "MatMul", "Transpose"):
        return False
    rows, columns = (-(-size // _LARGEST_BLOCK) for size in shape[:2])
    return len(shape) != 3 and rows != columns


def _multiply_instead_of_broadcasting(model: Any) -> None:
    """Broadcast(x, shape) → x · ones(shape).

    In graphs for any number of images or targets, some broadcasts return uninitialised memory.
    """
    openvino = import_module("openvino")
    multiply = import_module("openvino.opset13").multiply
    for node in _nodes(model, "Broadcast"):
        shape, dtype = node.input_value(1).get_node(), node.get_element_type().to_dtype()
        if shape.get_type_name() != "Constant" or dtype == np.bool_:
            continue  # these were correct in every test, and the self-test would detect a wrong one
        ones = openvino.op.Constant(np.ones(shape.data, dtype))
        _replace(node, multiply(node.input_value(0), ones).output(0))


def _separate_choices_from_products(model: Any) -> None:
    """where(c, a, b) of matrices → the same with an axis of length one in front.

    OpenVINO joins a sequence of matrix products and what follows into one kernel, if a product has few rows per thread.
    If that kernel contains a `where` whose condition is computed outside, compiling it ends the process with a
    segmentation fault. OpenVINO joins matrices only, and a reshape costs nothing.
    """
    operators = import_module("openvino.opset13")
    first = operators.constant(np.array([0], np.int64))
    for node in _nodes(model, "Select"):
        if node.get_output_partial_shape(0).rank != 2 or not node.get_element_type().is_real():
            continue
        condition, *choices = (node.input_value(place) for place in range(3))
        choices = [
            operators.unsqueeze(choice, first).output(0) if choice.get_partial_shape().rank == 2 else choice
            for choice in choices
        ]
        chosen = operators.select(condition, *choices)
        _replace(node, operators.squeeze(chosen, first).output(0))


def join_norms(model: Any) -> int:
    """Σ x² → ‖x‖². Return the number of sums that were replaced.

    OpenVINO computes the norm in one pass over x. Otherwise it would write x² to memory first.
    """
    operators = import_module("openvino.opset13")
    joined = 0
    for node in _nodes(model, "ReduceSum"):
        x = _squared_value(node)
        if x is not None:
            norm = operators.reduce_l2(x, node.input_value(1), keep_dims=node.get_attributes()["keep_dims"])
            _replace(node, operators.multiply(norm, norm).output(0))
            joined += 1
    return joined


def _squared_value(total: Any) -> Any:
    """Return x if the sum is over x², and x² has no other consumer; else None."""
    product = total.input_value(0).get_node()
    if product.get_type_name() != "Multiply" or len(product.output(0).get_target_inputs()) != 1:
        return None
    left, right = product.input_value(0), product.input_value(1)
    is_square = left.get_node() == right.get_node() and left.get_index() == right.get_index()
    return left if is_square else None


def _replace(node: Any, output: Any) -> None:
    """Connect every consumer of the node's first output to `output`, which takes over its names."""
    output.set_names(node.output(0).get_names())
    for consumer in node.output(0).get_target_inputs():
        consumer.replace_source_output(output)


def _nodes(model: Any, kind: str) -> list[Any]:
    return [node for node in model.get_ordered_ops() if node.get_type_name() == kind]


def _sort_key(consumer: Any) -> tuple[str, int]:
    """Consumers come as a set. Sorting makes every run keep the original weight at the same node."""
    return consumer.get_node().get_friendly_name(), consumer.get_index()
