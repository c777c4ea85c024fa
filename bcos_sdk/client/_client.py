"""`Client`: runs one exported model, for one caller or for many threads at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, overload

from typing_extensions import Self

from bcos_sdk.backends import Backend, Remote, connect, is_address, open_backend
from bcos_sdk.bundle import Certificates, Manifest, PublicKey, Sigstore, Verification, find_bundle, parse_digest
from bcos_sdk.client._arguments import (
    TOP_K,
    Images,
    OnError,
    OnIncomplete,
    check_choice,
    check_count,
    check_local,
    check_remote,
    check_size,
    check_threads,
    check_type,
    image_collection,
    image_list,
)
from bcos_sdk.client._async import CLOSE_TIMEOUT, AsyncCalls
from bcos_sdk.client._deadline import Deadline
from bcos_sdk.client._layers import Direction, Position
from bcos_sdk.client._outcomes import collect, with_failures
from bcos_sdk.client._processor import ImageProcessor
from bcos_sdk.client._targets import Pixel, Targets
from bcos_sdk.contract import ExplainOutputs, Floats, Integers, Precision
from bcos_sdk.errors import ClientClosedError
from bcos_sdk.images import ImageSource, LoadedImage, is_one_image, load_image
from bcos_sdk.limits import Limits
from bcos_sdk.results import (
    Completeness,
    Explained,
    Failure,
    FeatureExplanation,
    Features,
    LayerExplanation,
    Prediction,
)

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
    max_batch: int | None = None
    """The largest batch, if it is smaller than that of the manifest."""
    exported: Manifest | None = None
    """The manifest as it was exported, if the model runs at another size of its input."""
    golden: memoryview | None = None
    """The file of the golden record."""


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
            separator is a name; write "./name" for a folder in the current one. Or the address of a model behind a
            server: "http://host:8000/NAME", "https://…", "grpc://host:8001/NAME", "grpcs://…".
        device: "auto", "cpu", "openvino", "cuda", "cuda:1", "tensorrt". "auto" uses the first of TensorRT, CUDA,
            OpenVINO and CPU that works. A named device that does not work is an error.
        threads: number of CPU threads; by default one per core, at most 64 or four per core.
        max_batch: largest images × targets to compute at once; by default the batch that the bundle was exported for.
            On device "tensorrt" it bounds images and targets each.
        fixed_batch: fill batches that are not full with copies of an image. Runtimes round differently for batches of
            another size, so that otherwise the last bits of a result may depend on how many images run together. A
            single image then takes the time of a full batch.
        tf32: let a GPU multiply with 11 significant bits. Faster; certificates then have the tolerance of fp16.
        trust_engines: run TensorRT engines in the bundle that you have not built. They are code of whoever built them.
        cuda_graphs: on device "tensorrt", launch the kernels of a repeated shape together. Not yet run on a GPU.
        on_incomplete: what to do with an explanation whose terms do not add up to the logit. "raise": it is an error of
            its image. "flag": it is returned with `completeness.passed` false, and cannot be drawn or saved.
        limits: bounds on the size of images, calls and the queue. `Limits(decoding="isolated")` for images from
            strangers.
        input_size: height and width of the input, or one number for both, if the bundle was exported for several sizes;
            by default the first of them, see `manifest.input_sizes`.
        sha256: the SHA-256 of the bundle's manifest.json, which has the hashes of all files. Another bundle is refused.
        verify: who must have signed the bundle: `PublicKey(…)`, `Certificates(…)` or `Sigstore(…)`.
        remote: how to reach a server: token, time limits, retries, connections. Only for an address.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        device: str = "auto",
        threads: int | None = None,
        max_batch: int | None = None,
        fixed_batch: bool = False,
        tf32: bool = False,
        trust_engines: bool = False,
        cuda_graphs: bool = False,
        on_incomplete: OnIncomplete = "raise",
        limits: Limits | None = None,
        input_size: int | tuple[int, int] | None = None,
        sha256: str | None = None,
        verify: Verification | None = None,
        remote: Remote | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "device": device,
            "threads": threads,
            "max_batch": max_batch,
            "fixed_batch": fixed_batch,
            "tf32": tf32,
            "trust_engines": trust_engines,
            "cuda_graphs": cuda_graphs,
            "on_incomplete": on_incomplete,
            "limits": limits,
            "input_size": input_size,
            "sha256": sha256,
            "verify": verify,
            "remote": remote,
        }
        check_choice("on_incomplete", on_incomplete, OnIncomplete)
        check_type("model", model, (str, os.PathLike))
        check_type("fixed_batch", fixed_batch, (bool,))
        check_type("tf32", tf32, (bool,))
        check_type("trust_engines", trust_engines, (bool,))
        check_type("cuda_graphs", cuda_graphs, (bool,))
        check_type("limits", limits, (Limits, type(None)))
        check_type("verify", verify, (PublicKey, Certificates, Sigstore, type(None)))
        check_type("remote", remote, (Remote, type(None)))
        if sha256 is not None:
            parse_digest(sha256)
        threads = None if threads is None else check_threads(threads)
        self._process = os.getpid()
        self._limits = limits or Limits()
        super().__init__(self._limits.queue)
        bundle = self._find(model)
        self._path = bundle.path
        self._manifest = bundle.manifest
        self._exported = bundle.exported or bundle.manifest
        self._golden = bundle.golden
        largest = bundle.max_batch or self._manifest.max_batch
        advice = " The bundle was checked up to this batch. Export it with a larger --max-batch."
        if bundle.max_batch is not None:
            advice = " The server takes no larger one."
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
            fixed_batch=fixed_batch,
            load=bundle.load,
        )

    def _find(self, model: str | os.PathLike[str]) -> Model:
        """What the client runs. A client for tests replaces it."""
        size = None if self._options["input_size"] is None else check_size("input_size", self._options["input_size"])
        if is_address(model):
            return self._find_remote(str(model), size)
        check_local(self._options["remote"])
        bundle = find_bundle(model, sha256=self._options["sha256"], verify=self._options["verify"])
        exported = bundle.manifest
        if size is not None:
            bundle = bundle.at_size(size)
        return Model(
            path=str(bundle.path.resolve()),
            manifest=bundle.manifest,
            open=lambda device, threads, tf32: open_backend(
                bundle,
                device,
                threads=threads,
                tf32=tf32,
                trust_engines=self._options["trust_engines"],
                cuda_graphs=self._options["cuda_graphs"],
            ),
            exported=exported,
            golden=bundle.contents[bundle.manifest.golden],
        )

    def _find_remote(self, address: str, size: tuple[int, int] | None) -> Model:
        check_remote(self._options)
        remote = self._options["remote"] or Remote()
        found = connect(address, remote, sha256=self._options["sha256"], verify=self._options["verify"], size=size)
        return Model(
            path=found.address,
            manifest=found.manifest,
            open=lambda *_options: found.backend,
            max_batch=found.max_batch,
            exported=found.exported,
            golden=found.golden,
        )

    @property
    def manifest(self) -> Manifest:
        """The manifest of the bundle: the model, its input, its labels, and the errors measured at export."""
        return self._manifest

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of every class; the index as text if the model has no labels."""
        named = self._manifest.classes if self._manifest.map is None else self._manifest.map[0]
        return self._manifest.labels or tuple(map(str, range(named)))

    @property
    def device(self) -> str:
        """The device that is used: "cpu", "cuda:0", …; the address of a model behind a server."""
        return self._device

    @property
    def precision(self) -> Precision:
        """What the device computes convolutions and matrix products with; of a server, what it says."""
        return self._processor.precision

    @property
    def exported_manifest(self) -> Manifest:
        """The manifest as it was exported: of all sizes of the input, whatever `input_size` was chosen."""
        return self._exported

    @property
    def golden_record(self) -> memoryview | None:
        """The file of the golden record, with which others can test this model; None if there is none."""
        return self._golden

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
        For a network that returns a map, it is a `Pixel` ("road @ 12:30", row and column of the map) or a `Region`.
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

    @property
    def layers(self) -> tuple[str, ...]:
        """The paths of the inner layers that the bundle was exported with: see `explain_layer`."""
        return tuple(one.path for one in self._manifest.layer_records)

    @overload
    def features(
        self,
        images: Images,
        *,
        layers: str | Iterable[str] | None = ...,
        on_error: Literal["raise"] = ...,
        timeout: float | None = ...,
    ) -> list[Features]: ...
    @overload
    def features(
        self,
        images: Images,
        *,
        layers: str | Iterable[str] | None = ...,
        on_error: OnError,
        timeout: float | None = ...,
    ) -> list[Features | Failure]: ...
    def features(
        self,
        images: Images,
        *,
        layers: str | Iterable[str] | None = None,
        on_error: OnError = "raise",
        timeout: float | None = None,
    ) -> Any:
        """Return the activations of inner layers, by default of all: `client.features("cat.jpg")[0]["layer3"]`.

        The graph computes no explanation. `on_error` and `timeout` are as in `predict`.
        """
        deadline = Deadline(timeout)
        listed = self._listed(images, on_error, deadline)
        outcomes = self._processor.features(listed, deadline, layers=layers)
        return collect(outcomes, on_error=on_error, single=is_one_image(images))

    def features_stream(
        self, images: Iterable[ImageSource], *, layers: str | Iterable[str] | None = None
    ) -> Iterator[Features | Failure]:
        """`features` for any number of images in constant memory."""
        self._check_process()
        outcomes = self._processor.features(image_collection(images), Deadline(None), layers=layers)
        return with_failures(outcomes, self._check_process)

    def explain_features(
        self,
        images: Images,
        *,
        layer: str,
        target: int | str | Pixel | None = None,
        top_k: int = TOP_K,
        on_error: OnError = "raise",
        timeout: float | None = None,
    ) -> Any:
        """Return which activations of a layer add most to a logit, and where: a `FeatureExplanation`.

        For one image it is the result itself, for a collection a list. `target` is a class index, a label or "mean"; by
        default the most likely class. If every path from the image to the logits passes the layer, the contributions of
        its activations and the bias terms above it add up to the logit, which is certified. Otherwise the layer is
        `partial`: its contributions are a share of the logit, without a certificate.
        """
        return self._explain_features(images, layer, target, top_k, on_error, Deadline(timeout))

    def explain_layer(
        self,
        images: Images,
        *,
        layer: str,
        direction: Direction | list[Direction],
        position: Position | list[Position] = "max",
        on_error: OnError = "raise",
        timeout: float | None = None,
    ) -> Any:
        """Return how much each pixel adds to ⟨direction, activation⟩ of a layer at a position: a `LayerExplanation`.

        For one image it is the result itself, for a collection a list. A direction is a channel, or an array with one
        number per channel. A position is (y, x), the index of a token, "max" for the position of the largest value, or
        "mean" over all. Pass one of each for all images, or lists with one for each image.
        """
        return self._explain_layer(images, layer, direction, position, on_error, Deadline(timeout))

    def explain_features_stream(
        self, images: Iterable[ImageSource], *, layer: str, target: int | str | Pixel | None = None, top_k: int = TOP_K
    ) -> Iterator[FeatureExplanation | Failure]:
        """`explain_features` for any number of images in constant memory."""
        self._check_process()
        outcomes = self._processor.feature_explanations(
            image_collection(images), Deadline(None), layer=layer, target=target, top_k=top_k
        )
        return with_failures(outcomes, self._check_process)

    def explain_layer_stream(
        self,
        images: Iterable[ImageSource],
        *,
        layer: str,
        direction: Direction | list[Direction],
        position: Position | list[Position] = "max",
    ) -> Iterator[LayerExplanation | Failure]:
        """`explain_layer` for any number of images in constant memory."""
        self._check_process()
        outcomes = self._processor.layer_explanations(
            image_collection(images), Deadline(None), layer=layer, direction=direction, position=position
        )
        return with_failures(outcomes, self._check_process)

    async def apredict_tensors(self, images: Floats, *, timeout: float | None = None) -> Floats:
        """Encoded images [B, 6, H, W] → logits [B, classes], as the predict graph computes them.

        For servers that speak in tensors. B × targets is at most `max_batch`; calls that wait run as one batch.
        """
        self._check_process()
        return await self._processor.tensors.predict(images, Deadline(timeout))

    async def aexplain_tensors(
        self, images: Floats, targets: Integers, *, weights: bool = False, timeout: float | None = None
    ) -> tuple[ExplainOutputs, list[Completeness]]:
        """Encoded images and targets [B, K] → the outputs of the explain graph, and a certificate for each target.

        Targets are those of `bcos_sdk.contract`. An explanation that is not complete is an error.
        """
        self._check_process()
        return await self._processor.tensors.explain(images, targets, Deadline(timeout), weights=weights)

    @property
    def max_batch(self) -> int:
        """The largest images × targets that are computed at once."""
        return self._max_batch

    @property
    def waiting(self) -> int:
        """The number of images that wait for the device."""
        return self._processor.runner.waiting

    def watch_batches(self, watcher: Callable[[int], None]) -> None:
        """Call `watcher` with the number of images of each batch that runs, for metrics. It must return at once."""
        self._processor.runner.watch(watcher)

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

    def _explain_features(
        self, images: Images, layer: str, target: Any, top_k: int, on_error: OnError, deadline: Deadline
    ) -> Any:
        single = is_one_image(images)
        listed = self._listed(images, on_error, deadline)
        outcomes = self._processor.feature_explanations(listed, deadline, layer=layer, target=target, top_k=top_k)
        results = collect(outcomes, on_error=on_error, single=single)
        return results[0] if single else results

    def _explain_layer(
        self, images: Images, layer: str, direction: Any, position: Any, on_error: OnError, deadline: Deadline
    ) -> Any:
        single = is_one_image(images)
        listed = self._listed(images, on_error, deadline)
        outcomes = self._processor.layer_explanations(
            listed, deadline, layer=layer, direction=direction, position=position, count=len(listed)
        )
        results = collect(outcomes, on_error=on_error, single=single)
        return results[0] if single else results

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
