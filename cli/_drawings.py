"""Draw the pictures of an explained image, at least 224 pixels wide and high."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image

from bcos_sdk import pictures
from bcos_sdk._files import atomic_write
from bcos_sdk.bundle import Manifest
from bcos_sdk.errors import BcosError, OutputError
from bcos_sdk.images import ImageSource, enlarged_input, load_image
from bcos_sdk.limits import Limits
from bcos_sdk.results import Explained, Explanation

__all__ = ["PICTURES", "Artist"]

PICTURES = ("overlay", "rgba", "heatmap", "npz")


@dataclass(frozen=True)
class Artist:
    """Draws at the size of the network's input, or at a multiple of it if a side is shorter than 224 pixels."""

    manifest: Manifest

    @property
    def times(self) -> int:
        return pictures.enlargement(self.manifest.input.size)

    def image(self, source: ImageSource, explanation: Explanation) -> Image.Image:
        """Return the part of the image that is the network's input, at the resolution of the file if that is higher."""
        if self.times > 1:
            larger = enlarged_input(self.manifest.input, self.times)
            try:
                return Image.fromarray(load_image(source, explanation.source, larger, Limits()).pixels)
            except BcosError:  # the file has changed, or the model does not resize
                pass
        return pictures.enlarge(Image.fromarray(explanation.image), self.times)

    def overlay(self, explanation: Explanation, image: Image.Image) -> Image.Image:
        """Draw the heat map over the picture that `image` returned."""
        return explanation.overlay(on=image)

    def rgba(self, explanation: Explanation) -> Image.Image:
        return pictures.enlarge(explanation.rgba(smooth=pictures.smoothing_window(self.times)), self.times)

    def heatmap(self, explanation: Explanation) -> Image.Image:
        return pictures.enlarge(explanation.heatmap(), self.times)

    def save(self, source: ImageSource, explained: Explained, kinds: tuple[str, ...], stem: Path) -> list[str]:
        """Write the pictures of every explanation to files that begin with `stem`. Return their names."""
        names: list[str] = []
        image = cache(
            lambda: self.image(source, explained.explanations[0])
        )  # the same for all explanations; not every kind needs it
        try:
            if kinds:
                stem.parent.mkdir(parents=True, exist_ok=True)
            for number, explanation in enumerate(explained.explanations, 1):
                part = f".{number}" if len(explained.explanations) > 1 else ""
                for kind in kinds:
                    path = stem.with_name(f"{stem.name}{part}.{kind if kind == 'npz' else f'{kind}.png'}")
                    self._save_one(explanation, image, kind, path)
                    names.append(path.name)
        except OSError as error:
            raise output_error(stem, error) from error
        return names

    def _save_one(self, explanation: Explanation, image: Callable[[], Image.Image], kind: str, path: Path) -> None:
        if kind == "npz":
            explanation.save(path)
            return
        drawn = self.overlay(explanation, image()) if kind == "overlay" else getattr(self, kind)(explanation)
        with atomic_write(path) as aside:
            drawn.save(aside, "PNG")


def output_error(path: Path, error: OSError) -> OutputError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OutputError(
        f"cannot write {path}: {reason}",
        source=str(path),
        hint="All files written so far are complete. Free some space or choose another --out, then use --resume.",
    )
