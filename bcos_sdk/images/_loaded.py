"""An image that is ready for the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bcos_sdk.images._geometry import Geometry

__all__ = ["LoadedImage"]


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
