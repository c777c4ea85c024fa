"""Every error this package raises on purpose: one tree, each with a stable code and what to do.

`code` is part of the public interface and never changes its meaning. `retryable` says whether the
same call may succeed later. `exit_code` is what the command line returns.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BcosError",
    "CheckpointError",
    "DownloadError",
    "HashMismatchError",
    "MissingExtraError",
    "NoPublishedWeightsError",
    "RegistryError",
    "UnknownModelError",
    "UnsafeCheckpointError",
    "WeightsMismatchError",
]


class BcosError(Exception):
    """What happened, to which input (`source`), and what to do about it (`hint`)."""

    code: ClassVar[str] = "bcos_error"
    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, source: str | None = None, hint: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.source = source
        self.hint = hint
        self.retryable = retryable

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


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
    """A model of the registry for which nobody has published weights."""

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
