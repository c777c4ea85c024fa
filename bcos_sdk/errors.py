"""Every error that this package raises on purpose, as one tree. Catch a family or a single error.

BcosError
├── MissingExtraError            a package of an optional extra is not installed
├── InputError                   an argument or an image that the call does not accept
│   ├── ImageError
│   │   ├── UnreadableImageError
│   │   ├── ImageTooLargeError
│   │   ├── DecodingTimeoutError
│   │   ├── DecoderCrashedError
│   │   └── WorkerCrashedError
│   ├── UnknownTargetError
│   └── UnknownLayerError
├── ModelError                   a model, its weights or its bundle
│   ├── RegistryError
│   ├── UnknownModelError
│   ├── WeightsError
│   │   ├── NoPublishedWeightsError
│   │   ├── DownloadError
│   │   ├── HashMismatchError
│   │   ├── CheckpointError
│   │   │   └── UnsafeCheckpointError
│   │   └── WeightsMismatchError
│   ├── BundleError
│   │   └── SignatureError
│   ├── BundleExistsError
│   └── SigningError
├── ExportError                  a module that cannot be exported
│   ├── FactoryError
│   ├── CaptureError
│   ├── UnsupportedOperatorError
│   ├── NotDynamicLinearError
│   ├── ParityError
│   └── ExpectationError
├── DeviceError                  a device, or a runtime on it
│   ├── DeviceUnavailableError
│   ├── EngineError
│   ├── InferenceError
│   │   └── OutOfMemoryError
│   ├── SelfTestError
│   └── ServerError              a model behind a server
│       ├── ServerUnavailableError
│       ├── ServerRefusedError
│       └── ServerAnswerError
├── ClusterError                 a Ray cluster that cannot be reached, does not fit, or lost a run
├── ClientError                  a call that the client could not finish
│   ├── QueueFullError
│   ├── DeadlineError
│   └── ClientClosedError
├── ResultError                  a result that is wrong or incomplete
│   ├── IncompleteExplanationError
│   ├── MissingArrayError
│   └── ImagesFailedError
├── OutputError                  a file that cannot be written
│   ├── OutputExistsError
│   └── OutputInUseError
└── UntrustedFolderError         a folder of this package that other users can change

`code` is part of the public interface and never changes its meaning. `retryable` says whether the same call may
succeed later. `exit_code` is what the command line returns.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from typing_extensions import Self

from bcos_sdk._plain_text import plain, plain_lines

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = [
    "BcosError",
    "BundleError",
    "BundleExistsError",
    "CaptureError",
    "Certificate",
    "CheckpointError",
    "ClientClosedError",
    "ClientError",
    "ClusterError",
    "DeadlineError",
    "DecoderCrashedError",
    "DecodingTimeoutError",
    "DeviceError",
    "DeviceUnavailableError",
    "DownloadError",
    "EngineError",
    "ExpectationError",
    "ExportError",
    "FactoryError",
    "HashMismatchError",
    "ImageError",
    "ImageTooLargeError",
    "ImagesFailedError",
    "IncompleteExplanationError",
    "InferenceError",
    "InputError",
    "MissingArrayError",
    "MissingExtraError",
    "ModelError",
    "NoPublishedWeightsError",
    "NotDynamicLinearError",
    "OutOfMemoryError",
    "OutputError",
    "OutputExistsError",
    "OutputInUseError",
    "ParityError",
    "QueueFullError",
    "RegistryError",
    "ResultError",
    "SelfTestError",
    "ServerAnswerError",
    "ServerError",
    "ServerRefusedError",
    "ServerUnavailableError",
    "SignatureError",
    "SigningError",
    "UnknownLayerError",
    "UnknownModelError",
    "UnknownTargetError",
    "UnreadableImageError",
    "UnsafeCheckpointError",
    "UnsupportedOperatorError",
    "UntrustedFolderError",
    "WeightsError",
    "WeightsMismatchError",
    "WorkerCrashedError",
    "first_faults",
    "shown",
]

_MOST_FAULTS = 5
_MOST_PROBLEMS = 50
_MOST_SHOWN = 200


class BcosError(Exception):
    """Base of all errors: what failed, for which input (`source`), and what to do (`hint`).

    Messages and hints quote names and contents of files with control characters escaped, so that they can be
    printed and logged. `source` is exact.
    """

    code: ClassVar[str] = "bcos_error"
    exit_code: ClassVar[int] = 1
    retryable: bool = False
    hint: str | None = None

    def __init__(
        self, message: str, *, source: str | None = None, hint: str | None = None, retryable: bool | None = None
    ) -> None:
        message = plain_lines(message.replace(source, plain(source)) if source else message)
        super().__init__(message)
        self.message = message
        self.source = source
        if hint is not None:
            self.hint = plain_lines(hint)
        if retryable is not None:
            self.retryable = retryable

    def about(self, source: str) -> Self:
        """Return a copy with `source` set, or this error if it has a source. Several images can share one error."""
        if self.source is not None:
            return self
        error = copy.copy(self)
        error.source = source
        return error

    def __str__(self) -> str:
        return f"{self.message}\n{plain_lines(self.hint)}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Process pools pickle errors. Constructors of subclasses take more arguments than a message, so a copy is made
        # without them, and its attributes are set.
        return _rebuild, (type(self), self.message), self.__dict__


def _rebuild(kind: type[BcosError], message: str) -> BcosError:
    error = kind.__new__(kind)
    BcosError.__init__(error, message)
    return error


def first_faults(error: ValidationError) -> str:
    """The first faults that pydantic found in a document, each with the path of its field, in one line."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_FAULTS]
    return "; ".join(
        shown(f"{'.'.join(shown(part, quote=False) for part in fault['loc'])}: {fault['msg']}", quote=False)
        for fault in faults
    )


