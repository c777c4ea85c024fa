"""Faithfulness: how the probability changes when pixels are removed, or shown, in the order of their contributions.

Quantus 0.6 has such curves, but calls `numpy.trapz`, which numpy 2.4 no longer has, and needs the network in torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bcos_sdk.errors import BcosError
from bcos_sdk.evaluation._items import Figures, Item, spread
from bcos_sdk.evaluation._subject import Subject, probability_of
from bcos_sdk.evaluation.datasets import Sample
from bcos_sdk.images import encode
from bcos_sdk.pictures import box_mean
from bcos_sdk.results import Failure

__all__ = ["ORDERS", "blurred", "flip_order", "flipped_images", "measure", "summarise"]

ORDERS = ("most", "random", "least")
STEPS = 32
_GREY = 0.5
Images = npt.NDArray[np.float32]


def flip_order(
    contributions: npt.ArrayLike, order: str, patch: int, random: np.random.Generator
) -> npt.NDArray[np.intp]:
    """The patches of patch × patch pixels, numbered row by row, in the order in which they are flipped."""
    values = np.asarray(contributions, np.float64)
    rows, columns = (-(-side // patch) for side in values.shape)
    padded = np.pad(values, ((0, rows * patch - values.shape[0]), (0, columns * patch - values.shape[1])))
    sums = padded.reshape(rows, patch, columns, patch).sum((1, 3)).ravel()
    if order == "random":
        return random.permutation(sums.size)
    return np.argsort(-sums if order == "most" else sums, kind="stable")


def flipped_images(start: Images, end: Images, order: npt.NDArray[np.intp], patch: int, steps: int) -> Iterator[Images]:
    """Yield steps + 1 images from `start` to `end`, [6, H, W]: in each step, further patches are taken from `end`."""
    height, width = start.shape[1:]
    columns = -(-width // patch)
    number = (np.arange(height) // patch)[:, None] * columns + (np.arange(width) // patch)[None]
    rank = np.empty(order.size, np.intp)
    rank[order] = np.arange(order.size)
    for step in range(steps + 1):
        yield np.where(rank[number] < round(order.size * step / steps), end, start)


def blurred(image: Images) -> Images:
    """The image after two box means over a third of its side, with its edge repeated outside."""
    kernel = max(3, image.shape[-1] // 3 | 1)
    margin = kernel  # two means reach this far at most
    padded = np.pad(image.astype(np.float64), ((0, 0), (margin, margin), (margin, margin)), mode="edge")
    twice = [box_mean(box_mean(channel, kernel), kernel) for channel in padded]
    return np.stack(twice)[:, margin:-margin, margin:-margin].astype(np.float32)


def measure(subject: Subject, samples: Sequence[Sample], *, patch: int, seed: int) -> Iterator[Item]:
    """Curves of the probability of the most likely class: deletion to grey, insertion into the blurred image."""
    stream = subject.client.explain_stream((one.source for one in samples), top_k=1)
    for sample, result in zip(samples, stream, strict=True):
        if isinstance(result, Failure):
            yield Item.failed(sample.name, result)
            continue
        first = result.explanations[0]
        index = first.target.index
        assert index is not None
        try:
            contributions = first.contributions
            if subject.mean_corrected:
                (again,) = subject.explain_classes([encode(first.image)], [index])
                if isinstance(again, Failure):
                    yield Item.failed(sample.name, again)
                    continue
                contributions = again.explanations[0].contributions
            yield _curves(subject, sample.name, first.image, contributions, index, patch, seed)
        except BcosError as error:
            yield Item.failed(sample.name, error)


def _curves(
    subject: Subject,
    name: str,
    pixels: npt.NDArray[np.uint8],
    contributions: npt.NDArray[np.float32],
    index: int,
    patch: int,
    seed: int,
) -> Item:
    image = encode(pixels)
    ends = {"deletion": (image, np.full_like(image, _GREY)), "insertion": (blurred(image), image)}
    curves = {}
    for kind, (start, end) in ends.items():
        for order in ORDERS:
            # Every image and bundle has the same random orders, so that bundles can be compared.
            patches = flip_order(contributions, order, patch, np.random.default_rng(seed))
            images = list(flipped_images(start, end, patches, patch, STEPS))
            curves[f"{kind}_{order}"] = tuple(_probabilities(subject, images, index))
    return Item(name=name, scores={key: float(np.mean(curve)) for key, curve in curves.items()}, curves=curves)


def _probabilities(subject: Subject, images: Sequence[Images], index: int) -> Iterator[float]:
    for prediction in subject.client.predict(images, top_k=len(subject.labels)):
        yield next(probability_of(one) for one in prediction.classes if one.index == index)


def summarise(items: Sequence[Item]) -> Figures:
    """The mean curves, and the area below each: the mean over its points."""
    names = list(items[0].scores)
    return Figures(
        items=len(items),
        values={name: float(np.mean([item.scores[name] for item in items])) for name in names},
        spreads={name: spread(item.scores[name] for item in items) for name in names},
        curves={name: tuple(map(float, np.mean([item.curves[name] for item in items], axis=0))) for name in names},
    )
