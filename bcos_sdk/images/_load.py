"""Load one image in any form that a caller may have: path, bytes, file, PIL image, array or tensor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeGuard, cast
from urllib.parse import unquote_to_bytes

import numpy.typing as npt
from PIL import Image

from bcos_sdk._untrusted import read_array, typed_errors
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, ImageTooLargeError, InputError, UnreadableImageError
from bcos_sdk.images._arrays import array_of, is_encoded, picture_of
from bcos_sdk.images._convert import convert, load_given
from bcos_sdk.images._decoding_pool import DecodingPool
from bcos_sdk.images._depth import Notes
from bcos_sdk.images._encode import check_encoded, decode, expected_arrays, preview
from bcos_sdk.images._geometry import Placement
from bcos_sdk.images._loaded import Decoded, LoadedImage
from bcos_sdk.images._read import check_pixels, open_picture, read_file, read_path, too_many_bytes
from bcos_sdk.images._transform import enlarged_crop, to_pixels
from bcos_sdk.limits import Limits

__all__ = ["ImageSource", "decode_image", "is_one_image", "load_image", "snapshot", "source_name", "source_path"]

ImageSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image | npt.NDArray[Any]"
)
_URI = "file://"
_BYTES = (bytes, bytearray, memoryview)
_PIL_LOCK = threading.Lock()  # PIL returns wrong pixels if two threads load one lazily opened picture


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


def load_image(
    image: ImageSource,
    source: str,
    spec: InputSpec,
    limits: Limits,
    *,
    enlarge: int = 1,
    pool: DecodingPool | None = None,
) -> LoadedImage:
    """Read, convert, resize, crop and encode one image. Every failure is a `BcosError` with this `source`.

    With `enlarge`, `display` shows the crop at that many times the size of the network's input. If the limits want
    isolated decoding, `pool` decodes paths, bytes and files; without a pool, a process is started for this image.
    """
    try:
        if isinstance(image, Image.Image):
            _refuse_picture(spec, source)
            check_pixels(image, source, limits)
            with _PIL_LOCK:
                notes = load_given(image, source)
            return _prepare(image, notes, source, spec, limits, enlarge).loaded(spec.channels)
        if not isinstance(image, (str, os.PathLike, *_BYTES)) and hasattr(image, "__array__"):
            return _load_array(image, source, spec, limits, enlarge)
        contents = _contents(image, source, limits)
        if spec.channels == "none":
            return _load_array(_array_in(contents, spec, source, limits), source, spec, limits, enlarge)
        if limits.decoding == "in_process":
            return decode_image(contents, source, spec, limits, enlarge).loaded(spec.channels)
        with DecodingPool(1) if pool is None else nullcontext(pool) as decoders:
            return decoders.decode(contents, source, spec, limits, enlarge).loaded(spec.channels)
    except BcosError:
        raise
    except MemoryError:
        raise _no_memory(source) from None
    except Exception as error:  # raised by the caller's file object or array type, or by a decoder
        raise _cannot_be_read(source, error) from error


def decode_image(contents: bytes, source: str, spec: InputSpec, limits: Limits, enlarge: int) -> Decoded:
    """Decode, convert, resize and crop the contents of an image file."""
    try:
        return _prepare(*open_picture(contents, source, limits), source, spec, limits, enlarge)
    except BcosError:
        raise
    except MemoryError:
        raise _no_memory(source) from None
    except Exception as error:  # raised while the picture is converted
        raise _cannot_be_read(source, error) from error


def _contents(image: ImageSource, source: str, limits: Limits) -> bytes:
    """The contents of a path, bytes or a file, within the limit on bytes."""
    if isinstance(image, (str, os.PathLike)):
        return read_path(Path(image), source, limits)
    if isinstance(image, _BYTES):
        contents = bytes(image)
        if len(contents) > limits.bytes:
            raise too_many_bytes(source, limits)
        return contents
    if hasattr(image, "read"):
        return read_file(cast("IO[bytes]", image), source, limits)
    raise InputError(
        f"{source} is not an image",
        source=source,
        hint="Pass a path, bytes, a file opened in binary mode, a PIL image, a numpy array or a torch tensor.",
    )


def _no_memory(source: str) -> ImageTooLargeError:
    return ImageTooLargeError(f"{source} does not fit into memory", source=source, hint="Make the image smaller.")


def _cannot_be_read(source: str, error: Exception) -> UnreadableImageError:
    return UnreadableImageError(f"{source} cannot be read: {error}", source=source)


def _load_array(image: Any, source: str, spec: InputSpec, limits: Limits, enlarge: int) -> LoadedImage:
    array = array_of(image, spec, source)
    if is_encoded(array, spec):
        encoded = check_encoded(array, spec, source)
        return LoadedImage(preview(encoded) if spec.channels == "none" else decode(encoded), encoded)
    picture, notes = picture_of(array, spec, source)
    check_pixels(picture, source, limits)
    return _prepare(picture, notes, source, spec, limits, enlarge).loaded(spec.channels)


def _array_in(contents: bytes, spec: InputSpec, source: str, limits: Limits) -> npt.NDArray[Any]:
    """The array in the contents of a .npy file."""
    if not contents.startswith(b"\x93NUMPY"):
        _refuse_picture(spec, source)

    def unreadable(reason: str) -> UnreadableImageError:
        return UnreadableImageError(f"{source} cannot be read as a .npy file: {reason}", source=source)

    with typed_errors(unreadable):
        return read_array(contents, largest=limits.bytes)


def _refuse_picture(spec: InputSpec, source: str) -> None:
    if spec.channels == "none":
        raise InputError(
            f"{source} is a picture or another file, but this model takes arrays with {spec.depth} channels",
            source=source,
            hint=expected_arrays(spec),
        )


def _prepare(picture: Image.Image, notes: Notes, source: str, spec: InputSpec, limits: Limits, enlarge: int) -> Decoded:
    upright, scaling = convert(picture, source)
    if spec.channels.startswith("grey"):
        upright = upright.convert("L").convert("RGB")
    return Decoded(
        to_pixels(upright, spec, source, limits),
        notes=(*notes, *scaling),
        geometry=Placement.of(upright.size, spec).geometry,
        display=enlarged_crop(upright, spec, enlarge),
    )