def shown(value: object, *, quote: bool = True, most: int = _MOST_SHOWN) -> str:
    """The value as an error quotes it: as Python writes it, shortened to `most` characters.

    Python refuses to write integers of more than 4,300 digits and values that are nested deeply.
    """
    try:
        text = repr(value) if quote else str(value)
    except Exception:
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else f"{text[:most]}…"


class MissingExtraError(BcosError, ImportError):
    """A package of an optional extra is not installed."""

    code = "missing_extra"


# ------------------------------------------------------------------------------------------------------------ input


class InputError(BcosError):
    """An argument or an image has a type, shape or value that the call does not accept."""

    code = "input_invalid"
    hint: str | None = "The documentation of the call lists what it accepts."


class ImageError(InputError):
    """An image cannot be used. Family of the errors below."""

    code = "image_error"


class UnreadableImageError(ImageError):
    """A file or bytes are not an image, are damaged, or have a format that is not allowed."""

    code = "image_unreadable"
    hint = "Check the file; the other images are not affected."


class ImageTooLargeError(ImageError):
    """An image or a call exceeds the limits on bytes, pixels or images."""

    code = "image_too_large"
    hint = "Make it smaller, or raise the limit."


class DecodingTimeoutError(ImageError):
    """An image was not decoded within the time limit, so its decoder was ended."""

    code = "decoding_timeout"
    hint = "Save the image again with another program, or raise Limits(decoding_seconds=…)."


class DecoderCrashedError(ImageError):
    """The child process that decodes an image crashed, or could not be started."""

    code = "decoder_crashed"
    hint = "Check the file; the other images are not affected."


class WorkerCrashedError(ImageError):
    """An image ended the processes that explained it on a cluster: a native crash, or too little memory."""

    code = "worker_crashed"
    hint = "Check the file, and the memory of the workers; the other images are not affected."


class UnknownTargetError(InputError):
    """The model has no such class, label or rank."""

    code = "unknown_target"
    hint = None


class UnknownLayerError(InputError):
    """The network has no such layer, or it cannot be explained."""

    code = "unknown_layer"
    hint = None

    @classmethod
    def among(cls, path: str, known: Sequence[str], advice: str, *, otherwise: str = "") -> UnknownLayerError:
        """The error for a name that is none of the known layers.

        The hint has the nearest of them, or `otherwise` if none is near, and the advice.
        """
        near = get_close_matches(path, known, n=3, cutoff=0.4)
        listed = f"Similar layers: {', '.join(near)}. " if near else otherwise
        return cls(f"there is no layer {shown(path)}", source=shown(path, quote=False), hint=f"{listed}{advice}")


# ----------------------------------------------------------------------------------------------------------- models


