"""The golden record, golden.npz: one image with its logits and one row of W(x), computed by torch in float64."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._untrusted import read_arrays, typed_errors
from bcos_sdk.contract import CHANNELS
from bcos_sdk.errors import BundleError

__all__ = ["Golden"]


@dataclass(frozen=True)
class Golden:
    """An image, a class, all logits, and the row of W(x) that belongs to the class."""

    pixels: npt.NDArray[np.uint8]  # [H, W, 3]
    target: int
    logits: npt.NDArray[np.float32]  # [classes]
    weights: npt.NDArray[np.float32]  # [CHANNELS, H, W]

    def write(self, path: Path) -> None:
        np.savez(path, pixels=self.pixels, target=np.int64(self.target), logits=self.logits, weights=self.weights)

    @classmethod
    def read(cls, contents: memoryview, sizes: Mapping[str, int]) -> Golden:
        """Read the record from the contents of its file. `sizes` are those of the bundle's named axes."""
        height, width = sizes["height"], sizes["width"]
        with typed_errors(_unusable):
            arrays = read_arrays(io.BytesIO(contents), largest=(CHANNELS * height * width + sizes["classes"]) * 4)
            return cls(
                _array(arrays["pixels"], np.uint8, (height, width, 3)),
                _class(arrays["target"], sizes["classes"]),
                _finite(_array(arrays["logits"], np.float32, (sizes["classes"],))),
                _finite(_array(arrays["weights"], np.float32, (CHANNELS, height, width))),
            )


def _unusable(reason: str) -> BundleError:
    return BundleError(f"the golden record of the bundle is not usable: {reason}", hint="Export the model again.")


def _array(array: npt.NDArray[Any], kind: type[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if array.dtype != kind or array.shape != shape:
        raise ValueError(f"it has a {array.dtype} array of shape {list(array.shape)}, expected {list(shape)}")
    return array


def _finite(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if not np.isfinite(array).all():
        raise ValueError("it has values that are not finite")
    return array


def _class(array: npt.NDArray[Any], classes: int) -> int:
    target = int(_array(array, np.int64, ()))
    if not 0 <= target < classes:
        raise ValueError(f"its class is {target}, expected 0 to {classes - 1}")
    return target
