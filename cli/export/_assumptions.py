"""What a state dict does not contain and the user did not give: such values can be wrong without any error."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from bcos_sdk.contract import InputSpec
from bcos_sdk.registry import ModelSpec

__all__ = ["Assumption", "assumed_architecture", "assumed_input", "assumption_lines"]

Check = Literal["input", "photograph", "resized", "none"]
"""What compares a value: any input, a photograph, only a photograph that is resized, or no logits at all."""


@dataclass(frozen=True)
class Assumption:
    """A value that was assumed, the option that sets it, and which image of `--expect` compares it."""

    name: str
    value: str
    option: str
    compared_by: Check = "input"


def assumed_architecture(spec: ModelSpec, origin: str, given: Collection[str]) -> list[Assumption]:
    """Those constants of the network that are not in `given`, the keys of the architecture that the user stated.

    `origin` is the model of the registry that the values come from.
    """
    config = spec.architecture
    bias = config.resolved_logit_bias
    own = -math.log(max(config.classes - 1, 1))
    other = f" (that of {origin}; −ln(classes − 1) is {_number(own)})" if abs(bias - own) > 1e-6 else ""
    found = [
        Assumption("logit bias", f"{_number(bias)}{other}", "--logit-bias"),
        Assumption("temperature", _number(config.temperature), "--temperature"),
        Assumption("B", _number(config.b), "--set b=…"),
    ]
    keys = ["logit_bias", "temperature", "b"]
    norm = getattr(config, "norm", None)
    if norm is not None and norm.kind != "none":
        kind = f"{norm.kind}, {'centred' if norm.centred else 'uncentred'}"
        found.append(Assumption("norms", f"{kind}, epsilon {_number(norm.eps)}", "--set norm.eps=…"))
        keys.append("norm.eps")
    return [assumption for assumption, key in zip(found, keys, strict=True) if key not in given]


def assumed_input(
    spec: InputSpec, *, size_given: bool, resize_given: bool, interpolation_given: bool, probability_given: bool
) -> list[Assumption]:
    """Those steps from a photograph to a probability that the user did not choose."""
    size = f"{spec.size[0]}×{spec.size[1]}"
    steps = f"shorter side to {spec.resize}" if spec.resize else "no resize"
    steps += f", centre crop to {size}" if spec.crop else f", images of exactly {size}"
    resizing: Check = "resized" if spec.resize else "photograph"
    found = [
        (size_given, Assumption("input size", size, "--input-size", "photograph")),
        (resize_given, Assumption("preprocessing", steps, "--resize, --no-resize", resizing)),
        (
            interpolation_given or spec.resize is None,
            Assumption("interpolation", spec.interpolation, "--interpolation", resizing),
        ),
        (probability_given, Assumption("probability", "sigmoid", "--probability", "none")),
    ]
    return [assumption for is_given, assumption in found if not is_given]


def assumption_lines(assumed: Sequence[Assumption], compared: Collection[Check], *, advise: bool) -> list[str]:
    """The block of the summary. Values that the image of `--expect` compared are left out."""
    left = [one for one in assumed if one.compared_by not in compared]
    if not left:
        return []
    width = max(len(one.name) for one in left)
    lines = [f"  {one.name:<{width}}  {one.value}  [{one.option}]" for one in left]
    end = [] if not advise else ["Compare with your own code: --expect FILE.npz, see docs/own_module.md."]
    return ["Assumed, because a state dict does not contain it:", *lines, *end]


def _number(value: float) -> str:
    return f"{value:.6g}"
