"""One explanation: logit = Σ contributions + Σ bias, as numbers and as pictures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field, model_validator
from typing_extensions import Self

from bcos_sdk import pictures
from bcos_sdk.contract import TOLERANCE_CAPS
from bcos_sdk.errors import IncompleteExplanationError, InputError, MissingArrayError
from bcos_sdk.results._arrays import Arrays, equal_arrays
from bcos_sdk.results._base import Record
from bcos_sdk.results._completeness import Completeness
from bcos_sdk.results._save import save_arrays, save_picture

__all__ = ["Explanation", "Target"]

_ROUNDING = 1e-6  # of a sum that is added up again


class Target(Record):
    """What is explained: a class, the mean of all logits, or a difference; only a class has index and probability."""

    index: int | None
    label: str
    logit: float
    probability: float | None


class Explanation(Record):
    """Which pixels say so. `a - b` explains the difference of two logits of one image, exactly.

    Pictures are drawn only of an explanation that adds up.
    """

    schema_version: Literal[1] = 1
    source: str
    model: str
    target: Target
    bias: dict[str, float]
    """The named terms of b(x): what does not come from the pixels."""
    completeness: Completeness
    arrays: Arrays = Field(repr=False)
    """What `contributions`, `image` and, on request, `weights` return; read-only."""

    @property
    def contributions(self) -> npt.NDArray[np.float32]:
        """[H, W]: how much each pixel adds to the logit."""
        return self._array("contributions", 'Write the JSON with arrays="base64".')

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """[6, H, W]: the row of W(x) that belongs to the target."""
        return self._array("weights", "Ask for them: explain(…, weights=True).")

    @property
    def image(self) -> npt.NDArray[np.uint8]:
        """[H, W, 3]: the resized and cropped image that the network saw."""
        return self._array("image", 'Write the JSON with arrays="base64".')

    def rgba(self, *, smooth: int = 15, percentile: float = 99.5) -> Image.Image:
        """The B-cos picture: what W(x) looks like where it speaks for the target. Needs `weights`."""
        return self._draw(pictures.rgba, self.weights, self.contributions, smooth=smooth, percentile=percentile)

    def heatmap(self, *, smooth: int = 0, percentile: float = 99.5) -> Image.Image:
        """Contributions in colour: red speaks for the target, blue against it."""
        return self._draw(pictures.heatmap, self.contributions, smooth=smooth, percentile=percentile)

    def overlay(self, *, smooth: int = 0, percentile: float = 99.5, on: Image.Image | None = None) -> Image.Image:
        """The heat map over the image in grey, or over `on`: the same view of it, larger and sharper."""
        pixels = self.image if on is None else np.asarray(on.convert("RGB"))
        return self._draw(pictures.overlay, pixels, self.contributions, smooth=smooth, percentile=percentile)

    def save(self, path: str | os.PathLike[str], *, picture: Literal["overlay", "rgba", "heatmap"] = "overlay") -> None:
        """Write a picture, or with the suffix `.npz` all arrays and the rest as JSON; complete or not at all."""
        if os.fspath(path).lower().endswith(".npz"):
            self.require_complete()
            save_arrays(path, self.arrays, self.to_json(arrays="omit"))
            return
        pictures = {"overlay": self.overlay, "rgba": self.rgba, "heatmap": self.heatmap}
        if picture not in pictures:
            raise InputError(f"there is no picture {picture!r}", hint=f"Choose from {', '.join(pictures)}.")
        save_picture(path, pictures[picture]())

    def require_complete(self) -> None:
        """Raise an `IncompleteExplanationError` if the explanation does not add up, or is not what was certified."""
        figures = self.completeness
        total = self._sum() if "contributions" in self.arrays else figures.sum
        if not figures.passed or not abs(total - figures.sum) <= _ROUNDING * figures.scale:
            raise IncompleteExplanationError(
                f"the explanation of {self.target.label!r} for {self.source} does not add up: its terms give "
                f"{total:.6g}, the logit is {figures.logit:.6g}; relative residual "
                f"{figures.relative_residual:.1e}, tolerance {figures.tolerance:.1e}",
                source=self.source,
                hint="The bundle is damaged or the device computes wrongly: run on the CPU, or export the model again.",
                completeness=figures,
            )

    def __sub__(self, other: Explanation) -> Explanation:
        """The explanation of the difference of two logits; minus that of "mean", the mean-corrected one."""
        if not isinstance(other, Explanation):
            return NotImplemented
        self.require_complete()
        other.require_complete()
        return self.difference(other)

    def difference(self, other: Explanation) -> Explanation:
        """`self - other`, also of explanations that do not add up: then the difference does not either."""
        same_model = self.model == other.model and self.bias.keys() == other.bias.keys()
        if not same_model or not np.array_equal(self.image, other.image):
            raise InputError(
                f"the explanations of {self.source} and {other.source} cannot be subtracted",
                source=self.source,
                hint="Both must be of one image and one model.",
            )
        arrays = {"contributions": self.contributions - other.contributions, "image": self.image}
        if "weights" in self.arrays and "weights" in other.arrays:
            arrays["weights"] = self.weights - other.weights
        bias = {name: value - other.bias[name] for name, value in self.bias.items()}
        logit = self.target.logit - other.target.logit
        label = f"{self.target.label} vs {other.target.label}"
        both_passed = self.completeness.passed and other.completeness.passed
        return Explanation(
            source=self.source,
            model=self.model,
            target=Target(index=None, label=label, logit=logit, probability=None),
            bias=bias,
            completeness=Completeness(
                logit=logit,
                sum=_sum(arrays["contributions"], bias) if both_passed else math.nan,
                scale=self.completeness.scale + other.completeness.scale,
                tolerance=max(self.completeness.tolerance, other.completeness.tolerance),
                precision=max(
                    self.completeness.precision, other.completeness.precision, key=lambda one: TOLERANCE_CAPS[one]
                ),
            ),
            arrays=arrays,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explanation):
            return NotImplemented
        same_numbers = self.model_dump(exclude={"arrays"}) == other.model_dump(exclude={"arrays"})
        return same_numbers and equal_arrays(self.arrays, other.arrays)

    __hash__ = None  # type: ignore[assignment]

    @model_validator(mode="after")
    def _one_logit(self) -> Self:
        if self.completeness.logit != self.target.logit and not math.isnan(self.target.logit):
            raise ValueError("the certificate is of another logit")
        return self

    def _sum(self) -> float:
        return _sum(self.contributions, self.bias)

    def _array(self, name: str, hint: str) -> npt.NDArray[Any]:
        if name not in self.arrays:
            raise MissingArrayError(f"this explanation has no {name}", source=self.source, hint=hint)
        return self.arrays[name]

    def _draw(
        self, draw: Callable[..., npt.NDArray[np.float32]], *arrays: npt.NDArray[Any], **style: float
    ) -> Image.Image:
        self.require_complete()
        return Image.fromarray(np.rint(draw(*arrays, **style) * 255).astype(np.uint8))


def _sum(contributions: npt.NDArray[Any], bias: dict[str, float]) -> float:
    return float(contributions.sum(dtype=np.float64)) + sum(bias.values())
