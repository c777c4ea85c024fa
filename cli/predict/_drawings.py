"""The pictures of a run: written to files, or made sharper for the report."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from bcos_sdk import pictures
from bcos_sdk._files import atomic_write
from bcos_sdk.bundle import Manifest
from bcos_sdk.errors import BcosError, OutputError
from bcos_sdk.images import DecodingPool, ImageSource, load_image
from bcos_sdk.limits import Limits
from bcos_sdk.results import Explained, Explanation, Failure, Prediction

__all__ = ["PICTURES", "Artist", "output_error", "possible_names"]

PICTURES = ("overlay", "rgba", "heatmap", "npz")


@dataclass(frozen=True)
class Artist:
    """Draws the results of one model."""

    manifest: Manifest
    ranked: bool = True
    """Whether the explanations are of the most likely classes of each image; else of targets that the user chose."""
    limits: Limits = field(default_factory=Limits)
    pool: DecodingPool | None = None
    """What decodes images, if the limits want isolated decoding."""

    def sharpened(self, source: ImageSource, explained: Explained, side: int) -> Explained:
        """The same result with a display of at least `side` pixels, read from the file if that has more pixels."""
        first = explained.explanations[0]
        factor = pictures.enlargement(self.manifest.input.size, side)
        if factor <= len(first.display) // len(first.image):
            return explained
        try:
            loaded = load_image(
                source, explained.source, self.manifest.input, self.limits, enlarge=factor, pool=self.pool
            )
        except BcosError:  # the file is gone
            return explained
        if loaded.display is None or not np.array_equal(loaded.pixels, first.image):  # or has changed
            return explained
        arrays = {"display": loaded.display}
        sharp = tuple(one.model_copy(update={"arrays": one.arrays | arrays}) for one in explained.explanations)
        return explained.model_copy(update={"explanations": sharp})

    def file_names(self, result: Prediction | Explained | Failure, kinds: tuple[str, ...], stem: str) -> list[str]:
        """The names of the files that `save` writes for a result."""
        if not isinstance(result, Explained):
            return []
        return [_file_name(stem, part, kind) for part in _parts(result) for kind in kinds]

    def save(self, explained: Explained, kinds: tuple[str, ...], stem: Path) -> None:
        """Write the pictures of every explanation to files that begin with `stem`."""
        try:
            if kinds:
                stem.parent.mkdir(parents=True, exist_ok=True)
            for part, explanation in zip(_parts(explained), explained.explanations, strict=True):
                for kind in kinds:
                    _save_one(explanation, kind, stem.with_name(_file_name(stem.name, part, kind)))
        except OSError as error:
            raise output_error(stem, error) from error


def possible_names(stem: str, kinds: tuple[str, ...]) -> list[str]:
    """The names of the first files of an image, for one explanation and for several."""
    return [_file_name(stem, part, kind) for part in ("", ".1") for kind in kinds]


def _parts(explained: Explained) -> list[str]:
    """What distinguishes the files of several explanations."""
    count = len(explained.explanations)
    return [""] if count == 1 else [f".{number}" for number in range(1, count + 1)]


def _file_name(stem: str, part: str, kind: str) -> str:
    return f"{stem}{part}.{kind if kind == 'npz' else f'{kind}.png'}"


def _save_one(explanation: Explanation, kind: str, path: Path) -> None:
    if kind == "npz":
        explanation.save(path)
        return
    drawn: Image.Image = getattr(explanation, kind)()
    with atomic_write(path) as aside:
        drawn.save(aside, "PNG")


def output_error(path: Path, error: OSError) -> OutputError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    hint = "All files written so far are complete. Free some space or choose another --out, then use --resume."
    return OutputError(
        f"cannot write {path}: {reason}",
        source=str(path),
        hint=hint if full else "Choose a folder for --out in which you may write.",
    )
