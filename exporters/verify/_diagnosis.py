"""Why the logits differ from those of the user's code: bias and temperature, preprocessing, or something else.

A logit layer computes logits = z / T + b. If expected = a·ours + c holds for all classes, the network z is the same,
and T' = T / a and b' = a·b + c give the expected logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import nn

from bcos_sdk.contract import InputSpec

__all__ = ["explain_difference"]

_Array: TypeAlias = npt.NDArray[Any]
_Fits: TypeAlias = Callable[[_Array], bool]


class _Expectation(Protocol):
    @property
    def logits(self) -> _Array: ...
    @property
    def is_photograph(self) -> bool: ...


def explain_difference(
    expected: _Expectation,
    module: nn.Module,
    spec: InputSpec,
    ours: _Array,
    run: Callable[[InputSpec], _Array],
    fits: _Fits,
) -> str:
    """One or two sentences: what to change, with values if they are known, else what could differ."""
    if any(fits(probabilities) for probabilities in _probabilities(ours)):
        return "The file has probabilities. Save the logits, before the sigmoid or the softmax."
    if line := _fit_line(ours, expected.logits, fits):
        return _logit_layer_advice(module, *line, expected.logits)
    if expected.is_photograph:
        for options, changed in _other_preprocessings(spec):
            if fits(run(changed)):
                return f"With {options} the logits agree: your preprocessing is another one."
        return (
            "No temperature and bias make them equal. Compare the preprocessing (resize, crop, interpolation): if the "
            "file has the input of the network instead, float [6, H, W], only the network is compared. Then compare B "
            "(--set b=…), the norms (--set norm.eps=…), and whether the weights are the averaged copy (--no-ema)."
        )
    return (
        "No temperature and bias make them equal, and the input is the same. Compare B (--set b=…), the norms (--set "
        "norm.eps=…), eval mode, and whether the weights are the averaged copy (--no-ema)."
    )


def _probabilities(logits: _Array) -> tuple[_Array, _Array]:
    """Sigmoid and softmax of the logits."""
    with np.errstate(over="ignore"):
        exponentials = np.exp(logits - logits.max())
        return 1 / (1 + np.exp(-logits)), exponentials / exponentials.sum()


def _fit_line(ours: _Array, expected: _Array, fits: _Fits) -> tuple[float, float] | None:
    """(a, c) with expected = a·ours + c and a > 0, within the tolerance; a = 1 if a constant is enough."""
    shift = float((expected - ours).mean())
    if fits(ours + shift):
        return 1.0, shift
    if ours.size < 2 or not np.ptp(ours) > 0:
        return None
    centred = ours - ours.mean()
    slope = float((centred * (expected - expected.mean())).sum() / (centred**2).sum())
    offset = float(expected.mean() - slope * ours.mean())
    return (slope, offset) if slope > 0 and fits(slope * ours + offset) else None


def _logit_layer_advice(module: nn.Module, slope: float, offset: float, expected: _Array) -> str:
    layer = next((part for part in module.modules() if type(part).__name__ == "LogitLayer"), None)
    multiple = "ours" if slope == 1.0 else f"{slope:.6g} · ours"
    relation = f"Your logits are {multiple} {'+' if offset >= 0 else '−'} {abs(offset):.6g}"
    doubt = " Two classes always fit a line, so check that these values are yours." if expected.size == 2 else ""
    if layer is None:
        return f"{relation}: the temperature or the bias of the logits differs.{doubt}"
    in_package = hasattr(layer, "temperature")
    names = ("temperature", "bias") if in_package else ("logit_temperature", "logit_bias")
    temperature, bias = (getattr(layer, name) for name in names)
    temperature, bias = float(temperature or 1.0), float(bias or 0.0)
    new = _rounded(temperature / slope, 5e-4), _rounded(slope * bias + offset, 1e-5, _usual_biases(expected.size))
    advice = []
    if slope != 1.0:
        advice.append(f"--temperature {new[0]}" if in_package else f"logit_temperature={new[0]}")
    if slope == 1.0 or abs(float(new[1]) - bias) > 1e-6 * max(1.0, abs(bias)):
        advice.append(f"--logit-bias {new[1]}" if in_package else f"logit_bias={new[1]}")
    how = f"Pass {' '.join(advice)}" if in_package else f"Set {', '.join(advice)} in the logit layer of your factory"
    return f"{relation}. {how}: then they agree.{doubt}"


def _usual_biases(classes: int) -> tuple[float, ...]:
    """0, and −ln(n − 1) for these classes and for ImageNet."""
    return (0.0, -math.log(max(classes - 1, 1)), -math.log(999))


def _rounded(value: float, tolerance: float, usual: tuple[float, ...] = ()) -> str:
    """A usual value that is near, else the value with as few digits as describe it to the tolerance."""
    for candidate in usual:
        if abs(value - candidate) <= tolerance * max(1.0, abs(candidate)):
            return f"{candidate:.10g}"
    candidates = (float(f"{value:.{digits}g}") for digits in range(1, 12))
    return f"{next(short for short in candidates if abs(short - value) <= tolerance * abs(value)):.10g}"


def _other_preprocessings(spec: InputSpec) -> Iterator[tuple[str, InputSpec]]:
    """Other usual preprocessings for the same size of the input, with the options that choose them."""
    interpolations = ("bilinear", "bicubic")
    for resize in dict.fromkeys((spec.resize, max(spec.size), InputSpec.for_photographs(spec.size).resize)):
        for interpolation in interpolations:
            if resize is None or (resize, interpolation) == (spec.resize, spec.interpolation):
                continue
            options = [f"--resize {resize}"] if resize != spec.resize else []
            options += [f"--interpolation {interpolation}"] if interpolation != spec.interpolation else []
            changed = InputSpec.for_photographs(spec.size, resize).model_copy(update={"interpolation": interpolation})
            yield " ".join(options), changed
