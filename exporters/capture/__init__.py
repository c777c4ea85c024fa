"""Capture: torch module → program. It runs torch.export and rewrites the result to the operators of the table."""

from bcos_sdk.exporters.capture._capture import capture
from bcos_sdk.exporters.capture._decompose import decomposed_operators
from bcos_sdk.exporters.capture._explanation_mode import explanation_mode
from bcos_sdk.exporters.capture._tracing import run_module

__all__ = ["capture", "decomposed_operators", "explanation_mode", "run_module"]
