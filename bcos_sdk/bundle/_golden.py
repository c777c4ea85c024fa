"""The golden record, golden.npz: one image with its logits and one row of W(x), computed by torch in float64."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk._untrusted import read_arrays, typed_errors
from bcos_sdk.errors import BundleError

__all__ = ["Golden", "GoldenLayer"]


@dataclass(frozen=True)
class Golden:
    """An image, a class, all logits, and the row of W(x) that belongs to the class."""

    pixels: npt.NDArray[np.uint8]  # [H, W, 3]
    target: int
    logits: npt.NDArray[np.float32]  # [classes]
    weights: npt.NDArray[np.float32]  # [channels of the image, H, W]
    jump: float | None = None
    """How far other rounding may move `weights`, relative to them. None if the network has no choices such as ReLUs."""

    def write(self, path: Path) -> None:
        jump = {} if self.jump is None else {"jump": np.float64(self.jump)}
        np.savez(
            path, pixels=self.pixels, target=np.int64(self.target), logits=self.logits, weights=self.weights, **jump
        )

    @classmethod
    def read(cls, contents: memoryview, sizes: Mapping[str, int]) -> Golden:
        """Read the record from the contents of its file. `sizes` are those of the bundle's named axes."""
        depth, height, width = sizes["image channels"], sizes["height"], sizes["width"]
        with typed_errors(_unusable):
            arrays = read_arrays(io.BytesIO(contents), largest=(max(3, depth) * height * width + sizes["classes"]) * 4)
            return cls(
                _array(arrays["pixels"], np.uint8, (height, width, 3)),
                _class(arrays["target"], sizes["classes"]),
                _finite(_array(arrays["logits"], np.float32, (sizes["classes"],))),
                _finite(_array(arrays["weights"], np.float32, (depth, height, width))),
                _size(arrays["jump"]) if "jump" in arrays else None,
            )


@dataclass(frozen=True)
class GoldenLayer:
    """Of one layer, for the golden image: a direction at a position, its row of W, and the features of the class."""

    direction: npt.NDArray[np.float32]  # [channels]
    position: int
    weights: npt.NDArray[np.float32]  # [channels of the image, H, W]
    features: npt.NDArray[np.float32]  # the shape of the layer

    def query(self, images: int, queries: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Positions [images, queries] and directions [images, queries, channels] that repeat this query."""
        return (
            np.full((images, queries), self.position, np.int64),
            np.tile(self.direction, (images, queries, 1)),
        )

    @staticmethod
    def write(path: Path, layers: Sequence[GoldenLayer]) -> None:
        np.savez(
            path,
            **{
                f"{name}_{index}": np.int64(layer.position) if name == "position" else getattr(layer, name)
                for index, layer in enumerate(layers)
                for name in ("direction", "position", "weights", "features")
            },
        )

    @classmethod
    def read(
        cls, contents: memoryview, sizes: Mapping[str, int], shapes: Sequence[tuple[tuple[int, ...], int]]
    ) -> tuple[GoldenLayer, ...]:
        """Read the record. `shapes` has the output shape and the number of channels of each layer."""
        image = (sizes["image channels"], sizes["height"], sizes["width"])
        largest = 4 * max(math.prod(image), *(math.prod(shape) for shape, _ in shapes))
        with typed_errors(_unusable):
            arrays = read_arrays(io.BytesIO(contents), largest=largest)
            return tuple(
                cls(
                    _finite(_array(arrays[f"direction_{i}"], np.float32, (channels,))),
                    _index(arrays[f"position_{i}"], math.prod(shape) // channels),
                    _finite(_array(arrays[f"weights_{i}"], np.float32, image)),
                    _finite(_array(arrays[f"features_{i}"], np.float32, shape)),
                )
                for i, (shape, channels) in enumerate(shapes)
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


def _size(array: npt.NDArray[Any]) -> float:
    size = float(_array(array, np.float64, ()))
    if not 0 <= size < float("inf"):
        raise ValueError(f"its jump is {size}, expected a number of at least 0")
    return size


def _class(array: npt.NDArray[Any], classes: int) -> int:
    return _index(array, classes)


def _index(array: npt.NDArray[Any], count: int) -> int:
    found = int(_array(array, np.int64, ()))
    if not 0 <= found < count:
        raise ValueError(f"its class or position is {found}, expected 0 to {count - 1}")
    return found
