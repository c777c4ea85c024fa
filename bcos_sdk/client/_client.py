"""`Client`: runs one exported model, for one caller or for many threads at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, overload

from typing_extensions import Self

from bcos_sdk.backends import Backend, open_backend
from bcos_sdk.bundle import Certificates, Manifest, PublicKey, Sigstore, Verification, find_bundle, parse_digest
from bcos_sdk.client._arguments import (
    TOP_K,
    Images,
    OnError,
    OnIncomplete,
    check_choice,
    check_count,
    check_threads,
    check_type,
    image_collection,
    image_list,
)
from bcos_sdk.client._async import CLOSE_TIMEOUT, AsyncCalls
from bcos_sdk.client._deadline import Deadline
from bcos_sdk.client._outcomes import collect, with_failures
from bcos_sdk.client._processor import ImageProcessor
from bcos_sdk.client._targets import Targets
from bcos_sdk.errors import ClientClosedError
from bcos_sdk.images import ImageSource, LoadedImage, is_one_image, load_image
from bcos_sdk.limits import Limits
from bcos_sdk.results import Explained, Failure, Prediction

__all__ = ["Client", "Model"]


@dataclass(frozen=True)
class Model:
    """A model that a client can run."""

    path: str
    manifest: Manifest
    open: Callable[[str, int | None, bool], Backend]
    """Opens the model on a device, with a number of threads, with or without TF32."""
    load: Callable[..., LoadedImage] = load_image
    """Loads one image, with the arguments of `load_image`."""


class Client(AsyncCalls):
    """Classifies images with an exported B-cos model, and explains each class by the contributions of the pixels.

        with Client("out/resnet50") as client:
            (prediction,) = client.predict("cat.jpg")
            (result,) = client.explain("cat.jpg")
            result.explanations[0].overlay().save("why.png")

    Create one client and share it between threads: calls that wait at the same time run as one batch. Before a graph is
    first used, a self-test compares it with the golden record of the bundle.

    Wherever images are expected, pass one image or a collection of images. An image is a path, bytes, a file opened in
    binary mode, a PIL image, an array [H, W, 3] or [H, W] (uint8, uint16, or float in 0 to 1), a torch tensor
    [3, H, W], or an encoded float array [6, H, W].

    Arguments:
        model: the folder of a bundle, or the name of an exported model in the local store. A text without a path
            separator is a name; write "./name" for a folder in the current one.
        device: "auto", "cpu", "openvino", "cuda", "cuda:1", "tensorrt". "auto" uses the first of TensorRT, CUDA,
            OpenVINO and CPU that works. A named device that does not work is an error.
        threads: number of CPU threads; by default one per core, at most 64 or four per core.
        max_batch: largest images × targets to compute at once; by default the batch that the bundle was exported for.
        tf32: let a GPU multiply with 11 significant bits. Faster; certificates then have the tolerance of fp16.
        trust_engines: run TensorRT engines in the bundle that you have not built. They are code of whoever built them.
        on_incomplete: what to do with an explanation whose terms do not add up to the logit. "raise": it is an error of
            its image. "flag": it is returned with `completeness.passed` false, and cannot be drawn or saved.
        limits: bounds on the size of images, calls and the queue. `Limits(decoding="isolated")` for images from
            strangers.
        sha256: the SHA-256 of the bundle's manifest.json, which has the hashes of all files. Another bundle is refused.
        verify: who must have signed the bundle: `PublicKey(…)`, `Certificates(…)` or `Sigstore(…)`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        device: str = "auto",
        threads: int | None = None,
        max_batch: int | None = None,
        tf32: bool = False,
        trust_engines: bool = False,
        on_incomplete: OnIncomplete = "raise",
        limits: Limits | None = None,
        sha256: str | None = None,
        verify: Verification | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "device": device,
            "threads": threads,
            "max_batch": max_batch,
            "tf32": tf32,
            "trust_engines": trust_engines,
            "on_incomplete": on_incomplete,
            "limits": limits,
            "sha256": sha256,
            "verify": verify,
        }
        check_choice("on_incomplete", on_incomplete, OnIncomplete)
        check_type("model", model, (str, os.PathLike))
        check_type("tf32", tf32, (bool,))
        check_type("trust_engines", trust_engines, (bool,))
        check_type("limits", limits, (Limits, type(None)))
        check_type("verify", verify, (PublicKey, Certificates, Sigstore, type(None)))
        if sha256 is not None:
            parse_digest(sha256)
        threads = None if threads is None else check_threads(threads)
        self._process = os.getpid()
        self._limits = limits or Limits()
        super().__init__(self._limits.queue)
        bundle = self._find(model)
        self._path = bundle.path
        self._manifest = bundle.manifest
        largest = self._manifest.max_batch
        advice = " The bundle was checked up to this batch. Export it with a larger --max-batch."
        self._max_batch = check_count(
            "max_batch", largest if max_batch is None else max_batch, largest=largest, advice=advice
        )
        backend = bundle.open(device, threads, tf32)
        self._device = str(backend.device)
        self._processor = ImageProcessor(
            self._manifest,
            backend,
            max_batch=self._max_batch,
            on_incomplete=on_incomplete,
            limits=self._limits,
            load=bundle.load,
        )

    def _find(self, model: str | os.PathLike[str]) -> Model:
        """What the client runs. A client for tests replaces it."""
        bundle = find_bundle(model, sha256=self._options["sha256"], verify=self._options["verify"])
        return Model(
            path=str(bundle.path.resolve()),
            manifest=bundle.manifest,
            open=lambda device, threads, tf32: open_backend(
                bundle, device, threads=threads, tf32=tf32, trust_engines=self._options["trust_engines"]
            ),
        )

    @property
    def manifest(self) -> Manifest:
        """The manifest of the bundle: the model, its input, its labels, and the errors measured at export."""
        return self._manifest

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of every class; the index as text if the model has no labels."""
        return self._manifest.labels or tuple(map(str, range(self._manifest.classes)))

    @property
    def device(self) -> str:
        """The device that is used: "cpu", "cuda:0", …"""
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
        """Return the `top_k` most likely classes of each image, in the order of the images.

        If some images fail, the others are finished first. Then `on_error="raise"` raises an `ImagesFailedError` that
        has all results, or for a single image its own error. With "return" the list has a `Failure` for each image that
        failed. Images that are not finished after `timeout` seconds fail. Your own code runs in this thread: while an
        iterator or a file of yours blocks, the call cannot end. `apredict` ends even then.
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
        """Return how much each pixel contributes to the `top_k` most likely classes of each image, or to `targets`.

        A target is a class index, a label, "mean" for the mean of all logits, or a `Contrast` of two ("tabby vs lynx").
        Pass one target, a list of targets for all images, or a list of lists with one list for each image.
        `weights=True` also returns W(x), which `rgba()` needs. `on_error` and `timeout` are as in `predict`.
        """
        return self._explain(images, targets, top_k, weights, on_error, Deadline(timeout))

    def predict_stream(self, images: Iterable[ImageSource], *, top_k: int = TOP_K) -> Iterator[Prediction | Failure]:
        """`predict` for any number of images in constant memory. Images are read a few batches ahead of the results."""
        self._check_process()
        return with_failures(
            self._processor.predictions(image_collection(images), Deadline(None), top_k=top_k), self._check_process
        )

    def explain_stream(
        self, images: Iterable[ImageSource], *, targets: Targets = None, top_k: int = 1, weights: bool = False
    ) -> Iterator[Explained | Failure]:
        """`explain` for any number of images in constant memory. Images are read a few batches ahead of the results."""
        self._check_process()
        outcomes = self._processor.explanations(
            image_collection(images), Deadline(None), targets=targets, top_k=top_k, weights=weights
        )
        return with_failures(outcomes, self._check_process)

    def warmup(self) -> None:
        """Load the graphs and run them once with the smallest and the largest batch, and with several targets.

        Later calls then do not include the time for loading, compiling and the self-test.
        """
        self._check_process()
        self._processor.warmup()

    def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Finish waiting images, refuse new calls, and free threads and memory. A second call does nothing.

        It always returns, about two seconds after `timeout` at the latest; with None only when all is finished. After
        `timeout` seconds, images that are not finished fail with `ClientClosedError`, and the running batch is told to
        stop. ONNX Runtime and OpenVINO then stop after the operator that they compute. TensorRT cannot stop. A run that
        does not stop is left behind in its thread, with a warning in the log. It does not keep the process alive.
        """
        deadline = Deadline(timeout)
        if os.getpid() == self._process:
            self._processor.close(deadline)
            self._close_async(deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Sessions and threads cannot be pickled. The other process opens the bundle again with the same options.
        return partial(type(self), self._path, **self._options), ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r}, device={self._device!r}, max_batch={self._max_batch})"

    def _predict(self, images: Images, top_k: int, on_error: OnError, deadline: Deadline) -> Any:
        listed = self._listed(images, on_error, deadline)
        outcomes = self._processor.predictions(listed, deadline, top_k=top_k)
        return collect(outcomes, on_error=on_error, single=is_one_image(images))

    def _explain(
        self, images: Images, targets: Targets, top_k: int, weights: bool, on_error: OnError, deadline: Deadline
    ) -> Any:
        listed = self._listed(images, on_error, deadline)
        outcomes = self._processor.explanations(
            listed, deadline, targets=targets, top_k=top_k, weights=weights, count=len(listed)
        )
        return collect(outcomes, on_error=on_error, single=is_one_image(images))

    def _listed(self, images: Images, on_error: OnError, deadline: Deadline) -> list[ImageSource]:
        self._check_process()
        check_choice("on_error", on_error, OnError)
        return image_list(images, self._limits.images, deadline)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ClientClosedError(
                "the client was created in another process, before a fork",
                hint="Create the client in the process that uses it. A pickled client opens its bundle again.",
            )
