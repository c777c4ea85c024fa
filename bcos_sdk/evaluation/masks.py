"""Masks: how much of the positive contribution to the true class lies on the object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bcos_sdk.errors import BcosError, InputError
from bcos_sdk.evaluation._items import Figures, Item, spread
from bcos_sdk.evaluation._subject import Subject
from bcos_sdk.evaluation.datasets import Sample, read_mask
from bcos_sdk.pictures import box_mean
from bcos_sdk.results import Failure

__all__ = ["measure", "score", "summarise"]

_OUTSIDE, _OBJECT = 0, 1


def score(contributions: npt.ArrayLike, mask: npt.ArrayLike, *, smooth: int = 1) -> dict[str, float]:
    """`inside`: Σ positive on the object ÷ Σ positive on object and background; `pointing`: 1 if the maximum is on it.

    mask: 1 object, 0 background, anything else is undecided and counts for neither. `area` is the object's share of the
    pixels: what a uniform map would score. The map is smoothed before negative values are left out.
    """
    values, codes = np.asarray(contributions, np.float64), np.asarray(mask)
    values = box_mean(values, smooth) if smooth > 1 else values
    positive = np.maximum(values, 0)
    inside, outside = float(positive[codes == _OBJECT].sum()), float(positive[codes == _OUTSIDE].sum())
    decided = np.where((codes == _OBJECT) | (codes == _OUTSIDE), values, -np.inf)
    return {
        "inside": inside / (inside + outside) if inside + outside > 0 else 0.0,
        "pointing": float(codes.ravel()[int(decided.argmax())] == _OBJECT),
        "area": float((codes == _OBJECT).sum() / max(1, np.isfinite(decided).sum())),
    }


def measure(subject: Subject, samples: Sequence[Sample], *, smooth: int) -> Iterator[Item]:
    """Explain the true class of each image, and compare the map with the mask."""
    stream = subject.explain_classes((one.source for one in samples), (one.label for one in samples))
    for sample, result in zip(samples, stream, strict=True):
        if isinstance(result, Failure):
            yield Item.failed(sample.name, result)
            continue
        explanation = result.explanations[0]
        assert sample.mask is not None
        assert explanation.geometry is not None
        try:
            mask = read_mask(sample.mask, explanation.geometry, explanation.contributions.shape)
            if not (mask == _OBJECT).any():
                raise InputError(
                    f"the mask {sample.mask} has no object where the network sees the image",
                    source=sample.name,
                    hint="Leave the image out, or correct its mask.",
                )
        except BcosError as error:
            yield Item.failed(sample.name, error)
            continue
        yield Item(name=sample.name, scores=score(explanation.contributions, mask, smooth=smooth))


def summarise(items: Sequence[Item]) -> Figures:
    means = {name: float(np.mean([item.scores[name] for item in items])) for name in ("inside", "pointing", "area")}
    return Figures(items=len(items), values=means, spreads={"inside": spread(item.scores["inside"] for item in items)})
