"""Verification: exported graphs against the torch module in float64, on probe images."""

from bcos_sdk.exporters.verify._choices import choices_of
from bcos_sdk.exporters.verify._comparison import compare
from bcos_sdk.exporters.verify._expectation import Agreement, Expectation, Expected, read_expectation
from bcos_sdk.exporters.verify._layer_trial import LayerFiles, judge_layers
from bcos_sdk.exporters.verify._oracle import Truth, consult, probe_images
from bcos_sdk.exporters.verify._sessions import sessions_end
from bcos_sdk.exporters.verify._trial import LIMITS, GraphFiles, Trial, parity_table

__all__ = [
    "LIMITS",
    "Agreement",
    "Expectation",
    "Expected",
    "GraphFiles",
    "LayerFiles",
    "Trial",
    "Truth",
    "choices_of",
    "compare",
    "consult",
    "judge_layers",
    "parity_table",
    "probe_images",
    "read_expectation",
    "sessions_end",
]
