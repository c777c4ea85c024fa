"""The captured program: an fx graph over constants, its shapes, and the layout of its targets."""

from bcos_sdk.exporters.program._fold_constants import fold_constants
from bcos_sdk.exporters.program._program import (
    Program,
    bind,
    is_constant,
    is_floating,
    is_uniform,
    pair,
    path_of,
    reshape_sample,
    sample_shape,
    shape_of,
)
from bcos_sdk.exporters.program._shapes import ShapeInference, infer_shapes

__all__ = [
    "Program",
    "ShapeInference",
    "bind",
    "fold_constants",
    "infer_shapes",
    "is_constant",
    "is_floating",
    "is_uniform",
    "pair",
    "path_of",
    "reshape_sample",
    "sample_shape",
    "shape_of",
]
