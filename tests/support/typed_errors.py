"""What the fuzz targets accept as an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bcos_sdk.errors import BcosError

__all__ = ["only_typed_errors"]


@contextmanager
def only_typed_errors() -> Iterator[None]:
    """Suppress the errors of this package. One that wraps an error which nobody expected is a finding."""
    try:
        yield
    except BcosError as error:
        if "unexpected error" in error.message:
            raise AssertionError(error.message) from error
