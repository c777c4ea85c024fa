"""Load one image in any form that a caller may have: path, bytes, file, PIL image or array."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeGuard, cast
from urllib.parse import unquote_to_bytes

import numpy as np
import numpy.typing as npt
from PIL import Image

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, InputError, UnreadableImageError
from bcos_sdk.images._encode import check_encoded, decode, encode, expected_arrays
from bcos_sdk.images._geometry import Geometry, Placement
from bcos_sdk.images._read import check_pixels, open_picture, read_file, read_path
from bcos_sdk.images._transform import enlarged_crop, to_pixels, to_rgb
from bcos_sdk.limits import Limits

__all__ = ["ImageSource", "LoadedImage", "is_one_image", "load_image", "snapshot", "source_name", "source_path"]

ImageSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image | npt.NDArray[Any]"
)
_URI = "file://"
_BYTES = (bytes, bytearray, memoryview)
_PIL_LOCK = threading.Lock()  # PIL returns wrong pixels if two threads load one lazily opened picture


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


def is_one_image(images: object) -> TypeGuard[ImageSource]:
    """Return whether this is one image rather than a collection of images."""
    if isinstance(images, (str, os.PathLike, Image.Image, *_BYTES)) or hasattr(images, "read"):
        return True
    return hasattr(images, "__array__") and len(getattr(images, "shape", ())) in (0, 2, 3)


def source_name(image: object, position: int) -> str:
    """The name of an image in results and errors: its path, or its position in the list.

    A path that is no valid UTF-8 has no exact text. Its name is the absolute `file://` URI, with these bytes in percent
    encoding. `source_path` restores the path.
    """
    try:
        path = image if isinstance(image, (str, os.PathLike)) else None
        name = path or getattr(image, "name", None) or getattr(image, "filename", None)
        if isinstance(name, (str, os.PathLike)) and os.fspath(name):
            return _path_name(os.fsdecode(name))
    except Exception:  # the caller's own class may raise anything in its properties
        return f"image {position}"
    return f"image {position} ({type(image).__name__})"


def source_path(source: str) -> Path:
    """The path of an image from the `source` of its result: the inverse of `source_name` for paths."""
    if not source.startswith(_URI):
        return Path(source)
    path = os.fsdecode(unquote_to_bytes(source.removeprefix(_URI)))
    return Path(path.removeprefix("/") if os.name == "nt" else path)  # on Windows: /C:/folder


def _path_name(path: str) -> str:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return Path(path).absolute().as_uri()
    return path


def snapshot(
    image: ImageSource, source: str, load: Callable[[ImageSource, str], LoadedImage]
) -> str | bytes | LoadedImage:
    """Return the image in a form that the caller cannot change later: a path, bytes, or the loaded image.

    Paths and bytes can be loaded later by another thread. Files, PIL images and arrays are mutable, so they are loaded
    now with `load`.
    """
    if isinstance(image, (str, os.PathLike)):
        return os.fsdecode(image)
    if isinstance(image, _BYTES):
        return bytes(image)
    return load(image, source)


def load_image(image: ImageSource, source: str, spec: InputSpec, limits: Limits, *, enlarge: int = 1) -> LoadedImage:
    """Read, convert, resize, crop and encode one image. Every failure is a `BcosError` with this `source`.

    With `enlarge`, `display` shows the crop at that many times the size of the network's input.
    """
    try:
        if not isinstance(image, (Image.Image, str, os.PathLike, *_BYTES)) and hasattr(image, "__array__"):
            return _load_array(np.asarray(image), source, spec, limits, enlarge)
        return _load_picture(_open(image, source, limits), source, spec, limits, enlarge)
    except BcosError:
        raise
    except Exception as error:  # raised by the caller's file object or array type, or by a decoder
        raise UnreadableImageError(f"{source} cannot be read: {error}", source=source) from error


def _open(image: ImageSource, source: str, limits: Limits) -> Image.Image:
    if isinstance(image, Image.Image):
        check_pixels(image, source, limits)
        with _PIL_LOCK:
            image.load()
        return image
    if isinstance(image, (str, os.PathLike)):
        return open_picture(read_path(Path(image), source, limits), source, limits)
    if isinstance(image, _BYTES):
        return open_picture(bytes(image), source, limits)
    if hasattr(image, "read"):
        return open_picture(read_file(cast("IO[bytes]", image), source, limits), source, limits)
    raise InputError(
        f"{source} is not an image",
        source=source,
        hint="Pass a path, bytes, a file opened in binary mode, a PIL image or a numpy array.",
    )


def _load_array(array: npt.NDArray[Any], source: str, spec: InputSpec, limits: Limits, enlarge: int) -> LoadedImage:
    if np.issubdtype(array.dtype, np.floating):
        encoded = check_encoded(array, spec.size, source)
        return LoadedImage(decode(encoded), encoded)
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3):
        raise InputError(
            f"{source} is an array {array.dtype} {list(array.shape)}, which is not an image",
            source=source,
            hint=expected_arrays(spec.size),
        )
    if not array.size:
        raise InputError(f"{source} has no pixels", source=source, hint="Pass an image with at least one pixel.")
    picture = Image.fromarray(array)
    check_pixels(picture, source, limits)
    return _load_picture(picture, source, spec, limits, enlarge)


def _load_picture(picture: Image.Image, source: str, spec: InputSpec, limits: Limits, enlarge: int) -> LoadedImage:
    upright = to_rgb(picture, source)
    pixels = to_pixels(upright, spec, source, limits)
    return LoadedImage(
        pixels,
        encode(pixels),
        geometry=Placement.of(upright.size, spec).geometry,
        display=enlarged_crop(upright, spec, enlarge),
    )
