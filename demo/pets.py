"""The photographs of Oxford-IIIT Pet: decoded once, the split, and augmented batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from training import with_complement

from bcos_sdk.evaluation.datasets import HELD_OUT, pets_split

CATS = 12


@dataclass(frozen=True)
class Photographs:
    """Decoded images of any size, one after the other in one array of bytes, with their labels."""

    pixels: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray  # [N, 2]: height, width
    labels: np.ndarray  # index of the breed

    def image(self, index: int) -> Image.Image:
        height, width = self.sizes[index]
        start = self.offsets[index]
        return Image.fromarray(self.pixels[start : start + height * width * 3].reshape(height, width, 3))


def breed_of(name: str) -> str:
    """'Abyssinian_100' ↦ 'Abyssinian cat', 'beagle_4' ↦ 'beagle dog'. Names of cats begin with a capital letter."""
    breed = name.rpartition("_")[0].replace("_", " ")
    return f"{breed} {'cat' if name[0].isupper() else 'dog'}"


def breeds(names: list[str]) -> list[str]:
    """The 12 breeds of cats, then the 25 of dogs, in alphabetical order."""
    return sorted({breed_of(name) for name in names}, key=lambda breed: (breed.endswith("dog"), breed.lower()))


def split_names(annotations: Path) -> tuple[list[str], list[str]]:
    """Return the names of the training images and of the held-out images, as `bcos-sdk evaluate --split held-out`."""
    trainval, test, held_out = (
        [name for name, _ in pets_split(annotations, split)] for split in ("trainval", "test", HELD_OUT)
    )
    return sorted(set(trainval + test) - set(held_out)), held_out


def decode(data: Path, cache: Path) -> tuple[Photographs, Photographs]:
    """Return the training and the held-out photographs. Their pixels are decoded once, into files in `cache`."""
    parts, classes = split_names(data / "annotations"), None
    classes = breeds(parts[0])
    result = []
    for part, names in zip(("train", "held_out"), parts, strict=True):
        file = cache / f"{part}.bin"
        sizes = [Image.open(data / "images" / f"{name}.jpg").size for name in names]
        counts = np.array([width * height * 3 for width, height in sizes])
        if not file.exists() or file.stat().st_size != counts.sum():
            cache.mkdir(parents=True, exist_ok=True)
            with file.with_suffix(".new").open("wb") as output:
                for name in names:
                    output.write(np.asarray(Image.open(data / "images" / f"{name}.jpg").convert("RGB")).tobytes())
            file.with_suffix(".new").replace(file)
        result.append(
            Photographs(
                np.memmap(file, np.uint8, "r"),
                np.cumsum(counts) - counts,
                np.array([(height, width) for width, height in sizes]),
                np.array([classes.index(breed_of(name)) for name in names]),
            )
        )
    return result[0], result[1]


def random_crop(image: Image.Image, side: int, chance: np.random.Generator) -> np.ndarray:
    """A random part of 25 to 100 % of the area, with an aspect ratio of 3/4 to 4/3, resized; half of them mirrored."""
    area = image.width * image.height * chance.uniform(0.25, 1)
    ratio = np.exp(chance.uniform(-1, 1) * np.log(4 / 3))
    width, height = min(image.width, np.sqrt(area * ratio)), min(image.height, np.sqrt(area / ratio))
    left, top = chance.uniform(0, image.width - width), chance.uniform(0, image.height - height)
    box = (left, top, left + width, top + height)
    pixels = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box=box))
    return pixels[:, ::-1] if chance.random() < 0.5 else pixels


def jitter(rgb: Tensor, chance: np.random.Generator) -> Tensor:
    """Scale brightness, contrast and saturation of each image by up to 30 %: one affine map per image."""
    n, _, height, width = rgb.shape
    brightness, contrast, saturation = torch.from_numpy(chance.uniform(0.7, 1.3, (3, n, 1, 1))).float()
    colours = brightness * contrast * (saturation * torch.eye(3) + (1 - saturation) / 3)
    level = (1 - contrast) * brightness * rgb.mean((1, 2, 3)).view(n, 1, 1)
    return torch.baddbmm(level, colours, rgb.view(n, 3, -1)).clamp_(0, 1).view(n, 3, height, width)


def cut_and_paste(rgb: Tensor, target: Tensor, chance: np.random.Generator) -> tuple[Tensor, Tensor]:
    """CutMix: replace one rectangle of each image by that of another image; targets are mixed by area."""
    side, share = rgb.shape[-1], chance.uniform(0, 1)
    height = width = round(side * float(np.sqrt(share)))
    row, column = chance.integers(0, side - height + 1), chance.integers(0, side - width + 1)
    share = height * width / side**2
    window = rgb[:, :, row : row + height, column : column + width]
    window.copy_(window.roll(1, 0))
    return rgb, (1 - share) * target + share * target.roll(1, 0)


def batch(
    photographs: Photographs, chosen: np.ndarray, side: int, mix: float, chance: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """The chosen photographs, augmented and encoded, with one-hot or mixed targets. `mix` is the chance of CutMix."""
    crops = np.stack([random_crop(photographs.image(index), side, chance) for index in chosen])
    rgb = torch.from_numpy(crops).permute(0, 3, 1, 2).contiguous().float().mul_(1 / 255)
    rgb = jitter(rgb, chance)
    target = F.one_hot(torch.from_numpy(photographs.labels[chosen]), 37).float()
    if chance.random() < mix:
        rgb, target = cut_and_paste(rgb, target, chance)
    return with_complement(rgb), target


def centre_crop(image: Image.Image, side: int) -> np.ndarray:
    """The shorter side is resized to `side`, and the centre is cropped."""
    short = min(image.size)
    left, top = (image.width - short) / 2, (image.height - short) / 2
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box=(left, top, left + short, top + short)))
