"""Files that are complete or not there: written aside, then renamed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
from PIL import Image

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
    aside = path.with_name(f".{uuid4().hex}")
    try:
        with aside.open("xb") as file:
            write(file)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise OutputError(f"cannot write {path}: {error.strerror}", source=str(path)) from error
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
