"""The pictures of a run: written to files, or made sharper for the report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from bcos_sdk import pictures
from bcos_sdk._files import atomic_write
from bcos_sdk.bundle import Manifest
from bcos_sdk.errors import BcosError, OutputError
from bcos_sdk.images import ImageSource, load_image
from bcos_sdk.limits import Limits
from bcos_sdk.results import Explained, Explanation

__all__ = ["PICTURES", "Artist"]

PICTURES = ("overlay", "rgba", "heatmap", "npz")


@dataclass(frozen=True)
class Artist:
    """Draws the results of one model."""

    manifest: Manifest
    ranked: bool = True
    """Whether the explanations are of the most likely classes of each image; else of targets that the user chose."""

    def sharpened(self, source: ImageSource, explained: Explained, side: int) -> Explained:
        """The same result with a display of at least `side` pixels, read from the file if that has more pixels."""
        first = explained.explanations[0]
        factor = pictures.enlargement(self.manifest.input.size, side)
        if factor <= len(first.display) // len(first.image):
            return explained
        try:
            loaded = load_image(source, explained.source, self.manifest.input, Limits(), enlarge=factor)
        except BcosError:  # the file is gone
            return explained
        if loaded.display is None or not np.array_equal(loaded.pixels, first.image):  # or has changed
            return explained
        arrays = {"display": loaded.display}
        sharp = tuple(one.model_copy(update={"arrays": one.arrays | arrays}) for one in explained.explanations)
        return explained.model_copy(update={"explanations": sharp})

    def save(self, explained: Explained, kinds: tuple[str, ...], stem: Path) -> list[str]:
        """Write the pictures of every explanation to files that begin with `stem`. Return their names."""
        names: list[str] = []
        try:
            if kinds:
                stem.parent.mkdir(parents=True, exist_ok=True)
            for number, explanation in enumerate(explained.explanations, 1):
                part = f".{number}" if len(explained.explanations) > 1 else ""
                for kind in kinds:
                    path = stem.with_name(f"{stem.name}{part}.{kind if kind == 'npz' else f'{kind}.png'}")
                    _save_one(explanation, kind, path)
                    names.append(path.name)
        except OSError as error:
            raise output_error(stem, error) from error
        return names


def _save_one(explanation: Explanation, kind: str, path: Path) -> None:
    if kind == "npz":
        explanation.save(path)
        return
    drawn: Image.Image = getattr(explanation, kind)()
    with atomic_write(path) as aside:
        drawn.save(aside, "PNG")


def output_error(path: Path, error: OSError) -> OutputError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OutputError(
        f"cannot write {path}: {reason}",
        source=str(path),
        hint="All files written so far are complete. Free some space or choose another --out, then use --resume.",
    )
