"""Numpy arrays and torch tensors as pictures, where shape, type and values leave no doubt about their meaning.

Numpy arrays have their channels last, [H, W, 3]. Torch tensors have them first, [3, H, W], or last if only that is
possible. A fourth channel is alpha if channels are last, as image libraries have it. Everything else is refused with
the conversion to use.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from PIL import Image

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import InputError
from bcos_sdk.images._depth import Notes, fraction_to_8_bits, integers_to_8_bits
from bcos_sdk.images._encode import expected_arrays

__all__ = ["array_of", "is_encoded", "picture_of"]

_COLOURS = (1, 3, 4)
"""Numbers of channels: grey, RGB, RGB with alpha."""


def array_of(image: Any, spec: InputSpec, source: str) -> npt.NDArray[Any]:
    """The values of an array or tensor, channels last. An encoded image [channels, H, W] stays as it is."""
    if isinstance(image, np.ma.MaskedArray):
        raise InputError(
            f"{source} is a masked array: a network has no input for a mask",
            source=source,
            hint="Pass array.filled(0) to make masked values black, or array.data to ignore the mask.",
        )
    if not _is_tensor(image):
        return np.asarray(image)
    tensor = image.detach().cpu()
    try:
        array: npt.NDArray[Any] = np.asarray(tensor.numpy())
    except TypeError:  # numpy has no bfloat16
        array = np.asarray(tensor.float().numpy())
    encoded = array.shape == spec.shape and np.issubdtype(array.dtype, np.floating)
    if array.ndim != 3 or encoded or array.shape[0] not in _COLOURS or spec.channels == "none":
        return array
    if array.shape[2] in _COLOURS:
        raise InputError(
            f"{source} is a tensor {list(array.shape)}: its channels may be first or last",
            source=source,
            hint="Pass tensor.permute(1, 2, 0).numpy() if they are first, tensor.numpy() if they are last.",
        )
    if array.shape[0] == 4:
        raise InputError(
            f"{source} is a tensor {list(array.shape)}: its fourth channel may be alpha, infrared or the black of CMYK",
            source=source,
            hint="Pass tensor[:3] if the first three are RGB, list(tensor) if these are four grey images.",
        )
    return np.moveaxis(array, 0, 2)


def is_encoded(array: npt.NDArray[Any], spec: InputSpec) -> bool:
    """Whether the array is meant as an encoded image: floating-point numbers with the channels of the network."""
    if not np.issubdtype(array.dtype, np.floating) or array.ndim != 3:
        return False
    if array.shape == spec.shape or spec.channels == "none":
        return True
    could_be_picture = array.shape[2] in _COLOURS or spec.depth in _COLOURS
    return spec.depth in (array.shape[0], array.shape[2]) and not could_be_picture


def picture_of(array: npt.NDArray[Any], spec: InputSpec, source: str) -> tuple[Image.Image, Notes]:
    """An 8-bit grey or RGB picture. Alpha is dropped, [0, 1] becomes 0 to 255, 16 bits are scaled by their range."""
    if spec.channels == "none":
        raise _refusal(array, source, "Convert it to float as in training. ", spec)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in _COLOURS):
        raise _refusal(array, source, _other_shape(array), spec)
    if not array.size:
        raise InputError(f"{source} has no pixels", source=source, hint="Pass an image with at least one pixel.")
    if array.ndim == 3:
        array = array[..., 0] if array.shape[2] == 1 else array[..., :3]
    notes: Notes = ()
    if array.dtype == np.uint8:
        pixels = array
    elif array.dtype.kind == "u" and array.dtype.itemsize == 2:
        pixels, notes = integers_to_8_bits(array, source)
    elif np.issubdtype(array.dtype, np.floating):
        pixels = fraction_to_8_bits(array, source)
    else:
        raise _refusal(array, source, _other_type(array), spec)
    return Image.fromarray(np.ascontiguousarray(pixels)), notes


def _is_tensor(image: Any) -> TypeGuard[Any]:
    """Whether this is a torch tensor, told by its methods, because torch is not imported here."""
    return all(callable(getattr(image, name, None)) for name in ("detach", "cpu", "numpy"))


def _other_shape(array: npt.NDArray[Any]) -> str:
    if array.ndim == 4:
        return "Pass a batch itself as `images`, not in a list; for the only image of a batch: array[0]. "
    if array.ndim == 3 and array.shape[0] in _COLOURS:
        return "If its channels are first: array.transpose(1, 2, 0). "
    if array.ndim == 3:
        return "If it is a stack of grey images: list(array). "
    return ""


def _other_type(array: npt.NDArray[Any]) -> str:
    if array.dtype == np.bool_:
        return "If True is white: array * np.uint8(255). "
    if np.issubdtype(array.dtype, np.integer):
        return "If its values are 0 to 255: array.astype(np.uint8). "
    return ""


def _refusal(array: npt.NDArray[Any], source: str, conversion: str, spec: InputSpec) -> InputError:
    return InputError(
        f"{source} is an array {array.dtype} {list(array.shape)}, which is not an image"
        + (" of this model" if spec.channels == "none" else ""),
        source=source,
        hint=conversion + expected_arrays(spec),
    )
