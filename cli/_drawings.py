"""Draw the pictures of an explained image, at least 224 pixels wide and high."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image

from bcos_sdk._files import atomic_write
from bcos_sdk.bundle import Manifest
from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, OutputError
from bcos_sdk.images import ImageSource, load_image
from bcos_sdk.limits import Limits
from bcos_sdk.results import Explained, Explanation

__all__ = ["PICTURES", "Artist"]

PICTURES = ("overlay", "rgba", "heatmap", "npz")
_SMALLEST_SIDE = 224


@dataclass(frozen=True)
class Artist:
    """Draws at the size of the network's input, or at a multiple of it if that has less than 224 pixels."""

    manifest: Manifest

    @property
    def times(self) -> int:
        return -(-_SMALLEST_SIDE // min(self.manifest.input.size))

    def image(self, source: ImageSource, explanation: Explanation) -> Image.Image:
        """Return the part of the image that is the network's input, at the resolution of the file if that is higher."""
        if self.times > 1:
            try:
                return Image.fromarray(load_image(source, explanation.source, self._larger_input(), Limits()).pixels)
            except BcosError:  # the file has changed, or the model does not resize
                pass
        return self._enlarged(Image.fromarray(explanation.image))

    def overlay(self, explanation: Explanation, image: Image.Image) -> Image.Image:
        """Draw the heat map over the picture that `image` returned."""
        return explanation.overlay(on=image)

    def rgba(self, explanation: Explanation) -> Image.Image:
        smooth = max(1, round(15 / self.times))
        return self._enlarged(explanation.rgba(smooth=smooth))

    def heatmap(self, explanation: Explanation) -> Image.Image:
        return self._enlarged(explanation.heatmap())

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

    def _larger_input(self) -> InputSpec:
        spec, times = self.manifest.input, self.times
        height, width = spec.size
        size = height * times, width * times
        resize = None if spec.resize is None else spec.resize * times
        return InputSpec(size=size, resize=resize, crop=size if spec.crop else None, interpolation="bicubic")

    def _enlarged(self, picture: Image.Image) -> Image.Image:
        if self.times == 1:
            return picture
        return picture.resize((picture.width * self.times, picture.height * self.times), Image.Resampling.BICUBIC)


def output_error(path: Path, error: OSError) -> OutputError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OutputError(
        f"cannot write {path}: {reason}",
        source=str(path),
        hint="All files written so far are complete. Free some space or choose another --out, then use --resume.",
    )
