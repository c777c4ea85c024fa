"""One ONNX spelling per operator of a program.

Only what ONNX Runtime and TensorRT both take: no run-time axes, explicit pads, comparison masks in place of
indices. Cotangents are folded to [batch·targets, …] around convolutions, which know but one leading axis.
"""

from bcos_sdk.exporters.onnx_ops import _elementwise, _linear_maps, _piecewise, _reductions, _shapes, _targets
from bcos_sdk.exporters.onnx_ops._table import RULES

__all__ = ["RULES"]

_TABLES = (_elementwise, _linear_maps, _piecewise, _reductions, _shapes, _targets)  # importing them fills RULES
