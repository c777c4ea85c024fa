"""Masks: which pixels of the network's input show the object."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from bcos_sdk._untrusted import typed_errors
from bcos_sdk.errors import InputError
from bcos_sdk.images import Geometry

__all__ = ["OBJECT", "OUTSIDE", "UNDECIDED", "read_mask"]

OUTSIDE, OBJECT, UNDECIDED = 0, 1, 2
_MOST_PIXELS = 1 << 28
_TRIMAP = {1: OBJECT, 2: OUTSIDE, 3: UNDECIDED}


def read_mask(path: Path, geometry: Geometry, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """[height, width] of OUTSIDE, OBJECT and UNDECIDED: the mask cut and resized as the image was.

    A file with the values 1, 2 and 3 only is a trimap: object, background, border. In any other file, 0 is background
    and everything else the object.
    """
    hint = "A mask is a picture of the size of its image, with one channel."
    with typed_errors(lambda reason: InputError(f"cannot read the mask {path}: {reason}", source=str(path), hint=hint)):
        with Image.open(path) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                raise ValueError(f"it has more than {_MOST_PIXELS:,} pixels")
            values = np.asarray(picture if picture.mode in ("L", "P", "1", "I;16") else picture.convert("L"))
        if values.shape[::-1] != geometry.original:
            width, height = geometry.original
            raise ValueError(f"it is {values.shape[1]} × {values.shape[0]} pixels, its image {width} × {height}")
    is_trimap = set(np.unique(values)) <= set(_TRIMAP)
    codes = np.select([values == value for value in _TRIMAP], list(_TRIMAP.values())) if is_trimap else values != 0
    codes = codes.astype(np.uint8)
    left, top, right, bottom = geometry.box
    rows = _centres(top, bottom, size[0], values.shape[0])
    columns = _centres(left, right, size[1], values.shape[1])
    cut: npt.NDArray[np.uint8] = codes[np.ix_(rows, columns)]
    return cut


def _centres(low: float, high: float, count: int, length: int) -> npt.NDArray[np.intp]:
    """The pixels of the original in which the centres of `count` equal parts of [low, high] lie."""
    centres = low + (np.arange(count) + 0.5) * (high - low) / count
    return np.clip(np.floor(centres), 0, length - 1).astype(np.intp)
