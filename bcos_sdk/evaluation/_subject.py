"""The model under evaluation: its client, its images as pixels, and its explanations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bcos_sdk.client import Client, Contrast
from bcos_sdk.errors import InputError
from bcos_sdk.evaluation.datasets import Sample
from bcos_sdk.images import ImageSource, LoadedImage, load_image
from bcos_sdk.limits import Limits
from bcos_sdk.results import ClassScore, Explained, Failure

__all__ = ["Subject", "probability_of"]


@dataclass(frozen=True)
class Subject:
    """A client, and whether explanations are mean-corrected: of logit − mean of all logits."""

    client: Client
    mean_corrected: bool = False
    limits: Limits = field(default_factory=Limits)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.client.labels

    def load(self, sample: Sample) -> LoadedImage:
        """The image as the network receives it. A file that is no image raises a `BcosError`."""
        return load_image(sample.source, sample.name, self.client.manifest.input, self.limits)

    def pixels(self, sample: Sample) -> npt.NDArray[np.uint8]:
        return self.load(sample).pixels

    def explain_classes(self, images: Iterable[ImageSource], classes: Iterable[int]) -> Iterator[Explained | Failure]:
        """Explain one class of each image."""
        targets = [[Contrast(one) if self.mean_corrected else one] for one in classes]
        return self.client.explain_stream(images, targets=targets) if targets else iter(())


def probability_of(score: ClassScore) -> float:
    """The probability of a class. A model whose outputs are no classes raises an `InputError`."""
    if score.probability is None:
        raise InputError(
            "the outputs of this model have no probabilities, so it cannot be evaluated as a classifier",
            source=score.label,
            hint="Export it with --probability sigmoid or softmax.",
        )
    return score.probability
