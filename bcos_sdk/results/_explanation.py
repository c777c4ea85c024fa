"""One explanation: logit = Σ contributions + Σ bias terms, as numbers, pictures and files."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field, PrivateAttr, model_validator
from typing_extensions import Self

from bcos_sdk import pictures
from bcos_sdk._files import output_file
from bcos_sdk.contract import (
    CHANNEL_COUNTS,
    CONTRIBUTIONS,
    TOLERANCE_CAPS,
    Channels,
    certificate_fault,
    certificate_sum,
    weights_fault,
)
from bcos_sdk.errors import IncompleteExplanationError, InputError, MissingArrayError
from bcos_sdk.images import Geometry, encode, to_rgb
from bcos_sdk.results._arrays import Arrays, arrays_to_write, equal_arrays
from bcos_sdk.results._html import explained_html, explanation_html
from bcos_sdk.results._placement import box_on
from bcos_sdk.results._records import Completeness, Prediction, Record, Target

__all__ = ["Explained", "Explanation"]

_SUFFIXES = {".png": "PNG", ".webp": "WEBP", ".jpg": "JPEG", ".jpeg": "JPEG"}


class Explanation(Record):
    """How much each pixel of an image contributes to one logit: logit = Σ contributions + Σ bias terms.

    `a - b` explains the difference of two logits of the same image. An explanation that is not complete cannot be
    drawn, saved or subtracted.
    """

    schema_version: Literal[1] = 1
    source: str
    """The path of the image, or its position in the list."""
    model: str
    target: Target
    bias: dict[str, float]
    """The named terms of b(x): the part of the logit that does not come from pixels."""
    completeness: Completeness
    """The certificate: whether the terms add up to the logit."""
    geometry: Geometry | None = None
    """The size of the original and the part of it that the network received; None if the image was passed encoded."""
    arrays: Arrays = Field(repr=False)
    """The arrays behind `contributions`, `image`, `display` and, if requested, `weights`. They are read-only."""
    _checked: tuple[Any, Any, Any] = PrivateAttr(default=(None, None, None))
    """The arrays, bias and certificate that were compared with each other when this was made."""

    @property
    def verified(self) -> bool:
        """Whether the certificate was computed from the arrays of this explanation, or checked against them.

        False if the arrays are missing, as in a result that was read from JSON without them: the certificate is then
        only what the file states.
        """
        return CONTRIBUTIONS.name in self.arrays

    @property
    def contributions(self) -> npt.NDArray[np.float32]:
        """[H, W]: how much each pixel adds to the logit."""
        return self._array("contributions", 'Write the JSON with arrays="base64".')

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """[6, H, W], or with other channels: the row of W(x) that belongs to the target."""
        return self._array("weights", "Request them with explain(…, weights=True).")

    @property
    def image(self) -> npt.NDArray[np.uint8]:
        """[H, W, 3]: the resized and cropped image that the network received.

        If it takes arrays instead of pictures: the mean over the channels, from its least to its largest value.
        """
        return self._array("image", 'Write the JSON with arrays="base64".')

    @property
    def display(self) -> npt.NDArray[np.uint8]:
        """[k·H, k·W, 3]: what `image` shows, for people: at least 224 pixels wide and high, so k > 1 for small inputs.

        It has the detail of the original in results of a client. JSON and .npz files do not contain it: in results that
        were read back, it is `image`, enlarged.
        """
        if "display" in self.arrays:
            return self.arrays["display"]
        return np.asarray(self._enlarged(Image.fromarray(self.image)))

    def rgba(self, *, smooth: int | None = None, percentile: float = 99.5) -> Image.Image:
        """Draw W(x) as in the B-cos papers: its colours, opaque where it adds to the logit. Needs `weights`.

        `smooth` is the width of the smoothing window in pixels of the network's input; None: 15 pixels of the picture.
        """
        window = pictures.smoothing_window(self._times) if smooth is None else smooth
        arrays = self.weights, self.contributions
        channels = self._channels
        return self._enlarged(
            self._draw(pictures.rgba, *arrays, smooth=window, percentile=percentile, channels=channels)
        )

    def heatmap(self, *, smooth: int = 0, percentile: float = 99.5) -> Image.Image:
        """Draw the contributions: positive ones red, negative ones blue."""
        return self._enlarged(self._draw(pictures.heatmap, self.contributions, smooth=smooth, percentile=percentile))

    def overlay(
        self,
        *,
        smooth: int = 0,
        percentile: float = 99.5,
        on: Image.Image | None = None,
        crop: bool | None = None,
    ) -> Image.Image:
        """Draw the heat map over the grey image, or over `on`: the original photograph, at any size.

        On the original the map is drawn where it belongs. The part that the network did not receive has little
        contrast. A picture of the size of `image` or `display`, or else of their aspect and not that of the original,
        is taken for the crop. `crop` says what it is if it could be both. A picture that could be both, or that has
        another aspect, raises an `InputError`.
        """
        style: dict[str, Any] = {"smooth": smooth, "percentile": percentile}
        if on is None:
            return self._draw(pictures.overlay, self.display, self.contributions, **style)
        if not isinstance(on, Image.Image):
            raise InputError(f"on is a {type(on).__name__}, expected a PIL image", hint="Pass Image.open(path).")
        photograph = to_rgb(on, "the picture to draw on")
        box = box_on(photograph.size, self._sizes_of_crop, self.geometry, self.source, crop=crop)
        return self._draw(pictures.overlay, np.asarray(photograph), self.contributions, box=box, **style)

    def save(self, path: str | os.PathLike[str], *, picture: Literal["overlay", "rgba", "heatmap"] = "overlay") -> None:
        """Write a picture, or with the suffix `.npz` all arrays but `display`, and the rest as JSON. Writing is atomic.

        The suffix of a picture is .png, .webp, .jpg or .jpeg. JPEG has no transparency: its background is white.
        """
        if os.fspath(path).lower().endswith(".npz"):
            self.require_complete()
            metadata = np.array(self.to_json(arrays="omit"))
            contents: dict[str, Any] = {"metadata": metadata, **arrays_to_write(self.arrays)}
            with output_file(Path(path)) as partial, partial.open("xb") as file:
                np.savez_compressed(file, **contents)
            return
        draw: dict[str, Callable[[], Image.Image]] = {
            "overlay": self.overlay,
            "rgba": self.rgba,
            "heatmap": self.heatmap,
        }
        if picture not in draw:
            raise InputError(f"picture is {picture!r}, expected one of {', '.join(draw)}", hint="Choose one of these.")
        _save_picture(Path(path), draw[picture]())

    def require_complete(self) -> None:
        """Raise an `IncompleteExplanationError` unless the certificate passed and is that of these arrays."""
        self._require_own_certificate()
        figures = self.completeness
        if not figures.passed:
            total = certificate_sum(self.contributions, self._bias_terms) if self.verified else figures.sum
            raise self._incomplete(
                f"its terms add up to {total:.6g}, the logit is {figures.logit:.6g}; relative residual "
                f"{figures.relative_residual:.1e}, tolerance {figures.tolerance:.1e}"
            )

    def __sub__(self, other: Explanation) -> Explanation:
        """Explain the difference of two logits of one image. With "mean" as `other`: the mean-corrected explanation."""
        if not isinstance(other, Explanation):
            return NotImplemented
        self.require_complete()
        other.require_complete()
        return self.difference(other)

    def difference(self, other: Explanation) -> Explanation:
        """Like `self - other`, but also for incomplete explanations. The difference is then incomplete as well."""
        same_model = self.model == other.model and self.bias.keys() == other.bias.keys()
        if not same_model or not np.array_equal(self.image, other.image):
            raise InputError(
                f"the explanations of {self.source} and {other.source} cannot be subtracted",
                source=self.source,
                hint="Both must be explanations of the same image by the same model.",
            )
        contributions = self.contributions - other.contributions
        arrays: dict[str, npt.NDArray[Any]] = {"contributions": contributions, "image": self.image}
        if "weights" in self.arrays and "weights" in other.arrays:
            arrays["weights"] = self.weights - other.weights
        if "input" in self.arrays:
            arrays["input"] = self.arrays["input"]
        if "display" in self.arrays:
            arrays["display"] = self.display
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
                sum=certificate_sum(contributions, np.array([*bias.values()])) if both_passed else math.nan,
                scale=self.completeness.scale + other.completeness.scale,
                tolerance=max(self.completeness.tolerance, other.completeness.tolerance),
                precision=max(
                    self.completeness.precision, other.completeness.precision, key=lambda one: TOLERANCE_CAPS[one]
                ),
            ),
            geometry=self.geometry,
            arrays=arrays,
        )

    @classmethod
    def mean(cls, parts: Sequence[Explanation], label: str) -> Explanation:
        """Explain the mean of the logits of several explanations of one image by one model."""
        first, count = parts[0], len(parts)
        contributions = _mean([part.contributions for part in parts])
        arrays: dict[str, npt.NDArray[Any]] = {**first.arrays, "contributions": contributions}
        if "weights" in arrays:
            arrays["weights"] = _mean([part.weights for part in parts])
        bias = {name: sum(part.bias[name] for part in parts) / count for name in first.bias}
        logit = sum(part.target.logit for part in parts) / count
        passed = all(part.completeness.passed for part in parts)
        figures = [part.completeness for part in parts]
        return cls(
            source=first.source,
            model=first.model,
            target=Target(index=None, label=label, logit=logit, probability=None),
            bias=bias,
            completeness=Completeness(
                logit=logit,
                sum=certificate_sum(contributions, np.array([*bias.values()])) if passed else math.nan,
                scale=sum(one.scale for one in figures) / count,
                tolerance=max(one.tolerance for one in figures),
                precision=max((one.precision for one in figures), key=lambda one: TOLERANCE_CAPS[one]),
            ),
            geometry=first.geometry,
            arrays=arrays,
        )

    def _repr_html_(self) -> str:
        return explanation_html(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explanation):
            return NotImplemented
        same_numbers = self.model_dump(exclude={"arrays"}) == other.model_dump(exclude={"arrays"})
        return same_numbers and equal_arrays(self.arrays, other.arrays)

    __hash__ = None  # type: ignore[assignment]

    @model_validator(mode="after")
    def _certificate_is_of_this_logit(self) -> Self:
        stated, logit = self.completeness.logit, self.target.logit
        if stated != logit and not (math.isnan(stated) and math.isnan(logit)):
            raise ValueError(f"the certificate has the logit {stated}, but the target has the logit {logit}")
        return self

    @model_validator(mode="after")
    def _certificate_is_of_these_arrays(self) -> Self:
        parts = (self.arrays, self.bias, self.completeness)
        if not all(map(operator.is_, parts, self._checked)):  # not again when it becomes a part of a result
            self._require_own_certificate()  # pydantic lets its error through, as it is no ValueError
            self._checked = parts
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield from super().__repr_args__()
        yield "verified", self.verified

    def _require_own_certificate(self) -> None:
        """Raise an `IncompleteExplanationError` if there are arrays, and the certificate is not theirs."""
        if not self.verified:
            return
        figures = self.completeness
        fault = certificate_fault(
            self.contributions,
            self._bias_terms,
            of_one_class=self._of_one_class,
            logit=figures.logit,
            total=figures.sum,
            scale=figures.scale,
            tolerance=figures.tolerance,
            precision=figures.precision,
        )
        if fault is None and {"weights", "image"} <= self.arrays.keys():
            received = self.arrays["input"] if self._channels == "none" else encode(self.image, self._channels)
            fault = weights_fault(self.contributions, self.weights, received)
        if fault is not None:
            raise self._incomplete(fault)

    def _incomplete(self, reason: str) -> IncompleteExplanationError:
        return IncompleteExplanationError(
            f"the explanation of {self.target.label!r} for {self.source} is not complete: {reason}",
            source=self.source,
            hint="The bundle is damaged, the device computes wrong results, or the result was changed. Explain the "
            "image again on the CPU, or export the model again.",
            completeness=self.completeness,
        )

    @property
    def _of_one_class(self) -> bool:
        """Whether the scale of the certificate is that of the terms, and not larger because some cancel."""
        return self.target.index is not None

    @property
    def _channels(self) -> Channels:
        """How the picture became the channels of W(x), told by their number; "none" if there is the array itself."""
        known: dict[int, Any] = {count: name for name, count in CHANNEL_COUNTS.items()}
        if "input" in self.arrays or len(self.weights) not in known:
            self._array("input", "The file is damaged: explain the image again.")
            return "none"
        channels: Channels = known[len(self.weights)]
        return channels

    @property
    def _bias_terms(self) -> npt.NDArray[np.float64]:
        return np.array([*self.bias.values()], np.float64)

    @property
    def _times(self) -> int:
        """How many times the size of the network's input pictures are."""
        height, width = self.contributions.shape
        return pictures.enlargement((height, width))

    @property
    def _sizes_of_crop(self) -> list[tuple[int, int]]:
        """Width and height of the network's input, of pictures, and of the display."""
        height, width = self.contributions.shape
        sizes = [(width, height), (width * self._times, height * self._times)]
        return sizes + [array.shape[1::-1] for name, array in self.arrays.items() if name == "display"]

    def _enlarged(self, picture: Image.Image) -> Image.Image:
        return pictures.enlarge(picture, self._times)

    def _array(self, name: str, hint: str) -> npt.NDArray[Any]:
        if name not in self.arrays:
            raise MissingArrayError(f"this explanation has no {name}", source=self.source, hint=hint)
        return self.arrays[name]

    def _draw(
        self, draw: Callable[..., npt.NDArray[np.float32]], *arrays: npt.NDArray[Any], **style: Any
    ) -> Image.Image:
        self.require_complete()
        return pictures.to_picture(draw(*arrays, **style))


class Explained(Record):
    """The prediction for one image and its explanations, in the order of the targets."""

    schema_version: Literal[1] = 1
    source: str
    """The path of the image, or its position in the list."""
    prediction: Prediction
    explanations: tuple[Explanation, ...]

    def _repr_html_(self) -> str:
        return explained_html(self)


def _mean(arrays: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    total = np.zeros(arrays[0].shape, np.float64)
    for array in arrays:
        total += array
    return (total / len(arrays)).astype(np.float32)


def _save_picture(path: Path, picture: Image.Image) -> None:
    image_format = _SUFFIXES.get(path.suffix.lower())
    if image_format is None:
        raise InputError(
            f"{path} has the suffix {path.suffix!r}, which is not that of a picture",
            source=str(path),
            hint=f"Use {', '.join(_SUFFIXES)}, or .npz for arrays.",
        )
    picture = pictures.on_white(picture) if image_format == "JPEG" else picture
    with output_file(path) as partial, partial.open("xb") as file:
        picture.save(file, image_format)
