"""Passes over programs: exact simplifications, each an algebraic identity, and the conversion to fp16.

A simplification rewrites a program in place and returns its number of rewrites.
"""

from bcos_sdk.exporters.passes._dense_blocks import share_norms
from bcos_sdk.exporters.passes._half import in_half, layer_of, products
from bcos_sdk.exporters.passes._half_analysis import HalfAnalysis
from bcos_sdk.exporters.passes._half_choice import choose_half
from bcos_sdk.exporters.passes._half_sums import half_sum, sum_length
from bcos_sdk.exporters.passes._pooling import repeat_averages, skip_unit_windows
from bcos_sdk.exporters.passes._scales import fold_bcos_scale, merge_scales, multiply_reciprocals
from bcos_sdk.exporters.passes._sharing import share_values
from bcos_sdk.exporters.passes._transposed_convolutions import flip_convolutions, split_phases
from bcos_sdk.exporters.passes._wide_windows import split_wide_windows

__all__ = [
    "EXPLAIN_PASSES",
    "FORWARD_PASSES",
    "HalfAnalysis",
    "choose_half",
    "flip_convolutions",
    "fold_bcos_scale",
    "half_sum",
    "in_half",
    "layer_of",
    "merge_scales",
    "multiply_reciprocals",
    "products",
    "repeat_averages",
    "share_norms",
    "share_values",
    "skip_unit_windows",
    "split_phases",
    "split_wide_windows",
    "sum_length",
]

FORWARD_PASSES = (
    merge_scales,
    fold_bcos_scale,
    skip_unit_windows,
    share_norms,
    multiply_reciprocals,
    split_wide_windows,
    share_values,
)
"""Run on the forward program before it is transposed, so that the transposed pass is simpler too."""
EXPLAIN_PASSES = (flip_convolutions, split_phases, repeat_averages, share_values)
"""Run on the explain programs."""
