"""Accuracy: how often the class is right, and how often it is right among the images of one confidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bcos_sdk.evaluation._items import Figures, Item
from bcos_sdk.evaluation._subject import Subject, probability_of
from bcos_sdk.evaluation.datasets import Sample
from bcos_sdk.results import Failure

__all__ = ["BINS", "classify", "confusion", "expected_calibration_error", "reliability", "summarise"]

BINS = 15
_TOP = 5
_MOST_CONFUSED = 20


def classify(subject: Subject, samples: Sequence[Sample]) -> Iterator[Item]:
    """Yield label, most likely class, its logit and probability, and whether the label is among the first five."""
    stream = subject.client.predict_stream((one.source for one in samples), top_k=min(_TOP, len(subject.labels)))
    for sample, result in zip(samples, stream, strict=True):
        if isinstance(result, Failure):
            yield Item.failed(sample.name, result)
            continue
        first = result.classes[0]
        yield Item(
            name=sample.name,
            scores={
                "label": sample.label,
                "predicted": first.index,
                "logit": first.logit,
                "probability": probability_of(first),
                "top1": float(first.index == sample.label),
                "top5": float(any(one.index == sample.label for one in result.classes)),
            },
        )


def reliability(
    probability: npt.ArrayLike, right: npt.ArrayLike, bins: int = BINS
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """For bins (k/bins, (k+1)/bins] of the probability: number of images, mean probability, share that is right."""
    confidence, hits = np.asarray(probability, np.float64), np.asarray(right, np.float64)
    places = np.clip(np.ceil(confidence * bins).astype(np.intp) - 1, 0, bins - 1)
    count = np.bincount(places, minlength=bins)
    divisor = np.maximum(count, 1)
    return (
        count,
        np.bincount(places, confidence, minlength=bins) / divisor,
        np.bincount(places, hits, minlength=bins) / divisor,
    )


def expected_calibration_error(probability: npt.ArrayLike, right: npt.ArrayLike, bins: int = BINS) -> float:
    """Σ over bins of (share of the images in the bin) · |share that is right − mean probability|."""
    count, confidence, hits = reliability(probability, right, bins)
    return float(np.sum(count / count.sum() * np.abs(hits - confidence)))


def confusion(label: npt.ArrayLike, predicted: npt.ArrayLike, classes: int) -> npt.NDArray[np.intp]:
    """[classes, classes]: how many images of the class of the row were given the class of the column."""
    table = np.zeros((classes, classes), np.intp)
    np.add.at(table, (np.asarray(label, np.intp), np.asarray(predicted, np.intp)), 1)
    return table


def summarise(items: Sequence[Item], labels: Sequence[str]) -> Figures:
    """Top-1, top-5, ECE, accuracy of each class, and the pairs of classes that are confused most."""
    column = {key: np.array([item.scores[key] for item in items]) for key in items[0].scores}
    label, predicted, right = column["label"].astype(np.intp), column["predicted"].astype(np.intp), column["top1"]
    total, hits = (np.bincount(label, weight, minlength=len(labels)) for weight in (None, right))
    count, confidence, share = reliability(column["probability"], right)
    pairs, times = np.unique(np.stack([label, predicted])[:, right == 0], axis=1, return_counts=True)
    order = np.argsort(-times, kind="stable")[:_MOST_CONFUSED]
    values = {"top1": right.mean(), "top5": column["top5"].mean()}
    return Figures(
        items=len(items),
        values={
            **{name: float(value) for name, value in values.items()},
            "ece": expected_calibration_error(column["probability"], right),
        },
        details={
            "classes": [
                {"label": labels[one], "images": int(total[one]), "top1": float(hits[one] / total[one])}
                for one in map(int, np.flatnonzero(total))
            ],
            "confused": [
                {"label": labels[pairs[0, at]], "predicted": labels[pairs[1, at]], "images": int(times[at])}
                for at in order
            ],
            "confusion": confusion(label, predicted, len(labels)).tolist() if len(labels) <= 100 else None,
            "reliability": {
                "count": count.tolist(),
                "probability": confidence.tolist(),
                "right": share.tolist(),
            },
        },
    )
