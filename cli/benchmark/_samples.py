"""What is fed to the contenders: noise for the engines, smooth pictures as JPEGs for whoever decodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from bcos_sdk.contract import rank_target
from bcos_sdk.images import encode

__all__ = ["sample_images", "top_targets", "write_jpegs"]


_GRAIN = 14


def sample_images(count: int, size: tuple[int, int]) -> npt.NDArray[np.float32]:
    """[count, 6, *size]: random pixels with their complements, ready for a network."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, *size, 3), dtype=np.uint8)
    return np.stack([encode(image) for image in pixels])


def top_targets(count: int, classes: int = 1) -> npt.NDArray[np.int64]:
    """[count, classes]: the most likely classes of each image, whichever they are."""
    return np.tile(np.array([rank_target(rank) for rank in range(1, classes + 1)]), (count, 1))


def write_jpegs(folder: Path, count: int, size: tuple[int, int]) -> None:
    """`count` different pictures of that height and width; of 500×375 pixels, files of 84 kB."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize(size[::-1], Image.Resampling.BICUBIC))
        grainy = smooth + generator.normal(0, _GRAIN, smooth.shape)
        picture = Image.fromarray(grainy.clip(0, 255).astype(np.uint8))
        picture.save(folder / f"{number:05}.jpg", "JPEG", quality=90)
