"""Capture: torch module → program, through torch.export, in the operators of the table."""

from bcos_sdk.exporters.capture._capture import capture, explanation_mode

__all__ = ["capture", "explanation_mode"]
