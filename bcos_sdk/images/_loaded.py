"""An image that is ready for the network, and what a decoder makes of its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bcos_sdk.images._encode import encode
from bcos_sdk.images._geometry import Geometry

__all__ = ["Decoded", "LoadedImage"]


@dataclass(frozen=True)
class LoadedImage:
    """The resized and cropped image: as pixels [H, W, 3] and as the network's input [6, H, W]."""

    pixels: npt.NDArray[np.uint8]
    encoded: npt.NDArray[np.float32]
    notes: tuple[str, ...] = ()
    """How the image was interpreted where its file leaves a choice."""
    geometry: Geometry | None = None
    """The part of the original that `pixels` shows; None for an array that was passed encoded."""
    display: npt.NDArray[np.uint8] | None = None
    """The same part with more pixels, for pictures; None if it was not asked for, or if the original has no more."""


class Decoded(NamedTuple):
    """A `LoadedImage` that is not yet encoded."""

    pixels: npt.NDArray[np.uint8]
    notes: tuple[str, ...]
    geometry: Geometry
    display: npt.NDArray[np.uint8] | None

    def loaded(self) -> LoadedImage:
        return LoadedImage(self.pixels, encode(self.pixels), self.notes, self.geometry, self.display)
