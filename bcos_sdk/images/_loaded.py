"""An image that is ready for the network, and what a decoder makes of its file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bcos_sdk.contract import Channels
from bcos_sdk.images._encode import encode
from bcos_sdk.images._geometry import Geometry

__all__ = ["Decoded", "LoadedImage"]


@dataclass(frozen=True)
class LoadedImage:
    """The resized and cropped image: as pixels [H, W, 3] and as the network's input [channels, H, W]."""

    pixels: npt.NDArray[np.uint8]
    """If the image was passed encoded, the nearest pixels."""
    passed: npt.NDArray[np.float32] | None = None
    """The array of an image that was passed encoded."""
    notes: tuple[str, ...] = ()
    """How the image was interpreted where its file leaves a choice."""
    geometry: Geometry | None = None
    """The part of the original that `pixels` shows; None for an array that was passed encoded."""
    display: npt.NDArray[np.uint8] | None = None
    """The same part with more pixels, for pictures; None if it was not asked for, or if the original has no more."""
    channels: Channels = "rgb+complement"
    """How `pixels` become the network's input."""

    @cached_property
    def encoded(self) -> npt.NDArray[np.float32]:
        """The network's input. It is computed on first use: some devices take pixels and encode them."""
        return encode(self.pixels, self.channels) if self.passed is None else self.passed


class Decoded(NamedTuple):
    """A `LoadedImage` that is not yet encoded."""

    pixels: npt.NDArray[np.uint8]
    notes: tuple[str, ...]
    geometry: Geometry
    display: npt.NDArray[np.uint8] | None

    def loaded(self, channels: Channels) -> LoadedImage:
        return LoadedImage(self.pixels, None, self.notes, self.geometry, self.display, channels)
