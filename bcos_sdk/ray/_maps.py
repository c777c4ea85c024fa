"""A contribution map as bytes: contribution = scale × stored number, in float16, in 8 bits, or exactly in float32."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from bcos_sdk.errors import InputError, shown

__all__ = ["Maps", "check_maps", "map_from_fields", "map_to_fields"]

Maps = Literal["none", "float16", "int8", "float32"]
"""How contribution maps are stored."""

_TYPES: dict[str, str] = {"float16": "<f2", "int8": "<i1", "float32": "<f4"}
_MOST_8_BITS = 127


def check_maps(maps: str) -> None:
    """Raise an `InputError` unless this is a way to store maps."""
    if maps not in get_args(Maps):
        allowed = ", ".join(get_args(Maps))
        raise InputError(f"maps is {shown(maps)}, expected one of {allowed}", source="maps", hint=f"Use {allowed}.")


def map_to_fields(contributions: npt.NDArray[np.float32], maps: Maps) -> dict[str, Any] | None:
    """The fields of the column `contributions`; None if no maps are stored.

    The scale of float16 is a power of two, so that only the rounding to 11 significant bits is lost: at most 2⁻¹² of
    a number, and at most 2⁻²⁵ of the largest one. 8 bits lose at most half a step, which is the largest number ÷ 254.
    """
    if maps == "none":
        return None
    height, width = contributions.shape
    largest = float(np.abs(contributions).max())
    scale = 1.0
    stored: npt.NDArray[Any] = contributions
    if maps == "float16" and largest:
        scale = 2.0 ** math.frexp(largest)[1]
        stored = contributions.astype(np.float64) / scale
    if maps == "int8":
        scale = largest / _MOST_8_BITS or 1.0
        stored = np.rint(contributions.astype(np.float64) / scale)
    data = stored.astype(_TYPES[maps]).tobytes()
    return {"dtype": maps, "height": height, "width": width, "scale": scale, "data": data}


def map_from_fields(fields: dict[str, Any] | None) -> npt.NDArray[np.float32] | None:
    """The map that the fields hold, [H, W]. An `InputError` if they are damaged."""
    if fields is None:
        return None
    dtype, height, width, data = fields["dtype"], fields["height"], fields["width"], fields["data"]
    sizes = isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0
    if dtype not in _TYPES or not sizes or len(data) != height * width * np.dtype(_TYPES[dtype]).itemsize:
        raise InputError(
            f"{len(data or b'')} bytes do not make a map of {shown(height)} × {shown(width)} in {shown(dtype)}",
            hint="The file is damaged, or bcos-sdk did not write it.",
        )
    stored = np.frombuffer(data, _TYPES[dtype]).reshape(height, width)
    restored: npt.NDArray[np.float32] = (
        stored.astype(np.float32) if dtype == "float32" else (stored.astype(np.float64) * fields["scale"])
    ).astype(np.float32)
    restored.flags.writeable = False
    return restored