class ModelError(BcosError):
    """A model, its weights or its bundle cannot be used. Family of the errors below."""

    code = "model_error"


class RegistryError(ModelError):
    """A model registry file is invalid; `problems` names each faulty key by its path."""

    code = "registry_invalid"

    def __init__(self, message: str, *, source: str, problems: tuple[str, ...] = ()) -> None:
        more = [f"and {len(problems) - _MOST_PROBLEMS:,} more"] if len(problems) > _MOST_PROBLEMS else []
        lines = [message, *(f"  {plain(problem)}" for problem in (*problems[:_MOST_PROBLEMS], *more))]
        super().__init__("\n".join(lines), source=source)
        self.problems = problems


class UnknownModelError(ModelError):
    """The registry has no model of that name."""

    code = "unknown_model"
    exit_code = 2


class WeightsError(ModelError):
    """The weights of a model cannot be obtained or loaded. Family of the errors below."""

    code = "weights_error"


class NoPublishedWeightsError(WeightsError):
    """The registry has no weights for this model."""

    code = "no_published_weights"


class DownloadError(WeightsError):
    """A download did not complete."""

    code = "download_failed"


class HashMismatchError(WeightsError):
    """The hash of a file is not the published one, or not the one that the caller passed."""

    code = "hash_mismatch"


class CheckpointError(WeightsError):
    """A weights file cannot be read, or holds no weights."""

    code = "checkpoint_invalid"


class UnsafeCheckpointError(CheckpointError):
    """A pickle needs more than tensors and plain containers. It was refused, not run."""

    code = "checkpoint_unsafe"


class WeightsMismatchError(WeightsError):
    """The weights are not those of the model. The attributes list the keys that differ and the models that fit."""

    code = "weights_mismatch"

    def __init__(
        self,
        message: str,
        *,
        source: str,
        hint: str,
        missing: tuple[str, ...],
        unexpected: tuple[str, ...],
        misshapen: tuple[str, ...],
        fits: tuple[str, ...],
    ) -> None:
        super().__init__(message, source=source, hint=hint)
        self.missing = missing
        self.unexpected = unexpected
        self.misshapen = misshapen
        self.fits = fits


class BundleError(ModelError):
    """A bundle is damaged, incomplete or of another version."""

    code = "bundle_invalid"


class SignatureError(BundleError):
    """A bundle has no signature, or one that is not valid, is of somebody else or of other files."""

    code = "signature_invalid"


class BundleExistsError(ModelError):
    """The target exists, and `force` was not given or the folder is not a bundle."""

    code = "bundle_exists"


class SigningError(ModelError):
    """A bundle cannot be signed. It is complete but not signed."""

    code = "signing_failed"


# ----------------------------------------------------------------------------------------------------------- export


class ExportError(BcosError):
    """A module cannot be exported."""

    code = "export_failed"


class FactoryError(ExportError):
    """A module of your own cannot be made: its factory does not import, raises, or returns something else."""

    code = "factory_failed"
    exit_code = 2


class CaptureError(ExportError):
    """The forward pass of a module cannot be captured as a graph."""

    code = "capture_failed"


class UnsupportedOperatorError(ExportError):
    """A module has an operator that the exporter does not know."""

    code = "operator_unsupported"


class NotDynamicLinearError(ExportError):
    """An operator makes the network non-linear in the image even with its dynamic weights frozen."""

    code = "not_dynamic_linear"

    def __init__(self, message: str, *, operator: str, path: str, hint: str) -> None:
        super().__init__(message, source=path, hint=hint)
        self.operator = operator
        self.path = path


class ParityError(ExportError):
    """An exported graph differs from the torch module. No bundle was written."""

    code = "parity_failed"
    exit_code = 3


class ExpectationError(ExportError):
    """The logits differ from those that the user's own code gave for the same image. No bundle was written."""

    code = "expectation_failed"
    exit_code = 3


# ---------------------------------------------------------------------------------------------------------- devices


class DeviceError(BcosError):
    """A device, or the runtime on it, failed. Family of the errors below."""

    code = "device_error"


class DeviceUnavailableError(DeviceError):
    """The requested device does not work on this machine."""

    code = "device_unavailable"
    hint = "`bcos-sdk doctor` shows which devices work."


