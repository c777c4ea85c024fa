"""Stability: how similar the maps of an image and of the shifted image are, and those of two devices or precisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bcos_sdk.errors import BcosError
from bcos_sdk.evaluation._items import Figures, Item, spread
from bcos_sdk.evaluation._subject import Subject
from bcos_sdk.evaluation.datasets import Sample
from bcos_sdk.images import encode
from bcos_sdk.results import Failure

__all__ = ["cosine", "measure", "overlap", "rank_correlation", "shifted", "summarise"]

Map = npt.NDArray[np.floating]


def cosine(one: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """⟨a, b⟩ / (‖a‖·‖b‖); 0 if one of them is zero."""
    a, b = np.asarray(one, np.float64).ravel(), np.asarray(other, np.float64).ravel()
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm > 0 else 0.0


def rank_correlation(one: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """Spearman: the correlation of the ranks; equal values have the mean of their ranks. 0 if all values are equal."""
    a, b = (_ranks(np.asarray(values, np.float64).ravel()) for values in (one, other))
    return cosine(a - a.mean(), b - b.mean())


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: npt.NDArray[np.float64] = (last - (count - 1) / 2)[place.ravel()]
    return ranks


def shifted(pixels: npt.NDArray[np.uint8], by: int) -> npt.NDArray[np.uint8]:
    """The image [H, W, 3] moved down and to the right by `by` pixels; its edge is repeated."""
    rows, columns = (np.clip(np.arange(side) - by, 0, side - 1) for side in pixels.shape[:2])
    return pixels[np.ix_(rows, columns)]


def overlap(original: Map, moved: Map, by: int) -> tuple[Map, Map]:
    """The parts of both maps that show the same pixels of the image."""
    kept = [slice(max(0, -by), side - max(0, by)) for side in original.shape]
    found = [slice(max(0, by), side - max(0, -by)) for side in original.shape]
    return original[tuple(kept)], moved[tuple(found)]


def measure(
    subject: Subject, samples: Sequence[Sample], *, largest: int, other: Subject | None = None
) -> Iterator[Item]:
    """Compare the map of the most likely class with those after diagonal shifts of −largest … +largest pixels.

    With `other`, also with the map of the same class of the same pixels by the other model or device.
    """
    shifts = [by for by in range(-largest, largest + 1) if by]
    for sample in samples:
        try:
            pixels = subject.pixels(sample)
            (prediction,) = subject.client.predict(encode(pixels), top_k=1)
            index = prediction.classes[0].index
            maps = _maps(subject, [pixels, *(shifted(pixels, by) for by in shifts)], index)
            scores, curves = _compare(maps[0], maps[1:], shifts)
            if other is not None:
                (again,) = _maps(other, [pixels], index)
                scores |= {"other_cosine": cosine(maps[0], again), "other_rank": rank_correlation(maps[0], again)}
        except BcosError as error:
            yield Item.failed(sample.name, error)
            continue
        yield Item(name=sample.name, scores=scores, curves=curves)


def _maps(subject: Subject, images: Sequence[npt.NDArray[np.uint8]], index: int) -> list[Map]:
    maps: list[Map] = []
    for result in subject.explain_classes([encode(one) for one in images], [index] * len(images)):
        if isinstance(result, Failure):
            raise BcosError(result.message, source=result.source, hint=result.hint)
        maps.append(result.explanations[0].contributions)
    return maps


def _compare(
    original: Map, moved: Sequence[Map], shifts: Sequence[int]
) -> tuple[dict[str, float], dict[str, tuple[float, ...]]]:
    pairs = [overlap(original, one, by) for one, by in zip(moved, shifts, strict=True)]
    curves = {
        "cosine": tuple(cosine(*pair) for pair in pairs),
        "rank": tuple(rank_correlation(*pair) for pair in pairs),
    }
    return {name: float(np.mean(values)) for name, values in curves.items()}, curves


def summarise(items: Sequence[Item], largest: int) -> Figures:
    names = list(items[0].scores)
    means = {
        name: tuple(map(float, np.mean([item.curves[name] for item in items], axis=0))) for name in items[0].curves
    }
    return Figures(
        items=len(items),
        values={name: float(np.mean([item.scores[name] for item in items])) for name in names},
        spreads={name: spread(item.scores[name] for item in items) for name in names},
        curves=means,
        details={"shifts": [by for by in range(-largest, largest + 1) if by]},
    )
