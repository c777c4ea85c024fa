"""Capture: torch module → program. It runs torch.export and rewrites the result to the operators of the table."""

from bcos_sdk.exporters.capture._capture import capture, explanation_mode
from bcos_sdk.exporters.capture._tracing import run_module

__all__ = ["capture", "explanation_mode", "run_module"]
