"""Every error this package raises on purpose: one tree, each with a stable code and what to do.

`code` is part of the public interface and never changes its meaning. `retryable` says whether the
same call may succeed later. `exit_code` is what the command line returns.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import Self

if TYPE_CHECKING:
    from bcos_sdk.results import Completeness

__all__ = [
    "BcosError",
    "BundleError",
    "BundleExistsError",
    "CaptureError",
    "CheckpointError",
    "ClientClosedError",
    "DeadlineError",
    "DeviceError",
    "DownloadError",
    "EngineError",
    "ExportError",
    "HashMismatchError",
    "ImageTooLargeError",
    "ImagesFailedError",
    "IncompleteExplanationError",
    "InferenceError",
    "InputError",
    "MissingArrayError",
    "MissingExtraError",
    "NoPublishedWeightsError",
    "NotDynamicLinearError",
    "OutOfMemoryError",
    "OutputError",
    "ParityError",
    "QueueFullError",
    "RegistryError",
    "SelfTestError",
    "UnknownModelError",
    "UnknownTargetError",
    "UnreadableImageError",
    "UnsafeCheckpointError",
    "WeightsMismatchError",
]


class BcosError(Exception):
    """What happened, to which input (`source`), and what to do about it (`hint`)."""

    code: ClassVar[str] = "bcos_error"
    exit_code: ClassVar[int] = 1
    retryable: bool = False
    hint: str | None = None

    def __init__(
        self, message: str, *, source: str | None = None, hint: str | None = None, retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.source = source
        if hint is not None:
            self.hint = hint
        if retryable is not None:
            self.retryable = retryable

    def about(self, source: str) -> Self:
        """The same error of this source; several images may have failed for one reason."""
        if self.source is not None:
            return self
        error = copy.copy(self)
        error.source = source
        return error

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process pools. A subclass may be made from more than a message, so it is not
        # made again: its attributes travel as they are.
        return _rebuild, (type(self), self.message), self.__dict__


def _rebuild(kind: type[BcosError], message: str) -> BcosError:
    error = kind.__new__(kind)
    BcosError.__init__(error, message)
    return error


class MissingExtraError(BcosError, ImportError):
    """A feature needs packages of an extra that is not installed."""

    code = "missing_extra"


class RegistryError(BcosError):
    """A model registry file that cannot be used; `problems` names each faulty key by its path."""

    code = "registry_invalid"

    def __init__(self, message: str, *, source: str, problems: tuple[str, ...] = ()) -> None:
        lines = [message, *(f"  {problem}" for problem in problems)]
        super().__init__("\n".join(lines), source=source)
        self.problems = problems


class UnknownModelError(BcosError):
    """A model name that the registry does not have."""

    code = "unknown_model"
    exit_code = 2


class NoPublishedWeightsError(BcosError):
    """A model for which the registry knows no weights."""

    code = "no_published_weights"


class DownloadError(BcosError):
    """A transfer that did not complete."""

    code = "download_failed"


class HashMismatchError(BcosError):
    """A file whose contents are not those that were published."""

    code = "hash_mismatch"


class CheckpointError(BcosError):
    """A weights file that cannot be read, or that holds no weights."""

    code = "checkpoint_invalid"


class UnsafeCheckpointError(CheckpointError):
    """A pickle that asks for more than tensors and plain containers: it is refused, not run."""

    code = "checkpoint_unsafe"


class WeightsMismatchError(BcosError):
    """Weights of another model: the keys and shapes that differ, and the models they would fit."""

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


class CaptureError(BcosError):
    """A module whose forward pass cannot be turned into a graph."""

    code = "capture_failed"


class NotDynamicLinearError(BcosError):
    """An operator that keeps the network from being linear in the image with its weights frozen."""

    code = "not_dynamic_linear"

    def __init__(self, message: str, *, operator: str, path: str, hint: str) -> None:
        super().__init__(message, source=path, hint=hint)
        self.operator = operator
        self.path = path


class ExportError(BcosError):
    """A program that cannot be written as ONNX."""

    code = "export_failed"


class EngineError(BcosError):
    """A graph of which TensorRT builds no engine; its own words are quoted."""

    code = "engine_failed"
    hint = "The ONNX graphs of the bundle are complete and can be used."


class ParityError(BcosError):
    """An exported graph that does not do what the module does: no bundle is written."""

    code = "parity_failed"
    exit_code = 3


class BundleError(BcosError):
    """A bundle that is damaged, incomplete or of another version."""

    code = "bundle_invalid"


class BundleExistsError(BcosError):
    """A place where something stands already, which is not replaced without being told."""

    code = "bundle_exists"


class UnknownTargetError(BcosError):
    """A class, label or rank that the model does not have."""

    code = "unknown_target"


class InputError(BcosError):
    """An image or an argument of another kind than is taken; what was expected is said."""

    code = "input_invalid"
    hint = "See the documentation of the call for what it takes."


class UnreadableImageError(BcosError):
    """A file or bytes that are no image, a damaged one, or one of a format that is not allowed."""

    code = "image_unreadable"
    hint = "Check the file; the other images are not affected."


class ImageTooLargeError(BcosError):
    """More bytes, pixels or images than the limits allow."""

    code = "image_too_large"
    hint = "Make it smaller, or raise the limit."


class DeviceError(BcosError):
    """A device that was asked for and does not work here."""

    code = "device_unavailable"
    hint = "`bcos-sdk doctor` says which devices work."


class InferenceError(BcosError):
    """A graph that failed while running, or whose logits are not numbers."""

    code = "inference_failed"
    hint = "`bcos-sdk validate` tells whether the bundle and the device are sound."


class OutOfMemoryError(InferenceError):
    """A batch that does not fit into the device's memory."""

    code = "out_of_memory"
    hint = "Make the client with a smaller max_batch, or ask for fewer targets at once."
    retryable = True


class SelfTestError(BcosError):
    """A graph that does not say on this device what the network said when it was exported."""

    code = "self_test_failed"
    exit_code = 3


class IncompleteExplanationError(BcosError):
    """An explanation that does not add up to its logit; `completeness` holds the figures."""

    code = "explanation_incomplete"
    exit_code = 4

    def __init__(self, message: str, *, source: str, hint: str, completeness: Completeness) -> None:
        super().__init__(message, source=source, hint=hint)
        self.completeness = completeness


class OutputError(BcosError):
    """A file that cannot be written: a full disk, a folder without permission."""

    code = "output_failed"


class MissingArrayError(BcosError):
    """An array that this result does not carry, because it was not asked for or left out of the JSON."""

    code = "array_missing"


class QueueFullError(BcosError):
    """More images wait for the device than the queue holds: come back later."""

    code = "queue_full"
    hint = "Try again later, or raise Limits(queue=…)."
    retryable = True


class DeadlineError(BcosError):
    """An image that was not done in the time given."""

    code = "deadline_exceeded"
    hint = "Give it more time, or fewer images at once."
    retryable = True


class ClientClosedError(BcosError):
    """A client that was closed, or that belongs to another process."""

    code = "client_closed"
    hint = "Make a new one."


class ImagesFailedError(BcosError):
    """Some images of a list failed: `results` has one entry per image, in order, a `Failure` where it failed."""

    code = "images_failed"
    exit_code = 5

    def __init__(self, message: str, *, results: list[Any], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.results = results
