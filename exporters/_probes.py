"""The images that every export is tried on: noise, a photograph, black, white and grey.

The photograph is `cat.jpg`: Chelsea the cat, by Stefan van der Walt, CC0.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

__all__ = ["PROBES", "probe_images"]

PROBES = ("noise", "photograph", "black", "white", "grey")


def probe_images(size: tuple[int, int]) -> Tensor:
    """[5, 6, *size]: one image per name in PROBES, with complements."""
    height, width = size
    noise = torch.rand(3, height, width, generator=torch.Generator().manual_seed(0))
    with files(__package__).joinpath("cat.jpg").open("rb") as file, Image.open(file) as picture:
        fitted = ImageOps.fit(picture.convert("RGB"), (width, height), Image.Resampling.BILINEAR)
    photograph = torch.from_numpy(np.array(fitted)).permute(2, 0, 1) / 255
    flat = [torch.full((3, height, width), level) for level in (0.0, 1.0, 0.5)]
    rgb = torch.stack([noise, photograph, *flat])
    return torch.cat([rgb, 1 - rgb], dim=1)
