"""The golden record, golden.npz: one image with its logits and one row of W(x), computed by torch in float64."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

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
    def read(cls, path: str | os.PathLike[str]) -> Golden:
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return cls(arrays["pixels"], int(arrays["target"]), arrays["logits"], arrays["weights"])
        except (OSError, KeyError, TypeError, ValueError, BadZipFile) as error:
            raise BundleError(
                f"the golden record {path} cannot be read: {error}",
                source=os.fspath(path),
                hint="Export the model again.",
            ) from error
