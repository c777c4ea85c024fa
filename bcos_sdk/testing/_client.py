"""A client for tests: the machinery of `Client` over a small linear model."""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from bcos_sdk.backends import RUNTIMES, Device, Remote, parse_device
from bcos_sdk.bundle import Manifest, ModelRecord, Verification
from bcos_sdk.client import Client, Model
from bcos_sdk.contract import MOST_RANKS, TOLERANCES, InputSpec, Probability
from bcos_sdk.errors import BcosError, InputError
from bcos_sdk.images import ImageSource, LoadedImage, load_image
from bcos_sdk.limits import Limits
from bcos_sdk.testing._backend import LinearBackend

__all__ = ["FakeClient"]

Failing: TypeAlias = Mapping[str, BcosError] | Callable[[ImageSource], BcosError | None]

_LABELS = ("bird", "car", "cat", "dog", "ship")
_MAX_BATCH = 8


class FakeClient(Client):
    """A `Client` that needs no bundle and no runtime. Its results are complete, certified and the same on each run.

        with FakeClient(labels=["cat", "dog"], fail={"bad.jpg": UnreadableImageError("…")}) as client:
            (result,) = client.explain(image)

    It loads images, checks arguments, limits and deadlines, queues calls and certifies explanations with the code of
    `Client`. Only the model differs: logits = W·x + b with a fixed W. The classes have nothing to do with the image.
    It takes the arguments of `Client`, so that it can replace the class in the module under test:

        monkeypatch.setattr(service, "Client", FakeClient)

    Arguments:
        model: the name of the model in results. No file is read.
        device: checked as in `Client` and reported; "auto" is reported as "cpu".
        tf32: as in `Client`, changes precision and tolerance of certificates on a GPU, and nothing on other devices.
        sha256, verify, remote: checked for their type. There is no bundle that they could refuse, and no server.
        labels: the label of each class.
        input_size: height and width of the network's input, or one number for both.
        probability: how logits become probabilities; "none" for values without one.
        fail: images that fail, as a dictionary from `source` to the error, or as a function that takes an image and
            returns its error or None. The function gets paths as text.
        delay: seconds that each batch takes, for tests of timeouts and full queues.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "fake",
        *,
        device: str = "auto",
        threads: int | None = None,
        max_batch: int | None = None,
        fixed_batch: bool = False,
        tf32: bool = False,
        trust_engines: bool = False,
        cuda_graphs: bool = False,
        on_incomplete: Literal["raise", "flag"] = "raise",
        limits: Limits | None = None,
        sha256: str | None = None,
        verify: Verification | None = None,
        remote: Remote | None = None,
        labels: Sequence[str] = _LABELS,
        input_size: int | tuple[int, int] = 64,
        probability: Probability = "softmax",
        fail: Failing | None = None,
        delay: float = 0.0,
    ) -> None:
        self._fake_options: dict[str, Any] = {
            "labels": _checked_labels(labels),
            "input_size": input_size,
            "probability": probability,
            "fail": fail,
            "delay": delay,
        }
        if probability not in get_args(Probability):
            raise InputError(
                f'probability is {probability!r}, expected "sigmoid", "softmax" or "none"',
                source="probability",
                hint="Use one of these.",
            )
        _check_delay(delay)
        super().__init__(
            model,
            device=device,
            threads=threads,
            max_batch=max_batch,
            fixed_batch=fixed_batch,
            tf32=tf32,
            trust_engines=trust_engines,
            cuda_graphs=cuda_graphs,
            on_incomplete=on_incomplete,
            limits=limits,
            sha256=sha256,
            verify=verify,
            remote=remote,
        )

    def _find(self, model: str | os.PathLike[str]) -> Model:
        options = self._fake_options
        manifest = _manifest(os.fspath(model), options["labels"], options["input_size"], options["probability"])

        def open_model(device: str, _threads: int | None, tf32: bool) -> LinearBackend:
            chosen = parse_device(device) or Device(RUNTIMES[-1])
            return LinearBackend(chosen, manifest.classes, manifest.input.size, tf32=tf32, delay=options["delay"])

        return Model(os.fspath(model), manifest, open_model, partial(_load_or_fail, options["fail"]))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self._path, **{**self._options, **self._fake_options}), ()


def _load_or_fail(
    fail: Failing | None, image: ImageSource, source: str, spec: InputSpec, limits: Limits, **options: Any
) -> LoadedImage:
    """`load_image`, but raise the error that the test wants for this image."""
    error = None if fail is None else fail(image) if callable(fail) else fail.get(source)
    if error is not None:
        raise copy.copy(error)  # one error may be wanted for many images, in several threads
    return load_image(image, source, spec, limits, **options)


def _check_delay(delay: Any) -> None:
    if not isinstance(delay, (int, float)) or not 0 <= delay < math.inf:
        raise InputError(f"delay is {delay!r}, expected seconds", source="delay", hint="Pass 0 or more seconds.")


def _checked_labels(labels: Sequence[str]) -> tuple[str, ...]:
    given: Sequence[Any] = labels
    if isinstance(labels, str) or not given or not all(isinstance(label, str) and label.strip() for label in given):
        raise InputError(
            f"labels is {labels!r}, expected the label of each class",
            source="labels",
            hint='Pass a list of text that is not empty, for example ["cat", "dog"].',
        )
    return tuple(labels)


def _manifest(
    name: str, labels: tuple[str, ...], input_size: int | tuple[int, int], probability: Probability
) -> Manifest:
    try:
        size = (input_size, input_size) if isinstance(input_size, int) else input_size
        if any(isinstance(side, bool) for side in size):
            raise TypeError("True is no size")
        spec = InputSpec(size=size, resize=round(max(size) * 256 / 224), crop=size)
    except (TypeError, ValueError):  # pydantic's error is a ValueError
        raise InputError(
            f"input_size is {input_size!r}, expected height and width in pixels",
            source="input_size",
            hint="Pass one number or (height, width).",
        ) from None
    return Manifest(
        model=ModelRecord(
            name=os.path.basename(name) or "fake",  # noqa: PTH119 - it need not be a path
            module=f"{LinearBackend.__module__}.{LinearBackend.__qualname__}",
            weights_sha256=hashlib.sha256(repr((labels, spec.size)).encode()).hexdigest(),
        ),
        input=spec,
        classes=len(labels),
        labels=labels,
        probability=probability,
        bias_terms=("logit_bias",),
        ranks=min(len(labels), MOST_RANKS),
        max_batch=_MAX_BATCH,
        tolerance=TOLERANCES["fp32"],
        predict_graph="predict.onnx",
        explain_graph="explain.onnx",
        weights="weights.bin",
        golden="golden.npz",
        opset=18,
        ir_version=10,
        versions={},
        rewrites={},
        parity=(),
        parity_limits={},
        files={},
    )
