"""How far results are from the truth, relative to the scales of the truth."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from bcos_sdk.exporters.verify._oracle import Truth

__all__ = ["distance", "distances", "largest", "rounded"]


def distances(found: Mapping[str, Tensor], truth: Truth) -> dict[str, float]:
    """The errors of logits, weights, contributions and bias."""
    return {
        "logits": distance(found["logits"], truth.logits, truth.scales.logits),
        "weights": distance(found["weights"], truth.weights, truth.scales.weights),
        "contributions": distance(found["contributions"], truth.contributions, truth.scales.contributions),
        "bias": largest((found["bias"] - truth.bias).abs() / truth.scales.bias),
    }


def distance(value: Tensor, truth: Tensor, scale: Tensor) -> float:
    """The largest ‖value − truth‖ / scale over all samples. The scale has one number per sample."""
    return largest((value - truth).flatten(scale.ndim).norm(dim=-1) / scale)


def largest(values: Tensor) -> float:
    return float(values.max()) if bool(values.isfinite().all()) else float("inf")


def rounded(value: float) -> float:
    """The value with two digits, as manifests have it."""
    return float(f"{value:.1e}")
