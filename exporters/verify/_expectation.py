"""Compare the logits with those that the user's own code gave for one image, and find out why they differ.

A state dict holds no logit bias, temperature, B, epsilon or preprocessing. If one of them is wrong, the graphs agree
with the module and both are wrong. Only figures from the user's own code can show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bcos_sdk._untrusted import open_to_read, read_arrays, typed_errors
from bcos_sdk.contract import GraphPrecision, InputSpec
from bcos_sdk.errors import ExpectationError, InputError
from bcos_sdk.exporters.capture import run_module
from bcos_sdk.exporters.verify._diagnosis import explain_difference
from bcos_sdk.exporters.verify._sessions import run_graph
from bcos_sdk.images import load_image
from bcos_sdk.limits import Limits

__all__ = ["Agreement", "Expectation", "Expected", "read_expectation"]

Expected: TypeAlias = "Expectation | Path | str | Mapping[str, npt.ArrayLike]"
_Array: TypeAlias = npt.NDArray[Any]

_LARGEST_ARRAY = 1 << 30
# Two correct implementations in float32 differ by 1e-6 to 1e-5 of the spread of the logits. A GPU convolves in TF32 by
# default (11 bits), which gives up to about 1e-3. A graph in fp16 may differ from torch by 2e-2 (see the limits of
# `Trial`). A wrong bias, temperature or resize changes logits by much more than that, but a wrong epsilon may not: so
# only a difference within _CLOSE shows that all values are right.
_CLOSE = 1e-4
_TOLERANCES: dict[GraphPrecision, float] = {"fp32": 2e-3, "fp16": 2e-2}
# Adding a large logit bias in float32 loses digits of small logits: 6e-8 of the bias.
_ROUNDING = 1e-6
# Logits that differ by less than this part of the largest one are equal but for rounding.
_LEAST_SPREAD = 20 * _ROUNDING
_HOW = "Write it with np.savez('expected.npz', image=image, logits=logits): see docs/own_module.md."


@dataclass(frozen=True)
class Agreement:
    """How near the logits of a module are to the expected ones, and which steps the image has compared."""

    difference: float
    """The largest difference, as a part of the spread of the logits."""
    is_close: bool
    """Whether only rounding in float32 explains the difference. If not, it may be TF32 or a slightly wrong value."""
    is_photograph: bool
    resampled: bool
    """Whether the photograph was resized. Otherwise nothing is known about the resize and the interpolation."""


@dataclass(frozen=True)
class Expectation:
    """An image and the logits [classes] that the user's own code gave for it.

    The image is a photograph before its preprocessing, uint8 [H, W, 3], or the input of the network, float [6, H, W].
    """

    image: _Array
    logits: _Array
    source: str

    @property
    def is_photograph(self) -> bool:
        """Whether the preprocessing is compared too."""
        return self.image.dtype == np.uint8

    def check_module(self, module: nn.Module, spec: InputSpec, output: str | None = None) -> None:
        """Raise an `ExpectationError` if the module gives other logits. The hint says what to change."""

        def run(spec: InputSpec) -> _Array:
            return _run_module(module, self._encoded(spec), output)

        self._compare(run(spec), "fp32", lambda ours, fits: explain_difference(self, module, spec, ours, run, fits))

    def agreement(self, module: nn.Module, spec: InputSpec, output: str | None = None) -> Agreement:
        """How exactly the module gives the logits, after `check_module` has passed."""
        image = load_image(self.image, f"the image in {self.source}", spec, Limits())
        largest = float(np.abs(_run_module(module, image.encoded, output) - self.logits).max())
        left, top, right, bottom = (0.0, 0.0, 0.0, 0.0) if image.geometry is None else image.geometry.box
        height, width = image.pixels.shape[:2]
        return Agreement(
            difference=largest / (self._spread or 1.0),
            is_close=largest <= self._limit(_CLOSE),
            is_photograph=self.is_photograph,
            resampled=self.is_photograph and (right - left, bottom - top) != (width, height),
        )

    def check_graph(self, predict: Path, spec: InputSpec, precision: GraphPrecision) -> None:
        """Raise an `ExpectationError` if the graph gives other logits; the module has been compared before."""
        logits = run_graph(predict, self._encoded(spec)[None])["logits"][0]
        self._compare(logits, precision, lambda _ours, _fits: "The module in torch agrees: please report this.")

    def _encoded(self, spec: InputSpec) -> _Array:
        return load_image(self.image, f"the image in {self.source}", spec, Limits()).encoded

    @property
    def _spread(self) -> float:
        return float(np.ptp(self.logits)) if self.logits.size > 1 else float(np.abs(self.logits).max())

    def _limit(self, tolerance: float) -> float:
        return tolerance * self._spread + _ROUNDING * float(np.abs(self.logits).max())

    def _compare(
        self,
        ours: _Array,
        precision: GraphPrecision,
        explain: Callable[[_Array, Callable[[_Array], bool]], str],
    ) -> None:
        if ours.shape != self.logits.shape:
            raise ExpectationError(
                f"{self.source} has {self.logits.size} logits, but the model has {ours.size} classes",
                source=self.source,
                hint="No bundle was written. Pass the logits that your code gives for this model.",
            )
        if self.logits.size > 1 and self._spread < _LEAST_SPREAD * float(np.abs(self.logits).max()):
            raise ExpectationError(
                f"the logits in {self.source} are too close together to be compared: they differ by {self._spread:.1e}",
                source=self.source,
                hint="No bundle was written. Use trained weights, or an image for which the logits differ more.",
            )
        limit = self._limit(_TOLERANCES[precision])

        def fits(logits: _Array) -> bool:
            return bool(np.abs(logits - self.logits).max() <= limit)

        if fits(ours):
            return
        worst = int(np.nan_to_num(np.abs(ours - self.logits), nan=np.inf).argmax())
        raise ExpectationError(
            f"the logits differ from those in {self.source}, most for class {worst}: {ours[worst]:.6g}, "
            f"expected {self.logits[worst]:.6g} (limit of the difference: {limit:.1e})",
            source=self.source,
            hint=f"No bundle was written. {explain(ours, fits)}",
        )


def read_expectation(expected: Expected) -> Expectation:
    """Read `image` and `logits` from an .npz file or a mapping, and check their shapes."""
    if isinstance(expected, Expectation):
        return expected
    source = "expected" if isinstance(expected, Mapping) else str(expected)
    arrays = expected if isinstance(expected, Mapping) else _read_npz(Path(expected))
    if missing := {"image", "logits"} - set(arrays):
        raise InputError(f"{source} has no array {' and no array '.join(sorted(missing))}", source=source, hint=_HOW)
    image, logits = np.asarray(arrays["image"]), np.asarray(arrays["logits"])
    if image.ndim == 4 and len(image) == 1:
        image = image[0]
    is_photograph = image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3
    is_input = np.issubdtype(image.dtype, np.floating) and image.ndim == 3
    if not (is_photograph or is_input):
        raise InputError(
            f"the image in {source} is {image.dtype} {list(image.shape)}",
            source=source,
            hint="Expected: the photograph as uint8 [H, W, 3], or the input of the network as float [channels, H, W].",
        )
    logits = logits[0] if logits.ndim == 2 and len(logits) == 1 else logits
    if logits.ndim != 1 or not logits.size or not np.issubdtype(logits.dtype, np.floating):
        raise InputError(
            f"the logits in {source} are {logits.dtype} {list(logits.shape)}, expected float [classes]",
            source=source,
            hint=_HOW,
        )
    if not np.isfinite(logits).all():
        raise InputError(f"the logits in {source} are not finite", source=source, hint=_HOW)
    return Expectation(image, logits.astype(np.float64), source)


def _read_npz(path: Path) -> Mapping[str, Any]:
    def unreadable(reason: str) -> InputError:
        return InputError(f"cannot read {path} as an .npz file of arrays: {reason}", source=str(path), hint=_HOW)

    with typed_errors(unreadable), open_to_read(path) as file:
        return read_arrays(file, largest=_LARGEST_ARRAY)


def _run_module(module: nn.Module, encoded: _Array, output: str | None) -> _Array:
    """The logits of the module in float32, [classes]."""
    like = next((tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()), None)
    image = torch.from_numpy(encoded)[None]
    with torch.no_grad():
        logits = run_module(module, image if like is None else image.to(like), output)
    return np.asarray(logits[0].double().cpu().numpy())
