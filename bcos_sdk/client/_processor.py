"""From images to outcomes: decoder threads, the queue of the device, and typed results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from bcos_sdk.backends import Backend
from bcos_sdk.bundle import Manifest
from bcos_sdk.client._arguments import TOP_K, OnIncomplete, check_count
from bcos_sdk.client._assemble import Assembler
from bcos_sdk.client._batches import BatchRunner
from bcos_sdk.client._deadline import Deadline
from bcos_sdk.client._layers import (
    feature_explanation,
    features_of,
    find_layer,
    find_layers,
    layer_explanation,
    layer_queries,
    one_per_image,
)
from bcos_sdk.client._outcomes import Outcomes
from bcos_sdk.client._pipeline import Pipeline, Request
from bcos_sdk.client._targets import ResolvedTargets, TargetResolver, Targets
from bcos_sdk.client._tensors import TensorRunner
from bcos_sdk.client._threads import DaemonThreads
from bcos_sdk.contract import ExplainOutputs, FeatureOutputs, LayerOutputs, Precision, RelayOutputs
from bcos_sdk.errors import BcosError, InputError
from bcos_sdk.images import DecodingPool, ImageSource, LoadedImage, load_image, source_name, stand_in
from bcos_sdk.limits import Limits
from bcos_sdk.pictures import enlargement
from bcos_sdk.results import Explained, FeatureExplanation, Features, LayerExplanation, Prediction

__all__ = ["ImageProcessor"]

_MOST_DECODERS = 8
_ONE_LIST_PER_IMAGE = "Pass one list of targets for each image."


class ImageProcessor:
    """Turns images into outcomes in order, a result or an error for each. Threads may share it."""

    def __init__(
        self,
        manifest: Manifest,
        backend: Backend,
        *,
        max_batch: int,
        on_incomplete: OnIncomplete,
        limits: Limits,
        fixed_batch: bool = False,
        load: Callable[..., LoadedImage] = load_image,
    ) -> None:
        self._manifest = manifest
        self._max_batch = max_batch
        self._limits = limits
        self._assembler = Assembler(manifest, on_incomplete, backend.precision)
        self._resolver = TargetResolver(manifest, limits.targets)
        decoders = min(_MOST_DECODERS, os.cpu_count() or 1)
        self._decoders = DaemonThreads(decoders, "bcos-sdk-decoder")
        self._isolated = DecodingPool(decoders)
        self.runner = self._runner = BatchRunner(backend, max_batch=max_batch, queue=limits.queue, fixed=fixed_batch)
        self.tensors = TensorRunner(manifest, self._assembler, self._runner, limits.targets)
        load = partial(load, spec=manifest.input, limits=limits, pool=self._isolated)
        self._predicting = Pipeline(load, self._decoders, self._runner)
        load_to_draw = partial(load, enlarge=enlargement(manifest.input.size))
        self._explaining = Pipeline(load_to_draw, self._decoders, self._runner)

    @property
    def precision(self) -> Precision:
        return self._assembler.precision

    def predictions(self, images: Iterable[ImageSource], deadline: Deadline, *, top_k: int) -> Outcomes[Prediction]:
        """The prediction of each image. Arguments are checked now; images are read as the outcomes are consumed."""
        top_k = check_count("top_k", top_k)
        self._runner.check_room()

        def finish(request: Request, image: LoadedImage, logits: Any, place: int) -> Prediction:
            return self._assembler.prediction(request.source, logits[place], top_k, image.notes)

        requests = (Request(source_name(image, place), image) for place, image in enumerate(images))
        return self._predicting.run(requests, finish, deadline)

    def explanations(
        self,
        images: Iterable[ImageSource],
        deadline: Deadline,
        *,
        targets: Targets,
        top_k: int,
        weights: bool,
        count: int | None = None,
    ) -> Outcomes[Explained]:
        """The explanations of each image, like `predictions`. `count` is the number of images, if it is known."""
        top_k = check_count("top_k", top_k)
        resolved = self._resolver.for_each_image(targets, top_k, count)
        self._runner.check_room()

        def finish(request: Request, image: LoadedImage, outputs: ExplainOutputs, place: int) -> Explained:
            assert isinstance(request.targets, ResolvedTargets)
            return self._assembler.explained(request.source, image, outputs, place, request.targets, max(TOP_K, top_k))

        return self._explaining.run(_with_targets(images, resolved), finish, deadline, weights=weights)

    def feature_explanations(
        self, images: Iterable[ImageSource], deadline: Deadline, *, layer: Any, target: Any, top_k: int
    ) -> Outcomes[FeatureExplanation]:
        """Which activations of a layer speak for the target, like `explanations`."""
        top_k = check_count("top_k", top_k)
        index = find_layer(self._manifest, layer)
        resolved = self._resolver.for_each_image(None if target is None else [target], 1)
        first = next(resolved)
        if not isinstance(first, ResolvedTargets) or len(first.rows) != 1:
            raise InputError(
                f"target is {target!r}, expected one class or 'mean'", source="target", hint="Pass an index or a label."
            )
        self._runner.check_room()

        def finish(request: Request, image: LoadedImage, outputs: RelayOutputs, place: int) -> FeatureExplanation:
            assert isinstance(request.targets, ResolvedTargets)
            rows = request.targets.rows
            return feature_explanation(self._assembler, request.source, image, outputs, place, index, top_k, rows)

        requests = _with_targets(images, resolved)
        return self._predicting.run(requests, finish, deadline, relay=index)

    def features(self, images: Iterable[ImageSource], deadline: Deadline, *, layers: Any) -> Outcomes[Features]:
        """The activations of layers, like `predictions`."""
        indices = find_layers(self._manifest, layers)
        self._runner.check_room()

        def finish(request: Request, image: LoadedImage, outputs: FeatureOutputs, place: int) -> Features:
            return features_of(self._assembler, request.source, image, outputs, place, indices)

        requests = (Request(source_name(image, place), image) for place, image in enumerate(images))
        return self._predicting.run(requests, finish, deadline, features=indices)

    def layer_explanations(
        self,
        images: Iterable[ImageSource],
        deadline: Deadline,
        *,
        layer: Any,
        direction: Any,
        position: Any,
        count: int | None = None,
    ) -> Outcomes[LayerExplanation]:
        """Which pixels make a value of a layer, like `explanations`."""
        queries = layer_queries(self._manifest, layer, direction, position, count)
        self._runner.check_room()

        def finish(request: Request, image: LoadedImage, outputs: LayerOutputs, place: int) -> LayerExplanation:
            assert request.query is not None
            return layer_explanation(self._assembler, request.source, image, outputs, place, request.query)

        requests = (
            Request(source_name(image, place), image, query=query)
            for place, image, query in one_per_image(images, queries)
        )
        return self._explaining.run(requests, finish, deadline)

    def warmup(self) -> None:
        """Run both graphs with the smallest and the largest batch, and with several targets of one image.

        With isolated decoding, start the decoders as well.
        """
        if self._limits.decoding == "isolated":
            self._isolated.start()
        pixels, spec = np.full((*self._manifest.input.size, 3), 128, np.uint8), self._manifest.input
        image: npt.NDArray[Any] = stand_in(pixels, spec) if spec.channels == "none" else pixels
        several = min(2, self._manifest.ranks)
        for count, top_k in {(1, several), (1, 1), (self._max_batch, 1)}:
            images: list[ImageSource] = [image] * count
            predictions = self.predictions(images, Deadline(None), top_k=1)
            explanations = self.explanations(images, Deadline(None), targets=None, top_k=top_k, weights=False)
            for _, outcome in chain(predictions, explanations):
                if isinstance(outcome, BcosError):
                    raise outcome

    def close(self, deadline: Deadline) -> None:
        """Finish the images that wait for the device, and refuse new ones. After the deadline, drop them."""
        self._runner.close(deadline)
        self._decoders.close()
        self._decoders.cancel()  # do not wait: reading a file may block for ever
        self._isolated.close()


def _with_targets(images: Iterable[ImageSource], targets: Iterator[ResolvedTargets | BcosError]) -> Iterator[Request]:
    place = -1
    for place, image in enumerate(images):
        wanted = next(targets, None)
        if wanted is None:
            raise InputError(f"there are targets for {place} images, but more images", hint=_ONE_LIST_PER_IMAGE)
        yield Request(source_name(image, place), image, wanted)
    if not isinstance(targets, repeat) and next(targets, None) is not None:
        raise InputError(f"there are {place + 1} images, but targets for more", hint=_ONE_LIST_PER_IMAGE)
