"""Verification: exported graphs against the torch module in float64, on probe images."""

from bcos_sdk.exporters.verify._oracle import Truth, consult, probe_images
from bcos_sdk.exporters.verify._trial import LIMITS, GraphFiles, Trial, parity_table
from bcos_sdk.exporters.verify._worst_layer import with_worst_layer

__all__ = [
    "LIMITS",
    "GraphFiles",
    "Trial",
    "Truth",
    "consult",
    "parity_table",
    "probe_images",
    "with_worst_layer",
]
