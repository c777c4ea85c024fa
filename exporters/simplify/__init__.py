"""Exact simplifications: each one algebraic fact, one file, one function that returns its number of rewrites."""

from bcos_sdk.exporters.simplify._flip_convolutions import flip_convolutions
from bcos_sdk.exporters.simplify._fold_bcos_scale import fold_bcos_scale
from bcos_sdk.exporters.simplify._fold_constants import fold_constants
from bcos_sdk.exporters.simplify._merge_scales import merge_scales
from bcos_sdk.exporters.simplify._multiply_reciprocals import multiply_reciprocals
from bcos_sdk.exporters.simplify._repeat_averages import repeat_averages
from bcos_sdk.exporters.simplify._share_values import share_values
from bcos_sdk.exporters.simplify._skip_unit_windows import skip_unit_windows
from bcos_sdk.exporters.simplify._split_phases import split_phases

__all__ = [
    "EXPLAIN_PASSES",
    "FORWARD_PASSES",
    "flip_convolutions",
    "fold_bcos_scale",
    "fold_constants",
    "merge_scales",
    "multiply_reciprocals",
    "repeat_averages",
    "share_values",
    "skip_unit_windows",
    "split_phases",
]

# On the forward program, before it is transposed: what is simpler forward is simpler backward too.
FORWARD_PASSES = (merge_scales, fold_bcos_scale, skip_unit_windows, multiply_reciprocals, share_values)
# On the explain programs.
EXPLAIN_PASSES = (flip_convolutions, split_phases, repeat_averages, share_values)
