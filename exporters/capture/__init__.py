"""Capture: torch module → program. It runs torch.export and rewrites the result to the operators of the table."""

from bcos_sdk.exporters.capture._capture import capture, check_named_layers, nameable_layers
from bcos_sdk.exporters.capture._decompose import decomposed_operators
from bcos_sdk.exporters.capture._explanation_mode import explanation_mode
from bcos_sdk.exporters.capture._layers import LayerOutput, Taps
from bcos_sdk.exporters.capture._tracing import map_shape, run_module

__all__ = [
    "LayerOutput",
    "Taps",
    "capture",
    "check_named_layers",
    "decomposed_operators",
    "explanation_mode",
    "map_shape",
    "nameable_layers",
    "run_module",
]
