"""Whatever goes wrong with one image is a value: its error, without the frames that raised it.

A traceback would keep the image's bytes alive, and a stream of bad images would fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bcos_sdk.errors import BcosError, InferenceError, OutOfMemoryError

__all__ = ["as_outcome", "bare_error"]


def as_outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call returns, or the `BcosError` that it raised."""
    try:
        return call(*arguments)
    except Exception as error:  # a fault of ours is no reason to lose the other images
        return bare_error(error)


def bare_error(error: Exception) -> BcosError:
    if isinstance(error, MemoryError):
        error = OutOfMemoryError("there is not enough memory")
    elif not isinstance(error, BcosError):
        error = InferenceError(f"unexpected failure: {error!r}")
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error
