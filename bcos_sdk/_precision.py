"""How exactly the products of a graph are computed, and how far its explanations may be from adding up.

The certificate itself is always computed in float.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["TOLERANCES", "TOLERANCE_CAPS", "GraphPrecision", "Precision"]

GraphPrecision: TypeAlias = Literal["fp32", "fp16"]
"""What is written into a graph."""
Precision: TypeAlias = Literal["fp32", "tf32", "fp16"]
"""What a device makes of it: with tf32, products of fp32 have 11 binary digits, as those of fp16 have."""

# Twice the residual that is accepted of the probes in half: other images round otherwise, and so do other devices.
TOLERANCES: dict[Precision, float] = {"fp32": 1e-5, "tf32": 1e-3, "fp16": 1e-3}
TOLERANCE_CAPS: dict[Precision, float] = {"fp32": 1e-4, "tf32": 2e-3, "fp16": 2e-3}
"""What no manifest can exceed."""
