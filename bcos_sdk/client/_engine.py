"""What a client is made of: decoders, the device's queue, and what the numbers mean."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import Any, TypeAlias, TypeVar

from bcos_sdk.backends import Backend
from bcos_sdk.bundle import Manifest
from bcos_sdk.client._arguments import whole_number
from bcos_sdk.client._assemble import Assembler, OnIncomplete
from bcos_sdk.client._batches import BatchRunner
from bcos_sdk.client._deadline import Deadline
from bcos_sdk.client._pipeline import Pipeline, Request
from bcos_sdk.client._targets import ResolvedTargets, TargetResolver, Targets
from bcos_sdk.contract import ExplainOutputs
from bcos_sdk.errors import BcosError, InputError
from bcos_sdk.images import ImageSource, LoadedImage, load_image, source_name
from bcos_sdk.limits import Limits
from bcos_sdk.results import Explained, Prediction

__all__ = ["TOP_K", "Engine", "Outcomes"]

TOP_K = 5
_MOST_DECODERS = 8

Result = TypeVar("Result")
Outcomes: TypeAlias = Iterator[tuple[str, Result | BcosError]]


class Engine:
    """Turns images into outcomes, in order: a result or an error for each."""

    def __init__(
        self, manifest: Manifest, backend: Backend, *, max_batch: int, on_incomplete: OnIncomplete, limits: Limits
    ) -> None:
        self._manifest = manifest
        self._assembler = Assembler(manifest, on_incomplete, backend.precision)
        self._resolver = TargetResolver(manifest)
        self._decoders = ThreadPoolExecutor(
            min(_MOST_DECODERS, os.cpu_count() or 1), thread_name_prefix="bcos-sdk-decoder"
        )
        self._runner = BatchRunner(backend, max_batch=max_batch, queue=limits.queue)
        load = partial(load_image, spec=manifest.input, limits=limits)
        self._pipeline = Pipeline(load, self._decoders, self._runner)

    def predictions(self, images: Iterable[ImageSource], deadline: Deadline, *, top_k: int) -> Outcomes[Prediction]:
        """Wrong arguments are refused here and now; images are taken as the outcomes are."""
        top_k = whole_number("top_k", top_k)
        self._runner.check_room()

        def finish(request: Request, _image: LoadedImage, logits: Any, place: int) -> Prediction:
            return self._assembler.prediction(request.source, logits[place], top_k)

        requests = (Request(source_name(image, place), image) for place, image in enumerate(images))
        return self._pipeline.run(requests, finish, deadline)

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
        """The same with explanations; `count` is the number of images, where it is known."""
        top_k = whole_number("top_k", top_k)
        resolved = self._resolver.for_each_image(targets, top_k, count)
        self._runner.check_room()

        def finish(request: Request, image: LoadedImage, outputs: ExplainOutputs, place: int) -> Explained:
            assert isinstance(request.targets, ResolvedTargets)
            return self._assembler.explained(request.source, image, outputs, place, request.targets, max(TOP_K, top_k))

        return self._pipeline.run(_with_targets(images, resolved), finish, deadline, weights=weights)

    def close(self) -> None:
        """Finish what waits for the device, refuse the rest."""
        self._runner.close()
        self._decoders.shutdown(wait=False, cancel_futures=True)  # a file that cannot be read to its end may block


def _with_targets(images: Iterable[ImageSource], targets: Iterator[ResolvedTargets | BcosError]) -> Iterator[Request]:
    place = -1
    for place, image in enumerate(images):
        wanted = next(targets, None)
        if wanted is None:
            raise InputError(f"targets for {place} images, but there are more images")
        yield Request(source_name(image, place), image, wanted)
    if not isinstance(targets, repeat) and next(targets, None) is not None:
        raise InputError(f"{place + 1} images, but there are targets for more")
