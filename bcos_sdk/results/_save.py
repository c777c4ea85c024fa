"""An explanation as a file: arrays, or a picture."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from bcos_sdk._files import atomic_write
from bcos_sdk.errors import InputError, OutputError

__all__ = ["save_arrays", "save_picture"]


_FORMATS = {".png": "PNG", ".webp": "WEBP", ".jpg": "JPEG", ".jpeg": "JPEG"}


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, npt.NDArray[Any]], metadata: str) -> None:
    """An .npz with every array by its name, and the rest as JSON text under "metadata"."""
    _write(
        Path(path), lambda file: np.savez_compressed(file, allow_pickle=False, metadata=np.array(metadata), **arrays)
    )


def save_picture(path: str | os.PathLike[str], picture: Image.Image) -> None:
    """A picture as PNG, WebP or JPEG by its suffix; JPEG has no transparency, it is laid on white."""
    path = Path(path)
    image_format = _FORMATS.get(path.suffix.lower())
    if image_format is None:
        raise InputError(
            f"{path} has no suffix of a picture", source=str(path), hint="Use .png, .webp, .jpg, or .npz for arrays."
        )
    if picture.mode == "RGBA" and image_format == "JPEG":
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture).convert("RGB")
    _write(path, lambda file: picture.save(file, image_format))


def _write(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    try:
        with atomic_write(path) as aside, aside.open("xb") as file:
            write(file)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}", source=str(path)) from error
