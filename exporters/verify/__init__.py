"""Verification: exported graphs against the torch module in float64, on probe images."""

from bcos_sdk.exporters.verify._expectation import Agreement, Expectation, Expected, read_expectation
from bcos_sdk.exporters.verify._oracle import Truth, consult, probe_images
from bcos_sdk.exporters.verify._trial import LIMITS, GraphFiles, Trial, parity_table
from bcos_sdk.exporters.verify._worst_layer import with_worst_layer

__all__ = [
    "LIMITS",
    "Agreement",
    "Expectation",
    "Expected",
    "GraphFiles",
    "Trial",
    "Truth",
    "consult",
    "parity_table",
    "probe_images",
    "read_expectation",
    "with_worst_layer",
]
