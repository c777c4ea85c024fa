"""Bias: the share of the difference of the two largest logits that comes from b(x), not from pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bcos_sdk.evaluation._items import Figures, Item, spread
from bcos_sdk.evaluation._subject import Subject
from bcos_sdk.evaluation.datasets import Sample
from bcos_sdk.results import Explained, Failure

__all__ = ["measure", "share", "summarise"]

_BINS = 40


def share(result: Explained) -> float:
    """(b₁ − b₂) / (y₁ − y₂) of the two most likely classes; 0 if their logits are equal."""
    first, second = result.explanations[:2]
    difference = first.target.logit - second.target.logit
    bias = sum(first.bias.values()) - sum(second.bias.values())
    return bias / difference if difference else 0.0


def measure(subject: Subject, samples: Sequence[Sample]) -> Iterator[Item]:
    """Explain the two most likely classes of each image."""
    stream = subject.client.explain_stream((one.source for one in samples), top_k=2)
    for sample, result in zip(samples, stream, strict=True):
        if isinstance(result, Failure):
            yield Item.failed(sample.name, result)
        else:
            yield Item(name=sample.name, scores={"share": share(result)})


def summarise(items: Sequence[Item]) -> Figures:
    """Median and mean of the share, mean of its absolute value, and a histogram from −1 to 1."""
    shares = np.array([item.scores["share"] for item in items])
    count, edges = np.histogram(np.clip(shares, -1, 1), bins=_BINS, range=(-1, 1))
    return Figures(
        items=len(items),
        values={"median": float(np.median(shares)), "mean_absolute": float(np.abs(shares).mean())},
        spreads={"share": spread(shares)},
        details={"histogram": {"count": count.tolist(), "edges": edges.tolist()}},
    )
