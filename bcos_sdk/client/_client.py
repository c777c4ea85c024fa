"""`Client`: predictions and certified explanations from a bundle, for one caller or for many at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from types import TracebackType
from typing import Any, Literal, overload

import numpy as np
from typing_extensions import Self

from bcos_sdk.backends import open_backend
from bcos_sdk.bundle import Manifest, find_bundle
from bcos_sdk.client._arguments import image_collection, of_a_kind, one_of, whole_number
from bcos_sdk.client._assemble import OnIncomplete
from bcos_sdk.client._async import AsyncCalls
from bcos_sdk.client._deadline import Deadline
from bcos_sdk.client._engine import TOP_K, Engine
from bcos_sdk.client._outcomes import Images, OnError, collect, in_place
from bcos_sdk.client._targets import Targets
from bcos_sdk.errors import BcosError, ClientClosedError, ImageTooLargeError
from bcos_sdk.images import ImageSource, encode, is_one_image
from bcos_sdk.limits import Limits
from bcos_sdk.results import Explained, Failure, Prediction

__all__ = ["Client"]


class Client(AsyncCalls):
    """Runs one exported model. Share it between threads: their calls are merged into batches.

    `model` is the folder of a bundle, or the name of an exported model in the local store. `device` is "auto", "cpu",
    "openvino", "cuda", "cuda:1", "tensorrt", …: a named device that does not work is an error. `threads` are those of
    the CPU, by default one per core. `max_batch` bounds images × targets computed at once, `limits` what is taken in.
    `tf32` lets a GPU multiply with 11 binary digits; certificates then have the tolerance of half precision, and say
    so.

    An explanation that does not add up is the failure of its image; with `on_incomplete="flag"` it is returned with
    `completeness.passed` false, and cannot be drawn.

    Wherever images are taken, one image may be given alone. An image is a path, bytes, a binary file, a PIL image, a
    numpy array uint8 [H, W, 3], or one that is encoded already: float [6, H, W].
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        device: str = "auto",
        threads: int | None = None,
        max_batch: int | None = None,
        tf32: bool = False,
        on_incomplete: OnIncomplete = "raise",
        limits: Limits | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "device": device,
            "threads": threads,
            "max_batch": max_batch,
            "tf32": tf32,
            "on_incomplete": on_incomplete,
            "limits": limits,
        }
        one_of("on_incomplete", on_incomplete, OnIncomplete)
        of_a_kind("model", model, (str, os.PathLike))
        of_a_kind("tf32", tf32, (bool,))
        of_a_kind("limits", limits, (Limits, type(None)))
        threads = None if threads is None else whole_number("threads", threads)
        self._process = os.getpid()
        self._limits = limits or Limits()
        super().__init__(self._limits.queue)
        bundle = find_bundle(model)
        self._path = str(bundle.path.resolve())
        self._manifest = bundle.manifest
        largest = self._manifest.max_batch
        advice = " The bundle was checked for no more: export it with a larger --max-batch."
        self._max_batch = whole_number(
            "max_batch", largest if max_batch is None else max_batch, largest=largest, advice=advice
        )
        backend = open_backend(bundle, device, threads=threads, tf32=tf32)
        self._device = str(backend.device)
        self._engine = Engine(
            self._manifest, backend, max_batch=self._max_batch, on_incomplete=on_incomplete, limits=self._limits
        )

    @property
    def manifest(self) -> Manifest:
        """What the bundle says of itself: the model, its input, its labels, what was measured at export."""
        return self._manifest

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of every class; numbers if the model has no names."""
        return self._manifest.labels or tuple(map(str, range(self._manifest.classes)))

    @property
    def device(self) -> str:
        """Where it really runs: "cpu", "cuda:0", …"""
        return self._device

    @overload
    def predict(
        self, images: Images, *, top_k: int = ..., on_error: Literal["raise"] = ..., timeout: float | None = ...
    ) -> list[Prediction]: ...
    @overload
    def predict(
        self, images: Images, *, top_k: int = ..., on_error: OnError, timeout: float | None = ...
    ) -> list[Prediction | Failure]: ...
    def predict(
        self, images: Images, *, top_k: int = TOP_K, on_error: OnError = "raise", timeout: float | None = None
    ) -> Any:
        """The most likely classes of each image, in the order of the images; the explain graph is not touched.

        If some images fail the others are done first. Then `on_error="raise"` raises an `ImagesFailedError` with all
        results; "return" puts a `Failure` in its place. Images not done after `timeout` seconds fail.
        """
        return self._predict(images, top_k, on_error, Deadline(timeout))

    @overload
    def explain(
        self,
        images: Images,
        *,
        targets: Targets = ...,
        top_k: int = ...,
        weights: bool = ...,
        on_error: Literal["raise"] = ...,
        timeout: float | None = ...,
    ) -> list[Explained]: ...
    @overload
    def explain(
        self,
        images: Images,
        *,
        targets: Targets = ...,
        top_k: int = ...,
        weights: bool = ...,
        on_error: OnError,
        timeout: float | None = ...,
    ) -> list[Explained | Failure]: ...
    def explain(
        self,
        images: Images,
        *,
        targets: Targets = None,
        top_k: int = 1,
        weights: bool = False,
        on_error: OnError = "raise",
        timeout: float | None = None,
    ) -> Any:
        """Which pixels speak for the `top_k` most likely classes of each image, or for `targets`.

        A target is a class index, a label, "mean" (of all logits), or a `Contrast` of two ("tabby vs lynx"). Give one,
        a list for all images, or a list of lists with one for each image. `weights=True` adds W(x), from which
        `rgba()` is drawn. Failures and `timeout` are as in `predict`.
        """
        return self._explain(images, targets, top_k, weights, on_error, Deadline(timeout))

    def predict_stream(self, images: Iterable[ImageSource], *, top_k: int = TOP_K) -> Iterator[Prediction | Failure]:
        """`predict` for any number of images in constant memory: a few batches ahead of whoever takes the results."""
        self._check_process()
        return in_place(self._engine.predictions(image_collection(images), Deadline(None), top_k=top_k))

    def explain_stream(
        self, images: Iterable[ImageSource], *, targets: Targets = None, top_k: int = 1, weights: bool = False
    ) -> Iterator[Explained | Failure]:
        """`explain` for any number of images in constant memory."""
        self._check_process()
        outcomes = self._engine.explanations(
            image_collection(images), Deadline(None), targets=targets, top_k=top_k, weights=weights
        )
        return in_place(outcomes)

    def warmup(self) -> None:
        """Load the graphs and run them at the smallest and the largest batch, and with several targets of one image.

        No real call pays for it then.
        """
        self._check_process()
        image = encode(np.full((*self._manifest.input.size, 3), 128, np.uint8))
        several = min(2, self._manifest.ranks)
        for count, top_k in {(1, several), (1, 1), (self._max_batch, 1)}:
            predictions = self._engine.predictions([image] * count, Deadline(None), top_k=1)
            explanations = self._engine.explanations(
                [image] * count, Deadline(None), targets=None, top_k=top_k, weights=False
            )
            for _, outcome in chain(predictions, explanations):
                if isinstance(outcome, BcosError):
                    raise outcome

    def close(self) -> None:
        """Finish what waits for the device, refuse the rest, give back threads and memory. Closing twice is fine."""
        if os.getpid() == self._process:
            self._engine.close()
            self._async_threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Sessions and threads do not travel: another process opens the bundle again with the same options.
        return _rebuild, (type(self), self._path, self._options)

    def __repr__(self) -> str:
        return f"Client({self._path!r}, device={self._device!r}, max_batch={self._max_batch})"

    def _predict(self, images: Images, top_k: int, on_error: OnError, deadline: Deadline) -> Any:
        listed = self._listed(images, on_error)
        outcomes = self._engine.predictions(listed, deadline, top_k=top_k)
        return collect(outcomes, on_error=on_error, lone=is_one_image(images))

    def _explain(
        self, images: Images, targets: Targets, top_k: int, weights: bool, on_error: OnError, deadline: Deadline
    ) -> Any:
        listed = self._listed(images, on_error)
        outcomes = self._engine.explanations(
            listed, deadline, targets=targets, top_k=top_k, weights=weights, count=len(listed)
        )
        return collect(outcomes, on_error=on_error, lone=is_one_image(images))

    def _listed(self, images: Images, on_error: OnError) -> list[ImageSource]:
        self._check_process()
        one_of("on_error", on_error, OnError)
        listed = list(islice(image_collection(images), self._limits.images + 1))
        if len(listed) > self._limits.images:
            raise ImageTooLargeError(
                f"more than {self._limits.images:,} images in one call",
                hint="Use predict_stream or explain_stream, or raise Limits(images=…).",
            )
        return listed

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ClientClosedError(
                "this client was made in another process, before a fork",
                hint="Make the client in the process that uses it; a pickled client does so by itself.",
            )


def _rebuild(kind: type[Client], model: str, options: dict[str, Any]) -> Client:
    return kind(model, **options)