class EngineError(DeviceError):
    """TensorRT could not build or load an engine; the message quotes the error of TensorRT."""

    code = "engine_failed"
    hint = "The ONNX graphs of the bundle are not affected. They run on the other devices, such as cpu."


class InferenceError(DeviceError):
    """A graph failed while it ran, or returned logits that are not finite."""

    code = "inference_failed"
    hint = "Run `bcos-sdk validate` to check the bundle on the device."


class OutOfMemoryError(InferenceError):
    """A batch does not fit into the memory of the device."""

    code = "out_of_memory"
    hint = "Create the client with a smaller max_batch, or request fewer targets at once."
    retryable = True


class SelfTestError(DeviceError):
    """On this device a graph does not reproduce the golden record of its bundle."""

    code = "self_test_failed"
    exit_code = 3


class ServerError(DeviceError):
    """A server failed to compute a request. Family of the errors below."""

    code = "server_error"
    hint: str | None = "The log of the server has the cause."


class ServerUnavailableError(ServerError):
    """A server cannot be reached, is not ready or is too busy, also after retries."""

    code = "server_unavailable"
    hint = "Try again later, and check that the server runs and the address is right."
    retryable = True


class ServerRefusedError(ServerError):
    """A server refuses a request: it has no such model, needs a token, or does not accept the tensors."""

    code = "server_refused"
    hint = None


class ServerAnswerError(ServerError):
    """The answer of a server is not that of its model: wrong shapes or types, another model, or no valid message."""

    code = "server_answer_invalid"
    hint = "The server is not one that this client can use, or it was changed. Restart it with the model that you want."


class ClusterError(BcosError):
    """A Ray cluster cannot be reached, has too few CPUs or GPUs, or could not finish a run."""

    code = "cluster_error"
    hint = "`ray status` shows the machines of the cluster and what they have."


# ------------------------------------------------------------------------------------------------ calls of the client


class ClientError(BcosError):
    """The client could not finish a call. Family of the errors below."""

    code = "client_error"


class QueueFullError(ClientError):
    """The queue of images that wait for the device is full."""

    code = "queue_full"
    hint = "Try again later, or raise Limits(queue=…)."
    retryable = True


class DeadlineError(ClientError):
    """An image was not finished before the deadline of its call."""

    code = "deadline_exceeded"
    hint = "Give the call more time, or pass fewer images at once."
    retryable = True


class ClientClosedError(ClientError):
    """The client was closed, or was created in another process."""

    code = "client_closed"
    hint = "Create a new client."


# ---------------------------------------------------------------------------------------------------------- results


class Certificate(Protocol):
    """The figures of a completeness check, as `bcos_sdk.Completeness` has them."""

    @property
    def logit(self) -> float: ...
    @property
    def sum(self) -> float: ...
    @property
    def scale(self) -> float: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def residual(self) -> float: ...
    @property
    def relative_residual(self) -> float: ...
    @property
    def passed(self) -> bool: ...


class ResultError(BcosError):
    """A result is wrong or incomplete. Family of the errors below."""

    code = "result_error"


class IncompleteExplanationError(ResultError):
    """An explanation does not add up to its logit; `completeness` holds the figures."""

    code = "explanation_incomplete"
    exit_code = 4

    def __init__(self, message: str, *, source: str, hint: str, completeness: Certificate) -> None:
        super().__init__(message, source=source, hint=hint)
        self.completeness = completeness


class MissingArrayError(ResultError):
    """A result does not hold this array: it was not requested, or was left out of the JSON."""

    code = "array_missing"


class ImagesFailedError(ResultError):
    """Some images of a list failed. `results` has one entry per image, in order: a result or a `Failure`."""

    code = "images_failed"
    exit_code = 5

    def __init__(self, message: str, *, results: list[Any], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.results = results


class OutputError(BcosError):
    """A file cannot be written, for example because the disk is full or the folder is read-only."""

    code = "output_failed"


class OutputExistsError(OutputError):
    """The output folder has the record of an earlier run, and neither to continue nor to overwrite it was asked for."""

    code = "output_exists"
    exit_code = 2


class OutputInUseError(OutputError):
    """Another run writes to the output folder; the message says which."""

    code = "output_in_use"
    retryable = True


class UntrustedFolderError(BcosError):
    """Another user can change the cache, the store or the folder of the key, or owns it."""

    code = "folder_untrusted"
