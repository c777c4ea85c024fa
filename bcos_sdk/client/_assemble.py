"""From the outputs of a batch to typed results: probabilities, labels, and the certificate of each explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bcos_sdk.bundle import Manifest
from bcos_sdk.client._arguments import OnIncomplete
from bcos_sdk.client._targets import MEAN, Pixel, ResolvedTargets, RowMean, target_at
from bcos_sdk.contract import (
    TOLERANCE_CAPS,
    TOLERANCES,
    ExplainOutputs,
    Precision,
    certificate_scale,
    certificate_sum,
    mean_target,
)
from bcos_sdk.errors import InferenceError
from bcos_sdk.images import LoadedImage
from bcos_sdk.results import ClassScore, Completeness, Explained, Explanation, Prediction, Target

__all__ = ["Assembler"]

Floats = npt.NDArray[np.float32]
Probabilities: TypeAlias = "npt.NDArray[np.float64] | None"


@dataclass(frozen=True)
class Assembler:
    """Makes results from the outputs of the graphs of one bundle."""

    manifest: Manifest
    on_incomplete: OnIncomplete
    precision: Precision

    @property
    def tolerance(self) -> float:
        """The tolerance of the manifest, or that of the device's precision if it differs; never above the cap."""
        as_exported = self.precision == self.manifest.precision
        wanted = self.manifest.tolerance if as_exported else TOLERANCES[self.precision]
        return min(wanted, TOLERANCE_CAPS[self.precision])

    def prediction(
        self,
        source: str,
        logits: Floats,
        top_k: int,
        notes: tuple[str, ...] = (),
        probabilities: Probabilities = None,
    ) -> Prediction:
        """The `top_k` most likely classes. Logits that are not finite raise an `InferenceError`."""
        if not np.isfinite(logits).all():
            raise InferenceError(
                f"the logits of {source} are not finite",
                source=source,
                hint="The bundle is damaged or the device computes wrong results. Run it on the CPU, or export the "
                "model again.",
            )
        if probabilities is None:
            probabilities = self.probabilities(logits)
        ranked = np.argsort(-logits, kind="stable")[:top_k]
        classes = tuple(self._score(int(index), logits, probabilities) for index in ranked)
        return Prediction(source=source, model=self.manifest.model.name, classes=classes, notes=notes)

    def explained(
        self,
        source: str,
        image: LoadedImage,
        outputs: ExplainOutputs,
        place: int,
        targets: ResolvedTargets,
        top_k: int,
    ) -> Explained:
        """The explanations of the image at index `place` of a batch."""
        logits = outputs.logits[place]
        probabilities = self.probabilities(logits)
        prediction = self.prediction(source, logits, top_k, image.notes, probabilities)
        self.check_classes(source, outputs.classes[place], targets.rows)
        rows = [self._row(source, image, outputs, place, row, probabilities) for row in range(len(targets.rows))]
        explanations = tuple(
            Explanation.mean([rows[row] for row in wanted.places], wanted.label)
            if isinstance(wanted, RowMean)
            else _difference(rows, *wanted)
            for wanted in targets.explanations
        )
        if self.on_incomplete == "raise":
            for explanation in (*rows, *explanations):
                if not explanation.completeness.passed:  # that it is of these arrays was checked when it was made
                    explanation.require_complete()
        return Explained(source=source, prediction=prediction, explanations=explanations)

    def _row(
        self,
        source: str,
        image: LoadedImage,
        outputs: ExplainOutputs,
        place: int,
        row: int,
        probabilities: Probabilities,
    ) -> Explanation:
        target = self.target(outputs.logits[place], int(outputs.classes[place, row]), probabilities)
        contributions = outputs.contributions[place, row]
        if outputs.weights is not None:  # rgba() draws W(x), so the certificate must be that of W(x)
            contributions = np.einsum("chw,chw->hw", outputs.weights[place, row], image.encoded)
        terms = outputs.bias_terms[place, row].astype(np.float64)
        arrays: dict[str, npt.NDArray[Any]] = {"contributions": contributions, "image": image.pixels}
        if outputs.weights is not None:
            arrays["weights"] = outputs.weights[place, row]
            if self.manifest.input.channels == "none":  # `image` is then a preview, from which it cannot be computed
                arrays["input"] = image.encoded
        if image.display is not None:
            arrays["display"] = image.display
        return Explanation(
            source=source,
            model=self.manifest.model.name,
            target=target,
            bias=dict(zip(self.manifest.bias_terms, terms.tolist(), strict=True)),
            completeness=Completeness(
                logit=target.logit,
                sum=certificate_sum(contributions, terms),
                scale=float(certificate_scale(contributions, terms, outputs.logits[place], target.index is None)),
                tolerance=self.tolerance,
                precision=self.precision,
            ),
            geometry=image.geometry,
            arrays=arrays,
        )

    def check_classes(self, source: str, classes: npt.NDArray[np.int64], rows: tuple[int, ...]) -> None:
        """Check that the graph explained the requested classes. For a rank, any class is possible."""
        known = (classes >= 0) & (classes <= self.manifest.classes)
        requested = np.array(rows)
        if not (known & ((requested < 0) | (requested == classes))).all():
            raise InferenceError(
                f"the graph explained the classes {classes.tolist()} of {source}, requested were {requested.tolist()}",
                source=source,
            )

    def target(self, logits: Floats, index: int, probabilities: Probabilities) -> Target:
        """The class or the mean that an encoded target stands for, with its logit."""
        if index == mean_target(self.manifest.classes):
            return Target(index=None, label=MEAN, logit=float(logits.mean(dtype=np.float64)), probability=None)
        score = self._score(index, logits, probabilities)
        return Target(index=index, label=score.label, logit=score.logit, probability=score.probability)

    def _score(self, index: int, logits: Floats, probabilities: Probabilities) -> ClassScore:
        labels = self.manifest.labels
        number, at = index, ""
        place = target_at(self.manifest, index)
        if isinstance(place, Pixel):
            number, at = int(place.target), f" @ {place.y}:{place.x}"
        return ClassScore(
            index=index,
            label=(str(number) if labels is None else labels[number]) + at,
            logit=float(logits[index]),
            probability=None if probabilities is None else float(probabilities[index]),
        )

    def probabilities(self, logits: Floats) -> Probabilities:
        """The probability of each class; None if the manifest states none."""
        if self.manifest.probability == "none":
            return None
        exact = logits.astype(np.float64)
        if self.manifest.probability == "sigmoid":
            sigmoid: npt.NDArray[np.float64] = np.exp(-np.logaddexp(0, -exact))
            return sigmoid
        if self.manifest.map is not None:  # a probability of each class at its pixel
            exact = exact.reshape(self.manifest.map)
            of_classes = np.exp(exact - exact.max(0))
            at_pixels: npt.NDArray[np.float64] = (of_classes / of_classes.sum(0)).reshape(-1)
            return at_pixels
        powers: npt.NDArray[np.float64] = np.exp(exact - exact.max())
        softmax: npt.NDArray[np.float64] = powers / powers.sum()
        return softmax


def _difference(rows: list[Explanation], target: int, against: int | None) -> Explanation:
    return rows[target] if against is None else rows[target].difference(rows[against])
